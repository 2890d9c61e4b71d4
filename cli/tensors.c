/* Tensors: elements of the four dtypes, filling, comparing. Called by run, verify and bench.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Filling stops here and repeats: a prime, so that rows of any width differ. */
enum { PERIOD = 1000003 };

static float float_of_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint32_t bits_of_float(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static float float_of_half(uint16_t half)
{
	int exponent = half >> 10 & 31;
	int fraction = half & 1023;
	float magnitude;
	if (exponent == 31)
		magnitude = fraction ? NAN : INFINITY;
	else
		magnitude = ldexpf((float)(exponent ? fraction + 1024 : fraction),
				   (exponent ? exponent : 1) - 25);
	return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t half_of_float(float value)
{
	uint16_t sign = (uint16_t)(bits_of_float(value) >> 16 & 0x8000);
	float magnitude = fabsf(value);
	if (isnan(value))
		return sign | 0x7e00;
	if (magnitude >= 65520)
		return sign | 0x7c00;
	int exponent = 0;
	(void)frexpf(magnitude, &exponent);
	if (exponent < -13)
		exponent = -13; /* subnormal: steps of 2^-24 */
	/* A fraction that rounds up to 2048 carries into the exponent by itself. */
	int fraction = (int)nearbyintf(ldexpf(magnitude, 11 - exponent));
	return (uint16_t)(sign | (fraction + ((exponent + 13) << 10)));
}

static float float_of_bfloat(uint16_t bfloat)
{
	return float_of_bits((uint32_t)bfloat << 16);
}

static uint16_t bfloat_of_float(float value)
{
	uint32_t bits = bits_of_float(value);
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint64_t element_bits(ek_dtype dtype, const void *data, int64_t index)
{
	size_t size = ek_dtype_size(dtype);
	const unsigned char *at = (const unsigned char *)data + index * (int64_t)size;
	uint16_t two;
	uint32_t four;
	uint64_t eight;
	switch (size) {
	case 2:
		memcpy(&two, at, sizeof two);
		return two;
	case 4:
		memcpy(&four, at, sizeof four);
		return four;
	default:
		memcpy(&eight, at, sizeof eight);
		return eight;
	}
}

double element_value(ek_dtype dtype, const void *data, int64_t index)
{
	uint64_t bits = element_bits(dtype, data, index);
	double value;
	switch (dtype) {
	case EK_F16:
		return float_of_half((uint16_t)bits);
	case EK_BF16:
		return float_of_bfloat((uint16_t)bits);
	case EK_F32:
		return float_of_bits((uint32_t)bits);
	default:
		memcpy(&value, &bits, sizeof value);
		return value;
	}
}

void element_store(ek_dtype dtype, void *data, int64_t index, double value)
{
	unsigned char *at = (unsigned char *)data + (size_t)index * ek_dtype_size(dtype);
	float single = (float)value;
	uint16_t two = dtype == EK_F16 ? half_of_float(single) : bfloat_of_float(single);
	switch (dtype) {
	case EK_F16:
	case EK_BF16:
		memcpy(at, &two, sizeof two);
		break;
	case EK_F32:
		memcpy(at, &single, sizeof single);
		break;
	default:
		memcpy(at, &value, sizeof value);
	}
}

/* splitmix64's finisher: neighbouring numbers come out unrelated. */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static double random_value(enum init init, enum role role, uint64_t random)
{
	double unit = (double)(random >> 11) * 0x1p-53;
	if (init == ONES)
		return 1;
	if (init == INTEGERS)
		return role == ROLE_RSTD ? 1 + (double)(random % 4) : (double)(random % 10) - 5;
	return role == WEIGHT || role == ROLE_RSTD ? 0.5 + unit : 4 * unit - 2;
}

void fill_elements(void *data, ek_dtype dtype, int64_t elements, enum init init, uint64_t seed,
		   enum role role)
{
	int64_t fresh = elements < PERIOD ? elements : PERIOD;
	uint64_t start = mix(seed * 4 + (uint64_t)role + UINT64_C(0x9e3779b97f4a7c15));
	for (int64_t i = 0; i < fresh; i++)
		element_store(dtype, data, i, random_value(init, role, mix(start + (uint64_t)i)));
	size_t size = ek_dtype_size(dtype);
	for (int64_t done = fresh; done < elements;) {
		int64_t count = elements - done < done ? elements - done : done;
		memcpy((unsigned char *)data + (size_t)done * size, data, (size_t)count * size);
		done += count;
	}
}

bool tensor_make(struct tensor *tensor, ek_dtype dtype, int64_t rows, int64_t cols, int64_t stride,
		 int offset)
{
	*tensor = (struct tensor){
		.dtype = dtype, .rows = rows, .cols = cols, .stride = stride, .elements = rows * stride};
	void *memory = NULL;
	size_t bytes = tensor_bytes(tensor) + (size_t)offset + 2 * (size_t)TENSOR_MARGIN;
	if (posix_memalign(&memory, 64, bytes))
		return false;
	tensor->memory = memory;
	tensor->data = tensor->memory + TENSOR_MARGIN + offset;
	tensor_stain(tensor);
	return true;
}

void tensor_free(struct tensor *tensor)
{
	free(tensor->memory);
	tensor->memory = tensor->data = NULL;
}

size_t tensor_bytes(const struct tensor *tensor)
{
	return (size_t)tensor->elements * ek_dtype_size(tensor->dtype);
}

void tensor_fill(struct tensor *tensor, enum init init, uint64_t seed, enum role role)
{
	fill_elements(tensor->data, tensor->dtype, tensor->elements, init, seed, role);
}

void tensor_copy(struct tensor *to, const struct tensor *from)
{
	memcpy(to->data, from->data, tensor_bytes(to));
}

void tensor_stain(struct tensor *tensor)
{
	memset(tensor->data - TENSOR_MARGIN, 0x5a, tensor_bytes(tensor) + 2 * (size_t)TENSOR_MARGIN);
}

static double smallest(ek_dtype dtype)
{
	return dtype == EK_F16    ? 0x1p-24
	       : dtype == EK_BF16 ? 0x1p-133
	       : dtype == EK_F32  ? 0x1p-149
				  : 0x1p-1074;
}

/* One row of one kind: 0 as it is; then constant, far from 0, one outlier, subnormal, minus zero. */
static double extreme_value(int kind, ek_dtype dtype, int64_t col, double value)
{
	switch (kind) {
	case 1:
		return 1234.5;
	case 2:
		return 1e4 + value;
	case 3:
		return col == 0 ? 6e4 : value;
	case 4:
		return smallest(dtype) * (double)(col % 7 - 3);
	case 5:
		return -0.0;
	default:
		return value;
	}
}

static double not_finite_value(int kind, int64_t col, int64_t middle, double value)
{
	if (col != middle || kind == 0)
		return value;
	return kind == 1 ? NAN : kind == 2 ? INFINITY : -INFINITY;
}

void tensor_add_special(struct tensor *tensor, enum values values, int shift)
{
	for (int64_t row = 0; row < tensor->rows && values != ORDINARY; row++) {
		int kind = (int)((row + shift) % (values == EXTREME ? 6 : 4));
		for (int64_t col = 0; col < tensor->cols; col++) {
			int64_t at = row * tensor->stride + col;
			double value = element_value(tensor->dtype, tensor->data, at);
			value = values == EXTREME ? extreme_value(kind, tensor->dtype, col, value)
						  : not_finite_value(kind, col, tensor->cols / 2, value);
			element_store(tensor->dtype, tensor->data, at, value);
		}
	}
}

bool tensor_same(const struct tensor *a, const struct tensor *b, int64_t *index)
{
	enum { BLOCK = 4096 }; /* memcmp first: the usual answer is "equal" */
	int64_t size = (int64_t)ek_dtype_size(a->dtype);
	int64_t first = -TENSOR_MARGIN / size;
	int64_t end = a->elements - first;
	for (int64_t start = first; start < end; start += BLOCK) {
		int64_t count = end - start < BLOCK ? end - start : BLOCK;
		if (memcmp(a->data + start * size, b->data + start * size, (size_t)(count * size)) == 0)
			continue;
		for (int64_t i = start; i < start + count; i++)
			if (element_bits(a->dtype, a->data, i) != element_bits(a->dtype, b->data, i) &&
			    !(isnan(element_value(a->dtype, a->data, i)) &&
			      isnan(element_value(a->dtype, b->data, i)))) {
				*index = i;
				return false;
			}
	}
	return true;
}
