/* Calls of gated activations that are wrong: each is refused with a status and a message that names the argument and its value,
 * by the call and by what prepares it, and nothing is written. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support_arguments.h"

static ek_context *ctx;

SETUP()
{
	ctx = arguments_open();
}

/* Gate and value apart, in turn, and no value. */
enum { APART, IN_TURN, NO_VALUE, GLU_FORMS };

static struct call glu_call(enum pass pass, int form)
{
	struct test_case c = case_make(&open_glu, pass, (struct dtype_pair){EK_F32, EK_F32}, ROWS, COLS);
	struct call call = {.entry = c.op, .op = case_op(&c)};
	void *at[EK_MOST_OPERANDS];
	c.interleaved = form == IN_TURN;
	case_normalise(&c);
	case_drop(&c, form == NO_VALUE ? "value" : "");
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		at[i] = arena.of[i];
	case_args(&c, at, &call.args);
	EXPECT(args_workspace(call.op, ctx, &call.args, &call.workspace) == EK_OK, "%s", ek_error(ctx));
	args_set_workspace(call.op, &call.args, arena.workspace, call.workspace);
	return call;
}

#define WRONG(pass, form, status, change, ...)                     \
	do {                                                       \
		struct call call = glu_call(pass, form);           \
		ek_glu_forward_args *f = &call.args.glu_forward;   \
		ek_glu_backward_args *b = &call.args.glu_backward; \
		(void)f;                                           \
		(void)b;                                           \
		change;                                            \
		refused(&call, status, SAYS(__VA_ARGS__));         \
	} while (0)
#define WRONG_FORWARD(form, status, change, ...) WRONG(FORWARD, form, status, change, __VA_ARGS__)
#define WRONG_BACKWARD(form, status, change, ...) WRONG(BACKWARD, form, status, change, __VA_ARGS__)

TEST(calls_that_are_right_are_allowed)
{
	for (int form = 0; form < GLU_FORMS; form++)
		for (int pass = 0; pass < PASS_COUNT; pass++) {
			struct call call = glu_call((enum pass)pass, form);
			allowed("as it is", &call);
		}
	struct call packed = glu_call(FORWARD, APART);
	packed.args.glu_forward.gate_stride = packed.args.glu_forward.value_stride = 2 * COLS;
	packed.args.glu_forward.value = (const float *)packed.args.glu_forward.gate + COLS;
	allowed("packed", &packed);
	packed = glu_call(BACKWARD, APART);
	packed.args.glu_backward.dgate_stride = packed.args.glu_backward.dvalue_stride = 2 * COLS;
	packed.args.glu_backward.dvalue = (float *)packed.args.glu_backward.dgate + COLS;
	allowed("packed gradients", &packed);
}

/* Empty tensors often have no address; biases and their gradients are there all the same. */
TEST(without_rows_tensors_may_be_null)
{
	struct call forward = glu_call(FORWARD, APART), backward = glu_call(BACKWARD, APART);
	ek_glu_forward_args *f = &forward.args.glu_forward;
	ek_glu_backward_args *b = &backward.args.glu_backward;
	f->rows = b->rows = 0;
	f->gate = f->value = f->y = NULL;
	b->dy = b->gate = b->value = b->dgate = b->dvalue = NULL;
	allowed("forward", &forward);
	allowed("backward", &backward);
	float *sums = b->dvalue_bias;
	sums[0] = sums[COLS - 1] = 1;
	EXPECT(ek_glu_backward(ctx, b) == EK_OK && sums[0] == 0 && sums[COLS - 1] == 0,
	       "dvalue_bias is %g … %g after no rows", (double)sums[0], (double)sums[COLS - 1]);
	arena = before;
}

/* Without rows value may be NULL, but interleaved tensors have none in any case. */
TEST(interleaved_tensors_have_no_operands_of_a_value_without_rows_either)
{
	WRONG_FORWARD(IN_TURN, EK_ERROR_ARGUMENT, (f->rows = 0, f->value_bias = arena.of[9]), "value_bias",
		      "interleaved");
	WRONG_BACKWARD(IN_TURN, EK_ERROR_ARGUMENT, (b->rows = 0, b->value_bias = arena.of[9]), "value_bias",
		       "interleaved");
	WRONG_BACKWARD(IN_TURN, EK_ERROR_ARGUMENT, (b->rows = 0, b->dvalue = arena.of[9]), "dvalue",
		       "interleaved");
	WRONG_BACKWARD(IN_TURN, EK_ERROR_ARGUMENT, (b->rows = 0, b->dvalue_bias = arena.of[9]), "dvalue_bias",
		       "interleaved");
}

TEST(numbers_and_options)
{
	static const double limits[] = {-1, NAN, INFINITY, 1e-40, 1e39},
			    alphas[] = {-1, NAN, INFINITY, 1e-40, 1e39}, offsets[] = {NAN, INFINITY, -1e39};
	for (int i = 0; i < COUNT_OF(limits); i++) {
		WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->limit = limits[i], "limit (");
		WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->limit = limits[i], "limit (");
		WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->alpha = alphas[i], "alpha (");
		WRONG_BACKWARD(IN_TURN, EK_ERROR_ARGUMENT, b->alpha = alphas[i], "alpha (");
	}
	for (int i = 0; i < COUNT_OF(offsets); i++) {
		WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->value_offset = offsets[i], "value_offset (");
		WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->value_offset = offsets[i], "value_offset (");
	}
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->activation = EK_NO_ACTIVATION, "activation (0)");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->activation = (ek_activation)(EK_IDENTITY + 1),
		      "activation (8)");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->activation = (ek_activation)-1, "activation (-1)");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, (f->alpha = 1.702, f->activation = EK_GELU), "alpha (1.702)",
		      "EK_SILU");
	WRONG_FORWARD(NO_VALUE, EK_ERROR_ARGUMENT, f->value_offset = 1, "value_offset (1)", "value is NULL");
	WRONG_BACKWARD(NO_VALUE, EK_ERROR_ARGUMENT, b->value_offset = 1, "value_offset (1)", "value is NULL");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->interleaved = 2, "interleaved (2)");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->accumulate = 2, "accumulate (2)");
}

TEST(sizes_strides_and_dtypes)
{
	WRONG_FORWARD(APART, EK_ERROR_STRUCT_SIZE, f->size = 8, "size (8)", "ek_glu_forward_args");
	WRONG_BACKWARD(APART, EK_ERROR_STRUCT_SIZE, b->size += 8, "size (", "ek_glu_backward_args");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->rows = -1, "rows (-1)");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->cols = 0, "cols (0)");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->cols = EK_MAX_COLS + 1, "cols (16777217)", "EK_MAX_COLS");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->gate_stride = COLS - 1, "gate_stride (39)");
	WRONG_FORWARD(IN_TURN, EK_ERROR_ARGUMENT, f->gate_stride = COLS, "gate_stride (40)", "80");
	WRONG_BACKWARD(IN_TURN, EK_ERROR_ARGUMENT, b->dgate_stride = 2 * COLS - 1, "dgate_stride (79)");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->dvalue_stride = -COLS, "dvalue_stride (-40)");
	WRONG_FORWARD(APART, EK_ERROR_DTYPE, f->dtype = (ek_dtype)9, "dtype (9)");
	WRONG_FORWARD(APART, EK_ERROR_DTYPE, f->weight_dtype = EK_BF16, "weight_dtype");
	WRONG_BACKWARD(APART, EK_ERROR_DTYPE, b->gradient_dtype = EK_F16, "gradient_dtype");
}

TEST(operands_that_must_or_must_not_be_there)
{
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->gate = NULL, "gate is NULL");
	WRONG_FORWARD(APART, EK_ERROR_ARGUMENT, f->y = NULL, "y is NULL");
	WRONG_FORWARD(NO_VALUE, EK_ERROR_ARGUMENT, f->value_bias = arena.of[9], "value_bias",
		      "value is NULL");
	WRONG_FORWARD(IN_TURN, EK_ERROR_ARGUMENT, f->value = arena.of[9], "value", "interleaved");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT, b->dy = NULL, "dy is NULL");
	WRONG_BACKWARD(NO_VALUE, EK_ERROR_ARGUMENT, b->dvalue = arena.of[9], "dvalue", "value is NULL");
	WRONG_BACKWARD(NO_VALUE, EK_ERROR_ARGUMENT, b->dvalue_bias = arena.of[9], "dvalue_bias",
		       "value is NULL");
	WRONG_BACKWARD(APART, EK_ERROR_ARGUMENT,
		       (b->dgate = b->dvalue = b->dgate_bias = b->dvalue_bias = NULL),
		       "dgate, dvalue, dgate_bias", "NULL");
	WRONG_BACKWARD(APART, EK_ERROR_WORKSPACE, b->workspace = NULL, "workspace is NULL");
	WRONG_BACKWARD(APART, EK_ERROR_WORKSPACE, b->workspace_size--, "workspace_size (");
	WRONG_BACKWARD(APART, EK_ERROR_WORKSPACE, b->workspace = arena.workspace + 32, "workspace (", "64");
}

/* In place of an input with the same stride, and rows that interleave, are allowed; anything else that touches is not. */
TEST(memory_that_overlaps)
{
	static const struct {
		enum pass pass;
		const char *output, *input;
	} in_place[] = {{FORWARD, "y", "gate"},        {FORWARD, "y", "value"},
			{BACKWARD, "dgate", "dy"},     {BACKWARD, "dgate", "gate"},
			{BACKWARD, "dgate", "value"},  {BACKWARD, "dvalue", "dy"},
			{BACKWARD, "dvalue", "gate"},  {BACKWARD, "dvalue", "value"},
			{BACKWARD, "dgate", "dvalue"}, {BACKWARD, "dgate", "dgate_bias"},
			{FORWARD, "y", "gate_bias"}};
	for (int i = 0; i < COUNT_OF(in_place); i++) {
		struct call call = glu_call(in_place[i].pass, APART);
		const int output = operand_number(call.op, in_place[i].output),
			  input = operand_number(call.op, in_place[i].input);
		char *at = ek_operand_pointer(&call.op->operands[input], &call.args);
		ek_operand_set(&call.op->operands[output], &call.args, at);
		if (call.op->operands[output].in_place >> input & 1)
			allowed(in_place[i].input, &call);
		else
			refused(&call, EK_ERROR_OVERLAP,
				SAYS(in_place[i].output, "overlaps", in_place[i].input));
		ek_operand_set(&call.op->operands[output], &call.args, at + 4);
		refused(&call, EK_ERROR_OVERLAP, SAYS(in_place[i].output, "overlaps", in_place[i].input));
	}
	WRONG_BACKWARD(IN_TURN, EK_ERROR_OVERLAP, b->dgate = (void *)(uintptr_t)b->dy, "dgate",
		       "overlaps dy");
	WRONG_BACKWARD(APART, EK_ERROR_OVERLAP, b->dgate = arena.workspace, "overlaps", "workspace");
	WRONG_FORWARD(APART, EK_ERROR_OVERLAP, (f->y_stride = STRIDE, f->y = (void *)(uintptr_t)f->gate), "y",
		      "gate");
}
