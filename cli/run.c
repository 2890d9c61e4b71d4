/* evenkeel run: one op on one shape, checked against the reference and timed beside a copy.
 * SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cell.h"
#include "cli.h"
#include "device.h"
#include "failure.h"
#include "gpu_timing.h"
#include "options.h"
#include "problem.h"
#include "term.h"

/* Up to here the reference computes the whole case, in some seconds; beyond, a sample of its rows. */
static const int64_t whole_elements = 300000000;
enum { SAMPLE_ROWS = 32 };

static struct test_case asked_for(const struct options *options)
{
	bool backward = options->pass[BACKWARD];
	ek_dtype dtype = options->dtype_count ? options->dtypes[0] : EK_F32;
	return (struct test_case){.op = options->ops[0],
				  .pass = backward ? BACKWARD : FORWARD,
				  .dtype = dtype,
				  .weight_dtype = options->weight_dtype ? options->weight_dtype : dtype,
				  .rows = options->rows ? options->rows : 2048,
				  .cols = options->cols ? options->cols : 4096,
				  .form = {"plain", .weight = options->weight,
					   .bias = options->bias && !backward, .returns = !backward,
					   .dx = backward, .dweight = backward && options->weight,
					   .dbias = backward && options->bias}};
}

static void print_outputs(FILE *out, const struct problem *problem)
{
	const char *between = "";
	for (int i = 0; i < OUTPUT_COUNT; i++) {
		if (!problem->actual.tensors[i].memory)
			continue;
		(void)fprintf(out, "%s%s", between, output_name(problem->test_case.pass, (enum output)i));
		between = ", ";
	}
}

/* Row `row` of `from` as the only row of `to`. */
static void take_row(struct tensor *to, const struct tensor *from, int64_t row)
{
	if (to->memory)
		memcpy(to->data, from->data + (size_t)(row * from->stride) * ek_dtype_size(from->dtype),
		       tensor_bytes(to));
}

static void take_value(struct tensor *to, const struct tensor *from, int64_t row)
{
	if (to->memory)
		element_store(to->dtype, to->data, 0, element_value(from->dtype, from->data, row));
}

/* A problem of one row: what a row gives does not depend on the others, but for dweight and dbias. */
static int check_row(const struct problem *whole, struct problem *one, ek_context *reference, int64_t row,
		     bool *same, struct difference *difference)
{
	take_row(&one->x, &whole->x, row);
	take_row(&one->dy, &whole->dy, row);
	take_value(&one->mean, &whole->mean, row);
	take_value(&one->rstd, &whole->rstd, row);
	take_value(&one->mean_lo, &whole->mean_lo, row);
	int status = problem_compute(one, reference, &one->expected);
	take_row(&one->actual.tensors[OUT_RESULT], &whole->actual.tensors[OUT_RESULT], row);
	for (int i = OUT_MEAN; i <= OUT_MEAN_LO; i++)
		take_value(&one->actual.tensors[i], &whole->actual.tensors[i], row);
	*same = problem_same(one, difference);
	return status;
}

static int check_sample(FILE *out, struct problem *whole, ek_context *ctx, ek_context *reference,
			const struct options *options)
{
	struct test_case single = whole->test_case;
	struct difference difference;
	struct problem one;
	bool sums =
		single.form.dweight || single.form.dbias; /* over all rows: the reference would take long */
	single.rows = 1;
	single.form.dweight = single.form.dbias = false;
	int status = problem_make(&one, reference, options, &single);
	int64_t rows = whole->test_case.rows;
	for (int64_t i = 0; i < SAMPLE_ROWS && status == STATUS_FINE; i++) {
		int64_t row = rows > SAMPLE_ROWS ? (rows - 1) / (SAMPLE_ROWS - 1) * i : i % rows;
		bool same = true;
		status = check_row(whole, &one, reference, row, &same, &difference);
		if (status == STATUS_FINE && !same) {
			(void)fprintf(out, "row %lld, alone as row 0:\n", (long long)row);
			status = show_difference(&one, &difference, ctx, options, "run");
		}
	}
	if (status == STATUS_FINE) {
		(void)fprintf(out, "check   ");
		print_outputs(out, &one);
		(void)fprintf(out, " of %lld of %lld rows equal the reference bit for bit%s\n",
			      (long long)(rows < SAMPLE_ROWS ? rows : SAMPLE_ROWS), (long long)rows,
			      sums ? "; dweight and dbias were not checked: too large" : "");
	}
	problem_free(&one);
	return status;
}

static int check_whole(FILE *out, struct problem *problem, ek_context *ctx, ek_context *reference,
		       const struct options *options)
{
	struct difference difference;
	int status = problem_compute(problem, reference, &problem->expected);
	if (status != STATUS_FINE)
		return status;
	if (!problem_same(problem, &difference))
		return show_difference(problem, &difference, ctx, options, "run");
	(void)fprintf(out, "check   ");
	print_outputs(out, problem);
	(void)fprintf(out, ": all %.0f values equal the reference bit for bit\n",
		      outputs_values(&problem->actual));
	return STATUS_FINE;
}

static int check(FILE *out, ek_context *ctx, const struct options *options, const struct test_case *test_case)
{
	ek_context *reference;
	struct problem problem;
	bool whole = test_case->rows <= whole_elements / test_case->cols;
	int status = open_context(&reference, "reference", 1, 0);
	if (status != STATUS_FINE)
		return status;
	status = problem_make(&problem, whole ? reference : ctx, options, test_case);
	if (status == STATUS_FINE) {
		status = problem_compute(&problem, ctx, &problem.actual);
		if (status == STATUS_FINE)
			status = whole ? check_whole(out, &problem, ctx, reference, options)
				       : check_sample(out, &problem, ctx, reference, options);
		problem_free(&problem);
	}
	ek_close(reference);
	return status;
}

static void print_time(FILE *out, const struct result *result, const struct cell *cell)
{
	(void)fprintf(out, "time    %.4g ms, %.1f GB/s, %.2f of a copy (copy: %.4g ms); %.0f MB in turn\n",
		      result->seconds * 1e3, result->bytes / result->seconds * 1e-9, result_of_copy(result),
		      result->copy_seconds * 1e3, result->bytes * (double)cell->sets * 1e-6);
}

/* What a GPU's call costs beside the GPU's own time. */
static void print_host(FILE *out, const struct result *result, const struct first_use *first)
{
	(void)fprintf(out,
		      "host    %.4g ms a call in a loop without a graph; %.2f us of the calling thread\n",
		      result->host_seconds * 1e3, result->launch_seconds * 1e6);
	if (first->compiled > 0)
		(void)fprintf(out, "first   a new width compiles for %.0f ms", first->compiled * 1e3);
	if (first->cached > 0)
		(void)fprintf(out, "%s %.1f ms",
			      first->compiled > 0 ? "; from the cache" : "first   from the cache",
			      first->cached * 1e3);
	if (first->compiled > 0 || first->cached > 0)
		(void)fputc('\n', out);
}

static int measure_on_cpu(FILE *out, struct cell *cell, ek_context *ctx, struct result *result)
{
	static const struct effort effort = {7, 31, 0.9};
	int threads = device_words(ctx).threads;
	struct team *team = team_create(threads);
	if (!team)
		return complain(STATUS_USAGE, "--threads %d: cannot be started (%s): name fewer", threads,
				strerror(errno));
	int status = cell_measure(cell, ctx, team, NULL, &effort, result);
	if (status == STATUS_FINE)
		print_time(out, result, cell);
	team_destroy(team);
	return status;
}

static int measure_on_gpu(FILE *out, struct cell *cell, ek_context *ctx, struct result *result)
{
	static const struct effort effort = {11, 31, 0.5};
	int status = gpu_measure(cell, ctx, &effort, result);
	if (status != STATUS_FINE)
		return status;
	struct first_use first = gpu_first_use(cell, ctx);
	print_time(out, result, cell);
	print_host(out, result, &first);
	return STATUS_FINE;
}

static int measure(FILE *out, ek_context *ctx, const struct options *options,
		   const struct test_case *test_case, struct result *result)
{
	struct cell cell;
	int status = cell_make(&cell, ctx, options, test_case, 0);
	if (status != STATUS_FINE)
		return status;
	status = (cell.gpu ? measure_on_gpu : measure_on_cpu)(out, &cell, ctx, result);
	cell_free(&cell);
	return status;
}

int command_run(const struct options *options)
{
	struct test_case test_case = asked_for(options);
	FILE *out = report_stream(options);
	ek_context *ctx;
	struct result result;
	struct results results = {&result, 0};
	int status = report_files_possible(options);
	if (status == STATUS_FINE)
		status = device_open(&ctx, options);
	if (status != STATUS_FINE)
		return status;
	(void)fprintf(out, "%s%s %s%s %lldx%lld %s, %s\n", term_style(out, STYLE_BOLD), test_case.op->name,
		      pass_names[test_case.pass], term_style(out, STYLE_NONE), (long long)test_case.rows,
		      (long long)test_case.cols, ek_dtype_name(test_case.dtype), device_words(ctx).text);
	if (options->verify)
		status = check(out, ctx, options, &test_case);
	if (status == STATUS_FINE && options->time) {
		status = measure(out, ctx, options, &test_case, &result);
		results.count = status == STATUS_FINE;
	}
	if (status == STATUS_FINE)
		status = report_files(options, ctx, &results);
	ek_close(ctx);
	return status;
}
