/* What a transformer block launches, step by step (block_steps.c). Called by block.c. SPDX-License-Identifier: MIT */
#ifndef EK_COST_BLOCK_H
#define EK_COST_BLOCK_H

#include "tables.h"

enum ek_block_op { EK_BLOCK_ROWS, EK_BLOCK_NORM, EK_BLOCK_ROPE, EK_BLOCK_GLU };

struct ek_block_step {
	enum ek_block_op op;
	const struct ek_cost_row *rows; /* of EK_BLOCK_ROWS; NULL there: past the last step */
	const char *role;               /* of an op */
	int with;                       /* of a norm; its EK_WITH_X_BIAS where the block has biases */
};

const struct ek_block_step *ek_block_steps(ek_variant variant, ek_block_order order, ek_pass pass);

#endif
