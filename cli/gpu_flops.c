/* Fused multiply-adds on a GPU: src/cuda/kernels/flops.cu. SPDX-License-Identifier: MIT */
#include "gpu_flops.h"

#include <stdio.h>

#include "cuda/kernel.h"
#include "cuda/text.h"

/* All the warps that a multiprocessor holds, and a quarter of a millisecond of an H200. */
enum { THREADS = 256, BLOCKS = 8, CHAINS = 8, STEPS = 4096 };

/* Keys of the library's own kernels and of copies (gpu_copy.c) leave this bit alone. */
static const uint64_t flops_key = UINT64_C(1) << 62;

static void write_recipe(uint64_t key, const struct ek_gpu *gpu, struct ek_recipe *recipe)
{
	ek_dtype dtype = (ek_dtype)(key & ~flops_key);
	const char *const names[] = {"THREADS", "ELEMENT", "CHAINS", "STEPS"};
	const int values[] = {THREADS, (int)dtype - 1, CHAINS, STEPS};
	(void)gpu;
	*recipe = (struct ek_recipe){.texts = {ek_text_words, ek_text_flops}, .option_count = 5};
	(void)snprintf(recipe->name, sizeof recipe->name, "ek_flops_%s", ek_dtype_name(dtype));
	(void)snprintf(recipe->options[4], sizeof recipe->options[4], "-DKERNEL_NAME=%.40s", recipe->name);
	for (int i = 0; i < 4; i++)
		(void)snprintf(recipe->options[i], sizeof recipe->options[i], "-D%s=%d", names[i], values[i]);
}

ek_status gpu_flops_get(struct ek_gpu *gpu, ek_dtype dtype, CUfunction *function)
{
	return ek_kernel_get(gpu, flops_key | (uint64_t)dtype, write_recipe, NULL, function);
}

CUresult gpu_flops_launch(const struct ek_gpu *gpu, CUfunction function, CUstream stream, void *to)
{
	struct {
		void *to;
		double one;
	} arguments = {to, 1};
	void *parameters[] = {&arguments};
	CUlaunchConfig config = {.gridDimX = (unsigned)(gpu->multiprocessors * BLOCKS),
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
	return 2.0 * CHAINS * STEPS * THREADS * BLOCKS * gpu->multiprocessors;
}
