/* Comparing what a call wrote with what the reference wrote: all of it, gaps between rows and canaries
 * around buffers included. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support.h"

/* Is every byte between the rows still a canary? */
static bool gaps_whole(const struct operand *o)
{
	size_t element = ek_dtype_size(o->dtype);
	for (int64_t r = 0; r + 1 < o->rows; r++) {
		const unsigned char *gap = o->buffer.data + (size_t)(r * o->stride + o->cols) * element;
		for (size_t i = 0; i < (size_t)(o->stride - o->cols) * element; i++)
			if (gap[i] != CANARY)
				return false;
	}
	return true;
}

/* Are margins and gaps whole? Says so otherwise. */
static bool surroundings_whole(const struct norm_case *c, const char *level, struct operand set[])
{
	for (int id = Y; id <= WORKSPACE; id++) {
		struct operand *o = &set[id];
		if (!o->present)
			continue;
		if (!buffer_margins_whole(&o->buffer)) {
			test_fail("%s, level %s: bytes beside %s were written", case_text(c), level,
				  operand_names[id]);
			return false;
		}
		if (id != WORKSPACE && o->stride > o->cols && !gaps_whole(o)) {
			test_fail("%s, level %s: bytes between the rows of %s were written", case_text(c),
				  level, operand_names[id]);
			return false;
		}
	}
	return true;
}

static bool operand_equal(const struct norm_case *c, const char *level, int threads, int id,
			  const struct operand *want, const struct operand *got)
{
	if (memcmp(want->buffer.data, got->buffer.data, want->buffer.bytes) == 0)
		return true;
	for (int64_t r = 0; r < want->rows; r++)
		for (int64_t i = 0; i < want->cols; i++) {
			uint64_t a = value_bits(want->dtype, want->buffer.data, r * want->stride + i);
			uint64_t b = value_bits(got->dtype, got->buffer.data, r * got->stride + i);
			if (a == b || (bits_are_nan(want->dtype, a) && bits_are_nan(got->dtype, b)))
				continue;
			test_fail(
				"%s, level %s, %d threads: %s[%lld][%lld] is 0x%llx (%.17g), the reference has 0x%llx (%.17g)",
				case_text(c), level, threads, operand_names[id], (long long)r, (long long)i,
				(unsigned long long)b,
				value_get(got->dtype, got->buffer.data, r * got->stride + i),
				(unsigned long long)a,
				value_get(want->dtype, want->buffer.data, r * want->stride + i));
			return false;
		}
	return true;
}

bool case_compare(const struct norm_case *c, const char *level, int threads, struct operand set[OPERANDS])
{
	for (int id = Y; id < WORKSPACE; id++)
		if (set[id].present && !operand_equal(c, level, threads, id, &case_expected[id], &set[id]))
			return false;
	return surroundings_whole(c, level, set);
}

void case_expect(const struct norm_case *c)
{
	case_fill(c);
	ek_status status = case_call(reference(), c, case_expected);
	EXPECT(status == EK_OK, "%s, level reference: %s: %s", case_text(c), ek_status_name(status),
	       ek_error(reference()));
	surroundings_whole(c, "reference", case_expected);
}

bool case_check(const struct norm_case *c, struct setting setting)
{
	ek_context *ctx = context_of(setting);
	ek_status status = case_call(ctx, c, case_actual);
	if (status != EK_OK) {
		test_fail("%s, level %s, %d threads: %s: %s", case_text(c), setting.level, setting.threads,
			  ek_status_name(status), ek_error(ctx));
		return false;
	}
	return case_compare(c, setting.level, setting.threads, case_actual);
}

void case_check_levels(const struct norm_case *c)
{
	case_expect(c);
	for (int i = 0; i < level_count(); i++)
		case_check(c, (struct setting){level_name(i), 1, PLAIN});
}
