/* Elements of tensors one at a time, for the references of the ops. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ELEMENTS_H
#define EK_OPS_ELEMENTS_H

#include <stdint.h>
#include <string.h>

#include "core/dtype.h"
#include "core/half.h"

/* Buffers may have any alignment, hence memcpy. */
static inline double ek_read_element(const void *tensor, ek_dtype dtype, int64_t i)
{
	uint16_t half;
	float single;
	double value;
	switch (dtype) {
	case EK_F32:
		memcpy(&single, (const char *)tensor + i * 4, 4);
		return single;
	case EK_F16:
		memcpy(&half, (const char *)tensor + i * 2, 2);
		return ek_f16_to_float(half);
	case EK_BF16:
		memcpy(&half, (const char *)tensor + i * 2, 2);
		return ek_bf16_to_float(half);
	default:
		memcpy(&value, (const char *)tensor + i * 8, 8);
		return value;
	}
}

/* value is a binary32 number unless dtype is EK_F64: the one rounding is the one to dtype. */
static inline void ek_write_element(void *tensor, ek_dtype dtype, int64_t i, double value)
{
	float single = (float)value;
	uint16_t half = dtype == EK_F16 ? ek_float_to_f16(single) : ek_float_to_bf16(single);
	switch (dtype) {
	case EK_F32:
		memcpy((char *)tensor + i * 4, &single, 4);
		break;
	case EK_F16:
	case EK_BF16:
		memcpy((char *)tensor + i * 2, &half, 2);
		break;
	default:
		memcpy((char *)tensor + i * 8, &value, 8);
	}
}

/* Columns whose slots are in the workspace at a time. */
enum { EK_REFERENCE_STRIP = 64 };

#endif
