/* The functions of src/math over arrays of numbers: every level's (math_level.c) and the reference's (support_math.c). Called by
 * test_math*.c and gpu_math.c. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_MATH_H
#define EK_TESTS_SUPPORT_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "math_functions.h"

#define MATH_ID(name, statement) MATH_##name,
enum math_function { MATH_FUNCTIONS(MATH_ID) MATH_FUNCTION_COUNT };

enum { MATH_BLOCK = 64 }; /* the number of elements is a multiple of it */

extern const char *const math_names[MATH_FUNCTION_COUNT];

struct math_table {
	void (*f32[MATH_FUNCTION_COUNT])(const float *t, float *to, int64_t count);
	void (*f64[MATH_FUNCTION_COUNT])(const double *t, double *to, int64_t count);
};

extern const struct math_table math_reference;
/* The usable levels, slowest first; NULL past the last. */
const struct math_table *math_level(int index, const char **name);
const struct math_table *math_best_level(void);

/* The same bits; a NaN equals a NaN. */
bool math_same_f32(float a, float b);
bool math_same_f64(double a, double b);

/* All binary32 numbers, `stride` apart: the numbers first, first + stride, … as bits, a block of them at a time. Returns how
 * many there are in the block; 0: no more. Blocks are filled up with zeros to a multiple of MATH_BLOCK. */
enum { MATH_NUMBERS = 1 << 14 };
struct math_walk {
	uint64_t next, stride;
};
int math_next_f32(struct math_walk *walk, float t[MATH_NUMBERS]);
/* Binary64 numbers of every kind: near the ends of the functions' ranges, of every exponent, and special ones. */
void math_fill_f64(uint64_t seed, double t[MATH_NUMBERS]);

#endif
