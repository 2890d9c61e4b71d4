/* Results of run and bench: the table for people, JSON and CSV for programs. SPDX-License-Identifier: MIT */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "cases.h"
#include "device.h"

struct options;

struct result {
	const struct ek_op_entry *op;
	enum pass pass;
	ek_dtype dtype, weight_dtype;
	char choices[352]; /* options that are not the default, as choices_text has them */
	int64_t rows, cols;
	struct device_words device;
	double seconds, bytes; /* on a GPU by its own clock, of calls in a CUDA graph */
	double copy_seconds;   /* 0: not measured, the data stays in the caches */
	double onednn_seconds; /* 0: it cannot, or is not there */
	bool cached;
	double host_seconds;   /* a GPU: a call in a loop without a graph, the host's part included */
	double launch_seconds; /* a GPU: what a call takes from the host's thread, while the GPU is busy */
};

struct results {
	struct result *all;
	int count;
};

/* of_copy: 1.0 is the limit. */
double result_of_copy(const struct result *result);

/* The stream that the table goes to: standard error if JSON or CSV takes standard output. */
FILE *report_stream(const struct options *options);
void report_table_head(FILE *out, const struct result *result, bool peers);
void report_table_row(FILE *out, const struct result *result, bool peers);
/* "1.93 ms" and the like. */
void format_seconds(char *text, size_t size, double seconds);
/* "1.5 MB" and the like; "?" for 0. */
void print_bytes(FILE *out, long long bytes);

/* Writes what --json and --csv ask for. Returns an exit status. */
int report_files(const struct options *options, const ek_context *ctx, const struct results *results);
/* Whether the files can be written and none is written over another: before the work, not after it. Returns an exit
 * status, and has complained unless that is STATUS_FINE. */
int report_files_possible(const struct options *options);

/* A file for writing, `-` being standard output; complains and returns NULL if it cannot be. */
FILE *open_output(const char *option, const char *name);
/* Flushes it. NULL, or why some of what was written to it is lost. */
const char *output_error(FILE *file);
/* Closes it; complains and returns an exit status if the text could not be written. */
int close_output(FILE *file, const char *option, const char *name);
/* The text as a JSON string, in quotes; valid until the fourth call from here on. */
const char *quoted(const char *text);
/* The members of the "machine" object, without its braces. */
void write_machine(FILE *file, const ek_context *ctx);

#endif
