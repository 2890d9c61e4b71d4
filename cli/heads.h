/* Sizes of ops on heads: rows are tokens and columns those of q, so that they are in the same lists as other ops. Called by
 * options.c, cases.c, choices.c and what shows a case. SPDX-License-Identifier: MIT */
#ifndef CLI_HEADS_H
#define CLI_HEADS_H

#include "cases.h"

static inline bool is_on_heads(const struct ek_op_entry *op)
{
	return op->forward == &ek_rope_forward_op;
}

/* Where the options say nothing. */
enum { USUAL_HEADS = 32, USUAL_HEAD_DIM = 128, USUAL_SEQ = 2048 };
static inline int64_t given_or(int64_t given, int64_t usual)
{
	return given ? given : usual;
}

/* Whether so many tokens and columns make whole sequences and heads, as the options want them. */
bool heads_of(const struct options *options, struct shape shape, struct head_sizes *sizes);
/* heads_check.c: makes --batch, --seq, --heads and --head-dim rows and columns. Returns an exit status, and has complained unless
 * that is STATUS_FINE. */
int heads_check(struct options *options);

/* Rows and columns of a case; tokens and columns of q. */
struct shape case_shape(const struct test_case *c);
/* " --head-dim 128 --kv-heads 8": what case_shape leaves open; nothing for other ops. Valid until the next call. */
const char *heads_text(const struct test_case *c);

#endif
