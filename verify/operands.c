/* The operands of a case in memory; operands.h says what. SPDX-License-Identifier: MIT */
#include "operands.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "mirror.h"
#include "random.h"

/* Operands whose values mean something, and the seed of each beyond the case's. The golden digests depend on both. */
static const struct {
	const char *name;
	enum role role;
} roles[] = {{"x", ROLE_X},        {"dy", ROLE_DY},      {"weight", ROLE_WEIGHT}, {"bias", ROLE_BIAS},
	     {"mean", ROLE_MEAN},  {"rstd", ROLE_RSTD},  {"mean_lo", ROLE_MEAN},  {"dweight", ROLE_SUM},
	     {"dbias", ROLE_SUM},  {"residual", ROLE_X}, {"x_bias", ROLE_BIAS},   {"dh", ROLE_DY},
	     {"dx_bias", ROLE_SUM}};
enum { ROLES = sizeof roles / sizeof roles[0] };

struct operand *operand_named(struct operands *set, const char *name)
{
	static struct operand absent;
	int number = set->op ? ek_operand_named(set->op, name) : -1;
	if (number >= 0)
		return &set->of[number];
	absent = (struct operand){.present = false};
	return &absent;
}

void operands_free(struct operands *set)
{
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		buffer_free(&set->of[i].buffer);
	buffer_free(&set->workspace.buffer);
}

void operands_borrow(const struct test_case *c, struct operands *borrowed, const struct operands *from)
{
	const struct ek_op *op = case_op(c);
	*borrowed = (struct operands){.op = op};
	for (int i = op->output_count; i < op->operand_count; i++) {
		int number = ek_operand_named(from->op, op->operands[i].name);
		if (c->present >> i & 1 && number >= 0)
			borrowed->of[i] = from->of[number];
	}
}

static ek_status no_memory(const char *name, size_t bytes)
{
	return ek_fail(EK_ERROR_MEMORY, "out of memory for %s of %zu bytes", name, bytes);
}

int64_t operand_row(const struct operand *o, int64_t row)
{
	int64_t at = 0;
	if (o->blocks == 0)
		return row * o->stride;
	for (int i = o->blocks - 1; i >= 0; row /= o->block[i].count, i--)
		at += row % o->block[i].count * o->block[i].stride;
	return at;
}

uint64_t operand_digest(uint64_t digest, const struct operand *o)
{
	size_t element = ek_dtype_size(o->dtype);
	for (int64_t r = 0; r < o->rows; r++)
		digest = digest_rows(digest, o->dtype, o->buffer.data + (size_t)operand_row(o, r) * element,
				     1, o->cols, o->cols);
	return digest;
}

/* The dimensions of the rows of an operand, where they are several. */
static void describe_blocks(const struct ek_op *op, const struct ek_operand *operand, const void *args,
			    struct operand *o)
{
	o->blocks = operand->rank > 2 ? operand->rank - 1 : 0;
	for (int i = 0; i < o->blocks; i++) {
		o->block[i].count = ek_dim_of(op, &operand->dims[i], args);
		o->block[i].stride = ek_operand_stride(op, operand, i, args);
	}
}

void operand_describe(const struct test_case *c, int number, struct operand *o)
{
	const struct ek_op *op = case_op(c);
	const struct ek_operand *operand = &op->operands[number];
	union op_args args;
	case_args(c, NULL, &args);
	o->present = c->present >> number & 1;
	o->dtype = operand_dtype(c, number);
	o->cols = ek_dim_of(op, &operand->dims[operand->rank - 1], &args);
	o->rows = operand->rank == 1 ? 1 : 0;
	if (operand->rank > 1 && o->cols > 0)
		o->rows = ek_operand_elements(op, operand, &args) / o->cols;
	o->stride = operand->rank == 1 ? o->cols : ek_operand_stride(op, operand, operand->rank - 2, &args);
	describe_blocks(op, operand, &args, o);
	o->buffer.bytes = ek_operand_bytes(op, operand, &args);
}

/* Describes operands first … end-1 and gives those that the case has memory. */
static ek_status make(const struct test_case *c, struct operands *set, int first, int end)
{
	set->op = case_op(c);
	for (int i = first; i < end; i++) {
		struct operand *o = &set->of[i];
		operand_describe(c, i, o);
		if (o->present && !buffer_reset(&o->buffer, o->buffer.bytes, c->placement, c->offset[i]))
			return no_memory(set->op->operands[i].name, o->buffer.bytes);
	}
	return EK_OK;
}

/* Rows of the tables. */
static void fill_positions(const struct test_case *c, struct operand *o, uint64_t seed)
{
	for (int64_t r = 0; r < o->rows; r++)
		for (int64_t i = 0; i < o->cols; i++) {
			int64_t position = random_below(&seed, c->table_rows);
			element_store_bits(EK_F64, o->buffer.data, operand_row(o, r) + i, (uint64_t)position);
		}
}

/* As fill_rows does it where the rows lie behind each other. */
static void fill_blocks(enum filling filling, struct operand *o, uint64_t seed)
{
	size_t row = (size_t)o->cols * ek_dtype_size(o->dtype);
	unsigned char *dense = malloc((size_t)o->rows * row + 1);
	if (!dense)
		abort();
	fill_rows(filling, o->dtype, dense, o->rows, o->cols, o->cols, seed);
	for (int64_t r = 0; r < o->rows; r++)
		memcpy(o->buffer.data + (size_t)operand_row(o, r) * ek_dtype_size(o->dtype),
		       dense + (size_t)r * row, row);
	free(dense);
}

void operand_fill(const struct test_case *c, int number, struct operand *o)
{
	const char *name = case_op(c)->operands[number].name;
	int role = 0;
	while (role < ROLES && strcmp(roles[role].name, name) != 0)
		role++;
	enum role otherwise = ek_operand_named(case_op(c), "x") < 0 ? ROLE_X : ROLE_BIAS;
	enum filling filling = filling_of(c->filling, role < ROLES ? roles[role].role : otherwise);
	uint64_t seed = c->seed + (uint64_t)(role < ROLES ? role : ROLES + number);
	if (o->present && case_op(c)->operands[number].flags & EK_INDEX)
		fill_positions(c, o, seed);
	else if (o->present && o->blocks)
		fill_blocks(filling, o, seed);
	else if (o->present)
		fill_rows(filling, o->dtype, o->buffer.data, o->rows, o->cols, o->stride, seed);
}

static void copy_rows(struct operand *to, const struct operand *from)
{
	size_t size = ek_dtype_size(to->dtype);
	for (int64_t r = 0; r < to->rows; r++)
		memcpy(to->buffer.data + (size_t)operand_row(to, r) * size,
		       from->buffer.data + (size_t)operand_row(from, r) * size, (size_t)to->cols * size);
}

void operands_row(const struct test_case *one, const struct operands *whole, int64_t row,
		  struct operands *view)
{
	*view = (struct operands){.op = whole->op};
	for (int i = 0; i < whole->op->operand_count; i++) {
		const struct operand *from = &whole->of[i];
		bool has_rows = whole->op->operands[i].dims[0].size == 0;
		if (!from->present || !(one->present >> i & 1))
			continue;
		operand_describe(one, i, &view->of[i]);
		view->of[i].buffer.data = from->buffer.data;
		if (has_rows)
			view->of[i].buffer.data += (size_t)(row * stride_bytes(one, i));
	}
}

ek_status inputs_fill_statistics(ek_context *ctx, const struct test_case *c, struct operands *inputs)
{
	static struct operands outputs, borrowed;
	const struct ek_op *op = case_op(c);
	if (!(c->present & case_statistics(c)) || c->arbitrary)
		return EK_OK;
	struct test_case forward = case_forward(c);
	operands_borrow(&forward, &borrowed, inputs);
	ek_status status = outputs_compute(ctx, &forward, &borrowed, &outputs);
	for (int i = op->output_count; i < op->operand_count && status == EK_OK; i++)
		if ((c->present & case_statistics(c)) >> i & 1)
			copy_rows(&inputs->of[i], operand_named(&outputs, op->operands[i].name));
	return status;
}

ek_status inputs_fill(ek_context *ctx, const struct test_case *c, struct operands *inputs)
{
	const struct ek_op *op = case_op(c);
	ek_status status = make(c, inputs, op->output_count, op->operand_count);
	if (status != EK_OK)
		return status;
	for (int i = op->output_count; i < op->operand_count; i++)
		if (c->arbitrary || !(case_statistics(c) >> i & 1))
			operand_fill(c, i, &inputs->of[i]);
	return inputs_fill_statistics(ctx, c, inputs);
}

/* What an accumulating or in-place call starts from. */
static void fill_outputs(const struct test_case *c, const struct operands *inputs, struct operands *outputs)
{
	const struct ek_op *op = case_op(c);
	for (int i = 0; i < op->output_count; i++) {
		if (c->accumulate && op->operands[i].flags & EK_ACCUMULATES)
			operand_fill(c, i, &outputs->of[i]);
		if (c->over[i])
			copy_rows(&outputs->of[i], &inputs->of[c->over[i] - 1]);
	}
}

ek_status outputs_make(ek_context *ctx, const struct test_case *c, const struct operands *inputs,
		       struct operands *outputs)
{
	const struct ek_op *op = case_op(c);
	union op_args args;
	size_t bytes = 0;
	outputs->workspace.present = false;
	ek_status status = make(c, outputs, 0, op->output_count);
	if (status != EK_OK)
		return status;
	fill_outputs(c, inputs, outputs);
	operands_args(c, inputs, outputs, &args);
	status = args_workspace(op, ctx, &args, &bytes);
	if (status != EK_OK)
		return status;
	struct operand *work = &outputs->workspace;
	*work = (struct operand){.present = bytes > 0, .dtype = EK_F32, .buffer = work->buffer};
	/* A multiple of 64 leaves it aligned whichever end is next to a guard page. */
	if (!buffer_reset(&work->buffer, (bytes + 63) / 64 * 64, c->placement, 0))
		return no_memory("a workspace", bytes);
	work->buffer.bytes = bytes;
	return EK_OK;
}

void operands_args(const struct test_case *c, const struct operands *inputs, const struct operands *outputs,
		   union op_args *args)
{
	const struct ek_op *op = case_op(c);
	const struct operand *work = &outputs->workspace;
	void *at[EK_MOST_OPERANDS] = {NULL};
	for (int i = 0; i < op->operand_count; i++) {
		const struct operand *o = i < op->output_count ? &outputs->of[i] : &inputs->of[i];
		at[i] = o->present ? o->buffer.data : NULL;
	}
	case_args(c, at, args);
	if (work->present)
		args_set_workspace(op, args, work->buffer.data, work->buffer.bytes);
}

ek_status outputs_compute(ek_context *ctx, const struct test_case *c, const struct operands *inputs,
			  struct operands *outputs)
{
	union op_args args;
	ek_status status = outputs_make(ctx, c, inputs, outputs);
	if (status != EK_OK)
		return status;
	operands_args(c, inputs, outputs, &args);
	return mirror_call(ctx, case_op(c), &args, c->placement == PLACE_OFFSET ? BUFFER_MARGIN : 0);
}

double outputs_values(const struct operands *outputs)
{
	double values = 0;
	for (int i = 0; i < outputs->op->output_count; i++)
		if (outputs->of[i].present)
			values += (double)outputs->of[i].rows * (double)outputs->of[i].cols;
	return values;
}
