/* What makes a GPU kernel: texts, NVRTC options, the function's name. Written by the ops from a kernel's key; kernel.c
 * compiles it. SPDX-License-Identifier: MIT */
#ifndef EK_GPU_RECIPE_H
#define EK_GPU_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

/* Distinguishes kernels: a struct of the op's own, without padding, copied here. Its first byte is its owner
 * (ops/registry.h), so that no two owners' keys are equal. */
enum { EK_KEY_WORDS = 7 };
struct ek_kernel_key {
	uint64_t words[EK_KEY_WORDS];
};

enum { EK_RECIPE_TEXTS = 20, EK_RECIPE_OPTIONS = 64, EK_SHARED_MOST = -1 };
struct ek_recipe {
	const char *texts[EK_RECIPE_TEXTS + 1]; /* one after another; NULL past the last */
	char options[EK_RECIPE_OPTIONS][128];   /* such as "-DCOLS=4096" */
	int text_count, option_count;
	bool too_long; /* a text or an option had no room: the kernel is not compiled */
	char name[96]; /* of the function: what profilers show */
	int shared_bytes; /* the most dynamic shared memory that a launch will ask for; EK_SHARED_MOST: all there is */
	bool large_cluster; /* over 8 blocks */
};

/* Writes the recipe of a key, and depends on nothing else. */
typedef void ek_write_recipe(const struct ek_kernel_key *key, struct ek_recipe *recipe);

void ek_recipe_add_text(struct ek_recipe *recipe, const char *text);
/* -Dname=value */
void ek_recipe_define(struct ek_recipe *recipe, const char *name, int value);
/* Names the function, and defines KERNEL_NAME. */
__attribute__((format(printf, 2, 3))) void ek_recipe_name(struct ek_recipe *recipe, const char *format, ...);

#endif
