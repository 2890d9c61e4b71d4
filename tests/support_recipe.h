/* Recipes of kernels as tests read them, and where the policy's rows may end. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_RECIPE_H
#define EK_TESTS_SUPPORT_RECIPE_H

#include <stdlib.h>
#include <string.h>

#include "gpu/plan.h"
#include "ops/norm/op.h"
#include "ops/norm/policy.h"

/* The value of -DNAME=VALUE; -1 where there is none. */
static inline int recipe_constant(const struct ek_recipe *recipe, const char *name)
{
	size_t length = strlen(name);
	for (int i = 0; i < recipe->option_count; i++) {
		const char *option = recipe->options[i];
		if (strncmp(option, "-D", 2) == 0 && strncmp(option + 2, name, length) == 0 &&
		    option[2 + length] == '=')
			return atoi(option + 3 + length);
	}
	return -1;
}

static inline bool same_recipe(const struct ek_recipe *a, const struct ek_recipe *b)
{
	return a->option_count == b->option_count && strcmp(a->name, b->name) == 0 &&
	       memcmp(a->options, b->options, sizeof a->options[0] * (size_t)a->option_count) == 0;
}

/* The kernels that a call with these arguments needs on such a GPU, as warm-up asks for them: for any number of rows, each
 * once. Pointers are not followed. Returns how many. */
static inline int list_recipes(const struct ek_op *op, const void *args, int arch, struct ek_recipe *recipes,
			       int most)
{
	const struct ek_gpu_limits limits = ek_limits_of(arch, 1);
	const struct ek_step *kernels[EK_MOST_STEPS];
	struct ek_plan plan;
	op->plan(args, &limits, &plan);
	int count = ek_plan_kernels(&plan, kernels);
	for (int i = 0; i < count && i < most; i++)
		kernels[i]->write_recipe(&kernels[i]->key, &recipes[i]);
	return count < most ? count : most;
}

/* Of all gradients, and weights of the same dtype; without the tiles, which follow from the width. */
static inline struct ek_norm_policy policy_with(bool backward, bool residual, ek_dtype dtype, int64_t cols,
						int access, const struct ek_gpu_limits *limits)
{
	const struct ek_norm_form form = {.dtype = dtype,
					  .weight_dtype = dtype,
					  .cols = cols,
					  .access = access,
					  .given = true,
					  .sums = backward ? 2 + residual : 0,
					  .tensors = 1 + backward + residual};
	struct ek_norm_policy policy = (backward ? ek_backward_policy : ek_forward_policy)(&form, limits);
	policy.tiles = 0;
	return policy;
}

static inline struct ek_norm_policy policy_for(bool backward, ek_dtype dtype, int64_t cols, int access,
					       const struct ek_gpu_limits *limits)
{
	return policy_with(backward, false, dtype, cols, access, limits);
}

/* The next width at which a row of the policy's tables may end: in the first segment each, in the first eight each eighth. */
static inline int64_t next_end(int64_t cols)
{
	return cols + (cols < 1024 ? 1 : cols < 8192 ? 128 : 1024);
}

#endif
