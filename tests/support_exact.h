/* What the tests of accuracy share: an operand's numbers, and the unit of errors. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_EXACT_H
#define EK_TESTS_SUPPORT_EXACT_H

#include <math.h>

#include "support.h"

static inline double value_at(const struct operand *o, int64_t row, int64_t i, double otherwise)
{
	return o->present ? element_value(o->dtype, o->buffer.data, row * o->stride + i) : otherwise;
}

/* The distance of neighbouring floats at a magnitude. */
static inline long double ulp(long double magnitude)
{
	int exponent;
	frexpl(magnitude, &exponent);
	return ldexpl(1, (exponent < -125 ? -125 : exponent) - 24);
}

#endif
