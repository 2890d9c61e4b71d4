/* 16-bit floats in plain C: exact widening, and rounding to nearest even. The reference and the scalar
 * level use them; every other level gives the same bits. SPDX-License-Identifier: MIT */
#ifndef EK_HALF_H
#define EK_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ek_float_of_bits(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static inline uint32_t ek_bits_of_float(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static inline float ek_bf16_to_float(uint16_t half)
{
	return ek_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t ek_float_to_bf16(float value)
{
	uint32_t bits = ek_bits_of_float(value);
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN, quiet */
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float ek_f16_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t magnitude = half & 0x7fff;
	if (magnitude >= 0x7c00) /* infinity, NaN */
		return ek_float_of_bits(sign | 0x7f800000u | magnitude << 13);
	if (magnitude >= 0x0400) /* normal: exponent bias 15 -> 127 */
		return ek_float_of_bits(sign | ((magnitude << 13) + (112u << 23)));
	float value = (float)magnitude * 0x1p-24f; /* subnormal or zero: exact */
	return sign ? -value : value;
}

static inline uint16_t ek_float_to_f16(float value)
{
	uint32_t bits = ek_bits_of_float(value);
	uint32_t sign = bits >> 16 & 0x8000;
	uint32_t magnitude = bits & 0x7fffffffu;
	if (magnitude > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00); /* NaN */
	if (magnitude >= 0x477ff000u)
		return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
	if (magnitude < 0x38800000u)              /* below 2^-14: adding 0.5 rounds to a multiple of 2^-24 */
		return (uint16_t)(sign |
				  (ek_bits_of_float(ek_float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
	uint32_t odd = magnitude >> 13 & 1;
	return (uint16_t)(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13));
}

#endif
