/* LayerNorm and RMSNorm, described once: their operands by number, the tables of them (op.c), and what a backend
 * implements. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_OP_H
#define EK_OPS_NORM_OP_H

#include "core/backend.h"
#include "core/operand.h"
#include "ops/choices.h"

/* What a norm can be made of: X(activation dtype, weight dtype). */
#define EK_NORM_DTYPES(X) \
	X(f32, f32)       \
	X(f16, f16)       \
	X(bf16, bf16)     \
	X(f64, f64)       \
	X(f16, f32)       \
	X(bf16, f32)

enum { EK_NORM_ROWS, EK_NORM_COLS, EK_NORM_GROUP_COLS, EK_NORM_SIZES };

/* Outputs first. */
enum ek_norm_forward_operand {
	EK_FORWARD_Y,
	EK_FORWARD_MEAN,
	EK_FORWARD_RSTD,
	EK_FORWARD_MEAN_LO,
	EK_FORWARD_H,
	EK_FORWARD_OUTPUTS,
	EK_FORWARD_X = EK_FORWARD_OUTPUTS,
	EK_FORWARD_WEIGHT,
	EK_FORWARD_BIAS,
	EK_FORWARD_X_BIAS,
	EK_FORWARD_RESIDUAL,
	EK_FORWARD_RESIDUAL_AFTER,
	EK_FORWARD_GATE,
	EK_FORWARD_OPERANDS
};

enum ek_norm_backward_operand {
	EK_BACKWARD_DX,
	EK_BACKWARD_DWEIGHT,
	EK_BACKWARD_DBIAS,
	EK_BACKWARD_DRESIDUAL,
	EK_BACKWARD_DX_BIAS,
	EK_BACKWARD_DGATE,
	EK_BACKWARD_OUTPUTS,
	EK_BACKWARD_DY = EK_BACKWARD_OUTPUTS,
	EK_BACKWARD_X,
	EK_BACKWARD_WEIGHT,
	EK_BACKWARD_MEAN,
	EK_BACKWARD_RSTD,
	EK_BACKWARD_MEAN_LO,
	EK_BACKWARD_X_BIAS,
	EK_BACKWARD_DH,
	EK_BACKWARD_BIAS,
	EK_BACKWARD_GATE,
	EK_BACKWARD_OPERANDS
};

extern const struct ek_op ek_norm_forward_op, ek_norm_backward_op;

/* Whether a norm takes such activations and weights; 0 as *weight_dtype becomes dtype. */
ek_status ek_norm_check_dtypes(ek_dtype dtype, ek_dtype *weight_dtype);

/* The same of the other choices; 0 as a dtype becomes the one that it follows. */
ek_status ek_norm_check_choices(ek_dtype dtype, ek_dtype weight_dtype, ek_dtype *h_dtype, ek_dtype *y_dtype,
				ek_dtype *gradient_dtype, int weight_offset, ek_rounding rounding,
				ek_activation activation);

/* Columns that share statistics, and groups of them in a row; of resolved arguments, whose group_cols is 0 without groups. */
static inline int64_t ek_norm_group_cols(int64_t cols, int64_t group_cols)
{
	return group_cols ? group_cols : cols;
}

static inline int64_t ek_norm_groups(int64_t cols, int64_t group_cols)
{
	return group_cols ? cols / group_cols : 1;
}

/* Whether resolved arguments ask for more than a plain norm: operands beside it, groups, or a flavour. */
bool ek_norm_forward_is_fused(const ek_norm_forward_args *args);
bool ek_norm_backward_is_fused(const ek_norm_backward_args *args);
/* The same without groups, which change nothing of the operands that a GPU kernel fetches. */
bool ek_norm_backward_has_neighbours(const ek_norm_backward_args *args);

/* The norms of a backend. Arguments are validated and resolved, except for the memory of backward: that depends on the
 * workspace which the backend's plan needs, so the backend calls ek_norm_check_backward_memory with it. */
struct ek_norm_backend {
	ek_status (*forward)(ek_context *ctx, const ek_norm_forward_args *args, enum ek_intent intent);
	ek_status (*backward)(ek_context *ctx, const ek_norm_backward_args *args, enum ek_intent intent);
	/* Enough for any number of rows up to args->rows. Reads sizes, dtypes and which operands there are. */
	size_t (*backward_workspace)(const ek_context *ctx, const ek_norm_backward_args *args);
};

ek_status ek_norm_check_backward_memory(const ek_norm_backward_args *args, size_t workspace_bytes);

#endif
