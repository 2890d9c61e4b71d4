/* The norms on a GPU. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_CUDA_H
#define EK_OPS_NORM_CUDA_H

#include "op.h"

extern const struct ek_norm_backend ek_norm_cuda;

#endif
