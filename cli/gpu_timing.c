/* The timing of a cell on a GPU. Calls are captured in a CUDA graph, so that the host's part of a launch is not
 * in what the GPU's clock measures. SPDX-License-Identifier: MIT */
#include "gpu_timing.h"

#include "cli.h"
#include "context.h"
#include "cuda/gpu.h"
#include "gpu_copy.h"
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

/* A stream with its clock. After a failure the rest is left out, and `what` was being done. */
struct watch {
	struct ek_gpu *gpu;
	const struct ek_driver *driver;
	CUstream stream;
	CUevent from, to;
	CUresult result;
	const char *what;
	ek_status status; /* of the library's calls */
};

#define TRY(watch, words, call)                                                   \
	do {                                                                      \
		if (!failed(watch) && ((watch)->result = (call)) != CUDA_SUCCESS) \
			(watch)->what = (words);                                  \
	} while (0)

static bool failed(const struct watch *watch)
{
	return watch->result != CUDA_SUCCESS || watch->status != EK_OK;
}

static void watch_open(struct watch *watch, struct ek_gpu *gpu)
{
	*watch = (struct watch){.gpu = gpu, .driver = gpu->driver};
	/* What was copied and cleared on the default stream is done before anything runs on ours. */
	TRY(watch, "waiting", watch->driver->context_synchronize());
	TRY(watch, "making a stream", watch->driver->stream_create(&watch->stream, CU_STREAM_NON_BLOCKING));
	TRY(watch, "making an event", watch->driver->event_create(&watch->from, CU_EVENT_DEFAULT));
	TRY(watch, "making an event", watch->driver->event_create(&watch->to, CU_EVENT_DEFAULT));
}

static void watch_close(struct watch *watch)
{
	if (watch->to)
		(void)watch->driver->event_destroy(watch->to);
	if (watch->from)
		(void)watch->driver->event_destroy(watch->from);
	if (watch->stream)
		(void)watch->driver->stream_destroy(watch->stream);
}

static void wait_for_stream(struct watch *watch)
{
	TRY(watch, "waiting", watch->driver->stream_synchronize(watch->stream));
}

/* What is measured: the op, or a way to copy. */
struct work {
	struct cell *cell;
	ek_context *ctx;     /* the op */
	int variant;         /* the copy */
	CUfunction function; /* of it */
};

static void enqueue(struct watch *watch, const struct work *work, int64_t call)
{
	struct cell *cell = work->cell;
	int64_t set = call % cell->sets;
	size_t at = cell->step * (size_t)set;
	if (failed(watch))
		return;
	if (work->ctx)
		watch->status = cell_call(cell, work->ctx, set);
	else
		TRY(watch, "copying",
		    gpu_copy_launch(watch->gpu, work->variant, work->function, watch->stream, cell->out + at,
				    cell->x + at, cell->step));
}

static CUgraphExec capture(struct watch *watch, const struct work *work, int64_t calls)
{
	CUgraph graph = NULL;
	CUgraphExec ready = NULL;
	TRY(watch, "capturing", watch->driver->capture_begin(watch->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (failed(watch))
		return NULL;
	for (int64_t i = 0; i < calls; i++)
		enqueue(watch, work, i);
	/* also after a failure: the stream is to be left as it was */
	CUresult ended = watch->driver->capture_end(watch->stream, &graph);
	TRY(watch, "capturing", ended);
	TRY(watch, "making a graph", watch->driver->graph_instantiate(&ready, graph, 0));
	if (graph)
		(void)watch->driver->graph_destroy(graph);
	return ready;
}

static void discard(const struct watch *watch, CUgraphExec graph)
{
	if (graph)
		(void)watch->driver->graph_exec_destroy(graph);
}

static double elapsed(struct watch *watch)
{
	float milliseconds = 0;
	TRY(watch, "timing", watch->driver->event_record(watch->to, watch->stream));
	TRY(watch, "waiting", watch->driver->event_synchronize(watch->to));
	TRY(watch, "timing", watch->driver->event_elapsed(&milliseconds, watch->from, watch->to));
	return 1e-3 * (double)milliseconds;
}

/* Seconds a call, of all that the graph holds. */
static double replay(struct watch *watch, CUgraphExec graph, int64_t calls)
{
	TRY(watch, "timing", watch->driver->event_record(watch->from, watch->stream));
	TRY(watch, "starting a graph", watch->driver->graph_launch(graph, watch->stream));
	return elapsed(watch) / (double)calls;
}

/* How many calls a graph holds: all sets, a multiple of them for a longer time, at least LEAST_CALLS. */
static int64_t choose_calls(struct watch *watch, const struct work *op)
{
	int64_t sets = op->cell->sets;
	enqueue(watch, op, 0); /* compiles */
	wait_for_stream(watch);
	TRY(watch, "timing", watch->driver->event_record(watch->from, watch->stream));
	for (int64_t i = 0; i < LEAST_CALLS; i++)
		enqueue(watch, op, i);
	double seconds = elapsed(watch) / LEAST_CALLS;
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
	for (int variant = 0; variant < gpu_copy_variants() && !failed(watch); variant++) {
		struct work copy = {.cell = cell, .variant = variant};
		double seconds[TRIALS];
		watch->status = gpu_copy_get(watch->gpu, variant, &copy.function);
		CUgraphExec graph = capture(watch, &copy, calls);
		for (int i = -1; i < TRIALS; i++) { /* the first does not count */
			double trial = replay(watch, graph, calls);
			seconds[i < 0 ? 0 : i] = trial;
		}
		double typical = median(seconds, TRIALS);
		bool better = !best || typical < best_seconds;
		discard(watch, better ? best : graph);
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
	CUgraphExec graph = capture(watch, op, calls);
	(void)replay(watch, graph, calls); /* a round that does not count: clocks warm up */
	double begun = seconds_now();
	while (!failed(watch) &&
	       (rounds < effort->least_rounds ||
		(rounds < effort->most_rounds && seconds_now() - begun < effort->seconds))) {
		seconds[rounds] = replay(watch, graph, calls);
		copies[rounds] = replay(watch, copy, calls);
		rounds++;
	}
	discard(watch, graph);
	discard(watch, copy);
	if (failed(watch))
		return;
	result->seconds = median(seconds, rounds);
	/* Backward moves three tensors, a copy of one two. */
	result->copy_seconds = median(copies, rounds) * (op->cell->dy ? 1.5 : 1);
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
		wait_for_stream(watch);
		whole[round] = (seconds_now() - start) / (double)calls;
		start = seconds_now();
		for (int64_t i = 0; i < queued; i++)
			enqueue(watch, op, i);
		host[round] = (seconds_now() - start) / (double)queued;
		wait_for_stream(watch);
	}
	result->host_seconds = median(whole, HOST_ROUNDS);
	result->launch_seconds = median(host, HOST_ROUNDS);
}

static int say_failure(const struct watch *watch)
{
	ek_status status = watch->status;
	if (watch->result != CUDA_SUCCESS)
		status = ek_gpu_fail(watch->gpu, watch->result, watch->what);
	return complain(device_exit_status(status), "%s", ek_error(NULL));
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
	cell->forward.stream = cell->backward.stream = watch.stream;
	int64_t calls = choose_calls(&watch, &op);
	if (!failed(&watch))
		time_graphs(&watch, &op, calls, effort, result);
	if (!failed(&watch))
		time_host(&watch, &op, calls, result);
	int status = failed(&watch) ? say_failure(&watch) : STATUS_FINE;
	watch_close(&watch);
	cell->forward.stream = cell->backward.stream = NULL;
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
	ek_status status = cell->test_case.pass == FORWARD ? ek_norm_forward_prepare(ctx, &cell->forward)
							   : ek_norm_backward_prepare(ctx, &cell->backward);
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
