/* bench --compare OLD.json: cell by cell, what changed. Shares of a copy are compared and not seconds, since
 * the copy was measured beside the op both times: a noisy day slows both. Called by bench.c.
 * SPDX-License-Identifier: MIT */
#include "compare.h"

#include <string.h>

#include "cli.h"
#include "json.h"
#include "term.h"

static const double loss = 0.95; /* marked below this share of what it was */

int compare_read(const char *path, struct json **old)
{
	char error[256];
	*old = json_read(path, error, sizeof error);
	if (!*old)
		return complain(STATUS_USAGE, "--compare %s: %s", path, error);
	const struct json *results = json_member(*old, "results");
	if (results && results->kind == JSON_ARRAY)
		return STATUS_FINE;
	json_free(*old);
	*old = NULL;
	return complain(STATUS_USAGE, "--compare %s: has no \"results\", must be a file from bench --json",
			path);
}

static bool same_cell(const struct json *old, const struct result *now)
{
	return strcmp(json_text(old, "device", ""), now->device.name) == 0 &&
	       strcmp(json_text(old, "op", ""), now->op->name) == 0 &&
	       strcmp(json_text(old, "pass", ""), pass_names[now->pass]) == 0 &&
	       strcmp(json_text(old, "dtype", ""), ek_dtype_name(now->dtype)) == 0 &&
	       strcmp(json_text(old, "weight_dtype", ek_dtype_name(now->dtype)),
		      ek_dtype_name(now->weight_dtype)) == 0 &&
	       strcmp(json_text(old, "choices", ""), now->choices[0] ? now->choices + 1 : "") == 0 &&
	       json_number(old, "rows", -1) == (double)now->rows &&
	       json_number(old, "cols", -1) == (double)now->cols;
}

static const struct json *old_cell(const struct json *old, const struct result *now)
{
	for (const struct json *cell = json_member(old, "results")->first; cell; cell = cell->next)
		if (same_cell(cell, now) && json_number(cell, "of_copy", 0) > 0)
			return cell;
	return NULL;
}

/* Returns 1 for a loss. */
static int print_cell(FILE *out, const struct json *old, const struct result *now)
{
	char shape[48];
	(void)snprintf(shape, sizeof shape, "%lldx%lld", (long long)now->rows, (long long)now->cols);
	(void)fprintf(out, "  %-14s %-8s %-14s %-5s ", now->op->name, pass_names[now->pass], shape,
		      ek_dtype_name(now->dtype));
	double before = json_number(old, "of_copy", 0);
	double change = result_of_copy(now) / before;
	bool lost = change < loss;
	enum style style = lost ? STYLE_BAD : change > 1 / loss ? STYLE_GOOD : STYLE_NONE;
	(void)fprintf(out, "%6.2f -> %5.2f  %s%+6.1f %%%s%s", before, result_of_copy(now),
		      term_style(out, style), 100 * (change - 1), lost ? "  LOSS" : "",
		      term_style(out, STYLE_NONE));
	if (json_number(old, "threads", 0) != now->device.threads ||
	    strcmp(json_text(old, "isa", ""), now->device.isa) != 0)
		(void)fprintf(out, "  (before: %s, threads %.0f)", json_text(old, "isa", "?"),
			      json_number(old, "threads", 0));
	(void)fputc('\n', out);
	return lost;
}

void compare_print(FILE *out, const struct json *old, const struct results *results)
{
	int cells = 0;
	int losses = 0;
	int fresh = 0;
	(void)fprintf(out, "\n%sWhat changed%s: share of a copy, before -> now (before: evenkeel %s on %s)\n",
		      term_style(out, STYLE_BOLD), term_style(out, STYLE_NONE),
		      json_text(old, "evenkeel", "?"), json_text(json_member(old, "machine"), "cpu", "?"));
	for (int i = 0; i < results->count; i++) {
		const struct result *now = &results->all[i];
		const struct json *before = now->cached ? NULL : old_cell(old, now);
		if (before) {
			cells++;
			losses += print_cell(out, before, now);
		} else if (!now->cached) {
			fresh++;
		}
	}
	(void)fprintf(out, "%d cells compared, %d lost more than 5 %%", cells, losses);
	if (fresh)
		(void)fprintf(out, ", %d not in the older file", fresh);
	(void)fputc('\n', out);
}
