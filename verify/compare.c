/* Comparing what a call wrote with what the reference wrote: all of it, gaps between rows and canaries around buffers
 * included; operands.h says what. SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operands.h"

static bool same_element(const struct operand *a, const struct operand *b, int64_t index)
{
	uint64_t want = element_bits(a->dtype, a->buffer.data, index);
	uint64_t is = element_bits(b->dtype, b->buffer.data, index);
	return want == is || (bits_are_nan(a->dtype, want) && bits_are_nan(b->dtype, is));
}

static bool operand_same(const struct operand *expected, const struct operand *actual, struct difference *d)
{
	size_t size = ek_dtype_size(expected->dtype);
	for (int64_t r = 0; r < expected->rows; r++) {
		size_t at = (size_t)operand_row(expected, r) * size;
		if (memcmp(expected->buffer.data + at, actual->buffer.data + at,
			   (size_t)expected->cols * size) == 0)
			continue; /* the usual answer */
		for (int64_t i = 0; i < expected->cols; i++)
			if (!same_element(expected, actual, operand_row(expected, r) + i)) {
				d->row = r;
				d->col = i;
				d->index = operand_row(expected, r) + i;
				return false;
			}
	}
	return true;
}

/* Whether bytes `from` to `end`, counted from the first of the data, are canaries; else d->index is where not. */
static bool canaries(const struct operand *o, int64_t from, int64_t end, struct difference *d)
{
	int64_t size = (int64_t)ek_dtype_size(o->dtype);
	for (int64_t i = from; i < end; i++)
		if (o->buffer.data[i] != CANARY) {
			d->index = (i - (i < 0 ? size - 1 : 0)) / size;
			d->row = o->stride ? d->index / o->stride : 0;
			d->col = o->stride ? d->index % o->stride : d->index;
			return false;
		}
	return true;
}

/* What is between the rows, whatever order they lie in. */
static bool gaps_whole(const struct operand *o, struct difference *d)
{
	int64_t size = (int64_t)ek_dtype_size(o->dtype);
	bool whole = true;
	unsigned char *covered = calloc(o->buffer.bytes + 1, 1);
	if (!covered)
		abort();
	for (int64_t r = 0; r < o->rows; r++)
		memset(covered + operand_row(o, r) * size, 1, (size_t)(o->cols * size));
	for (int64_t i = 0; i < (int64_t)o->buffer.bytes && whole; i++)
		whole = covered[i] || canaries(o, i, i + 1, d);
	free(covered);
	return whole;
}

static bool operand_whole(const struct operand *o, struct difference *d)
{
	int64_t size = (int64_t)ek_dtype_size(o->dtype), bytes = (int64_t)o->buffer.bytes;
	d->where = BETWEEN_ROWS;
	if (o->blocks && !gaps_whole(o, d))
		return false;
	for (int64_t r = 0; !o->blocks && r + 1 < o->rows && o->stride > o->cols; r++)
		if (!canaries(o, (r * o->stride + o->cols) * size, (r + 1) * o->stride * size, d))
			return false;
	if (buffer_margins_whole(&o->buffer))
		return true;
	d->where = BEFORE_TENSOR;
	if (!canaries(o, -BUFFER_MARGIN, 0, d))
		return false;
	d->where = BEHIND_TENSOR;
	return canaries(o, bytes, bytes + BUFFER_MARGIN, d);
}

bool outputs_whole(const struct operands *outputs, struct difference *difference)
{
	for (int i = 0; i <= outputs->op->output_count; i++) {
		bool last = i == outputs->op->output_count;
		const struct operand *o = last ? &outputs->workspace : &outputs->of[i];
		*difference = (struct difference){.name = last ? "workspace" : outputs->op->operands[i].name,
						  .actual = o};
		if (o->present && !operand_whole(o, difference))
			return false;
	}
	return true;
}

bool outputs_equal(const struct operands *expected, const struct operands *actual,
		   struct difference *difference)
{
	for (int i = 0; i < actual->op->output_count; i++) {
		*difference = (struct difference){.name = actual->op->operands[i].name,
						  .expected = &expected->of[i],
						  .actual = &actual->of[i]};
		if (actual->of[i].present && !operand_same(&expected->of[i], &actual->of[i], difference))
			return false;
	}
	return true;
}

bool outputs_same(const struct operands *expected, const struct operands *actual,
		  struct difference *difference)
{
	return outputs_equal(expected, actual, difference) && outputs_whole(actual, difference);
}

const char *difference_text(const struct difference *d)
{
	static char text[256];
	const struct operand *is = d->actual, *want = d->expected;
	if (d->where != IN_TENSOR) {
		(void)snprintf(text, sizeof text, "bytes %s %s were written",
			       d->where == BETWEEN_ROWS ? "between the rows of" : "around", d->name);
		return text;
	}
	(void)snprintf(text, sizeof text,
		       "%s[%lld][%lld] is 0x%" PRIx64 " (%.17g), the reference has 0x%" PRIx64 " (%.17g)",
		       d->name, (long long)d->row, (long long)d->col,
		       element_bits(is->dtype, is->buffer.data, d->index),
		       element_value(is->dtype, is->buffer.data, d->index),
		       element_bits(want->dtype, want->buffer.data, d->index),
		       element_value(want->dtype, want->buffer.data, d->index));
	return text;
}
