/* Kernels by key: in memory, else from the cache, else compiled; and their launch. Called by norm.c and by the
 * program's warmup. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_KERNEL_H
#define EK_CUDA_KERNEL_H

#include "gpu.h"

/* What makes a kernel: texts (one after another), NVRTC options such as "-DCOLS=4096", the function's name. */
enum { EK_RECIPE_TEXTS = 8, EK_RECIPE_OPTIONS = 40 };
struct ek_recipe {
	const char *texts[EK_RECIPE_TEXTS]; /* NULL past the last */
	char options[EK_RECIPE_OPTIONS][64];
	int option_count;
	char name[96];      /* of the function: what profilers show */
	int shared_bytes;   /* the most dynamic shared memory that a launch will ask for */
	bool large_cluster; /* over 8 blocks */
};

/* Writes the recipe of a key; called only when the kernel is not in memory. */
typedef void ek_write_recipe(uint64_t key, const struct ek_gpu *gpu, struct ek_recipe *recipe);

/* The function for key (never 0), which the recipe must be a pure function of. Free of locks when it is in
 * memory. Otherwise, while stream is being captured: EK_ERROR_NOT_READY; else the cache, then NVRTC. Threads that
 * want the same kernel wait for the one that makes it; those that want others do not. */
ek_status ek_kernel_get(struct ek_gpu *gpu, uint64_t key, ek_write_recipe *write, CUstream stream,
			CUfunction *function);

/* The same without a GPU: the compiled image and its key in packs (both malloc) for an architecture, for
 * `evenkeel warmup` and tests. Looks into cache first, and keeps there what it compiled, where it is not
 * NULL. *log as ek_nvrtc_compile. */
ek_status ek_kernel_build(const struct ek_recipe *recipe, int arch, struct ek_cache *cache,
			  struct ek_image *image, char **cache_key, char **log);

void ek_kernels_unload(struct ek_gpu *gpu); /* all of them; frees gpu->kernels */

/* A launch on a stream; blocks in clusters of `cluster` where that is over 1. */
struct ek_launch {
	int64_t blocks;
	int threads, cluster, shared_bytes;
	CUstream stream;
};
ek_status ek_kernel_launch(struct ek_gpu *gpu, CUfunction function, const struct ek_launch *launch,
			   void *arguments /* one struct, by value */);

#endif
