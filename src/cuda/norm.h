/* The norm ops on a GPU: the functions of cpu/norm.h, with statuses. Arguments are judged, strides filled in.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_NORM_H
#define EK_CUDA_NORM_H

#include "kernel.h"

/* prepare: get the kernels ready and launch nothing. */
ek_status ek_cuda_norm_forward(struct ek_gpu *gpu, const ek_norm_forward_args *args, bool prepare);
ek_status ek_cuda_norm_backward(struct ek_gpu *gpu, const ek_norm_backward_args *args, bool prepare);
size_t ek_cuda_norm_backward_workspace(const struct ek_gpu *gpu, const ek_norm_backward_args *args);

/* The kernels that a call with these arguments (forward or backward, the other NULL) needs on GPUs of compute
 * capability arch (90 is 9.0), for packs. Pointers are looked at, not followed. Returns how many. */
int ek_cuda_norm_recipes(const ek_norm_forward_args *forward, const ek_norm_backward_args *backward, int arch,
			 struct ek_recipe *recipes, int most);

#endif
