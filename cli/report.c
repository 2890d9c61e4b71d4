/* Results of run and bench: table, JSON, CSV. The shapes of the files are relied on by scripts: fields are
 * added, never renamed. SPDX-License-Identifier: MIT */
#include "report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "gpu/gpu.h"
#include "options.h"
#include "system.h"
#include "term.h"
#include "verify/memory.h"

double result_of_copy(const struct result *result)
{
	return result->copy_seconds / result->seconds;
}

static bool is_stdout(const char *name)
{
	return name && strcmp(name, "-") == 0;
}

FILE *report_stream(const struct options *options)
{
	return is_stdout(options->json) || is_stdout(options->csv) || is_stdout(options->measure) ? stderr
												  : stdout;
}

void format_seconds(char *text, size_t size, double seconds)
{
	if (seconds < 1e-6)
		(void)snprintf(text, size, "%.1f ns", seconds * 1e9);
	else if (seconds < 1e-3)
		(void)snprintf(text, size, "%.2f us", seconds * 1e6);
	else if (seconds < 1)
		(void)snprintf(text, size, "%.3f ms", seconds * 1e3);
	else
		(void)snprintf(text, size, "%.2f s", seconds);
}

void print_bytes(FILE *out, long long bytes)
{
	if (bytes <= 0)
		(void)fprintf(out, "?");
	else if (bytes >= 1073741824)
		(void)fprintf(out, "%.4g GB", (double)bytes / 1073741824);
	else if (bytes >= 1048576)
		(void)fprintf(out, "%.4g MB", (double)bytes / 1048576);
	else
		(void)fprintf(out, "%.4g KB", (double)bytes / 1024);
}

void report_table_head(FILE *out, const struct result *result, bool peers)
{
	(void)fprintf(out, "\n%s%s %s%s, ", term_style(out, STYLE_BOLD), result->op->name,
		      pass_names[result->pass], term_style(out, STYLE_NONE));
	if (result->device.gpu)
		(void)fprintf(out, "%s", result->device.text);
	else
		(void)fprintf(out, "%d thread%s, %s", result->device.threads,
			      result->device.threads == 1 ? "" : "s", result->device.isa);
	(void)fprintf(out, ", %s\n", result->cached ? "data in the caches" : "data from memory");
	(void)fprintf(out, "%s  %-14s %-5s %11s %7s%s%s%s%s\n", term_style(out, STYLE_DIM), "rows x cols",
		      "dtype", "time", "GB/s", result->cached ? "" : "  of copy",
		      result->device.gpu ? "   in a loop     host" : "", peers ? "    oneDNN" : "",
		      term_style(out, STYLE_NONE));
}

void report_table_row(FILE *out, const struct result *result, bool peers)
{
	char shape[48];
	char time[24];
	(void)snprintf(shape, sizeof shape, "%lldx%lld", (long long)result->rows, (long long)result->cols);
	format_seconds(time, sizeof time, result->seconds);
	(void)fprintf(out, "  %-14s %-5s %11s %7.1f", shape, ek_dtype_name(result->dtype), time,
		      result->bytes / result->seconds * 1e-9);
	if (!result->cached)
		(void)fprintf(out, " %8.2f", result_of_copy(result));
	if (result->device.gpu) {
		format_seconds(time, sizeof time, result->host_seconds);
		(void)fprintf(out, " %11s %5.2f us", time, result->launch_seconds * 1e6);
	}
	if (peers && result->onednn_seconds > 0)
		(void)fprintf(out, " %8.2fx", result->onednn_seconds / result->seconds);
	else if (peers)
		(void)fprintf(out, " %9s", "-");
	if (!result->cached)
		term_bar(out, result_of_copy(result), 25);
	(void)fputc('\n', out);
	(void)fflush(out);
}

FILE *open_output(const char *option, const char *name)
{
	FILE *file = is_stdout(name) ? stdout : fopen(name, "w");
	if (!file)
		complain(STATUS_USAGE, "%s %s: cannot be written (%s)", option, name, strerror(errno));
	return file;
}

const char *output_error(FILE *file)
{
	errno = 0;
	if (fflush(file) == 0 && !ferror(file))
		return NULL;
	return errno ? strerror(errno) : "an earlier part of it was not";
}

int close_output(FILE *file, const char *option, const char *name)
{
	const char *error = output_error(file);
	if (file != stdout && fclose(file) != 0 && !error)
		error = strerror(errno);
	if (!error)
		return STATUS_FINE;
	return complain(STATUS_USAGE, "%s %s: cannot be written (%s)", option, name, error);
}

const char *quoted(const char *text)
{
	static char rooms[4][4096];
	static int next;
	char *room = rooms[next++ % 4], *at = room;
	*at++ = '"';
	for (; *text && at < room + sizeof rooms[0] - 8; text++) {
		unsigned char c = (unsigned char)*text;
		bool escaped = c == '"' || c == '\\';
		at += snprintf(at, 8, c < 0x20 ? "\\u%04x" : escaped ? "\\%c" : "%c", c);
	}
	memcpy(at, "\"", 2);
	return room;
}

/* The CPU of the machine, also where the context is on a GPU. */
static void write_cpu(FILE *file, const ek_context *ctx)
{
	ek_description description = {.size = sizeof description};
	struct caches caches = system_caches();
	(void)ek_describe(ctx, &description);
	(void)fprintf(
		file,
		"\"cpu\": %s, \"isa\": \"%s\", \"threads\": %d, \"l1d_bytes\": %lld, \"l2_bytes\": %lld, \"l3_bytes\": %lld, "
		"\"stream_bytes\": %lld, \"numerics\": %d",
		quoted(description.name), description.isa, description.threads, caches.l1d, caches.l2,
		caches.l3, (long long)description.stream_bytes, ek_numerics_version());
}

void write_machine(FILE *file, const ek_context *ctx)
{
	ek_context *cpu;
	struct ek_gpu *gpu = gpu_of(ctx);
	if (!gpu) {
		write_cpu(file, ctx);
	} else if (ek_open(&cpu, NULL) == EK_OK) {
		write_cpu(file, cpu);
		ek_close(cpu);
		(void)fprintf(
			file,
			", \"gpu\": %s, \"gpu_isa\": \"sm_%d\", \"multiprocessors\": %d, \"driver\": \"%d.%d\"",
			quoted(gpu->name), gpu->limits.arch, gpu->limits.multiprocessors,
			gpu->driver->version / 1000, gpu->driver->version % 1000 / 10);
	}
}

static void write_json_result(FILE *file, const struct result *result)
{
	const struct device_words *device = &result->device;
	(void)fprintf(
		file,
		"    {\"device\": \"%s\", \"op\": \"%s\", \"pass\": \"%s\", \"dtype\": \"%s\", \"rows\": %lld, "
		"\"cols\": %lld, \"threads\": %d, \"isa\": \"%s\", \"seconds\": %.6g, \"bytes\": %.0f, ",
		device->name, result->op->name, pass_names[result->pass], ek_dtype_name(result->dtype),
		(long long)result->rows, (long long)result->cols, device->threads, device->isa,
		result->seconds, result->bytes);
	if (!result->cached)
		(void)fprintf(file, "\"copy_seconds\": %.6g, \"of_copy\": %.4f, ", result->copy_seconds,
			      result_of_copy(result));
	if (result->device.gpu)
		(void)fprintf(file,
			      "\"device_seconds\": %.6g, \"host_seconds\": %.6g, \"launch_seconds\": %.6g, ",
			      result->seconds, result->host_seconds, result->launch_seconds);
	if (result->choices[0])
		(void)fprintf(file, "\"choices\": %s, ", quoted(result->choices + 1));
	(void)fprintf(file, "\"weight_dtype\": \"%s\", \"peers\": {", ek_dtype_name(result->weight_dtype));
	if (result->onednn_seconds > 0)
		(void)fprintf(file, "\"onednn\": %.6g", result->onednn_seconds);
	(void)fputs("}}", file);
}

/* Cached cells have no copy to compare with: they are a list of their own. */
static void write_json_list(FILE *file, const char *name, const struct results *results, bool cached)
{
	const char *between = "\n";
	(void)fprintf(file, "  \"%s\": [", name);
	for (int i = 0; i < results->count; i++) {
		if (results->all[i].cached != cached)
			continue;
		(void)fputs(between, file);
		write_json_result(file, &results->all[i]);
		between = ",\n";
	}
	(void)fputs("\n  ]", file);
}

static int write_json(const char *name, const ek_context *ctx, const struct results *results)
{
	FILE *file = open_output("--json", name);
	if (!file)
		return STATUS_USAGE;
	(void)fprintf(file, "{\n  \"evenkeel\": %s,\n  \"machine\": {", quoted(ek_version()));
	write_machine(file, ctx);
	(void)fputs("},\n", file);
	write_json_list(file, "results", results, false);
	(void)fputs(",\n", file);
	write_json_list(file, "cached", results, true);
	(void)fputs("\n}\n", file);
	return close_output(file, "--json", name);
}

static int write_csv(const char *name, const struct results *results)
{
	FILE *file = open_output("--csv", name);
	bool gpu = results->count && results->all[0].device.gpu;
	if (!file)
		return STATUS_USAGE;
	(void)fputs(
		"device,op,pass,dtype,weight_dtype,rows,cols,threads,isa,data,seconds,bytes,copy_seconds,of_copy,onednn_seconds",
		file);
	(void)fputs(gpu ? ",device_seconds,host_seconds,launch_seconds\n" : "\n", file);
	for (int i = 0; i < results->count; i++) {
		const struct result *result = &results->all[i];
		(void)fprintf(file, "%s,%s,%s,%s,%s,%lld,%lld,%d,%s,%s,%.6g,%.0f,", result->device.name,
			      result->op->name, pass_names[result->pass], ek_dtype_name(result->dtype),
			      ek_dtype_name(result->weight_dtype), (long long)result->rows,
			      (long long)result->cols, result->device.threads, result->device.isa,
			      result->cached ? "cached" : "memory", result->seconds, result->bytes);
		if (!result->cached)
			(void)fprintf(file, "%.6g,%.4f", result->copy_seconds, result_of_copy(result));
		else
			(void)fputc(',', file);
		if (result->onednn_seconds > 0)
			(void)fprintf(file, ",%.6g", result->onednn_seconds);
		else
			(void)fputs(",", file);
		if (gpu)
			(void)fprintf(file, ",%.6g,%.6g,%.6g", result->seconds, result->host_seconds,
				      result->launch_seconds);
		(void)fputc('\n', file);
	}
	return close_output(file, "--csv", name);
}

/* A file that an option names. */
struct named_file {
	const char *option, *name;
	bool input;
};

/* Whatever the spelling of their names. Two may be a terminal or /dev/null, where nothing is overwritten. */
static bool is_same(const struct named_file *a, const struct named_file *b)
{
	struct stat first, second;
	if (!a->name || !b->name)
		return false;
	if (is_stdout(a->name) || is_stdout(b->name))
		return is_stdout(a->name) && is_stdout(b->name);
	return stat(a->name, &first) == 0 && stat(b->name, &second) == 0 && !S_ISCHR(first.st_mode) &&
	       first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static bool can_be_written(const struct named_file *output)
{
	if (is_stdout(output->name))
		return true;
	FILE *file = fopen(output->name, "a");
	if (file)
		(void)fclose(file);
	return file != NULL;
}

int report_files_possible(const struct options *options)
{
	const struct named_file files[] = {{"--machine", options->machine, true},
					   {"--json", options->json, false},
					   {"--csv", options->csv, false},
					   {"--measure", options->measure, false}};
	for (int i = 0; i < (int)(sizeof files / sizeof files[0]); i++) {
		if (!files[i].name || files[i].input)
			continue;
		if (!can_be_written(&files[i]))
			return complain(STATUS_USAGE, "%s %s: cannot be written (%s)", files[i].option,
					files[i].name, strerror(errno));
		for (int k = 0; k < i; k++)
			if (is_same(&files[i], &files[k]))
				return complain(STATUS_USAGE, "%s %s %s %s: must not be the same file",
						files[k].option, files[k].name, files[i].option,
						files[i].name);
	}
	return STATUS_FINE;
}

int report_files(const struct options *options, const ek_context *ctx, const struct results *results)
{
	int status = options->json ? write_json(options->json, ctx, results) : STATUS_FINE;
	int csv_status = options->csv ? write_csv(options->csv, results) : STATUS_FINE;
	return status != STATUS_FINE ? status : csv_status;
}
