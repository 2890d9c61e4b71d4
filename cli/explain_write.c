/* What explain shows: a text that teaches, Markdown for documents, JSON for programs. SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <string.h>

#include "explain.h"
#include "report.h"
#include "term.h"

/* ---- what all of them say ---- */

static const char *op_words(const struct explanation *e)
{
	return e->args.pass == EK_FORWARD ? "forward" : "backward";
}

static const char *bound(const struct roof *roof)
{
	return roof->computes ? "compute" : "memory";
}

static PRINTF_LIKE(4, 5) void add(struct assumption *assumptions, int *count, const char *option,
				  const char *format, ...)
{
	struct assumption *to = &assumptions[(*count)++];
	va_list values;
	to->option = option;
	va_start(values, format);
	(void)vsnprintf(to->text, sizeof to->text, format, values);
	va_end(values);
}

/* Of the reference alone. */
static void add_widths(const ek_cost_args *a, struct assumption *assumptions, int *count)
{
	bool casts = a->compute_dtype && a->compute_dtype != a->dtype;
	add(assumptions, count, "--compute-dtype TYPE", "reference: computes in %s, %s",
	    ek_dtype_name(casts ? a->compute_dtype : a->dtype),
	    casts ? "with casts at both ends" : "no casts");
	add(assumptions, count, "--stats-dtype TYPE", "reference: statistics as wide as %s%s",
	    ek_dtype_name(a->stats_dtype ? a->stats_dtype : a->dtype),
	    a->stats_dtype || a->dtype == EK_F32 ? "" : ", the activation (in truth f32)");
	if (casts)
		add(assumptions, count, "--intermediate-dtype TYPE",
		    "reference: tensors between casts as wide as %s%s",
		    ek_dtype_name(a->intermediate_dtype ? a->intermediate_dtype : a->dtype),
		    a->intermediate_dtype ? "" : ", the activation");
}

int explain_assumptions(const struct explanation *e, struct assumption *assumptions)
{
	const ek_cost_args *a = &e->args;
	bool forward = a->pass == EK_FORWARD;
	const char *gradient = forward ? "" : ", and its gradient";
	int count = 0;
	if (a->absent & EK_NO_WEIGHT)
		add(assumptions, &count, "--weight 0|1", "no weight");
	else
		add(assumptions, &count, "--weight 0|1", "a weight%s", gradient);
	if (a->absent & EK_NO_BIAS)
		add(assumptions, &count, "--bias 0|1", "no bias");
	else
		add(assumptions, &count, "--bias 0|1", "a bias%s", gradient);
	add_widths(a, assumptions, &count);
	add(assumptions, &count, "--statistics 0|1", "evenkeel: statistics are %s",
	    a->absent & EK_NO_STATISTICS ? forward ? "not returned" : "computed anew"
	    : forward                    ? "returned"
					 : "given");
	add(assumptions, &count, "--device cpu|cuda", "evenkeel: runs on %s",
	    a->device == EK_CUDA ? "a GPU of 132 multiprocessors, compute capability 9.0" : "the CPU");
	add(assumptions, &count, "",
	    "a kernel reads and writes every byte of a tensor once, however often it looks");
	add(assumptions, &count, "", "tensors are contiguous and aligned; an fma counts two FLOP");
	return count;
}

/* ---- text ---- */

/* "268.4 M" and the like, with a unit behind. */
static void format_count(char *text, size_t size, double number, const char *unit)
{
	static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
	int i = 0;
	for (; number >= 999.95 && i < 6; i++)
		number /= 1000;
	const char *space = i > 0 || *unit ? " " : "";
	(void)snprintf(text, size, i > 0 ? "%.1f%s%s%s" : "%.0f%s%s%s", number, space, prefixes[i], unit);
}

static void print_count(FILE *out, double number, const char *unit)
{
	char text[32];
	format_count(text, sizeof text, number, unit);
	(void)fprintf(out, " %10s", text);
}

static void print_row(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof, int width)
{
	char time[32];
	format_seconds(time, sizeof time, roof->seconds);
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

static int name_width(const ek_cost *cost)
{
	size_t width = strlen("kernel");
	for (int i = 0; i < cost->kernel_count; i++)
		if (strlen(cost->kernels[i].name) > width)
			width = strlen(cost->kernels[i].name);
	return (int)width;
}

/* Has a variant before this one shown the symbol with that value? */
static bool is_known(const struct explanation *e, int before, const ek_cost_symbol *symbol)
{
	for (int i = 0; i < before; i++)
		for (int k = 0; k < e->variants[i].cost.symbol_count; k++) {
			const ek_cost_symbol *other = &e->variants[i].cost.symbols[k];
			if (strcmp(other->name, symbol->name) == 0 && other->value == symbol->value)
				return true;
		}
	return false;
}

static void print_symbols(FILE *out, const struct explanation *e, int number)
{
	const ek_cost *cost = &e->variants[number].cost;
	for (int i = 0; i < cost->symbol_count; i++) {
		const ek_cost_symbol *symbol = &cost->symbols[i];
		if (!is_known(e, number, symbol))
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

static void print_machine(FILE *out, const struct explanation *e)
{
	const struct machine *m = &e->machine;
	double rate = machine_flop_rate(m, e->args.dtype), bandwidth = machine_bandwidth(m);
	char copies[32], flops[32];
	format_count(copies, sizeof copies, bandwidth, "B/s");
	format_count(flops, sizeof flops, rate, "FLOP/s");
	(void)fprintf(out, "\n%sRoofline%s of %s: large copies at %s, %s in %s; ridge at %.1f FLOP/byte\n",
		      term_style(out, STYLE_BOLD), term_style(out, STYLE_NONE), m->name, copies, flops,
		      e->args.dtype == EK_F64 ? "f64" : "f32", rate / bandwidth);
	for (int i = 0; i < e->count; i++) {
		const struct variant *v = &e->variants[i];
		char time[32];
		format_seconds(time, sizeof time, v->total.seconds);
		(void)fprintf(out, "  %-10s bound by %s: %.2f FLOP/byte, no faster than %s", v->name,
			      bound(&v->total), v->total.intensity, time);
		if (i > 0)
			(void)fprintf(out, "; %s takes %.2f times as long", e->variants[0].name,
				      e->variants[0].total.seconds / v->total.seconds);
		(void)fputc('\n', out);
	}
}

void explain_text(FILE *out, const struct explanation *e)
{
	const ek_cost_args *a = &e->args;
	(void)fprintf(out, "%s%s%s%s%s: batch_size %lld, seq_len %lld, hidden_size %lld, %s%s\n",
		      term_style(out, STYLE_BOLD), e->subject, e->expression ? "" : " ",
		      e->expression ? "" : op_words(e), term_style(out, STYLE_NONE), (long long)a->batch_size,
		      (long long)a->seq_len, (long long)a->hidden_size, ek_dtype_name(a->dtype),
		      e->sizes_given ? ""
				     : " (an example: --batch B --seq S --hidden H, or --rows M --cols N)");
	for (int i = 0; i < e->count; i++)
		print_variant(out, e, i);
	print_assumptions(out, e);
	print_machine(out, e);
}

/* ---- Markdown ---- */

/* Long names make tables that nobody can read. */
static const struct {
	const char *name, *letter;
} letters[] = {{"batch_size", "B"}, {"seq_len", "S"}, {"hidden_size", "H"}, {"a_bytes", "a"},
	       {"w_bytes", "w"},    {"s_bytes", "s"}, {"t_bytes", "t"}};

enum { LETTER_COUNT = sizeof letters / sizeof letters[0] };

static const char *letter_of(const char *name, size_t length)
{
	for (int i = 0; i < LETTER_COUNT; i++)
		if (strlen(letters[i].name) == length && memcmp(letters[i].name, name, length) == 0)
			return letters[i].letter;
	return NULL;
}

/* The formula with letters for names and dots for stars. */
static void write_formula(FILE *out, const char *formula, const char *mark)
{
	(void)fprintf(out, " %s", mark);
	while (*formula) {
		size_t length = strcspn(formula, "* ");
		const char *letter = letter_of(formula, length);
		if (letter)
			(void)fputs(letter, out);
		else
			(void)fprintf(out, "%.*s", (int)length, formula);
		formula += length;
		if (*formula)
			(void)fputs(*formula++ == '*' ? "·" : " ", out);
	}
	(void)fprintf(out, "%s |", mark);
}

static void write_kernel_row(FILE *out, const ek_cost_kernel *kernel, bool total)
{
	const char *mark = total ? "**" : "";
	if (total)
		(void)fprintf(out, "| **total** | |");
	else
		(void)fprintf(out, "| `%s` | %s |", kernel->name, kernel->type);
	write_formula(out, kernel->symbols.flops, mark);
	write_formula(out, kernel->symbols.read_bytes, mark);
	write_formula(out, kernel->symbols.write_bytes, mark);
	(void)fputc('\n', out);
}

static void write_kernel_table(FILE *out, const struct variant *v)
{
	(void)fprintf(out, "**%s**: %s\n\n", v->name, v->about);
	(void)fputs("| kernel | type | FLOP | bytes read | bytes written |\n|---|---|---|---|---|\n", out);
	for (int i = 0; i < v->cost.kernel_count; i++)
		write_kernel_row(out, &v->cost.kernels[i], false);
	write_kernel_row(out, &v->cost.total, true);
}

static void write_symbol_table(FILE *out, const struct explanation *e)
{
	(void)fprintf(out, "| symbol | | here | origin |\n|---|---|---|---|\n");
	for (int i = 0; i < e->count; i++)
		for (int k = 0; k < e->variants[i].cost.symbol_count; k++) {
			const ek_cost_symbol *symbol = &e->variants[i].cost.symbols[k];
			const char *letter = letter_of(symbol->name, strlen(symbol->name));
			if (is_known(e, i, symbol))
				continue;
			(void)fprintf(out, "| %s | `%s` | %lld | %s |\n", letter ? letter : "", symbol->name,
				      (long long)symbol->value, symbol->origin);
		}
}

static void write_cell(FILE *out, double number, const char *unit)
{
	char text[32];
	format_count(text, sizeof text, number, unit);
	(void)fprintf(out, " %s |", text);
}

static void write_numbers_table(FILE *out, const struct explanation *e)
{
	(void)fprintf(out,
		      "| variant | kernels | FLOP | read | written | FLOP/byte | bound by | %s: at least |\n"
		      "|---|---|---|---|---|---|---|---|\n",
		      e->machine.name);
	for (int i = 0; i < e->count; i++) {
		const struct variant *v = &e->variants[i];
		char time[32];
		format_seconds(time, sizeof time, v->total.seconds);
		(void)fprintf(out, "| %s | %d |", v->name, v->cost.kernel_count);
		write_cell(out, (double)v->cost.total.flops, "");
		write_cell(out, (double)v->cost.total.read_bytes, "B");
		write_cell(out, (double)v->cost.total.write_bytes, "B");
		(void)fprintf(out, " %.2f | %s | %s |\n", v->total.intensity, bound(&v->total), time);
	}
}

void explain_markdown(FILE *out, const struct explanation *e)
{
	for (int i = 0; i < e->count; i++) {
		(void)fputs(i ? "\n" : "", out);
		write_kernel_table(out, &e->variants[i]);
	}
	if (!e->all)
		return;
	(void)fputc('\n', out);
	write_symbol_table(out, e);
	(void)fputc('\n', out);
	write_numbers_table(out, e);
}

/* ---- JSON ---- */

static void write_text(FILE *out, const char *name, const char *text)
{
	(void)fprintf(out, ", \"%s\": ", name);
	write_json_string(out, text);
}

static void write_numbers(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof)
{
	(void)fprintf(out,
		      "\"flops\": %lld, \"read_bytes\": %lld, \"write_bytes\": %lld, \"intensity\": %.6g, "
		      "\"bound\": \"%s\", \"roofline_seconds\": %.6g, \"symbols\": {\"flops\": \"%s\", "
		      "\"read_bytes\": \"%s\", \"write_bytes\": \"%s\"}",
		      (long long)kernel->flops, (long long)kernel->read_bytes, (long long)kernel->write_bytes,
		      roof->intensity, bound(roof), roof->seconds, kernel->symbols.flops,
		      kernel->symbols.read_bytes, kernel->symbols.write_bytes);
}

static void write_json_variant(FILE *out, const struct variant *v)
{
	(void)fprintf(out, "    {\"name\": \"%s\", \"kernels\": [", v->name);
	for (int i = 0; i < v->cost.kernel_count; i++) {
		const ek_cost_kernel *kernel = &v->cost.kernels[i];
		(void)fprintf(out, "%s\n      {\"name\": ", i ? "," : "");
		write_json_string(out, kernel->name);
		write_text(out, "type", kernel->type);
		write_text(out, "origin", kernel->origin);
		(void)fputs(", ", out);
		write_numbers(out, kernel, &v->kernels[i]);
		(void)fputc('}', out);
	}
	(void)fprintf(out, "],\n      \"total\": {");
	write_numbers(out, &v->cost.total, &v->total);
	(void)fprintf(out, "},\n      \"symbols\": [");
	for (int i = 0; i < v->cost.symbol_count; i++)
		(void)fprintf(out, "%s{\"name\": \"%s\", \"value\": %lld, \"origin\": \"%s\"}", i ? ", " : "",
			      v->cost.symbols[i].name, (long long)v->cost.symbols[i].value,
			      v->cost.symbols[i].origin);
	(void)fprintf(out, "]}");
}

static void write_json_head(FILE *out, const struct explanation *e)
{
	const ek_cost_args *a = &e->args;
	(void)fprintf(out, "{\n  \"evenkeel\": \"%s\"", ek_version());
	write_text(out, "op", e->subject);
	write_text(out, "pass", op_words(e));
	(void)fprintf(out,
		      ", \"device\": \"%s\", \"dtype\": \"%s\", \"weight_dtype\": \"%s\",\n  \"sizes\": "
		      "{\"batch_size\": %lld, \"seq_len\": %lld, \"hidden_size\": %lld, \"given\": %s},\n"
		      "  \"machine\": {\"name\": ",
		      a->device == EK_CUDA ? "cuda" : "cpu", ek_dtype_name(a->dtype),
		      ek_dtype_name(a->weight_dtype ? a->weight_dtype : a->dtype), (long long)a->batch_size,
		      (long long)a->seq_len, (long long)a->hidden_size, e->sizes_given ? "true" : "false");
	write_json_string(out, e->machine.name);
	(void)fprintf(out, ", \"bytes_per_second\": %.6g, \"flops_per_second\": %.6g, \"ridge\": %.6g},\n",
		      machine_bandwidth(&e->machine), machine_flop_rate(&e->machine, a->dtype),
		      machine_flop_rate(&e->machine, a->dtype) / machine_bandwidth(&e->machine));
}

void explain_json(FILE *out, const struct explanation *e)
{
	struct assumption assumptions[MOST_ASSUMPTIONS];
	int count = explain_assumptions(e, assumptions);
	write_json_head(out, e);
	(void)fprintf(out, "  \"assumptions\": [");
	for (int i = 0; i < count; i++) {
		(void)fprintf(out, "%s\n    {\"text\": ", i ? "," : "");
		write_json_string(out, assumptions[i].text);
		write_text(out, "option", assumptions[i].option);
		(void)fputc('}', out);
	}
	(void)fprintf(out, "],\n  \"variants\": [");
	for (int i = 0; i < e->count; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		write_json_variant(out, &e->variants[i]);
	}
	(void)fprintf(out, "]\n}\n");
}
