/* The kernel that a GPU's rate of fused multiply-adds is measured by. Called by gpu_machine.c.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_FLOPS_H
#define CLI_GPU_FLOPS_H

#include "gpu/gpu.h"

/* Makes the kernel of a dtype, EK_F32 or EK_F64. */
ek_status gpu_flops_get(struct ek_gpu *gpu, ek_dtype dtype, CUfunction *function);

/* Launches it on all multiprocessors; `to` has room for one number. */
CUresult gpu_flops_launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, void *to);

/* What a launch computes; a fused multiply-add counts two. */
double gpu_flops_of_launch(const struct ek_gpu *gpu);

#endif
