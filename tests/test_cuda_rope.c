/* Rotary position embedding and the norms of heads on the stand-in GPU: bits against the reference's, over every way that heads lie
 * in threads, every set of operands, and slots of every length; positions outside of the tables; and what the policy chooses.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/columns.h"
#include "ops/rope/kernels/layout.h"
#include "ops/rope/plan.h"
#include "ops/rope/policy.h"
#include "support_models.h"
#include "support_recipe.h"
#include "verify/random.h"

/* rope, qk_norm_rope */
enum { FIRST_ROPE_OP = EK_ROW_NAMES, ROPE_OPS = 2, FORMS = ROPE_OPS * PASS_COUNT * DTYPE_PAIRS };

/* An op, pass and pair of dtypes by number; choices, rows of the tables and layouts by the seed. */
static struct test_case drawn_case(int form, struct head_sizes sizes, uint64_t seed)
{
	const enum pass pass = form / ROPE_OPS % PASS_COUNT ? BACKWARD : FORWARD;
	struct test_case c = case_make_heads(&ek_ops[FIRST_ROPE_OP + form % ROPE_OPS], pass,
					     dtype_pairs[form / ROPE_OPS / PASS_COUNT % DTYPE_PAIRS], sizes);
	case_choose(&c, (int)(random_mixed(seed) % (uint64_t)case_choice_count(&c)));
	c.first_row = (int64_t)(seed % 3);
	c.table_step = seed / 3 % 2 ? sizes.seq : 0;
	c.table_rows = c.first_row + sizes.seq + c.table_step * (sizes.batch - 1);
	c.heads_first = (uint32_t)random_mixed(seed + 1);
	c.seed = seed;
	if (seed / 6 % 2)
		case_drop(&c, "positions");
	case_normalise(&c);
	return c;
}

/* ---- bits ---- */

/* Halves of a head that are a power of two of units, and others; parts of heads; heads of few threads and of a warp, of more elements
 * than lanes, of odd ones; units of 16 and of 8 bytes and of one element. */
TEST(heads_of_every_form)
{
	static const struct head_sizes shapes[] = {
		{1, 3, 2, 2, 64, 64},   {2, 3, 4, 2, 128, 128},   {1, 5, 6, 3, 96, 96},
		{2, 2, 2, 1, 128, 64},  {1, 3, 4, 1, 256, 64},    {1, 2, 2, 2, 80, 32},
		{1, 3, 3, 1, 24, 12},   {2, 3, 2, 1, 10, 6},      {1, 2, 1, 1, 512, 512},
		{1, 1, 2, 1, 1024, 96}, {1, 2, 2, 1, 1023, 1022}, {1, 4, 5, 5, 3, 2},
		{1, 3, 2, 1, 16, 16},   {1, 2, 2, 1, 32, 32},     {1, 2, 2, 2, 256, 256},
		{1, 2, 9, 3, 40, 40}};
	static const int turns[] = {1, 1, 4};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int i = 0; i < FORMS * turns[test_mode]; i++) {
			struct test_case c = drawn_case(i % FORMS, shapes[s], (uint64_t)(s * 1000 + i));
			if (test_mode == TEST_LONG || test_sampled(test_mode == TEST_SHORT ? 8 : 4))
				check_on(models[(s + i + i / FORMS) % MODELS], &c);
		}
}

/* Bases and strides that are multiples of 8 bytes, of an element and of nothing. */
TEST(heads_that_start_anywhere)
{
	static const int64_t pads[] = {0, 8, 4, 1}, dims[] = {64, 128, 20, 300};
	for (int turn = 0; turn < 4 * COUNT_OF(dims); turn++)
		for (int form = 0; form < FORMS; form++) {
			const int64_t dim = dims[turn % COUNT_OF(dims)];
			struct test_case c = drawn_case(form, (struct head_sizes){2, 3, 4, 2, dim, dim},
							(uint64_t)(turn * 100 + form));
			for (int i = 0; i < case_op(&c)->operand_count; i++) {
				const int element = (int)ek_dtype_size(operand_dtype(&c, i));
				const int offsets[] = {16, 8, element, 1};
				c.pad[i] = pads[turn / COUNT_OF(dims)];
				c.offset[i] = (i + turn + form) % 3 ? 0 : offsets[turn / COUNT_OF(dims)];
			}
			if (test_mode == TEST_LONG || test_sampled(8))
				check_on(models[(turn + form) % MODELS], &c);
		}
}

/* Each set of operands in turn, in place and not. */
TEST(operands_and_places)
{
	for (int form = 0; form < FORMS; form++) {
		const int64_t dim = form % 3 ? 64 : 48;
		struct test_case c =
			drawn_case(form, (struct head_sizes){2, 2, 4, 2, dim, dim}, (uint64_t)form);
		c.present = ~UINT32_C(0);
		const uint32_t optional = case_optional(&c);
		uint32_t absent = optional;
		do {
			for (int place = 0; case_set_over(&c, place / 2); place++) {
				struct test_case allowed = c;
				if (!test_sampled(c.pass == BACKWARD ? 3000 : 60) && test_mode != TEST_LONG)
					continue;
				if (test_mode == TEST_LONG && !test_sampled(c.pass == BACKWARD ? 200 : 4))
					continue;
				allowed.present &= ~absent;
				allowed.accumulate = place % 2;
				case_normalise(&allowed);
				case_expect(&allowed);
				(void)same_on(h200, &allowed);
			}
			memset(c.over, 0, sizeof c.over);
			absent = (absent - 1) & optional;
		} while (absent != optional);
	}
}

/* Slots of one row, of several, two of which a warp walks, and of several chunks, which groups of threads share; more than 256
 * partial sums; many tokens of a sequence and many sequences. */
TEST(slots_of_every_length)
{
	static const struct {
		struct head_sizes sizes;
		const char *sums;
	} walks[] = {{{1, 2049, 1, 1, 8, 8}, "dq_bias dk_bias"},
		     {{3, 1365, 2, 1, 8, 8}, "dq_bias dk_bias"},
		     {{700, 100, 1, 1, 4, 4}, "dq_bias dk_bias"},
		     {{1, 700, 6, 2, 8, 8}, "dq_weight dk_weight"},
		     {{3, 5700, 4, 2, 8, 8}, "dq_weight dk_weight"},
		     {{2, 28801, 4, 4, 8, 4}, "dk_weight"},
		     {{1, 1100, 3, 3, 16, 16}, "dq_weight dk_weight dq_bias dk_bias"},
		     {{2, 1100, 2, 1, 192, 64}, "dq_weight dk_bias"},
		     {{1, 2100, 1, 1, 300, 10}, "dq_weight dq_bias"}};
	for (int w = 0; w < COUNT_OF(walks); w++)
		for (int turn = 0; turn < 4; turn++) {
			struct test_case c =
				case_make_heads(&ek_ops[FIRST_ROPE_OP + 1], BACKWARD,
						dtype_pairs[(w + turn) % DTYPE_PAIRS], walks[w].sizes);
			case_set(&c, walks[w].sums);
			case_add(&c, turn % 2 ? "dq dk q_weight k_weight" : "dq");
			c.norm = turn / 2 ? EK_LAYER_NORM : EK_RMS_NORM;
			c.accumulate = turn % 2;
			c.interleaved = turn / 2;
			case_normalise(&c);
			if (test_mode == TEST_LONG || (turn == w % 4 && (w != 5 || test_sampled(4))))
				check_on(models[turn % MODELS], &c);
		}
}

/* Without a norm the angles of the next token are loaded ahead, also past the end of a sequence; slots of two rows, two of which a warp
 * walks, and of three chunks. The gradients are in f32: 16 bits would hide the order. */
TEST(slots_of_biases_without_a_norm)
{
	static const struct head_sizes walks[] = {{3, 1365, 2, 1, 8, 8}, {700, 200, 1, 1, 4, 4}};
	for (int w = 0; w < COUNT_OF(walks); w++)
		for (int turn = 0; turn < 2; turn++) {
			struct test_case c = case_make_heads(
				&ek_ops[FIRST_ROPE_OP], BACKWARD,
				(struct dtype_pair){turn ? EK_BF16 : EK_F32, EK_F32}, walks[w]);
			case_set(&c, "dq dk dq_bias dk_bias");
			c.interleaved = turn;
			c.table_step = turn ? c.seq : 0;
			c.table_rows = turn ? c.batch * c.seq : c.seq;
			if (w != turn)
				case_add(&c, "positions");
			case_normalise(&c);
			case_expect(&c);
			(void)same_without_margins(models[(w + turn) % MODELS], &c);
		}
}

/* ---- positions that no table has ---- */

TEST(a_position_outside_of_the_tables_reads_nothing)
{
	static const int64_t outside[] = {-1, 7, INT64_MIN, INT64_MAX};
	enum { TOKENS = 6, HEADS = 2, DIM = 12, ROTARY = 8 };
	for (int k = 0; k < COUNT_OF(outside); k++) {
		struct test_case c =
			case_make_heads(&ek_ops[FIRST_ROPE_OP], FORWARD, dtype_pairs[0],
					(struct head_sizes){2, TOKENS / 2, HEADS, 1, DIM, ROTARY});
		case_set(&c, "positions");
		c.table_rows = 7;
		c.trailing = k % 2;
		case_normalise(&c);
		case_expect(&c);
		int64_t *positions = (int64_t *)(void *)INPUT("positions")->buffer.data;
		positions[k] = outside[k];
		EXPECT(case_call(context_on(h200), &c, &case_actual) == EK_OK, "%s",
		       ek_error(context_on(h200)));
		const struct operand *wanted = operand_named(&case_expected, "q_out"),
				     *q_out = ACTUAL("q_out");
		for (int64_t r = 0; r < TOKENS * HEADS; r++)
			for (int64_t i = 0; i < DIM; i++) {
				const bool turns = c.trailing ? i >= DIM - ROTARY : i < ROTARY;
				double is = element_value(EK_F32, q_out->buffer.data,
							  operand_row(q_out, r) + i),
				       want = element_value(EK_F32, wanted->buffer.data,
							    operand_row(wanted, r) + i);
				bool right = turns && r / HEADS == k ? isnan(is) : is == want;
				EXPECT(right, "position %lld: q_out[%lld][%lld] is %g", (long long)outside[k],
				       (long long)r, (long long)i, is);
			}
	}
}

/* ---- the policy and the plans ---- */

static bool is_power_of_two(int n)
{
	return n > 0 && (n & (n - 1)) == 0;
}

static void check_form(const struct ek_rope_form *form)
{
	const struct ek_rope_policy p = ek_rope_policy(form);
	const bool shared = form->norm || form->kind == KIND_ROPE_WEIGHTS || form->kind == KIND_ROPE_BIASES;
	const int units = ek_rope_units(form, p.unit, p.row_threads), bytes = ek_rope_shared(form, &p);
	char text[120];
	(void)snprintf(text, sizeof text, "kind %d, %s, head_dim %d, rotary_dim %d, aligned to %d%s",
		       form->kind, ek_dtype_name(form->dtype), form->head_dim, form->rotary_dim,
		       form->alignment, form->norm ? ", norm" : "");
	EXPECT(form->rotary_dim / 2 % p.unit == 0 && (form->head_dim - form->rotary_dim) % p.unit == 0,
	       "%s: units of %d", text, p.unit);
	EXPECT(p.unit == 1 || p.unit * (int)ek_dtype_size(form->dtype) <= form->alignment, "%s: units of %d",
	       text, p.unit);
	EXPECT(!shared || (is_power_of_two(p.row_threads) && p.row_threads <= 32), "%s: %d threads", text,
	       p.row_threads);
	EXPECT(p.row_threads * units * p.unit >= form->head_dim, "%s: %d threads with %d units of %d", text,
	       p.row_threads, units, p.unit);
	EXPECT(is_power_of_two(p.heads) && p.heads <= 4, "%s: %d heads", text, p.heads);
	EXPECT(p.threads % 32 == 0 && p.threads <= 1024, "%s: blocks of %d threads", text, p.threads);
	EXPECT(bytes >= 0 && bytes <= 99 << 10, "%s: %d bytes of shared memory", text, bytes);
}

/* For the GPU with the least shared memory. */
TEST(every_policy_fits_every_gpu)
{
	static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16, EK_F64};
	for (int dim = 2; dim <= EK_MAX_HEAD_DIM; dim += dim < 300 ? 1 : 7)
		for (int k = 0; k < 4 * 3 * 2 * 4 * 3; k++) {
			const int parts = k / 96, pairs = dim / 2;
			const struct ek_rope_form form = {.kind = KIND_ROPE_FORWARD + k % 4,
							  .dtype = dtypes[k / 4 % 4],
							  .norm = k / 16 % 2 ||
								  k % 4 + 1 == KIND_ROPE_WEIGHTS,
							  .head_dim = dim,
							  .rotary_dim = 2 * (parts == 0   ? pairs
									     : parts == 1 ? (pairs + 1) / 2
											  : 1),
							  .alignment = 16 >> k / 32 % 3};
			check_form(&form);
		}
}

static int plan_of(const struct test_case *c, struct ek_plan *plan)
{
	union op_args args;
	const struct ek_gpu_limits limits = ek_limits_of(90, 132);
	case_args_nowhere(c, &args);
	case_op(c)->plan(&args, &limits, plan);
	return plan->count;
}

/* Batch, seq and heads are no constants of a kernel; another head is another. */
TEST(kernels_serve_every_number_of_tokens_and_heads)
{
	static const struct head_sizes sizes[] = {{1, 1, 1, 1, 64, 64},
						  {3, 1000, 32, 8, 64, 64},
						  {64, 4096, 64, 64, 64, 64},
						  {1, 1, 1, 1, 64, 32}};
	for (int form = 0; form < FORMS; form++) {
		struct ek_plan plans[COUNT_OF(sizes)];
		const struct ek_step *kernels[COUNT_OF(sizes)][EK_MOST_STEPS];
		int counts[COUNT_OF(sizes)];
		for (int i = 0; i < COUNT_OF(sizes); i++) {
			struct test_case c = case_make_heads(&ek_ops[FIRST_ROPE_OP + form % ROPE_OPS],
							     form / ROPE_OPS % 2 ? BACKWARD : FORWARD,
							     dtype_pairs[form / ROPE_OPS / 2], sizes[i]);
			(void)plan_of(&c, &plans[i]);
			counts[i] = ek_plan_kernels(&plans[i], kernels[i]);
		}
		for (int i = 1; i < COUNT_OF(sizes); i++) {
			bool same = counts[i] == counts[0];
			for (int k = 0; same && k < counts[0]; k++)
				same = memcmp(&kernels[i][k]->key, &kernels[0][k]->key,
					      sizeof kernels[i][k]->key) == 0;
			EXPECT(same == (i < 3), "form %d: the kernels of sizes %d are %s", form, i,
			       same ? "the same" : "others");
		}
	}
}

/* q and k in one launch, and one more for all folds of a kind of sums. */
TEST(launches_of_a_call)
{
	static const struct {
		const char *operands;
		enum pass pass;
		int launches;
	} calls[] = {{"k k_out q_bias q_weight", FORWARD, 1},
		     {"dq dk q_weight k_weight", BACKWARD, 1},
		     {"dq dk q_weight k_weight dq_weight dk_weight", BACKWARD, 2},
		     {"dq dk dq_bias dk_bias", BACKWARD, 2},
		     {"dq dk dq_bias dk_bias dq_weight dk_weight", BACKWARD, 4}};
	for (int i = 0; i < COUNT_OF(calls); i++) {
		struct ek_plan plan;
		struct test_case c =
			case_make_heads(&ek_ops[FIRST_ROPE_OP + 1], calls[i].pass, dtype_pairs[2],
					(struct head_sizes){2, 2048, 32, 8, 128, 128});
		int launches = 0;
		case_set(&c, calls[i].operands);
		(void)plan_of(&c, &plan);
		for (int k = 0; k < plan.count; k++)
			launches += plan.steps[k].launch.blocks > 0;
		EXPECT(launches == calls[i].launches, "%s: %d launches, expected %d", calls[i].operands,
		       launches, calls[i].launches);
	}
}

/* Over 2^31 threads: launches that follow each other start where those before have ended, and the last has the rest. */
TEST(many_tokens_are_several_launches)
{
	struct ek_plan plan;
	struct test_case c = case_make_heads(&ek_ops[FIRST_ROPE_OP], FORWARD, dtype_pairs[0],
					     (struct head_sizes){5000, INT64_C(1) << 20, 8, 4, 2, 2});
	const int64_t tokens = c.batch * c.seq;
	int64_t left = tokens;
	(void)plan_of(&c, &plan);
	struct ek_step *step = &plan.steps[0];
	const int64_t threads = step->launch.threads;
	struct rope_arguments *a = (struct rope_arguments *)(void *)step->arguments;
	for (int64_t blocks = step->launch.blocks; blocks > 0; blocks -= step->launch_blocks) {
		const int64_t here = left < a->launch_tokens ? left : a->launch_tokens;
		int64_t wanted = 0;
		for (int i = 0; i < 2; i++)
			wanted += (here * a->sides[i].units + threads - 1) / threads;
		EXPECT(a->first == tokens - left, "a launch starts at token %lld, not %lld", a->first,
		       (long long)(tokens - left));
		EXPECT(wanted == (blocks < step->launch_blocks ? blocks : step->launch_blocks),
		       "a launch of %lld tokens has %lld blocks, not %lld", (long long)here,
		       (long long)blocks, (long long)wanted);
		left -= here;
		step->advance(a, step->launch_rows, 0);
	}
	EXPECT(left == 0, "%lld tokens are left", (long long)left);
}
