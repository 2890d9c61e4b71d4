/* Rotary position embedding with the norms of heads, described once: its operands by number, the tables of them (op.c), and what a
 * backend implements. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_OP_H
#define EK_OPS_ROPE_OP_H

#include "core/backend.h"
#include "core/operand.h"

enum ek_rope_size {
	EK_ROPE_BATCH,
	EK_ROPE_SEQ,
	EK_ROPE_HEADS,
	EK_ROPE_K_HEADS,
	EK_ROPE_HEAD_DIM,
	EK_ROPE_ROTARY_DIM,
	EK_ROPE_TABLE_ROWS,
	EK_ROPE_TABLE_STEP,
	EK_ROPE_OFFSET,
	EK_ROPE_SIZES
};

/* Outputs first. */
enum ek_rope_forward_operand {
	EK_ROPE_FORWARD_Q_OUT,
	EK_ROPE_FORWARD_K_OUT,
	EK_ROPE_FORWARD_OUTPUTS,
	EK_ROPE_FORWARD_Q = EK_ROPE_FORWARD_OUTPUTS,
	EK_ROPE_FORWARD_K,
	EK_ROPE_FORWARD_COS,
	EK_ROPE_FORWARD_SIN,
	EK_ROPE_FORWARD_POSITIONS,
	EK_ROPE_FORWARD_Q_BIAS,
	EK_ROPE_FORWARD_K_BIAS,
	EK_ROPE_FORWARD_Q_WEIGHT,
	EK_ROPE_FORWARD_K_WEIGHT,
	EK_ROPE_FORWARD_OPERANDS
};

enum ek_rope_backward_operand {
	EK_ROPE_BACKWARD_DQ,
	EK_ROPE_BACKWARD_DK,
	EK_ROPE_BACKWARD_DQ_BIAS,
	EK_ROPE_BACKWARD_DK_BIAS,
	EK_ROPE_BACKWARD_DQ_WEIGHT,
	EK_ROPE_BACKWARD_DK_WEIGHT,
	EK_ROPE_BACKWARD_OUTPUTS,
	EK_ROPE_BACKWARD_DQ_OUT = EK_ROPE_BACKWARD_OUTPUTS,
	EK_ROPE_BACKWARD_DK_OUT,
	EK_ROPE_BACKWARD_Q,
	EK_ROPE_BACKWARD_K,
	EK_ROPE_BACKWARD_COS,
	EK_ROPE_BACKWARD_SIN,
	EK_ROPE_BACKWARD_POSITIONS,
	EK_ROPE_BACKWARD_Q_BIAS,
	EK_ROPE_BACKWARD_K_BIAS,
	EK_ROPE_BACKWARD_Q_WEIGHT,
	EK_ROPE_BACKWARD_K_WEIGHT,
	EK_ROPE_BACKWARD_OPERANDS
};

extern const struct ek_op ek_rope_forward_op, ek_rope_backward_op;

/* As of the norms. */
struct ek_rope_backend {
	ek_status (*forward)(ek_context *ctx, const ek_rope_forward_args *args, enum ek_intent intent);
	ek_status (*backward)(ek_context *ctx, const ek_rope_backward_args *args, enum ek_intent intent);
	size_t (*backward_workspace)(const ek_context *ctx, const ek_rope_backward_args *args);
};

ek_status ek_rope_check_backward_memory(const ek_rope_backward_args *args, size_t workspace_bytes);

/* The side of q or of k: what the same kernel is run on twice, made of resolved arguments (sides.c). Strides are in elements;
 * pointers of absent operands are NULL. */
struct ek_rope_side {
	const void *x;  /* q or k; NULL in backward without a norm */
	const void *dy; /* backward: the gradient of the result */
	const void *bias, *weight;
	void *y; /* q_out or k_out; dq or dk */
	void *dbias, *dweight;
	int64_t heads;
	int64_t x_strides[3], dy_strides[3], y_strides[3]; /* of batch, seq and head */
};

/* What both sides share. */
struct ek_rope_call {
	ek_dtype dtype, weight_dtype, table_dtype, gradient_dtype;
	bool interleaved, trailing, norm_last, accumulate;
	int norm, weight_offset;
	int64_t batch, seq, head_dim, rotary_dim, table_rows, table_step, offset;
	int64_t cos_stride, sin_stride, positions_stride;
	double eps;
	const void *cos, *sin;
	const void *positions; /* int64_t, at any address */
	int side_count;        /* 1 where q or k is absent */
	struct ek_rope_side sides[2];
};

/* Of resolved arguments. */
void ek_rope_forward_call(const ek_rope_forward_args *args, struct ek_rope_call *call);
void ek_rope_backward_call(const ek_rope_backward_args *args, struct ek_rope_call *call);

/* The row of the tables for token s of sequence b. */
static inline int64_t ek_rope_row(const struct ek_rope_call *call, int64_t b, int64_t s)
{
	int64_t position;
	if (!call->positions)
		return b * call->table_step + call->offset + s;
	memcpy(&position, (const char *)call->positions + (b * call->positions_stride + s) * 8, 8);
	return position;
}

/* Pair i of a head: the first of its two elements, and how far behind it the other is. */
static inline int64_t ek_rope_first(const struct ek_rope_call *call, int64_t i)
{
	return (call->trailing ? call->head_dim - call->rotary_dim : 0) + (call->interleaved ? 2 * i : i);
}

static inline int64_t ek_rope_distance(const struct ek_rope_call *call)
{
	return call->interleaved ? 1 : call->rotary_dim / 2;
}

#endif
