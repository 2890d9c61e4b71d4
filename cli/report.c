/* Results of run and bench: table, JSON, CSV. The shapes of the files are relied on by scripts: fields are
 * added, never renamed. SPDX-License-Identifier: MIT */
#include "report.h"

#include <errno.h>
#include <string.h>

#include "cli.h"
#include "options.h"
#include "system.h"
#include "term.h"

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

void report_table_head(FILE *out, const struct result *result, bool peers)
{
	(void)fprintf(out, "\n%s%s %s%s, %d thread%s, %s, %s\n", term_style(out, STYLE_BOLD),
		      result->op->name, pass_names[result->pass], term_style(out, STYLE_NONE),
		      result->threads, result->threads == 1 ? "" : "s", result->isa,
		      result->cached ? "data in the caches" : "data from memory");
	(void)fprintf(out, "%s  %-14s %-5s %11s %7s%s%s%s\n", term_style(out, STYLE_DIM), "rows x cols",
		      "dtype", "time", "GB/s", result->cached ? "" : "  of copy", peers ? "    oneDNN" : "",
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

int close_output(FILE *file, const char *option, const char *name)
{
	bool failed = fflush(file) != 0 || ferror(file);
	if (file != stdout && fclose(file) != 0)
		failed = true;
	return failed ? complain(STATUS_USAGE, "%s %s: cannot be written", option, name) : STATUS_FINE;
}

void write_json_string(FILE *file, const char *text)
{
	(void)fputc('"', file);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\')
			(void)fprintf(file, "\\%c", c);
		else if (c < 0x20)
			(void)fprintf(file, "\\u%04x", c);
		else
			(void)fputc(c, file);
	}
	(void)fputc('"', file);
}

void write_machine(FILE *file, const ek_context *ctx)
{
	ek_description description = {.size = sizeof description};
	struct caches caches = system_caches();
	(void)ek_describe(ctx, &description);
	(void)fputs("\"cpu\": ", file);
	write_json_string(file, description.name);
	(void)fprintf(
		file,
		", \"isa\": \"%s\", \"threads\": %d, \"l1d_bytes\": %lld, \"l2_bytes\": %lld, \"l3_bytes\": %lld, "
		"\"stream_bytes\": %lld, \"numerics\": %d",
		description.isa, description.threads, caches.l1d, caches.l2, caches.l3,
		(long long)description.stream_bytes, ek_numerics_version());
}

static void write_json_result(FILE *file, const struct result *result)
{
	(void)fprintf(
		file,
		"    {\"device\": \"cpu\", \"op\": \"%s\", \"pass\": \"%s\", \"dtype\": \"%s\", \"rows\": %lld, "
		"\"cols\": %lld, \"threads\": %d, \"isa\": \"%s\", \"seconds\": %.6g, \"bytes\": %.0f, ",
		result->op->name, pass_names[result->pass], ek_dtype_name(result->dtype),
		(long long)result->rows, (long long)result->cols, result->threads, result->isa,
		result->seconds, result->bytes);
	if (!result->cached)
		(void)fprintf(file, "\"copy_seconds\": %.6g, \"of_copy\": %.4f, ", result->copy_seconds,
			      result_of_copy(result));
	(void)fputs("\"weight_dtype\": \"", file);
	(void)fputs(ek_dtype_name(result->weight_dtype), file);
	(void)fputs("\", \"peers\": {", file);
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
	(void)fputs("{\n  \"evenkeel\": ", file);
	write_json_string(file, ek_version());
	(void)fputs(",\n  \"machine\": {", file);
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
	if (!file)
		return STATUS_USAGE;
	(void)fputs(
		"device,op,pass,dtype,weight_dtype,rows,cols,threads,isa,data,seconds,bytes,copy_seconds,of_copy,onednn_seconds\n",
		file);
	for (int i = 0; i < results->count; i++) {
		const struct result *result = &results->all[i];
		(void)fprintf(file, "cpu,%s,%s,%s,%s,%lld,%lld,%d,%s,%s,%.6g,%.0f,", result->op->name,
			      pass_names[result->pass], ek_dtype_name(result->dtype),
			      ek_dtype_name(result->weight_dtype), (long long)result->rows,
			      (long long)result->cols, result->threads, result->isa,
			      result->cached ? "cached" : "memory", result->seconds, result->bytes);
		if (!result->cached)
			(void)fprintf(file, "%.6g,%.4f", result->copy_seconds, result_of_copy(result));
		else
			(void)fputc(',', file);
		if (result->onednn_seconds > 0)
			(void)fprintf(file, ",%.6g\n", result->onednn_seconds);
		else
			(void)fputs(",\n", file);
	}
	return close_output(file, "--csv", name);
}

int report_files_possible(const struct options *options)
{
	const char *const names[][2] = {
		{"--json", options->json}, {"--csv", options->csv}, {"--measure", options->measure}};
	for (int i = 0; i < 3; i++) {
		if (!names[i][1] || is_stdout(names[i][1]))
			continue;
		FILE *file = fopen(names[i][1], "a");
		if (!file)
			return complain(STATUS_USAGE, "%s %s: cannot be written (%s)", names[i][0],
					names[i][1], strerror(errno));
		(void)fclose(file);
	}
	return STATUS_FINE;
}

int report_files(const struct options *options, const ek_context *ctx, const struct results *results)
{
	int status = options->json ? write_json(options->json, ctx, results) : STATUS_FINE;
	int csv_status = options->csv ? write_csv(options->csv, results) : STATUS_FINE;
	return status != STATUS_FINE ? status : csv_status;
}
