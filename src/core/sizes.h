/* The little arithmetic of cutting work into tasks and rows into vectors. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_SIZES_H
#define EK_CPU_SIZES_H

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int64_t quotient_up(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

#endif
