/* What explain shows people: tables, formulas, symbols, assumptions, and the roofline. Called by explain.c.
 * SPDX-License-Identifier: MIT */
#include <string.h>

#include "explain.h"
#include "term.h"

static void print_count(FILE *out, double number, const char *unit)
{
	char text[32];
	explain_count(text, sizeof text, number, unit);
	(void)fprintf(out, " %10s", text);
}

static void print_row(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof, int width)
{
	char time[32];
	explain_time(time, sizeof time, roof);
	bool total = strcmp(kernel->type, "total") == 0;
	(void)fprintf(out, "  %-*s %-11s", width, kernel->name, total ? "" : kernel->type);
	print_count(out, (double)kernel->flops, "");
	print_count(out, (double)kernel->read_bytes, "B");
	print_count(out, (double)kernel->write_bytes, "B");
	(void)fprintf(out, " %10.2f %10s\n", roof->intensity, time);
}

static void print_formulas(FILE *out, const ek_cost_kernel *kernel, const char *indent)
{
	(void)fprintf(out, "%sFLOP     %s\n%sread     %s\n%swritten  %s\n", indent, kernel->symbols.flops,
		      indent, kernel->symbols.read_bytes, indent, kernel->symbols.write_bytes);
}

static int name_width(const ek_cost_list *cost)
{
	size_t width = strlen("kernel");
	for (int i = 0; i < cost->kernel_count; i++)
		if (strlen(cost->kernels[i].name) > width)
			width = strlen(cost->kernels[i].name);
	return (int)width;
}

static void print_symbols(FILE *out, const struct explanation *e, int number)
{
	const ek_cost_list *cost = &e->variants[number].cost;
	for (int i = 0; i < cost->symbol_count; i++) {
		const ek_cost_symbol *symbol = &cost->symbols[i];
		if (!explain_shown(e, number, symbol))
			(void)fprintf(out, "  with %-11s = %-8lld %s\n", symbol->name,
				      (long long)symbol->value, symbol->origin);
	}
}

static void print_variant(FILE *out, const struct explanation *e, int number)
{
	const struct variant *v = &e->variants[number];
	int width = name_width(&v->cost);
	(void)fprintf(out, "\n%s%s%s: %s\n", term_style(out, STYLE_BOLD), v->name,
		      term_style(out, STYLE_NONE), v->about);
	if (e->kind == EXPLAIN_BLOCK) {
		explain_block_variant(out, e, v);
		return;
	}
	(void)fprintf(out, "  %-*s %-11s %10s %10s %10s %10s %10s\n", width, "kernel", "type", "FLOP", "read",
		      "written", "FLOP/byte", "at least");
	for (int i = 0; i < v->cost.kernel_count; i++)
		print_row(out, &v->cost.kernels[i], &v->kernels[i], width);
	print_row(out, &v->cost.total, &v->total, width);
	for (int i = 0; i < v->cost.kernel_count && v->cost.kernel_count > 1; i++) {
		(void)fprintf(out, "  %s, from %s\n", v->cost.kernels[i].name, v->cost.kernels[i].origin);
		print_formulas(out, &v->cost.kernels[i], "    ");
	}
	(void)fprintf(out, "  total, from %s\n",
		      v->cost.kernel_count == 1 ? v->cost.kernels[0].origin : v->cost.total.origin);
	print_formulas(out, &v->cost.total, "    ");
	print_symbols(out, e, number);
}

static void print_assumptions(FILE *out, const struct explanation *e)
{
	struct assumption assumptions[MOST_ASSUMPTIONS];
	int count = explain_assumptions(e, assumptions);
	(void)fprintf(out, "\n%sAssumptions%s, and what switches them\n", term_style(out, STYLE_BOLD),
		      term_style(out, STYLE_NONE));
	for (int i = 0; i < count; i++)
		(void)fprintf(out, *assumptions[i].option ? "  %-74s %s\n" : "  %s%s\n", assumptions[i].text,
			      assumptions[i].option);
}

/* How long a variant takes at least, and how many times as long the first does. */
static void print_limit(FILE *out, const struct explanation *e, int number)
{
	const struct variant *v = &e->variants[number];
	const int width = e->kind == EXPLAIN_BLOCK ? 13 : 10;
	char time[32];
	if (v->total.elsewhere) {
		(void)fprintf(out, "  %-*s %.2f FLOP/byte; no time, for PyTorch's kernels are a GPU's\n",
			      width, v->name, v->total.intensity);
		return;
	}
	explain_time(time, sizeof time, &v->total);
	(void)fprintf(out, "  %-*s bound by %s: %.2f FLOP/byte, no faster than %s", width, v->name,
		      explain_bound(&v->total), v->total.intensity, time);
	if (e->expression)
		(void)fputs(" (all bytes at once)", out);
	if (number > 0)
		(void)fprintf(out, "; %s takes %.2f times as long", e->variants[0].name,
			      e->variants[0].total.seconds / v->total.seconds);
	(void)fputc('\n', out);
}

static void print_machine(FILE *out, const struct explanation *e)
{
	char machine[EXPLAIN_MACHINE_TEXT];
	explain_machine(machine, sizeof machine, e);
	(void)fprintf(out, "\n%sRoofline%s of %s\n", term_style(out, STYLE_BOLD), term_style(out, STYLE_NONE),
		      machine);
	for (int i = 0; i < e->count; i++)
		print_limit(out, e, i);
}

static void print_head(FILE *out, const struct explanation *e)
{
	struct explained_size sizes[MOST_EXPLAINED_SIZES];
	int count = explain_sizes(e, sizes);
	bool heads = e->kind == EXPLAIN_ROPE || e->kind == EXPLAIN_BLOCK;
	(void)fprintf(out, "%s%s%s%s%s:", term_style(out, STYLE_BOLD), e->subject, e->expression ? "" : " ",
		      e->expression ? "" : explain_pass(e), term_style(out, STYLE_NONE));
	for (int i = 0; i < count; i++)
		(void)fprintf(out, " %s %lld,", sizes[i].name, (long long)sizes[i].value);
	(void)fprintf(out, " %s%s\n", ek_dtype_name(e->args.dtype),
		      e->sizes_given ? ""
		      : heads ? " (an example: --batch B --seq S --heads N --head-dim D and so on; --help)"
			      : " (an example: --batch B --seq S --hidden H, or --rows M --cols N)");
}

void explain_text(FILE *out, const struct explanation *e)
{
	print_head(out, e);
	for (int i = 0; i < e->count; i++)
		print_variant(out, e, i);
	print_assumptions(out, e);
	print_machine(out, e);
	if (e->kind == EXPLAIN_BLOCK)
		explain_block_end(out, e);
}
