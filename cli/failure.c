/* How a difference from the reference is shown: where, both values, and the command that repeats it.
 * Called by verify.c and run.c. SPDX-License-Identifier: MIT */
#include "failure.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli.h"
#include "device.h"
#include "options.h"
#include "term.h"

static void show_value(const char *label, const struct tensor *tensor, int64_t index)
{
	printf("  %-10s 0x%0*" PRIx64 "  %.17g\n", label, (int)(2 * ek_dtype_size(tensor->dtype)),
	       element_bits(tensor->dtype, tensor->data, index),
	       element_value(tensor->dtype, tensor->data, index));
}

static void show_repeat(const struct problem *problem, const struct device_words *device,
			const struct options *options, const char *command)
{
	static const char *const inits[] = {"ones", "integers", "decimals"};
	const struct test_case *test_case = &problem->test_case;
	printf("  repeat     evenkeel %s %s --pass %s --rows %lld --cols %lld --dtype %s --weight-dtype %s",
	       command, test_case->op->name, pass_names[test_case->pass], (long long)test_case->rows,
	       (long long)test_case->cols, ek_dtype_name(test_case->dtype),
	       ek_dtype_name(test_case->weight_dtype));
	if (device->gpu)
		printf(" --device %s", device->name);
	else
		printf(" --isa %s --threads %d", device->isa, device->threads);
	printf(" --init %s --seed %llu --eps %g%s%s\n", inits[options->init],
	       (unsigned long long)options->seed, options->eps, options->weight ? "" : " --weight 0",
	       options->bias ? "" : " --bias 0");
}

/* What to say of an element that is none of the tensor's. */
static const char *outside(const struct problem *problem, const struct difference *difference)
{
	const struct tensor *tensor = &problem->expected.tensors[difference->output];
	if (difference->index < 0)
		return " (before the tensor)";
	if (difference->index >= tensor->elements)
		return " (behind the tensor)";
	return difference->output == OUT_RESULT && difference->col >= tensor->cols ? " (between rows)" : "";
}

int show_difference(const struct problem *problem, const struct difference *difference, const ek_context *ctx,
		    const struct options *options, const char *command)
{
	const struct test_case *test_case = &problem->test_case;
	ek_description description = {.size = sizeof description};
	struct device_words device = device_words(ctx);
	(void)ek_describe(ctx, &description);
	progress_clear();
	printf("%sDIFFERS%s  %s %s %lldx%lld %s (weights %s), %s\n", term_style(stdout, STYLE_BAD),
	       term_style(stdout, STYLE_NONE), test_case->op->name, pass_names[test_case->pass],
	       (long long)test_case->rows, (long long)test_case->cols, ek_dtype_name(test_case->dtype),
	       ek_dtype_name(test_case->weight_dtype), test_case->form.name);
	if (device.threads)
		printf("  level      %s, stream_bytes %lld\n", device.text,
		       (long long)description.stream_bytes);
	else
		printf("  device     %s\n", device.text);
	printf("  tensor     %s, row %lld, column %lld%s\n", output_name(test_case->pass, difference->output),
	       (long long)difference->row, (long long)difference->col, outside(problem, difference));
	show_value("reference", &problem->expected.tensors[difference->output], difference->index);
	show_value(device.isa, &problem->actual.tensors[difference->output], difference->index);
	show_repeat(problem, &device, options, command);
	return STATUS_CHECK_FAILED;
}
