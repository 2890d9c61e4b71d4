/* info --measure: copies by size and the rate of fused multiply-adds, on one thread and on all or on a GPU
 * (gpu_machine.c), as a machine file: {"evenkeel", "machine", "copy": [{"bytes","threads","bytes_per_second"}],
 * "flops": [{"dtype","threads","flops_per_second"}]}. Called by info.c and machine.c. SPDX-License-Identifier: MIT */
#include "measure.h"

#include "cli.h"
#include "copy.h"
#include "device.h"
#include "flops.h"
#include "gpu/gpu.h"
#include "report.h"
#include "term.h"
#include "verify/memory.h"

const size_t copy_sizes[COPY_SIZES] = {65536,    262144,   1048576,   4194304,
				       16777216, 67108864, 268435456, 1073741824};
const ek_dtype flop_dtypes[FLOP_DTYPES] = {EK_F32, EK_F64};
enum { CPU_SIZES = COPY_SIZES - 1, CPU_RATES = CPU_SIZES + FLOP_DTYPES };

static int cpu_rates(struct rates *rates, int threads)
{
	struct team *team = team_start(threads);
	if (!team)
		return STATUS_USAGE;
	rates->threads = threads;
	for (int i = 0; i < CPU_SIZES; i++) {
		progress_step("copy of %zu KB, %d threads", copy_sizes[i] / 1024, threads);
		rates->copy[i] = copy_rate(team, copy_sizes[i]);
	}
	for (int i = 0; i < FLOP_DTYPES; i++) {
		progress_step("arithmetic, %s, %d threads", ek_dtype_name(flop_dtypes[i]), threads);
		rates->flops[i] = flop_rate(team, flop_dtypes[i]);
	}
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

static void print_table(FILE *out, const struct rates *rates, int count, const struct ek_gpu *gpu)
{
	if (gpu)
		(void)fprintf(out, "\n%s", gpu->name);
	else
		(void)fprintf(out, "\n%-20s %10d", "threads", rates[0].threads);
	if (count > 1)
		(void)fprintf(out, " %10d", rates[1].threads);
	(void)fprintf(out, "\ncopy, GB/s\n");
	for (int i = 0; i < COPY_SIZES && rates[0].copy[i] > 0; i++) {
		char label[32];
		(void)snprintf(label, sizeof label, gpu ? "%7zu KB" : "%zu KB", copy_sizes[i] / 1024);
		print_row(out, label, rates[0].copy[i], rates[1].copy[i]);
	}
	(void)fprintf(out, "arithmetic, GFLOP/s\n");
	for (int i = 0; i < FLOP_DTYPES; i++)
		print_row(out, ek_dtype_name(flop_dtypes[i]), rates[0].flops[i], rates[1].flops[i]);
}

/* The end of an entry of a list. */
static void write_rate(FILE *file, const struct rates *rates, const char *name, double rate)
{
	if (rates->threads)
		(void)fprintf(file, ", \"threads\": %d", rates->threads);
	(void)fprintf(file, ", \"%s\": %.4g}", name, rate);
}

static void write_file(FILE *file, const ek_context *ctx, const struct rates *rates, int count)
{
	const char *between = "";
	(void)fprintf(file, "{\n  \"evenkeel\": %s,\n  \"machine\": {%s", quoted(ek_version()),
		      rates->threads ? "" : "\"device\": \"cuda\", ");
	write_machine(file, ctx);
	(void)fprintf(file, "},\n  \"copy\": [");
	for (int which = 0; which < count; which++)
		for (int i = 0; i < COPY_SIZES && rates[which].copy[i] > 0; i++, between = ",") {
			(void)fprintf(file, "%s\n    {\"bytes\": %zu", between, copy_sizes[i]);
			write_rate(file, &rates[which], "bytes_per_second", rates[which].copy[i]);
		}
	(void)fprintf(file, "\n  ],\n  \"flops\": [");
	between = "";
	for (int which = 0; which < count; which++)
		for (int i = 0; i < FLOP_DTYPES; i++, between = ",") {
			(void)fprintf(file, "%s\n    {\"dtype\": \"%s\"", between,
				      ek_dtype_name(flop_dtypes[i]));
			write_rate(file, &rates[which], "flops_per_second", rates[which].flops[i]);
		}
	(void)fprintf(file, "\n  ]\n}\n");
}

int measure_machine(ek_context *ctx, bool quickly, FILE *out, FILE *file)
{
	struct rates rates[2] = {0};
	struct device_words device = device_words(ctx);
	int status = STATUS_FINE, count = 0;
	if (device.gpu)
		status = gpu_rates(ctx, &rates[count++]);
	else
		progress_begin((quickly || device.threads == 1 ? 1 : 2) * CPU_RATES);
	if (!device.gpu && !quickly && device.threads > 1)
		status = cpu_rates(&rates[count++], 1);
	if (!device.gpu && status == STATUS_FINE)
		status = cpu_rates(&rates[count++], device.threads);
	progress_clear();
	if (status != STATUS_FINE)
		return status;
	if (out)
		print_table(out, rates, count, gpu_of(ctx));
	write_file(file, ctx, rates, count);
	return STATUS_FINE;
}
