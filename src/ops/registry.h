/* The ops by the names that users know, and the backends' functions for each of them. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_REGISTRY_H
#define EK_OPS_REGISTRY_H

#include "core/operand.h"

struct ek_op_entry {
	const char *name; /* "layer_norm" */
	const struct ek_op *forward, *backward;
	int kind; /* of their field .kind */
	/* Operands that the op of that name has, and those of them that are always there, optional ones too. */
	struct ek_named_operands {
		uint32_t has, needs;
	} in_forward, in_backward;
	/* Choices that may be made for it, a bit each, and the values of those that are not made. */
	uint32_t open_choices;
	uint8_t usual[EK_MOST_CHOICES];
	uint32_t activations; /* that it may have, a bit each */
};

/* The activations that a norm may have: those of ek_op_entry.activations. */
enum { EK_NORM_ACTIVATIONS = 1 << EK_SIGMOID | 1 << EK_SILU | 1 << EK_GELU | 1 << EK_GELU_TANH };

/* The first byte of the keys of GPU kernels (gpu/recipe.h). */
enum ek_key_owner { EK_KEY_NORM = 1, EK_KEY_COPY, EK_KEY_FLOPS, EK_KEY_COLUMNS, EK_KEY_GLU, EK_KEY_ROPE };

/* The first EK_ROW_NAMES have rows and columns: the first EK_OP_COUNT of them are all that there is to compute, and of these the
 * first EK_NORM_OPS are norms; the others allow fewer activations of one of these. Behind them are the ops on heads. */
enum { EK_NORM_OPS = 10, EK_OP_COUNT = 12, EK_ROW_NAMES = 15, EK_OP_NAMES = 17 };
extern const struct ek_op_entry ek_ops[EK_OP_NAMES];

#endif
