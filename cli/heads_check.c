/* The options that say sizes of ops on heads, together. Called by options.c. SPDX-License-Identifier: MIT */
#include "cli.h"
#include "heads.h"
#include "options.h"

/* sizes: as far as heads_of has come. */
static int no_heads(const struct options *options, struct shape shape, const struct head_sizes *sizes)
{
	if (sizes->head_dim && (sizes->rotary_dim % 2 || sizes->rotary_dim > sizes->head_dim))
		return complain(STATUS_USAGE, "--rotary-dim %lld: must be even and at most --head-dim (%lld)",
				(long long)sizes->rotary_dim, (long long)sizes->head_dim);
	if (sizes->head_dim && sizes->heads % sizes->k_heads)
		return complain(STATUS_USAGE, "--kv-heads %lld: must divide --heads (%lld)",
				(long long)sizes->k_heads, (long long)sizes->heads);
	return complain(
		STATUS_USAGE,
		"--rows %lld --cols %lld: must be whole sequences (--batch %lld) and whole heads, of 2 to %d columns",
		(long long)shape.rows, (long long)shape.cols, (long long)given_or(options->batch, 1),
		EK_MAX_HEAD_DIM);
}

static int check_shapes(const struct options *options)
{
	struct head_sizes sizes = {0};
	for (int i = 0; i < options->shape_count; i++)
		if (!heads_of(options, options->shapes[i], &sizes))
			return no_heads(options, options->shapes[i], &sizes);
	const struct shape shape = {options->rows, options->cols};
	return options->rows && !heads_of(options, shape, &sizes) ? no_heads(options, shape, &sizes)
								  : STATUS_FINE;
}

int heads_check(struct options *options)
{
	const bool given = options->batch || options->seq || options->heads || options->head_dim;
	bool all = true, any = false;
	for (int i = 0; i < options->op_count; i++) {
		all = all && is_on_heads(options->ops[i]);
		any = any || is_on_heads(options->ops[i]);
	}
	if ((given || options->kv_heads || options->rotary_dim || options->heads_first ||
	     options->positions) &&
	    !(any && all))
		return complain(STATUS_USAGE,
				"--batch, --seq, --heads, --kv-heads, --head-dim, --rotary-dim, "
				"--heads-first and --positions: must be with rope or qk_norm_rope");
	if (!any)
		return STATUS_FINE;
	if (options->command == COMMAND_WARMUP) { /* kernels are for any number of heads */
		if (options->shape_count == 0)
			options->shapes[options->shape_count++] =
				(struct shape){1, USUAL_HEADS * given_or(options->head_dim, USUAL_HEAD_DIM)};
	} else if (options->command == COMMAND_RUN || given) {
		const bool listed = options->shape_count > 0;
		if (!options->rows && !listed)
			options->rows = given_or(options->batch, 1) * given_or(options->seq, USUAL_SEQ);
		if (!options->cols && !listed)
			options->cols = given_or(options->heads,
						 options->head_dim && !options->heads
							 ? USUAL_HEADS * USUAL_HEAD_DIM / options->head_dim
							 : USUAL_HEADS) *
					given_or(options->head_dim, USUAL_HEAD_DIM);
	}
	return all ? check_shapes(options) : STATUS_FINE;
}
