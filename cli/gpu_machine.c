/* info --measure --device cuda: copies by size and the rate of fused multiply-adds of a GPU, by its own clock, written to
 * a machine file: {"evenkeel", "machine": {"device": "cuda", "gpu", …}, "copy": [{"bytes", "bytes_per_second"}],
 * "flops": [{"dtype", "flops_per_second"}]}. Called by info.c. SPDX-License-Identifier: MIT */
#include "gpu_machine.h"

#include "cli.h"
#include "core/context.h"
#include "gpu_copy.h"
#include "gpu_flops.h"
#include "gpu_watch.h"
#include "report.h"
#include "term.h"
#include "verify/memory.h"

/* Sizes of what a copy touches, source and destination together. Copies walk through all of the memory, so that the
 * bytes come from there and not from the L2. */
static const size_t sizes[] = {65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456, 1073741824};
static const ek_dtype dtypes[] = {EK_F32, EK_F64};

enum {
	SIZE_COUNT = sizeof sizes / sizeof sizes[0],
	DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0],
	LEAST_CALLS = 4, /* in a graph */
	MOST_CALLS = 4096,
	TRIALS = 4 /* the first does not count: clocks warm up */
};
static const double graph_seconds = 4e-3;

struct measurement {
	double copy[SIZE_COUNT]; /* bytes per second; 0: there is not so much memory */
	double flops[DTYPE_COUNT];
};

/* ---- rates ---- */

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

/* Of the fastest way to copy. */
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

/* ---- all of it ---- */

/* How many of the sizes there is memory for. */
static int sizes_that_fit(struct ek_gpu *gpu)
{
	int count = 0;
	while (count < SIZE_COUNT && memory_suffices(gpu, (double)sizes[count]))
		count++;
	return count;
}

static void measure_all(struct watch *watch, unsigned char *memory, int count, struct measurement *measured)
{
	for (int i = 0; i < count; i++) {
		progress_step("copy of %zu KB", sizes[i] / 1024);
		measured->copy[i] = copy_rate(watch, memory, sizes[count - 1], sizes[i]);
	}
	for (int i = 0; i < DTYPE_COUNT; i++) {
		progress_step("arithmetic, %s", ek_dtype_name(dtypes[i]));
		measured->flops[i] = flop_rate(watch, dtypes[i], memory);
	}
}

static int measure(ek_context *ctx, struct measurement *measured)
{
	struct watch watch;
	bool pushed;
	int count = sizes_that_fit(ctx->gpu);
	if (count == 0)
		return complain(STATUS_NO_DEVICE, "cuda:%d: no memory for %zu KB", ctx->ordinal,
				sizes[0] / 1024);
	unsigned char *memory = memory_make(ctx->gpu, sizes[count - 1]);
	if (!memory || ek_gpu_enter(ctx->gpu, &pushed) != EK_OK) {
		memory_free(ctx->gpu, memory);
		return complain(STATUS_NO_DEVICE, "%s", ek_error(ctx));
	}
	watch_open(&watch, ctx->gpu);
	progress_begin(count + DTYPE_COUNT);
	measure_all(&watch, memory, count, measured);
	progress_clear();
	int status = watch_failed(&watch) ? watch_say_failure(&watch) : STATUS_FINE;
	watch_close(&watch);
	ek_gpu_leave(ctx->gpu, pushed);
	memory_free(ctx->gpu, memory);
	return status;
}

static void print_table(FILE *out, const struct ek_gpu *gpu, const struct measurement *measured)
{
	(void)fprintf(out, "\n%s\ncopy, GB/s\n", gpu->name);
	for (int i = 0; i < SIZE_COUNT && measured->copy[i] > 0; i++)
		(void)fprintf(out, "  %7zu KB         %10.1f\n", sizes[i] / 1024, measured->copy[i] * 1e-9);
	(void)fprintf(out, "arithmetic, GFLOP/s\n");
	for (int i = 0; i < DTYPE_COUNT; i++)
		(void)fprintf(out, "  %-18s %10.1f\n", ek_dtype_name(dtypes[i]), measured->flops[i] * 1e-9);
}

static void write_json(FILE *file, const ek_context *ctx, const struct measurement *measured)
{
	(void)fputs("{\n  \"evenkeel\": ", file);
	write_json_string(file, ek_version());
	(void)fputs(",\n  \"machine\": {\"device\": \"cuda\", ", file);
	write_machine(file, ctx);
	(void)fputs("},\n  \"copy\": [", file);
	for (int i = 0; i < SIZE_COUNT && measured->copy[i] > 0; i++)
		(void)fprintf(file, "%s\n    {\"bytes\": %zu, \"bytes_per_second\": %.4g}", i ? "," : "",
			      sizes[i], measured->copy[i]);
	(void)fputs("\n  ],\n  \"flops\": [", file);
	for (int i = 0; i < DTYPE_COUNT; i++)
		(void)fprintf(file, "%s\n    {\"dtype\": \"%s\", \"flops_per_second\": %.4g}", i ? "," : "",
			      ek_dtype_name(dtypes[i]), measured->flops[i]);
	(void)fputs("\n  ]\n}\n", file);
}

int gpu_machine_measure(ek_context *ctx, FILE *out, FILE *file)
{
	struct measurement measured = {0};
	int status = measure(ctx, &measured);
	if (status != STATUS_FINE)
		return status;
	print_table(out, ctx->gpu, &measured);
	write_json(file, ctx, &measured);
	return STATUS_FINE;
}
