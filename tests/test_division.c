/* The division of the GPU kernels (src/gpu/kernels/division.cu), compiled here, against the processor's own: the same
 * bits for every kind of number. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support.h"

static uint32_t to_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/* The words that it is written in. */
typedef uint32_t u32;
#define DEVICE static inline
#define fma_f32 fmaf
#define fma_f64 fma
#define bits_of_f32 to_bits
#include "../src/gpu/kernels/division.cu"

enum { MOST = 1 << 24 };

static float from_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static void expect_equal(float a, int n)
{
	float ours = divide_f32(a, n), exact = a / (float)n;
	bool same = isnan(exact) ? isnan(ours) : to_bits(ours) == to_bits(exact);
	EXPECT(same, "%a / %d is %a, not %a", (double)a, n, (double)exact, (double)ours);
}

TEST(any_numbers)
{
	uint64_t state = 1;
	for (int64_t i = test_scaled(4000000); i > 0; i--)
		expect_equal(from_bits((uint32_t)random_bits(&state)), 1 + (int)random_below(&state, MOST));
}

/* Every number under 2^-133, whose quotients may lie halfway between two numbers. */
TEST(smallest_numbers)
{
	for (int n = 1; n <= 200; n++)
		for (uint32_t bits = 0; bits < 1u << 16; bits++) {
			expect_equal(from_bits(bits), n);
			expect_equal(from_bits(bits | 1u << 31), n);
		}
}

/* All significands, for widths of every size. */
TEST(all_significands)
{
	for (int n = 3; n < MOST; n = n * 7 / 2 | 1)
		for (uint32_t significand = 0; significand < 1u << 23;
		     significand += test_mode == TEST_LONG ? 1 : 7)
			expect_equal(from_bits(127u << 23 | significand), n);
}

/* n times a number and half a step more, and its neighbours: as near to halfway as numbers come. */
TEST(near_halfway)
{
	uint64_t state = 2;
	for (int64_t i = test_scaled(1000000); i > 0; i--) {
		int n = 1 + (int)random_below(&state, MOST);
		uint32_t bits = (uint32_t)random_below(&state, 0x73000000);
		double halfway = ((double)from_bits(bits) + (double)from_bits(bits + 1)) / 2;
		float a = (float)(halfway * n);
		for (int step = -2; step <= 2; step++)
			if (to_bits(a) > 2 && to_bits(a) < 0x7f800000)
				expect_equal(from_bits(to_bits(a) + (uint32_t)step), n);
	}
}

TEST(ends_of_the_range)
{
	const uint32_t ends[] = {0,          1,          0x007fffff, 0x00800000, 0x00800001,
				 0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001};
	for (int n = 1; n <= MOST; n += n < 70000 ? 1 : 9973)
		for (int i = 0; i < COUNT_OF(ends); i++) {
			expect_equal(from_bits(ends[i]), n);
			expect_equal(from_bits(ends[i] | 1u << 31), n);
		}
}
