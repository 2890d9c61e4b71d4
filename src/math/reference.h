/* math.inc.h for the references of the ops: exp_f32, gelu_f64 and the like, one number at a time.
 * SPDX-License-Identifier: MIT */
#ifndef EK_MATH_REFERENCE_H
#define EK_MATH_REFERENCE_H

#include <math.h>

#include "constants.h"
#include "plain.h"

#define MATH static inline __attribute__((unused))
#define EK_F32_NAME(word) word##_f32
#define EK_F64_NAME(word) word##_f64
EK_PLAIN_WORDS(MATH, EK_F32_NAME, float, uint32_t, 23, 0x1p-126f)
EK_PLAIN_WORDS(MATH, EK_F64_NAME, double, uint64_t, 52, 0x1p-1022)
MATH float fma_f32(float a, float b, float c)
{
	return fmaf(a, b, c);
}
MATH double fma_f64(double a, double b, double c)
{
	return fma(a, b, c);
}
#define splat_f32(c) (c)
#define splat_f64(c) (c)

#define M EK_F32_NAME
#define REAL f32
#define MATH_F64 0
#include "math.inc.h"
#undef M
#undef REAL
#undef MATH_F64
#define M EK_F64_NAME
#define REAL f64
#define MATH_F64 1
#include "math.inc.h"
#undef M
#undef REAL
#undef MATH_F64
#undef MATH

#endif
