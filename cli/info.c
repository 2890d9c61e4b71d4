/* evenkeel info: the library, the CPU and its levels, threads, caches, GPUs (info_gpu.c); --json for programs,
 * --measure for a machine file (measure.c, gpu_machine.c). SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "gpu_machine.h"
#include "info_gpu.h"
#include "measure.h"
#include "options.h"
#include "report.h"
#include "system.h"
#include "term.h"

static void print_levels(FILE *out, const char *chosen)
{
	const char *name;
	int usable;
	(void)fprintf(out, "levels     ");
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++) {
		bool is_chosen = strcmp(name, chosen) == 0;
		enum style style = is_chosen ? STYLE_GOOD : usable ? STYLE_NONE : STYLE_DIM;
		(void)fprintf(out, "%s%s%s%s%s", i ? ", " : "", term_style(out, style), name,
			      is_chosen ? " (chosen)"
			      : usable  ? ""
					: " (not on this CPU)",
			      term_style(out, STYLE_NONE));
	}
	(void)fputc('\n', out);
}

static void print_info(FILE *out, const ek_description *description)
{
	struct caches caches = system_caches();
	(void)fprintf(out, "evenkeel   %s, numerics %d\n", ek_version(), ek_numerics_version());
	(void)fprintf(out, "CPU        %s\n", description->name);
	print_levels(out, description->isa);
	(void)fprintf(out, "threads    %d\n", description->threads);
	(void)fprintf(out, "caches     L1 ");
	print_bytes(out, caches.l1d);
	(void)fprintf(out, ", L2 ");
	print_bytes(out, caches.l2);
	(void)fprintf(out, ", L3 ");
	print_bytes(out, caches.l3);
	(void)fprintf(out, "\nstreaming  results of ");
	print_bytes(out, description->stream_bytes);
	(void)fprintf(out, " and more are written past the caches\n");
}

static int write_info(const char *name, const ek_context *ctx)
{
	const char *level;
	int usable;
	FILE *file = open_output("--json", name);
	if (!file)
		return STATUS_USAGE;
	(void)fprintf(file, "{\n  \"evenkeel\": ");
	write_json_string(file, ek_version());
	(void)fprintf(file, ",\n  \"numerics\": %d,\n  \"machine\": {", ek_numerics_version());
	write_machine(file, ctx);
	(void)fprintf(file, "},\n  \"levels\": [");
	for (int i = 0; (level = ek_cpu_level(i, &usable)); i++)
		(void)fprintf(file, "%s{\"name\": \"%s\", \"usable\": %s}", i ? ", " : "", level,
			      usable ? "true" : "false");
	(void)fprintf(file, "],\n");
	write_gpus(file);
	(void)fprintf(file, "\n}\n");
	return close_output(file, "--json", name);
}

/* What --device names must be there; all devices are shown whatever it names. */
static int check_device(const struct options *options)
{
	ek_context *ctx;
	if (options->device == EK_CPU)
		return STATUS_FINE;
	int status = device_open(&ctx, options);
	if (status == STATUS_FINE)
		ek_close(ctx);
	return status;
}

/* Of what --device names. */
static int write_measured(const struct options *options, const ek_context *cpu, int threads)
{
	ek_context *ctx;
	if (options->device == EK_CPU)
		return measure_machine(options->measure, cpu, threads, report_stream(options));
	int status = device_open(&ctx, options);
	if (status != STATUS_FINE)
		return status;
	status = gpu_machine_measure(options->measure, ctx, report_stream(options));
	ek_close(ctx);
	return status;
}

int command_info(const struct options *options)
{
	ek_context *ctx;
	int status = report_files_possible(options);
	if (status == STATUS_FINE)
		status = check_device(options);
	if (status == STATUS_FINE)
		status = open_context(&ctx, options->isa, options->threads, 0);
	if (status != STATUS_FINE)
		return status;
	ek_description description = {.size = sizeof description};
	(void)ek_describe(ctx, &description);
	print_info(report_stream(options), &description);
	print_gpus(report_stream(options));
	if (options->json)
		status = write_info(options->json, ctx);
	if (status == STATUS_FINE && options->measure)
		status = write_measured(options, ctx, description.threads);
	ek_close(ctx);
	return status;
}
