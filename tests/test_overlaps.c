/* Memory that operands share: outputs overlap nothing, except in place of the inputs that the header names and where rows of
 * two matrices interleave; everything else is refused, and nothing is written. SPDX-License-Identifier: MIT */
#include <string.h>

#include "support_arguments.h"

static ek_context *ctx;

SETUP()
{
	ctx = arguments_open();
}

static bool may_be_in_place(const char *output, const char *input)
{
	static const char *const pairs[][2] = {
		{"y", "x"},          {"y", "residual"},   {"y", "residual_after"},
		{"y", "gate"},       {"h", "x"},          {"h", "residual"},
		{"dx", "dy"},        {"dx", "x"},         {"dx", "dh"},
		{"dx", "gate"},      {"dresidual", "dy"}, {"dresidual", "x"},
		{"dresidual", "dh"}, {"dgate", "dy"},     {"dgate", "x"},
		{"dgate", "gate"}};
	bool may = false;
	for (int i = 0; i < COUNT_OF(pairs); i++)
		may = may || (strcmp(output, pairs[i][0]) == 0 && strcmp(input, pairs[i][1]) == 0);
	return may;
}

/* Where an operand is, and its bytes; behind the operands, the workspace. 0 bytes: there is none. */
static size_t region_of(const struct call *call, int i, unsigned char **at)
{
	if (i == call->op->operand_count) {
		*at = arena.workspace;
		return call->workspace;
	}
	*at = ek_operand_pointer(&call->op->operands[i], &call->args);
	return *at ? ek_operand_bytes(call->op, &call->op->operands[i], &call->args) : 0;
}

static const char *name_of(const struct ek_op *op, int i)
{
	return i == op->operand_count ? "workspace" : op->operands[i].name;
}

/* Moves operand i to the start, the second byte, the last byte and the end of j, of which one is an output. */
static void check_pair(int number, int i, int j)
{
	struct call call = call_of(number);
	const struct ek_op *op = call.op;
	const char *const names[] = {name_of(op, i), name_of(op, j)};
	unsigned char *at;
	size_t bytes = region_of(&call, j, &at);
	const size_t offsets[] = {0, 1, bytes - 1, bytes};
	for (int k = 0; k < COUNT_OF(offsets) && bytes && region_of(&call, i, &(unsigned char *){0}); k++) {
		ek_operand_set(&op->operands[i], &call.args, at + offsets[k]);
		bool in_place = may_be_in_place(names[0], names[1]) || may_be_in_place(names[1], names[0]);
		if (offsets[k] == bytes || (offsets[k] == 0 && in_place))
			allowed(names[0], &call);
		else
			refused(&call, EK_ERROR_OVERLAP, SAYS(names[0], "overlaps", names[1]));
	}
}

TEST(outputs_overlap_nothing_but_in_place)
{
	for (int n = 0; n < ALL_CALLS; n++) {
		const struct ek_op *op = call_of(n).op;
		for (int i = 0; i < op->operand_count; i++)
			for (int j = 0; j <= op->operand_count; j++)
				if (i != j &&
				    (i < op->output_count || j < op->output_count || j == op->operand_count))
					check_pair(n, i, j);
	}
}

/* Column ranges of one matrix, elements apart, with these strides of the output and the input. */
TEST(rows_may_interleave_or_be_in_place_with_one_stride)
{
	static const struct {
		int64_t apart, stride, input_stride;
		bool allowed;
	} cases[] = {{0, STRIDE, STRIDE, true},
		     {0, COLS, 0, true}, /* 0 is cols */
		     {0, STRIDE, COLS, false},
		     {COLS, STRIDE, STRIDE, true},
		     {STRIDE - COLS, STRIDE, STRIDE, true},
		     {COLS - 1, STRIDE, STRIDE, false},
		     {STRIDE - COLS + 1, STRIDE, STRIDE, false},
		     {COLS, 2 * COLS, 2 * COLS, true},
		     {COLS, STRIDE - 10, STRIDE, false}};
	for (int i = 0; i < ALL_CALLS * COUNT_OF(cases); i++) {
		struct call call = call_of(i % ALL_CALLS);
		const float *at = (float *)arena.of[operand_number(call.op, "x")];
		put_strides(&call, cases[i / ALL_CALLS].input_stride);
		put(&call, call.op->operands[0].dims[0].stride, cases[i / ALL_CALLS].stride, sizeof(int64_t));
		ek_operand_set(&call.op->operands[0], &call.args, at + cases[i / ALL_CALLS].apart);
		if (cases[i / ALL_CALLS].allowed)
			allowed("rows between rows", &call);
		else
			refused(&call, EK_ERROR_OVERLAP, SAYS(call.op->operands[0].name, "overlaps x"));
	}
}

/* Interleaved rows keep to their columns. */
TEST(interleaved_rows_stay_apart)
{
	struct call apart = call_of(0), woven = call_of(0);
	float wanted[ROWS * STRIDE], *x = (float *)arena.of[EK_FORWARD_X];
	const float *x_before = (const float *)before.of[EK_FORWARD_X];
	put_strides(&apart, STRIDE);
	EXPECT(apart.op->call(ctx, &apart.args) == EK_OK, "%s", ek_error(ctx));
	memcpy(wanted, arena.of[EK_FORWARD_Y], sizeof wanted);
	arena = before;
	put_strides(&woven, STRIDE);
	woven.args.forward.y = x + COLS;
	EXPECT(woven.op->call(ctx, &woven.args) == EK_OK, "%s", ek_error(ctx));
	for (int i = 0; i < ROWS * STRIDE; i++) {
		int col = i % STRIDE;
		float want = col >= COLS && col < 2 * COLS ? wanted[i - COLS] : x_before[i];
		EXPECT(x[i] == want, "element [%d][%d] is %g, expected %g", i / STRIDE, col, (double)x[i],
		       (double)want);
	}
	arena = before;
}
