/* The norms as tables, and their public functions: validate, then run on the context's backend.
 * SPDX-License-Identifier: MIT */
#include "op.h"

#include <float.h>
#include <math.h>

#include "core/backend.h"
#include "core/check_op.h"
#include "core/versions.h"
#include "plan.h"

/* ---- the tables ---- */

#define FIELD(field) offsetof(ARGS, field)
#define ROWS_COLS(stride_field)                                                \
	.rank = 2, .dims = {                                                   \
			   {EK_NORM_ROWS, FIELD(stride_field), #stride_field}, \
			   {EK_NORM_COLS, 0, NULL},                            \
	}
#define COLS .rank = 1, .dims = {{EK_NORM_COLS, 0, NULL}}
#define ROWS .rank = 1, .dims = {{EK_NORM_ROWS, 0, NULL}}
#define OPERAND(field) .name = #field, .pointer = FIELD(field)
#define ACTIVATION .dtype = FIELD(dtype)
#define WEIGHT .dtype = FIELD(weight_dtype)
#define STATISTIC .dtype = 0
#define LAYER_NORM_ALONE .kinds = 1u << EK_LAYER_NORM
#define NEEDS(operand) .needs = {.number = (operand) + 1}
/* So that the bytes of statistics and of the reference's workspace do not overflow either. */
#define SIZES                                                                          \
	{                                                                              \
		[EK_NORM_ROWS] = {"rows", FIELD(rows), 0, PTRDIFF_MAX / 32, NULL},     \
		[EK_NORM_COLS] = {"cols", FIELD(cols), 1, EK_MAX_COLS, "EK_MAX_COLS"}, \
	}

_Static_assert(EK_FORWARD_OPERANDS <= (int)EK_MOST_OPERANDS && EK_BACKWARD_OPERANDS <= (int)EK_MOST_OPERANDS,
	       "EK_MOST_OPERANDS is too small");

static const char *const kind_names[] = {[EK_LAYER_NORM] = "EK_LAYER_NORM", [EK_RMS_NORM] = "EK_RMS_NORM"};

/* clang-format off */
#define ARGS ek_norm_forward_args
static const struct ek_operand forward_operands[EK_FORWARD_OPERANDS] = {
	[EK_FORWARD_Y] = {OPERAND(y), ROWS_COLS(y_stride), ACTIVATION, .flags = EK_OUTPUT, .in_place = 1u << EK_FORWARD_X},
	[EK_FORWARD_MEAN] = {OPERAND(mean), ROWS, STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL, LAYER_NORM_ALONE},
	[EK_FORWARD_RSTD] = {OPERAND(rstd), ROWS, STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL},
	[EK_FORWARD_MEAN_LO] = {OPERAND(mean_lo), ROWS, STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL, LAYER_NORM_ALONE},
	[EK_FORWARD_X] = {OPERAND(x), ROWS_COLS(x_stride), ACTIVATION},
	[EK_FORWARD_WEIGHT] = {OPERAND(weight), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_FORWARD_BIAS] = {OPERAND(bias), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
};
static ek_status call_forward(ek_context *ctx, const void *args);
static ek_status prepare_forward(ek_context *ctx, const void *args);
const struct ek_op ek_norm_forward_op = {
	.function = "ek_norm_forward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_norm_forward_args,
	.size_count = EK_NORM_SIZES, .sizes = SIZES,
	.operands = forward_operands, .operand_count = EK_FORWARD_OPERANDS, .output_count = EK_FORWARD_OUTPUTS,
	.kind = FIELD(norm), .kind_names = kind_names, .dtype = FIELD(dtype), .eps = FIELD(eps), .stream = FIELD(stream),
	.call = call_forward, .prepare = prepare_forward, .plan = ek_norm_list_forward,
};
#undef ARGS

#define ARGS ek_norm_backward_args
#define GRADIENT .flags = EK_OUTPUT | EK_OPTIONAL | EK_ACCUMULATES | EK_CONSTANT
static const struct ek_operand backward_operands[EK_BACKWARD_OPERANDS] = {
	[EK_BACKWARD_DX] = {OPERAND(dx), ROWS_COLS(dx_stride), ACTIVATION, .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT,
			    .in_place = 1u << EK_BACKWARD_DY | 1u << EK_BACKWARD_X},
	[EK_BACKWARD_DWEIGHT] = {OPERAND(dweight), COLS, WEIGHT, GRADIENT},
	[EK_BACKWARD_DBIAS] = {OPERAND(dbias), COLS, WEIGHT, GRADIENT},
	[EK_BACKWARD_DY] = {OPERAND(dy), ROWS_COLS(dy_stride), ACTIVATION},
	[EK_BACKWARD_X] = {OPERAND(x), ROWS_COLS(x_stride), ACTIVATION},
	[EK_BACKWARD_WEIGHT] = {OPERAND(weight), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_BACKWARD_MEAN] = {OPERAND(mean), ROWS, STATISTIC, .flags = EK_OPTIONAL, LAYER_NORM_ALONE, NEEDS(EK_BACKWARD_RSTD)},
	[EK_BACKWARD_RSTD] = {OPERAND(rstd), ROWS, STATISTIC, .flags = EK_OPTIONAL | EK_CONSTANT,
			      .needs = {.number = EK_BACKWARD_MEAN + 1, .kinds = 1u << EK_LAYER_NORM}},
	[EK_BACKWARD_MEAN_LO] = {OPERAND(mean_lo), ROWS, STATISTIC, .flags = EK_OPTIONAL, LAYER_NORM_ALONE, NEEDS(EK_BACKWARD_MEAN)},
};
static ek_status call_backward(ek_context *ctx, const void *args);
static ek_status prepare_backward(ek_context *ctx, const void *args);
static ek_status workspace_of_backward(const ek_context *ctx, const void *args, size_t *bytes);
const struct ek_op ek_norm_backward_op = {
	.function = "ek_norm_backward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_norm_backward_args,
	.size_count = EK_NORM_SIZES, .sizes = SIZES,
	.operands = backward_operands, .operand_count = EK_BACKWARD_OPERANDS, .output_count = EK_BACKWARD_OUTPUTS,
	.kind = FIELD(norm), .kind_names = kind_names, .dtype = FIELD(dtype), .eps = FIELD(eps),
	.accumulate = FIELD(accumulate), .workspace = FIELD(workspace), .workspace_size = FIELD(workspace_size),
	.stream = FIELD(stream),
	.call = call_backward, .prepare = prepare_backward, .workspace_bytes = workspace_of_backward,
	.plan = ek_norm_list_backward,
};
#undef ARGS
/* clang-format on */

/* ---- rules that no table has ---- */

#define NAMED(dtype, name, bytes) dtype_##name = (dtype),
enum { EK_DTYPES(NAMED) dtype_end };

#define GOES_WITH(activations, weights) [dtype_##activations][dtype_##weights] = true,
static const bool goes_with[dtype_end][dtype_end] = {EK_NORM_DTYPES(GOES_WITH)};

ek_status ek_norm_check_dtypes(ek_dtype dtype, ek_dtype *weight_dtype)
{
	if ((int)*weight_dtype == 0)
		*weight_dtype = dtype;
	if (ek_is_dtype(dtype) && ek_is_dtype(*weight_dtype) && goes_with[dtype][*weight_dtype])
		return EK_OK;
	PASS_ON(ek_check_dtype("dtype", &dtype, 0));
	PASS_ON(ek_check_dtype("weight_dtype", weight_dtype, 0));
	return ek_fail(EK_ERROR_DTYPE, "weight_dtype %s does not go with dtype %s (allowed: %s%s)",
		       ek_dtype_name(*weight_dtype), ek_dtype_name(dtype), ek_dtype_name(dtype),
		       dtype != EK_F32 && goes_with[dtype][EK_F32] ? ", f32" : "");
}

/* Only comparisons, so that the caller's rounding mode does not matter. isless and its like do not trap on a NaN,
 * as < may under the caller's floating-point environment. */
EK_INLINE ek_status check_eps(double eps, ek_dtype dtype)
{
	const double first_infinite = 0x1.ffffffp127; /* FLT_MAX and half a unit in its last place */
	REQUIRE(isgreaterequal(eps, 0.0) && isless(eps, (double)INFINITY), EK_ERROR_ARGUMENT,
		"eps (%g) must be finite and not negative", isnan(eps) ? (double)NAN : eps); /* no -nan */
	REQUIRE(dtype == EK_F64 || isless(eps, first_infinite), EK_ERROR_ARGUMENT,
		"eps (%g) is infinite in binary32, in which %s is computed: it must be at most %g", eps,
		ek_dtype_name(dtype), (double)FLT_MAX);
	return EK_OK;
}

EK_INLINE ek_status check_norm(ek_norm norm)
{
	REQUIRE(norm == EK_LAYER_NORM || norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)norm, (int)EK_LAYER_NORM,
		(int)EK_RMS_NORM);
	return EK_OK;
}

/* All but the operands: what forward and backward share. */
EK_INLINE ek_status check_sizes(const struct ek_op *op, const ek_context *ctx, const void *args,
				void *resolved, ek_dtype *weight_dtype)
{
	PASS_ON(ek_check_struct(op, ctx, args, resolved));
	const ek_dtype *dtype = ek_field(resolved, op->dtype);
	PASS_ON(check_norm(*(const ek_norm *)ek_field(resolved, op->kind)));
	PASS_ON(ek_check_sizes(op, resolved));
	PASS_ON(ek_norm_check_dtypes(*dtype, weight_dtype));
	PASS_ON(check_eps(*(const double *)ek_field(resolved, op->eps), *dtype));
	return ek_check_strides(op, resolved);
}

/* ---- forward ---- */

EK_INLINE ek_status check_forward(const ek_context *ctx, const ek_norm_forward_args *args,
				  ek_norm_forward_args *resolved)
{
	const struct ek_op *op = &ek_norm_forward_op;
	PASS_ON(check_sizes(op, ctx, args, resolved, &resolved->weight_dtype));
	PASS_ON(ek_check_stream(op, ctx, resolved));
	PASS_ON(ek_check_presence(op, resolved));
	return ek_check_memory(op, resolved, 0);
}

ek_status ek_norm_forward(ek_context *ctx, const ek_norm_forward_args *args)
{
	ek_norm_forward_args resolved;
	ek_status status = check_forward(ctx, args, &resolved);
	if (status != EK_OK || resolved.rows == 0)
		return status;
	return ctx->backend->norm->forward(ctx, &resolved, EK_CALL);
}

ek_status ek_norm_forward_prepare(ek_context *ctx, const ek_norm_forward_args *args)
{
	ek_norm_forward_args resolved;
	PASS_ON(check_forward(ctx, args, &resolved));
	return ctx->backend->norm->forward(ctx, &resolved, EK_PREPARE);
}

/* ---- backward: the workspace depends on the sizes, the memory on the workspace ---- */

EK_INLINE ek_status check_backward_sizes(const ek_context *ctx, const ek_norm_backward_args *args,
					 ek_norm_backward_args *resolved)
{
	PASS_ON(check_sizes(&ek_norm_backward_op, ctx, args, resolved, &resolved->weight_dtype));
	return ek_check_accumulate(&ek_norm_backward_op, resolved);
}

ek_status ek_norm_check_backward_memory(const ek_norm_backward_args *args, size_t workspace_bytes)
{
	PASS_ON(ek_check_workspace(&ek_norm_backward_op, args, workspace_bytes));
	return ek_check_memory(&ek_norm_backward_op, args, workspace_bytes);
}

ek_status ek_norm_backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args, size_t *bytes)
{
	ek_norm_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	REQUIRE(bytes, EK_ERROR_ARGUMENT, "bytes is NULL: give the address of the size_t to set");
	*bytes = ctx->backend->norm->backward_workspace(ctx, &resolved);
	return EK_OK;
}

EK_INLINE ek_status run_backward(ek_context *ctx, const ek_norm_backward_args *args, enum ek_intent intent)
{
	ek_norm_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	PASS_ON(ek_check_stream(&ek_norm_backward_op, ctx, &resolved));
	PASS_ON(ek_check_presence(&ek_norm_backward_op, &resolved));
	return ctx->backend->norm->backward(ctx, &resolved, intent);
}

ek_status ek_norm_backward(ek_context *ctx, const ek_norm_backward_args *args)
{
	return run_backward(ctx, args, EK_CALL);
}

ek_status ek_norm_backward_prepare(ek_context *ctx, const ek_norm_backward_args *args)
{
	return run_backward(ctx, args, EK_PREPARE);
}

/* ---- the same by the tables ---- */

#define BY_TABLE(name, function)                                 \
	static ek_status name(ek_context *ctx, const void *args) \
	{                                                        \
		return function(ctx, args);                      \
	}
BY_TABLE(call_forward, ek_norm_forward)
BY_TABLE(prepare_forward, ek_norm_forward_prepare)
BY_TABLE(call_backward, ek_norm_backward)
BY_TABLE(prepare_backward, ek_norm_backward_prepare)

static ek_status workspace_of_backward(const ek_context *ctx, const void *args, size_t *bytes)
{
	return ek_norm_backward_workspace(ctx, args, bytes);
}
