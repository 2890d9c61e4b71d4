/* A case with its operands; problem.h says what. SPDX-License-Identifier: MIT */
#include "problem.h"

#include <inttypes.h>
#include <stdio.h>

#include "choices.h"
#include "cli.h"
#include "device.h"
#include "heads.h"
#include "options.h"
#include "term.h"
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
				(long long)case_shape(c).rows, (long long)case_shape(c).cols,
				problem_bytes(c) * 1e-9);
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

/* ---- a difference from the reference ---- */

static void show_value(const char *label, const struct operand *o, int64_t index)
{
	printf("  %-10s 0x%0*" PRIx64 "  %.17g\n", label, (int)(2 * ek_dtype_size(o->dtype)),
	       element_bits(o->dtype, o->buffer.data, index), element_value(o->dtype, o->buffer.data, index));
}

static void show_repeat(const struct problem *problem, const struct device_words *device,
			const struct options *options, const char *command)
{
	const struct test_case *test_case = &problem->listed.c;
	printf("  repeat     evenkeel %s %s --pass %s --rows %lld --cols %lld --dtype %s --weight-dtype %s",
	       command, test_case->op->name, pass_names[test_case->pass],
	       (long long)case_shape(test_case).rows, (long long)case_shape(test_case).cols,
	       ek_dtype_name(test_case->dtype), ek_dtype_name(test_case->weight_dtype));
	if (device->gpu)
		printf(" --device %s", device->name);
	else
		printf(" --isa %s --threads %d", device->isa, device->threads);
	if (case_op(test_case)->scalar[EK_EPS])
		printf(" --eps %g", options->eps);
	printf("%s --init %s --seed %llu%s%s%s\n", choices_text(test_case), filling_names[options->filling],
	       (unsigned long long)options->seed, options->weight ? "" : " --weight 0",
	       !options->bias        ? " --bias 0"
	       : options->bias_given ? " --bias 1"
				     : "",
	       !options->x_bias_given ? ""
	       : options->x_bias      ? " --x-bias 1"
				      : " --x-bias 0");
}

int show_difference(const struct problem *problem, const struct difference *difference, const ek_context *ctx,
		    const struct options *options, const char *command)
{
	const struct test_case *test_case = &problem->listed.c;
	static const char *const places[] = {"", " (between rows)", " (before the tensor)",
					     " (behind the tensor)"};
	ek_description description = {.size = sizeof description};
	struct device_words device = device_words(ctx);
	(void)ek_describe(ctx, &description);
	progress_clear();
	printf("%sDIFFERS%s  %s %s %lldx%lld %s (weights %s), %s\n", term_style(stdout, STYLE_BAD),
	       term_style(stdout, STYLE_NONE), test_case->op->name, pass_names[test_case->pass],
	       (long long)case_shape(test_case).rows, (long long)case_shape(test_case).cols,
	       ek_dtype_name(test_case->dtype), ek_dtype_name(test_case->weight_dtype), problem->listed.form);
	if (device.threads)
		printf("  level      %s, stream_bytes %lld\n", device.text,
		       (long long)description.stream_bytes);
	else
		printf("  device     %s\n", device.text);
	printf("  tensor     %s, row %lld, column %lld%s\n", difference->name, (long long)difference->row,
	       (long long)difference->col, places[difference->where]);
	if (difference->expected)
		show_value("reference", difference->expected, difference->index);
	show_value(device.isa, difference->actual, difference->index);
	show_repeat(problem, &device, options, command);
	return STATUS_CHECK_FAILED;
}
