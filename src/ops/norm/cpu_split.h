/* Few rows, so wide that threads share each of them. Called by cpu.c. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_CPU_SPLIT_H
#define EK_OPS_NORM_CPU_SPLIT_H

#include "core/context.h"
#include "cpu_kernels.h"

/* Fewer pairs of rows than keep the threads evenly busy, and rows long enough to be worth cutting. */
bool ek_split_pays(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes);

void ek_split_forward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		      const ek_norm_forward_args *args, bool nontemporal);
void ek_split_backward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		       const ek_norm_backward_args *args, bool nontemporal);
size_t ek_split_backward_workspace(const ek_norm_backward_args *args);

#endif
