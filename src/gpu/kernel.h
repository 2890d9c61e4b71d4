/* Kernels by key: in memory, else from the cache, else compiled; and their launch. Called by plan.c and by
 * the program. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_KERNEL_H
#define EK_CUDA_KERNEL_H

#include "gpu.h"
#include "recipe.h"

/* The function for key. Free of locks when it is in
 * memory. Otherwise, while stream is being captured: EK_ERROR_NOT_READY, with
 * the name of the public function that calls; else the cache, then NVRTC. Threads that
 * want the same kernel wait for the one that makes it; those that want others do not. */
ek_status ek_kernel_get(struct ek_gpu *gpu, const struct ek_kernel_key *key, ek_write_recipe *write,
			CUstream stream, const char *caller, CUfunction *function);

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
