/* The timing of a cell on a GPU, beside the fastest copy of the same bytes. Called by bench.c and run.c.
 * SPDX-License-Identifier: MIT */
#include "gpu_timing.h"

#include "cli.h"
#include "core/context.h"
#include "gpu/gpu.h"
#include "gpu_kernels.h"
#include "gpu_watch.h"
#include "timing.h"

enum {
	LEAST_CALLS = 20,  /* in a graph */
	MOST_CALLS = 4096, /* … that is made larger for a longer time */
	MOST_QUEUED = 200, /* calls that a stream takes without waiting; a call may be several launches */
	TRIALS = 3,        /* of each way to copy */
	HOST_ROUNDS = 7
};
static const double graph_seconds = 1e-3;  /* a graph takes about so long: starting it is not to be seen */
static const double queued_seconds = 0.05; /* and so long, at most, what is queued to measure the host */

/* What is measured: the op, or a way to copy. */
struct work {
	struct cell *cell;
	ek_context *ctx;     /* the op */
	int variant;         /* the copy */
	CUfunction function; /* of it */
};

static void enqueue(struct watch *watch, const void *given, int64_t call)
{
	const struct work *work = given;
	struct cell *cell = work->cell;
	int64_t set = call % cell->sets;
	int input = cell_input(cell);
	if (watch_failed(watch))
		return;
	if (work->ctx)
		watch->status = cell_call(cell, work->ctx, set);
	else
		WATCH_TRY(watch, "copying",
			  gpu_copy_launch(watch->gpu, work->variant, work->function, watch->stream,
					  cell->slabs[0] + cell->steps[0] * (size_t)set,
					  cell->slabs[input] + cell->steps[input] * (size_t)set,
					  cell_copied(cell)));
}

/* How many calls a graph holds: all sets, a multiple of them for a longer time, at least LEAST_CALLS. */
static int64_t choose_calls(struct watch *watch, const struct work *op)
{
	int64_t sets = op->cell->sets;
	enqueue(watch, op, 0); /* compiles */
	watch_wait(watch);
	watch_start(watch);
	for (int64_t i = 0; i < LEAST_CALLS; i++)
		enqueue(watch, op, i);
	double seconds = watch_elapsed(watch) / LEAST_CALLS;
	double wanted = seconds > 0 ? graph_seconds / seconds : MOST_CALLS;
	int64_t least = wanted > MOST_CALLS    ? MOST_CALLS
			: wanted > LEAST_CALLS ? (int64_t)wanted
					       : LEAST_CALLS;
	return (least + sets - 1) / sets * sets;
}

/* The graph of the fastest copy at this size, by the median of some trials. */
static CUgraphExec fastest_copy(struct watch *watch, struct cell *cell, int64_t calls)
{
	CUgraphExec best = NULL;
	double best_seconds = 0;
	for (int variant = 0; variant < gpu_copy_variants() && !watch_failed(watch); variant++) {
		struct work copy = {.cell = cell, .variant = variant};
		double seconds[TRIALS];
		watch->status = gpu_copy_get(watch->gpu, variant, &copy.function);
		CUgraphExec graph = watch_capture(watch, enqueue, &copy, calls);
		for (int i = -1; i < TRIALS; i++) { /* the first does not count */
			double trial = watch_replay(watch, graph, calls);
			seconds[i < 0 ? 0 : i] = trial;
		}
		double typical = median(seconds, TRIALS);
		bool better = !best || typical < best_seconds;
		watch_discard(watch, better ? best : graph);
		best = better ? graph : best;
		best_seconds = better ? typical : best_seconds;
	}
	return best;
}

static void time_graphs(struct watch *watch, const struct work *op, int64_t calls,
			const struct effort *effort, struct result *result)
{
	double seconds[MAX_ROUNDS] = {0};
	double copies[MAX_ROUNDS] = {0};
	int rounds = 0;
	CUgraphExec copy = fastest_copy(watch, op->cell, calls);
	CUgraphExec graph = watch_capture(watch, enqueue, op, calls);
	(void)watch_replay(watch, graph, calls); /* a round that does not count: clocks warm up */
	double begun = seconds_now();
	while (!watch_failed(watch) &&
	       (rounds < effort->least_rounds ||
		(rounds < effort->most_rounds && seconds_now() - begun < effort->seconds))) {
		seconds[rounds] = watch_replay(watch, graph, calls);
		copies[rounds] = watch_replay(watch, copy, calls);
		rounds++;
	}
	watch_discard(watch, graph);
	watch_discard(watch, copy);
	if (watch_failed(watch))
		return;
	result->seconds = median(seconds, rounds);
	/* Backward moves three tensors or more, a copy of one two. */
	result->copy_seconds = median(copies, rounds) * cell_copies(op->cell, 2);
}

/* Calls as a program makes them that captures no graphs; and the host's thread alone, which only queues them. */
static void time_host(struct watch *watch, const struct work *op, int64_t calls, struct result *result)
{
	double whole[HOST_ROUNDS];
	double host[HOST_ROUNDS];
	double fitting = queued_seconds / result->seconds;
	int64_t queued = fitting > MOST_QUEUED   ? MOST_QUEUED
			 : fitting > LEAST_CALLS ? (int64_t)fitting
						 : LEAST_CALLS;
	for (int round = 0; round < HOST_ROUNDS; round++) {
		double start = seconds_now();
		for (int64_t i = 0; i < calls; i++)
			enqueue(watch, op, i);
		watch_wait(watch);
		whole[round] = (seconds_now() - start) / (double)calls;
		start = seconds_now();
		for (int64_t i = 0; i < queued; i++)
			enqueue(watch, op, i);
		host[round] = (seconds_now() - start) / (double)queued;
		watch_wait(watch);
	}
	result->host_seconds = median(whole, HOST_ROUNDS);
	result->launch_seconds = median(host, HOST_ROUNDS);
}

int gpu_measure(struct cell *cell, ek_context *ctx, const struct effort *effort, struct result *result)
{
	struct watch watch;
	struct work op = {.cell = cell, .ctx = ctx};
	bool pushed;
	cell_describe(cell, ctx, result);
	if (ek_gpu_enter(ctx->gpu, &pushed) != EK_OK)
		return complain(STATUS_NO_DEVICE, "%s", ek_error(ctx));
	watch_open(&watch, ctx->gpu);
	args_set_stream(cell->op, &cell->args, watch.stream);
	int64_t calls = choose_calls(&watch, &op);
	if (!watch_failed(&watch))
		time_graphs(&watch, &op, calls, effort, result);
	if (!watch_failed(&watch))
		time_host(&watch, &op, calls, result);
	int status = watch_failed(&watch) ? watch_say_failure(&watch) : STATUS_FINE;
	watch_close(&watch);
	args_set_stream(cell->op, &cell->args, NULL);
	ek_gpu_leave(ctx->gpu, pushed);
	return status;
}

/* ---- the first call ---- */

static double time_prepare(const struct cell *cell, int ordinal, const char *cache)
{
	ek_context *ctx;
	ek_options options = {.size = sizeof options, .device = EK_CUDA, .ordinal = ordinal, .cache = cache};
	if (ek_open(&ctx, &options) != EK_OK)
		return 0;
	double start = seconds_now();
	ek_status status = cell->op->prepare(ctx, &cell->args);
	double seconds = seconds_now() - start;
	ek_close(ctx);
	return status == EK_OK ? seconds : 0;
}

struct first_use gpu_first_use(const struct cell *cell, const ek_context *ctx)
{
	struct first_use first = {.compiled = time_prepare(cell, ctx->ordinal, "")};
	struct ek_cache_info info;
	ek_cache_describe(ctx->gpu->cache, &info);
	if (info.folder[0])
		first.cached = time_prepare(cell, ctx->ordinal, NULL);
	return first;
}
