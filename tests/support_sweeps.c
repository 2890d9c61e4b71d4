/* The sweeps of support_sweeps.h. SPDX-License-Identifier: MIT */
#include "support_sweeps.h"

#include <string.h>

struct shape {
	int64_t rows, cols;
};

void sweep_widths(sweep_check *check, int64_t most, int64_t one_in)
{
	for (int64_t cols = 1; cols <= most; cols++)
		for (int k = 0; k < OPS; k++) {
			/* Tails and single registers are where kernels differ most. */
			if (!op_in_turn(k, cols) || (cols > 40 && !test_sampled(one_in)))
				continue;
			struct test_case c = op_case(k, 1 + (cols + k) % 4, cols);
			check(&c);
		}
}

void sweep_row_counts(sweep_check *check, int64_t one_in)
{
	static const int64_t widths[] = {3, 40, 300};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int64_t rows = 0; rows <= 70; rows++)
			for (int k = 0; k < OPS; k++) {
				if (!op_in_turn(k, rows) || (rows > 9 && !test_sampled(one_in)))
					continue;
				struct test_case c = op_case(k, rows, widths[w]);
				check(&c);
			}
}

void sweep_slots_and_chunks(sweep_check *check, int64_t most_cols, int64_t one_in)
{
	static const struct shape shapes[] = {
		{1023, 17},  {1024, 2},   {1025, 17},  {2047, 65},   {2048, 3},   {2049, 17},
		{2050, 33},  {4097, 17},  {40000, 1},  {40000, 2},   {33000, 5},  {65537, 3},
		{511, 1025}, {512, 1025}, {513, 1025}, {1026, 1030}, {255, 2049}, {257, 2049},
		{515, 2050}, {127, 4097}, {129, 4097}, {300, 4100}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			bool always =
				k == 4 * (s % DTYPE_PAIRS) + 1; /* LayerNorm's backward, each dtype in turn */
			if (shapes[s].cols > most_cols || !op_in_turn(k, s) ||
			    (!always && !test_sampled(one_in)))
				continue;
			struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
			check(&c);
		}
}

/* The case with these operands, in place and not, accumulating and not, with statistics of forward and arbitrary. */
static void check_form(sweep_check *check, struct test_case c, uint32_t present, int64_t one_in)
{
	c.present = present;
	for (int choice = 0; case_set_over(&c, choice >> 2); choice++) {
		struct test_case form = c;
		form.accumulate = choice & 1;
		form.arbitrary = choice >> 1 & 1;
		struct test_case allowed = form;
		case_normalise(&allowed);
		if (allowed.present != present || allowed.accumulate != form.accumulate ||
		    allowed.arbitrary != form.arbitrary ||
		    memcmp(allowed.over, form.over, sizeof form.over) != 0)
			continue;
		if (test_sampled(one_in))
			check(&form);
	}
}

void sweep_operand_forms(sweep_check *check, int64_t one_in)
{
	static const struct shape shapes[] = {{5, 1}, {5, 37}, {3, 515}, {40, 260}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			if (!test_in_slice())
				continue;
			struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
			uint32_t optional = case_optional(&c), absent = optional;
			/* Of the larger sets that ops with more operands have, about as many. */
			int64_t more = (INT64_C(1) << __builtin_popcount(optional)) / 64;
			do { /* every set of optional operands */
				check_form(check, c, c.present & ~absent,
					   one_in * (more > 0 ? more * more : 1));
				absent = (absent - 1) & optional;
			} while (absent != optional);
		}
}

void sweep_special_values(sweep_check *check, int64_t one_in)
{
	static const struct shape shapes[] = {{20, 1},    {1, 2},    {20, 3},    {1, 5},   {20, 16},
					      {1, 17},    {20, 64},  {20, 255},  {1, 256}, {20, 257},
					      {20, 1000}, {1, 1024}, {20, 1025}, {3, 3001}};
	static const char *const forms[] = {"all", "all arbitrary", "weight bias dx dweight dbias accumulate",
					    "dx dweight rstd arbitrary", "dx rstd"};
	static const double eps[] = {0, 1e-5, 1e-40};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++)
			for (int f = 0; f < COUNT_OF(forms) && op_in_turn(k, s); f++)
				/* fill_rows makes another kind of trouble of each row: one row needs many seeds */
				for (uint64_t seed = 0; seed < (shapes[s].rows == 1 ? 20 : 2); seed++) {
					if (seed > 0 && !test_sampled(one_in))
						continue;
					struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
					c.filling = FILL_SPECIAL;
					c.eps = eps[seed % COUNT_OF(eps)];
					c.seed = seed;
					case_set(&c, forms[f]);
					check(&c);
				}
}

static void check_constants(sweep_check *check, int64_t cols, bool given)
{
	for (int k = 0; k < OPS; k++) {
		if (!op_in_turn(k, cols))
			continue;
		struct test_case c = op_case(k, 100, cols);
		c.filling = FILL_CONSTANT;
		case_drop(&c, given ? "" : STATISTICS);
		check(&c);
	}
}

static void check_clamped(sweep_check *check, int64_t cols)
{
	for (int k = 0; k < 2; k++) {
		struct test_case c = op_case(k, 300, cols);
		c.filling = FILL_CLAMP;
		c.eps = 0;
		case_drop(&c, k ? STATISTICS : "");
		check(&c);
	}
}

static void check_underflow(sweep_check *check, int64_t cols, bool given)
{
	for (int k = 0; k < OPS; k++) {
		if (!op_in_turn(k, cols))
			continue;
		struct test_case c = op_case(k, 3, cols);
		c.filling = FILL_UNDERFLOW;
		case_set(&c, given ? "dx dweight dbias bias rstd arbitrary" : "dx dweight dbias bias weight");
		check(&c);
	}
}

void sweep_constant_rows_and_signs_of_zero(sweep_check *check)
{
	static const int64_t odd[] = {3, 5, 7, 10, 100, 769, 1000};
	for (int w = 0; w < COUNT_OF(odd); w++) {
		check_constants(check, odd[w], w % 2 == 0);
		check_clamped(check, odd[w]);
	}
	for (int64_t cols = 1; cols <= 1024; cols = cols < 256 ? cols * 2 : cols + 256)
		for (int given = 0; given < 2; given++)
			check_underflow(check, cols, given);
}

/* One operand with gaps, all with others each, and in place. */
static void check_strides(sweep_check *check, const struct test_case *dense, int64_t pad, int64_t one_in)
{
	const struct ek_op *op = case_op(dense);
	struct test_case all = *dense, in_place = *dense;
	for (int i = 0; i < op->operand_count; i++) {
		struct test_case c = *dense;
		if (op->operands[i].rank < 2)
			continue;
		c.pad[i] = in_place.pad[i] = pad;
		all.pad[i] = pad + i;
		if (test_sampled(one_in))
			check(&c);
	}
	case_add(&in_place, "in_place");
	if (test_sampled(one_in))
		check(&all);
	if (test_sampled(one_in))
		check(&in_place);
}

void sweep_strides(sweep_check *check, int64_t one_in)
{
	static const int64_t pads[] = {1, 2, 3, 7, 8, 16, 61, 64, 1000, 4096};
	static const int64_t widths[] = {1, 13, 64, 100, 513};
	for (int k = 0; k < OPS; k++)
		for (int w = 0; w < COUNT_OF(widths); w++)
			for (int p = 0; p < COUNT_OF(pads) && op_in_turn(k, w); p++) {
				struct test_case c = op_case(k, 6, widths[w]);
				check_strides(check, &c, pads[p], one_in);
			}
}

void sweep_choices(sweep_check *check, int64_t one_in)
{
	static const struct shape shapes[] = {{5, 37}, {3, 1500}, {1, 3}, {40, 260}};
	static const char *const forms[] = {"all",
					    "x_bias weight dx_bias dx mean rstd mean_lo",
					    "residual weight bias h dh dx dresidual dy rstd",
					    "residual x_bias dh dresidual dweight dx_bias accumulate",
					    "weight dy dweight dx all_in_place",
					    "residual h dh dresidual h_over_x dx dresidual_over_dh"};
	int turn = 0;
	for (int k = 0; k < OPEN_OPS * PASS_COUNT * DTYPE_PAIRS; k++)
		for (int f = 0; f < COUNT_OF(forms); f++) {
			struct test_case c = case_make(&open_ops[k % OPEN_OPS],
						       k / OPEN_OPS % PASS_COUNT ? BACKWARD : FORWARD,
						       dtype_pairs[k / OPEN_OPS / PASS_COUNT], 1, 1);
			for (int choice = 0; choice < case_choice_count(&c); choice++) {
				struct test_case chosen = c;
				const struct shape *shape = &shapes[turn++ % COUNT_OF(shapes)];
				chosen.rows = shape->rows, chosen.cols = shape->cols;
				chosen.seed = (uint64_t)turn;
				case_choose(&chosen, choice);
				case_set(&chosen, forms[f]);
				if (test_sampled(one_in) && test_in_slice())
					check(&chosen);
			}
		}
}

/* Groups of a column, of part of a register, of whole and of odd segments, and all of a row; ops and choices in turn. */
void sweep_groups(sweep_check *check, int64_t one_in)
{
	static const struct {
		struct shape shape;
		int64_t group_cols;
	} groups[] = {{{5, 12}, 1},        {{3, 40}, 5},     {{7, 96}, 32},     {{4, 512}, 64},
		      {{3, 130}, 65},      {{2, 2100}, 700}, {{33, 768}, 256},  {{2, 6144}, 2048},
		      {{1027, 6}, 3},      {{40, 260}, 26},  {{3, 77}, 77},     {{3, 9000}, 4500},
		      {{2, 20480}, 10240}, {{0, 24}, 8},     {{515, 2050}, 205}};
	static const char *const forms[] = {"all", "all all_in_place",
					    "dweight dbias dx rstd weight arbitrary",
					    "residual x_bias h dh dx dresidual dx_bias accumulate"};
	for (int s = 0; s < COUNT_OF(groups); s++)
		for (int k = 0; k < OPS + OPEN_OPS * PASS_COUNT * DTYPE_PAIRS; k++) {
			struct shape shape = groups[s].shape;
			struct test_case c = op_case(k % OPS, shape.rows, shape.cols);
			if (k >= OPS) {
				int open = k - OPS;
				c = case_make(&open_ops[open % OPEN_OPS],
					      open / OPEN_OPS % PASS_COUNT ? BACKWARD : FORWARD,
					      dtype_pairs[open / OPEN_OPS / PASS_COUNT], shape.rows,
					      shape.cols);
				case_choose(&c, (int)(random_mixed((uint64_t)(s * 1000 + k)) %
						      (uint64_t)case_choice_count(&c)));
				case_set(&c, forms[(s + k) % COUNT_OF(forms)]);
			}
			c.group_cols = groups[s].group_cols;
			for (int i = 0; i < case_op(&c)->operand_count; i++)
				c.pad[i] = (s + k) % 3 == 1 ? 5 + i : 0;
			if (c.rows * c.cols > 100000 && k % 7)
				continue;
			bool always = k % 5 == s % 5;
			if (op_in_turn(k, s) && (always || test_sampled(one_in)))
				check(&c);
		}
}
