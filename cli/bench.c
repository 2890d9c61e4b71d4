/* evenkeel bench: every cell of the speed list beside a copy of the same bytes and, on the CPU and where it is
 * there, oneDNN. SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "cell.h"
#include "cli.h"
#include "compare.h"
#include "device.h"
#include "heads.h"
#include "gpu_timing.h"
#include "json.h"
#include "options.h"
#include "peers.h"
#include "term.h"

/* Small and cached calls, forward f32: 1x1 is the overhead of a call. */
static const struct shape cached_shapes[] = {{1, 1}, {1, 4096}, {8, 768}, {512, 768}};

enum { CACHED_SHAPES = sizeof cached_shapes / sizeof cached_shapes[0] };

struct bench {
	const struct options *options;
	ek_context *ctx;
	struct team *team; /* NULL: on a GPU */
	struct peer *peer; /* NULL: not there, or on a GPU */
	struct json *old;  /* NULL: no --compare */
	struct listed_case *cases;
	int case_count;
	struct results results;
	FILE *out;
};

/* A head whenever op, pass or kind of list changes, then the row. */
static void show(const struct bench *bench, const struct result *result)
{
	const struct result *before =
		bench->results.count ? &bench->results.all[bench->results.count - 1] : NULL;
	progress_clear();
	if (!before || before->op != result->op || before->pass != result->pass ||
	    before->cached != result->cached)
		report_table_head(bench->out, result, bench->peer != NULL);
	report_table_row(bench->out, result, bench->peer != NULL);
}

static int bench_case(struct bench *bench, const struct test_case *test_case, bool cached)
{
	static const struct effort whole = {7, 31, 0.9};
	static const struct effort quick = {5, 15, 0.4};
	const struct effort *effort = bench->options->quick ? &quick : &whole;
	struct cell cell;
	struct result result;
	progress_step("%s %s %s %lldx%lld", test_case->op->name, pass_names[test_case->pass],
		      ek_dtype_name(test_case->dtype), (long long)case_shape(test_case).rows,
		      (long long)case_shape(test_case).cols);
	int status = cell_make(&cell, bench->ctx, bench->options, test_case, cached ? 1 : 0);
	if (status != STATUS_FINE)
		return status;
	if (cached)
		status = cell_measure_cached(&cell, bench->ctx, bench->peer, &result);
	else if (cell.gpu)
		status = gpu_measure(&cell, bench->ctx, effort, &result);
	else
		status = cell_measure(&cell, bench->ctx, bench->team, bench->peer, effort, &result);
	cell_free(&cell);
	if (status != STATUS_FINE)
		return status;
	show(bench, &result);
	bench->results.all[bench->results.count++] = result;
	return STATUS_FINE;
}

/* The small calls are part of the CPU's list, not of a question about certain shapes, dtypes or passes. */
static bool wants_cached(const struct options *options)
{
	return options->device == EK_CPU && !(options->op_count && is_on_heads(options->ops[0])) &&
	       !options->shape_count && !options->dtype_count && !options->pass[BACKWARD];
}

static int bench_all(struct bench *bench)
{
	int status = STATUS_FINE;
	bool cached = wants_cached(bench->options);
	progress_begin(bench->case_count + (cached ? CACHED_SHAPES : 0));
	for (int i = 0; i < bench->case_count && status == STATUS_FINE; i++)
		status = bench_case(bench, &bench->cases[i].c, false);
	for (int i = 0; i < CACHED_SHAPES && cached && status == STATUS_FINE; i++) {
		struct test_case small = case_with(bench->options, bench->cases[0].c.op, FORWARD,
						   (struct dtype_pair){EK_F32, EK_F32}, cached_shapes[i]);
		status = bench_case(bench, &small, true);
	}
	progress_clear();
	return status;
}

/* What the CPU's timing needs beside the context. */
static int prepare_cpu(struct bench *bench)
{
	int threads = device_words(bench->ctx).threads;
	bench->team = team_start(threads);
	if (!bench->team)
		return STATUS_USAGE;
	bench->peer = peer_open(threads);
	return STATUS_FINE;
}

static int prepare(struct bench *bench)
{
	const struct options *options = bench->options;
	int status = report_files_possible(options);
	if (status == STATUS_FINE && options->compare)
		status = compare_read(options->compare, &bench->old);
	if (status == STATUS_FINE)
		status = device_open(&bench->ctx, options);
	if (status != STATUS_FINE)
		return status;
	bench->cases = cases_list(options, true, &bench->case_count);
	bench->results.all = calloc((size_t)bench->case_count + CACHED_SHAPES, sizeof *bench->results.all);
	if (!bench->cases || !bench->results.all)
		return complain(
			STATUS_USAGE,
			"not enough memory for a list of %d cases and their results (%zu bytes): name fewer, by --quick or --shapes",
			bench->case_count,
			(size_t)bench->case_count * (sizeof *bench->cases + sizeof *bench->results.all));
	if (bench->case_count == 0)
		return complain(
			STATUS_USAGE,
			"nothing to measure: no dtype of the list goes with these options, name one with --dtype");
	return options->device == EK_CPU ? prepare_cpu(bench) : STATUS_FINE;
}

static void release(struct bench *bench)
{
	peer_close(bench->peer);
	team_destroy(bench->team);
	ek_close(bench->ctx);
	json_free(bench->old);
	free(bench->cases);
	free(bench->results.all);
}

int command_bench(const struct options *options)
{
	struct bench bench = {.options = options, .out = report_stream(options)};
	int status = prepare(&bench);
	if (status == STATUS_FINE) {
		(void)fprintf(
			bench.out,
			"of copy: time of a copy of the same bytes over time of the op, 1.00 is the limit\n");
		if (options->device == EK_CUDA)
			(void)fprintf(
				bench.out,
				"in a loop: a call without a graph, host included; host: the calling thread alone\n");
		if (bench.peer)
			(void)fprintf(bench.out, "oneDNN: times as long as evenkeel takes (%s)\n",
				      peer_name(bench.peer));
		status = bench_all(&bench);
	}
	if (status == STATUS_FINE && bench.old)
		compare_print(bench.out, bench.old, &bench.results);
	if (status == STATUS_FINE)
		status = report_files(options, bench.ctx, &bench.results);
	release(&bench);
	return status;
}
