/* Every level's bits against the reference's: each axis swept alone (widths, rows, threads, offsets,
 * strides, operand forms, streaming), the shapes that users bring, special values, and rows on their own.
 * Pairs of axes and random cases are in test_sample.c. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support_sweeps.h"
#include "verify/mirror.h"

struct shape {
	int64_t rows, cols;
};

TEST(all_widths_to_2100)
{
	sweep_widths(case_check_levels, 2100, 4);
}

/* Wide rows take another path when there are many threads. */
TEST(large_widths)
{
	static const int64_t widths[] = {4095,  4096,   4097,   8191,   8192,   8193,   32767,
					 65536, 100000, 131071, 131072, 131073, 1048579};
	int last = COUNT_OF(widths) - (test_mode == TEST_SHORT ? 4 : 0);
	for (int w = 0; w < last; w++)
		for (int k = 0; k < OPS; k++) {
			if ((widths[w] > 1000000 && k >= 8 && test_mode != TEST_LONG) || !op_in_turn(k, w))
				continue;
			struct test_case c = op_case(k, 2 + (w + k) % 2 * 3, widths[w]);
			case_expect(&c);
			for (int i = 0; i < level_count(); i++) {
				case_check(&c, (struct setting){level_name(i), 1, PLAIN});
				case_check(&c, (struct setting){level_name(i), 3, PLAIN});
			}
		}
}

TEST(row_counts_to_70)
{
	sweep_row_counts(case_check_levels, 2);
}

static void check_with_threads(const struct test_case *c)
{
	case_expect(c);
	for (int i = 0; i < level_count(); i++) {
		case_check(c, (struct setting){level_name(i), 1, PLAIN});
		case_check(c, (struct setting){level_name(i), 3, LOOP_REVERSE});
	}
}

TEST(row_counts_around_slots_and_chunks)
{
	sweep_slots_and_chunks(check_with_threads, INT64_MAX, 4);
}

/* LayerNorm backward, f32: slots of several chunks where rows go through the kernels one by one, and in pairs; and past
 * 2^21 rows more slots than the target, none of over 2048 rows. */
TEST(many_rows)
{
	static const struct shape shapes[] = {{33000, 300}, {4200, 4097}, {2200001, 1}};
	for (int s = 0; s < COUNT_OF(shapes) && test_mode != TEST_SHORT; s++) {
		struct test_case c = op_case(1, shapes[s].rows, shapes[s].cols);
		case_expect(&c);
		for (int i = 0; i < level_count(); i++)
			case_check(&c, (struct setting){level_name(i), 2, PLAIN});
	}
}

/* A product too small for f32 is -0 in a chain that began with +0: the +0 at the end of a column sum takes it away. */
TEST(no_minus_zero_leaves_a_column_sum)
{
	static const struct {
		const char *name;
		double value;
	} inputs[] = {{"x", 1}, {"dy", -1e-30}, {"mean", 0}, {"rstd", 1e-30}};
	struct test_case c = op_case(1, 2050, 1); /* slots of several rows */
	case_set(&c, "dweight mean rstd arbitrary");
	case_fill(&c);
	for (int i = 0; i < COUNT_OF(inputs); i++)
		for (int64_t row = 0; row < c.rows; row++)
			element_store(EK_F32, INPUT(inputs[i].name)->buffer.data, row, inputs[i].value);
	for (int i = 0; i < level_count(); i++) {
		case_run(context_of((struct setting){level_name(i), 1, PLAIN}), &c, &case_actual);
		double dweight = element_value(EK_F32, ACTUAL("dweight")->buffer.data, 0);
		EXPECT(dweight == 0 && !signbit(dweight), "level %s: dweight is %g", level_name(i), dweight);
	}
}

TEST(bits_do_not_depend_on_threads)
{
	static const struct shape shapes[] = {{4097, 64},  {301, 1000}, {67, 4097}, {1025, 300},
					      {2, 200003}, {7, 40000},  {5, 131073}};
	static const int counts[] = {2, 3, 7};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			if (!op_in_turn(k, s) || !test_sampled(1))
				continue;
			struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
			case_expect(&c);
			for (int i = 0; i < level_count(); i++) {
				case_check(&c, (struct setting){level_name(i), 1, PLAIN});
				for (int t = 0; t < COUNT_OF(counts); t++)
					case_check(&c, (struct setting){level_name(i), counts[t], PLAIN});
				for (enum flavour f = LOOP_SERIAL; f <= LOOP_THREADS; f++)
					case_check(&c, (struct setting){level_name(i), 3, f});
			}
		}
}

TEST(bits_do_not_depend_on_base_offsets)
{
	static const int64_t widths[] = {70, 1030};
	for (int k = 0; k < OPS; k++)
		for (int offset = 0; offset < 64; offset++) {
			for (int id = 0; id < EK_MOST_OPERANDS; id++) {
				struct test_case c = op_case(k, 3, widths[0]);
				if (id >= case_op(&c)->operand_count)
					break;
				c.offset[id] = offset;
				if (test_sampled(2) && test_in_slice())
					case_check_levels(&c);
			}
			for (int w = 0; w < COUNT_OF(widths); w++) {
				if (!test_sampled(1) || !test_in_slice())
					continue;
				struct test_case c = op_case(k, 4, widths[w]);
				for (int id = 0; id < EK_MOST_OPERANDS; id++)
					c.offset[id] = offset;
				case_check_levels(&c);
			}
		}
}

TEST(bits_do_not_depend_on_strides)
{
	sweep_strides(case_check_levels, 1);
	struct test_case strided[] = {op_case(0, 99, 13), op_case(1, 99, 13), op_case(0, 3, 17134),
				      op_case(1, 3, 17134)};
	for (int i = 0; i < COUNT_OF(strided); i++) {
		strided[i].pad[0] = 19; /* y, dx */
		strided[i].pad[operand_number(case_op(&strided[i]), "x")] = 7;
		case_check_levels(&strided[i]);
	}
}

TEST(every_operand_form)
{
	sweep_operand_forms(case_check_levels, 3);
}

TEST(every_choice_of_dtypes_and_options)
{
	sweep_choices(case_check_levels, 1);
}

TEST(groups_of_columns)
{
	sweep_groups(check_with_threads, 1);
}

/* A group has the bits of a row of its own, and one group of all columns those of none. */
TEST(a_group_is_a_row_of_its_own)
{
	static const int64_t widths[] = {5, 64, 1000, 9000};
	enum { ROWS = 4, GROUPS = 3 };
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			if (!op_in_turn(k, w))
				continue;
			struct test_case c = op_case(k, ROWS, GROUPS * widths[w]), one = c;
			case_drop(&c, "weight bias x_bias dweight dbias dx_bias");
			c.group_cols = widths[w];
			case_expect(&c);
			c.rows = ROWS * GROUPS; /* the same memory */
			c.cols = widths[w];
			c.group_cols = 0;
			for (int i = 0; i < level_count(); i++)
				case_check(&c, (struct setting){level_name(i), 1 + i % 3, PLAIN});
			case_expect(&one);
			one.group_cols = one.cols;
			for (int i = 0; i < level_count(); i++)
				case_check(&one, (struct setting){level_name(i), 1, PLAIN});
		}
}

/* Each output alone has the bits that it has beside all others. */
TEST(bits_do_not_depend_on_which_outputs_are_asked_for)
{
	static const int64_t shapes[][2] = {{5, 37}, {35, 300}, {3, 2049}, {2, 20001}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			struct test_case all = op_case(k, shapes[s][0], shapes[s][1]);
			if (!op_in_turn(k, s) || !test_sampled(1))
				continue;
			case_expect(&all); /* and case_inputs for the others */
			for (int output = 0; output < case_op(&all)->output_count; output++) {
				struct test_case one = all;
				struct difference difference;
				one.present &= ~case_outputs_of(&all) | UINT32_C(1) << output;
				case_normalise(&one);
				for (int i = 0; i < level_count(); i++) {
					case_run(
						context_of((struct setting){level_name(i), 1 + s % 3, PLAIN}),
						&one, &case_actual);
					EXPECT(outputs_equal(&case_expected, &case_actual, &difference),
					       "%s, level %s: %s", case_text(&one), level_name(i),
					       difference_text(&difference));
				}
			}
		}
}

TEST(streaming_on_and_off)
{
	static const struct shape shapes[] = {{3, 1}, {7, 65}, {3, 1000}, {40, 1024}, {33, 4099}, {2, 70001}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++)
			for (int variant = 0; variant < 4 && op_in_turn(k, s); variant++) {
				struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
				c.offset[0] = variant * 6; /* y, dx */
				c.pad[0] = variant == 2 ? 5 : 0;
				if (variant == 3)
					case_add(&c, "in_place");
				case_expect(&c);
				for (int i = 0; i < level_count(); i++) {
					case_check(&c, (struct setting){level_name(i), 1, STREAM_ALWAYS});
					case_check(&c, (struct setting){level_name(i), 3, STREAM_ALWAYS});
					case_check(&c, (struct setting){level_name(i), 1, STREAM_NEVER});
				}
			}
}

TEST(shapes_that_users_bring)
{
	static const struct shape small[] = {
		{1, 1},   {1, 17},    {1, 4095},  {1, 4097}, {1, 32767}, {1, 32768},  {1000, 1},
		{13, 13}, {17, 1023}, {4, 256},   {8, 511},  {9, 1032},  {4, 2048},   {1, 8192},
		{25, 16}, {39, 777},  {100, 200}, {7, 343},  {49, 49},   {256, 2048}, {343, 7}};
	static const struct shape large[] = {
		{200, 10000}, {1024, 512},  {1024, 1024}, {4096, 1280},  {2048, 1600},  {2048, 2048},
		{4000, 2000}, {1502, 4096}, {512, 12288}, {1024, 8192},  {8192, 1024},  {2048, 4096},
		{2048, 5120}, {2048, 6144}, {16384, 768}, {16384, 1024}, {12288, 2048}, {4096, 8192}};
	int count = test_mode == TEST_SHORT  ? 2
		    : test_mode == TEST_LONG ? COUNT_OF(large)
					     : COUNT_OF(large) - 2;
	for (int s = 0; s < COUNT_OF(small); s++)
		for (int k = 0; k < OPS; k++) {
			struct test_case c = op_case(k, small[s].rows, small[s].cols);
			if (op_in_turn(k, s) &&
			    (small[s].rows * small[s].cols < 100000 || (k / 4 + s) % DTYPE_PAIRS == 0))
				case_check_levels(&c);
		}
	for (int s = 0; s < count; s++)
		for (int k = 0; k < OPS; k++) {
			if (test_mode != TEST_LONG && k != (s * 11 + 1) % OPS) /* each op in turn */
				continue;
			struct test_case c = op_case(k, large[s].rows, large[s].cols);
			c.filling = s % 3 == 2 ? FILL_INTEGERS : FILL_NORMAL;
			case_expect(&c);
			for (int i = 0; i < level_count(); i++)
				case_check(&c, (struct setting){level_name(i), 1 + i % 3, PLAIN});
		}
}

TEST(special_values)
{
	sweep_special_values(case_check_levels, 1);
}

/* Each row alone, and in the middle of a batch of another size, has the bits it has in the whole. */
TEST(a_row_does_not_depend_on_the_rows_around_it)
{
	static const int64_t widths[] = {5, 64, 100, 1000, 1024, 2500};
	enum { ROWS = 33 };
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			if (!op_in_turn(k, w))
				continue;
			struct test_case c = op_case(k, ROWS, widths[w]);
			case_drop(&c, "dweight dbias dx_bias");
			c.group_cols = k % 3 == 1 && widths[w] % 5 == 0 ? widths[w] / 5 : 0;
			case_expect(&c);
			for (int i = 0; i < level_count(); i++) {
				ek_context *ctx = context_of((struct setting){level_name(i), 1, PLAIN});
				case_outputs(ctx, &c, &case_actual);
				for (int64_t r = 0, count; r < ROWS; r += count) {
					count = r < 20 ? 1 : 5;
					count = count < ROWS - r ? count : ROWS - r;
					union op_args args = case_args_in(&c, &case_actual);
					args_take_rows(case_op(&c), &args, r, count);
					EXPECT(mirror_call(ctx, case_op(&c), &args, 0) == EK_OK, "%s: %s",
					       case_text(&c), ek_error(ctx));
				}
				case_compare(&c, level_name(i), 1, &case_actual);
			}
		}
}

TEST(fillings_of_the_command_line)
{
	static const enum filling fillings[] = {FILL_ONES,     FILL_INTEGERS, FILL_OFFSET,
						FILL_DECIMALS, FILL_EXTREME,  FILL_NOT_FINITE};
	for (int f = 0; f < COUNT_OF(fillings); f++)
		for (int k = 0; k < OPS; k++) {
			if (!test_in_slice())
				continue;
			struct test_case c = op_case(k, 37, 515);
			c.filling = fillings[f];
			case_check_levels(&c);
		}
}

TEST(constant_rows_and_signs_of_zero)
{
	sweep_constant_rows_and_signs_of_zero(case_check_levels);
}

/* Whether an output of the reference is 0 or, of y, bias as it rounds to y's dtype. The sign of 0 is not compared. */
static void expect_all(const struct test_case *c, const char *name)
{
	const struct operand *o = EXPECTED(name), *bias = INPUT("bias");
	for (int64_t i = 0; o->present && i < o->rows * o->cols; i++) {
		uint64_t want = 0;
		if (strcmp(name, "y") == 0 && bias->present)
			element_store(c->dtype, &want, 0,
				      element_value(c->weight_dtype, bias->buffer.data, i % o->cols));
		double value = element_value(o->dtype, o->buffer.data, i),
		       wanted = element_value(o->dtype, &want, 0);
		EXPECT(value == wanted, "%s: %s[%lld] is %g, expected %g", case_text(c), name, (long long)i,
		       value, wanted);
	}
}

/* The variance is infinite: rstd is 0, y is bias, and no gradient goes through the row. */
TEST(rows_whose_squares_overflow_become_bias)
{
	static const int64_t widths[] = {2, 40, 768, 1500, 5000};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++)
			for (int given = 0; given < 2 && op_in_turn(k, w); given++) {
				struct test_case c = op_case(k, 5, widths[w]);
				if (c.op->in_forward.needs || c.activation || case_has(&c, "dh"))
					continue; /* of the norm alone */
				if (c.dtype == EK_F16 || (given && c.pass == FORWARD))
					continue; /* no sum of f16's squares overflows */
				c.filling = FILL_OVERFLOW;
				if (c.pass == BACKWARD && !given)
					case_drop(&c, STATISTICS);
				case_check_levels(&c);
				expect_all(&c, "rstd");
				expect_all(&c, "y");
				expect_all(&c, "dx");
				expect_all(&c, "dweight");
			}
}
