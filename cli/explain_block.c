/* What explain shows of a transformer block: its kernels by their numbers, launches by kind, how long they take at least, and what is
 * often counted wrongly. Called by explain_text.c and explain_write.c. SPDX-License-Identifier: MIT */
#include <string.h>

#include "explain.h"
#include "report.h"
#include "term.h"

static bool is_type(const ek_cost_kernel *kernel, const char *type)
{
	return strcmp(kernel->type, type) == 0;
}

struct launches explain_launches(const struct variant *variant)
{
	struct launches launches = {.all = variant->cost.kernel_count};
	for (int i = 0; i < variant->cost.kernel_count; i++) {
		launches.products += is_type(&variant->counted[i], "product");
		launches.attention += is_type(&variant->counted[i], "attention");
	}
	return launches;
}

/* Of the kernels that are neither products nor attention. */
static double other_seconds(const struct variant *variant)
{
	double seconds = 0;
	for (int i = 0; i < variant->cost.kernel_count; i++)
		if (!is_type(&variant->counted[i], "product") && !is_type(&variant->counted[i], "attention"))
			seconds += variant->kernels[i].seconds;
	return seconds;
}

/* What analyses of such blocks have counted wrongly. */
static const struct {
	const char *wrong, *right;
} corrections[] = {
	{"RoPE and SwiGLU are bound by compute",
	 "by memory: 1.0 to 1.3 FLOP/byte in forward, an exp counted as one, where the ridge of fp32 is at 15"},
	{"the projections are fused into the kernels behind them",
	 "their biases alone are; the products stay the vendor's, and pass their result through memory"},
	{"8 launches with norms reordered, 11 with norms first",
	 "12 and 13 (its last add included): q, k and v are three products, gate and value are two"},
	{"launches of split-K, of memset and of attention's preparation are kernels of the block",
	 "they depend on the libraries' choice for a shape: not counted here, and listed apart where they are measured"},
};

enum { CORRECTIONS = sizeof corrections / sizeof *corrections };

/* ---- text ---- */

static int name_width(const struct variant *v)
{
	size_t width = strlen("kernel");
	for (int i = 0; i < v->cost.kernel_count; i++)
		if (strlen(v->counted[i].name) > width)
			width = strlen(v->counted[i].name);
	return (int)width;
}

static void print_row(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof, int width)
{
	char flops[32], read[32], written[32], time[32];
	explain_count(flops, sizeof flops, (double)kernel->flops, "");
	explain_count(read, sizeof read, (double)kernel->read_bytes, "B");
	explain_count(written, sizeof written, (double)kernel->write_bytes, "B");
	explain_time(time, sizeof time, roof);
	(void)fprintf(out, "  %-*s %-11s %10s %10s %10s %10.2f %-8s %10s\n", width, kernel->name,
		      is_type(kernel, "total") ? "" : kernel->type, flops, read, written, roof->intensity,
		      explain_bound(roof), time);
}

void explain_block_variant(FILE *out, const struct explanation *e, const struct variant *v)
{
	int width = name_width(v);
	(void)e;
	(void)fprintf(out, "  %-*s %-11s %10s %10s %10s %10s %-8s %10s\n", width, "kernel", "type", "FLOP",
		      "loads", "stores", "FLOP/byte", "bound by", "at least");
	for (int i = 0; i < v->cost.kernel_count; i++)
		print_row(out, &v->counted[i], &v->kernels[i], width);
	print_row(out, &v->cost.total, &v->total, width);
}

/* Seconds that are none of a machine that runs other kernels are "-". */
static void times_of(const struct variant *v, char *all, char *other, size_t size)
{
	struct roof rest = v->total;
	rest.seconds = other_seconds(v);
	explain_time(all, size, &v->total);
	explain_time(other, size, &rest);
}

void explain_block_end(FILE *out, const struct explanation *e)
{
	(void)fprintf(
		out,
		"\n%sLaunches%s (those of split-K, of memset and of attention's preparation not counted)\n",
		term_style(out, STYLE_BOLD), term_style(out, STYLE_NONE));
	(void)fprintf(out, "  %-14s %8s %9s %10s %7s %11s %22s\n", "", "launches", "products", "attention",
		      "others", "at least", "of it the others' part");
	for (int i = 0; i < e->count; i++) {
		struct launches n = explain_launches(&e->variants[i]);
		char all[32], other[32];
		times_of(&e->variants[i], all, other, sizeof all);
		(void)fprintf(out, "  %-14s %8d %9d %10d %7d %11s %22s\n", e->variants[i].name, n.all,
			      n.products, n.attention, n.all - n.products - n.attention, all, other);
	}
	(void)fprintf(out, "\n%sOften counted wrongly%s\n", term_style(out, STYLE_BOLD),
		      term_style(out, STYLE_NONE));
	for (int i = 0; i < CORRECTIONS; i++)
		(void)fprintf(out, "  wrong  %s\n  right  %s\n", corrections[i].wrong, corrections[i].right);
}

/* ---- Markdown ---- */

static void write_row(FILE *out, const ek_cost_kernel *kernel, const struct roof *roof)
{
	char flops[32], read[32], written[32], time[32];
	bool total = is_type(kernel, "total");
	explain_count(flops, sizeof flops, (double)kernel->flops, "");
	explain_count(read, sizeof read, (double)kernel->read_bytes, "B");
	explain_count(written, sizeof written, (double)kernel->write_bytes, "B");
	explain_time(time, sizeof time, roof);
	(void)fprintf(out, "| %s%s%s | %s | %s | %s | %s | %.2f | %s | %s |\n", total ? "**" : "`",
		      kernel->name, total ? "**" : "`", total ? "" : kernel->type, flops, read, written,
		      roof->intensity, explain_bound(roof), time);
}

static void write_kernels(FILE *out, const struct variant *v)
{
	(void)fprintf(
		out,
		"**%s**: %s\n\n| kernel | type | FLOP | loads | stores | FLOP/byte | bound by | at least |\n"
		"|---|---|---|---|---|---|---|---|\n",
		v->name, v->about);
	for (int i = 0; i < v->cost.kernel_count; i++)
		write_row(out, &v->counted[i], &v->kernels[i]);
	write_row(out, &v->cost.total, &v->total);
	(void)fputc('\n', out);
}

static void write_launches(FILE *out, const struct explanation *e)
{
	char machine[EXPLAIN_MACHINE_TEXT];
	explain_machine(machine, sizeof machine, e);
	(void)fprintf(
		out,
		"**launches** and the least time on %s\n\n"
		"| variant | launches | products | attention | others | at least | of it the others' part |\n"
		"|---|---|---|---|---|---|---|\n",
		machine);
	for (int i = 0; i < e->count; i++) {
		struct launches n = explain_launches(&e->variants[i]);
		char all[32], other[32];
		times_of(&e->variants[i], all, other, sizeof all);
		(void)fprintf(out, "| %s | %d | %d | %d | %d | %s | %s |\n", e->variants[i].name, n.all,
			      n.products, n.attention, n.all - n.products - n.attention, all, other);
	}
}

void explain_block_markdown(FILE *out, const struct explanation *e)
{
	for (int i = 0; i < e->count; i++)
		write_kernels(out, &e->variants[i]);
	write_launches(out, e);
	(void)fputs("\n**often** counted wrongly\n\n| wrong | right |\n|---|---|\n", out);
	for (int i = 0; i < CORRECTIONS; i++)
		(void)fprintf(out, "| %s | %s |\n", corrections[i].wrong, corrections[i].right);
}

/* ---- JSON ---- */

void explain_block_json(FILE *out)
{
	(void)fputs("  \"corrections\": [", out);
	for (int i = 0; i < CORRECTIONS; i++)
		(void)fprintf(out, "%s\n    {\"wrong\": %s, \"right\": %s}", i ? "," : "",
			      quoted(corrections[i].wrong), quoted(corrections[i].right));
	(void)fputs("],\n", out);
}
