/* What the library can do here: tiny calls with every op, pass, dtype and weight dtype, with all operands, and the status
 * that each answers. On a GPU the first time compiles some twenty kernels for each op. Called by info.c.
 * SPDX-License-Identifier: MIT */
#include "info.h"

#include <string.h>

#include "cases.h"
#include "device.h"
#include "heads.h"
#include "options.h"
#include "report.h"
#include "verify/memory.h"

/* Fewer activations of another op are no op of their own. */
enum { ON_HEADS = EK_OP_NAMES - EK_ROW_NAMES, OPS = EK_OP_COUNT + ON_HEADS };
enum { COLS = 8, PLACE_BYTES = 256, DTYPES = 4, CALLS = OPS * PASS_COUNT * DTYPES * DTYPES };

struct call {
	struct test_case test_case;
	ek_status status;
};

struct support {
	char device[24];
	struct call calls[CALLS];
	char error[256]; /* of the first call that should have gone well */
};

/* ---- calling ---- */

/* The call, with its operands in one block of memory, each in a place of its own and the workspace behind them; on a
 * GPU the wait for it. */
static ek_status make_call(ek_context *ctx, const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	struct ek_gpu *gpu = gpu_of(ctx);
	void *at[EK_MOST_OPERANDS];
	union op_args args;
	unsigned char first;
	size_t workspace, operands = EK_MOST_OPERANDS * (size_t)PLACE_BYTES;
	case_args_nowhere(c, &args);
	ek_status status = args_workspace(op, ctx, &args, &workspace);
	if (status != EK_OK)
		return status;
	unsigned char *memory = memory_make(gpu, operands + workspace);
	if (!memory)
		return EK_ERROR_MEMORY;
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		at[i] = memory + (size_t)i * PLACE_BYTES;
	case_args(c, at, &args);
	args_set_workspace(op, &args, memory + operands, workspace);
	status = op->call(ctx, &args);
	if (status == EK_OK)
		status = memory_read(gpu, &first, memory, sizeof first);
	memory_free(gpu, memory);
	return status;
}

static const struct ek_op_entry *op_at(int i)
{
	return &ek_ops[i < EK_OP_COUNT ? i : i - EK_OP_COUNT + EK_ROW_NAMES];
}

/* Number i of all; op changes slowest. */
static struct test_case case_at(int i)
{
	const struct ek_op_entry *op = op_at(i / (PASS_COUNT * DTYPES * DTYPES));
	const struct dtype_pair dtypes = {(ek_dtype)(i / DTYPES % DTYPES + 1), (ek_dtype)(i % DTYPES + 1)};
	const enum pass pass = (enum pass)(i / (DTYPES * DTYPES) % PASS_COUNT);
	const struct head_sizes head = {1, 1, 1, 1, COLS, COLS};
	return is_on_heads(op) ? case_make_heads(op, pass, dtypes, head)
			       : case_make(op, pass, dtypes, 1, COLS);
}

/* ctx NULL: opening it has answered `opened`, and so would all calls. */
static void find(struct support *support, ek_context *ctx, ek_status opened)
{
	for (int i = 0; i < CALLS; i++) {
		struct call *call = &support->calls[i];
		call->test_case = case_at(i);
		call->status = ctx ? make_call(ctx, &call->test_case) : opened;
		bool expected = call->status == EK_OK || call->status == EK_ERROR_DTYPE;
		if (!expected && !support->error[0])
			(void)snprintf(support->error, sizeof support->error, "%s", ek_error(NULL));
	}
}

/* ---- showing ---- */

static void print_cell(FILE *out, const struct call *call, bool head)
{
	char name[16];
	bool same = call->test_case.dtype == call->test_case.weight_dtype;
	(void)snprintf(name, sizeof name, "%s%s%s", ek_dtype_name(call->test_case.dtype), same ? "" : "+",
		       same ? "" : ek_dtype_name(call->test_case.weight_dtype));
	(void)fprintf(out, "  %*s", (int)strlen(name), head ? name : call->status == EK_OK ? "yes" : "no");
}

/* The calls of an op and a pass, or the names of their dtypes; those that do not go together are no column. */
static void print_row(FILE *out, const struct call *row, bool head)
{
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		print_cell(out, &row[dtype * DTYPES + dtype], head);
		for (int weight = 0; weight < DTYPES; weight++) {
			const struct call *call = &row[dtype * DTYPES + weight];
			if (weight != dtype &&
			    weight_dtype_fits(call->test_case.dtype, call->test_case.weight_dtype))
				print_cell(out, call, head);
		}
	}
	(void)fputs(head ? "  (f16+f32: weights in f32)\n" : "\n", out);
}

/* Of the column of ops and passes. */
static int name_width(void)
{
	size_t width = 0;
	for (int i = 0; i < OPS; i++)
		width = strlen(op_at(i)->name) > width ? strlen(op_at(i)->name) : width;
	return (int)(width + strlen(" backward"));
}

void print_support(FILE *out, ek_context *ctx)
{
	struct support support = {.error = ""};
	find(&support, ctx, EK_OK);
	int width = name_width();
	(void)fprintf(out, "support    %-*s", width, device_words(ctx).name);
	print_row(out, support.calls, true);
	for (int i = 0; i < CALLS; i += DTYPES * DTYPES) {
		char what[32];
		(void)snprintf(what, sizeof what, "%s %s", support.calls[i].test_case.op->name,
			       pass_names[support.calls[i].test_case.pass]);
		(void)fprintf(out, "           %-*s", width, what);
		print_row(out, &support.calls[i], false);
	}
	if (support.error[0])
		(void)fprintf(out, "           no: %s\n", support.error);
}

static void write_calls(FILE *file, const struct support *support, const char *between)
{
	for (int i = 0; i < CALLS; i++, between = ",") {
		const struct call *call = &support->calls[i];
		(void)fprintf(
			file,
			"%s\n    {\"device\": \"%s\", \"op\": \"%s\", \"pass\": \"%s\", \"dtype\": \"%s\", "
			"\"weight_dtype\": \"%s\", \"status\": \"%s\"}",
			between, support->device, call->test_case.op->name, pass_names[call->test_case.pass],
			ek_dtype_name(call->test_case.dtype), ek_dtype_name(call->test_case.weight_dtype),
			ek_status_name(call->status));
	}
}

void write_support(FILE *file, ek_context *cpu)
{
	struct support support = {.device = "cpu"};
	(void)fputs("  \"support\": [", file);
	find(&support, cpu, EK_OK);
	write_calls(file, &support, "");
	int gpus = device_gpus();
	for (int ordinal = 0; ordinal < gpus; ordinal++) {
		ek_context *ctx = NULL;
		ek_options options = {.size = sizeof options, .device = EK_CUDA, .ordinal = ordinal};
		ek_status opened = ek_open(&ctx, &options);
		(void)snprintf(support.device, sizeof support.device, "cuda:%d", ordinal);
		find(&support, opened == EK_OK ? ctx : NULL, opened);
		write_calls(file, &support, ",");
		if (opened == EK_OK)
			ek_close(ctx);
	}
	(void)fputs("\n  ]", file);
}
