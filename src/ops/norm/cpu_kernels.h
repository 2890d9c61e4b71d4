/* What a level exports: the norm kernels, one set per pair of activation and weight dtype. cpu.c decides which
 * rows and columns each call gets. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_NORM_KERNELS_H
#define EK_CPU_NORM_KERNELS_H

#include <stdbool.h>

#include "cpu/columns.h"
#include "cpu/level.h"
#include "op.h"

/* Pairs of rows that threads share, part by part of the columns (cpu_split.c): one is summed, the one before it written.
 * Numbers are kept as double, which holds binary32 exactly. */
enum { EK_MOST_PARTS = 64 };

struct ek_split_row {
	double mean, mean_lo, rstd, mean_g, mean_g_xhat;
};

struct ek_split {
	int64_t row, part_cols, parts; /* row: the first that is summed */
	int count, before;             /* rows of either pair: 0, 1 or 2 */
	bool second;                   /* the sums are those of LayerNorm's second pass */
	bool nontemporal;
	double sums[2][2][EK_MOST_PARTS]; /* which sum, which row, which part */
	struct ek_split_row now[2], old[2];
	void *leaf; /* [2][cols]: the pair's leaf of the column sums; NULL: not wanted */
};

/* Bytes of inputs that forward_neighbours makes and keeps: of the rows at hand and of those before. */
enum { MADE_BYTES = 64 << 10 };

struct ek_norm_kernel {
	/* Rows first … end-1, whole. */
	void (*forward)(const ek_norm_forward_args *args, int64_t first, int64_t end, bool nontemporal);
	/* With neighbours of the same dtype; made inputs take up to MADE_BYTES / 2 a row. */
	void (*forward_neighbours)(const ek_norm_forward_args *args, int64_t first, int64_t end,
				   bool nontemporal);
	/* With dh if there is one; task: of the column sums, NULL: none are wanted. */
	void (*backward)(const ek_norm_backward_args *args, int64_t first, int64_t end,
			 const struct ek_column_task *task, bool nontemporal);
	/* dweight and dbias of columns first … end-1 from the results of count tasks: [count][2][cols]. */
	void (*finish_columns)(const ek_norm_backward_args *args, const void *results, int64_t count,
			       int64_t first, int64_t end);
	/* Steps of split rows. Those with a part run in parallel, the others between them. */
	void (*split_first)(const ek_norm_forward_args *args, struct ek_split *split, int64_t part);
	void (*split_second)(const ek_norm_forward_args *args, struct ek_split *split, int64_t part);
	void (*split_finish)(const ek_norm_forward_args *args, struct ek_split *split);
	void (*split_given)(const ek_norm_backward_args *args, struct ek_split *split);
	void (*split_reduce)(const ek_norm_backward_args *args, struct ek_split *split, int64_t part);
	void (*split_means)(const ek_norm_backward_args *args, struct ek_split *split);
};

/* The norms with their neighbours and flavours, for any dtypes of one arithmetic. */
struct ek_fused_kernel {
	void (*forward)(const ek_norm_forward_args *args, int64_t first, int64_t end, bool nontemporal);
	/* task: of the column sums, [3][cols] with dx_bias; NULL: none are wanted. */
	void (*backward)(const ek_norm_backward_args *args, int64_t first, int64_t end,
			 const struct ek_column_task *task, bool nontemporal);
	void (*finish_columns)(const ek_norm_backward_args *args, const void *results, int64_t count,
			       int64_t first, int64_t end);
};

struct ek_norm_kernels {
	const struct ek_fused_kernel *f32_fused, *f64_fused;
#define EK_ROW(act, weight) const struct ek_norm_kernel *act##_##weight;
	EK_NORM_DTYPES(EK_ROW)
#undef EK_ROW
};

#define EK_NORM_LEVEL(name, usable) extern const struct ek_norm_kernels ek_norm_##name;
EK_LEVELS(EK_NORM_LEVEL)
#undef EK_NORM_LEVEL

#endif
