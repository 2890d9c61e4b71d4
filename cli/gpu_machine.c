/* Copies by size and the rate of fused multiply-adds of a GPU, by its own clock. Called by measure.c.
 * SPDX-License-Identifier: MIT */
#include "cli.h"
#include "core/context.h"
#include "gpu_kernels.h"
#include "gpu_watch.h"
#include "measure.h"
#include "term.h"
#include "verify/memory.h"

enum {
	LEAST_CALLS = 4, /* in a graph */
	MOST_CALLS = 4096,
	TRIALS = 4 /* the first does not count: clocks warm up */
};
static const double graph_seconds = 4e-3;

/* Calls that take about four milliseconds: starting their graph is then not to be seen, and also the smallest copies
 * walk through more than an L2 holds. */
static int64_t calls_of(struct watch *watch, watch_enqueue *enqueue, const void *work)
{
	watch_start(watch);
	for (int i = 0; i < LEAST_CALLS; i++)
		enqueue(watch, work, i);
	double wanted = LEAST_CALLS * graph_seconds / (watch_elapsed(watch) + 1e-9);
	return wanted > MOST_CALLS ? MOST_CALLS : wanted > LEAST_CALLS ? (int64_t)wanted : LEAST_CALLS;
}

/* Of a call, in the fastest trial of a graph. */
static double best_seconds(struct watch *watch, watch_enqueue *enqueue, const void *work, int64_t calls)
{
	double best = 0;
	CUgraphExec graph = watch_capture(watch, enqueue, work, calls);
	for (int trial = 0; trial < TRIALS && !watch_failed(watch); trial++) {
		double seconds = watch_replay(watch, graph, calls);
		if (trial > 0 && (best == 0 || seconds < best))
			best = seconds;
	}
	watch_discard(watch, graph);
	return best;
}

struct copy {
	int variant;
	CUfunction function;
	unsigned char *memory;
	size_t bytes;   /* of the source, before the destination */
	int64_t places; /* in the memory */
};

static void enqueue_copy(struct watch *watch, const void *work, int64_t call)
{
	const struct copy *copy = work;
	unsigned char *place = copy->memory + (size_t)(call % copy->places) * 2 * copy->bytes;
	WATCH_TRY(watch, "copying",
		  gpu_copy_launch(watch->gpu, copy->variant, copy->function, watch->stream,
				  place + copy->bytes, place, copy->bytes));
}

/* Of the fastest way to copy. Copies walk through all of the memory, so that the bytes come from there and not from the
 * L2. */
static double copy_rate(struct watch *watch, unsigned char *memory, size_t size, size_t touched)
{
	struct copy copy = {.memory = memory, .bytes = touched / 2, .places = (int64_t)(size / touched)};
	double best = 0;
	for (; copy.variant < gpu_copy_variants() && !watch_failed(watch); copy.variant++) {
		watch->status = gpu_copy_get(watch->gpu, copy.variant, &copy.function);
		if (watch_failed(watch))
			break;
		int64_t calls = calls_of(watch, enqueue_copy, &copy);
		double seconds = best_seconds(watch, enqueue_copy, &copy, calls);
		if (seconds > 0 && (double)touched / seconds > best)
			best = (double)touched / seconds;
	}
	return best;
}

struct arithmetic {
	CUfunction function;
	void *to;
};

static void enqueue_arithmetic(struct watch *watch, const void *work, int64_t call)
{
	const struct arithmetic *arithmetic = work;
	(void)call;
	WATCH_TRY(watch, "computing",
		  gpu_flops_launch(watch->gpu, arithmetic->function, watch->stream, arithmetic->to));
}

static double flop_rate(struct watch *watch, ek_dtype dtype, void *memory)
{
	struct arithmetic arithmetic = {.to = memory};
	if (!watch_failed(watch))
		watch->status = gpu_flops_get(watch->gpu, dtype, &arithmetic.function);
	if (watch_failed(watch))
		return 0;
	double seconds = best_seconds(watch, enqueue_arithmetic, &arithmetic, LEAST_CALLS);
	return seconds > 0 ? gpu_flops_of_launch(watch->gpu) / seconds : 0;
}

/* How many of the sizes there is memory for. */
static int sizes_that_fit(struct ek_gpu *gpu)
{
	int count = 0;
	while (count < COPY_SIZES && memory_suffices(gpu, (double)copy_sizes[count]))
		count++;
	return count;
}

static void measure_all(struct watch *watch, unsigned char *memory, int count, struct rates *rates)
{
	for (int i = 0; i < count; i++) {
		progress_step("copy of %zu KB", copy_sizes[i] / 1024);
		rates->copy[i] = copy_rate(watch, memory, copy_sizes[count - 1], copy_sizes[i]);
	}
	for (int i = 0; i < FLOP_DTYPES; i++) {
		progress_step("arithmetic, %s", ek_dtype_name(flop_dtypes[i]));
		rates->flops[i] = flop_rate(watch, flop_dtypes[i], memory);
	}
}

int gpu_rates(ek_context *ctx, struct rates *rates)
{
	struct watch watch;
	bool pushed;
	int count = sizes_that_fit(ctx->gpu);
	if (count == 0)
		return complain(STATUS_NO_DEVICE, "cuda:%d: no memory for %zu KB", ctx->ordinal,
				copy_sizes[0] / 1024);
	unsigned char *memory = memory_make(ctx->gpu, copy_sizes[count - 1]);
	if (!memory || ek_gpu_enter(ctx->gpu, &pushed) != EK_OK) {
		memory_free(ctx->gpu, memory);
		return complain(STATUS_NO_DEVICE, "%s", ek_error(ctx));
	}
	watch_open(&watch, ctx->gpu);
	progress_begin(count + FLOP_DTYPES);
	measure_all(&watch, memory, count, rates);
	progress_clear();
	int status = watch_failed(&watch) ? watch_say_failure(&watch) : STATUS_FINE;
	watch_close(&watch);
	ek_gpu_leave(ctx->gpu, pushed);
	memory_free(ctx->gpu, memory);
	return status;
}
