/* Few rows, so wide that threads share each of them. Called by norm.c. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_WIDE_H
#define EK_CPU_WIDE_H

#include "../context.h"
#include "norm_kernels.h"

/* Fewer pairs of rows than keep the threads evenly busy, and rows long enough to be worth cutting. */
bool ek_wide_pays(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes);

void ek_wide_forward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		     const ek_norm_forward_args *args, bool stream);
void ek_wide_backward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		      const ek_norm_backward_args *args, bool stream);
size_t ek_wide_backward_workspace(const ek_norm_backward_args *args);

#endif
