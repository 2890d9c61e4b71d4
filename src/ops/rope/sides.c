/* The arguments of a call as what q and k share, and a side for each. Called by the backends. SPDX-License-Identifier: MIT */
#include "op.h"

#define SHARED(a)                                                                                        \
	{                                                                                                \
		.dtype = (a)->dtype, .weight_dtype = (a)->weight_dtype, .table_dtype = (a)->table_dtype, \
		.interleaved = (a)->interleaved, .trailing = (a)->trailing, .norm_last = (a)->norm_last, \
		.norm = (a)->norm, .weight_offset = (a)->weight_offset, .batch = (a)->batch,             \
		.seq = (a)->seq, .head_dim = (a)->head_dim, .rotary_dim = (a)->rotary_dim,               \
		.table_rows = (a)->table_rows, .table_step = (a)->table_step, .offset = (a)->offset,     \
		.cos_stride = (a)->cos_stride, .sin_stride = (a)->sin_stride,                            \
		.positions_stride = (a)->positions_stride, .eps = (a)->eps, .cos = (a)->cos,             \
		.sin = (a)->sin, .positions = (a)->positions,                                            \
	}
#define STRIDES(a, of)                                                              \
	{                                                                           \
		(a)->of##_batch_stride, (a)->of##_seq_stride, (a)->of##_head_stride \
	}
#define FORWARD_SIDE(a, q, of_heads)                                                                  \
	{                                                                                             \
		.x = (a)->q, .bias = (a)->q##_bias, .weight = (a)->q##_weight, .y = (a)->q##_out,     \
		.heads = (a)->of_heads, .x_strides = STRIDES(a, q), .y_strides = STRIDES(a, q##_out), \
	}
#define BACKWARD_SIDE(a, q, of_heads)                                                                \
	{                                                                                            \
		.x = (a)->norm ? (a)->q : NULL, .dy = (a)->d##q##_out,                               \
		.bias = (a)->norm ? (a)->q##_bias : NULL, .weight = (a)->q##_weight, .y = (a)->d##q, \
		.dbias = (a)->d##q##_bias, .dweight = (a)->d##q##_weight, .heads = (a)->of_heads,    \
		.x_strides = STRIDES(a, q), .dy_strides = STRIDES(a, d##q##_out),                    \
		.y_strides = STRIDES(a, d##q),                                                       \
	}

void ek_rope_forward_call(const ek_rope_forward_args *a, struct ek_rope_call *call)
{
	*call = (struct ek_rope_call)SHARED(a);
	if (a->q_out)
		call->sides[call->side_count++] = (struct ek_rope_side)FORWARD_SIDE(a, q, heads);
	if (a->k_out)
		call->sides[call->side_count++] = (struct ek_rope_side)FORWARD_SIDE(a, k, k_heads);
}

void ek_rope_backward_call(const ek_rope_backward_args *a, struct ek_rope_call *call)
{
	*call = (struct ek_rope_call)SHARED(a);
	call->gradient_dtype = a->gradient_dtype;
	call->accumulate = a->accumulate != 0;
	if (a->dq || a->dq_bias || a->dq_weight)
		call->sides[call->side_count++] = (struct ek_rope_side)BACKWARD_SIDE(a, q, heads);
	if (a->dk || a->dk_bias || a->dk_weight)
		call->sides[call->side_count++] = (struct ek_rope_side)BACKWARD_SIDE(a, k, k_heads);
}
