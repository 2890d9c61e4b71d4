/* Recipes of kernels as tests read them, and where the policy's rows may end. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_RECIPE_H
#define EK_TESTS_SUPPORT_RECIPE_H

#include <stdlib.h>
#include <string.h>

#include "cuda/kernel.h"

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

/* The next width at which a row of the policy's tables may end: in the first segment each, in the first eight each eighth. */
static inline int64_t next_end(int64_t cols)
{
	return cols + (cols < 1024 ? 1 : cols < 8192 ? 128 : 1024);
}

#endif
