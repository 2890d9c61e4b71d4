/* What explain writes: Markdown for documents, JSON for programs. Called by explain.c. SPDX-License-Identifier: MIT */
#include <string.h>

#include "explain.h"
#include "report.h"

/* ---- Markdown ---- */

/* Long names make tables that nobody can read. */
static const struct {
	const char *name, *letter;
} letters[] = {{"batch_size", "B"}, {"seq_len", "S"}, {"hidden_size", "H"}, {"ffn_size", "F"},
	       {"heads", "N"},      {"k_heads", "K"}, {"head_dim", "D"},    {"pairs", "P"},
	       {"c_bytes", "c"},    {"a_bytes", "a"}, {"h_bytes", "h"},     {"y_bytes", "y"},
	       {"w_bytes", "w"},    {"g_bytes", "g"}, {"s_bytes", "s"},     {"t_bytes", "t"}};

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

/* Of "module -> function -> native op -> call" the last, which differs from kernel to kernel. */
static const char *last_step(const char *origin)
{
	static const char arrow[] = " -> ";
	for (const char *next = strstr(origin, arrow); next; next = strstr(origin, arrow))
		origin = next + strlen(arrow);
	return origin;
}

static void write_kernel_row(FILE *out, const ek_cost_kernel *kernel, bool total)
{
	const char *mark = total ? "**" : "";
	if (total)
		(void)fprintf(out, "| **total** | | |");
	else
		(void)fprintf(out, "| `%s` | %s | %s |", kernel->name, kernel->type,
			      last_step(kernel->origin));
	write_formula(out, kernel->symbols.flops, mark);
	write_formula(out, kernel->symbols.read_bytes, mark);
	write_formula(out, kernel->symbols.write_bytes, mark);
	(void)fputc('\n', out);
}

static void write_kernel_table(FILE *out, const struct explanation *e, const struct variant *v)
{
	(void)fprintf(out, "**%s**: %s", v->name, v->about);
	if (!e->expression)
		(void)fprintf(out, "; called by `%s`", v->cost.total.origin);
	(void)fputs("\n\n| kernel | type | from | FLOP | bytes read | bytes written |\n"
		    "|---|---|---|---|---|---|\n",
		    out);
	for (int i = 0; i < v->cost.kernel_count; i++)
		write_kernel_row(out, &v->cost.kernels[i], false);
	write_kernel_row(out, &v->cost.total, true);
}

static void write_symbol_table(FILE *out, const struct explanation *e)
{
	(void)fprintf(out, "\n**symbols** of the formulas\n\n"
			   "| symbol | | here | origin |\n|---|---|---|---|\n");
	for (int i = 0; i < e->count; i++)
		for (int k = 0; k < e->variants[i].cost.symbol_count; k++) {
			const ek_cost_symbol *symbol = &e->variants[i].cost.symbols[k];
			const char *letter = letter_of(symbol->name, strlen(symbol->name));
			if (explain_shown(e, i, symbol))
				continue;
			(void)fprintf(out, "| %s | `%s` | %lld | %s |\n", letter ? letter : "", symbol->name,
				      (long long)symbol->value, symbol->origin);
		}
}

static void write_cell(FILE *out, double number, const char *unit)
{
	char text[32];
	explain_count(text, sizeof text, number, unit);
	(void)fprintf(out, " %s |", text);
}

static void write_roofline_table(FILE *out, const struct explanation *e)
{
	char machine[EXPLAIN_MACHINE_TEXT];
	explain_machine(machine, sizeof machine, e);
	(void)fprintf(out,
		      "\n**roofline** of %s\n\n"
		      "| variant | kernels | FLOP | read | written | FLOP/byte | bound by | at least%s |\n"
		      "|---|---|---|---|---|---|---|---|\n",
		      machine, e->expression ? ", all bytes at once" : "");
	for (int i = 0; i < e->count; i++) {
		const struct variant *v = &e->variants[i];
		char time[32];
		explain_time(time, sizeof time, &v->total);
		(void)fprintf(out, "| %s | %d |", v->name, v->cost.kernel_count);
		write_cell(out, (double)v->cost.total.flops, "");
		write_cell(out, (double)v->cost.total.read_bytes, "B");
		write_cell(out, (double)v->cost.total.write_bytes, "B");
		(void)fprintf(out, " %.2f | %s | %s |\n", v->total.intensity, explain_bound(&v->total), time);
	}
}

/* A bar in a cell needs its backslash. */
static void write_option(FILE *out, const char *option)
{
	(void)fputs(*option ? " `" : "", out);
	for (const char *c = option; *c; c++)
		(void)fprintf(out, *c == '|' ? "\\%c" : "%c", *c);
	(void)fputs(*option ? "` |\n" : " |\n", out);
}

static void write_assumptions_table(FILE *out, const struct explanation *e)
{
	struct assumption assumptions[MOST_ASSUMPTIONS];
	int count = explain_assumptions(e, assumptions);
	(void)fputs("\n**assumptions**, and what switches them\n\n| assumption | switch |\n|---|---|\n", out);
	for (int i = 0; i < count; i++) {
		(void)fprintf(out, "| %s |", assumptions[i].text);
		write_option(out, assumptions[i].option);
	}
}

/* Parts that begin with **their name**, by which tools/cost_tables.py leaves some out. */
void explain_markdown(FILE *out, const struct explanation *e)
{
	int symbols = 0;
	if (e->kind == EXPLAIN_BLOCK) {
		explain_block_markdown(out, e);
		write_assumptions_table(out, e);
		return;
	}
	for (int i = 0; i < e->count; i++) {
		(void)fputs(i ? "\n" : "", out);
		write_kernel_table(out, e, &e->variants[i]);
		symbols += e->variants[i].cost.symbol_count;
	}
	if (symbols > 0)
		write_symbol_table(out, e);
	write_roofline_table(out, e);
	write_assumptions_table(out, e);
}

/* ---- JSON ---- */

static void write_numbers(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof)
{
	(void)fprintf(out,
		      "\"flops\": %lld, \"read_bytes\": %lld, \"write_bytes\": %lld, \"intensity\": %.6g, ",
		      (long long)kernel->flops, (long long)kernel->read_bytes, (long long)kernel->write_bytes,
		      roof->intensity);
	if (roof->elsewhere)
		(void)fputs("\"bound\": null, \"roofline_seconds\": null", out);
	else
		(void)fprintf(out, "\"bound\": \"%s\", \"roofline_seconds\": %.6g", explain_bound(roof),
			      roof->seconds);
	(void)fprintf(out,
		      ", \"symbols\": {\"flops\": \"%s\", \"read_bytes\": \"%s\", \"write_bytes\": \"%s\"}",
		      kernel->symbols.flops, kernel->symbols.read_bytes, kernel->symbols.write_bytes);
}

static void write_json_launches(FILE *out, const struct variant *v)
{
	struct launches n = explain_launches(v);
	(void)fprintf(
		out,
		"\"launches\": {\"all\": %d, \"products\": %d, \"attention\": %d, \"others\": %d},\n     ",
		n.all, n.products, n.attention, n.all - n.products - n.attention);
}

static void write_json_variant(FILE *out, const struct explanation *e, const struct variant *v)
{
	(void)fprintf(out, "    {\"name\": \"%s\", ", v->name);
	if (e->kind == EXPLAIN_BLOCK)
		write_json_launches(out, v);
	(void)fputs("\"kernels\": [", out);
	for (int i = 0; i < v->cost.kernel_count; i++) {
		const ek_cost_kernel *kernel = &v->cost.kernels[i];
		(void)fprintf(out, "%s\n      {\"name\": %s, \"type\": %s, \"origin\": %s, ", i ? "," : "",
			      quoted(kernel->name), quoted(kernel->type), quoted(kernel->origin));
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

static void write_json_sizes(FILE *out, const struct explanation *e)
{
	struct explained_size sizes[MOST_EXPLAINED_SIZES];
	int count = explain_sizes(e, sizes);
	(void)fputs("\"sizes\": {", out);
	for (int i = 0; i < count; i++)
		(void)fprintf(out, "\"%s\": %lld, ", sizes[i].name, (long long)sizes[i].value);
	(void)fprintf(out, "\"given\": %s},\n", e->sizes_given ? "true" : "false");
}

static void write_json_head(FILE *out, const struct explanation *e)
{
	const ek_cost_args *a = &e->args;
	double rate = machine_flop_rate(&e->machine, a->dtype), bandwidth = machine_bandwidth(&e->machine);
	(void)fprintf(out,
		      "{\n  \"evenkeel\": \"%s\", \"op\": %s, \"pass\": %s"
		      ", \"device\": \"%s\", \"dtype\": \"%s\", \"weight_dtype\": \"%s\",\n  ",
		      ek_version(), quoted(e->subject), quoted(explain_pass(e)),
		      a->device == EK_CUDA ? "cuda" : "cpu", ek_dtype_name(a->dtype),
		      ek_dtype_name(a->weight_dtype ? a->weight_dtype : a->dtype));
	if (e->kind == EXPLAIN_BLOCK)
		(void)fprintf(out, "\"order\": \"%s\", ", a->order == EK_REORDERED ? "reordered" : "pre");
	write_json_sizes(out, e);
	(void)fprintf(
		out, "  \"machine\": {\"name\": %s, \"bytes_per_second\": %.6g, \"flops_per_second\": %.6g, ",
		quoted(e->machine.name), bandwidth, rate);
	if (e->kind == EXPLAIN_BLOCK)
		(void)fprintf(out, "\"product_flops_per_second\": %.6g, ",
			      machine_product_rate(&e->machine, a->dtype));
	(void)fprintf(out, "\"ridge\": %.6g},\n", rate / bandwidth);
}

void explain_json(FILE *out, const struct explanation *e)
{
	struct assumption assumptions[MOST_ASSUMPTIONS];
	int count = explain_assumptions(e, assumptions);
	write_json_head(out, e);
	(void)fprintf(out, "  \"assumptions\": [");
	for (int i = 0; i < count; i++)
		(void)fprintf(out, "%s\n    {\"text\": %s, \"option\": %s}", i ? "," : "",
			      quoted(assumptions[i].text), quoted(assumptions[i].option));
	(void)fprintf(out, "],\n");
	if (e->kind == EXPLAIN_BLOCK)
		explain_block_json(out);
	(void)fprintf(out, "  \"variants\": [");
	for (int i = 0; i < e->count; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		write_json_variant(out, e, &e->variants[i]);
	}
	(void)fprintf(out, "]\n}\n");
}
