/* The functions of src/math computed by others: in double precision for binary32, by MPFR for binary64. Called by test_math_errors.c.
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_MATH_EXACT_H
#define EK_TESTS_MATH_EXACT_H

#include "support_math.h"

struct math_exact {
	double value;
	double scale; /* the sum of the magnitudes of the terms that the value is a sum of; for most functions its own */
	double argument; /* of exp: |2 u| for gelu_tanh and its slope, t^2 / 2 for the slope of gelu; 0 for others */
};
struct math_exact math_exact_of(enum math_function f, double t);

struct math_error {
	double difference; /* |actual - exact| */
	double scale, argument;
};
bool math_has_mpfr(void);
struct math_error math_error_of(enum math_function f, double t, double actual);

#endif
