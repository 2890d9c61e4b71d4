/* The CUDA kernels of gated activations against the reference, bit for bit, on GPUs that are not there (tests/standin/): every
 * activation, pass and pair of dtypes, how tensors lie, rows and slots, operands, places, and calls that are refused.
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "core/order.h"
#include "gpu/plan.h"
#include "ops/glu/kernels/layout.h"
#include "support_cuda.h"
#include "support_models.h"

/* A kernel is compiled for each set of operands and choices: of the lists some are run, the seed chooses. */
static bool in_turn(int64_t one_in)
{
	return test_mode == TEST_LONG || test_sampled(test_mode == TEST_SHORT ? 2 * one_in : one_in);
}

static void check(const struct test_case *c)
{
	static int turn;
	case_expect(c);
	(void)same_on(models[turn++ % MODELS], c);
}

/* With biases and without, which are long rows where nothing is between them. */
static void set_words(struct test_case *c, int turn)
{
	static const char *const words[] = {"all", "value dgate dvalue", "value gate_bias dgate_bias dvalue",
					    "value value_bias dvalue_bias dgate", "dgate"};
	case_set(c, words[turn % COUNT_OF(words)]);
}

/* Quads, elements at their own multiples, and anywhere; rows apart and not. */
static void lay_out(struct test_case *c, int lie, int turn)
{
	union op_args args;
	case_args(c, NULL, &args);
	for (int i = 0; i < case_op(c)->operand_count; i++) {
		const struct ek_operand *operand = &case_op(c)->operands[i];
		const int element = (int)ek_dtype_size(operand_dtype(c, i)), quad = 16 / element;
		const int64_t cols = ek_dim_of(case_op(c), &operand->dims[operand->rank - 1], &args);
		if (lie == 0)
			continue; /* dense */
		c->offset[i] = lie == 1   ? 16 * ((turn + i) % 4)
			       : lie == 2 ? element * ((turn + i) % 8)
					  : 1 + 2 * (i % 3);
		if (operand->rank > 1)
			c->pad[i] =
				lie == 1 ? (quad - cols % quad) % quad + quad * (turn % 2) : (turn + i) % 4;
	}
}

TEST(every_activation_dtype_and_way_to_lie)
{
	static const int64_t widths[] = {1, 8, 24, 31, 100, 256, 257, 1000, 2056};
	for (int lie = 0; lie < 4; lie++)
		for (int w = 0; w < COUNT_OF(widths); w++)
			for (int k = 0; k < GLU_CASES; k++) {
				struct test_case c = glu_case(k, 1 + (w + k) % 5, widths[w]);
				set_words(&c, w + k + lie);
				lay_out(&c, lie, w + k);
				if (in_turn(9))
					check(&c);
			}
}

/* Each activation, with limits and without, in both passes and all ways to have gate and value. */
TEST(every_activation_and_choice)
{
	for (int activation = EK_SIGMOID; activation <= EK_IDENTITY; activation++)
		for (int i = 0; i < PASS_COUNT * 2 * 2 * 2; i++) {
			struct test_case c = case_make(&open_glu, i & 1 ? BACKWARD : FORWARD,
						       dtype_pairs[(i + activation) % DTYPE_PAIRS], 5,
						       96 + 8 * i + (i & 4));
			c.activation = activation;
			c.interleaved = i >> 1 & 1;
			c.limit = i & 4 ? 0.75 : 0;
			c.alpha = i & 4 ? 1.702 : 0;
			c.value_offset = i & 4 ? 1 : 0;
			c.filling = i & 8 ? FILL_EXTREME : FILL_NORMAL;
			case_normalise(&c);
			set_words(&c, i / 2);
			if (in_turn(2))
				check(&c);
		}
}

/* None, one launch of several rows, slots of one row, of several and of chunks, of which a block folds eight; the folds of two
 * steps. */
TEST(rows_and_slots)
{
	static const int64_t shapes[][2] = {{0, 40},   {1, 7},      {2, 300},   {9, 64},
					    {70, 264}, {1025, 8},   {2050, 3},  {4100, 16},
					    {9000, 1}, {140000, 1}, {2049, 40}, {300, 1030}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < GLU_CASES; k++) {
			struct test_case c = glu_case(k, shapes[s][0], shapes[s][1]);
			c.accumulate = c.pass == BACKWARD && (s + k) % 3 == 0;
			if (c.pass == FORWARD ? s % 3 == 0 && in_turn(12) : in_turn(4))
				check(&c);
		}
}

/* Slots of over 32 rows are added in chunks: of quads, of elements and of pairs. Two, three or four warps share a slot, a chunk each,
 * which are no tree; of five chunks one warp walks all. The gradients of biases are in f32: 16 bits would hide the order. */
TEST(slots_of_several_chunks)
{
	static const struct {
		int64_t rows, cols;
		ek_dtype dtype;
		bool interleaved;
	} cases[] = {{66000, 8, EK_BF16, false},
		     {140000, 1, EK_F32, false},
		     {250000, 1, EK_F32, false},
		     {300000, 1, EK_F16, false},
		     {66100, 4, EK_F32, true}};
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct test_case c =
			case_make(&open_glu, BACKWARD, (struct dtype_pair){cases[i].dtype, EK_F32},
				  cases[i].rows, cases[i].cols);
		c.interleaved = cases[i].interleaved;
		c.accumulate = i % 2;
		case_normalise(&c);
		check(&c);
	}
}

TEST(operands_and_places)
{
	for (int k = 0; k < GLU_CASES; k++) {
		struct test_case c = glu_case(k, 3, k % 2 ? 40 : 37);
		uint32_t optional = case_optional(&c), absent = optional;
		do {
			for (int form = 0; case_set_over(&c, form / 2); form++) {
				struct test_case allowed = c;
				allowed.present &= ~absent;
				allowed.accumulate = form % 2;
				case_normalise(&allowed);
				if (in_turn(60))
					check(&allowed);
			}
			memset(c.over, 0, sizeof c.over);
			absent = (absent - 1) & optional;
		} while (absent != optional);
	}
}

TEST(nothing_is_read_past_the_end)
{
	for (int k = 0; k < GLU_CASES; k++)
		for (int turn = 0; turn < 8; turn++) {
			struct test_case c = glu_case(k, 1 + turn % 3, 1 + (k * 13 + turn * 71) % 600);
			set_words(&c, turn + k);
			lay_out(&c, turn / 2, turn);
			if (!in_turn(8))
				continue;
			case_expect(&c);
			(void)same_without_margins(h200, &c);
		}
}

/* ---- plans ---- */

static void plan_of(const struct test_case *c, int64_t rows, int64_t cols, struct ek_plan *plan)
{
	const struct ek_gpu_limits limits = ek_limits_of(90, 132);
	struct test_case sized = *c;
	union op_args args;
	sized.rows = rows;
	sized.cols = cols;
	case_args_nowhere(&sized, &args);
	case_op(c)->plan(&args, &limits, plan);
}

enum { LEAST_SHARED = 99 << 10 }; /* of a block, on compute capability 8.6, 8.9 and 12.0 */

/* A kernel is for any number of rows and, of rows of whole units that are not few, of columns, as far as they lie alike, and for
 * every GPU. */
TEST(sizes_need_no_kernel_of_their_own)
{
	static const int64_t sizes[][2] = {
		{0, 1024}, {1, 1024}, {70000, 1024}, {3, 4096}, {INT64_C(1) << 33, 2048}, {5, 1 << 24}};
	for (int k = 0; k < GLU_CASES; k++)
		for (int words = 0; words < 5; words++) {
			struct test_case c = glu_case(k, 8, 1024);
			struct ek_plan first, plan;
			set_words(&c, words);
			plan_of(&c, 8, 1024, &first);
			for (int s = 0; s < COUNT_OF(sizes); s++) {
				plan_of(&c, sizes[s][0], sizes[s][1], &plan);
				for (int i = 0; i < plan.count; i++)
					EXPECT(plan.steps[i].launch.shared_bytes <= LEAST_SHARED,
					       "%s: %d bytes of shared memory", case_text(&c),
					       plan.steps[i].launch.shared_bytes);
				EXPECT(memcmp(&plan.steps[0].key, &first.steps[0].key,
					      sizeof plan.steps[0].key) == 0,
				       "%s: another kernel of %lldx%lld", case_text(&c),
				       (long long)sizes[s][0], (long long)sizes[s][1]);
			}
		}
}

/* Every element is some thread's, in tensors of any size, and a launch counts its blocks in 32 bits. */

TEST(launches_cover_all_elements)
{
	static const int64_t sizes[][2] = {{1, 1},
					   {3, 1000},
					   {70000, 64},
					   {1 << 20, 11008},
					   {INT64_C(1) << 33, 512},
					   {INT64_C(1) << 26, 4097},
					   {2000, 1 << 24}};
	for (int s = 0; s < COUNT_OF(sizes); s++)
		for (int k = 0; k < GLU_CASES; k++) {
			struct test_case c = glu_case(k, sizes[s][0], sizes[s][1]);
			struct ek_plan plan;
			double covered = 0;
			case_set(&c, k % 2 ? "value dgate dvalue" : "value gate_bias dgate dvalue");
			plan_of(&c, c.rows, c.cols, &plan);
			for (int i = 0; i < plan.count; i++) {
				const struct glu_arguments *a = (const void *)plan.steps[i].arguments;
				covered += (double)a->rows * (double)a->cols;
				EXPECT(plan.steps[i].launch_blocks <= INT32_MAX &&
					       plan.steps[i].launch.blocks > 0,
				       "%s: %lld blocks a launch", case_text(&c),
				       (long long)plan.steps[i].launch_blocks);
			}
			EXPECT(covered == (double)c.rows * (double)c.cols, "%s: the steps have %.0f elements",
			       case_text(&c), covered);
		}
}

/* ---- calls that are refused ---- */

/* Of a whole backward in f32; pointers lead nowhere, so whatever is launched fails. */
static struct test_case whole(enum pass pass)
{
	struct test_case c =
		case_make(&ek_ops[EK_NORM_OPS], pass, (struct dtype_pair){EK_F32, EK_F32}, 4, 32);
	case_normalise(&c);
	return c;
}

TEST(host_memory_is_refused)
{
	ek_context *ctx = context_on(h200);
	for (int pass = 0; pass < PASS_COUNT; pass++) {
		struct test_case c = whole((enum pass)pass);
		union op_args args;
		size_t bytes;
		case_fill(&c);
		case_outputs(ctx, &c, &case_actual);
		args = case_args_in(&c, &case_actual);
		EXPECT(args_workspace(case_op(&c), ctx, &args, &bytes) == EK_OK, "%s", ek_error(ctx));
		ek_status status = case_op(&c)->call(ctx, &args);
		EXPECT(status == EK_ERROR_ARGUMENT && strstr(ek_error(ctx), "looks like host memory") &&
			       strncmp(ek_error(ctx), case_op(&c)->operands[0].name,
				       strlen(case_op(&c)->operands[0].name)) == 0,
		       "%s: %s: %s", case_text(&c), ek_status_name(status), ek_error(ctx));
	}
}

TEST(a_launch_that_fails_is_told)
{
	for (int pass = 0; pass < PASS_COUNT; pass++) {
		struct test_case c = whole((enum pass)pass);
		ek_context *ctx = context_on(h200);
		case_fill(&c);
		set("EVENKEEL_STANDIN_FAIL", "cuLaunchKernelEx=701");
		ek_status status = case_call(ctx, &c, &case_actual);
		set("EVENKEEL_STANDIN_FAIL", NULL);
		EXPECT(status == EK_ERROR_CUDA && strstr(ek_error(ctx), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
		       "%s: %s: %s", case_text(&c), ek_status_name(status), ek_error(ctx));
		case_expect(&c);
		(void)same_on(h200, &c);
	}
}

TEST(a_workspace_that_is_too_small_is_refused)
{
	ek_context *ctx = context_on(h200);
	struct test_case c = whole(BACKWARD);
	union op_args args;
	size_t bytes = 0;
	char needed[32];
	case_args_nowhere(&c, &args);
	EXPECT(args_workspace(case_op(&c), ctx, &args, &bytes) == EK_OK && bytes > 0, "%s", ek_error(ctx));
	(void)snprintf(needed, sizeof needed, "%zu", bytes);
	args_set_workspace(case_op(&c), &args, (void *)((uintptr_t)1 << 50), bytes - 1);
	ek_status status = case_op(&c)->call(ctx, &args);
	EXPECT(status == EK_ERROR_WORKSPACE && strstr(ek_error(ctx), needed), "%s: %s",
	       ek_status_name(status), ek_error(ctx));
	args_set_workspace(case_op(&c), &args, NULL, bytes);
	EXPECT(case_op(&c)->call(ctx, &args) == EK_ERROR_WORKSPACE, "%s", ek_error(ctx));
}
