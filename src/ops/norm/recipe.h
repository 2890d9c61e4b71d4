/* The kernels of the norms by key: what distinguishes one from another, and how each is made.
 * SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_RECIPE_H
#define EK_OPS_NORM_RECIPE_H

#include "gpu/recipe.h"
#include "policy.h"

/* Compared as bytes: no padding. */
struct ek_norm_key {
	uint8_t owner; /* EK_KEY_NORM */
	uint8_t kind;  /* KIND_… of kernels/layout.h */
	uint8_t norm;  /* an ek_norm */
	uint8_t dtype; /* of a row as the kernel holds it */
	uint8_t weight_dtype;
	uint8_t access;          /* ACCESS_… */
	uint8_t weight_elements; /* 1: weight or bias does not start at a multiple of 16 */
	uint8_t bytes;           /* 1: some pointer is not a multiple of its element size */
	uint32_t cols, groups;   /* groups: of cols columns each, in a row */
	uint32_t operands;       /* the EK_CONSTANT operands that are there, a bit each by number */
	uint32_t few;            /* 1: ek_forward_few_policy */
	uint8_t x_dtype, y_dtype,
		dx_dtype; /* y_dtype: of dy in backward; dx_dtype: of residual_after in forward */
	uint8_t flavour;  /* FLAVOUR_… of kernels/layout.h, ored */
	struct ek_norm_policy policy;
};

struct ek_kernel_key ek_norm_pack_key(const struct ek_norm_key *key);

/* An ek_write_recipe. */
void ek_norm_write_recipe(const struct ek_kernel_key *key, struct ek_recipe *recipe);

#endif
