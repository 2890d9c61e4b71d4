/* The copy on a GPU that speed is measured against. Called by gpu_timing.c. SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_COPY_H
#define CLI_GPU_COPY_H

#include "gpu/gpu.h"

/* The ways to copy; which is the fastest differs with the size, so that all have to be tried. */
int gpu_copy_variants(void);

/* Makes a variant's kernel. */
ek_status gpu_copy_get(struct ek_gpu *gpu, int variant, CUfunction *function);

/* Launches it: a plain launch that waits for what is before it. bytes are a multiple of 16, as are the addresses. */
CUresult gpu_copy_launch(const struct ek_gpu *gpu, int variant, CUfunction function, CUstream stream,
			 void *to, const void *from, size_t bytes);

#endif
