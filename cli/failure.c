/* How a difference from the reference is shown: where, both values, and the command that repeats it.
 * Called by verify.c and run.c. SPDX-License-Identifier: MIT */
#include "failure.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli.h"
#include "options.h"
#include "term.h"

static void show_value(const char *label, const struct tensor *tensor, int64_t index)
{
	printf("  %-10s 0x%0*" PRIx64 "  %.17g\n", label, (int)(2 * ek_dtype_size(tensor->dtype)),
	       element_bits(tensor->dtype, tensor->data, index),
	       element_value(tensor->dtype, tensor->data, index));
}

static void show_repeat(const struct problem *problem, const ek_description *description,
			const struct options *options, const char *command)
{
	static const char *const inits[] = {"ones", "integers", "decimals"};
	const struct test_case *test_case = &problem->test_case;
	printf("  repeat     evenkeel %s %s --pass %s --rows %lld --cols %lld --dtype %s --weight-dtype %s",
	       command, test_case->op->name, pass_names[test_case->pass], (long long)test_case->rows,
	       (long long)test_case->cols, ek_dtype_name(test_case->dtype),
	       ek_dtype_name(test_case->weight_dtype));
	printf(" --isa %s --threads %d --init %s --seed %llu --eps %g%s%s\n", description->isa,
	       description->threads, inits[options->init], (unsigned long long)options->seed, options->eps,
	       options->weight ? "" : " --weight 0", options->bias ? "" : " --bias 0");
}

int show_difference(const struct problem *problem, const struct difference *difference, const ek_context *ctx,
		    const struct options *options, const char *command)
{
	const struct test_case *test_case = &problem->test_case;
	ek_description description = {.size = sizeof description};
	(void)ek_describe(ctx, &description);
	progress_clear();
	printf("%sDIFFERS%s  %s %s %lldx%lld %s (weights %s), %s\n", term_style(stdout, STYLE_BAD),
	       term_style(stdout, STYLE_NONE), test_case->op->name, pass_names[test_case->pass],
	       (long long)test_case->rows, (long long)test_case->cols, ek_dtype_name(test_case->dtype),
	       ek_dtype_name(test_case->weight_dtype), test_case->form.name);
	printf("  level      %s, %d thread%s, stream_bytes %lld\n", description.isa, description.threads,
	       description.threads == 1 ? "" : "s", (long long)description.stream_bytes);
	printf("  tensor     %s, row %lld, column %lld%s\n", output_name(test_case->pass, difference->output),
	       (long long)difference->row, (long long)difference->col,
	       difference->col >= test_case->cols && difference->output == OUT_RESULT ? " (between rows)"
										      : "");
	show_value("reference", &problem->expected.tensors[difference->output], difference->index);
	show_value(description.isa, &problem->actual.tensors[difference->output], difference->index);
	show_repeat(problem, &description, options, command);
	return STATUS_CHECK_FAILED;
}
