/* Calls to be spoilt; support_arguments.h says what. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "support_arguments.h"

#include <stdio.h>
#include <string.h>

struct arena arena, before;
static ek_context *ctx;

ek_context *arguments_open(void)
{
	fill_rows(FILL_NORMAL, EK_F32, arena.of, 1, (int64_t)sizeof arena.of / 4, 0, 1);
	memset(arena.workspace, CANARY, sizeof arena.workspace);
	before = arena;
	ctx = context_of((struct setting){level_best(), 1, PLAIN});
	return ctx;
}

/* ---- calls ---- */

/* All operands but those of other forms. */
static struct test_case case_of_form(int number)
{
	static const char *const others[FORMS] = {
		[FORM_RESIDUAL] = "residual_after gate dgate",
		[FORM_AFTER] = "residual h dh dresidual gate dgate",
		[FORM_GATE] = "x_bias residual h residual_after dx_bias dh dresidual",
		[FORM_GATE_FIRST] = "x_bias residual h residual_after dx_bias dh dresidual"};
	int form = number / CALLS;
	struct test_case c =
		case_make(&open_ops[number % CALLS / PASS_COUNT], (enum pass)(number % PASS_COUNT),
			  (struct dtype_pair){EK_F32, EK_F32}, ROWS, COLS);
	c.activation = form >= FORM_GATE ? EK_SILU : EK_NO_ACTIVATION;
	c.gate_first = form == FORM_GATE_FIRST;
	c.present = ~UINT32_C(0);
	case_drop(&c, others[form]);
	return c;
}

struct call call_of(int number)
{
	struct test_case c = case_of_form(number);
	struct call call = {.entry = c.op, .op = case_op(&c)};
	void *at[EK_MOST_OPERANDS];
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		at[i] = arena.of[i];
	case_args(&c, at, &call.args);
	EXPECT(args_workspace(call.op, ctx, &call.args, &call.workspace) == EK_OK &&
		       call.workspace < sizeof arena.workspace - ROOM,
	       "the workspace is %zu bytes: %s", call.workspace, ek_error(ctx));
	args_set_workspace(call.op, &call.args, arena.workspace, call.workspace);
	return call;
}

void put(struct call *call, uint16_t offset, int64_t value, size_t bytes)
{
	if (offset)
		memcpy(ek_field(&call->args, offset), &value, bytes); /* little-endian */
}

void put_eps(struct call *call, double eps)
{
	memcpy(ek_field(&call->args, call->op->scalar[EK_EPS]), &eps, sizeof eps);
}

void put_strides(struct call *call, int64_t stride)
{
	for (int i = 0; i < call->op->operand_count; i++)
		put(call, call->op->operands[i].dims[0].stride, stride, sizeof stride);
}

void put_dtypes(struct call *call, ek_dtype dtype, ek_dtype weight_dtype)
{
	for (int i = 0; i < call->op->choice_count; i++)
		if (call->op->choices[i].is_dtype)
			put(call, call->op->choice[i], 0, sizeof dtype);
	put(call, call->op->choice[EK_CHOICE_WEIGHT_DTYPE], (int64_t)weight_dtype, sizeof dtype);
	put(call, call->op->dtype, (int64_t)dtype, sizeof dtype);
	(void)args_workspace(call->op, ctx, &call->args, &call->workspace);
	args_set_workspace(call->op, &call->args, arena.workspace, call->workspace);
}

void drop(struct call *call, const char *names)
{
	char text[96];
	(void)snprintf(text, sizeof text, "%s", names);
	for (char *rest = text, *name; (name = strtok_r(rest, " ", &rest));)
		if (ek_operand_named(call->op, name) >= 0)
			ek_operand_set(&call->op->operands[ek_operand_named(call->op, name)], &call->args,
				       NULL);
}

/* ---- verdicts ---- */

void expect_answer(const char *what, ek_status status, ek_status wanted, const char *const *parts)
{
	const char *message = ek_error(NULL);
	EXPECT(status == wanted, "%s: answered %s (\"%s\"), expected %s", what, ek_status_name(status),
	       message, ek_status_name(wanted));
	for (; status == wanted && *parts; parts++)
		EXPECT(strstr(message, *parts), "%s: the message \"%s\" does not say \"%s\"", what, message,
		       *parts);
	EXPECT(memcmp(&arena, &before, sizeof arena) == 0, "%s: bytes were written", what);
	arena = before;
}
void refused(const struct call *call, ek_status wanted, const char *const *parts)
{
	expect_answer(call->op->function, call->op->call(ctx, &call->args), wanted, parts);
	expect_answer("prepare", call->op->prepare(ctx, &call->args), wanted, parts);
}

void allowed(const char *what, const struct call *call)
{
	expect_answer(what, call->op->prepare(ctx, &call->args), EK_OK, SAYS(NULL));
	ek_status status = call->op->call(ctx, &call->args);
	EXPECT(status == EK_OK, "%s, %s: %s: %s", call->op->function, what, ek_status_name(status),
	       ek_error(ctx));
	arena = before;
}
