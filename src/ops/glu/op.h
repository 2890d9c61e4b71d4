/* Gated activations, described once: their operands by number, the tables of them (op.c), and what a backend implements.
 * SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_OP_H
#define EK_OPS_GLU_OP_H

#include "core/backend.h"
#include "core/operand.h"

enum { EK_GLU_ROWS, EK_GLU_COLS, EK_GLU_SIZES };

/* Outputs first. */
enum ek_glu_forward_operand {
	EK_GLU_FORWARD_Y,
	EK_GLU_FORWARD_OUTPUTS,
	EK_GLU_FORWARD_GATE = EK_GLU_FORWARD_OUTPUTS,
	EK_GLU_FORWARD_VALUE,
	EK_GLU_FORWARD_GATE_BIAS,
	EK_GLU_FORWARD_VALUE_BIAS,
	EK_GLU_FORWARD_OPERANDS
};

enum ek_glu_backward_operand {
	EK_GLU_BACKWARD_DGATE,
	EK_GLU_BACKWARD_DVALUE,
	EK_GLU_BACKWARD_DGATE_BIAS,
	EK_GLU_BACKWARD_DVALUE_BIAS,
	EK_GLU_BACKWARD_OUTPUTS,
	EK_GLU_BACKWARD_DY = EK_GLU_BACKWARD_OUTPUTS,
	EK_GLU_BACKWARD_GATE,
	EK_GLU_BACKWARD_VALUE,
	EK_GLU_BACKWARD_GATE_BIAS,
	EK_GLU_BACKWARD_VALUE_BIAS,
	EK_GLU_BACKWARD_OPERANDS
};

extern const struct ek_op ek_glu_forward_op, ek_glu_backward_op;

/* The numbers of a call in its arithmetic (binary32 numbers are exact here); those of an absent option change no bit. */
struct ek_glu_numbers {
	double limit;       /* of the gate; infinite: none */
	double value_limit; /* likewise; infinite without a value */
	double alpha, inverse;
	double value_offset; /* -0: none */
};

/* Of resolved arguments of forward or backward. */
struct ek_glu_numbers ek_glu_numbers_of(ek_dtype dtype, bool has_value, double limit, double alpha,
					double value_offset);
/* Whether any of them is given; an alpha of 0 is 1, where arguments are not resolved. */
static inline bool ek_glu_is_limited(double limit, double alpha, double value_offset)
{
	return limit != 0 || (alpha != 0 && alpha != 1) || value_offset != 0;
}

/* As of the norms. */
struct ek_glu_backend {
	ek_status (*forward)(ek_context *ctx, const ek_glu_forward_args *args, enum ek_intent intent);
	ek_status (*backward)(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent);
	size_t (*backward_workspace)(const ek_context *ctx, const ek_glu_backward_args *args);
};

ek_status ek_glu_check_backward_memory(const ek_glu_backward_args *args, size_t workspace_bytes);

#endif
