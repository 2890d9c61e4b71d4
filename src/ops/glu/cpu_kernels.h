/* What a level exports: the kernels of gated activations, one set for each arithmetic. cpu.c decides which rows and columns each
 * call gets. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_CPU_KERNELS_H
#define EK_OPS_GLU_CPU_KERNELS_H

#include <stdbool.h>

#include "cpu/columns.h"
#include "cpu/level.h"
#include "op.h"

struct ek_glu_kernel {
	/* Rows first … end-1. */
	void (*forward)(const ek_glu_forward_args *args, int64_t first, int64_t end, bool nontemporal);
	/* task: of the column sums, [1 or 2][cols]; NULL: none are wanted. */
	void (*backward)(const ek_glu_backward_args *args, int64_t first, int64_t end,
			 const struct ek_column_task *task, bool nontemporal);
	/* The gradients of columns first … end-1 from the results of count tasks. */
	void (*finish_columns)(const ek_glu_backward_args *args, const void *results, int64_t count,
			       int64_t first, int64_t end);
};

/* Sums of a column: of dgate, and of dvalue where there is a value; it may be NULL where there are no rows to sum. */
static inline int ek_glu_sums(const ek_glu_backward_args *args)
{
	return args->value || args->interleaved || args->dvalue_bias ? 2 : 1;
}

struct ek_glu_kernels {
	const struct ek_glu_kernel *f32, *f64;
};

#define EK_GLU_LEVEL(name, usable) extern const struct ek_glu_kernels ek_glu_##name;
EK_LEVELS(EK_GLU_LEVEL)
#undef EK_GLU_LEVEL

#endif
