/* What the library can do here: tiny calls with every op, pass, dtype and weight dtype, with all operands, and the status
 * that each answers. On a GPU the first time compiles some forty kernels. Called by info.c.
 * SPDX-License-Identifier: MIT */
#include "support.h"

#include <string.h>

#include "cases.h"
#include "device.h"
#include "memory.h"
#include "options.h"
#include "report.h"

enum { COLS = 8, PLACE_BYTES = 256, DTYPES = 4, CALLS = OP_COUNT * PASS_COUNT * DTYPES * DTYPES };

/* Operands in one block of memory, in places of their own; the workspace is behind them. */
enum { AT_X, AT_DY, AT_Y, AT_WEIGHT, AT_BIAS, AT_DWEIGHT, AT_DBIAS, AT_MEAN, AT_RSTD, AT_MEAN_LO, PLACES };

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

static const double eps = 1e-5;

static ek_norm_forward_args forward_of(const struct test_case *test_case, unsigned char *memory)
{
	bool centred = test_case->op->norm == EK_LAYER_NORM;
	ek_norm_forward_args args = forward_args_of(test_case, eps);
	args.x = memory + AT_X * PLACE_BYTES;
	args.weight = memory + AT_WEIGHT * PLACE_BYTES;
	args.bias = memory + AT_BIAS * PLACE_BYTES;
	args.y = memory + AT_Y * PLACE_BYTES;
	args.mean = centred ? memory + AT_MEAN * PLACE_BYTES : NULL;
	args.rstd = memory + AT_RSTD * PLACE_BYTES;
	args.mean_lo = centred ? memory + AT_MEAN_LO * PLACE_BYTES : NULL;
	return args;
}

static ek_norm_backward_args backward_of(const struct test_case *test_case, unsigned char *memory)
{
	bool centred = test_case->op->norm == EK_LAYER_NORM;
	ek_norm_backward_args args = backward_args_of(test_case, eps);
	args.dy = memory + AT_DY * PLACE_BYTES;
	args.x = memory + AT_X * PLACE_BYTES;
	args.weight = memory + AT_WEIGHT * PLACE_BYTES;
	args.mean = centred ? memory + AT_MEAN * PLACE_BYTES : NULL;
	args.rstd = memory + AT_RSTD * PLACE_BYTES;
	args.mean_lo = centred ? memory + AT_MEAN_LO * PLACE_BYTES : NULL;
	args.dx = memory + AT_Y * PLACE_BYTES;
	args.dweight = memory + AT_DWEIGHT * PLACE_BYTES;
	args.dbias = memory + AT_DBIAS * PLACE_BYTES;
	args.workspace = memory + PLACES * PLACE_BYTES;
	return args;
}

static ek_status workspace_for(ek_context *ctx, const struct test_case *test_case, size_t *bytes)
{
	static unsigned char nowhere[(PLACES + 1) * PLACE_BYTES];
	ek_norm_backward_args args = backward_of(test_case, nowhere);
	*bytes = 0;
	return test_case->pass == BACKWARD ? ek_norm_backward_workspace(ctx, &args, bytes) : EK_OK;
}

/* The call, and on a GPU the wait for it. */
static ek_status make_call(ek_context *ctx, const struct test_case *test_case)
{
	struct ek_gpu *gpu = gpu_of(ctx);
	unsigned char first;
	size_t workspace;
	ek_status status = workspace_for(ctx, test_case, &workspace);
	if (status != EK_OK)
		return status;
	unsigned char *memory = memory_make(gpu, PLACES * PLACE_BYTES + workspace);
	if (!memory)
		return EK_ERROR_MEMORY;
	ek_norm_forward_args forward = forward_of(test_case, memory);
	ek_norm_backward_args backward = backward_of(test_case, memory);
	backward.workspace_size = workspace;
	status = test_case->pass == FORWARD ? ek_norm_forward(ctx, &forward)
					    : ek_norm_backward(ctx, &backward);
	if (status == EK_OK)
		status = memory_read(gpu, &first, memory, sizeof first);
	memory_free(gpu, memory);
	return status;
}

/* Number i of all; op changes slowest. */
static struct test_case case_at(int i)
{
	return (struct test_case){.op = &ops[i / (PASS_COUNT * DTYPES * DTYPES)],
				  .pass = (enum pass)(i / (DTYPES * DTYPES) % PASS_COUNT),
				  .dtype = (ek_dtype)(i / DTYPES % DTYPES + 1),
				  .weight_dtype = (ek_dtype)(i % DTYPES + 1),
				  .rows = 1,
				  .cols = COLS};
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

void print_support(FILE *out, ek_context *ctx)
{
	struct support support = {.error = ""};
	find(&support, ctx, EK_OK);
	(void)fprintf(out, "support    %-19s", device_words(ctx).name);
	print_row(out, support.calls, true);
	for (int i = 0; i < CALLS; i += DTYPES * DTYPES) {
		char what[32];
		(void)snprintf(what, sizeof what, "%s %s", support.calls[i].test_case.op->name,
			       pass_names[support.calls[i].test_case.pass]);
		(void)fprintf(out, "           %-19s", what);
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
