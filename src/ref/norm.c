/* The reference of the norm ops: picks the arithmetic. Binary32 serves f32, f16 and bf16 tensors,
 * binary64 serves f64; norm.inc.h is the definition itself. SPDX-License-Identifier: MIT */
#include "norm.h"

#include <math.h>
#include <string.h>

#include "../half.h"
#include "order.h"
#include "slots.h"

/* Buffers may have any alignment, hence memcpy. */
static double read_element(const void *tensor, ek_dtype dtype, int64_t i)
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
static void write_element(void *tensor, ek_dtype dtype, int64_t i, double value)
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

enum { STRIP = 64 }; /* columns whose slots are in the workspace at a time */

#define real float
#define fma_real fmaf
#define sqrt_real sqrtf
#define STATS_DTYPE EK_F32
#define NAME(x) x##_f32
#include "norm.inc.h"
#undef real
#undef fma_real
#undef sqrt_real
#undef STATS_DTYPE
#undef NAME

#define real double
#define fma_real fma
#define sqrt_real sqrt
#define STATS_DTYPE EK_F64
#define NAME(x) x##_f64
#include "norm.inc.h"

void ek_ref_norm_forward(const ek_norm_forward_args *args)
{
	if (args->dtype == EK_F64)
		forward_f64(args);
	else
		forward_f32(args);
}

void ek_ref_norm_backward(const ek_norm_backward_args *args)
{
	if (args->dtype == EK_F64)
		backward_f64(args);
	else
		backward_f32(args);
}

/* Of any number of rows up to args->rows. */
size_t ek_ref_norm_backward_workspace(const ek_norm_backward_args *args)
{
	if (!args->dweight && !args->dbias)
		return 0;
	size_t numbers = 3 * (size_t)args->rows + STRIP * (size_t)ek_most_slots(args->rows, args->cols);
	return numbers * (args->dtype == EK_F64 ? sizeof(double) : sizeof(float));
}
