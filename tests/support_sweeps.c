/* The sweeps of support_sweeps.h. SPDX-License-Identifier: MIT */
#include "support_sweeps.h"

struct shape {
	int64_t rows, cols;
};

struct norm_case op_case(int k, int64_t rows, int64_t cols)
{
	struct norm_case c =
		case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM, dtype_pairs[k / 4], rows, cols);
	c.seed = (uint64_t)(k + 100 * rows + 7919 * cols);
	return c;
}

void sweep_widths(sweep_check *check, int64_t most, int64_t one_in)
{
	for (int64_t cols = 1; cols <= most; cols++)
		for (int k = 0; k < OPS; k++) {
			/* Tails and single registers are where kernels differ most. */
			if (cols > 40 && !test_sampled(one_in))
				continue;
			struct norm_case c = op_case(k, 1 + (cols + k) % 4, cols);
			check(&c);
		}
}

void sweep_row_counts(sweep_check *check, int64_t one_in)
{
	static const int64_t widths[] = {3, 40, 300};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int64_t rows = 0; rows <= 70; rows++)
			for (int k = 0; k < OPS; k++) {
				if (rows > 9 && !test_sampled(one_in))
					continue;
				struct norm_case c = op_case(k, rows, widths[w]);
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
			if (shapes[s].cols > most_cols || (!always && !test_sampled(one_in)))
				continue;
			struct norm_case c = op_case(k, shapes[s].rows, shapes[s].cols);
			check(&c);
		}
}

static const unsigned form_bits[2][9] = {
	{FORM_WEIGHT, FORM_BIAS, FORM_MEAN, FORM_RSTD, FORM_MEAN_LO, FORM_IN_PLACE},
	{FORM_WEIGHT, FORM_RSTD, FORM_MEAN_LO, FORM_DX, FORM_DWEIGHT, FORM_DBIAS, FORM_ACCUMULATE,
	 FORM_ARBITRARY, FORM_IN_PLACE}};

static void check_form(sweep_check *check, struct norm_case c, unsigned set)
{
	c.form = 0;
	for (int bit = 0; bit < 9; bit++)
		c.form |= set >> bit & 1 ? form_bits[c.backward][bit] : 0;
	case_normalise(&c);
	check(&c);
	if (c.backward && c.form & FORM_IN_PLACE) {
		c.form ^= FORM_IN_PLACE | FORM_OVER_X;
		check(&c);
	}
}

void sweep_operand_forms(sweep_check *check, int64_t one_in)
{
	static const struct shape shapes[] = {{5, 1}, {5, 37}, {3, 515}, {40, 260}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++)
			for (unsigned set = 0; set < (k & 1 ? 512u : 64u); set++)
				if (test_sampled(one_in))
					check_form(check, op_case(k, shapes[s].rows, shapes[s].cols), set);
}

void sweep_special_values(sweep_check *check, int64_t one_in)
{
	static const struct shape shapes[] = {{20, 1},    {1, 2},    {20, 3},    {1, 5},   {20, 16},
					      {1, 17},    {20, 64},  {20, 255},  {1, 256}, {20, 257},
					      {20, 1000}, {1, 1024}, {20, 1025}, {3, 3001}};
	static const unsigned forms[] = {
		FORM_FORWARD | FORM_BACKWARD, FORM_FORWARD | FORM_BACKWARD | FORM_ARBITRARY,
		FORM_WEIGHT | FORM_BIAS | FORM_DX | FORM_DWEIGHT | FORM_DBIAS | FORM_ACCUMULATE,
		FORM_DX | FORM_DWEIGHT | FORM_RSTD | FORM_ARBITRARY, FORM_DX | FORM_RSTD};
	static const double eps[] = {0, 1e-5, 1e-40};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++)
			for (int f = 0; f < COUNT_OF(forms); f++)
				/* fill_rows makes another kind of trouble of each row: one row needs many seeds */
				for (uint64_t seed = 0; seed < (shapes[s].rows == 1 ? 20 : 2); seed++) {
					if (seed > 0 && !test_sampled(one_in))
						continue;
					struct norm_case c = op_case(k, shapes[s].rows, shapes[s].cols);
					c.filling = FILL_SPECIAL;
					c.form = forms[f];
					c.eps = eps[seed % COUNT_OF(eps)];
					c.seed = seed;
					case_normalise(&c);
					check(&c);
				}
}

static void check_constants(sweep_check *check, int64_t cols, bool given)
{
	for (int k = 0; k < OPS; k++) {
		struct norm_case c = op_case(k, 100, cols);
		c.filling = FILL_CONSTANT;
		c.form &= given ? ~0u : ~(unsigned)FORM_STATS;
		check(&c);
	}
}

static void check_clamped(sweep_check *check, int64_t cols)
{
	for (int k = 0; k < 2; k++) {
		struct norm_case c = op_case(k, 300, cols);
		c.filling = FILL_CLAMP;
		c.eps = 0;
		c.form &= k ? ~(unsigned)FORM_STATS : ~0u;
		check(&c);
	}
}

static void check_underflow(sweep_check *check, int64_t cols, bool given)
{
	for (int k = 0; k < OPS; k++) {
		struct norm_case c = op_case(k, 3, cols);
		c.filling = FILL_UNDERFLOW;
		c.form = FORM_DX | FORM_DWEIGHT | FORM_DBIAS | FORM_BIAS |
			 (given ? FORM_RSTD | FORM_ARBITRARY : FORM_WEIGHT);
		case_normalise(&c);
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

void sweep_strides(sweep_check *check, int64_t one_in)
{
	static const int64_t pads[] = {1, 2, 3, 7, 8, 16, 61, 64, 1000, 4096};
	static const int64_t widths[] = {1, 13, 64, 100, 513};
	static const enum operand_id padded[] = {X, DY, Y, DX};
	for (int k = 0; k < OPS; k++)
		for (int w = 0; w < COUNT_OF(widths); w++)
			for (int p = 0; p < COUNT_OF(pads); p++) {
				struct norm_case all = op_case(k, 6, widths[w]), in_place = all;
				for (int i = 0; i < COUNT_OF(padded); i++) {
					struct norm_case c = op_case(k, 6, widths[w]);
					c.pad[padded[i]] = pads[p];
					all.pad[padded[i]] = pads[p] + i;
					in_place.pad[padded[i]] = pads[p];
					if (test_sampled(one_in))
						check(&c);
				}
				in_place.form |= FORM_IN_PLACE;
				if (test_sampled(one_in))
					check(&all);
				if (test_sampled(one_in))
					check(&in_place);
			}
}
