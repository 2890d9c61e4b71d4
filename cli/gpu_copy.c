/* The copy on a GPU that speed is measured against: src/cuda/kernels/copy.cu in several forms.
 * SPDX-License-Identifier: MIT */
#include "gpu_copy.h"

#include <stdio.h>

#include "cuda/kernel.h"
#include "cuda/text.h"

/* An honest limit is the fastest copy. On an H200 one vector a thread is the fastest from 32 MB on (256 MB: 126.8 us,
 * four vectors 133.6 us, PyTorch's copy 127.6 us); below, the forms differ by 2 %. */
static const struct variant {
	int threads, quads, hints;
} variants[] = {
	{128, 1, 0}, {256, 1, 0}, {512, 1, 0}, {256, 1, 1},
	{128, 2, 0}, {256, 2, 0}, {256, 4, 0}, {128, 8, 0},
};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* Keys of the library's own kernels leave this bit alone. */
static const uint64_t copy_key = UINT64_C(1) << 63;

int gpu_copy_variants(void)
{
	return VARIANTS;
}

static void write_recipe(uint64_t key, const struct ek_gpu *gpu, struct ek_recipe *recipe)
{
	const struct variant *variant = &variants[key & ~copy_key];
	(void)gpu;
	const char *const names[] = {"THREADS", "QUADS", "HINTS"};
	const int values[] = {variant->threads, variant->quads, variant->hints};
	char name[48];
	(void)snprintf(name, sizeof name, "ek_copy_%dx%d%s", variant->threads, variant->quads * 16,
		       variant->hints ? "_hints" : "");
	*recipe = (struct ek_recipe){.texts = {ek_text_words, ek_text_copy}, .option_count = 4};
	(void)snprintf(recipe->name, sizeof recipe->name, "%s", name);
	(void)snprintf(recipe->options[3], sizeof recipe->options[3], "-DKERNEL_NAME=%s", name);
	for (int i = 0; i < 3; i++)
		(void)snprintf(recipe->options[i], sizeof recipe->options[i], "-D%s=%d", names[i], values[i]);
}

ek_status gpu_copy_get(struct ek_gpu *gpu, int variant, CUfunction *function)
{
	return ek_kernel_get(gpu, copy_key | (uint64_t)variant, write_recipe, NULL, function);
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
