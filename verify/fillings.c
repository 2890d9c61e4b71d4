/* Fillings of tensors. Everything is integers until the last conversion, so inputs are the same on every machine; the
 * golden digests (tests/golden/) are those of these values. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "random.h"
#include "values.h"

/* FILL_DECIMALS repeats after so many elements: a prime, so that rows of any width differ. */
enum { PERIOD = 1000003 };

const char *const filling_names[FILLINGS] = {"normal",   "integers", "ones",      "offset",    "special",
					     "positive", "constant", "clamp",     "underflow", "overflow",
					     "decimals", "extreme",  "not_finite"};

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

/* One row of trouble; kinds come in turn, so that any ten neighbouring rows have all of them. From 10 on: no trouble. */
static void special_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, int kind, uint64_t *state)
{
	int top = exponent_top(dtype);
	const int low[] = {0, 0, top - 3, 0}, high[] = {top, 0, top, 6}; /* exponents of the first kinds */
	uint64_t constant = finite_bits(dtype, random_bits(state), 0, top);
	for (int64_t i = 0; i < cols; i++) {
		uint64_t random = random_bits(state);
		if (kind < 4)
			element_store_bits(dtype, data, first + i,
					   finite_bits(dtype, random, low[kind], high[kind]));
		else if (kind == 4)
			element_store_bits(dtype, data, first + i, constant);
		else if (kind == 5)
			element_store(dtype, data, first + i, random & 1 ? -0.0 : 0.0);
		else if (kind == 6)
			element_store(dtype, data, first + i, -0.0);
		else
			element_store(dtype, data, first + i, normal_value(dtype, random));
	}
	int64_t at = random_below(state, cols), other = random_below(state, cols);
	if (kind == 7) /* one of: NaN, +Inf, -Inf */
		element_store(dtype, data, first + at,
			      (double)(cols & 1   ? NAN
				       : cols & 2 ? INFINITY
						  : -INFINITY));
	if (kind == 8) { /* both infinities (or one, where the places meet) */
		element_store(dtype, data, first + at, (double)INFINITY);
		element_store(dtype, data, first + other, (double)-INFINITY);
	}
	if (kind == 9) /* one huge outlier */
		element_store_bits(dtype, data, first + at,
				   finite_bits(dtype, random_bits(state), top - 1, top));
}

/* Lanes of a row sum first meet zeros of both signs, then products that round to -0: only the +0 that ends
 * a sum decides the sign of what comes out. */
static void underflow_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, uint64_t *state)
{
	for (int64_t i = 0; i < cols; i++) {
		if (i / 256 % 2 == 0)
			element_store(dtype, data, first + i, random_bits(state) & 1 ? -0.0 : 0.0);
		else
			element_store_bits(dtype, data, first + i,
					   UINT64_C(1) << (ek_dtype_size(dtype) * 8 - 1) | 1);
	}
}

/* Three quarters of the exponents, so that the sum of a row of it does not overflow. */
static void constant_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, uint64_t *state)
{
	uint64_t constant = finite_bits(dtype, random_bits(state), 0, exponent_top(dtype) / 4 * 3);
	for (int64_t i = 0; i < cols; i++)
		element_store_bits(dtype, data, first + i, constant);
}

/* All but one element are the same, just below 2^-51, and one is the next number up. Where rounding puts m0
 * one step below, d*d is half the smallest number and sums to nothing, but c*c, in an fma, is more. */
static void clamp_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, uint64_t *state)
{
	uint64_t mantissa = 0xfffffe - random_bits(state) % 0x200000;
	for (int64_t i = 0; i < cols; i++)
		element_store(dtype, data, first + i, (double)mantissa * 0x1p-75);
	element_store(dtype, data, first + random_below(state, cols), (double)(mantissa + 1) * 0x1p-75);
}

/* Signs take turns, so that no two neighbours are near the mean. */
static void overflow_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, uint64_t *state)
{
	double scale = dtype == EK_F64 ? 1e160 : dtype == EK_F16 ? 1e3 : 1e20;
	for (int64_t i = 0; i < cols; i++) {
		double value = (double)(random_bits(state) >> 40 | 0x400000) * 0x1p-22 * scale;
		element_store(dtype, data, first + i, i % 2 ? -value : value);
	}
}

/* Rows in turn: decimal, constant, far from 0, with an outlier, subnormal, -0. */
static void extreme_row(ek_dtype dtype, void *data, int64_t first, int64_t cols, int kind, uint64_t *state)
{
	static const int special[] = {10, 4, 10, 9, 1, 6};
	if (kind == 1)
		constant_row(dtype, data, first, cols, state);
	else
		special_row(dtype, data, first, cols, special[kind], state);
	for (int64_t i = first; kind == 2 && i < first + cols; i++)
		element_store(dtype, data, i, 1e4 + element_value(dtype, data, i));
}

static void kind_row(enum filling filling, ek_dtype dtype, void *data, int64_t first, int64_t cols,
		     uint64_t number, uint64_t *state)
{
	static void (*const rows[])(ek_dtype, void *, int64_t, int64_t,
				    uint64_t *) = {[FILL_CONSTANT] = constant_row,
						   [FILL_CLAMP] = clamp_row,
						   [FILL_UNDERFLOW] = underflow_row,
						   [FILL_OVERFLOW] = overflow_row};
	static const int not_finite[] = {10, 7, 8};
	if (filling == FILL_SPECIAL)
		special_row(dtype, data, first, cols, (int)(number % 10), state);
	else if (filling == FILL_EXTREME)
		extreme_row(dtype, data, first, cols, (int)(number % 6), state);
	else if (filling == FILL_NOT_FINITE)
		special_row(dtype, data, first, cols, not_finite[number % 3], state);
	else
		rows[filling](dtype, data, first, cols, state);
}

static double value_of(enum filling filling, ek_dtype dtype, uint64_t bits)
{
	switch (filling) {
	case FILL_ONES:
		return 1;
	case FILL_INTEGERS:
		return (double)(int)(bits % 10) - 5;
	case FILL_OFFSET:
		return normal_value(dtype, bits) + 1000;
	case FILL_POSITIVE:
		return (double)(bits >> 40 | 0x400000) * 0x1p-22;
	case FILL_TINY:
		return (double)(bits >> 40 | 0x400000) * 0x1p-42;
	case FILL_DECIMALS:
		return (double)(bits >> 11) * 0x1p-51 - 2;
	case FILL_AROUND_ONE:
		return (double)(bits >> 11) * 0x1p-53 + 0.5;
	default:
		return normal_value(dtype, bits);
	}
}

/* The first `fresh` elements again and again. */
static void repeat(ek_dtype dtype, void *data, int64_t fresh, int64_t elements)
{
	size_t size = ek_dtype_size(dtype);
	for (int64_t done = fresh; done < elements;) {
		int64_t count = elements - done < done ? elements - done : done;
		memcpy((char *)data + (size_t)done * size, data, (size_t)count * size);
		done += count;
	}
}

void fill_rows(enum filling filling, ek_dtype dtype, void *data, int64_t rows, int64_t cols, int64_t stride,
	       uint64_t seed)
{
	uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
	bool by_row = filling == FILL_SPECIAL || (filling >= FILL_CONSTANT && filling <= FILL_OVERFLOW) ||
		      filling == FILL_EXTREME || filling == FILL_NOT_FINITE;
	if (filling == FILL_DECIMALS && (rows == 1 || stride == cols) && rows * cols > PERIOD) {
		fill_rows(filling, dtype, data, 1, PERIOD, PERIOD, seed);
		repeat(dtype, data, PERIOD, rows * cols);
		return;
	}
	for (int64_t r = 0; r < rows && cols > 0; r++) {
		if (by_row)
			kind_row(filling, dtype, data, r * stride, cols, (uint64_t)r + seed, &state);
		for (int64_t i = 0; !by_row && i < cols; i++)
			element_store(dtype, data, r * stride + i,
				      value_of(filling, dtype, random_bits(&state)));
	}
}

enum filling filling_of(enum filling filling, enum role role)
{
	bool decimal = filling == FILL_DECIMALS || filling == FILL_EXTREME || filling == FILL_NOT_FINITE;
	bool in_x_alone = filling == FILL_OFFSET || filling == FILL_CONSTANT || filling == FILL_CLAMP ||
			  filling == FILL_OVERFLOW;
	if (filling == FILL_SPECIAL || role == ROLE_SUM)
		return filling;
	if (role == ROLE_RSTD)
		return decimal ? FILL_AROUND_ONE : FILL_POSITIVE;
	if (role == ROLE_MEAN)
		return decimal ? FILL_DECIMALS : FILL_NORMAL;
	if (filling == FILL_UNDERFLOW && (role == ROLE_X || role == ROLE_WEIGHT))
		return role == ROLE_X ? FILL_TINY : FILL_ONES;
	if (role == ROLE_X || (role == ROLE_DY && decimal))
		return filling;
	if (decimal)
		return role == ROLE_WEIGHT ? FILL_AROUND_ONE : FILL_DECIMALS;
	return in_x_alone ? FILL_NORMAL : filling;
}
