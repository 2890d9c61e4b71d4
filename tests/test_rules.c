/* The reference against a second, independent writing of the contract (rules.inc.h), bit for bit: the
 * reference is what every other test compares with, so it needs a witness of its own.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../src/core/slots.h"
#include "../src/math/reference.h"
#include "support_sweeps.h"

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
		element_store(o->dtype, o->buffer.data, index, value);
}

#define REAL float
#define NAME(x) x##_32
#define MATH_NAME(x) x##_f32
#define FMA fmaf
#define SQRT sqrtf
#include "rules.inc.h"
#undef REAL
#undef NAME
#undef MATH_NAME
#undef FMA
#undef SQRT
#define REAL double
#define NAME(x) x##_64
#define MATH_NAME(x) x##_f64
#define FMA fma
#define SQRT sqrt
#include "rules.inc.h"

/* The second writing's answer stands where a level's would, and is compared the same way. */
static void check(const struct test_case *c)
{
	case_expect(c);
	case_outputs(reference(), c, &case_actual);
	if (c->dtype == EK_F64)
		(c->pass == BACKWARD ? backward_64 : forward_64)(c);
	else
		(c->pass == BACKWARD ? backward_32 : forward_32)(c);
	case_compare(c, "second writing", 1, &case_actual);
}

static void check_ops(int64_t rows, int64_t cols, const char *form, enum filling filling, uint64_t seed)
{
	for (int k = 0; k < OPS; k++) {
		struct test_case c = op_case(k, rows, cols);
		c.filling = filling;
		c.seed = seed + (uint64_t)k;
		case_set(&c, form);
		check(&c);
	}
}

TEST(widths)
{
	sweep_widths(check, 600, 2);
	static const int64_t wide[] = {767,  768,  1023, 1024, 1025, 1279, 1280, 1281, 2047,
				       2048, 2049, 3072, 3073, 4097, 5000, 9217, 70000};
	for (int w = 0; w < COUNT_OF(wide); w++)
		check_ops(2, wide[w], "all", FILL_NORMAL, 2);
}

TEST(row_counts)
{
	sweep_row_counts(check, 10);
	sweep_slots_and_chunks(check, test_mode == TEST_SHORT ? 100 : INT64_MAX, 6);
}

TEST(operand_forms)
{
	sweep_operand_forms(check, 6);
}

TEST(choices_of_dtypes_and_options)
{
	sweep_choices(check, 1);
}

TEST(groups_of_columns)
{
	sweep_groups(check, 1);
}

TEST(special_values)
{
	sweep_special_values(check, 2);
}

TEST(large_means_and_whole_numbers)
{
	for (uint64_t seed = 0; seed < 5; seed++) {
		check_ops(7, 300, "all", FILL_OFFSET, seed);
		check_ops(7, 300, "all", FILL_INTEGERS, seed);
		check_ops(7, 1500, "dx dweight dbias", FILL_OFFSET, seed);
	}
	check_ops(7, 300, "all", FILL_ONES, 1);
}

TEST(constant_rows_and_signs_of_zero)
{
	sweep_constant_rows_and_signs_of_zero(check);
}
