/* The errors of the functions of src/math, against the bounds that docs/math.md states. `test_math_errors --errors` prints the
 * largest that it sees; long mode tries every binary32 number. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "math_exact.h"
#include "support.h"
#include "support_math.h"

static float t32[MATH_NUMBERS], actual32[MATH_NUMBERS];

/* What docs/math.md states: an error is at most `ulps` of the sum of the magnitudes of the terms (exact->scale), `more` for
 * each unit of exp's argument where that is rounded (exact->argument), and 2^tiny. tiny: a sigmoid below 2^-126 (2^-1022) is
 * +0, and the slopes multiply it by up to 232 (2058: gelu_tanh at TANH_LEAST). */
struct bound {
	double ulps, more;
	int tiny;
};
static const struct bound bounds32[MATH_FUNCTION_COUNT] = {
	[MATH_exp] = {0.87, 0, -200},
	[MATH_normal_density] = {1.6, 0, -127},
	[MATH_normal_cdf] = {5.5, 0, -127},
	[MATH_sigmoid] = {2.5, 0, -126},
	[MATH_silu] = {2.9, 0, -119},
	[MATH_gelu] = {5.6, 0, -127},
	[MATH_gelu_tanh] = {3.2, 2.0, -122},
	[MATH_sigmoid_slope] = {5, 0, -125},
	[MATH_silu_slope] = {4, 0, -119},
	[MATH_gelu_slope] = {6, 0.4, -123},
	[MATH_gelu_tanh_slope] = {4, 2.0, -118},
	[MATH_relu] = {0, 0, -1200},
	[MATH_relu_slope] = {0, 0, -1200},
	[MATH_relu_squared] = {0.5, 0, -1200},
	[MATH_relu_squared_slope] = {0, 0, -1200},
	[MATH_identity] = {0, 0, -1200},
	[MATH_identity_slope] = {0, 0, -1200},
	[MATH_reciprocal] = {0.5, 0, -126},
};
static const struct bound bounds64[MATH_FUNCTION_COUNT] = {
	[MATH_exp] = {1.01, 0, -1100},
	[MATH_normal_density] = {1.6, 0, -1023},
	[MATH_normal_cdf] = {4.0, 0, -1023},
	[MATH_sigmoid] = {2.5, 0, -1022},
	[MATH_silu] = {2.9, 0, -1012},
	[MATH_gelu] = {4.2, 0, -1023},
	[MATH_gelu_tanh] = {2.6, 2.0, -1017},
	[MATH_sigmoid_slope] = {5, 0, -1021},
	[MATH_silu_slope] = {4, 0, -1012},
	[MATH_gelu_slope] = {6, 0.4, -1017},
	[MATH_gelu_tanh_slope] = {4, 2.0, -1010},
	[MATH_relu] = {0, 0, -1200},
	[MATH_relu_slope] = {0, 0, -1200},
	[MATH_relu_squared] = {0.5, 0, -1200},
	[MATH_relu_squared_slope] = {0, 0, -1200},
	[MATH_identity] = {0, 0, -1200},
	[MATH_identity_slope] = {0, 0, -1200},
	[MATH_reciprocal] = {0.5, 0, -1100},
};

static double ulp_of(double value, int significand, int least)
{
	int exponent;
	(void)frexp(value, &exponent);
	return ldexp(1, exponent - significand < least ? least : exponent - significand);
}

/* The largest of these errors, less `more`: what docs/math.md has, by --errors. */
struct largest {
	double ulps, at;
};

static void note_error(struct largest *largest, double ulps, double t)
{
	if (ulps > largest->ulps)
		*largest = (struct largest){ulps, t};
}

static void print_errors(const struct largest largest[MATH_FUNCTION_COUNT], const struct bound *bounds)
{
	for (int f = 0; test_argument && strcmp(test_argument, "--errors") == 0 && f < MATH_FUNCTION_COUNT;
	     f++)
		printf("  %-16s %8.3f ulp + %.2f |argument| at %a\n", math_names[f], largest[f].ulps,
		       bounds[f].more, largest[f].at);
}

static void check_f32(int f, float t, float actual, struct largest *largest)
{
	const struct bound *bound = &bounds32[f];
	struct math_exact exact = math_exact_of((enum math_function)f, t);
	double ulp = ulp_of(exact.scale, 24, -149), error = fabs((double)actual - exact.value);
	double over = (error - ldexp(1, bound->tiny)) / ulp - bound->more * exact.argument;
	if (isnan(t) || isinf(t) || (exact.value >= 0x1.ffffffp127 && isinf(actual)))
		return;
	note_error(largest, over, t);
	EXPECT(over <= bound->ulps, "%s(%a) = %a errs by %.3f ulp", math_names[f], (double)t, (double)actual,
	       error / ulp);
}

TEST(errors_of_binary32_are_within_their_bounds)
{
	struct largest largest[MATH_FUNCTION_COUNT] = {{0, 0}};
	struct math_walk walk = {0, test_mode == TEST_LONG ? 1 : test_mode == TEST_SHORT ? 50021 : 5003};
	for (int count; (count = math_next_f32(&walk, t32)) > 0;)
		for (int f = 0; f < MATH_FUNCTION_COUNT; f++) {
			math_best_level()->f32[f](t32, actual32, MATH_NUMBERS);
			for (int i = 0; i < count; i++)
				check_f32(f, t32[i], actual32[i], &largest[f]);
		}
	print_errors(largest, bounds32);
}

static void check_f64(int f, double t, struct largest *largest)
{
	const struct bound *bound = &bounds64[f];
	double actual;
	math_reference.f64[f](&t, &actual, 1);
	struct math_error error = math_error_of((enum math_function)f, t, actual);
	double ulp = ulp_of(error.scale, 53, -1074);
	double over = (error.difference - ldexp(1, bound->tiny)) / ulp - bound->more * error.argument;
	note_error(largest, over, t);
	EXPECT(over <= bound->ulps, "%s(%a) = %a errs by %.3f ulp", math_names[f], t, actual,
	       error.difference / ulp);
}

/* exp from where it is subnormal to where it overflows; the others where they are neither 0 nor trivial. */
TEST(errors_of_binary64_are_within_their_bounds)
{
	struct largest largest[MATH_FUNCTION_COUNT] = {{0, 0}};
	uint64_t state = test_seed();
	SKIP_IF(!math_has_mpfr(), "MPFR was not found when the tests were configured");
	for (int f = 0; f < MATH_FUNCTION_COUNT; f++)
		for (int64_t i = test_scaled(2000); i > 0; i--) {
			double unit = (double)(int64_t)random_bits(&state) * 0x1p-63;
			bool far = f == MATH_exp || f == MATH_sigmoid || f == MATH_silu ||
				   f == MATH_sigmoid_slope || f == MATH_silu_slope;
			double most = i % 3 == 0 && far ? 709 : i % 3 == 1 ? 39 : 6;
			check_f64(f, ldexp(most * unit, i % 5 ? 0 : -(int)random_below(&state, 60)),
				  &largest[f]);
		}
	print_errors(largest, bounds64);
}
