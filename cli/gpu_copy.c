/* The copy on a GPU that speed is measured against: src/gpu/kernels/copy.cu in several forms.
 * SPDX-License-Identifier: MIT */
#include "gpu_copy.h"

#include "gpu/kernel.h"
#include "gpu/text.h"
#include "ops/registry.h"

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

static void write_recipe(const struct ek_kernel_key *key, struct ek_recipe *recipe)
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
	return ek_kernel_get(gpu, &key, write_recipe, NULL, "", function);
}

CUresult gpu_copy_launch(const struct ek_gpu *gpu, int variant, CUfunction function, CUstream stream,
			 void *to, const void *from, size_t bytes)
{
	struct {
		void *to;
		const void *from;
		long long quads;
	} arguments = {to, from, (long long)(bytes / 16)};
	void *parameters[] = {&arguments};
	long long per_block = (long long)variants[variant].threads * variants[variant].quads;
	CUlaunchConfig config = {.gridDimX = (unsigned)((arguments.quads + per_block - 1) / per_block),
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = (unsigned)variants[variant].threads,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = stream};
	return gpu->driver->launch(&config, function, parameters, NULL);
}
