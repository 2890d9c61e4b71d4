/* Elements of the four dtypes, by value and by bits. SPDX-License-Identifier: MIT */
#include "values.h"

#include <string.h>

#include "core/half.h"

/* The CPUs of the library are little-endian. */
uint64_t element_bits(ek_dtype dtype, const void *data, int64_t index)
{
	size_t size = ek_dtype_size(dtype);
	uint64_t bits = 0;
	memcpy(&bits, (const unsigned char *)data + index * (int64_t)size, size);
	return bits;
}

void element_store_bits(ek_dtype dtype, void *data, int64_t index, uint64_t bits)
{
	size_t size = ek_dtype_size(dtype);
	memcpy((unsigned char *)data + index * (int64_t)size, &bits, size);
}

static double value_of_bits(ek_dtype dtype, uint64_t bits)
{
	double value;
	switch (dtype) {
	case EK_F16:
		return (double)ek_f16_to_float((uint16_t)bits);
	case EK_BF16:
		return (double)ek_bf16_to_float((uint16_t)bits);
	case EK_F32:
		return (double)ek_float_of_bits((uint32_t)bits);
	default:
		memcpy(&value, &bits, sizeof value);
		return value;
	}
}

double element_value(ek_dtype dtype, const void *data, int64_t index)
{
	return value_of_bits(dtype, element_bits(dtype, data, index));
}

void element_store(ek_dtype dtype, void *data, int64_t index, double value)
{
	uint64_t bits;
	switch (dtype) {
	case EK_F16:
		bits = ek_float_to_f16((float)value);
		break;
	case EK_BF16:
		bits = ek_float_to_bf16((float)value);
		break;
	case EK_F32:
		bits = ek_bits_of_float((float)value);
		break;
	default:
		memcpy(&bits, &value, sizeof bits);
	}
	element_store_bits(dtype, data, index, bits);
}

bool bits_are_nan(ek_dtype dtype, uint64_t bits)
{
	double value = value_of_bits(dtype, bits);
	return value != value;
}

uint64_t digest_rows(uint64_t digest, ek_dtype dtype, const void *data, int64_t rows, int64_t cols,
		     int64_t stride)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < cols; i++) {
			uint64_t bits = element_bits(dtype, data, r * stride + i);
			if (bits_are_nan(dtype, bits))
				bits = 0x7ff8;
			for (size_t byte = 0; byte < ek_dtype_size(dtype); byte++)
				digest = (digest ^ (bits >> 8 * byte & 0xff)) * 0x100000001b3u;
		}
	return digest;
}
