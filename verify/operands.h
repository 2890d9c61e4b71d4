/* The operands of a case in memory: made, filled, computed on any context, compared by bits. Inputs are made once, outputs
 * once for each computation. The one verifier of `evenkeel verify`, of run and of the tests.
 * SPDX-License-Identifier: MIT */
#ifndef VERIFY_OPERANDS_H
#define VERIFY_OPERANDS_H

#include "case.h"

struct operand {
	bool present;
	ek_dtype dtype;
	int64_t rows, cols, stride; /* a vector is one row; stride: of its innermost rows */
	int blocks;                 /* of rows that have several dimensions: how many */
	struct {
		int64_t count, stride;
	} block[EK_MOST_DIMS]; /* outermost first */
	struct buffer buffer;
};

/* By number in the op's table: the inputs alone, or the outputs alone. */
struct operands {
	const struct ek_op *op;
	struct operand of[EK_MOST_OPERANDS];
	struct operand workspace; /* of outputs */
};

/* The element that row number `row` starts at. */
int64_t operand_row(const struct operand *o, int64_t row);
/* The digest goes on with its elements. */
uint64_t operand_digest(uint64_t digest, const struct operand *o);
/* The operand of that name; one that is not present where the op has none. */
struct operand *operand_named(struct operands *set, const char *name);
void operands_free(struct operands *set);
/* Makes borrowed the operands of `from`, by name, as inputs of c: forward on what backward was given. */
void operands_borrow(const struct test_case *c, struct operands *borrowed, const struct operands *from);

/* Makes view one row of the whole: the operands of a case of one row, in the whole's memory. */
void operands_row(const struct test_case *one, const struct operands *whole, int64_t row,
		  struct operands *view);

/* What the operand is, with the bytes of its buffer; and its values, at o->buffer.data. */
void operand_describe(const struct test_case *c, int number, struct operand *o);
void operand_fill(const struct test_case *c, int number, struct operand *o);

/* Makes the inputs and fills them; those that forward returns, by forward on ctx, unless they are arbitrary. */
ek_status inputs_fill(ek_context *ctx, const struct test_case *c, struct operands *inputs);
/* The same of what forward returns alone: for an x that was changed. */
ek_status inputs_fill_statistics(ek_context *ctx, const struct test_case *c, struct operands *inputs);

/* Makes the outputs, of canaries or of what accumulating and in-place calls start from, and ctx's workspace. */
ek_status outputs_make(ek_context *ctx, const struct test_case *c, const struct operands *inputs,
		       struct operands *outputs);
void operands_args(const struct test_case *c, const struct operands *inputs, const struct operands *outputs,
		   union op_args *args);
/* outputs_make, then the call, wherever ctx computes. */
ek_status outputs_compute(ek_context *ctx, const struct test_case *c, const struct operands *inputs,
			  struct operands *outputs);
/* How many elements the outputs have, without gaps between rows. */
double outputs_values(const struct operands *outputs);

/* ---- comparing ---- */

enum where { IN_TENSOR, BETWEEN_ROWS, BEFORE_TENSOR, BEHIND_TENSOR };
struct difference {
	const char *name;                        /* of the operand, or "workspace" */
	const struct operand *expected, *actual; /* of margins and gaps expected is NULL */
	enum where where;
	int64_t row, col, index; /* index: in elements from the first */
};

/* Whether all outputs are the same bits, where any NaN equals any NaN. */
bool outputs_equal(const struct operands *expected, const struct operands *actual,
		   struct difference *difference);
/* Whether what is between and around the outputs, and around the workspace, is as it was made. */
bool outputs_whole(const struct operands *outputs, struct difference *difference);
/* Both. */
bool outputs_same(const struct operands *expected, const struct operands *actual,
		  struct difference *difference);
/* "y[2][3] is 0x… (…), the reference has 0x… (…)"; valid until the next call. */
const char *difference_text(const struct difference *difference);

#endif
