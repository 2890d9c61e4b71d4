/* Values: random integers, conversions of 16-bit floats written for the tests alone, and fillings.
 * Everything is integers until the last conversion, so inputs are the same on every machine.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support.h"

uint64_t random_bits(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int64_t random_below(uint64_t *state, int64_t limit)
{
	return (int64_t)(random_bits(state) % (uint64_t)limit);
}

/* ---- 16-bit floats ---- */

static uint32_t float_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float bits_float(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* The mantissa of an IEEE number with `drop` low bits rounded away, ties to even. */
static uint32_t round_shift(uint32_t mantissa, int drop)
{
	if (drop > 31)
		return 0;
	uint32_t half = 1u << (drop - 1), rest = mantissa & ((half << 1) - 1);
	uint32_t kept = mantissa >> drop;
	return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t half_from_float(float value)
{
	uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 0x47800000) /* 65536 and more */
		return (uint16_t)(sign | 0x7c00);
	int exponent = (int)(magnitude >> 23) - 127;
	uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
	if (exponent < -14) /* subnormal or zero: units of 2^-24 */
		return (uint16_t)(sign | (magnitude >= 0x800000 ? round_shift(mantissa, -1 - exponent) : 0));
	/* A carry out of the mantissa runs into the exponent, up to infinity, as it should. */
	return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + round_shift(mantissa, 13)));
}

float half_to_float(uint16_t bits)
{
	uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
	if (exponent == 31)
		return bits_float(sign | 0x7f800000 | mantissa << 13);
	if (exponent > 0)
		return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
	float magnitude = (float)mantissa * 0x1p-24f;
	return sign ? -magnitude : magnitude;
}

uint16_t bfloat_from_float(float value)
{
	uint32_t bits = float_bits(value);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits >> 31 << 15) + round_shift(bits & 0x7fffffff, 16));
}

float bfloat_to_float(uint16_t bits)
{
	return bits_float((uint32_t)bits << 16);
}

/* ---- elements ---- */

uint64_t value_bits(ek_dtype dtype, const void *tensor, int64_t index)
{
	uint64_t bits64 = 0;
	uint32_t bits32;
	uint16_t bits16;
	switch (dtype) {
	case EK_F64:
		memcpy(&bits64, (const char *)tensor + index * 8, 8);
		return bits64;
	case EK_F32:
		memcpy(&bits32, (const char *)tensor + index * 4, 4);
		return bits32;
	default:
		memcpy(&bits16, (const char *)tensor + index * 2, 2);
		return bits16;
	}
}

static void set_bits(ek_dtype dtype, void *tensor, int64_t index, uint64_t bits)
{
	uint32_t bits32 = (uint32_t)bits;
	uint16_t bits16 = (uint16_t)bits;
	if (dtype == EK_F64)
		memcpy((char *)tensor + index * 8, &bits, 8);
	else if (dtype == EK_F32)
		memcpy((char *)tensor + index * 4, &bits32, 4);
	else
		memcpy((char *)tensor + index * 2, &bits16, 2);
}

static double bits_value(ek_dtype dtype, uint64_t bits)
{
	double value;
	switch (dtype) {
	case EK_F64:
		memcpy(&value, &bits, 8);
		return value;
	case EK_F32:
		return (double)bits_float((uint32_t)bits);
	case EK_F16:
		return (double)half_to_float((uint16_t)bits);
	default:
		return (double)bfloat_to_float((uint16_t)bits);
	}
}

double value_get(ek_dtype dtype, const void *tensor, int64_t index)
{
	return bits_value(dtype, value_bits(dtype, tensor, index));
}

void value_set(ek_dtype dtype, void *tensor, int64_t index, double value)
{
	uint64_t bits;
	switch (dtype) {
	case EK_F64:
		memcpy(&bits, &value, 8);
		break;
	case EK_F32:
		bits = float_bits((float)value);
		break;
	case EK_F16:
		bits = half_from_float((float)value);
		break;
	default:
		bits = bfloat_from_float((float)value);
		break;
	}
	set_bits(dtype, tensor, index, bits);
}

bool bits_are_nan(ek_dtype dtype, uint64_t bits)
{
	double value = bits_value(dtype, bits);
	return value != value;
}

uint64_t digest_rows(uint64_t digest, ek_dtype dtype, const void *tensor, int64_t rows, int64_t cols,
		     int64_t stride)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < cols; i++) {
			uint64_t bits = value_bits(dtype, tensor, r * stride + i);
			if (bits_are_nan(dtype, bits))
				bits = 0x7ff8;
			for (size_t byte = 0; byte < ek_dtype_size(dtype); byte++)
				digest = (digest ^ (bits >> 8 * byte & 0xff)) * 0x100000001b3u;
		}
	return digest;
}

/* ---- fillings ---- */

/* A sum of four uniform numbers plus random low bits: 2^25 steps (2^49 for f64) and no libm. */
static double normal_value(ek_dtype dtype, uint64_t bits)
{
	int64_t sum =
		(int64_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
	uint64_t low = bits * 0xd6e8feb86659fd93u;
	if (dtype == EK_F64)
		return (double)((sum - 131070) * 4294967296 + (int64_t)(low >> 32)) * 0x1p-47;
	return (double)((sum - 131070) * 256 + (int64_t)(low >> 56)) * 0x1p-23;
}

/* Any finite number with an exponent among the dtype's `low` to `high` (0 is subnormal). */
static uint64_t finite_bits(ek_dtype dtype, uint64_t random, int low, int high)
{
	int mantissa = dtype == EK_F64 ? 52 : dtype == EK_F32 ? 23 : dtype == EK_F16 ? 10 : 7;
	int total = (int)ek_dtype_size(dtype) * 8;
	uint64_t exponent = (uint64_t)low + (random >> 54) % (uint64_t)(high - low + 1);
	return (random & 1) << (total - 1) | exponent << mantissa |
	       (random >> 1 & ((UINT64_C(1) << mantissa) - 1));
}

static int exponent_top(ek_dtype dtype)
{
	return dtype == EK_F64 ? 2046 : dtype == EK_F16 ? 30 : 254;
}

/* One row of trouble; kinds come in turn, so that any ten neighbouring rows have all of them. */
static void special_row(ek_dtype dtype, void *tensor, int64_t first, int64_t cols, int kind, uint64_t *state)
{
	int top = exponent_top(dtype);
	uint64_t constant = finite_bits(dtype, random_bits(state), 0, top);
	for (int64_t i = 0; i < cols; i++) {
		uint64_t random = random_bits(state);
		if (kind == 0)
			set_bits(dtype, tensor, first + i, finite_bits(dtype, random, 0, top));
		else if (kind == 1)
			set_bits(dtype, tensor, first + i, finite_bits(dtype, random, 0, 0));
		else if (kind == 2)
			set_bits(dtype, tensor, first + i, finite_bits(dtype, random, top - 3, top));
		else if (kind == 3)
			set_bits(dtype, tensor, first + i, finite_bits(dtype, random, 0, 6));
		else if (kind == 4)
			set_bits(dtype, tensor, first + i, constant);
		else if (kind == 5)
			value_set(dtype, tensor, first + i, random & 1 ? -0.0 : 0.0);
		else if (kind == 6)
			value_set(dtype, tensor, first + i, -0.0);
		else
			value_set(dtype, tensor, first + i, normal_value(dtype, random));
	}
	int64_t at = random_below(state, cols), other = random_below(state, cols);
	if (kind == 7) /* one of: NaN, +Inf, -Inf */
		value_set(dtype, tensor, first + at,
			  (double)(cols & 1   ? NAN
				   : cols & 2 ? INFINITY
					      : -INFINITY));
	if (kind == 8) { /* both infinities (or one, where the places meet) */
		value_set(dtype, tensor, first + at, (double)INFINITY);
		value_set(dtype, tensor, first + other, (double)-INFINITY);
	}
	if (kind == 9) /* one huge outlier */
		set_bits(dtype, tensor, first + at, finite_bits(dtype, random_bits(state), top - 1, top));
}

/* Lanes of a row sum first meet zeros of both signs, then products that round to -0: only the +0 that ends
 * a sum decides the sign of what comes out. */
static void underflow_row(ek_dtype dtype, void *tensor, int64_t first, int64_t cols, uint64_t *state)
{
	for (int64_t i = 0; i < cols; i++) {
		if (i / 256 % 2 == 0)
			value_set(dtype, tensor, first + i, random_bits(state) & 1 ? -0.0 : 0.0);
		else
			set_bits(dtype, tensor, first + i, UINT64_C(1) << (ek_dtype_size(dtype) * 8 - 1) | 1);
	}
}

/* Three quarters of the exponents, so that the sum of a row of it does not overflow. */
static void constant_row(ek_dtype dtype, void *tensor, int64_t first, int64_t cols, uint64_t *state)
{
	uint64_t constant = finite_bits(dtype, random_bits(state), 0, exponent_top(dtype) / 4 * 3);
	for (int64_t i = 0; i < cols; i++)
		set_bits(dtype, tensor, first + i, constant);
}

/* All but one element are the same, just below 2^-51, and one is the next number up. Where rounding puts m0
 * one step below, d*d is half the smallest number and sums to nothing, but c*c, in an fma, is more. */
static void clamp_row(ek_dtype dtype, void *tensor, int64_t first, int64_t cols, uint64_t *state)
{
	uint64_t mantissa = 0xfffffe - random_bits(state) % 0x200000;
	for (int64_t i = 0; i < cols; i++)
		value_set(dtype, tensor, first + i, (double)mantissa * 0x1p-75);
	value_set(dtype, tensor, first + random_below(state, cols), (double)(mantissa + 1) * 0x1p-75);
}

/* Signs take turns, so that no two neighbours are near the mean. */
static void overflow_row(ek_dtype dtype, void *tensor, int64_t first, int64_t cols, uint64_t *state)
{
	double scale = dtype == EK_F64 ? 1e160 : dtype == EK_F16 ? 1e3 : 1e20;
	for (int64_t i = 0; i < cols; i++) {
		double value = (double)(random_bits(state) >> 40 | 0x400000) * 0x1p-22 * scale;
		value_set(dtype, tensor, first + i, i % 2 ? -value : value);
	}
}

void fill_rows(enum filling filling, ek_dtype dtype, void *tensor, int64_t rows, int64_t cols, int64_t stride,
	       uint64_t seed)
{
	uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
	for (int64_t r = 0; r < rows && cols > 0; r++) {
		if (filling == FILL_SPECIAL) {
			special_row(dtype, tensor, r * stride, cols, (int)((uint64_t)r + seed) % 10, &state);
			continue;
		}
		if (filling >= FILL_CONSTANT && filling <= FILL_OVERFLOW) {
			static void (*const kinds[])(ek_dtype, void *, int64_t, int64_t, uint64_t *) = {
				constant_row, clamp_row, underflow_row, overflow_row};
			kinds[filling - FILL_CONSTANT](dtype, tensor, r * stride, cols, &state);
			continue;
		}
		for (int64_t i = 0; i < cols; i++) {
			uint64_t bits = random_bits(&state);
			double value = filling == FILL_ONES       ? 1
				       : filling == FILL_INTEGERS ? (double)(int)(bits % 10) - 5
				       : filling == FILL_OFFSET   ? normal_value(dtype, bits) + 1000
				       : filling == FILL_POSITIVE ? (double)(bits >> 40 | 0x400000) * 0x1p-22
				       : filling == (enum filling)FILL_TINY
					       ? (double)(bits >> 40 | 0x400000) * 0x1p-42
					       : normal_value(dtype, bits);
			value_set(dtype, tensor, r * stride + i, value);
		}
	}
}
