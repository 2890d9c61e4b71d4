/* info --measure: copies by size on one and on all threads, and the rate of fused multiply-adds, written to
 * a machine file: {"evenkeel", "machine", "copy": [{"bytes","threads","bytes_per_second"}],
 * "flops": [{"dtype","threads","flops_per_second"}]}. Called by info.c, the rates alone by machine.c.
 * SPDX-License-Identifier: MIT */
#include "measure.h"

#include <errno.h>
#include <string.h>

#include "cli.h"
#include "copy.h"
#include "flops.h"
#include "report.h"
#include "term.h"

const size_t copy_sizes[COPY_SIZES] = {65536, 262144, 1048576, 4194304, 16777216, 67108864, 268435456};
static const ek_dtype dtypes[FLOP_DTYPES] = {EK_F32, EK_F64};

bool measure_rates(struct rates *rates, int threads)
{
	struct team *team = team_create(threads);
	if (!team)
		return false;
	for (int i = 0; i < COPY_SIZES; i++) {
		progress_step("copy of %zu KB, %d threads", copy_sizes[i] / 1024, threads);
		rates->copy[i] = copy_rate(team, copy_sizes[i]);
	}
	for (int i = 0; i < FLOP_DTYPES; i++) {
		progress_step("arithmetic, %s, %d threads", ek_dtype_name(dtypes[i]), threads);
		rates->flops[i] = flop_rate(team, dtypes[i]);
	}
	team_destroy(team);
	return true;
}

static void print_row(FILE *out, const char *label, double one, double all)
{
	(void)fprintf(out, "  %-18s %10.1f", label, one * 1e-9);
	if (all > 0)
		(void)fprintf(out, " %10.1f", all * 1e-9);
	(void)fputc('\n', out);
}

/* rates: of one thread and of all, if there are more. */
static void print_table(FILE *out, const struct rates rates[2], int threads)
{
	(void)fprintf(out, "\n%-20s %10s", "threads", "1");
	if (threads > 1)
		(void)fprintf(out, " %10d", threads);
	(void)fprintf(out, "\ncopy, GB/s\n");
	for (int i = 0; i < COPY_SIZES; i++) {
		char label[32];
		(void)snprintf(label, sizeof label, "%zu KB", copy_sizes[i] / 1024);
		print_row(out, label, rates[0].copy[i], rates[1].copy[i]);
	}
	(void)fprintf(out, "arithmetic, GFLOP/s\n");
	for (int i = 0; i < FLOP_DTYPES; i++)
		print_row(out, ek_dtype_name(dtypes[i]), rates[0].flops[i], rates[1].flops[i]);
}

static int write_file(const char *name, const ek_context *ctx, const struct rates rates[2], int threads)
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
		for (int i = 0; i < COPY_SIZES; i++) {
			(void)fprintf(file,
				      "%s\n    {\"bytes\": %zu, \"threads\": %d, \"bytes_per_second\": %.4g}",
				      between, copy_sizes[i], which ? threads : 1, rates[which].copy[i]);
			between = ",";
		}
	(void)fprintf(file, "\n  ],\n  \"flops\": [");
	between = "";
	for (int which = 0; which < kinds; which++)
		for (int i = 0; i < FLOP_DTYPES; i++) {
			(void)fprintf(
				file,
				"%s\n    {\"dtype\": \"%s\", \"threads\": %d, \"flops_per_second\": %.4g}",
				between, ek_dtype_name(dtypes[i]), which ? threads : 1,
				rates[which].flops[i]);
			between = ",";
		}
	(void)fprintf(file, "\n  ]\n}\n");
	return close_output(file, "--measure", name);
}

int measure_machine(const char *name, const ek_context *ctx, int threads, FILE *out)
{
	struct rates rates[2] = {0};
	progress_begin((threads > 1 ? 2 : 1) * RATES);
	bool measured = measure_rates(&rates[0], 1) && (threads == 1 || measure_rates(&rates[1], threads));
	int error = errno;
	progress_clear();
	if (!measured)
		return complain(STATUS_USAGE, "--threads %d: cannot be started (%s): name fewer", threads,
				strerror(error));
	print_table(out, rates, threads);
	return write_file(name, ctx, rates, threads);
}
