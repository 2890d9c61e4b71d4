/* Contexts under many hands: concurrent callers on one context and on several, fork in the middle, opening
 * and closing, callers with another floating-point environment. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "support_fpenv.h"

/* A caller's own memory and the reference's answers, so that callers share nothing but contexts. */
struct caller {
	struct test_case c;
	struct operands inputs, want, got;
};

static void caller_expect(struct caller *k)
{
	ek_status status = outputs_compute(reference(), &k->c, &k->inputs, &k->want);
	EXPECT(status == EK_OK, "%s: %s", case_text(&k->c), ek_error(reference()));
}

/* Without statistics, in f32. */
static struct caller caller_make(int number, int64_t rows, int64_t cols)
{
	struct caller k = {.c = case_of(number & 1, number & 2 ? EK_RMS_NORM : EK_LAYER_NORM, dtype_pairs[0],
					rows, cols)};
	k.c.seed = (uint64_t)number * 16;
	case_drop(&k.c, STATISTICS);
	EXPECT(inputs_fill(reference(), &k.c, &k.inputs) == EK_OK, "%s", ek_error(reference()));
	caller_expect(&k);
	return k;
}

static void caller_free(struct caller *k)
{
	operands_free(&k->inputs), operands_free(&k->want), operands_free(&k->got);
}

/* One call and its verdict: 0, or what went wrong (usable in a child, which must not print). */
static int caller_try(ek_context *ctx, struct caller *k)
{
	struct difference difference;
	if (outputs_compute(ctx, &k->c, &k->inputs, &k->got) != EK_OK)
		return 1;
	return outputs_same(&k->want, &k->got, &difference) ? 0 : 2;
}

static void caller_check(ek_context *ctx, struct caller *k, const char *where)
{
	struct difference difference;
	int wrong = caller_try(ctx, k);
	if (wrong == 2 && !outputs_same(&k->want, &k->got, &difference))
		test_fail("%s: %s: %s", where, case_text(&k->c), difference_text(&difference));
	EXPECT(wrong != 1, "%s: %s: %s", where, case_text(&k->c), ek_error(ctx));
}

/* Of the best level, unless another is named. */
static ek_context *open_with(ek_options options)
{
	ek_context *ctx = NULL;
	options.size = sizeof options;
	options.isa = options.isa ? options.isa : level_best();
	if (ek_open(&ctx, &options) != EK_OK) {
		printf("ek_open: %s\n", ek_error(NULL));
		exit(1);
	}
	return ctx;
}

static ek_context *open_fresh(int threads)
{
	return open_with((ek_options){.threads = threads});
}

static ek_description describe(const ek_context *ctx)
{
	ek_description d = {.size = sizeof(d)};
	EXPECT(ek_describe(ctx, &d) == EK_OK, "%s", ek_error(ctx));
	return d;
}

/* ---- concurrent callers ---- */

enum { CALLERS = 5 };

struct hand {
	ek_context *ctx;
	struct caller caller;
	int64_t calls, wrong;
	atomic_bool *stop; /* NULL: `calls` calls */
};

static void *hand_run(void *argument)
{
	struct hand *hand = argument;
	for (int64_t n = 0; hand->stop ? !atomic_load(hand->stop) : n < hand->calls; n++)
		hand->wrong += caller_try(hand->ctx, &hand->caller) != 0;
	return NULL;
}

static void concurrent_callers(bool one_context)
{
	ek_context *shared = open_fresh(3);
	struct hand hands[CALLERS];
	pthread_t threads[CALLERS];
	for (int i = 0; i < CALLERS; i++) {
		ek_context *ctx = one_context ? shared : open_fresh(2);
		hands[i] = (struct hand){.ctx = ctx,
					 .calls = test_scaled(60),
					 .caller = caller_make(i, i % 2 ? 600 : 8, i % 2 ? 257 : 40000)};
	}
	for (int i = 0; i < CALLERS; i++)
		pthread_create(&threads[i], NULL, hand_run, &hands[i]);
	for (int i = 0; i < CALLERS; i++) {
		pthread_join(threads[i], NULL);
		EXPECT(hands[i].wrong == 0, "%s, level %s: %lld of %lld calls wrong",
		       case_text(&hands[i].caller.c), level_best(), (long long)hands[i].wrong,
		       (long long)hands[i].calls);
		caller_free(&hands[i].caller);
		if (!one_context)
			ek_close(hands[i].ctx);
	}
	ek_close(shared);
}

TEST(concurrent_callers_on_one_context)
{
	concurrent_callers(true);
}

TEST(concurrent_callers_on_several_contexts)
{
	concurrent_callers(false);
}

TEST(opened_and_closed_many_times)
{
	for (int i = 0; i < (int)test_scaled(100); i++) {
		ek_context *ctx = open_fresh(1 + i % 4);
		if (i % 3) {
			struct caller k = caller_make(i, 300, 500);
			caller_check(ctx, &k, "a fresh context");
			caller_free(&k);
		}
		ek_close(ctx);
	}
}

TEST(thread_counts)
{
	static const int counts[] = {1, 2, 3, 4, 7, 16, 33};
	for (int i = 0; i < COUNT_OF(counts); i++) {
		ek_context *ctx = open_fresh(counts[i]);
		EXPECT(describe(ctx).threads == counts[i], "asked for %d threads, got %d", counts[i],
		       describe(ctx).threads);
		for (int number = 0; number < (test_mode == TEST_SHORT ? 2 : 4); number++) {
			struct caller k = caller_make(number, 700, 300);
			caller_check(ctx, &k, "some threads");
			caller_free(&k);
		}
		ek_close(ctx);
	}
}

/* ---- the caller's own loop ---- */

static struct {
	int64_t loops, tasks, wrong_user;
} seen;

/* Runs the odd tasks, then the even ones. */
static void loop_odd_first(void *user, int64_t count, void (*run)(void *task, int64_t i), void *task)
{
	seen.loops++;
	seen.tasks += count;
	seen.wrong_user += user != &seen;
	for (int64_t start = 1; start >= 0; start--)
		for (int64_t i = start; i < count; i += 2)
			run(task, i);
}

TEST(large_calls_are_cut_into_tasks_for_the_callers_loop)
{
	ek_context *ctx =
		open_with((ek_options){.threads = 3, .parallel_for = loop_odd_first, .parallel_user = &seen});
	for (int number = 0; number < 4; number++) {
		struct caller k = caller_make(number, 2000, 1000);
		memset(&seen, 0, sizeof(seen));
		caller_check(ctx, &k, "the caller's loop");
		EXPECT(seen.loops >= 1 && seen.tasks > seen.loops && seen.wrong_user == 0,
		       "%s: %lld loops, %lld tasks, %lld without the caller's pointer", case_text(&k.c),
		       (long long)seen.loops, (long long)seen.tasks, (long long)seen.wrong_user);
		caller_free(&k);
		k = caller_make(number, 1, 16);
		memset(&seen, 0, sizeof(seen));
		caller_check(ctx, &k, "the caller's loop, hardly used");
		EXPECT(seen.tasks <= 1, "%s: %lld tasks for a call this small", case_text(&k.c),
		       (long long)seen.tasks);
		caller_free(&k);
	}
	ek_close(ctx);
}

/* ---- fork ---- */

static int threads_alive(void)
{
	int count = 0;
	DIR *folder = opendir("/proc/self/task");
	for (const struct dirent *entry; folder && (entry = readdir(folder));)
		count += entry->d_name[0] != '.';
	if (folder)
		(void)closedir(folder);
	return count;
}

/* What a child does: calls on the parent's context and on its own, and closes it. Its exit status tells. */
static void child_run(ek_context *ctx, struct caller *k)
{
	alarm(60);
	if (describe(ctx).workers != 0)
		_exit(5);
	int wrong = caller_try(ctx, k);
	wrong = wrong ? wrong : caller_try(ctx, k);
	if (!wrong && threads_alive() == 1)
		wrong = 4;
	ek_context *own = NULL;
	ek_options options = {.size = sizeof(options), .threads = 2, .isa = level_best()};
	if (ek_open(&own, &options) != EK_OK)
		wrong = 3;
	else
		wrong = wrong ? wrong : caller_try(own, k);
	ek_close(own);
	ek_close(ctx);
	_exit(wrong);
}

static void expect_child(pid_t child, const char *where)
{
	int status = -1;
	EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
	       "%s: the child ended with status 0x%x (exit 1: a call failed, 2: other bits, 3: ek_open failed, "
	       "4: no workers of its own, 5: describes its parent's workers, 6: wrong number of workers described, "
	       "7: workers_error is not EAGAIN, 8: no limit)",
	       where, status);
}

TEST(a_child_calls_after_fork)
{
	SKIP_IF(UNDER_SANITIZER, "sanitizers start no threads in a child");
	for (int started = 0; started < 2; started++)
		for (int number = 0; number < 4; number++) {
			ek_context *ctx = open_fresh(3);
			struct caller k = caller_make(number, 900, 300);
			if (started) /* with workers alive, which the child does not have */
				caller_check(ctx, &k, "before fork");
			fflush(stdout);
			pid_t child = fork();
			if (child == 0)
				child_run(ctx, &k);
			caller_check(ctx, &k, "the parent while the child runs");
			expect_child(child, started ? "workers alive at fork" : "no workers at fork");
			caller_check(ctx, &k, "the parent after the child");
			caller_free(&k);
			ek_close(ctx);
		}
}

TEST(fork_while_another_thread_is_calling)
{
	SKIP_IF(UNDER_SANITIZER, "sanitizers start no threads in a child");
	ek_context *ctx = open_fresh(3);
	atomic_bool stop = false;
	struct hand hand = {.ctx = ctx, .stop = &stop, .caller = caller_make(1, 1200, 400)};
	struct caller k = caller_make(3, 900, 300);
	pthread_t thread;
	pthread_create(&thread, NULL, hand_run, &hand);
	for (int i = 0; i < (int)test_scaled(20); i++) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0)
			child_run(ctx, &k);
		expect_child(child, "fork during a call");
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	EXPECT(hand.wrong == 0, "%lld calls beside fork went wrong", (long long)hand.wrong);
	caller_free(&hand.caller), caller_free(&k);
	ek_close(ctx);
}

/* ---- workers ---- */

TEST(workers_start_in_the_first_large_call_or_on_request)
{
	int before = threads_alive();
	for (int start = 0; start < 2; start++) {
		ek_context *ctx = open_with((ek_options){.threads = 3, .start_threads = start});
		struct caller k = caller_make(1, 900, 300);
		ek_description first = describe(ctx);
		EXPECT(first.workers == 2 * start && threads_alive() == before + 2 * start,
		       "start_threads %d: %d workers described, %d threads more than before, expected %d",
		       start, first.workers, threads_alive() - before, 2 * start);
		caller_check(ctx, &k, "the first large call");
		ek_description second = describe(ctx);
		EXPECT(second.workers == 2 && threads_alive() == before + 2 && second.workers_error == 0,
		       "start_threads %d, after a call: %d workers, error %d, %d threads more than before",
		       start, second.workers, second.workers_error, threads_alive() - before);
		caller_free(&k);
		ek_close(ctx);
	}
}

TEST(contexts_without_a_pool_have_no_workers)
{
	int before = threads_alive();
	const ek_options all[] = {{.threads = 1, .start_threads = 1},
				  {.isa = "reference", .start_threads = 1},
				  {.threads = 3, .parallel_for = loop_odd_first, .start_threads = 1}};
	for (int i = 0; i < COUNT_OF(all); i++) {
		ek_context *ctx = open_with(all[i]);
		ek_description d = describe(ctx);
		EXPECT(d.workers == 0 && d.workers_error == 0 && threads_alive() == before,
		       "options %d: %d workers, error %d", i, d.workers, d.workers_error);
		ek_close(ctx);
	}
}

/* In a child: leaves room in the address space for the heap but not for the stack of a thread. */
static void forbid_threads(void)
{
	long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%lld", &pages) != 1)
		_exit(8);
	(void)fclose(file);
	rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (256 << 10);
	if (setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) != 0)
		_exit(8);
}

/* What a child finds that may start few threads or none: glibc may have stacks left of the parent's threads, so it asks
 * for more than those. */
static int child_without_threads(struct caller *k, int start_threads)
{
	enum { THREADS = 200 };
	ek_context *ctx = NULL;
	ek_options options = {.size = sizeof(options),
			      .threads = THREADS,
			      .isa = level_best(),
			      .start_threads = start_threads};
	forbid_threads();
	if (ek_open(&ctx, &options) != EK_OK)
		return 3;
	for (int i = 0; i < 2; i++) /* twice: a refused worker is not asked for again */
		if (caller_try(ctx, k))
			return 1;
	ek_description d = {.size = sizeof(d)};
	if (ek_describe(ctx, &d) != EK_OK || d.threads != THREADS || d.workers >= THREADS - 1 ||
	    d.workers != threads_alive() - 1)
		return 6;
	if (d.workers_error != EAGAIN)
		return 7;
	ek_close(ctx);
	return 0;
}

TEST(refused_workers_are_reported)
{
	SKIP_IF(UNDER_SANITIZER, "sanitizers start no threads in a child");
	for (int start = 0; start < 2; start++) {
		ek_context *ctx = open_fresh(200); /* for the size of the workspace */
		struct caller k = caller_make(1, 4000, 300);
		ek_close(ctx);
		fflush(stdout);
		pid_t child = fork();
		if (child == 0)
			_exit(child_without_threads(&k, start));
		expect_child(child, start ? "refused in ek_open" : "refused in the first call");
		caller_free(&k);
	}
}

/* ---- the caller's floating-point environment ---- */

/* Flush to zero and other roundings, with subnormal inputs; set before the workers start, which inherit. */
static void make_tiny(struct caller *k, int64_t i)
{
	float *x = (float *)(void *)operand_named(&k->inputs, "x")->buffer.data;
	float *dy = (float *)(void *)operand_named(&k->inputs, "dy")->buffer.data;
	x[i] *= 0x1p-126f;
	if (dy)
		dy[i] *= 0x1p-128f;
}

static void check_fpenv(const char *level, unsigned mode, int threads, int number)
{
	ek_context *ctx = open_with((ek_options){.threads = threads, .isa = level});
	struct caller k = caller_make(number, 900, 130);
	for (int64_t i = 0; i < k.c.rows * k.c.cols; i++)
		if (i / k.c.cols % 3 == 0)
			make_tiny(&k, i);
	caller_expect(&k);
	uint64_t before = fpenv_get();
	fpenv_set(mode);
	int wrong = caller_try(ctx, &k);
	uint64_t after = fpenv_get();
	fpenv_set(before);
	EXPECT(wrong == 0, "%s, level %s, %d threads, control 0x%x: %s", case_text(&k.c), level, threads,
	       mode, wrong == 1 ? ek_error(ctx) : "other bits");
	EXPECT(after == (mode & ~EK_FPENV_FLAGS), "control is 0x%llx after a call, was 0x%x",
	       (unsigned long long)after, mode);
	caller_free(&k);
	ek_close(ctx);
}

TEST(the_callers_float_environment_changes_nothing)
{
	for (int l = -1; l < level_count(); l++)
		for (int m = 0; m < (test_mode == TEST_SHORT ? 2 : FPENV_MODES); m++)
			for (int threads = 1; threads <= 3; threads += 2)
				for (int number = 0; number < (test_mode == TEST_SHORT ? 2 : 4); number++)
					check_fpenv(l < 0 ? "reference" : level_name(l), fpenv_modes[m],
						    threads, number);
}
