/* Gated activations on a GPU. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_CUDA_H
#define EK_OPS_GLU_CUDA_H

#include "op.h"

extern const struct ek_glu_backend ek_glu_cuda;

#endif
