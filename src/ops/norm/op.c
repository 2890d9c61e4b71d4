/* The norms as tables, and their public functions: validate, then run on the context's backend.
 * SPDX-License-Identifier: MIT */
#include "op.h"

#include <string.h>

#include "core/backend.h"
#include "core/by_table.h"
#include "core/check_op.h"
#include "core/versions.h"
#include "plan.h"

EK_BY_TABLE(ek_norm)

/* ---- the tables ---- */

#define FIELD(field) offsetof(ARGS, field)
#define ROWS_COLS(field)                                                                          \
	.rank = 2, .dims = {                                                                      \
			   {.size = EK_NORM_ROWS, .stride = FIELD(field), .stride_name = #field}, \
			   {.size = EK_NORM_COLS},                                                \
	}
#define COLS .rank = 1, .dims = {{.size = EK_NORM_COLS}}
#define ROWS_GROUPS .rank = 1, .dims = {{.size = EK_NORM_ROWS, .pieces = EK_NORM_GROUP_COLS + 1}}
#define OPERAND(field) .name = #field, .pointer = FIELD(field)
#define ACTIVATION .dtype = FIELD(dtype)
#define INNER .dtype = FIELD(h_dtype)
#define OUTER .dtype = FIELD(y_dtype)
#define WEIGHT .dtype = FIELD(weight_dtype)
#define STATISTIC ROWS_GROUPS, .dtype = 0
#define LAYER_NORM_ALONE .kinds = 1u << EK_LAYER_NORM
#define NEEDS(operand) .needs = {.number = (operand) + 1}
/* So that the bytes of statistics and of the reference's workspace do not overflow either. */
#define SIZES                                                                                       \
	{                                                                                           \
		[EK_NORM_ROWS] = {"rows", FIELD(rows), 0, .most = PTRDIFF_MAX / 32},                \
		[EK_NORM_COLS] = {"cols", FIELD(cols), 1, EK_MAX_COLS, .most_name = "EK_MAX_COLS"}, \
		[EK_NORM_GROUP_COLS] = {"group_cols", FIELD(group_cols), .cuts = EK_NORM_COLS + 1}, \
	}

_Static_assert(EK_FORWARD_OPERANDS <= (int)EK_MOST_OPERANDS && EK_BACKWARD_OPERANDS <= (int)EK_MOST_OPERANDS,
	       "EK_MOST_OPERANDS is too small");

static const char *const kind_names[] = {[EK_LAYER_NORM] = "EK_LAYER_NORM", [EK_RMS_NORM] = "EK_RMS_NORM"};

#define CHOICES                                                                                             \
	.choices = ek_choices, .choice_count = EK_CHOICES,                                                  \
	.choice[EK_CHOICE_WEIGHT_DTYPE] = FIELD(weight_dtype), .choice[EK_CHOICE_H_DTYPE] = FIELD(h_dtype), \
	.choice[EK_CHOICE_Y_DTYPE] = FIELD(y_dtype),                                                        \
	.choice[EK_CHOICE_WEIGHT_OFFSET] = FIELD(weight_offset),                                            \
	.choice[EK_CHOICE_ROUNDING] = FIELD(rounding), .choice[EK_CHOICE_ACTIVATION] = FIELD(activation),   \
	.choice[EK_CHOICE_GATE_FIRST] = FIELD(gate_first)

/* clang-format off */
#define ARGS ek_norm_forward_args
static const struct ek_operand forward_operands[EK_FORWARD_OPERANDS] = {
	[EK_FORWARD_Y] = {OPERAND(y), ROWS_COLS(y_stride), OUTER, .flags = EK_OUTPUT,
			  .in_place = 1u << EK_FORWARD_X | 1u << EK_FORWARD_RESIDUAL | 1u << EK_FORWARD_RESIDUAL_AFTER | 1u << EK_FORWARD_GATE},
	[EK_FORWARD_MEAN] = {OPERAND(mean), STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL, LAYER_NORM_ALONE},
	[EK_FORWARD_RSTD] = {OPERAND(rstd), STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL},
	[EK_FORWARD_MEAN_LO] = {OPERAND(mean_lo), STATISTIC, .flags = EK_OUTPUT | EK_OPTIONAL, LAYER_NORM_ALONE},
	[EK_FORWARD_H] = {OPERAND(h), ROWS_COLS(h_stride), INNER, .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT,
			  .in_place = 1u << EK_FORWARD_X | 1u << EK_FORWARD_RESIDUAL, NEEDS(EK_FORWARD_RESIDUAL)},
	[EK_FORWARD_X] = {OPERAND(x), ROWS_COLS(x_stride), ACTIVATION},
	[EK_FORWARD_WEIGHT] = {OPERAND(weight), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_FORWARD_BIAS] = {OPERAND(bias), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_FORWARD_X_BIAS] = {OPERAND(x_bias), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_FORWARD_RESIDUAL] = {OPERAND(residual), ROWS_COLS(residual_stride), INNER, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_FORWARD_RESIDUAL_AFTER] = {OPERAND(residual_after), ROWS_COLS(residual_after_stride), INNER,
				       .flags = EK_OPTIONAL | EK_CONSTANT, .excludes = 1u << EK_FORWARD_RESIDUAL,
				       .without_choice = EK_CHOICE_ACTIVATION + 1},
	[EK_FORWARD_GATE] = {OPERAND(gate), ROWS_COLS(gate_stride), ACTIVATION, .flags = EK_OPTIONAL | EK_CONSTANT,
			     .excludes = 1u << EK_FORWARD_X_BIAS | 1u << EK_FORWARD_RESIDUAL | 1u << EK_FORWARD_RESIDUAL_AFTER,
			     .with_choice = EK_CHOICE_ACTIVATION + 1},
};
const struct ek_op ek_norm_forward_op = {
	.function = "ek_norm_forward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_norm_forward_args,
	.size_count = EK_NORM_SIZES, .sizes = SIZES,
	.operands = forward_operands, .operand_count = EK_FORWARD_OPERANDS, .output_count = EK_FORWARD_OUTPUTS,
	.kind = FIELD(norm), .kind_names = kind_names, .dtype = FIELD(dtype), .scalar[EK_EPS] = FIELD(eps), .stream = FIELD(stream),
	CHOICES,
	.call = call_forward, .prepare = prepare_forward, .plan = ek_norm_list_forward,
};
#undef ARGS

#define ARGS ek_norm_backward_args
#define GRADIENT .dtype = FIELD(gradient_dtype), .flags = EK_OUTPUT | EK_OPTIONAL | EK_ACCUMULATES | EK_CONSTANT
#define MATRICES (1u << EK_BACKWARD_DY | 1u << EK_BACKWARD_X | 1u << EK_BACKWARD_DH | 1u << EK_BACKWARD_GATE)
static const struct ek_operand backward_operands[EK_BACKWARD_OPERANDS] = {
	[EK_BACKWARD_DX] = {OPERAND(dx), ROWS_COLS(dx_stride), ACTIVATION, .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT,
			    .in_place = MATRICES},
	[EK_BACKWARD_DWEIGHT] = {OPERAND(dweight), COLS, GRADIENT},
	[EK_BACKWARD_DBIAS] = {OPERAND(dbias), COLS, GRADIENT},
	[EK_BACKWARD_DRESIDUAL] = {OPERAND(dresidual), ROWS_COLS(dresidual_stride), INNER,
				   .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT, .in_place = MATRICES},
	[EK_BACKWARD_DX_BIAS] = {OPERAND(dx_bias), COLS, GRADIENT},
	[EK_BACKWARD_DGATE] = {OPERAND(dgate), ROWS_COLS(dgate_stride), ACTIVATION, .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT,
			       .in_place = MATRICES, NEEDS(EK_BACKWARD_GATE)},
	[EK_BACKWARD_DY] = {OPERAND(dy), ROWS_COLS(dy_stride), OUTER, .flags = EK_OPTIONAL | EK_CONSTANT,
			    .instead = EK_BACKWARD_DH + 1},
	[EK_BACKWARD_X] = {OPERAND(x), ROWS_COLS(x_stride), INNER},
	[EK_BACKWARD_WEIGHT] = {OPERAND(weight), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_BACKWARD_MEAN] = {OPERAND(mean), STATISTIC, .flags = EK_OPTIONAL, LAYER_NORM_ALONE, NEEDS(EK_BACKWARD_RSTD)},
	[EK_BACKWARD_RSTD] = {OPERAND(rstd), STATISTIC, .flags = EK_OPTIONAL | EK_CONSTANT,
			      .needs = {.number = EK_BACKWARD_MEAN + 1, .kinds = 1u << EK_LAYER_NORM}},
	[EK_BACKWARD_MEAN_LO] = {OPERAND(mean_lo), STATISTIC, .flags = EK_OPTIONAL, LAYER_NORM_ALONE, NEEDS(EK_BACKWARD_MEAN)},
	[EK_BACKWARD_X_BIAS] = {OPERAND(x_bias), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_BACKWARD_DH] = {OPERAND(dh), ROWS_COLS(dh_stride), INNER, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_BACKWARD_BIAS] = {OPERAND(bias), COLS, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
			      .with_choice = EK_CHOICE_ACTIVATION + 1, .without_choice = EK_CHOICE_GATE_FIRST + 1},
	[EK_BACKWARD_GATE] = {OPERAND(gate), ROWS_COLS(gate_stride), ACTIVATION, .flags = EK_OPTIONAL | EK_CONSTANT,
			      .excludes = 1u << EK_BACKWARD_DX_BIAS | 1u << EK_BACKWARD_DRESIDUAL | 1u << EK_BACKWARD_X_BIAS |
					  1u << EK_BACKWARD_DH,
			      .with_choice = EK_CHOICE_ACTIVATION + 1},
};
const struct ek_op ek_norm_backward_op = {
	.function = "ek_norm_backward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_norm_backward_args,
	.size_count = EK_NORM_SIZES, .sizes = SIZES,
	.operands = backward_operands, .operand_count = EK_BACKWARD_OPERANDS, .output_count = EK_BACKWARD_OUTPUTS,
	.kind = FIELD(norm), .kind_names = kind_names, .dtype = FIELD(dtype), .scalar[EK_EPS] = FIELD(eps),
	CHOICES, .choice[EK_CHOICE_GRADIENT_DTYPE] = FIELD(gradient_dtype),
	.accumulate = FIELD(accumulate), .workspace = FIELD(workspace), .workspace_size = FIELD(workspace_size),
	.stream = FIELD(stream),
	.call = call_backward, .prepare = prepare_backward, .workspace_bytes = workspace_of_backward,
	.plan = ek_norm_list_backward,
};
#undef ARGS
/* clang-format on */

/* ---- rules that no table has ---- */

ek_status ek_norm_check_dtypes(ek_dtype dtype, ek_dtype *weight_dtype)
{
	PASS_ON(ek_check_dtype("dtype", &dtype, 0));
	return ek_check_follower("weight_dtype", weight_dtype, "dtype", dtype);
}

/* y may also be narrower than x. */
EK_INLINE ek_status check_y_dtype(ek_dtype dtype, ek_dtype *y_dtype)
{
	bool narrower = dtype == EK_F32 && (*y_dtype == EK_F16 || *y_dtype == EK_BF16);
	return narrower ? EK_OK : ek_check_follower("y_dtype", y_dtype, "dtype", dtype);
}

EK_INLINE ek_status check_norm(ek_norm norm)
{
	REQUIRE(norm == EK_LAYER_NORM || norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)norm, (int)EK_LAYER_NORM,
		(int)EK_RMS_NORM);
	return EK_OK;
}

EK_INLINE ek_status check_flavour(int weight_offset, ek_rounding rounding, ek_activation activation)
{
	REQUIRE(weight_offset == 0 || weight_offset == 1, EK_ERROR_ARGUMENT,
		"weight_offset (%d) must be 0 or 1", weight_offset);
	REQUIRE(rounding == EK_ROUND_ONCE || rounding == EK_ROUND_EACH, EK_ERROR_ARGUMENT,
		"rounding (%d) is neither EK_ROUND_ONCE (%d) nor EK_ROUND_EACH (%d)", (int)rounding,
		(int)EK_ROUND_ONCE, (int)EK_ROUND_EACH);
	REQUIRE((unsigned)activation <= EK_GELU_TANH, EK_ERROR_ARGUMENT,
		"activation (%d) is not in EK_NO_ACTIVATION (%d) to EK_GELU_TANH (%d)", (int)activation,
		(int)EK_NO_ACTIVATION, (int)EK_GELU_TANH);
	return EK_OK;
}

EK_INLINE ek_status check_gate_first(int gate_first, const void *gate)
{
	REQUIRE(gate_first == 0 || (gate_first == 1 && gate), EK_ERROR_ARGUMENT,
		"gate_first (%d) must be 0%s", gate_first, gate ? " or 1" : ": gate is NULL");
	return EK_OK;
}

ek_status ek_norm_check_choices(ek_dtype dtype, ek_dtype weight_dtype, ek_dtype *h_dtype, ek_dtype *y_dtype,
				ek_dtype *gradient_dtype, int weight_offset, ek_rounding rounding,
				ek_activation activation)
{
	PASS_ON(ek_check_follower("h_dtype", h_dtype, "dtype", dtype));
	PASS_ON(check_y_dtype(dtype, y_dtype));
	PASS_ON(ek_check_follower("gradient_dtype", gradient_dtype, "weight_dtype", weight_dtype));
	return check_flavour(weight_offset, rounding, activation);
}

/* Each group has its statistics, which the limit of rows is for. */
EK_INLINE ek_status check_groups(const struct ek_op *op, const void *args)
{
	int64_t rows = ek_size_of(op, EK_NORM_ROWS, args),
		group_cols = ek_size_of(op, EK_NORM_GROUP_COLS, args);
	if (__builtin_expect(group_cols == 0, 1))
		return EK_OK;
	int64_t groups = ek_pieces_of(op, EK_NORM_GROUP_COLS, args),
		most = op->sizes[EK_NORM_ROWS].most / groups;
	REQUIRE(rows <= most, EK_ERROR_ARGUMENT,
		"rows (%lld) of %lld groups each, of group_cols (%lld), are more than memory can hold (%lld)",
		(long long)rows, (long long)groups, (long long)group_cols, (long long)most);
	return EK_OK;
}

/* All but the operands: what forward and backward share. */
EK_INLINE ek_status check_sizes(const struct ek_op *op, const ek_context *ctx, const void *args,
				void *resolved, ek_dtype *weight_dtype, ek_dtype *h_dtype, ek_dtype *y_dtype)
{
	PASS_ON(ek_check_struct(op, ctx, args, resolved));
	const ek_dtype *dtype = ek_field(resolved, op->dtype);
	PASS_ON(check_norm(*(const ek_norm *)ek_field(resolved, op->kind)));
	PASS_ON(ek_check_sizes(op, resolved));
	PASS_ON(check_groups(op, resolved));
	PASS_ON(ek_norm_check_dtypes(*dtype, weight_dtype));
	PASS_ON(ek_check_follower("h_dtype", h_dtype, "dtype", *dtype));
	PASS_ON(check_y_dtype(*dtype, y_dtype));
	PASS_ON(ek_check_eps(*(const double *)ek_field(resolved, op->scalar[EK_EPS]), *dtype));
	return EK_OK;
}

/* If every step already has the dtype of the arithmetic, EK_ROUND_EACH equals EK_ROUND_ONCE, so the plain kernels run. */
EK_INLINE ek_rounding resolved_rounding(ek_rounding rounding, ek_dtype input, ek_dtype y)
{
	bool in_arithmetic = input == ek_real_of(input) && y == input;
	return in_arithmetic ? EK_ROUND_ONCE : rounding;
}

/* ---- forward ---- */

bool ek_norm_forward_is_fused(const ek_norm_forward_args *a)
{
	return a->x_bias || a->residual || a->residual_after || a->y_dtype != a->dtype || a->weight_offset ||
	       a->rounding || a->activation || a->group_cols;
}

bool ek_norm_backward_has_neighbours(const ek_norm_backward_args *a)
{
	return a->x_bias || a->dh || a->dresidual || a->dx_bias || !a->dy || a->h_dtype != a->dtype ||
	       a->y_dtype != a->dtype || a->gradient_dtype != a->weight_dtype || a->weight_offset ||
	       a->rounding || a->activation;
}

bool ek_norm_backward_is_fused(const ek_norm_backward_args *a)
{
	return ek_norm_backward_has_neighbours(a) || a->group_cols;
}

EK_INLINE ek_status check_forward(const ek_context *ctx, const ek_norm_forward_args *args,
				  ek_norm_forward_args *resolved)
{
	const struct ek_op *op = &ek_norm_forward_op;
	PASS_ON(check_sizes(op, ctx, args, resolved, &resolved->weight_dtype, &resolved->h_dtype,
			    &resolved->y_dtype));
	PASS_ON(check_flavour(resolved->weight_offset, resolved->rounding, resolved->activation));
	resolved->rounding = resolved_rounding(resolved->rounding,
					       resolved->residual ? resolved->h_dtype : resolved->dtype,
					       resolved->y_dtype);
	PASS_ON(ek_check_strides(op, resolved));
	PASS_ON(ek_check_stream(op, ctx, resolved));
	PASS_ON(check_gate_first(resolved->gate_first, resolved->gate));
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
	PASS_ON(check_sizes(&ek_norm_backward_op, ctx, args, resolved, &resolved->weight_dtype,
			    &resolved->h_dtype, &resolved->y_dtype));
	PASS_ON(ek_check_follower("gradient_dtype", &resolved->gradient_dtype, "weight_dtype",
				  resolved->weight_dtype));
	PASS_ON(check_flavour(resolved->weight_offset, resolved->rounding, resolved->activation));
	PASS_ON(check_gate_first(resolved->gate_first, resolved->gate));
	resolved->rounding = resolved_rounding(resolved->rounding, resolved->h_dtype, resolved->h_dtype);
	PASS_ON(ek_check_strides(&ek_norm_backward_op, resolved));
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
