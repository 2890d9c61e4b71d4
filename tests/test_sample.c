/* Bits against the reference where axes meet: every pair of values of every two axes, and a seeded random
 * sample of all of them at once. Each axis alone is swept in test_bits.c. SPDX-License-Identifier: MIT */
#include "support.h"

enum axis { PASS, OP, DTYPES, CHOICES, ROWS, COLS, OFFSETS, PADS, FORM, FILLING, EPS, SETTING, AXES };
/* Of the choices of dtypes and options 0 is none, the others are drawn by the seed of the case. */
static const int values_of_axis[AXES] = {2, EK_NORM_OPS, DTYPE_PAIRS, 8, 9, 16, 6, 4, 11, 4, 3, 9};

static struct setting setting_at(int choice, const char *level)
{
	static const struct setting settings[] = {
		{0, 1, PLAIN},        {0, 2, PLAIN},         {0, 3, PLAIN},
		{0, 7, PLAIN},        {0, 1, STREAM_ALWAYS}, {0, 3, STREAM_ALWAYS},
		{0, 2, LOOP_REVERSE}, {0, 7, LOOP_SERIAL},   {0, 3, LOOP_THREADS}};
	struct setting setting = settings[choice];
	setting.level = level;
	return setting;
}

static struct test_case case_at(const int choice[AXES], uint64_t seed)
{
	static const int64_t rows[] = {1, 2, 3, 5, 8, 33, 70, 257, 1026};
	static const int64_t cols[] = {1,   2,   15,   16,   17,   31,   64,   255,
				       256, 257, 1000, 1023, 1024, 1025, 2049, 4100};
	static const double eps[] = {1e-5, 1e-6, 0};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_INTEGERS, FILL_OFFSET, FILL_SPECIAL};
	static const char *const forms[] = {
		"all",
		"dx",
		"dweight dbias rstd",
		"weight dx in_place rstd",
		"weight dx over_x dbias bias",
		"bias dx dweight accumulate",
		(STATISTICS " dx arbitrary dbias"),
		"weight rstd arbitrary dx dweight",
		"all all_in_place",
		"weight h x_bias h_over_residual dresidual_over_dh dresidual dx_bias",
		"h h_over_x dh dx dresidual dx_over_dh dresidual_over_dy rstd"};
	struct test_case c = case_make(&ek_ops[choice[OP]], choice[PASS] ? BACKWARD : FORWARD,
				       dtype_pairs[choice[DTYPES]], rows[choice[ROWS]], cols[choice[COLS]]);
	if (c.rows * c.cols > 60000) /* the reference's time */
		c.rows = 60000 / c.cols;
	for (int id = 0; id < case_op(&c)->operand_count; id++) {
		static const int offsets[] = {0, 1, 2, 4, 32, 63};
		static const int64_t pads[] = {0, 1, 32, 77};
		c.offset[id] = offsets[(choice[OFFSETS] + (choice[OFFSETS] > 1 ? id : 0)) % 6];
		c.pad[id] = pads[choice[PADS]];
	}
	c.filling = fillings[choice[FILLING]];
	c.eps = eps[choice[EPS]];
	c.seed = seed;
	if (choice[CHOICES])
		case_choose(&c, (int)(random_mixed(seed * 8 + (uint64_t)choice[CHOICES]) %
				      (uint64_t)case_choice_count(&c)));
	case_set(&c, forms[choice[FORM]]);
	return c;
}

static void check_choice(const int choice[AXES], uint64_t seed)
{
	struct test_case c = case_at(choice, seed);
	case_expect(&c);
	for (int i = 0; i < level_count(); i++)
		case_check(&c, setting_at(choice[SETTING], level_name(i)));
}

TEST(every_pair_of_values_of_two_axes)
{
	uint64_t state = test_seed();
	for (int a = 0; a < AXES; a++)
		for (int b = 0; b < a; b++)
			for (int va = 0; va < values_of_axis[a]; va++)
				for (int vb = 0; vb < values_of_axis[b]; vb++) {
					int choice[AXES];
					for (int axis = 0; axis < AXES; axis++)
						choice[axis] =
							(int)random_below(&state, values_of_axis[axis]);
					choice[a] = va;
					choice[b] = vb;
					if (test_sampled(1) && test_in_slice())
						check_choice(choice, random_bits(&state) % 1000);
				}
}

/* Every third case has the operands of a plain norm alone. */
static uint32_t plain_or_all(const struct test_case *c, uint64_t *state)
{
	const struct ek_named_operands *plain =
		c->pass == BACKWARD ? &ek_ops[0].in_backward : &ek_ops[0].in_forward;
	return c->op == &open_glu || random_below(state, 3) ? ~UINT32_C(0) : plain->has;
}

/* Anything that is allowed, with sizes and distances that nobody thought of. */
static struct test_case random_case(const struct ek_op_entry *op, uint64_t *state)
{
	static const double limits[] = {0, 0, 0.5, 2}, alphas[] = {0, 0, 1.702};
	struct test_case c = case_make(op, random_below(state, 2) ? BACKWARD : FORWARD,
				       dtype_pairs[random_below(state, DTYPE_PAIRS)], 1, 1);
	int64_t elements = INT64_C(1) << random_below(state, random_below(state, 20) == 0 ? 21 : 16);
	c.cols = 1 + random_below(state, elements);
	c.rows = random_below(state, elements / c.cols + 3);
	if (random_below(state, 3) == 0) {
		int64_t rows = c.rows;
		c.rows = c.cols;
		c.cols = rows > 0 ? rows : 1;
	}
	if (case_has_groups(&c) && random_below(state, 4) == 0) {
		int64_t groups = 1 + random_below(state, 9);
		c.group_cols = c.cols;
		c.cols *= groups;
		c.rows = c.rows / groups + 1;
	}
	c.present = (uint32_t)random_bits(state) & plain_or_all(&c, state);
	case_choose(&c, random_below(state, 3) ? (int)random_below(state, case_choice_count(&c)) : 0);
	c.accumulate = random_below(state, 2);
	c.arbitrary = random_below(state, 2);
	if (!case_set_over(&c, (int)random_below(state, 2 * case_op(&c)->operand_count)))
		(void)case_set_over(&c, 0);
	c.filling = (enum filling)random_below(state, 5);
	c.eps = (double)random_below(state, 4) * 1e-6;
	c.limit = limits[random_below(state, 4)];
	c.alpha = alphas[random_below(state, 3)];
	c.value_offset = (double)random_below(state, 2);
	c.seed = random_bits(state) % 100000;
	for (int id = 0; id < case_op(&c)->operand_count; id++) {
		c.offset[id] = random_below(state, 2) ? (int)random_below(state, 64) : 0;
		c.pad[id] = random_below(state, 2) ? random_below(state, 100) : 0;
	}
	case_normalise(&c);
	return c;
}

/* Norms, and every fourth a gated activation. */
TEST(random_cases)
{
	uint64_t state = test_seed();
	for (int64_t n = test_scaled(3300); n > 0; n--) {
		struct test_case c =
			random_case(n % 4 ? &open_ops[random_below(&state, OPEN_OPS)] : &open_glu, &state);
		int choice = (int)random_below(&state, values_of_axis[SETTING]);
		if (!test_in_slice())
			continue;
		case_expect(&c);
		for (int i = 0; i < level_count(); i++)
			case_check(&c, setting_at(choice, level_name(i)));
	}
}
