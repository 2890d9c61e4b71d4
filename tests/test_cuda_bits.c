/* The CUDA backend's bits against the reference's, on GPUs that are not there (tests/standin/): every row of every
 * policy table at its first and its last width, operand forms in pairs, counts of rows around slots and chunks, GPUs
 * with and without clusters, rows on their own, and buffers that end where their memory ends.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/order.h"
#include "core/slots.h"
#include "gpu/gpu.h"
#include "support_fpenv.h"
#include "support_models.h"
#include "support_recipe.h"
#include "verify/memory.h"
#include "verify/mirror.h"

/* ---- policies ---- */

struct sweep {
	struct model model;
	bool backward;
	ek_dtype dtype; /* its size counts */
	int access;
	bool residual; /* with every operand beside the norm */
};

static struct ek_norm_policy policy_at(const struct sweep *s, int64_t cols)
{
	const struct ek_gpu *gpu = gpu_of(context_on(s->model));
	struct ek_norm_policy policy =
		policy_with(s->backward, s->residual, s->dtype, cols, s->access, &gpu->limits);
	int64_t held = policy.warp_segments * SEGMENT;
	if (policy.unit_segments == 0 && policy.row_warps == (cols + held - 1) / held)
		policy.row_warps = 0; /* one row of a table, whatever the width */
	return policy;
}

static bool same_policy(const struct ek_norm_policy *a, const struct ek_norm_policy *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Whether the sweep has this policy for the first time, on any GPU. */
static bool is_new_policy(struct sweep s, const struct ek_norm_policy *policy)
{
	static struct {
		struct sweep sweep;
		struct ek_norm_policy policy;
	} seen[512];
	static int count;
	/* staged.cu does not shift, and long mode alone sees each policy both shifted and by elements */
	if (s.access == ACCESS_SHIFTED && (policy->unit_segments > 0 || test_mode != TEST_LONG))
		s.access = ACCESS_ELEMENTS;
	for (int i = 0; i < count; i++)
		if (seen[i].sweep.backward == s.backward && seen[i].sweep.dtype == s.dtype &&
		    seen[i].sweep.residual == s.residual && seen[i].sweep.access == s.access &&
		    same_policy(&seen[i].policy, policy))
			return false;
	if (count == COUNT_OF(seen)) {
		test_fail("there are over %d policies", count);
		return false;
	}
	seen[count].sweep = s;
	seen[count++].policy = *policy;
	return true;
}

/* The sweep that goes furthest: the others find mostly what it has found. */
static bool is_main(const struct sweep *s)
{
	return s->access == ACCESS_QUADS && s->model.arch == h200.arch;
}

/* Where few rows have a kernel of their own, those of the case are too many for a GPU of one multiprocessor. */
static void check_on_both(const struct sweep *s, const struct test_case *c)
{
	const struct ek_norm_form form = {.norm = c->op->kind,
					  .dtype = c->dtype,
					  .weight_dtype = c->weight_dtype,
					  .cols = c->cols,
					  .access = s->access,
					  .tensors = 1 + s->residual};
	struct ek_norm_policy few;
	check_on(s->model, c);
	if (!s->backward && ek_forward_few_policy(&form, &few))
		check_on((struct model){s->model.arch, 1}, c);
}

/* All operands, with choices that keep the dtype in which rows are held: 1 + weight, gradients in f32. */
static void add_neighbours(struct test_case *c)
{
	uint64_t seed = c->seed;
	*c = case_make(&open_ops[c->op->kind == EK_RMS_NORM], c->pass,
		       (struct dtype_pair){c->dtype, c->weight_dtype}, c->rows, c->cols);
	c->seed = seed;
	c->weight_offset = (int)(seed % 2);
	c->gradient_dtype = EK_F32;
	case_drop(c, c->pass == BACKWARD ? "x_bias" : "");
	case_normalise(c);
}

/* In long mode all dtypes of the size and both norms, else they take turns. */
static void check_width(const struct sweep *s, int64_t cols)
{
	static int turn;
	const bool all = test_mode == TEST_LONG && is_main(s), half = ek_dtype_size(s->dtype) == 2;
	for (int d = 0, n = 0; d < DTYPE_PAIRS; d++) {
		if (ek_dtype_size(dtype_pairs[d].dtype) != ek_dtype_size(s->dtype))
			continue;
		if (!all && half && n++ != turn / 2 % 4)
			continue;
		for (int norm = 0; norm < 2; norm++) {
			struct test_case c =
				case_for(s->backward, norm, dtype_pairs[d], rows_for(cols), cols);
			if (s->residual)
				add_neighbours(&c);
			case_lay_out(&c, s->access, (turn / 2 + turn / 8) % 4);
			if (all || norm == turn % 2)
				check_on_both(s, &c);
		}
	}
	turn++;
}

static int64_t widest(const struct sweep *s)
{
	if (test_mode == TEST_LONG)
		return is_main(s) ? 1100000 : 300000;
	return test_mode == TEST_SHORT ? 20000 : is_main(s) ? 300000 : 40000;
}

/* The first and the last width of a row of the tables; where it is one of many alike, they take turns. */
static void check_ends(const struct sweep *s, const struct ek_norm_policy *policy, int64_t first,
		       int64_t last)
{
	static int turn;
	bool many = !is_main(s) || policy->unit_segments > 0 || policy->row_threads < 32;
	bool both = test_mode == TEST_LONG || (test_mode == TEST_DEFAULT && !many);
	if (last > widest(s))
		last = first;
	turn++;
	if (test_mode == TEST_SHORT && turn % (s->access == ACCESS_QUADS ? 3 : 5) > 0)
		return;
	if (both || turn % 2 == 0)
		check_width(s, first);
	if (both ? last > first : turn % 2 == 1)
		check_width(s, last);
}

static void sweep_policies(const struct sweep *s)
{
	int64_t cols = 1;
	struct ek_norm_policy policy = policy_at(s, cols);
	for (int64_t first = 1; first <= widest(s);) {
		int64_t next = next_end(cols - 1) + 1;
		struct ek_norm_policy after = policy_at(s, next < EK_MAX_COLS ? next : EK_MAX_COLS);
		cols = next;
		if (cols <= EK_MAX_COLS && same_policy(&policy, &after))
			continue;
		if (is_new_policy(*s, &policy))
			check_ends(s, &policy, first, cols - 1);
		policy = after;
		first = cols;
	}
}

static void sweep_access(int access)
{
	static const ek_dtype sizes[] = {EK_BF16, EK_F32, EK_F64};
	bool all = test_mode == TEST_LONG || (test_mode == TEST_DEFAULT && access == ACCESS_QUADS);
	int count = all ? MODELS : 1;
	for (int m = 0; m < count; m++)
		for (int k = 0; k < 2 * COUNT_OF(sizes); k++)
			sweep_policies(&(struct sweep){models[m], k % 2, sizes[k / 2], access, false});
}

TEST(every_policy_of_aligned_rows)
{
	sweep_access(ACCESS_QUADS);
}

/* In registers, in clusters, staged: rows that come from two tensors or three. */
TEST(every_policy_with_a_residual)
{
	static const ek_dtype sizes[] = {EK_BF16, EK_F32, EK_F64};
	int count = test_mode == TEST_LONG ? MODELS : 1;
	for (int m = 0; m < count; m++)
		for (int k = 0; k < 2 * COUNT_OF(sizes); k++)
			sweep_policies(&(struct sweep){.model = models[m],
						       .backward = k % 2,
						       .dtype = sizes[k / 2],
						       .access = ACCESS_QUADS,
						       .residual = true});
}

TEST(every_policy_of_shifted_rows)
{
	sweep_access(ACCESS_SHIFTED);
}

TEST(every_policy_of_rows_by_elements)
{
	sweep_access(ACCESS_ELEMENTS);
}

/* Widths that are nobody's border. */
TEST(widths_between)
{
	static const int64_t widths[] = {2,    7,     31,    63,    65,     127,    255,
					 256,  257,   511,   1000,  1023,   2047,   3333,
					 8191, 16383, 40000, 70001, 131071, 300000, 1000001};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			bool chosen = w * 5 % (2 * DTYPE_PAIRS) == k / 2 % (2 * DTYPE_PAIRS);
			if (widths[w] > SEGMENT && (w & 1) != (k & 1)) /* narrow rows have both passes */
				chosen = false;
			if (test_mode == TEST_SHORT && (w % 4 > 0 || widths[w] > 10000))
				continue;
			struct test_case c = op_case(k, rows_for(widths[w]), widths[w]);
			if (chosen || test_mode == TEST_LONG)
				check_on(h200, &c);
		}
	for (int k = 0; k < 2 && test_mode == TEST_LONG; k++) { /* the widest: over 256 units */
		struct test_case c = case_for(k, k, dtype_pairs[2 * k], 1, EK_MAX_COLS - 5);
		check_on(h200, &c);
	}
}

/* ---- operand forms in pairs ---- */

enum { MOST_VALUES = 10 };
enum axis {
	NORM,
	DTYPES,
	NEIGHBOURS, /* operands beside the norm */
	TYPES,      /* dtypes that a call chooses */
	FLAVOUR,    /* its options */
	ROWS,
	COLS,
	FILLING,
	EPS,
	GPU,
	ACCESS,
	LAYOUT,
	PLACE,
	WEIGHTS,
	GIVEN,
	GRADIENTS,
	AT_WEIGHT, /* where it starts, and so on */
	AT_BIAS,
	AT_STATISTICS,
	AT_GRADIENTS,
	AXES
};

/* A list of cases in which every two values of two axes meet, made one by one. */
struct pairs {
	const int *values; /* of each axis */
	bool met[AXES][MOST_VALUES][AXES][MOST_VALUES];
	uint64_t random;
};

/* How many new pairs a value makes with those chosen; -1 is not chosen yet. */
static int pairs_gained(const struct pairs *pairs, const int choice[AXES], int axis, int value)
{
	int gained = 0;
	for (int other = 0; other < AXES; other++)
		if (other != axis && choice[other] >= 0)
			gained += !pairs->met[axis][value][other][choice[other]];
	return gained;
}

static bool choose_new_pair(const struct pairs *pairs, int choice[AXES])
{
	for (int a = 0; a < AXES; a++)
		for (int b = 0; b < a; b++)
			for (int v = 0; v < pairs->values[a] * pairs->values[b]; v++) {
				choice[a] = v % pairs->values[a];
				choice[b] = v / pairs->values[a];
				if (!pairs->met[a][choice[a]][b][choice[b]])
					return true;
				choice[a] = choice[b] = -1;
			}
	return false;
}

static int best_value(struct pairs *pairs, const int choice[AXES], int axis)
{
	int start = (int)random_below(&pairs->random, pairs->values[axis]), best = start;
	for (int i = 1; i < pairs->values[axis]; i++) {
		int value = (start + i) % pairs->values[axis];
		if (pairs_gained(pairs, choice, axis, value) > pairs_gained(pairs, choice, axis, best))
			best = value;
	}
	return best;
}

/* false: all pairs have met. */
static bool next_choice(struct pairs *pairs, int choice[AXES])
{
	for (int a = 0; a < AXES; a++)
		choice[a] = -1;
	if (!choose_new_pair(pairs, choice))
		return false;
	for (int a = 0; a < AXES; a++)
		if (choice[a] < 0)
			choice[a] = best_value(pairs, choice, a);
	for (int a = 0; a < AXES; a++)
		for (int b = 0; b < AXES; b++)
			pairs->met[a][choice[a]][b][choice[b]] = true;
	return true;
}

enum { NEIGHBOUR_FORMS = 10 };

static void set_form(struct test_case *c, const int choice[AXES])
{
	static const char *const returned[] = {"", STATISTICS, "rstd", "mean", "mean_lo rstd"};
	static const char *const given[] = {"", "rstd", STATISTICS, "rstd arbitrary",
					    (STATISTICS " arbitrary")};
	static const char *const places[] = {"", "in_place", "over_x", "all_in_place"};
	/* Half of them are none: the plain kernels have the most ways to differ. */
	static const char *const neighbours[NEIGHBOUR_FORMS] = {"", "residual h dh",
								"", "x_bias dx_bias",
								"", "residual h x_bias dh dresidual dx_bias",
								"", "residual dh dresidual",
								"", "gate dgate bias"};
	int gradients = choice[GRADIENTS] + 1;
	bool no_dy = c->pass == BACKWARD && choice[NEIGHBOURS] % 2 == 1 && choice[GRADIENTS] == 0;
	char words[160];
	(void)snprintf(words, sizeof words, "%s %s %s %s %s %s %s %s %s",
		       (c->pass == BACKWARD ? given : returned)[choice[GIVEN]],
		       choice[WEIGHTS] & 1 ? "weight" : "", choice[WEIGHTS] & 2 ? "bias accumulate" : "",
		       gradients & 1 ? "dx" : "", gradients & 2 ? "dweight" : "",
		       gradients & 4 ? "dbias" : "", places[choice[PLACE]], neighbours[choice[NEIGHBOURS]],
		       no_dy ? "" : "dy");
	case_set(c, words);
}

/* Bytes past a multiple of 64: aligned, by an element, by 16 bytes and one, and where ACCESS allows it odd. */
static int offset_at(int choice, int element, bool odd)
{
	return choice == 0 ? 0 : choice == 1 ? element : choice == 2 ? 16 + element : odd ? 3 : 48;
}

/* Every other value of the axes is the default. */
static void choose(struct test_case *c, int types, int flavour)
{
	static const ek_dtype wider[] = {EK_F32, EK_F32, EK_F16, EK_BF16};
	if (types % 2) {
		c->h_dtype = types & 2 ? EK_F32 : (ek_dtype)0;
		c->y_dtype = wider[types / 2 % 4];
		c->gradient_dtype = types & 4 ? EK_F32 : (ek_dtype)0;
	}
	c->weight_offset = flavour == 1 || flavour == 3;
	c->rounding = flavour >= 2;
	c->activation = types / 2 % 2 ? 1 + (types + flavour) % EK_GELU_TANH : EK_NO_ACTIVATION;
	case_normalise(c);
}

static struct test_case case_at(bool backward, const int choice[AXES], uint64_t seed)
{
	static const int64_t rows[] = {1, 2, 5, 33}, cols[] = {8, 100, 300, 2050, 9000, 20000};
	static const enum filling fillings[] = {FILL_NORMAL,   FILL_SPECIAL, FILL_OFFSET,
						FILL_CONSTANT, FILL_CLAMP,   FILL_UNDERFLOW};
	static const double eps[] = {1e-5, 0, 1e-40};
	struct test_case c = case_make(&open_ops[choice[NORM]], backward ? BACKWARD : FORWARD,
				       dtype_pairs[choice[DTYPES]], rows[choice[ROWS]], cols[choice[COLS]]);
	static const struct {
		const char *name;
		enum axis axis;
		int more;
	} places[] = {
		{"weight", AT_WEIGHT, 0},   {"bias", AT_BIAS, 0},          {"mean", AT_STATISTICS, 0},
		{"rstd", AT_STATISTICS, 1}, {"mean_lo", AT_STATISTICS, 2}, {"dweight", AT_GRADIENTS, 0},
		{"dbias", AT_GRADIENTS, 2}, {"x_bias", AT_WEIGHT, 1},      {"dx_bias", AT_GRADIENTS, 1}};
	bool odd = choice[ACCESS] == ACCESS_ELEMENTS;
	c.rows = c.cols > 4000 && c.rows > 5 ? 7 : c.rows;
	choose(&c, choice[TYPES], choice[FLAVOUR]);
	if (choice[NEIGHBOURS] == NEIGHBOUR_FORMS - 1 && !c.activation)
		c.activation = EK_SILU;
	set_form(&c, choice);
	c.gate_first = case_has(&c, "gate") && choice[FLAVOUR] % 2;
	case_normalise(&c);
	c.filling = fillings[choice[FILLING]];
	c.eps = eps[choice[EPS]];
	c.seed = seed;
	case_lay_out(&c, (int)choice[ACCESS], choice[LAYOUT]);
	for (int i = 0; i < case_op(&c)->operand_count; i++) {
		const char *name = case_op(&c)->operands[i].name;
		for (int k = 0; k < COUNT_OF(places); k++)
			if (strcmp(name, places[k].name) == 0)
				c.offset[i] = offset_at((choice[places[k].axis] + places[k].more) % 4,
							(int)ek_dtype_size(operand_dtype(&c, i)), odd);
	}
	return c;
}

static void check_pairs(bool backward, const int values[AXES], uint64_t seed)
{
	static const struct model two[] = {{90, 132}, {120, 20}};
	static struct pairs pairs;
	int choice[AXES], number = 0;
	pairs = (struct pairs){.values = values, .random = seed};
	while (next_choice(&pairs, choice)) {
		struct test_case c = case_at(backward, choice, random_bits(&pairs.random) % 1000);
		if (number++ % 12 == 0 || test_mode != TEST_SHORT)
			check_on(two[choice[GPU]], &c);
	}
}

TEST(operand_forms_in_pairs)
{
	static const int forward[AXES] = {
		2, DTYPE_PAIRS, NEIGHBOUR_FORMS, 8, 4, 4, 6, 6, 3, 2, 4, 4, 4, 4, 5, 1, 4, 4, 4, 1};
	static const int backward[AXES] = {
		2, DTYPE_PAIRS, NEIGHBOUR_FORMS, 8, 4, 4, 6, 6, 3, 2, 4, 4, 4, 4, 5, 7, 4, 1, 4, 4};
	for (uint64_t seed = 1; seed <= (test_mode == TEST_LONG ? 4 : 1); seed++) {
		check_pairs(false, forward, seed);
		check_pairs(true, backward, seed);
	}
}

/* Without clusters, rows of 9217 to 16384 16-bit columns fit into registers unless they are shifted, which takes
 * shared memory: staged.cu serves those and reads them element by element. */
TEST(rows_that_fit_into_registers_unless_shifted)
{
	static const int64_t widths[] = {9217, 10001, 16384};
	for (int w = 0; w < COUNT_OF(widths); w++) {
		struct test_case c = case_for(true, w % 2, dtype_pairs[1 + w], 2, widths[w]);
		case_lay_out(&c, ACCESS_SHIFTED, w);
		if (w == 1 || test_mode != TEST_SHORT)
			check_on((struct model){86, 20}, &c);
	}
}

/* ---- counts of rows ---- */

struct shape {
	int64_t rows, cols;
};

/* From none to several slots a block and a last block that is not full. */
TEST(row_counts)
{
	static const int64_t counts[] = {0, 1, 2, 3, 5, 33, 65, 200}, widths[] = {12, 520, 1500};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			if (test_mode != TEST_LONG && (k / 4 + (k >> 1 & 1) + w) % 3 > 0)
				continue;
			if (test_mode == TEST_SHORT && w != k % PLAIN_OPS / 8)
				continue;
			for (int r = 0; r < COUNT_OF(counts); r++) {
				struct test_case c = op_case(k, counts[r], widths[w]);
				check_on(h200, &c);
				case_add(&c, "accumulate");
				if (k & 1 && r < 3)
					check_on(h200, &c);
			}
		}
}

/* Slots of one row, of several, and of over 32: then they are added in chunks. */
TEST(slots_and_chunks)
{
	static const int64_t slots[] = {2, 3, CHUNK_ROWS, CHUNK_ROWS + 1, 2 * CHUNK_ROWS + 1};
	static const int64_t widths[] = {3, 8, 40, 8, 1};
	static const int dtypes[] = {0, 2, 4};
	for (int i = 0; i < COUNT_OF(slots); i++)
		for (int d = 0; d < COUNT_OF(dtypes); d++)
			for (int norm = 0; norm < 2; norm++) {
				if (test_mode != TEST_LONG && ((i + d) % 2 != norm || d == i % 3))
					continue;
				if (test_mode == TEST_SHORT && i % 3 > 0)
					continue;
				struct test_case c = case_for(true, norm, dtype_pairs[dtypes[d]],
							      rows_of_slots(widths[i], slots[i]), widths[i]);
				check_on(h200, &c);
			}
}

/* Over 128 partial sums are folded twice: of staged.cu, and where little shared memory leaves a block few slots. */
TEST(two_folding_steps)
{
	static const struct model small = {86, 20};
	static const struct dtype_pair f64 = {EK_F64, EK_F64}, f32 = {EK_F32, EK_F32};
	static const struct shape shapes[] = {{128, 8}, {129, 8}, {1000, 8}, {2049, 8}};
	for (int i = 0; i < COUNT_OF(shapes); i++)
		for (int norm = 0; norm < 2; norm++) {
			struct test_case c = case_for(true, norm, f64, shapes[i].rows, shapes[i].cols);
			if (test_mode == TEST_LONG || (i % 2 == norm && (i == 1 || test_mode != TEST_SHORT)))
				check_on(h200, &c);
		}
	struct test_case c = case_for(true, 0, f32, 1100, 700);
	check_on(small, &c);
}

/* Chunks of staged.cu, and where a slot needs more threads than a warp, which takes many elements. */
TEST(chunks_of_other_kernels)
{
	static const int64_t widths[] = {1, 16385, 2049, 1025, 4097, 8193, 32769, 65537};
	int count = test_mode == TEST_LONG ? COUNT_OF(widths) : test_mode == TEST_DEFAULT ? 2 : 0;
	for (int i = 0; i < count; i++) {
		struct test_case c = case_for(true, i % 2, dtype_pairs[i == 0 ? 3 : (i + 1) % 3],
					      rows_of_slots(widths[i], CHUNK_ROWS + 1), widths[i]);
		check_on(h200, &c);
		if (i == 1) /* with so little shared memory that the chunks' sums are in the workspace */
			check_on((struct model){120, 20}, &c);
	}
}

/* ---- rows of staged.cu ---- */

/* Every way to pass over rows that shared memory holds in part: once, and several times to and fro. */
TEST(rows_that_shared_memory_holds_in_part)
{
	static const struct model small = {80, 108}; /* 163 KiB and no clusters */
	static const char *const backward[] = {"weight dx dweight dbias " STATISTICS,
					       "weight dx in_place " STATISTICS, "weight dx over_x",
					       "weight dx dweight in_place"};
	static const struct {
		ek_dtype dtype;
		int64_t cols;
	} rows[] = {{EK_BF16, 100001}, {EK_F32, 50003}, {EK_F64, 40001}};
	for (int r = 0; r < COUNT_OF(rows); r++)
		for (int k = 0; k < 2 * (1 + COUNT_OF(backward)); k++) {
			struct dtype_pair dtypes = {rows[r].dtype, rows[r].dtype};
			struct test_case c = case_for(k > 1, k & 1, dtypes, 2, rows[r].cols);
			case_set(&c, k > 1 ? backward[k / 2 - 1] : "weight bias in_place " STATISTICS);
			case_lay_out(&c, (r + k / 2) % 3 == 0 ? ACCESS_ELEMENTS : ACCESS_QUADS, k % 4);
			if (test_mode == TEST_LONG || (r + k / 2) % 2 == k % 2)
				if (test_mode != TEST_SHORT || k == 2 * r)
					check_on(small, &c);
		}
}

/* On a GPU of one multiprocessor a warp walks several slots; the last walk has fewer. */
TEST(walks_of_several_slots)
{
	static const struct model one = {86, 1};
	static const struct dtype_pair dtypes[] = {{EK_F64, EK_F64}, {EK_BF16, EK_F32}, {EK_F32, EK_F32}};
	static const struct shape shapes[] = {{70, 300}, {7, 20000}, {11, 20001}, {66, 66000}};
	for (int i = 0; i < COUNT_OF(shapes); i++) {
		struct test_case c =
			case_for(true, i % 2, dtypes[i % COUNT_OF(dtypes)], shapes[i].rows, shapes[i].cols);
		if (i < 3 || test_mode == TEST_LONG)
			check_on(one, &c);
	}
}

/* ---- GPUs ---- */

/* Widths that the models cut differently: clusters, parts of warps, rows that are read again. */
TEST(bits_do_not_depend_on_the_gpu)
{
	static const int64_t widths[] = {100, 20000, 6000, 20000};
	for (int i = 0; i < COUNT_OF(widths); i++)
		for (int d = 0; d < DTYPE_PAIRS; d++) {
			if (test_mode != TEST_LONG && d != (i + 2) % 3)
				continue;
			struct test_case c = case_for(i % 2, i / 2, dtype_pairs[d], 5, widths[i]);
			case_expect(&c);
			for (int m = 0; m < MODELS; m++)
				if (test_mode != TEST_SHORT || (m == 1 && i < 2))
					(void)same_on(models[m], &c);
		}
}

/* Without column sums the rows that a warp walks depend on the number of multiprocessors. */
TEST(bits_do_not_depend_on_multiprocessors)
{
	static const int counts[] = {1, 20, 132, 148};
	static const struct shape shapes[] = {{600, 40}, {200, 1100}, {40, 5000}, {9, 20000}};
	for (int i = 0; i < COUNT_OF(shapes); i++)
		for (int given = 0; given < 2; given++) {
			struct test_case c = case_for(true, i % 2, dtype_pairs[(2 * i + given) % 3],
						      shapes[i].rows, shapes[i].cols);
			case_set(&c, given ? "dx weight " STATISTICS : "dx weight");
			case_expect(&c);
			for (int m = 0; m < COUNT_OF(counts); m++)
				if (test_mode != TEST_SHORT || given == 0)
					(void)same_on((struct model){90, counts[m]}, &c);
		}
}

/* ---- parts of a batch ---- */

/* Rows first … first+count-1 of a case whose outputs are made. */
static ek_status call_rows(ek_context *ctx, const struct test_case *c, int64_t first, int64_t count)
{
	union op_args args = case_args_in(c, &case_actual);
	args_take_rows(case_op(c), &args, first, count);
	return mirror_call(ctx, case_op(c), &args, 0);
}

TEST(a_row_does_not_depend_on_the_rows_around_it)
{
	static const int64_t widths[] = {5, 100, 1000, 2500, 9000, 20000}, parts[] = {1, 1, 3, 2, 1, 9, 4};
	ek_context *ctx = context_on(h200);
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			if (test_mode != TEST_LONG && (k / 2 + w * 5) % (2 * DTYPE_PAIRS) > 0)
				continue;
			if (test_mode == TEST_SHORT && w % 2 > 0)
				continue;
			struct test_case c = op_case(k, 21, widths[w]);
			case_drop(&c, "dweight dbias dx_bias");
			c.group_cols = k % 3 == 1 ? widths[w] / 5 : 0;
			case_expect(&c);
			case_outputs(ctx, &c, &case_actual);
			for (int64_t p = 0, first = 0; p < COUNT_OF(parts); first += parts[p++])
				EXPECT(call_rows(ctx, &c, first, parts[p]) == EK_OK, "%s: %s", case_text(&c),
				       ek_error(ctx));
			(void)case_compare(&c, name_of(h200), 1, &case_actual);
		}
}

/* Without margins, the memory of each operand ends an element or 16 bytes behind it: a quad that reaches past its end
 * is not in device memory, and the stand-in ends the test. */
TEST(nothing_is_read_past_the_end)
{
	static const int64_t widths[] = {263, 1031, 17001};
	ek_context *ctx = context_on(h200);
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < OPS; k++) {
			if (test_mode != TEST_LONG && (k / 4 + w) % DTYPE_PAIRS > 0)
				continue;
			if (test_mode == TEST_SHORT && (k >> 1 & 1) != w)
				continue;
			struct test_case c = op_case(k, 3, widths[w]);
			int element = (int)ek_dtype_size(c.dtype);
			for (int i = 0; i < case_op(&c)->operand_count; i++)
				c.offset[i] = case_op(&c)->operands[i].rank > 1 ? 64 - element : 48;
			case_expect(&c);
			case_outputs(ctx, &c, &case_actual);
			EXPECT(call_rows(ctx, &c, 0, c.rows) == EK_OK, "%s: %s", case_text(&c),
			       ek_error(ctx));
			(void)case_compare(&c, name_of(h200), 1, &case_actual);
		}
}

/* Infinite statistics and weights: 0 times them is no number, so what a warp holds past the end of a row must not be summed
 * up. All else is positive, so that the sums are infinite, and no NaN of the row's own hides one. */
TEST(nothing_past_the_end_is_summed_up)
{
	static const int64_t widths[] = {24, 520, 1032, 1500, 1031, 12296};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < 4; k++) {
			struct test_case c = case_for(true, k & 1, dtype_pairs[w % 3], 2, widths[w]);
			c.filling = FILL_POSITIVE;
			case_fill(&c);
			for (int64_t r = 0; r < c.rows && !(k & 1); r++) {
				element_store(EK_F32, INPUT("mean")->buffer.data, r, 0);
				element_store(EK_F32, INPUT("mean_lo")->buffer.data, r, 0);
			}
			if (k >> 1)
				element_store(EK_F32, INPUT("rstd")->buffer.data, 0, INFINITY);
			else
				element_store(c.weight_dtype, INPUT("weight")->buffer.data, 0, INFINITY);
			EXPECT(case_call(reference(), &c, &case_expected) == EK_OK, "%s: %s", case_text(&c),
			       ek_error(reference()));
			(void)same_on(h200, &c);
		}
}

/* An infinite weight beside rows of a step that do not exist: what an activation is applied to is no number there. */
TEST(rows_that_do_not_exist_are_not_summed_up)
{
	static const int64_t widths[] = {24, 256, 300};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < 16; k++) {
			struct test_case c =
				case_make(&open_ops[k & 1], BACKWARD, dtype_pairs[w % 3], 5, widths[w]);
			c.activation = 1 + k / 2 % EK_GELU_TANH;
			case_set(&c, k & 8 ? "weight bias dy dx dweight dbias gate dgate"
					   : "weight bias dy dx dweight dbias");
			case_fill(&c);
			element_store(c.weight_dtype, INPUT("weight")->buffer.data, 7, INFINITY);
			EXPECT(case_call(reference(), &c, &case_expected) == EK_OK, "%s: %s", case_text(&c),
			       ek_error(reference()));
			(void)same_on(h200, &c);
		}
}

/* Sums alone of rows that start anywhere: there is no dx to write. */
TEST(each_gradient_alone_of_rows_that_start_anywhere)
{
	static const char *const alone[] = {"dx_bias", "dweight", "dbias", "dresidual", "dx", "dgate gate"};
	for (int k = 0; k < 4 * COUNT_OF(alone); k++) {
		struct test_case c = case_make(&open_ops[k & 1], BACKWARD, dtype_pairs[k / 2 % 2], 5, 1001);
		c.activation = strstr(alone[k / 4], "gate") ? EK_SILU : EK_NO_ACTIVATION;
		case_set(&c, alone[k / 4]);
		case_add(&c, "dy mean rstd mean_lo weight");
		check_on(h200, &c);
	}
}

/* Σ(x - mean)² is infinite and rstd is 0: in registers, of several warps, and in staged.cu. */
TEST(rows_whose_squares_overflow)
{
	static const int64_t widths[] = {40, 5000, 70000};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < 4; k++) {
			struct test_case c = case_for(k & 1, k >> 1, dtype_pairs[0], 2, widths[w]);
			c.filling = FILL_OVERFLOW;
			case_drop(&c, k & 1 ? STATISTICS : "");
			if (w < 2 || test_mode != TEST_SHORT)
				check_on(h200, &c);
		}
}

/* eps is rounded on the host, to nearest even. Rows of one number and the smallest eps show how. */
TEST(the_callers_float_environment_changes_nothing)
{
	static const struct {
		struct model model;
		int64_t cols;
	} kernels[] = {{{90, 132}, 40}, {{86, 20}, 40000}};
	const uint64_t fpenv = fpenv_get();
	for (int k = 0; k < 2 * COUNT_OF(kernels); k++)
		for (int e = 0; e < 2; e++) {
			struct test_case c = case_for(k & 1, 0, dtype_pairs[0], 2, kernels[k / 2].cols);
			case_drop(&c, k & 1 ? STATISTICS : "");
			c.filling = FILL_CONSTANT;
			c.eps = e ? 1e-40 : 1e-5;
			case_expect(&c);
			for (int m = 0; m < FPENV_MODES; m++) {
				fpenv_set(fpenv_modes[m]);
				(void)same_on(kernels[k / 2].model, &c);
				fpenv_set(fpenv);
			}
		}
}
