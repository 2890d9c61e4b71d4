/* The verifier itself (verify/), which every other test relies on: what it must notice, and the conversions of 16-bit floats
 * (core/half.h) against their definition. SPDX-License-Identifier: MIT */
#include <math.h>

#include "core/half.h"
#include "support.h"

/* ---- 16-bit floats ---- */

/* Between two neighbours every float goes to the nearer one, and the middle to the even one. `next` is one step from
 * half away from 0. */
static void expect_nearest(const char *dtype, uint16_t (*to_half)(float), uint16_t half, float value,
			   float next)
{
	float middle = value / 2 + next / 2;
	uint16_t even = half & 1 ? half + 1 : half;
	EXPECT(to_half(value) == half, "%s 0x%x comes back as 0x%x", dtype, half, to_half(value));
	EXPECT(to_half(middle) == even && to_half(nextafterf(middle, value)) == half &&
		       to_half(nextafterf(middle, next)) == half + 1,
	       "%s: around %a, between 0x%x and the next: 0x%x, 0x%x, 0x%x", dtype, (double)middle, half,
	       to_half(nextafterf(middle, value)), to_half(middle), to_half(nextafterf(middle, next)));
}

TEST(f16_is_rounded_to_nearest_even)
{
	for (int sign = 0; sign < 2; sign++)
		for (int half = 0; half < 0x7c00; half++) {
			float values[2];
			for (int i = 0; i < 2;
			     i++) { /* as IEEE 754 says, infinity as the number that would follow */
				int exponent = (half + i) >> 10, fraction = (half + i) & 1023;
				float value = ldexpf((float)(exponent ? fraction + 1024 : fraction),
						     (exponent ? exponent : 1) - 25);
				values[i] = sign ? -value : value;
			}
			uint16_t bits = (uint16_t)(sign << 15 | half);
			EXPECT(ek_bits_of_float(ek_f16_to_float(bits)) == ek_bits_of_float(values[0]),
			       "f16 0x%x is %a, expected %a", bits, (double)ek_f16_to_float(bits),
			       (double)values[0]);
			expect_nearest("f16", ek_float_to_f16, bits, values[0], values[1]);
		}
}

TEST(bf16_is_rounded_to_nearest_even)
{
	for (uint32_t sign = 0; sign < 2; sign++)
		for (uint32_t half = 0; half < 0x7f7f; half++) {
			uint32_t bits = sign << 15 | half;
			expect_nearest("bf16", ek_float_to_bf16, (uint16_t)bits, ek_float_of_bits(bits << 16),
				       ek_float_of_bits((bits + 1) << 16));
		}
}

TEST(infinities_and_nan_stay)
{
	static const float huge[] = {INFINITY, 65520, 1e38f, 0x1.ffp127f};
	for (int i = 0; i < COUNT_OF(huge); i++)
		EXPECT(ek_float_to_f16(huge[i]) == 0x7c00 && ek_float_to_f16(-huge[i]) == 0xfc00,
		       "f16: %a becomes 0x%x", (double)huge[i], ek_float_to_f16(huge[i]));
	EXPECT(ek_float_to_bf16(INFINITY) == 0x7f80 && ek_float_to_bf16(0x1.ffp127f) == 0x7f80,
	       "bf16 has no infinity");
	EXPECT(isnan(ek_f16_to_float(ek_float_to_f16(NAN))) &&
		       isnan(ek_bf16_to_float(ek_float_to_bf16(NAN))) &&
		       isnan(ek_bf16_to_float(ek_float_to_bf16(ek_float_of_bits(0x7f800001)))) &&
		       isinf(ek_f16_to_float(0xfc00)),
	       "NaN or infinity is lost");
}

/* ---- differences ---- */

/* A case with gaps between rows, and twice the reference's answer to it. */
static struct test_case answered_twice(int k, enum placement placement)
{
	struct test_case c = op_case(k, 5, 7);
	c.placement = placement;
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		c.pad[i] = 3;
	case_expect(&c);
	case_run(reference(), &c, &case_actual);
	return c;
}

/* Each byte of an output in turn: of an element, between rows, beside it. */
TEST(every_changed_byte_is_noticed)
{
	for (int k = 0; k < OPS; k++) {
		struct test_case c = answered_twice(k, k % 2 ? PLACE_OFFSET : PLACE_GUARD_AFTER);
		int64_t margin = c.placement == PLACE_OFFSET ? BUFFER_MARGIN : 0;
		struct difference d;
		EXPECT(outputs_same(&case_expected, &case_actual, &d), "%s: equal answers differ",
		       case_text(&c));
		for (int i = 0; i < case_op(&c)->output_count; i++) {
			struct operand *o = &case_actual.of[i];
			int64_t end = o->present ? (int64_t)o->buffer.bytes + margin : -margin;
			for (int64_t at = -margin; at < end; at++) {
				o->buffer.data[at] ^= 1;
				bool same = outputs_same(&case_expected, &case_actual, &d);
				o->buffer.data[at] ^= 1;
				EXPECT(!same && d.actual == o, "%s: byte %lld of %s is not noticed",
				       case_text(&c), (long long)at, case_op(&c)->operands[i].name);
			}
		}
	}
}

TEST(any_nan_equals_any_nan_and_zeros_have_signs)
{
	struct difference d;
	(void)answered_twice(0, PLACE_OFFSET);
	element_store_bits(EK_F32, EXPECTED("y")->buffer.data, 0, 0x7fc00000);
	element_store_bits(EK_F32, ACTUAL("y")->buffer.data, 0, 0xff800001);
	EXPECT(outputs_same(&case_expected, &case_actual, &d), "a NaN differs from another");
	element_store(EK_F32, EXPECTED("y")->buffer.data, 0, 0.0);
	element_store(EK_F32, ACTUAL("y")->buffer.data, 0, -0.0);
	EXPECT(!outputs_same(&case_expected, &case_actual, &d) && d.row == 0 && d.col == 0 &&
		       d.where == IN_TENSOR,
	       "-0 equals 0");
}

/* ---- forms ---- */

TEST(operands_come_and_go_with_what_they_need)
{
	struct test_case c = case_of(true, EK_LAYER_NORM, dtype_pairs[0], 1, 1);
	case_set(&c, "mean_lo bias");
	EXPECT(case_has(&c, "mean") && case_has(&c, "rstd") && case_has(&c, "dx"), "%s", case_text(&c));
	case_drop(&c, "mean");
	EXPECT(!(c.present & case_statistics(&c)), "%s", case_text(&c));
	case_set(&c, "dweight over_x arbitrary accumulate");
	EXPECT(!c.over[0] && !c.arbitrary && c.accumulate && !case_has(&c, "dx"), "%s", case_text(&c));
	c = case_of(true, EK_RMS_NORM, dtype_pairs[0], 1, 1);
	EXPECT(!case_has(&c, "mean") && case_has(&c, "rstd"), "%s", case_text(&c));
	case_set(&c, "all over_x");
	EXPECT(case_has(&c, "over_x") && !case_has(&c, "in_place") && case_has(&c, "weight"), "%s",
	       case_text(&c));
}
