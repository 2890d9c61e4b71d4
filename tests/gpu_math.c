/* The functions of src/math on a GPU: the bits of the best CPU level, which test_math.c compares with the reference. `gpu_math long`
 * tries every binary32 number (a minute on an H200), also as a divisor; short mode is for the stand-in.
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "core/context.h"
#include "gpu/kernel.h"
#include "gpu/text.h"
#include "support.h"
#include "support_math.h"
#include "verify/memory.h"

extern const char text_math_functions[], text_math_kernel[];

enum { THREADS = 128, KEY_OWNER = 255, MOST_BLOCKS = 256 };

static ek_context *ctx;
static struct ek_gpu *gpu;
static bool entered;

SETUP()
{
	ek_options options = {.size = sizeof options, .device = EK_CUDA};
	if (ek_open(&ctx, &options) != EK_OK || ek_gpu_enter(ctx->gpu, &entered) != EK_OK) {
		printf("no GPU: %s\n", ek_error(NULL));
		exit(1);
	}
	gpu = ctx->gpu;
	printf("  on %s\n", gpu->name);
}

static void write_recipe(const struct ek_kernel_key *key, struct ek_recipe *recipe)
{
	const char *const texts[] = {ek_text_words, ek_text_math_constants, ek_text_math_words,
				     ek_text_math,  text_math_functions,    text_math_kernel};
	*recipe = (struct ek_recipe){.shared_bytes = 0};
	for (int i = 0; i < COUNT_OF(texts); i++)
		ek_recipe_add_text(recipe, texts[i]);
	ek_recipe_name(recipe, "test_math_%s", key->words[1] ? "f64" : "f32");
	ek_recipe_define(recipe, "THREADS", THREADS);
	ek_recipe_define(recipe, "MATH_F64", (int)key->words[1]);
}

/* ---- a run over numbers ---- */

struct run {
	bool is_f64;
	int64_t count;
	size_t bytes;               /* of a number */
	void *from, *to, *expected; /* here */
	char *gpu_from, *gpu_to;
};

static struct run run_make(bool is_f64, int64_t count)
{
	struct run run = {.is_f64 = is_f64, .count = count, .bytes = is_f64 ? 8 : 4};
	size_t size = run.bytes * (size_t)count;
	run.from = malloc(size);
	run.to = malloc(size * MATH_FUNCTION_COUNT);
	run.expected = malloc(size);
	run.gpu_from = memory_make(gpu, size);
	run.gpu_to = memory_make(gpu, size * MATH_FUNCTION_COUNT);
	return run;
}

static void run_free(struct run *run)
{
	free(run->from);
	free(run->to);
	free(run->expected);
	memory_free(gpu, run->gpu_from);
	memory_free(gpu, run->gpu_to);
}

static ek_status run_launch(const struct run *run)
{
	const struct ek_kernel_key key = {{KEY_OWNER, run->is_f64}};
	const struct ek_launch launch = {.blocks = (run->count + THREADS - 1) / THREADS, .threads = THREADS};
	struct {
		void *from, *to;
		int64_t count;
	} arguments = {run->gpu_from, run->gpu_to, run->count};
	CUfunction function;
	ek_status status = ek_kernel_get(gpu, &key, write_recipe, NULL, "", &function);
	if (status == EK_OK)
		status = memory_write(gpu, run->gpu_from, run->from, run->bytes * (size_t)run->count);
	if (status == EK_OK)
		status = ek_kernel_launch(gpu, function, &launch, &arguments);
	if (status == EK_OK)
		status = memory_read(gpu, run->to, run->gpu_to,
				     run->bytes * (size_t)run->count * MATH_FUNCTION_COUNT);
	return status;
}

static void compare_f32(const struct run *run, int f)
{
	const float *from = (const float *)run->from, *expected = (const float *)run->expected;
	const float *to = (const float *)run->to + f * run->count;
	math_best_level()->f32[f](from, (float *)run->expected, run->count);
	for (int64_t i = 0; i < run->count; i++)
		EXPECT(math_same_f32(to[i], expected[i]), "%s(%a): GPU %a, CPU %a", math_names[f],
		       (double)from[i], (double)to[i], (double)expected[i]);
}

static void compare_f64(const struct run *run, int f)
{
	const double *from = (const double *)run->from, *expected = (const double *)run->expected;
	const double *to = (const double *)run->to + f * run->count;
	math_best_level()->f64[f](from, (double *)run->expected, run->count);
	for (int64_t i = 0; i < run->count; i++)
		EXPECT(math_same_f64(to[i], expected[i]), "%s(%a): GPU %a, CPU %a", math_names[f], from[i],
		       to[i], expected[i]);
}

static void run_check(const struct run *run)
{
	ek_status status = run_launch(run);
	EXPECT(status == EK_OK, "%s: %s", ek_status_name(status), ek_error(NULL));
	for (int f = 0; status == EK_OK && f < MATH_FUNCTION_COUNT; f++)
		(run->is_f64 ? compare_f64 : compare_f32)(run, f);
}

static int blocks_at_once(void)
{
	return test_mode == TEST_LONG ? MOST_BLOCKS : 1;
}

TEST(binary32_on_a_gpu_has_the_bits_of_the_cpu)
{
	const int blocks = blocks_at_once();
	struct math_walk walk = {0, test_mode == TEST_LONG ? 1 : test_mode == TEST_SHORT ? 50021 : 5003};
	struct run run = run_make(false, (int64_t)blocks * MATH_NUMBERS);
	for (int count = 1; count > 0 && !test_failed();) {
		for (int block = 0; block < blocks; block++)
			count = math_next_f32(&walk, (float *)run.from + (int64_t)block * MATH_NUMBERS);
		run_check(&run);
	}
	run_free(&run);
}

TEST(binary64_on_a_gpu_has_the_bits_of_the_cpu)
{
	const int blocks = blocks_at_once();
	uint64_t seed = test_seed();
	struct run run = run_make(true, (int64_t)blocks * MATH_NUMBERS);
	for (int64_t round = test_scaled(10); round > 0 && !test_failed(); round--) {
		for (int block = 0; block < blocks; block++, seed += MATH_NUMBERS)
			math_fill_f64(seed, (double *)run.from + (int64_t)block * MATH_NUMBERS);
		run_check(&run);
	}
	run_free(&run);
}

TEARDOWN()
{
	ek_gpu_leave(gpu, entered);
	ek_close(ctx);
}
