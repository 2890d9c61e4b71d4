/* The kernels that a GPU is measured by: the copy that ops are timed against, and fused multiply-adds. Called by
 * gpu_timing.c and gpu_machine.c. SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_KERNELS_H
#define CLI_GPU_KERNELS_H

#include "gpu/gpu.h"

/* The ways to copy; which is the fastest differs with the size, so that all have to be tried. */
int gpu_copy_variants(void);

/* Makes a variant's kernel. */
ek_status gpu_copy_get(struct ek_gpu *gpu, int variant, CUfunction *function);

/* Launches it: a plain launch that waits for what is before it. bytes are a multiple of 16, as are the addresses. */
CUresult gpu_copy_launch(const struct ek_gpu *gpu, int variant, CUfunction function, CUstream stream,
			 void *to, const void *from, size_t bytes);

/* Makes the kernel of a dtype, EK_F32 or EK_F64. */
ek_status gpu_flops_get(struct ek_gpu *gpu, ek_dtype dtype, CUfunction *function);

/* Launches it on all multiprocessors; `to` has room for one number. */
CUresult gpu_flops_launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, void *to);

/* What a launch computes; a fused multiply-add counts two. */
double gpu_flops_of_launch(const struct ek_gpu *gpu);

#endif
