/* Rotary position embedding as tables, and its public functions: validate, then run on the context's backend.
 * SPDX-License-Identifier: MIT */
#include "op.h"

#include <inttypes.h>

#include "core/backend.h"
#include "core/by_table.h"
#include "core/check_op.h"
#include "core/versions.h"
#include "ops/choices.h"
#include "plan.h"

EK_BY_TABLE(ek_rope)

/* ---- the tables ---- */

#define FIELD(field) offsetof(ARGS, field)
#define STRIDED(number, field)                                                  \
	{                                                                       \
		.size = (number), .stride = FIELD(field), .stride_name = #field \
	}
#define HEADS_OF(tensor, heads)                                           \
	.rank = 4, .dims = {                                              \
			   STRIDED(EK_ROPE_BATCH, tensor##_batch_stride), \
			   STRIDED(EK_ROPE_SEQ, tensor##_seq_stride),     \
			   STRIDED((heads), tensor##_head_stride),        \
			   {.size = EK_ROPE_HEAD_DIM},                    \
	}
#define TABLE(field)                                                     \
	.rank = 2, .dims = {                                             \
			   STRIDED(EK_ROPE_TABLE_ROWS, field),           \
			   {.size = EK_ROPE_ROTARY_DIM, .halves = true}, \
	}
#define TOKENS .rank = 2, .dims = {STRIDED(EK_ROPE_BATCH, positions_stride), {.size = EK_ROPE_SEQ}}
#define OF_TOKEN(heads) .rank = 2, .dims = {{.size = (heads)}, {.size = EK_ROPE_HEAD_DIM}}
#define OF_HEAD .rank = 1, .dims = {{.size = EK_ROPE_HEAD_DIM}}
#define OPERAND(field) .name = #field, .pointer = FIELD(field)
#define ELEMENT .dtype = FIELD(dtype)
#define WEIGHT .dtype = FIELD(weight_dtype)
#define ANGLES .dtype = FIELD(table_dtype)
#define OF_NORM .with_choice = EK_CHOICE_NORM + 1, .without_choice = EK_CHOICE_NORM_LAST + 1
#define NEEDS(operand) .needs = {.number = (operand) + 1}
/* As EK_MAX_COLS, so that all elements of a token are columns. */
#define SIZES                                                                                                \
	{                                                                                                    \
		[EK_ROPE_BATCH] = {"batch", FIELD(batch), 0, .most = PTRDIFF_MAX / 32},                      \
		[EK_ROPE_SEQ] = {"seq", FIELD(seq), 0, .most = PTRDIFF_MAX / 32},                            \
		[EK_ROPE_HEADS] = {"heads", FIELD(heads), 1, EK_MAX_COLS, .most_name = "EK_MAX_COLS"},       \
		[EK_ROPE_K_HEADS] = {"k_heads", FIELD(k_heads), 1, EK_MAX_COLS, .most_name = "EK_MAX_COLS"}, \
		[EK_ROPE_HEAD_DIM] = {"head_dim", FIELD(head_dim), 2, EK_MAX_HEAD_DIM,                       \
				      .most_name = "EK_MAX_HEAD_DIM"},                                       \
		[EK_ROPE_ROTARY_DIM] = {"rotary_dim", FIELD(rotary_dim), 2, EK_MAX_HEAD_DIM,                 \
					.most_name = "EK_MAX_HEAD_DIM"},                                     \
		[EK_ROPE_TABLE_ROWS] = {"table_rows", FIELD(table_rows), 0, .most = PTRDIFF_MAX / 32},       \
		[EK_ROPE_TABLE_STEP] = {"table_step", FIELD(table_step), 0, .most = PTRDIFF_MAX / 32},       \
		[EK_ROPE_OFFSET] = {"offset", FIELD(offset), 0, .most = PTRDIFF_MAX / 32},                   \
	}
#define CHOICES                                                                                             \
	.choices = ek_choices, .choice_count = EK_CHOICES,                                                  \
	.choice[EK_CHOICE_WEIGHT_DTYPE] = FIELD(weight_dtype),                                              \
	.choice[EK_CHOICE_TABLE_DTYPE] = FIELD(table_dtype),                                                \
	.choice[EK_CHOICE_INTERLEAVED] = FIELD(interleaved), .choice[EK_CHOICE_TRAILING] = FIELD(trailing), \
	.choice[EK_CHOICE_NORM] = FIELD(norm), .choice[EK_CHOICE_NORM_LAST] = FIELD(norm_last),             \
	.choice[EK_CHOICE_WEIGHT_OFFSET] = FIELD(weight_offset)

_Static_assert((int)EK_ROPE_SIZES <= (int)EK_MOST_SIZES, "EK_MOST_SIZES is too small");
_Static_assert((int)EK_ROPE_BACKWARD_OPERANDS <= (int)EK_MOST_OPERANDS, "EK_MOST_OPERANDS is too small");

/* clang-format off */
#define ARGS ek_rope_forward_args
static const struct ek_operand forward_operands[EK_ROPE_FORWARD_OPERANDS] = {
	[EK_ROPE_FORWARD_Q_OUT] = {OPERAND(q_out), HEADS_OF(q_out, EK_ROPE_HEADS), ELEMENT, .flags = EK_OUTPUT,
				   .in_place = 1u << EK_ROPE_FORWARD_Q},
	[EK_ROPE_FORWARD_K_OUT] = {OPERAND(k_out), HEADS_OF(k_out, EK_ROPE_K_HEADS), ELEMENT, .flags = EK_OUTPUT | EK_OPTIONAL,
				   .in_place = 1u << EK_ROPE_FORWARD_K, NEEDS(EK_ROPE_FORWARD_K)},
	[EK_ROPE_FORWARD_Q] = {OPERAND(q), HEADS_OF(q, EK_ROPE_HEADS), ELEMENT},
	[EK_ROPE_FORWARD_K] = {OPERAND(k), HEADS_OF(k, EK_ROPE_K_HEADS), ELEMENT, .flags = EK_OPTIONAL, NEEDS(EK_ROPE_FORWARD_K_OUT)},
	[EK_ROPE_FORWARD_COS] = {OPERAND(cos), TABLE(cos_stride), ANGLES},
	[EK_ROPE_FORWARD_SIN] = {OPERAND(sin), TABLE(sin_stride), ANGLES},
	[EK_ROPE_FORWARD_POSITIONS] = {OPERAND(positions), TOKENS, .flags = EK_OPTIONAL | EK_CONSTANT | EK_INDEX},
	[EK_ROPE_FORWARD_Q_BIAS] = {OPERAND(q_bias), OF_TOKEN(EK_ROPE_HEADS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT},
	[EK_ROPE_FORWARD_K_BIAS] = {OPERAND(k_bias), OF_TOKEN(EK_ROPE_K_HEADS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
				    NEEDS(EK_ROPE_FORWARD_K)},
	[EK_ROPE_FORWARD_Q_WEIGHT] = {OPERAND(q_weight), OF_HEAD, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT, OF_NORM},
	[EK_ROPE_FORWARD_K_WEIGHT] = {OPERAND(k_weight), OF_HEAD, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT, OF_NORM,
				      NEEDS(EK_ROPE_FORWARD_K)},
};
const struct ek_op ek_rope_forward_op = {
	.function = "ek_rope_forward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_rope_forward_args,
	.size_count = EK_ROPE_SIZES, .sizes = SIZES,
	.operands = forward_operands, .operand_count = EK_ROPE_FORWARD_OPERANDS, .output_count = EK_ROPE_FORWARD_OUTPUTS,
	.dtype = FIELD(dtype), .scalar[EK_EPS] = FIELD(eps), .stream = FIELD(stream),
	CHOICES,
	.call = call_forward, .prepare = prepare_forward, .plan = ek_rope_list_forward,
};
#undef ARGS

#define ARGS ek_rope_backward_args
#define RESULT .flags = EK_OUTPUT | EK_OPTIONAL | EK_CONSTANT
#define GRADIENT .dtype = FIELD(gradient_dtype), .flags = EK_OUTPUT | EK_OPTIONAL | EK_ACCUMULATES | EK_CONSTANT
/* A norm's gradient is computed from its input. */
#define NEEDS_WITH_NORM(operand) .needs = {.number = (operand) + 1, .choice = EK_CHOICE_NORM + 1}
static const struct ek_operand backward_operands[EK_ROPE_BACKWARD_OPERANDS] = {
	[EK_ROPE_BACKWARD_DQ] = {OPERAND(dq), HEADS_OF(dq, EK_ROPE_HEADS), ELEMENT, RESULT,
				 .in_place = 1u << EK_ROPE_BACKWARD_DQ_OUT | 1u << EK_ROPE_BACKWARD_Q, NEEDS(EK_ROPE_BACKWARD_DQ_OUT)},
	[EK_ROPE_BACKWARD_DK] = {OPERAND(dk), HEADS_OF(dk, EK_ROPE_K_HEADS), ELEMENT, RESULT,
				 .in_place = 1u << EK_ROPE_BACKWARD_DK_OUT | 1u << EK_ROPE_BACKWARD_K, NEEDS(EK_ROPE_BACKWARD_DK_OUT)},
	[EK_ROPE_BACKWARD_DQ_BIAS] = {OPERAND(dq_bias), OF_TOKEN(EK_ROPE_HEADS), GRADIENT, NEEDS(EK_ROPE_BACKWARD_DQ_OUT)},
	[EK_ROPE_BACKWARD_DK_BIAS] = {OPERAND(dk_bias), OF_TOKEN(EK_ROPE_K_HEADS), GRADIENT, NEEDS(EK_ROPE_BACKWARD_DK_OUT)},
	[EK_ROPE_BACKWARD_DQ_WEIGHT] = {OPERAND(dq_weight), OF_HEAD, GRADIENT, OF_NORM, NEEDS(EK_ROPE_BACKWARD_DQ_OUT)},
	[EK_ROPE_BACKWARD_DK_WEIGHT] = {OPERAND(dk_weight), OF_HEAD, GRADIENT, OF_NORM, NEEDS(EK_ROPE_BACKWARD_DK_OUT)},
	[EK_ROPE_BACKWARD_DQ_OUT] = {OPERAND(dq_out), HEADS_OF(dq_out, EK_ROPE_HEADS), ELEMENT, .flags = EK_OPTIONAL,
				     NEEDS_WITH_NORM(EK_ROPE_BACKWARD_Q)},
	[EK_ROPE_BACKWARD_DK_OUT] = {OPERAND(dk_out), HEADS_OF(dk_out, EK_ROPE_K_HEADS), ELEMENT, .flags = EK_OPTIONAL,
				     NEEDS_WITH_NORM(EK_ROPE_BACKWARD_K)},
	[EK_ROPE_BACKWARD_Q] = {OPERAND(q), HEADS_OF(q, EK_ROPE_HEADS), ELEMENT, .flags = EK_OPTIONAL},
	[EK_ROPE_BACKWARD_K] = {OPERAND(k), HEADS_OF(k, EK_ROPE_K_HEADS), ELEMENT, .flags = EK_OPTIONAL},
	[EK_ROPE_BACKWARD_COS] = {OPERAND(cos), TABLE(cos_stride), ANGLES},
	[EK_ROPE_BACKWARD_SIN] = {OPERAND(sin), TABLE(sin_stride), ANGLES},
	[EK_ROPE_BACKWARD_POSITIONS] = {OPERAND(positions), TOKENS, .flags = EK_OPTIONAL | EK_CONSTANT | EK_INDEX},
	[EK_ROPE_BACKWARD_Q_BIAS] = {OPERAND(q_bias), OF_TOKEN(EK_ROPE_HEADS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
				     NEEDS(EK_ROPE_BACKWARD_Q)},
	[EK_ROPE_BACKWARD_K_BIAS] = {OPERAND(k_bias), OF_TOKEN(EK_ROPE_K_HEADS), WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT,
				     NEEDS(EK_ROPE_BACKWARD_K)},
	[EK_ROPE_BACKWARD_Q_WEIGHT] = {OPERAND(q_weight), OF_HEAD, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT, OF_NORM,
				       NEEDS(EK_ROPE_BACKWARD_Q)},
	[EK_ROPE_BACKWARD_K_WEIGHT] = {OPERAND(k_weight), OF_HEAD, WEIGHT, .flags = EK_OPTIONAL | EK_CONSTANT, OF_NORM,
				       NEEDS(EK_ROPE_BACKWARD_K)},
};
const struct ek_op ek_rope_backward_op = {
	.function = "ek_rope_backward",
	.args_size = sizeof(ARGS), .first_args_size = EK_FIRST_SIZE_ek_rope_backward_args,
	.size_count = EK_ROPE_SIZES, .sizes = SIZES,
	.operands = backward_operands, .operand_count = EK_ROPE_BACKWARD_OPERANDS, .output_count = EK_ROPE_BACKWARD_OUTPUTS,
	.dtype = FIELD(dtype), .scalar[EK_EPS] = FIELD(eps),
	CHOICES, .choice[EK_CHOICE_GRADIENT_DTYPE] = FIELD(gradient_dtype),
	.accumulate = FIELD(accumulate), .workspace = FIELD(workspace), .workspace_size = FIELD(workspace_size),
	.stream = FIELD(stream),
	.call = call_backward, .prepare = prepare_backward, .workspace_bytes = workspace_of_backward,
	.plan = ek_rope_list_backward,
};
#undef ARGS
/* clang-format on */

/* ---- rules that no table has ---- */

#define SIZE(number) ((int64_t *)ek_field(args, op->sizes[number].offset))

/* Zeros become what they stand for. */
static void resolve_sizes(const struct ek_op *op, void *args)
{
	if (*SIZE(EK_ROPE_K_HEADS) == 0)
		*SIZE(EK_ROPE_K_HEADS) = *SIZE(EK_ROPE_HEADS);
	if (*SIZE(EK_ROPE_ROTARY_DIM) == 0)
		*SIZE(EK_ROPE_ROTARY_DIM) = *SIZE(EK_ROPE_HEAD_DIM);
}

static ek_status check_heads(const struct ek_op *op, void *args)
{
	const int64_t heads = *SIZE(EK_ROPE_HEADS), k_heads = *SIZE(EK_ROPE_K_HEADS),
		      head_dim = *SIZE(EK_ROPE_HEAD_DIM), rotary_dim = *SIZE(EK_ROPE_ROTARY_DIM);
	const int64_t most = PTRDIFF_MAX / 32;
	int64_t elements;
	REQUIRE(rotary_dim % 2 == 0, EK_ERROR_ARGUMENT,
		"rotary_dim (%" PRId64 ") is odd; expected an even number, of pairs", rotary_dim);
	REQUIRE(rotary_dim <= head_dim, EK_ERROR_ARGUMENT,
		"rotary_dim (%" PRId64 ") is more than head_dim (%" PRId64 ")", rotary_dim, head_dim);
	REQUIRE(heads % k_heads == 0, EK_ERROR_ARGUMENT,
		"k_heads (%" PRId64 ") does not divide heads (%" PRId64 ")", k_heads, heads);
	REQUIRE(heads * head_dim <= EK_MAX_COLS, EK_ERROR_ARGUMENT,
		"heads (%" PRId64 ") times head_dim (%" PRId64 ") is more than EK_MAX_COLS (%d)", heads,
		head_dim, EK_MAX_COLS);
	bool overflows = __builtin_mul_overflow(*SIZE(EK_ROPE_BATCH), *SIZE(EK_ROPE_SEQ), &elements) ||
			 __builtin_mul_overflow(elements, heads * head_dim, &elements);
	REQUIRE(!overflows && elements <= most, EK_ERROR_ARGUMENT,
		"batch (%" PRId64 ") times seq (%" PRId64 ") is more heads than memory can hold",
		*SIZE(EK_ROPE_BATCH), *SIZE(EK_ROPE_SEQ));
	return EK_OK;
}

/* That the last token of the last sequence finds its row. */
static ek_status check_rows(const struct ek_op *op, void *args, const void *positions)
{
	const int64_t batch = *SIZE(EK_ROPE_BATCH), seq = *SIZE(EK_ROPE_SEQ),
		      table_rows = *SIZE(EK_ROPE_TABLE_ROWS), table_step = *SIZE(EK_ROPE_TABLE_STEP),
		      offset = *SIZE(EK_ROPE_OFFSET);
	REQUIRE(!positions || (offset == 0 && table_step == 0), EK_ERROR_ARGUMENT,
		"offset (%" PRId64 ") and table_step (%" PRId64
		") do not go with positions (%p); expected 0, or positions NULL",
		offset, table_step, positions);
	if (positions || batch == 0 || seq == 0)
		return EK_OK;
	int64_t end;
	bool overflows = __builtin_mul_overflow(batch - 1, table_step, &end) ||
			 __builtin_add_overflow(end, offset + seq, &end);
	REQUIRE(!overflows && end <= table_rows, EK_ERROR_ARGUMENT,
		"table_rows (%" PRId64 ") is less than offset (%" PRId64 ") + seq (%" PRId64
		") + (batch (%" PRId64 ") - 1) * table_step (%" PRId64 ")",
		table_rows, offset, seq, batch, table_step);
	return EK_OK;
}

/* Positions in memory that the host can read. */
static ek_status check_positions(const ek_context *ctx, const char *positions, int64_t batch, int64_t seq,
				 int64_t stride, int64_t table_rows)
{
	for (int64_t b = 0; ctx->device == EK_CPU && positions && b < batch; b++)
		for (int64_t s = 0; s < seq; s++) {
			int64_t position;
			memcpy(&position, positions + (b * stride + s) * 8, 8);
			REQUIRE(position >= 0 && position < table_rows, EK_ERROR_ARGUMENT,
				"positions[%" PRId64 "][%" PRId64 "] (%" PRId64
				") is not a row of the tables; expected 0 to %" PRId64,
				b, s, position, table_rows - 1);
		}
	return EK_OK;
}

static ek_status check_option(const char *name, int value)
{
	REQUIRE(value == 0 || value == 1, EK_ERROR_ARGUMENT, "%s (%d) must be 0 or 1", name, value);
	return EK_OK;
}

static ek_status check_norm(int norm, int norm_last)
{
	REQUIRE(norm >= 0 && norm <= EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is not 0, EK_LAYER_NORM (%d) or EK_RMS_NORM (%d)", norm, (int)EK_LAYER_NORM,
		(int)EK_RMS_NORM);
	REQUIRE(norm_last == 0 || (norm_last == 1 && norm), EK_ERROR_ARGUMENT, "norm_last (%d) must be 0%s",
		norm_last, norm ? " or 1" : ": norm is 0");
	return EK_OK;
}

/* The dimensions of an output, by stride, must not reach into each other: its elements are written by many threads. */
static ek_status check_apart(const struct ek_op *op, const struct ek_operand *output, const void *args)
{
	int order[EK_MOST_DIMS] = {0, 1, 2};
	for (int i = 1; i < 3; i++)
		for (int k = i; k > 0 && ek_operand_stride(op, output, order[k], args) <
						 ek_operand_stride(op, output, order[k - 1], args);
		     k--) {
			int other = order[k];
			order[k] = order[k - 1];
			order[k - 1] = other;
		}
	int64_t inside = ek_size_of(op, EK_ROPE_HEAD_DIM, args);
	for (int i = 0; i < 3; i++) {
		int64_t count = ek_dim_of(op, &output->dims[order[i]], args),
			stride = ek_operand_stride(op, output, order[i], args);
		if (count < 2)
			continue;
		REQUIRE(stride >= inside, EK_ERROR_ARGUMENT,
			"%s (%" PRId64 ") is smaller than the %" PRId64
			" elements that lie between: elements of %s would overlap",
			output->dims[order[i]].stride_name, stride, inside, output->name);
		inside += (count - 1) * stride;
	}
	return EK_OK;
}

static ek_status check_outputs(const struct ek_op *op, const void *args)
{
	for (int i = 0; i < op->output_count; i++)
		if (op->operands[i].rank == 4 && ek_operand_pointer(&op->operands[i], args) &&
		    !ek_is_empty(op, &op->operands[i], args))
			PASS_ON(check_apart(op, &op->operands[i], args));
	return EK_OK;
}

#define CHOICE(number) ((ek_dtype *)ek_field(resolved, op->choice[number]))
/* All but the operands: what forward and backward share. */
EK_INLINE ek_status check_sizes(const struct ek_op *op, const ek_context *ctx, const void *args,
				void *resolved)
{
	PASS_ON(ek_check_struct(op, ctx, args, resolved));
	ek_dtype dtype = *(const ek_dtype *)ek_field(resolved, op->dtype);
	resolve_sizes(op, resolved);
	PASS_ON(ek_check_sizes(op, resolved));
	PASS_ON(check_heads(op, resolved));
	PASS_ON(ek_check_dtype("dtype", &dtype, 0));
	PASS_ON(ek_check_follower("weight_dtype", CHOICE(EK_CHOICE_WEIGHT_DTYPE), "dtype", dtype));
	PASS_ON(ek_check_follower("table_dtype", CHOICE(EK_CHOICE_TABLE_DTYPE), "dtype", dtype));
	PASS_ON(check_option("interleaved", (int)*CHOICE(EK_CHOICE_INTERLEAVED)));
	PASS_ON(check_option("trailing", (int)*CHOICE(EK_CHOICE_TRAILING)));
	PASS_ON(check_norm((int)*CHOICE(EK_CHOICE_NORM), (int)*CHOICE(EK_CHOICE_NORM_LAST)));
	PASS_ON(check_option("weight_offset", (int)*CHOICE(EK_CHOICE_WEIGHT_OFFSET)));
	PASS_ON(ek_check_eps(*(const double *)ek_field(resolved, op->scalar[EK_EPS]), dtype));
	return ek_check_strides(op, resolved);
}

/* ---- forward ---- */

static ek_status check_forward(const ek_context *ctx, const ek_rope_forward_args *args,
			       ek_rope_forward_args *resolved)
{
	const struct ek_op *op = &ek_rope_forward_op;
	PASS_ON(check_sizes(op, ctx, args, resolved));
	PASS_ON(ek_check_stream(op, ctx, resolved));
	PASS_ON(ek_check_presence(op, resolved));
	PASS_ON(check_rows(op, resolved, resolved->positions));
	PASS_ON(check_outputs(op, resolved));
	return ek_check_memory(op, resolved, 0);
}

ek_status ek_rope_forward(ek_context *ctx, const ek_rope_forward_args *args)
{
	ek_rope_forward_args resolved;
	ek_status status = check_forward(ctx, args, &resolved);
	if (status != EK_OK || resolved.batch == 0 || resolved.seq == 0)
		return status;
	PASS_ON(check_positions(ctx, resolved.positions, resolved.batch, resolved.seq,
				resolved.positions_stride, resolved.table_rows));
	return ctx->backend->rope->forward(ctx, &resolved, EK_CALL);
}

ek_status ek_rope_forward_prepare(ek_context *ctx, const ek_rope_forward_args *args)
{
	ek_rope_forward_args resolved;
	PASS_ON(check_forward(ctx, args, &resolved));
	return ctx->backend->rope->forward(ctx, &resolved, EK_PREPARE);
}

/* ---- backward ---- */

static ek_status check_backward_sizes(const ek_context *ctx, const ek_rope_backward_args *args,
				      ek_rope_backward_args *resolved)
{
	PASS_ON(check_sizes(&ek_rope_backward_op, ctx, args, resolved));
	PASS_ON(ek_check_follower("gradient_dtype", &resolved->gradient_dtype, "weight_dtype",
				  resolved->weight_dtype));
	return ek_check_accumulate(&ek_rope_backward_op, resolved);
}

ek_status ek_rope_check_backward_memory(const ek_rope_backward_args *args, size_t workspace_bytes)
{
	PASS_ON(ek_check_workspace(&ek_rope_backward_op, args, workspace_bytes));
	return ek_check_memory(&ek_rope_backward_op, args, workspace_bytes);
}

ek_status ek_rope_backward_workspace(const ek_context *ctx, const ek_rope_backward_args *args, size_t *bytes)
{
	ek_rope_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	REQUIRE(bytes, EK_ERROR_ARGUMENT, "bytes is NULL: give the address of the size_t to set");
	*bytes = ctx->backend->rope->backward_workspace(ctx, &resolved);
	return EK_OK;
}

static ek_status run_backward(ek_context *ctx, const ek_rope_backward_args *args, enum ek_intent intent)
{
	const struct ek_op *op = &ek_rope_backward_op;
	ek_rope_backward_args resolved;
	PASS_ON(check_backward_sizes(ctx, args, &resolved));
	PASS_ON(ek_check_stream(op, ctx, &resolved));
	PASS_ON(ek_check_presence(op, &resolved));
	PASS_ON(check_rows(op, &resolved, resolved.positions));
	PASS_ON(check_outputs(op, &resolved));
	if (resolved.seq == 0)
		resolved.batch = 0; /* sums of nothing, however many sequences there are of it */
	if (intent == EK_CALL)
		PASS_ON(check_positions(ctx, resolved.positions, resolved.batch, resolved.seq,
					resolved.positions_stride, resolved.table_rows));
	return ctx->backend->rope->backward(ctx, &resolved, intent);
}

ek_status ek_rope_backward(ek_context *ctx, const ek_rope_backward_args *args)
{
	return run_backward(ctx, args, EK_CALL);
}

ek_status ek_rope_backward_prepare(ek_context *ctx, const ek_rope_backward_args *args)
{
	return run_backward(ctx, args, EK_PREPARE);
}
