/* Rotary position embedding on a GPU. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_CUDA_H
#define EK_OPS_ROPE_CUDA_H

#include "op.h"

extern const struct ek_rope_backend ek_rope_cuda;

#endif
