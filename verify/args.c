/* The argument structs of cases, by the tables of their ops; case.h says what. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"

static void set_int(void *args, uint16_t offset, int value)
{
	if (offset)
		memcpy(ek_field(args, offset), &value, sizeof value);
}

static void set_int64(void *args, uint16_t offset, int64_t value)
{
	if (offset)
		memcpy(ek_field(args, offset), &value, sizeof value);
}

/* Rows, and the blocks that they make up, with `pad` elements behind each. */
static void set_strides(const struct test_case *c, int number, void *args)
{
	const int from = case_over(c, number) >= 0 ? case_over(c, number) : number;
	const struct ek_operand *operand = &case_op(c)->operands[number];
	const bool heads_first = operand->rank == 4 && c->heads_first >> from & 1;
	int order[EK_MOST_DIMS] = {0, heads_first ? 2 : 1, heads_first ? 1 : 2, 3};
	int64_t stride = ek_dim_of(case_op(c), &operand->dims[operand->rank - 1], args);
	for (int i = operand->rank - 2; i >= 0; i--) {
		const struct ek_dim *dim = &operand->dims[order[i]];
		stride += dim->stride ? c->pad[from] : 0;
		set_int64(args, dim->stride, stride);
		stride *= ek_dim_of(case_op(c), dim, args);
	}
}

/* Resolved, so that the sizes of operands can be told: a dtype of 0 is the one that it follows. */
static int choice_of(const struct test_case *c, const struct ek_op *op, int number)
{
	const struct ek_choice *choice = &op->choices[number];
	if (c->choices[number] || !choice->is_dtype)
		return c->choices[number];
	return choice->follows ? choice_of(c, op, choice->follows - 1) : (int)c->dtype;
}

static void set_fields(const struct test_case *c, const struct ek_op *op, union op_args *args)
{
	memset(args, 0, sizeof *args);
	if (op->args_size > sizeof *args) {
		(void)fprintf(stderr, "%s: union op_args has %zu bytes, needs %d\n", op->function,
			      sizeof *args, op->args_size);
		abort();
	}
	args->size = op->args_size;
	set_int(args, op->kind, c->op->kind);
	set_int(args, op->accumulate, c->accumulate);
	for (int i = 0; i < op->choice_count; i++)
		set_int(args, op->choice[i], choice_of(c, op, i));
	set_int(args, op->dtype, (int)c->dtype);
	for (int i = 0; i < EK_SCALARS; i++)
		if (op->scalar[i])
			memcpy(ek_field(args, op->scalar[i]), &c->scalars[i], sizeof c->scalars[i]);
	for (int i = 0; i < op->size_count; i++)
		set_int64(args, op->sizes[i].offset, c->sizes[i]);
}

void case_args(const struct test_case *c, void *const at[EK_MOST_OPERANDS], union op_args *args)
{
	const struct ek_op *op = case_op(c);
	set_fields(c, op, args);
	for (int i = 0; i < op->operand_count; i++) {
		int from = case_over(c, i) >= 0 ? case_over(c, i) : i;
		set_strides(c, i, args);
		if (at && c->present >> i & 1)
			ek_operand_set(&op->operands[i], args, at[from]);
	}
}

void case_args_nowhere(const struct test_case *c, union op_args *args)
{
	void *at[EK_MOST_OPERANDS];
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		at[i] = (void *)(((uintptr_t)i + 1) * ((uintptr_t)1 << 40) + (uintptr_t)c->offset[i]);
	case_args(c, at, args);
	args_set_workspace(case_op(c), args, (void *)((uintptr_t)(EK_MOST_OPERANDS + 1) << 40),
			   (size_t)1 << 38);
}

void args_set_workspace(const struct ek_op *op, void *args, void *workspace, size_t bytes)
{
	if (!op->workspace)
		return;
	memcpy(ek_field(args, op->workspace), &workspace, sizeof workspace);
	memcpy(ek_field(args, op->workspace_size), &bytes, sizeof bytes);
}

void args_set_stream(const struct ek_op *op, void *args, void *stream)
{
	memcpy(ek_field(args, op->stream), &stream, sizeof stream);
}

ek_status args_workspace(const struct ek_op *op, ek_context *ctx, const void *args, size_t *bytes)
{
	*bytes = 0;
	return op->workspace_bytes ? op->workspace_bytes(ctx, args, bytes) : EK_OK;
}

void args_take_rows(const struct ek_op *op, void *args, int64_t first, int64_t count)
{
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		char *at = ek_operand_pointer(operand, args);
		size_t row = (size_t)ek_operand_stride(op, operand, 0, args) *
			     ek_operand_element(op, operand, args);
		if (at && operand->dims[0].size == 0)
			ek_operand_set(operand, args, at + (size_t)first * row);
	}
	set_int64(args, op->sizes[0].offset, count);
}

int64_t operand_bytes(const struct test_case *c, int number)
{
	union op_args args;
	case_args(c, NULL, &args);
	return ek_operand_elements(case_op(c), &case_op(c)->operands[number], &args) *
	       (int64_t)ek_operand_element(case_op(c), &case_op(c)->operands[number], &args);
}

int64_t stride_bytes(const struct test_case *c, int number)
{
	union op_args args;
	case_args(c, NULL, &args);
	return ek_operand_stride(case_op(c), &case_op(c)->operands[number], 0, &args) *
	       (int64_t)ek_operand_element(case_op(c), &case_op(c)->operands[number], &args);
}

ek_dtype operand_dtype(const struct test_case *c, int number)
{
	union op_args args;
	case_args(c, NULL, &args);
	if (case_op(c)->operands[number].flags & EK_INDEX)
		return EK_F64; /* which has as many bytes */
	return ek_operand_dtype(case_op(c), &case_op(c)->operands[number], &args);
}
