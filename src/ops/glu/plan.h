/* Gated activations on a GPU as plans (gpu/plan.h). Built from resolved arguments; pointers are read for NULL and alignment, and
 * not followed. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_PLAN_H
#define EK_OPS_GLU_PLAN_H

#include "gpu/plan.h"
#include "op.h"

void ek_glu_plan_forward(const ek_glu_forward_args *args, struct ek_plan *plan);
/* any_rows: with the kernels that other numbers of rows need. */
void ek_glu_plan_backward(const ek_glu_backward_args *args, bool any_rows, struct ek_plan *plan);
/* Enough for any number of rows up to args->rows. */
size_t ek_glu_plan_workspace(const ek_glu_backward_args *args);

/* Partial sums of aligned tensors, which the last kernels of column sums fold. */
int64_t ek_glu_partials(ek_dtype dtype, int64_t rows, int64_t cols);

/* For the tables of op.c. */
void ek_glu_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);
void ek_glu_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);

#endif
