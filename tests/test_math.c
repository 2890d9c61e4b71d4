/* The functions of src/math (rules 7 and 11 of docs/numerics.md): the same bits on every level and on every machine, limits,
 * special values. `test_math --time` prints what an element costs. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "math/reference.h"
#include "support.h"
#include "support_math.h"

static float t32[MATH_NUMBERS], expected32[MATH_NUMBERS], actual32[MATH_NUMBERS];
static double t64[MATH_NUMBERS], expected64[MATH_NUMBERS], actual64[MATH_NUMBERS];

static bool is_asked_for(const char *argument)
{
	return test_argument && strcmp(test_argument, argument) == 0;
}

/* Every number in long mode. */
static struct math_walk all_numbers(void)
{
	return (struct math_walk){0, test_mode == TEST_LONG ? 1 : test_mode == TEST_SHORT ? 50021 : 5003};
}

static struct math_walk some_numbers(void)
{
	return (struct math_walk){1, test_mode == TEST_LONG ? 101 : test_mode == TEST_SHORT ? 50021 : 5003};
}

/* ---- time: the fastest of some runs over numbers that fit the L1 ---- */

enum { TIMED = 2048, TRIALS = 200, ROUNDS = 20 };

static double seconds_now(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_of(const struct math_table *table, int f, bool is_f64)
{
	double best = 1;
	for (int trial = 0; trial < TRIALS; trial++) {
		double began = seconds_now();
		for (int round = 0; round < ROUNDS; round++)
			is_f64 ? table->f64[f](t64, actual64, TIMED) : table->f32[f](t32, actual32, TIMED);
		double took = (seconds_now() - began) / ROUNDS / TIMED;
		best = took < best ? took : best;
	}
	return best * 1e9;
}

/* A cycle: of an addition that waits for the one before. */
static double ns_of_a_cycle(void)
{
	enum { CHAIN = 1 << 20 };
	volatile uint64_t one = 1;
	const uint64_t add = one;
	uint64_t sum = 0;
	double best = 1;
	for (int trial = 0; trial < TRIALS; trial++) {
		double began = seconds_now();
		for (int i = 0; i < CHAIN; i += 8)
			for (int k = 0; k < 8; k++) {
				sum += add;
				__asm__ volatile("" : "+r"(sum)); /* no product in its place */
			}
		double took = (seconds_now() - began) / CHAIN;
		best = took < best ? took : best;
	}
	return best * 1e9;
}

static void print_times(void)
{
	const double cycle = ns_of_a_cycle();
	const char *name;
	for (int i = 0; i < TIMED; i++) {
		t64[i] = 3.0 * sin(i); /* about the size of what a norm gives */
		t32[i] = (float)t64[i];
	}
	printf("cycles of %.3f ns an element, one thread\n%-16s", cycle, "");
	for (int level = 0; math_level(level, &name); level++)
		printf("%10s f32%10s f64", name, name);
	for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
		printf("\n%-16s", math_names[f]);
		for (int level = 0; math_level(level, &name); level++) {
			const struct math_table *table = math_level(level, &name);
			printf("%14.2f%14.2f", time_of(table, f, false) / cycle,
			       time_of(table, f, true) / cycle);
		}
	}
	printf("\n");
}

SETUP()
{
	if (!is_asked_for("--time"))
		return;
	print_times();
	exit(0);
}

/* ---- bits ---- */

static void expect_same_f32(int f, const char *level, int count)
{
	for (int i = 0; i < count; i++)
		if (!math_same_f32(expected32[i], actual32[i])) {
			test_fail("%s(%a): %s %a, reference %a", math_names[f], (double)t32[i], level,
				  (double)actual32[i], (double)expected32[i]);
			return;
		}
}

TEST(every_level_has_the_bits_of_the_reference_in_binary32)
{
	struct math_walk walk = all_numbers();
	const struct math_table *table;
	const char *name;
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
			math_reference.f32[f](t32, expected32, count);
			for (int level = 0; (table = math_level(level, &name)); level++) {
				table->f32[f](t32, actual32, MATH_NUMBERS);
				expect_same_f32(f, name, count);
			}
		}
}

static void expect_same_f64(int f, const char *level)
{
	for (int i = 0; i < MATH_NUMBERS; i++)
		if (!math_same_f64(expected64[i], actual64[i])) {
			test_fail("%s(%a): %s %a, reference %a", math_names[f], t64[i], level, actual64[i],
				  expected64[i]);
			return;
		}
}

TEST(every_level_has_the_bits_of_the_reference_in_binary64)
{
	const struct math_table *table;
	const char *name;
	for (int64_t block = test_scaled(10); block > 0; block--) {
		math_fill_f64(test_seed() + (uint64_t)block * MATH_NUMBERS, t64);
		for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
			math_reference.f64[f](t64, expected64, MATH_NUMBERS);
			for (int level = 0; (table = math_level(level, &name)); level++) {
				table->f64[f](t64, actual64, MATH_NUMBERS);
				expect_same_f64(f, name);
			}
		}
	}
}

/* ---- digests: tests/golden/math-v1.txt, so that no bit changes unseen; --update writes it from the reference ---- */

static const char golden_path[] = "tests/golden/math-v1.txt";

/* Of one in 5003 binary32 numbers, or of ten blocks of binary64 numbers. */
static uint64_t digest_of(const struct math_table *table, int f, bool is_f64)
{
	struct math_walk walk = {0, 5003};
	uint64_t digest = DIGEST_START;
	for (int count; !is_f64 && (count = math_next_f32(&walk, t32)) > 0;) {
		table->f32[f](t32, actual32, MATH_NUMBERS);
		digest = digest_rows(digest, EK_F32, actual32, 1, count, count);
	}
	for (uint64_t block = 0; is_f64 && block < 10; block++) {
		math_fill_f64(block * MATH_NUMBERS, t64);
		table->f64[f](t64, actual64, MATH_NUMBERS);
		digest = digest_rows(digest, EK_F64, actual64, 1, MATH_NUMBERS, MATH_NUMBERS);
	}
	return digest;
}

static void write_golden(void)
{
	FILE *file = fopen(golden_path, "w");
	if (!file) {
		perror(golden_path);
		exit(1);
	}
	fprintf(file,
		"# Digests of the functions of src/math: 64-bit FNV-1a of results (NaN as 0x7ff8), function, arithmetic.\n"
		"# `test_math --update` writes this file; it changes only with EK_NUMERICS_VERSION.\n");
	for (int i = 0; i < 2 * MATH_FUNCTION_COUNT; i++)
		fprintf(file, "%016llx  %s %s\n",
			(unsigned long long)digest_of(&math_reference, i / 2, i % 2), math_names[i / 2],
			i % 2 ? "f64" : "f32");
	(void)fclose(file);
}

TEST(bits_are_those_of_the_golden_digests)
{
	if (test_update)
		write_golden();
	FILE *file = fopen(golden_path, "r");
	char line[256], name[32], real[8];
	int i = 0;
	EXPECT(file, "%s cannot be read", golden_path);
	while (file && fgets(line, sizeof line, file)) {
		unsigned long long digest;
		if (line[0] == '#' || sscanf(line, "%llx %31s %7s", &digest, name, real) != 3)
			continue;
		bool is_expected = i < 2 * MATH_FUNCTION_COUNT && strcmp(name, math_names[i / 2]) == 0;
		EXPECT(is_expected, "%s is not expected here", line);
		EXPECT(!is_expected || digest_of(math_best_level(), i / 2, i % 2) == digest,
		       "%s %s: other bits", name, real);
		i++;
	}
	EXPECT(i == 2 * MATH_FUNCTION_COUNT, "%s has %d digests", golden_path, i);
	if (file)
		(void)fclose(file);
}

/* ---- special values ---- */

TEST(infinities_give_the_limits)
{
	static const struct {
		enum math_function f;
		float at_minus, at_plus;
	} limits[] = {
		{MATH_exp, 0.0f, INFINITY},
		{MATH_normal_density, 0.0f, 0.0f},
		{MATH_normal_cdf, 0.0f, 1.0f},
		{MATH_sigmoid, 0.0f, 1.0f},
		{MATH_silu, -0.0f, INFINITY},
		{MATH_gelu, -0.0f, INFINITY},
		{MATH_gelu_tanh, -0.0f, INFINITY},
		{MATH_sigmoid_slope, 0.0f, 0.0f},
		{MATH_silu_slope, 0.0f, 1.0f},
		{MATH_gelu_slope, -0.0f, 1.0f},
		{MATH_gelu_tanh_slope, 0.0f, 1.0f},
		{MATH_relu, 0.0f, INFINITY},
		{MATH_relu_slope, 0.0f, 1.0f},
		{MATH_relu_squared, 0.0f, INFINITY},
		{MATH_relu_squared_slope, 0.0f, INFINITY},
		{MATH_identity, -INFINITY, INFINITY},
		{MATH_identity_slope, 1.0f, 1.0f},
	};
	for (int i = 0; i < COUNT_OF(limits); i++) {
		const float ends[2] = {-INFINITY, INFINITY}, large[2] = {-3e38f, 3e38f};
		float at[2], before[2];
		double ends64[2] = {-INFINITY, INFINITY}, at64[2];
		math_reference.f32[limits[i].f](ends, at, 2);
		math_reference.f32[limits[i].f](large, before, 2);
		math_reference.f64[limits[i].f](ends64, at64, 2);
		EXPECT(math_same_f32(at[0], limits[i].at_minus) && math_same_f32(at[1], limits[i].at_plus),
		       "%s is %a and %a at the infinities", math_names[limits[i].f], (double)at[0],
		       (double)at[1]);
		EXPECT(math_same_f64(at64[0], limits[i].at_minus) &&
			       math_same_f64(at64[1], limits[i].at_plus),
		       "%s is %a and %a at the infinities", math_names[limits[i].f], at64[0], at64[1]);
		EXPECT((isinf(at[0]) || math_same_f32(before[0], at[0])) &&
			       (isinf(at[1]) || math_same_f32(before[1], at[1])),
		       "%s is %a and %a at 3e38", math_names[limits[i].f], (double)before[0],
		       (double)before[1]);
	}
}

TEST(zeros_keep_their_sign)
{
	static const enum math_function odd[] = {MATH_silu, MATH_gelu, MATH_gelu_tanh, MATH_identity};
	for (int i = 0; i < COUNT_OF(odd); i++) {
		const float zeros[2] = {0.0f, -0.0f};
		const double zeros64[2] = {0.0, -0.0};
		float at[2];
		double at64[2];
		math_reference.f32[odd[i]](zeros, at, 2);
		math_reference.f64[odd[i]](zeros64, at64, 2);
		EXPECT(math_same_f32(at[0], 0.0f) && math_same_f32(at[1], -0.0f), "%s", math_names[odd[i]]);
		EXPECT(math_same_f64(at64[0], 0.0) && math_same_f64(at64[1], -0.0), "%s", math_names[odd[i]]);
	}
}

/* relu's derivative is 1 where t is not at most 0, and a NaN is not; that of the identity is 1. */
static bool gives_nan(int f, double t)
{
	return isnan(t) && f != MATH_relu_slope && f != MATH_identity_slope;
}

TEST(nan_gives_nan_and_nothing_else_does)
{
	struct math_walk walk = all_numbers();
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
			math_best_level()->f32[f](t32, actual32, MATH_NUMBERS);
			for (int i = 0; i < count; i++)
				EXPECT(gives_nan(f, (double)t32[i]) == !!isnan(actual32[i]), "%s(%a) = %a",
				       math_names[f], (double)t32[i], (double)actual32[i]);
		}
	math_fill_f64(test_seed(), t64);
	for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
		math_reference.f64[f](t64, actual64, MATH_NUMBERS);
		for (int i = 0; i < MATH_NUMBERS; i++)
			EXPECT(gives_nan(f, t64[i]) == !!isnan(actual64[i]), "%s(%a) = %a", math_names[f],
			       t64[i], actual64[i]);
	}
}

/* ---- relations ---- */

TEST(values_keep_their_ranges_and_signs)
{
	struct math_walk walk = some_numbers();
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int i = 0; i < count; i++) {
			float t = t32[i], s = sigmoid_f32(t), phi = normal_cdf_f32(t), g = gelu_f32(t);
			float h = gelu_tanh_f32(t), l = silu_f32(t);
			if (isnan(t))
				continue;
			EXPECT(s >= 0 && s <= 1 && phi >= 0 && phi <= 1, "at %a", (double)t);
			EXPECT(g >= -0.17005f && h >= -0.17005f && l >= -0.27847f, "at %a", (double)t);
			EXPECT(!signbit(g) == !signbit(t) && !signbit(h) == !signbit(t) &&
				       !signbit(l) == !signbit(t),
			       "at %a", (double)t);
			EXPECT(t <= 0 || (g <= t && h <= t && l <= t), "at %a", (double)t);
		}
}

TEST(functions_of_opposite_numbers_sum_to_one)
{
	struct math_walk walk = some_numbers();
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int i = 0; i < count; i++) {
			float t = t32[i], sigmoids = sigmoid_f32(t) + sigmoid_f32(-t);
			if (isnan(t))
				continue;
			EXPECT(fabsf(sigmoids - 1) <= 0x1p-23f, "sigmoid at %a", (double)t);
			EXPECT(fabsf(normal_cdf_f32(t) + normal_cdf_f32(-t) - 1) <= 0x1p-24f, "Phi at %a",
			       (double)t);
			EXPECT(normal_density_f32(t) == normal_density_f32(-t), "phi at %a", (double)t);
		}
}

TEST(silu_is_t_times_sigmoid)
{
	struct math_walk walk = some_numbers();
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int i = 0; i < count; i++) {
			float t = t32[i], product = t * sigmoid_f32(t);
			if (t >= f32_SIGMOID_LEAST)
				EXPECT(math_same_f32(silu_f32(t), product), "at %a", (double)t);
		}
}

/* ---- the GPU's reciprocal: words.cu ---- */

static float newton(float a, float estimate)
{
	return fmaf(estimate, fmaf(-a, estimate, 1), estimate);
}

/* 2 - 2^-23 needs the estimate above its reciprocal; gpu_math.c checks that a GPU gives it. */
TEST(a_newton_step_rounds_correctly_from_estimates_within_an_ulp)
{
	const float last = 0x1.fffffep0f;
	for (uint32_t bits = bits_of_f32(1); bits < bits_of_f32(last); bits++)
		for (int step = -1; step <= 1; step++) {
			float a = real_of_f32(bits), exact = 1 / a,
			      estimate = real_of_f32(bits_of_f32(exact) + (uint32_t)step);
			bool near = fabs((double)estimate - 1 / (double)a) <= 0x1p-24;
			EXPECT(!near || newton(a, estimate) == exact, "%a from %a", (double)a,
			       (double)estimate);
		}
	EXPECT(newton(last, 0x1.000002p-1f) == 1 / last && newton(last, 0.5f) != 1 / last, "the last");
}
