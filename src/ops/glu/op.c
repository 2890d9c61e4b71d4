/* Gated activations as tables, and their public functions: validate, then run on the context's backend.
 * SPDX-License-Identifier: MIT */
#include "op.h"

#include <float.h>
#include <math.h>

#include "core/backend.h"
#include "core/by_table.h"
#include "core/check_op.h"
#include "core/versions.h"
#include "cpu/fpenv.h"
#include "ops/choices.h"
#include "plan.h"

EK_BY_TABLE(ek_glu)

/* ---- the tables ---- */

#define FIELD(field) offsetof(ARGS, field)
#define MATRIX(field, columns)                                                                   \
	.rank = 2, .dims = {                                                                     \
			   {.size = EK_GLU_ROWS, .stride = FIELD(field), .stride_name = #field}, \
			   columns,                                                              \
	}
#define COLS                        \
	{                           \
		.size = EK_GLU_COLS \
	}
#define COLS_OR_PAIRS                                                   \
	{                                                               \
		.size = EK_GLU_COLS, .pairs = EK_CHOICE_INTERLEAVED + 1 \
	}
#define VECTOR(columns) .rank = 1, .dims = {columns}
#define OPERAND(field) .name = #field, .pointer = FIELD(field)
#define ELEMENT .dtype = FIELD(dtype)
#define WEIGHT .dtype = FIELD(weight_dtype)
#define APART .without_choice = EK_CHOICE_INTERLEAVED + 1
#define NEEDS(operand) .needs = {.number = (operand) + 1}
#define SIZES                                                                                      \
	{                                                                                          \
		[EK_GLU_ROWS] = {"rows", FIELD(rows), 0, .most = PTRDIFF_MAX / 32},                \
		[EK_GLU_COLS] = {"cols", FIELD(cols), 1, EK_MAX_COLS, .most_name = "EK_MAX_COLS"}, \
	}
#define SCALARS                                                             \
	.scalar[EK_LIMIT] = FIELD(limit), .scalar[EK_ALPHA] = FIELD(alpha), \
	.scalar[EK_VALUE_OFFSET] = FIELD(value_offset)
#define CHOICES                                                \
	.choices = ek_choices, .choice_count = EK_CHOICES,     \
	.choice[EK_CHOICE_WEIGHT_DTYPE] = FIELD(weight_dtype), \
	.choice[EK_CHOICE_ACTIVATION] = FIELD(activation),     \
	.choice[EK_CHOICE_INTERLEAVED] = FIELD(interleaved)

/* clang-format off */
#define ARGS ek_glu_forward_args
static const struct ek_operand forward_operands[EK_GLU_FORWARD_OPERANDS] = {
	[EK_GLU_FORWARD_Y] = {OPERAND(y), MATRIX(y_stride, COLS), ELEMENT, .flags = EK_OUTPUT,
			      .in_place = 1u << EK_GLU_FORWARD_GATE | 1u << EK_GLU_FORWARD_VALUE},
	[EK_GLU_FORWARD_GATE] = {OPERAND(gate), MATRIX(gate_stride, COLS_OR_PAIRS), ELEMENT},
	[EK_GLU_FORWARD_VALUE] = {OPERAND(value), MATRIX(value_stride, COLS), ELEMENT, .flags = EK_OPTIONAL | EK_CONSTANT, APART},
	[EK_GLU_FORWARD_GATE_BIAS] = {OPERAND(gate_bias), VECTOR(COLS_OR_PAIRS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_GLU_FORWARD_VALUE_BIAS] = {OPERAND(value_bias), VECTOR(COLS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
				       APART, NEEDS(EK_GLU_FORWARD_VALUE)},
};
const struct ek_op ek_glu_forward_op = {
	.function = "ek_glu_forward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_glu_forward_args,
	.size_count = EK_GLU_SIZES, .sizes = SIZES,
	.operands = forward_operands, .operand_count = EK_GLU_FORWARD_OPERANDS, .output_count = EK_GLU_FORWARD_OUTPUTS,
	.dtype = FIELD(dtype), .stream = FIELD(stream),
	SCALARS, CHOICES,
	.call = call_forward, .prepare = prepare_forward, .plan = ek_glu_list_forward,
};
#undef ARGS

#define ARGS ek_glu_backward_args
#define GRADIENT .dtype = FIELD(gradient_dtype), .flags = EK_OUTPUT | EK_OPTIONAL | EK_ACCUMULATES | EK_CONSTANT
#define MATRICES (1u << EK_GLU_BACKWARD_DY | 1u << EK_GLU_BACKWARD_GATE | 1u << EK_GLU_BACKWARD_VALUE)
static const struct ek_operand backward_operands[EK_GLU_BACKWARD_OPERANDS] = {
	[EK_GLU_BACKWARD_DGATE] = {OPERAND(dgate), MATRIX(dgate_stride, COLS_OR_PAIRS), ELEMENT,
				   .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT, .in_place = MATRICES},
	[EK_GLU_BACKWARD_DVALUE] = {OPERAND(dvalue), MATRIX(dvalue_stride, COLS), ELEMENT,
				    .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT, .in_place = MATRICES, APART,
				    NEEDS(EK_GLU_BACKWARD_VALUE)},
	[EK_GLU_BACKWARD_DGATE_BIAS] = {OPERAND(dgate_bias), VECTOR(COLS_OR_PAIRS), GRADIENT},
	[EK_GLU_BACKWARD_DVALUE_BIAS] = {OPERAND(dvalue_bias), VECTOR(COLS), GRADIENT, APART, NEEDS(EK_GLU_BACKWARD_VALUE)},
	[EK_GLU_BACKWARD_DY] = {OPERAND(dy), MATRIX(dy_stride, COLS), ELEMENT},
	[EK_GLU_BACKWARD_GATE] = {OPERAND(gate), MATRIX(gate_stride, COLS_OR_PAIRS), ELEMENT},
	[EK_GLU_BACKWARD_VALUE] = {OPERAND(value), MATRIX(value_stride, COLS), ELEMENT, .flags = EK_OPTIONAL | EK_CONSTANT, APART},
	[EK_GLU_BACKWARD_GATE_BIAS] = {OPERAND(gate_bias), VECTOR(COLS_OR_PAIRS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_GLU_BACKWARD_VALUE_BIAS] = {OPERAND(value_bias), VECTOR(COLS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
					APART, NEEDS(EK_GLU_BACKWARD_VALUE)},
};
const struct ek_op ek_glu_backward_op = {
	.function = "ek_glu_backward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_glu_backward_args,
	.size_count = EK_GLU_SIZES, .sizes = SIZES,
	.operands = backward_operands, .operand_count = EK_GLU_BACKWARD_OPERANDS, .output_count = EK_GLU_BACKWARD_OUTPUTS,
	.dtype = FIELD(dtype),
	SCALARS, CHOICES, .choice[EK_CHOICE_GRADIENT_DTYPE] = FIELD(gradient_dtype),
	.accumulate = FIELD(accumulate), .workspace = FIELD(workspace), .workspace_size = FIELD(workspace_size),
	.stream = FIELD(stream),
	.call = call_backward, .prepare = prepare_backward, .workspace_bytes = workspace_of_backward,
	.plan = ek_glu_list_backward,
};
#undef ARGS
/* clang-format on */

/* ---- rules that no table has ---- */

/* Rule 1 of docs/numerics.md: to nearest even in any floating-point environment of the caller. */
struct ek_glu_numbers ek_glu_numbers_of(ek_dtype dtype, bool has_value, double limit, double alpha,
					double value_offset)
{
	struct ek_fpenv saved = ek_fpenv_enter();
	volatile struct ek_glu_numbers n = {.limit = limit, .alpha = alpha, .value_offset = value_offset};
	if (dtype == EK_F64) {
		n.inverse = 1 / n.alpha;
	} else {
		n.limit = (double)(float)n.limit;
		n.alpha = (double)(float)n.alpha;
		n.value_offset = (double)(float)n.value_offset;
		n.inverse = (double)(1 / (float)n.alpha);
	}
	const bool has_offset = n.value_offset != 0;
	ek_fpenv_leave(saved);
	struct ek_glu_numbers numbers = n;
	if (limit == 0)
		numbers.limit = (double)INFINITY;
	numbers.value_limit = has_value ? numbers.limit : (double)INFINITY;
	if (!has_offset)
		numbers.value_offset = -0.0;
	return numbers;
}

/* The smallest and the largest that are normal numbers in the arithmetic, and so are their reciprocals. As check_eps of the
 * norms: comparisons that trap on nothing and do not round. */
EK_INLINE ek_status check_numbers(double limit, double alpha, double value_offset, ek_dtype dtype)
{
	const double least = dtype == EK_F64 ? DBL_MIN : (double)FLT_MIN,
		     most = dtype == EK_F64 ? 0x1p1022 : 0x1p126;
	REQUIRE(limit == 0 || (isgreaterequal(limit, least) && islessequal(limit, most)), EK_ERROR_ARGUMENT,
		"limit (%g) must be 0, which is none, or in %g to %g", isnan(limit) ? (double)NAN : limit,
		least, most);
	REQUIRE(isgreaterequal(alpha, least) && islessequal(alpha, most), EK_ERROR_ARGUMENT,
		"alpha (%g) must be 0, which is 1, or in %g to %g", isnan(alpha) ? (double)NAN : alpha, least,
		most);
	REQUIRE(isgreaterequal(value_offset, -most) && islessequal(value_offset, most), EK_ERROR_ARGUMENT,
		"value_offset (%g) must be in %g to %g", isnan(value_offset) ? (double)NAN : value_offset,
		-most, most);
	return EK_OK;
}

EK_INLINE ek_status check_activation(ek_activation activation, double alpha)
{
	REQUIRE((unsigned)activation - 1 < EK_IDENTITY, EK_ERROR_ARGUMENT,
		"activation (%d) is not in EK_SIGMOID (%d) to EK_IDENTITY (%d)", (int)activation,
		(int)EK_SIGMOID, (int)EK_IDENTITY);
	REQUIRE(activation == EK_SILU || alpha == 1, EK_ERROR_ARGUMENT,
		"alpha (%g) goes with EK_SILU (%d) alone, and activation is %d; expected 0 or 1", alpha,
		(int)EK_SILU, (int)activation);
	return EK_OK;
}

EK_INLINE ek_status check_value(const void *value, int interleaved, double value_offset)
{
	REQUIRE(value || interleaved || value_offset == 0, EK_ERROR_ARGUMENT,
		"value_offset (%g) needs a value, and value is NULL; expected 0", value_offset);
	return EK_OK;
}

#define ARGUMENT(type, field) ((type *)ek_field(resolved, (field)))
/* All but the operands: what forward and backward share. */
EK_INLINE ek_status check_sizes(const struct ek_op *op, const ek_context *ctx, const void *args,
				void *resolved)
{
	PASS_ON(ek_check_struct(op, ctx, args, resolved));
	ek_dtype dtype = *ARGUMENT(ek_dtype, op->dtype);
	double *alpha = ARGUMENT(double, op->scalar[EK_ALPHA]);
	int interleaved = *ARGUMENT(int, op->choice[EK_CHOICE_INTERLEAVED]);
	PASS_ON(ek_check_sizes(op, resolved));
	PASS_ON(ek_check_dtype("dtype", &dtype, 0));
	PASS_ON(ek_check_follower("weight_dtype", ARGUMENT(ek_dtype, op->choice[EK_CHOICE_WEIGHT_DTYPE]),
				  "dtype", dtype));
	if (*alpha == 0)
		*alpha = 1;
	PASS_ON(check_numbers(*ARGUMENT(double, op->scalar[EK_LIMIT]), *alpha,
			      *ARGUMENT(double, op->scalar[EK_VALUE_OFFSET]), dtype));
	PASS_ON(check_activation(*ARGUMENT(ek_activation, op->choice[EK_CHOICE_ACTIVATION]), *alpha));
	REQUIRE((unsigned)interleaved <= 1, EK_ERROR_ARGUMENT, "interleaved (%d) must be 0 or 1",
		interleaved);
	return ek_check_strides(op, resolved);
}

/* ---- forward ---- */

EK_INLINE ek_status check_forward(const ek_context *ctx, const ek_glu_forward_args *args,
				  ek_glu_forward_args *resolved)
{
	const struct ek_op *op = &ek_glu_forward_op;
	PASS_ON(check_sizes(op, ctx, args, resolved));
	PASS_ON(ek_check_stream(op, ctx, resolved));
	PASS_ON(ek_check_presence(op, resolved));
	PASS_ON(check_value(resolved->value, resolved->interleaved, resolved->value_offset));
	return ek_check_memory(op, resolved, 0);
}

ek_status ek_glu_forward(ek_context *ctx, const ek_glu_forward_args *args)
{
	ek_glu_forward_args resolved;
	ek_status status = check_forward(ctx, args, &resolved);
	if (status != EK_OK || resolved.rows == 0)
		return status;
	return ctx->backend->glu->forward(ctx, &resolved, EK_CALL);
}

ek_status ek_glu_forward_prepare(ek_context *ctx, const ek_glu_forward_args *args)
{
	ek_glu_forward_args resolved;
	PASS_ON(check_forward(ctx, args, &resolved));
	return ctx->backend->glu->forward(ctx, &resolved, EK_PREPARE);
}

/* ---- backward ---- */

EK_INLINE ek_status check_backward_sizes(const ek_context *ctx, const ek_glu_backward_args *args,
					 ek_glu_backward_args *resolved)
{
	PASS_ON(check_sizes(&ek_glu_backward_op, ctx, args, resolved));
	PASS_ON(ek_check_follower("gradient_dtype", &resolved->gradient_dtype, "weight_dtype",
				  resolved->weight_dtype));
	return ek_check_accumulate(&ek_glu_backward_op, resolved);
}

ek_status ek_glu_check_backward_memory(const ek_glu_backward_args *args, size_t workspace_bytes)
{
	PASS_ON(ek_check_workspace(&ek_glu_backward_op, args, workspace_bytes));
	return ek_check_memory(&ek_glu_backward_op, args, workspace_bytes);
}

ek_status ek_glu_backward_workspace(const ek_context *ctx, const ek_glu_backward_args *args, size_t *bytes)
{
	ek_glu_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	REQUIRE(bytes, EK_ERROR_ARGUMENT, "bytes is NULL: give the address of the size_t to set");
	*bytes = ctx->backend->glu->backward_workspace(ctx, &resolved);
	return EK_OK;
}

EK_INLINE ek_status run_backward(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent)
{
	ek_glu_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	PASS_ON(ek_check_stream(&ek_glu_backward_op, ctx, &resolved));
	PASS_ON(ek_check_presence(&ek_glu_backward_op, &resolved));
	PASS_ON(check_value(resolved.value, resolved.interleaved, resolved.value_offset));
	return ctx->backend->glu->backward(ctx, &resolved, intent);
}

ek_status ek_glu_backward(ek_context *ctx, const ek_glu_backward_args *args)
{
	return run_backward(ctx, args, EK_CALL);
}

ek_status ek_glu_backward_prepare(ek_context *ctx, const ek_glu_backward_args *args)
{
	return run_backward(ctx, args, EK_PREPARE);
}
