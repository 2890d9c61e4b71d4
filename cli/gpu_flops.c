/* Fused multiply-adds on a GPU: src/gpu/kernels/flops.cu. SPDX-License-Identifier: MIT */
#include "gpu_flops.h"

#include "gpu/kernel.h"
#include "gpu/text.h"
#include "ops/registry.h"

/* All the warps that a multiprocessor holds, and a quarter of a millisecond of an H200. */
enum { THREADS = 256, BLOCKS = 8, CHAINS = 8, STEPS = 4096 };

static void write_recipe(const struct ek_kernel_key *key, struct ek_recipe *recipe)
{
	ek_dtype dtype = (ek_dtype)key->words[1];
	*recipe = (struct ek_recipe){.shared_bytes = 0};
	ek_recipe_add_text(recipe, ek_text_words);
	ek_recipe_add_text(recipe, ek_text_flops);
	ek_recipe_name(recipe, "ek_flops_%s", ek_dtype_name(dtype));
	ek_recipe_define(recipe, "THREADS", THREADS);
	ek_recipe_define(recipe, "ELEMENT", (int)dtype - 1);
	ek_recipe_define(recipe, "CHAINS", CHAINS);
	ek_recipe_define(recipe, "STEPS", STEPS);
}

ek_status gpu_flops_get(struct ek_gpu *gpu, ek_dtype dtype, CUfunction *function)
{
	const struct ek_kernel_key key = {{EK_KEY_FLOPS, (uint64_t)dtype}};
	return ek_kernel_get(gpu, &key, write_recipe, NULL, "", function);
}

CUresult gpu_flops_launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, void *to)
{
	struct {
		void *to;
		double one;
	} arguments = {to, 1};
	void *parameters[] = {&arguments};
	CUlaunchConfig config = {.gridDimX = (unsigned)(gpu->limits.multiprocessors * BLOCKS),
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = THREADS,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream};
	return gpu->driver->launch(&config, function, parameters, NULL);
}

double gpu_flops_of_launch(const struct ek_gpu *gpu)
{
	return 2.0 * CHAINS * STEPS * THREADS * BLOCKS * gpu->limits.multiprocessors;
}
