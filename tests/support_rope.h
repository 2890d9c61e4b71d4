/* Cases of RoPE and the norms of heads, for the tests of ek_rope. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_ROPE_H
#define EK_TESTS_SUPPORT_ROPE_H

#include "support.h"

/* rope, qk_norm_rope */
enum {
	FIRST_ROPE_OP = EK_ROW_NAMES,
	ROPE_OPS = EK_OP_NAMES - EK_ROW_NAMES,
	ROPE_CASES = ROPE_OPS * PASS_COUNT * DTYPE_PAIRS
};

/* Case k of ROPE_CASES: every op, pass and pair of dtypes; choices, rows of the tables and layouts are drawn by the seed. */
struct test_case rope_case(int k, struct head_sizes sizes);
/* An even part of the head, all of it one time in two. */
int64_t rotary_of(int64_t head_dim, uint64_t turn);

#endif
