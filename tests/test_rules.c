/* The reference against a second, independent writing of the contract (rules.inc.h), bit for bit: the
 * reference is what every other test compares with, so it needs a witness of its own.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/ref/slots.h"
#include "support.h"

static void *list_of(int64_t count, size_t element)
{
	void *list = calloc((size_t)(count > 0 ? count : 1), element);
	if (!list) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return list;
}

static void put(struct operand *o, int64_t index, double value)
{
	if (o->present)
		value_set(o->dtype, o->buffer.data, index, value);
}

#define REAL float
#define NAME(x) x##_32
#define FMA fmaf
#define SQRT sqrtf
#include "rules.inc.h"
#undef REAL
#undef NAME
#undef FMA
#undef SQRT
#define REAL double
#define NAME(x) x##_64
#define FMA fma
#define SQRT sqrt
#include "rules.inc.h"

/* The second writing's answer stands where a level's would, and is compared the same way. */
static void check(const struct norm_case *c)
{
	case_expect(c);
	case_outputs(reference(), c, case_actual);
	if (c->dtype == EK_F64)
		(c->backward ? backward_64 : forward_64)(c, case_actual);
	else
		(c->backward ? backward_32 : forward_32)(c, case_actual);
	case_compare(c, "second writing", 1, case_actual);
}

static void check_ops(int64_t rows, int64_t cols, unsigned form, enum filling filling, uint64_t seed)
{
	for (int k = 0; k < 4 * DTYPE_PAIRS; k++) {
		struct norm_case c =
			case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM, dtype_pairs[k / 4], rows, cols);
		c.form = form;
		c.filling = filling;
		c.seed = seed + (uint64_t)k;
		case_normalise(&c);
		check(&c);
	}
}

enum { ALL = FORM_FORWARD | FORM_BACKWARD };

static void widths(void)
{
	for (int64_t cols = 1; cols <= 600; cols = test_step(cols))
		check_ops(2, cols, ALL, FILL_NORMAL, 1);
	static const int64_t wide[] = {767,  768,  1023, 1024, 1025, 1279, 1280, 1281, 2047,
				       2048, 2049, 3072, 3073, 4097, 5000, 9217, 70000};
	for (int w = 0; w < COUNT_OF(wide); w++)
		check_ops(2, wide[w], ALL, FILL_NORMAL, 2);
}

static void row_counts(void)
{
	for (int64_t rows = 0; rows <= 70; rows = test_step(rows))
		check_ops(rows, 5, ALL, FILL_NORMAL, 3);
	static const int64_t many[] = {1023, 1024, 1025, 2047, 2048, 2049, 2050, 4097, 33000, 40000, 66000};
	for (int r = 0; r < COUNT_OF(many); r++)
		check_ops(many[r], 2, ALL, FILL_NORMAL, 4);
	static const int64_t tall_and_wide[][2] = {{513, 1025}, {260, 2049}, {130, 4097}};
	for (int s = 0; s < (test_mode == TEST_SHORT ? 0 : 3); s++)
		check_ops(tall_and_wide[s][0], tall_and_wide[s][1], ALL, FILL_NORMAL, 5);
}

static void operand_forms(void)
{
	for (unsigned form = 0; form < 1u << 12; form = (unsigned)test_step(form))
		for (int k = 0; k < 4; k++) {
			struct norm_case c = case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM,
						     dtype_pairs[form * 7 % 11 % DTYPE_PAIRS], 4, 41);
			c.form = form;
			case_normalise(&c);
			check(&c);
		}
}

static void special_values(void)
{
	static const int64_t widths_of_rows[] = {1, 2, 7, 255, 256, 257, 1000, 1025};
	static const unsigned forms[] = {ALL, ALL | FORM_ARBITRARY | FORM_ACCUMULATE,
					 FORM_DX | FORM_DWEIGHT | FORM_DBIAS | FORM_WEIGHT,
					 FORM_RSTD | FORM_DX | FORM_ARBITRARY};
	for (int w = 0; w < COUNT_OF(widths_of_rows); w++)
		for (int f = 0; f < COUNT_OF(forms); f++)
			for (uint64_t seed = 0; seed < (uint64_t)test_scaled(10); seed++) {
				check_ops(1, widths_of_rows[w], forms[f], FILL_SPECIAL, seed);
				check_ops(12, widths_of_rows[w], forms[f], FILL_SPECIAL, seed);
			}
}

static void large_means_and_whole_numbers(void)
{
	for (uint64_t seed = 0; seed < 5; seed++) {
		check_ops(7, 300, ALL, FILL_OFFSET, seed);
		check_ops(7, 300, ALL, FILL_INTEGERS, seed);
		check_ops(7, 1500, FORM_DX | FORM_DWEIGHT | FORM_DBIAS, FILL_OFFSET, seed);
	}
	check_ops(7, 300, ALL, FILL_ONES, 1);
}

/* Where var is clamped, and where only the +0 at the end of a sum decides a sign. */
static void constant_rows_and_signs_of_zero(void)
{
	static const int64_t odd[] = {3, 5, 7, 10, 100, 769, 1000};
	for (int w = 0; w < COUNT_OF(odd); w++)
		check_ops(test_scaled(100), odd[w], ALL & ~(unsigned)FORM_STATS, FILL_CONSTANT, 9);
	check_ops(40, 11, ALL, FILL_CONSTANT, 10);
	struct norm_case clamped = case_of(false, EK_LAYER_NORM, dtype_pairs[0], 1000, 5);
	clamped.filling = FILL_CLAMP;
	clamped.eps = 0;
	check(&clamped);
	for (int64_t cols = 256; cols <= 1024; cols += 256) {
		check_ops(3, cols, FORM_RSTD | FORM_ARBITRARY | FORM_DX | FORM_DWEIGHT | FORM_DBIAS,
			  FILL_UNDERFLOW, 1);
		check_ops(1, cols, FORM_WEIGHT | FORM_BIAS | FORM_DX, FILL_UNDERFLOW, 2);
	}
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	TEST(widths);
	TEST(row_counts);
	TEST(operand_forms);
	TEST(special_values);
	TEST(large_means_and_whole_numbers);
	TEST(constant_rows_and_signs_of_zero);
	return test_end();
}
