/* What a level exports: the kernels of rotary position embedding, one set for each arithmetic. cpu.c decides which heads each call
 * gets. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_CPU_KERNELS_H
#define EK_OPS_ROPE_CPU_KERNELS_H

#include <stdbool.h>

#include "cpu/columns.h"
#include "cpu/level.h"
#include "op.h"

/* The column sums of a pass over a side: none; those of a bias, whose rows are tokens; those of a weight, whose rows are heads. */
enum ek_rope_sum { EK_ROPE_NO_SUM, EK_ROPE_OF_BIAS, EK_ROPE_OF_WEIGHT };

/* Heads first … end-1 of a side, counted token by token, in a token head by head. */
struct ek_rope_heads {
	const struct ek_rope_call *call;
	const struct ek_rope_side *side;
	int64_t first, end;
	bool nontemporal;
};

struct ek_rope_kernel {
	void (*forward)(const struct ek_rope_heads *heads);
	/* Whole tokens with EK_ROPE_OF_BIAS. y is written where `writes` is true. */
	void (*backward)(const struct ek_rope_heads *heads, enum ek_rope_sum sum,
			 const struct ek_column_task *task, bool writes);
	/* Columns first … end-1 of a gradient of cols columns from the results of count tasks. */
	void (*finish_columns)(const struct ek_rope_call *call, void *gradient, const void *results,
			       int64_t count, int64_t cols, int64_t first, int64_t end);
};

struct ek_rope_kernels {
	const struct ek_rope_kernel *f32, *f64;
};

#define EK_ROPE_LEVEL(name, usable) extern const struct ek_rope_kernels ek_rope_##name;
EK_LEVELS(EK_ROPE_LEVEL)
#undef EK_ROPE_LEVEL

#endif
