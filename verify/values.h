/* Elements of the four dtypes, their digest, and fillings of tensors. SPDX-License-Identifier: MIT */
#ifndef VERIFY_VALUES_H
#define VERIFY_VALUES_H

#include <stdbool.h>

#include "evenkeel.h"

/* ---- elements, at any alignment: values.c ---- */

double element_value(ek_dtype dtype, const void *data, int64_t index);
uint64_t element_bits(ek_dtype dtype, const void *data, int64_t index);
void element_store(ek_dtype dtype, void *data, int64_t index, double value);
void element_store_bits(ek_dtype dtype, void *data, int64_t index, uint64_t bits);
bool bits_are_nan(ek_dtype dtype, uint64_t bits);

/* FNV-1a over the elements' bits, every NaN counted as the same one. */
uint64_t digest_rows(uint64_t digest, ek_dtype dtype, const void *data, int64_t rows, int64_t cols,
		     int64_t stride);
#define DIGEST_START 0xcbf29ce484222325u

/* ---- fillings: fillings.c ---- */

enum filling {
	FILL_NORMAL,   /* bell-shaped around 0, deviation about 1.2, all mantissa bits in use */
	FILL_INTEGERS, /* whole numbers from -5 to 4 */
	FILL_ONES,
	FILL_OFFSET,   /* FILL_NORMAL + 1000 */
	FILL_SPECIAL,  /* a kind of trouble per row: NaN, infinities, zeros, subnormals, huge, constant … */
	FILL_POSITIVE, /* from 1 to 4, for statistics given as rstd */
	FILL_CONSTANT, /* x: each row one number of any size; the rest as FILL_NORMAL */
	FILL_CLAMP, /* x: f32 rows whose variance, as computed, is at times below 0; the rest as FILL_NORMAL */
	FILL_UNDERFLOW, /* dy: zeros, then negative numbers whose product with x, which is tiny, rounds to -0 */
	FILL_OVERFLOW, /* x: rows whose sum of (x - mean)^2 overflows and whose sum of |x| does not, except in f16; the
			    rest as FILL_NORMAL */
	FILL_DECIMALS, /* from -2 to 2, weights from 0.5 to 1.5; after a million elements they repeat */
	FILL_EXTREME,  /* x, dy: rows in turn decimal, constant, far from 0, with an outlier, subnormal, -0 */
	FILL_NOT_FINITE, /* x, dy: rows in turn decimal, with NaN, with infinities */
	FILLINGS,
	FILL_TINY = FILLINGS, /* FILL_POSITIVE * 2^-20: the x of FILL_UNDERFLOW */
	FILL_AROUND_ONE       /* from 0.5 to 1.5: the weights of FILL_DECIMALS */
};
extern const char *const filling_names[FILLINGS];

/* What an operand's values mean to the op. */
enum role { ROLE_X, ROLE_DY, ROLE_WEIGHT, ROLE_BIAS, ROLE_MEAN, ROLE_RSTD, ROLE_SUM };

/* How an operand of a tensor so filled is filled itself. */
enum filling filling_of(enum filling filling, enum role role);

/* The values depend on filling, dtype, shape and seed alone. */
void fill_rows(enum filling filling, ek_dtype dtype, void *data, int64_t rows, int64_t cols, int64_t stride,
	       uint64_t seed);

#endif
