/* info --measure: copies by size on one and on all threads, and the rate of fused multiply-adds, written to
 * a machine file: {"evenkeel", "machine", "copy": [{"bytes","threads","bytes_per_second"}],
 * "flops": [{"dtype","threads","flops_per_second"}]}. Called by info.c. SPDX-License-Identifier: MIT */
#include "measure.h"

#include <errno.h>
#include <string.h>

#include "cli.h"
#include "copy.h"
#include "flops.h"
#include "report.h"
#include "term.h"

/* Sizes of what a copy touches, source and destination together, divided among its threads. */
static const size_t sizes[] = {65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456};

enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

struct measurement {
	double copy[2][SIZE_COUNT]; /* one thread, all threads */
	double f32[2], f64[2];
};

static int measure_team(struct measurement *measurement, int which, int threads)
{
	struct team *team = team_create(threads);
	if (!team)
		return complain(STATUS_USAGE, "--threads %d: cannot be started (%s): name fewer", threads,
				strerror(errno));
	for (int i = 0; i < SIZE_COUNT; i++) {
		progress_step("copy of %zu KB, %d threads", sizes[i] / 1024, threads);
		measurement->copy[which][i] = copy_rate(team, sizes[i]);
	}
	measurement->f32[which] = flop_rate(team, EK_F32);
	measurement->f64[which] = flop_rate(team, EK_F64);
	team_destroy(team);
	return STATUS_FINE;
}

static void print_row(FILE *out, const char *label, double one, double all)
{
	(void)fprintf(out, "  %-18s %10.1f", label, one * 1e-9);
	if (all > 0)
		(void)fprintf(out, " %10.1f", all * 1e-9);
	(void)fputc('\n', out);
}

static void print_table(FILE *out, const struct measurement *measurement, int threads)
{
	(void)fprintf(out, "\n%-20s %10s", "threads", "1");
	if (threads > 1)
		(void)fprintf(out, " %10d", threads);
	(void)fprintf(out, "\ncopy, GB/s\n");
	for (int i = 0; i < SIZE_COUNT; i++) {
		char label[32];
		(void)snprintf(label, sizeof label, "%zu KB", sizes[i] / 1024);
		print_row(out, label, measurement->copy[0][i], measurement->copy[1][i]);
	}
	(void)fprintf(out, "arithmetic, GFLOP/s\n");
	print_row(out, "f32", measurement->f32[0], measurement->f32[1]);
	print_row(out, "f64", measurement->f64[0], measurement->f64[1]);
}

static int write_file(const char *name, const ek_context *ctx, const struct measurement *measurement,
		      int threads)
{
	FILE *file = open_output("--measure", name);
	if (!file)
		return STATUS_USAGE;
	(void)fprintf(file, "{\n  \"evenkeel\": ");
	write_json_string(file, ek_version());
	(void)fprintf(file, ",\n  \"machine\": {");
	write_machine(file, ctx);
	(void)fprintf(file, "},\n  \"copy\": [");
	const char *between = "";
	int kinds = threads > 1 ? 2 : 1;
	for (int which = 0; which < kinds; which++)
		for (int i = 0; i < SIZE_COUNT; i++) {
			(void)fprintf(file,
				      "%s\n    {\"bytes\": %zu, \"threads\": %d, \"bytes_per_second\": %.4g}",
				      between, sizes[i], which ? threads : 1, measurement->copy[which][i]);
			between = ",";
		}
	(void)fprintf(file, "\n  ],\n  \"flops\": [");
	between = "";
	for (int which = 0; which < kinds; which++)
		for (int wide = 0; wide < 2; wide++) {
			(void)fprintf(
				file,
				"%s\n    {\"dtype\": \"%s\", \"threads\": %d, \"flops_per_second\": %.4g}",
				between, wide ? "f64" : "f32", which ? threads : 1,
				(wide ? measurement->f64 : measurement->f32)[which]);
			between = ",";
		}
	(void)fprintf(file, "\n  ]\n}\n");
	return close_output(file, "--measure", name);
}

int measure_machine(const char *name, const ek_context *ctx, int threads, FILE *out)
{
	struct measurement measurement = {0};
	progress_begin(2 * SIZE_COUNT);
	int status = measure_team(&measurement, 0, 1);
	if (status == STATUS_FINE && threads > 1)
		status = measure_team(&measurement, 1, threads);
	progress_clear();
	if (status != STATUS_FINE)
		return status;
	print_table(out, &measurement, threads);
	return write_file(name, ctx, &measurement, threads);
}
