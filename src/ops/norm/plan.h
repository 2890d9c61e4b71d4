/* The norms on a GPU as plans (gpu/plan.h), for calls, warmup and the cost model. Built from resolved arguments and the
 * limits of a GPU, which need not be there. Pointers are read for NULL and alignment, and not followed.
 * SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_PLAN_H
#define EK_OPS_NORM_PLAN_H

#include "gpu/columns.h"
#include "gpu/plan.h"
#include "recipe.h"

struct ek_norm_plan {
	struct ek_plan plan;
	bool staged;                         /* staged.cu serves the rows */
	int64_t slots;                       /* of backward's column sums, here and below */
	int64_t partials[EK_MOST_FOLDS + 1]; /* sums written, then those folded; 0 past the last */
	int64_t chunk_bytes;                 /* in the workspace */
};

/* What the policy of a call depends on, for tensors of this alignment (ek_norm_access). */
struct ek_norm_form ek_norm_forward_form(const ek_norm_forward_args *args, int access);
struct ek_norm_form ek_norm_backward_form(const ek_norm_backward_args *args, int access);

void ek_norm_plan_forward(const ek_norm_forward_args *args, const struct ek_gpu_limits *limits,
			  struct ek_norm_plan *plan);
/* any_rows: with the kernels that other numbers of rows need. */
void ek_norm_plan_backward(const ek_norm_backward_args *args, const struct ek_gpu_limits *limits,
			   bool any_rows, struct ek_norm_plan *plan);

/* Enough for any number of rows up to args->rows and for any alignment of the tensors. */
size_t ek_norm_plan_workspace(const ek_norm_backward_args *args, const struct ek_gpu_limits *limits);

/* The plans alone, for the tables of op.c. */
void ek_norm_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);
void ek_norm_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);

#endif
