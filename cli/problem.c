/* A case with its operands; problem.h says what. SPDX-License-Identifier: MIT */
#include "problem.h"

#include "cli.h"
#include "device.h"
#include "verify/memory.h"

/* Of a case and of what it is checked against. */
static double problem_bytes(const struct test_case *c)
{
	return case_bytes(c) * 1.5;
}

static int fail(const struct listed_case *listed, ek_status status, const ek_context *ctx)
{
	const struct test_case *c = &listed->c;
	if (status == EK_ERROR_MEMORY && !gpu_of(ctx))
		return complain(STATUS_USAGE,
				"--rows %lld --cols %lld: needs %.1f GB, more than this machine has",
				(long long)c->rows, (long long)c->cols, problem_bytes(c) * 1e-9);
	return complain(device_exit_status(status), "%s %s (%s): %s: %s", c->op->name, pass_names[c->pass],
			listed->form, ek_status_name(status), ek_error(ctx));
}

int problem_make(struct problem *problem, ek_context *ctx, const struct listed_case *listed)
{
	problem->listed = *listed;
	ek_status status = EK_ERROR_MEMORY;
	if (memory_suffices(NULL, problem_bytes(&listed->c)))
		status = inputs_fill(ctx, &listed->c, &problem->inputs);
	return status == EK_OK ? STATUS_FINE : fail(listed, status, ctx);
}

int problem_compute(struct problem *problem, ek_context *ctx, struct operands *outputs)
{
	ek_status status = outputs_compute(ctx, &problem->listed.c, &problem->inputs, outputs);
	return status == EK_OK ? STATUS_FINE : fail(&problem->listed, status, ctx);
}

void problem_free(struct problem *problem)
{
	operands_free(&problem->inputs);
	operands_free(&problem->expected);
	operands_free(&problem->actual);
}
