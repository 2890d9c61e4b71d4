/* The norm ops on a GPU: the functions of cpu/norm.h, with statuses. Arguments are judged, strides filled in.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_NORM_H
#define EK_CUDA_NORM_H

#include "kernel.h"

/* prepare: get the kernels ready and launch nothing. */
ek_status ek_cuda_norm_forward(struct ek_gpu *gpu, const ek_norm_forward_args *args, bool prepare);
ek_status ek_cuda_norm_backward(struct ek_gpu *gpu, const ek_norm_backward_args *args, bool prepare);
/* Enough for any number of rows up to args->rows and for any alignment of the tensors. */
size_t ek_cuda_norm_backward_workspace(const struct ek_gpu *gpu, const ek_norm_backward_args *args);

/* The kernels that a call with these arguments (forward or backward, the other NULL) needs on GPUs of compute
 * capability arch (90 is 9.0), for packs. Pointers are looked at, not followed. Returns how many. */
int ek_cuda_norm_recipes(const ek_norm_forward_args *forward, const ek_norm_backward_args *backward, int arch,
			 struct ek_recipe *recipes, int most);

/* How a call is cut on a GPU, for those who count its bytes (src/cost/facts.c). */
enum { EK_MOST_FOLDS = 3 }; /* 128 partial sums into one, as often as it takes */
struct ek_norm_cut {
	bool wide;                           /* norm_wide.cu serves it */
	int64_t slots;                       /* backward, here and below */
	int64_t partials[EK_MOST_FOLDS + 1]; /* column sums written, then those folded; 0 past the last */
	int64_t chunk_bytes;                 /* in the workspace */
};
struct ek_norm_cut ek_cuda_norm_cut(const ek_norm_forward_args *forward,
				    const ek_norm_backward_args *backward, int arch, int multiprocessors);

#endif
