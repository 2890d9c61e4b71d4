/* evenkeel info: the library, the CPU and its levels, threads, caches, GPUs (info_gpu.c), what it can do there
 * (support.c); --json for programs, --measure for a machine file (measure.c, gpu_machine.c). SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "info.h"
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

static int write_info(const char *name, ek_context *ctx)
{
	const char *level;
	int usable;
	FILE *file = open_output("--json", name);
	if (!file)
		return STATUS_USAGE;
	(void)fprintf(file, "{\n  \"evenkeel\": %s,\n  \"numerics\": %d,\n  \"machine\": {",
		      quoted(ek_version()), ek_numerics_version());
	write_machine(file, ctx);
	(void)fprintf(file, "},\n  \"levels\": [");
	for (int i = 0; (level = ek_cpu_level(i, &usable)); i++)
		(void)fprintf(file, "%s{\"name\": \"%s\", \"usable\": %s}", i ? ", " : "", level,
			      usable ? "true" : "false");
	(void)fprintf(file, "],\n");
	write_gpus(file);
	(void)fputs(",\n", file);
	write_support(file, ctx);
	(void)fprintf(file, "\n}\n");
	return close_output(file, "--json", name);
}

/* The file is opened first: a name that cannot be is found before the seconds that measuring takes. */
static int measure(const char *name, ek_context *ctx, FILE *out)
{
	FILE *file = open_output("--measure", name);
	if (!file)
		return STATUS_USAGE;
	int status = measure_machine(ctx, false, out, file);
	int closed = close_output(file, "--measure", name);
	return status != STATUS_FINE ? status : closed;
}

/* All of what was asked for, with the CPU's context and that of what --device names, which may be the same. */
static int show(const struct options *options, ek_context *cpu, ek_context *device)
{
	FILE *out = report_stream(options);
	ek_description description = {.size = sizeof description};
	(void)ek_describe(cpu, &description);
	print_info(out, &description);
	print_gpus(out);
	print_support(out, device);
	int status = options->json ? write_info(options->json, cpu) : STATUS_FINE;
	if (status != STATUS_FINE || !options->measure)
		return status;
	return measure(options->measure, device, out);
}

int command_info(const struct options *options)
{
	ek_context *cpu;
	ek_context *device = NULL;
	int status = report_files_possible(options);
	if (status == STATUS_FINE && options->device != EK_CPU)
		status = device_open(&device, options);
	if (status == STATUS_FINE)
		status = open_context(&cpu, options->isa, options->threads, 0);
	if (status == STATUS_FINE) {
		status = show(options, cpu, device ? device : cpu);
		ek_close(cpu);
	}
	ek_close(device);
	return status;
}
