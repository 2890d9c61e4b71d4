/* evenkeel run: one op on one shape, checked against the reference and timed beside a copy.
 * SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "cell.h"
#include "choices.h"
#include "cli.h"
#include "device.h"
#include "heads.h"
#include "gpu_timing.h"
#include "options.h"
#include "problem.h"
#include "term.h"

/* Up to here the reference computes the whole case, in some seconds; beyond, a sample of its rows. */
static const int64_t whole_elements = 300000000;
enum { SAMPLE_ROWS = 32 };

static struct listed_case asked_for(const struct options *options)
{
	ek_dtype dtype = options->dtype_count ? options->dtypes[0] : EK_F32;
	struct dtype_pair dtypes = {dtype, options->weight_dtype ? options->weight_dtype : dtype};
	struct shape shape = {options->rows ? options->rows : 2048, options->cols ? options->cols : 4096};
	return (struct listed_case){case_with(options, options->ops[0],
					      options->pass[BACKWARD] ? BACKWARD : FORWARD, dtypes, shape),
				    "plain"};
}

static void print_outputs(FILE *out, const struct operands *outputs)
{
	const char *between = "";
	for (int i = 0; i < outputs->op->output_count; i++) {
		if (!outputs->of[i].present)
			continue;
		(void)fprintf(out, "%s%s", between, outputs->op->operands[i].name);
		between = ", ";
	}
}

/* Sums over all rows: the reference would take long. */
static uint32_t sums_of(const struct test_case *c)
{
	uint32_t sums = 0;
	for (int i = 0; i < case_op(c)->output_count; i++)
		sums |= case_op(c)->operands[i].dims[0].size != 0 ? UINT32_C(1) << i : 0;
	return sums & c->present;
}

/* A problem of one row: what a row gives does not depend on the others. */
static int check_row(const struct problem *whole, struct problem *one, ek_context *reference, int64_t row,
		     bool *same, struct difference *difference)
{
	operands_row(&one->listed.c, &whole->inputs, row, &one->inputs);
	operands_row(&one->listed.c, &whole->actual, row, &one->actual);
	int status = problem_compute(one, reference, &one->expected);
	*same = status != STATUS_FINE || outputs_equal(&one->expected, &one->actual, difference);
	return status;
}

static int check_sample(FILE *out, struct problem *whole, ek_context *ctx, ek_context *reference,
			const struct options *options)
{
	struct problem one = {.listed = whole->listed};
	struct difference difference;
	uint32_t sums = sums_of(&one.listed.c);
	int status = STATUS_FINE;
	int64_t rows = whole->listed.c.rows;
	one.listed.c.rows = 1;
	case_drop_operands(&one.listed.c, sums);
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
		print_outputs(out, &one.expected);
		(void)fprintf(out, " of %lld of %lld rows equal the reference bit for bit%s\n",
			      (long long)(rows < SAMPLE_ROWS ? rows : SAMPLE_ROWS), (long long)rows,
			      sums ? "; sums over all rows were not checked: too large" : "");
	}
	operands_free(&one.expected);
	return status;
}

static int check_whole(FILE *out, struct problem *problem, ek_context *ctx, ek_context *reference,
		       const struct options *options)
{
	struct difference difference;
	int status = problem_compute(problem, reference, &problem->expected);
	if (status != STATUS_FINE)
		return status;
	if (!outputs_same(&problem->expected, &problem->actual, &difference))
		return show_difference(problem, &difference, ctx, options, "run");
	(void)fprintf(out, "check   ");
	print_outputs(out, &problem->actual);
	(void)fprintf(out, ": all %.0f values equal the reference bit for bit\n",
		      outputs_values(&problem->actual));
	return STATUS_FINE;
}

static int check(FILE *out, ek_context *ctx, const struct options *options, const struct listed_case *listed)
{
	static struct problem problem;
	ek_context *reference;
	bool whole = case_shape(&listed->c).rows <= whole_elements / case_shape(&listed->c).cols;
	int status = open_context(&reference, "reference", 1, 0);
	if (status != STATUS_FINE)
		return status;
	status = problem_make(&problem, whole ? reference : ctx, listed);
	if (status == STATUS_FINE)
		status = problem_compute(&problem, ctx, &problem.actual);
	if (status == STATUS_FINE)
		status = (whole ? check_whole : check_sample)(out, &problem, ctx, reference, options);
	problem_free(&problem);
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
	struct team *team = team_start(device_words(ctx).threads);
	if (!team)
		return STATUS_USAGE;
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
	const struct listed_case listed = asked_for(options);
	const struct test_case *test_case = &listed.c;
	FILE *out = report_stream(options);
	ek_context *ctx;
	struct result result;
	struct results results = {&result, 0};
	int status = report_files_possible(options);
	if (status == STATUS_FINE)
		status = device_open(&ctx, options);
	if (status != STATUS_FINE)
		return status;
	(void)fprintf(out, "%s%s %s%s %lldx%lld %s%s, %s\n", term_style(out, STYLE_BOLD), test_case->op->name,
		      pass_names[test_case->pass], term_style(out, STYLE_NONE),
		      (long long)case_shape(test_case).rows, (long long)case_shape(test_case).cols,
		      ek_dtype_name(test_case->dtype), choices_text(test_case), device_words(ctx).text);
	if (options->verify)
		status = check(out, ctx, options, &listed);
	if (status == STATUS_FINE && options->time) {
		status = measure(out, ctx, options, test_case, &result);
		results.count = status == STATUS_FINE;
	}
	if (status == STATUS_FINE)
		status = report_files(options, ctx, &results);
	ek_close(ctx);
	return status;
}
