/* Sizes of ops on heads; heads.h says what. SPDX-License-Identifier: MIT */
#include "heads.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

enum { WIDE = 2048 };

/* Of columns that are not said to be cut otherwise: heads of 128 in wide rows, else of 64, else one; 0: none. */
static int64_t usual_head_dim(int64_t cols)
{
	if (cols >= WIDE && cols % USUAL_HEAD_DIM == 0)
		return USUAL_HEAD_DIM;
	if (cols % (USUAL_HEAD_DIM / 2) == 0)
		return USUAL_HEAD_DIM / 2;
	return cols > 1 && cols <= EK_MAX_HEAD_DIM ? cols : 0;
}

bool heads_of(const struct options *options, struct shape shape, struct head_sizes *sizes)
{
	const int64_t batch = given_or(options->batch, 1);
	int64_t head_dim = given_or(options->head_dim, usual_head_dim(shape.cols));
	if (options->heads && !options->head_dim && shape.cols % options->heads == 0)
		head_dim = shape.cols / options->heads;
	if (head_dim < 2 || head_dim > EK_MAX_HEAD_DIM || shape.cols % head_dim || shape.rows % batch)
		return false;
	const int64_t heads = shape.cols / head_dim;
	*sizes = (struct head_sizes){.batch = batch,
				     .seq = shape.rows / batch,
				     .heads = heads,
				     .k_heads = given_or(options->kv_heads, heads),
				     .head_dim = head_dim,
				     .rotary_dim = given_or(options->rotary_dim, head_dim / 2 * 2)};
	return sizes->heads % sizes->k_heads == 0 && sizes->rotary_dim <= head_dim &&
	       sizes->rotary_dim % 2 == 0 && (!options->heads || heads == options->heads);
}

struct shape case_shape(const struct test_case *c)
{
	if (!is_on_heads(c->op))
		return (struct shape){c->rows, c->cols};
	return (struct shape){c->batch * c->seq, c->heads * c->head_dim};
}

const char *heads_text(const struct test_case *c)
{
	static char text[128];
	size_t length = 0;
	text[0] = 0;
	if (!is_on_heads(c->op))
		return text;
	const struct {
		const char *option;
		int64_t value, usual;
	} sizes[] = {{"--head-dim", c->head_dim, 0},
		     {"--kv-heads", c->k_heads, c->heads},
		     {"--rotary-dim", c->rotary_dim, c->head_dim / 2 * 2},
		     {"--batch", c->batch, 1},
		     {"--heads-first", c->heads_first != 0, 0}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i].value != sizes[i].usual)
			length += (size_t)snprintf(text + length, sizeof text - length, " %s %lld",
						   sizes[i].option, (long long)sizes[i].value);
	return text;
}
