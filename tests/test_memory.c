/* Memory: a call allocates nothing, backward's workspace is what its size call says and not a byte more, the stack is
 * what the header says, and a context that finds no memory says so and leaks none. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_rope.h"
#include "support_rows.h"

#if defined(__GLIBC__) && !UNDER_SANITIZER
#define COUNTS 1

#define IS_COUNTED(caller) true
#include "support_malloc.inc.h"

/* ---- counting ---- */

TEST(the_counter_counts)
{
	long long before = atomic_load(&asked);
	void *volatile block = malloc(10);
	EXPECT(atomic_load(&asked) == before + 1, "malloc is not counted");
	free(block);
}

static void check_allocates_nothing(const struct test_case *c, struct setting setting)
{
	ek_context *ctx = context_of(setting);
	case_call(ctx, c, &case_actual); /* workers start with the first large call */
	case_outputs(ctx, c, &case_actual);
	union op_args args = case_args_in(c, &case_actual);
	long long before = atomic_load(&asked);
	ek_status status = case_op(c)->call(ctx, &args);
	long long after = atomic_load(&asked);
	EXPECT(status == EK_OK, "%s: %s", case_text(c), ek_error(ctx));
	EXPECT(after == before, "%s, level %s, %d threads: %lld allocations in a call", case_text(c),
	       setting.level, setting.threads, after - before);
}

TEST(a_call_allocates_nothing)
{
	static const int64_t shapes[][2] = {{1, 1}, {7, 100}, {400, 700}, {3, 90000}, {5000, 20}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k += test_mode == TEST_SHORT ? 5 : 1)
			for (int recomputed = 0; recomputed < 2; recomputed++) {
				struct test_case c = op_case(k, shapes[s][0], shapes[s][1]);
				if (recomputed)
					case_drop(&c, STATISTICS);
				case_fill(&c);
				if (shapes[s][0] * shapes[s][1] < 1000) /* it is slow */
					check_allocates_nothing(&c, (struct setting){"reference", 1, PLAIN});
				for (int i = 0; i < level_count(); i++) {
					check_allocates_nothing(&c,
								(struct setting){level_name(i), 1, PLAIN});
					check_allocates_nothing(&c,
								(struct setting){level_name(i), 3, PLAIN});
				}
			}
}

TEST(a_call_on_heads_allocates_nothing)
{
	static const struct head_sizes shapes[] = {{1, 2, 2, 1, 10, 6}, {2, 300, 8, 2, 64, 64}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < ROPE_CASES; k++) {
			struct test_case c = rope_case(k, shapes[s]);
			case_fill(&c);
			if (s == 0)
				check_allocates_nothing(&c, (struct setting){"reference", 1, PLAIN});
			for (int i = 0; i < level_count(); i++)
				check_allocates_nothing(&c,
							(struct setting){level_name(i), 1 + s * 2, PLAIN});
		}
}

TEST(a_call_of_gated_activations_allocates_nothing)
{
	static const int64_t shapes[][2] = {{7, 100}, {400, 700}, {3, 90000}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < GLU_CASES; k += test_mode == TEST_SHORT ? 5 : 1) {
			struct test_case c = glu_case(k, shapes[s][0], shapes[s][1]);
			case_fill(&c);
			if (s == 0)
				check_allocates_nothing(&c, (struct setting){"reference", 1, PLAIN});
			for (int i = 0; i < level_count(); i++)
				check_allocates_nothing(&c, (struct setting){level_name(i), 1 + s, PLAIN});
		}
}

static long long allocations_of_first_call(int threads, int start_threads)
{
	struct test_case c = case_of(true, EK_LAYER_NORM, dtype_pairs[0], 900, 300);
	ek_options options = {.size = sizeof(options), .threads = threads, .start_threads = start_threads};
	ek_context *ctx = NULL;
	EXPECT(ek_open(&ctx, &options) == EK_OK, "%s", ek_error(NULL));
	case_fill(&c);
	case_outputs(ctx, &c, &case_actual);
	union op_args args = case_args_in(&c, &case_actual);
	long long before = atomic_load(&asked);
	EXPECT(ek_norm_backward(ctx, &args.backward) == EK_OK, "%s", ek_error(ctx));
	long long after = atomic_load(&asked);
	ek_close(ctx);
	return after - before;
}

/* glibc keeps the stacks of ended threads, which cost no allocation: the second context needs more than the first. */
TEST(the_first_call_allocates_nothing_where_threads_are_started)
{
	long long not_started = allocations_of_first_call(3, 0), started = allocations_of_first_call(9, 1);
	EXPECT(not_started > 0,
	       "the first call starts threads without an allocation: this test sees nothing");
	EXPECT(started == 0, "%lld allocations in the first call after start_threads", started);
}

/* Refusals are calls too. */
TEST(a_refusal_allocates_nothing)
{
	ek_context *ctx = context_of((struct setting){level_best(), 1, PLAIN});
	long long before = atomic_load(&asked);
	ek_status status = ek_norm_forward(ctx, &(ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
									.norm = EK_LAYER_NORM,
									.rows = -1});
	EXPECT(status == EK_ERROR_ARGUMENT && atomic_load(&asked) == before,
	       "%lld allocations in a refused call", (long long)(atomic_load(&asked) - before));
}

TEST(no_memory_for_a_context)
{
	static const int threads[] = {1, 3, 64};
	for (int t = 0; t < COUNT_OF(threads); t++) {
		ek_options options = {.size = sizeof(options), .threads = threads[t], .isa = level_best()};
		int refusals = 0;
		ek_context *ctx = NULL;
		ek_status status = EK_ERROR_MEMORY;
		for (long long room = 0; room < 1000 && status == EK_ERROR_MEMORY; room++) {
			long long before = atomic_load(&live_blocks);
			ctx = (ek_context *)&options;
			atomic_store(&fail_after, room);
			status = ek_open(&ctx, &options);
			atomic_store(&fail_after, -1);
			if (status == EK_ERROR_MEMORY) {
				refusals++;
				EXPECT(!ctx, "*ctx is %p after a failure, expected NULL", (void *)ctx);
				EXPECT(strstr(ek_error(NULL), "memory"), "the message is \"%s\"",
				       ek_error(NULL));
				EXPECT(atomic_load(&live_blocks) == before,
				       "with room for %lld allocations, a failed ek_open leaks %lld", room,
				       (long long)(atomic_load(&live_blocks) - before));
			}
		}
		EXPECT(status == EK_OK, "%d threads: ek_open answers %s: %s", threads[t],
		       ek_status_name(status), ek_error(NULL));
		EXPECT(refusals > 0, "%d threads: ek_open does not allocate, or does not notice", threads[t]);
		ek_close(ctx);
	}
}

TEST(contexts_leak_nothing)
{
	long long first = 0;
	for (int i = 0; i < 4; i++) {
		ek_context *ctx = NULL;
		ek_options options = {.size = sizeof(options), .threads = 3, .isa = level_best()};
		EXPECT(ek_open(&ctx, &options) == EK_OK, "%s", ek_error(NULL));
		ek_close(ctx);
		first = i == 0 ? atomic_load(&live_blocks) : first;
	}
	EXPECT(atomic_load(&live_blocks) == first, "four contexts opened and closed leave %lld blocks",
	       (long long)(atomic_load(&live_blocks) - first));
}
#endif

/* ---- the workspace ---- */

static void check_workspace(const struct test_case *c, struct setting setting)
{
	ek_context *ctx = context_of(setting);
	case_fill(c);
	ek_status status = case_call(ctx, c, &case_actual);
	size_t bytes = case_actual.workspace.buffer.bytes;
	EXPECT(status == EK_OK && bytes > 0, "%s, level %s: %s, workspace of %zu bytes", case_text(c),
	       setting.level, ek_error(ctx), bytes);
	EXPECT(buffer_margins_whole(&case_actual.workspace.buffer),
	       "%s, level %s, %d threads: bytes beside the workspace were written", case_text(c),
	       setting.level, setting.threads);
	case_outputs(ctx, c, &case_actual);
	union op_args args = case_args_in(c, &case_actual);
	args.backward.workspace_size--;
	EXPECT(ek_norm_backward(ctx, &args.backward) == EK_ERROR_WORKSPACE,
	       "%s, level %s, %d threads: a workspace of %zu bytes is taken, asked for %zu", case_text(c),
	       setting.level, setting.threads, bytes - 1, bytes);
}

TEST(the_workspace_is_what_its_size_call_says)
{
	static const int64_t shapes[][2] = {{1, 1},     {3, 100},   {70, 33},   {1025, 40},
					    {2050, 65}, {40000, 3}, {4, 60003}, {129, 1030}};
	static const struct setting settings[] = {{0, 1, PLAIN}, {0, 3, PLAIN}, {0, 7, PLAIN}};
	static const char *const without[] = {"", "dbias", "dweight"};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 1; k < OPS; k += 2)
			for (int i = -1; i < level_count(); i++)
				for (int t = 0; t < (i < 0 ? 3 : 9); t++) {
					struct test_case c = op_case(k, shapes[s][0], shapes[s][1]);
					struct setting setting = settings[t / 3];
					setting.level = i < 0 ? "reference" : level_name(i);
					case_drop(&c, without[t % 3]);
					if ((s + k + t) % (test_mode == TEST_SHORT ? 11 : 2) == 0)
						check_workspace(&c, setting);
				}
}

/* ---- the stack ---- */

#ifdef __OPTIMIZE__
enum { OPTIMIZED = 1 };
#else
enum { OPTIMIZED = 0 };
#endif
enum { STACK_BYTES = 256 << 10 };

struct stack_call {
	ek_context *ctx;
	const struct ek_op *op;
	union op_args args;
	unsigned char *stack, *top;
	ek_status status;
};

/* Paints the stack below this function, then calls. */
static void *call_on_painted_stack(void *argument)
{
	struct stack_call *call = argument;
	unsigned char here;
	call->top = &here;
	memset(call->stack, CANARY, (size_t)(call->top - call->stack) - 1024);
	call->status = call->op->call(call->ctx, &call->args);
	return NULL;
}

static size_t stack_of(const struct test_case *c, struct setting setting)
{
	static _Alignas(4096) unsigned char stack[STACK_BYTES];
	struct stack_call call = {.ctx = context_of(setting), .op = case_op(c), .stack = stack};
	pthread_attr_t attributes;
	pthread_t thread;
	case_outputs(call.ctx, c, &case_actual);
	call.args = case_args_in(c, &case_actual);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, STACK_BYTES);
	EXPECT(pthread_create(&thread, &attributes, call_on_painted_stack, &call) == 0 &&
		       pthread_join(thread, NULL) == 0 && call.status == EK_OK,
	       "%s: no thread, or %s", case_text(c), ek_status_name(call.status));
	pthread_attr_destroy(&attributes);
	unsigned char *deepest = stack;
	while (deepest < call.top && *deepest == CANARY)
		deepest++;
	return (size_t)(call.top - deepest);
}

static size_t header_says(const char *level, bool plain)
{
	return !plain                             ? 224 << 10
	       : strcmp(level, "reference") == 0  ? 144 << 10
	       : strncmp(level, "avx512", 6) == 0 ? 24 << 10
						  : 16 << 10;
}

TEST(calls_use_no_more_stack_than_the_header_says)
{
	SKIP_IF(!OPTIMIZED || UNDER_SANITIZER, "frames are larger");
	static const int64_t shapes[][2] = {{1, 1}, {7, 100}, {3, 90000}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < 16 * DTYPE_PAIRS; k += test_mode == TEST_SHORT ? 5 : 1) {
			bool plain = k < 8 * DTYPE_PAIRS;
			struct test_case c =
				case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM,
					dtype_pairs[k / 8 % DTYPE_PAIRS], shapes[s][0], shapes[s][1]);
			if (!plain) {
				c = case_make(&open_ops[k >> 1 & 1], c.pass, dtype_pairs[k / 8 % DTYPE_PAIRS],
					      c.rows, c.cols);
				case_choose(&c, (int)(random_mixed((uint64_t)(k + s)) %
						      (uint64_t)case_choice_count(&c)));
			}
			if (k & 4)
				case_drop(&c, STATISTICS);
			case_fill(&c);
			for (int l = s == 0 ? -1 : 0; l < level_count(); l++) { /* the reference is slow */
				struct setting setting = {l < 0 ? "reference" : level_name(l), s + 1, PLAIN};
				size_t used = stack_of(&c, setting),
				       allowed = header_says(setting.level, plain);
				EXPECT(used <= allowed && used > 256,
				       "%s, level %s, %d threads: %zu bytes of stack, the header says %zu",
				       case_text(&c), setting.level, setting.threads, used, allowed);
			}
		}
}

TEST(calls_on_heads_use_no_more_stack_than_the_header_says)
{
	SKIP_IF(!OPTIMIZED || UNDER_SANITIZER, "frames are larger");
	for (int k = 0; k < 4 * ROPE_CASES; k++) {
		struct test_case c = rope_case(k, (struct head_sizes){2, 40, 4, 2, 64 << k % 5, 64});
		case_fill(&c);
		for (int l = -1; l < level_count(); l++) {
			struct setting setting = {l < 0 ? "reference" : level_name(l), 1 + k % 3, PLAIN};
			size_t used = stack_of(&c, setting);
			EXPECT(used <= (size_t)144 << 10 && used > 256,
			       "%s, level %s, %d threads: %zu bytes of stack, the header says 144 KiB",
			       case_text(&c), setting.level, setting.threads, used);
		}
	}
}

TEST(calls_of_gated_activations_use_no_more_stack_than_the_header_says)
{
	SKIP_IF(!OPTIMIZED || UNDER_SANITIZER, "frames are larger");
	for (int k = 0; k < 2 * GLU_CASES; k++) {
		struct test_case c = glu_case(k, 40, 3000 + k);
		case_fill(&c);
		for (int l = -1; l < level_count(); l++) {
			struct setting setting = {l < 0 ? "reference" : level_name(l), 1 + k % 3, PLAIN};
			size_t used = stack_of(&c, setting);
			EXPECT(used <= (size_t)80 << 10 && used > 256,
			       "%s, level %s, %d threads: %zu bytes of stack, the header says 80 KiB",
			       case_text(&c), setting.level, setting.threads, used);
		}
	}
}

/* ---- the workspace of fewer rows ---- */

static size_t workspace_for(ek_context *ctx, struct test_case c, int64_t rows)
{
	size_t bytes = 0;
	union op_args args;
	c.rows = rows;
	case_args_nowhere(&c, &args);
	EXPECT(args_workspace(case_op(&c), ctx, &args, &bytes) == EK_OK, "%s: %s", case_text(&c),
	       ek_error(ctx));
	return bytes;
}

static void check_workspace_grows(struct setting setting, const struct test_case *c)
{
	size_t most = 0;
	ek_context *ctx = context_of(setting);
	for (int64_t rows = 0, of = 0; rows <= most_rows; rows = next_rows(rows, c->cols)) {
		size_t bytes = workspace_for(ctx, *c, rows);
		EXPECT(bytes >= most,
		       "%s, level %s, %d threads: %lld rows are given %zu bytes, %lld rows need %zu",
		       case_text(c), setting.level, setting.threads, (long long)rows, bytes, (long long)of,
		       most);
		if (bytes < most)
			return;
		of = bytes > most ? rows : of;
		most = bytes;
	}
}

/* So that one allocation, for the largest call, is enough. */
TEST(the_workspace_of_many_rows_is_enough_for_fewer)
{
	static const int64_t widths[] = {1, 128, 129, 768, 1025, 4096, 9000, 33000, 70000, 140000, 1 << 20};
	static const int threads[] = {1, 2, 7, 64};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int t = -1; t < COUNT_OF(threads); t++)
			for (int d = 0; d < DTYPE_PAIRS; d++) {
				struct test_case c =
					case_of(true, EK_LAYER_NORM, dtype_pairs[d], 0, widths[w]);
				struct setting setting = {t < 0 ? "reference" : level_best(),
							  t < 0 ? 1 : threads[t], PLAIN};
				if (test_sampled(2))
					check_workspace_grows(setting, &c);
			}
}

/* The same of gated activations. */
TEST(the_workspace_of_many_rows_of_a_gate_is_enough_for_fewer)
{
	static const int64_t widths[] = {1, 129, 1025, 11008, 70000};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int t = 0; t < 4; t++)
			for (int k = GLU_OPS; k < GLU_CASES; k += 2 * GLU_OPS) {
				struct test_case c = glu_case(k + w % GLU_OPS, 0, widths[w]);
				case_add(&c, "dgate_bias");
				check_workspace_grows(
					(struct setting){t ? level_best() : "reference", 1 + 3 * t, PLAIN},
					&c);
			}
}

/* The same of tokens. */
TEST(the_workspace_of_many_tokens_is_enough_for_fewer)
{
	static const int threads[] = {1, 2, 7, 64};
	for (int t = -1; t < COUNT_OF(threads); t++)
		for (int k = 0; k < ROPE_CASES; k++) {
			struct test_case c = rope_case(k, (struct head_sizes){1, 1, 4, 2, 96, 96});
			ek_context *ctx = context_of((struct setting){t < 0 ? "reference" : level_best(),
								      t < 0 ? 1 : threads[t], PLAIN});
			size_t most = 0;
			for (c.seq = 0; c.pass == BACKWARD && c.seq < 40000;
			     c.seq = next_rows(c.seq, c.head_dim)) {
				union op_args args;
				size_t bytes = 0;
				case_args_nowhere(&c, &args);
				EXPECT(args_workspace(case_op(&c), ctx, &args, &bytes) == EK_OK, "%s: %s",
				       case_text(&c), ek_error(ctx));
				EXPECT(bytes >= most, "%s: %zu bytes, fewer tokens need %zu", case_text(&c),
				       bytes, most);
				most = bytes;
			}
		}
}

/* Wide rows shared by threads, rows of one thread, and no rows in the memory of one. */
TEST(a_call_takes_the_workspace_of_more_rows)
{
	static const int64_t calls[][3] = {/* rows, of a workspace for, cols */
					   {1024, 1025, 768}, {2048, 5000, 40}, {3, 4, 140000},
					   {4, 30, 70000},    {0, 1, 70000},    {30, 31, 20000}};
	for (int i = 0; i < COUNT_OF(calls); i++)
		for (int threads = 0; threads < 4; threads++) {
			struct test_case c =
				case_of(true, EK_LAYER_NORM, dtype_pairs[0], calls[i][0], calls[i][2]);
			struct setting setting = {threads ? level_best() : "reference", threads ? threads : 1,
						  PLAIN};
			ek_context *ctx = context_of(setting);
			struct buffer *workspace = &case_actual.workspace.buffer;
			case_expect(&c);
			case_outputs(ctx, &c, &case_actual);
			EXPECT(buffer_reset(workspace, workspace_for(ctx, c, calls[i][1]), PLACE_OFFSET, 0),
			       "no memory");
			union op_args args = case_args_in(&c, &case_actual);
			EXPECT(ek_norm_backward(ctx, &args.backward) == EK_OK, "%s, level %s, %d threads: %s",
			       case_text(&c), setting.level, setting.threads, ek_error(ctx));
			EXPECT(buffer_margins_whole(workspace),
			       "%s, level %s, %d threads: bytes beside the workspace were written",
			       case_text(&c), setting.level, setting.threads);
			(void)case_compare(&c, setting.level, setting.threads, &case_actual);
		}
}
