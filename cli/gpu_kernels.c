/* The kernels that a GPU is measured by; gpu_kernels.h says what. SPDX-License-Identifier: MIT */
#include "gpu_kernels.h"

#include "gpu/kernel.h"
#include "gpu/text.h"
#include "ops/registry.h"

static CUresult launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, long long blocks,
		       int threads, void *arguments)
{
	void *parameters[] = {arguments};
	CUlaunchConfig config = {.gridDimX = (unsigned)blocks,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = (unsigned)threads,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream};
	return gpu->driver->launch(&config, function, parameters, NULL);
}

/* ---- the copy: src/gpu/kernels/copy.cu in several forms ---- */

/* An honest limit is the fastest copy. On an H200 one vector a thread is the fastest from 32 MB on (256 MB: 126.8 us,
 * four vectors 133.6 us, PyTorch's copy 127.6 us); below, the forms differ by 2 %. */
static const struct variant {
	int threads, quads, hints;
} variants[] = {
	{128, 1, 0}, {256, 1, 0}, {512, 1, 0}, {256, 1, 1},
	{128, 2, 0}, {256, 2, 0}, {256, 4, 0}, {128, 8, 0},
};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

int gpu_copy_variants(void)
{
	return VARIANTS;
}

static void write_copy(const struct ek_kernel_key *key, struct ek_recipe *recipe)
{
	const struct variant *variant = &variants[key->words[1]];
	*recipe = (struct ek_recipe){.shared_bytes = 0};
	ek_recipe_add_text(recipe, ek_text_words);
	ek_recipe_add_text(recipe, ek_text_copy);
	ek_recipe_name(recipe, "ek_copy_%dx%d%s", variant->threads, variant->quads * 16,
		       variant->hints ? "_hints" : "");
	ek_recipe_define(recipe, "THREADS", variant->threads);
	ek_recipe_define(recipe, "QUADS", variant->quads);
	ek_recipe_define(recipe, "HINTS", variant->hints);
}

ek_status gpu_copy_get(struct ek_gpu *gpu, int variant, CUfunction *function)
{
	const struct ek_kernel_key key = {{EK_KEY_COPY, (uint64_t)variant}};
	return ek_kernel_get(gpu, &key, write_copy, NULL, "", function);
}

CUresult gpu_copy_launch(const struct ek_gpu *gpu, int variant, CUfunction function, CUstream stream,
			 void *to, const void *from, size_t bytes)
{
	struct {
		void *to;
		const void *from;
		long long quads;
	} arguments = {to, from, (long long)(bytes / 16)};
	long long per_block = (long long)variants[variant].threads * variants[variant].quads;
	return launch(gpu, function, stream, (arguments.quads + per_block - 1) / per_block,
		      variants[variant].threads, &arguments);
}

/* ---- fused multiply-adds: src/gpu/kernels/flops.cu ---- */

/* All the warps that a multiprocessor holds, and a quarter of a millisecond of an H200. */
enum { THREADS = 256, BLOCKS = 8, CHAINS = 8, STEPS = 4096 };

static void write_flops(const struct ek_kernel_key *key, struct ek_recipe *recipe)
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
	return ek_kernel_get(gpu, &key, write_flops, NULL, "", function);
}

CUresult gpu_flops_launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, void *to)
{
	struct {
		void *to;
		double one;
	} arguments = {to, 1};
	return launch(gpu, function, stream, (long long)gpu->limits.multiprocessors * BLOCKS, THREADS,
		      &arguments);
}

double gpu_flops_of_launch(const struct ek_gpu *gpu)
{
	return 2.0 * CHAINS * STEPS * THREADS * BLOCKS * gpu->limits.multiprocessors;
}
