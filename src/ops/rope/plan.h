/* Rotary position embedding on a GPU as plans (gpu/plan.h). Built from resolved arguments; pointers are read for NULL and
 * alignment, and not followed. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_PLAN_H
#define EK_OPS_ROPE_PLAN_H

#include "gpu/plan.h"
#include "op.h"

void ek_rope_plan_forward(const ek_rope_forward_args *args, struct ek_plan *plan);
/* any_rows: with the kernels that other numbers of tokens need. */
void ek_rope_plan_backward(const ek_rope_backward_args *args, bool any_rows, struct ek_plan *plan);
/* Enough for any number of tokens up to those of args. */
size_t ek_rope_plan_workspace(const ek_rope_backward_args *args);

/* The partial sums of weights, or of biases, that the kernel for them writes: of q and of k, whose gradients are wanted. */
void ek_rope_plan_partials(const ek_rope_backward_args *args, bool of_weights, int64_t partials[2]);

/* For the tables of op.c. */
void ek_rope_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);
void ek_rope_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);

#endif
