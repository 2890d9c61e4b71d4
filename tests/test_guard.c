/* Memory that may not be touched: every buffer stands directly before, then directly behind a page without
 * access, inputs are read-only, and a touch ends the program, after saying in which case. Canaries in the
 * gaps between strided rows are seen to by the comparison. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support_sweeps.h"

static char running[1024];

/* A touch of a guard page ends here; only calls that are safe in a handler. */
static void on_touch(int signal)
{
	(void)signal;
	static const char text[] = "FAILED: a byte outside a buffer, or of an input, was touched in ";
	ssize_t written = write(STDOUT_FILENO, text, sizeof(text) - 1);
	written += write(STDOUT_FILENO, running, strlen(running));
	_exit(written >= 0 ? 1 : 2);
}

static void protect_inputs(bool read_only)
{
	const struct ek_op *op = case_inputs.op;
	for (int i = op->output_count; i < op->operand_count; i++)
		if (case_inputs.of[i].present)
			buffer_protect(&case_inputs.of[i].buffer, read_only);
}

static void check_placed(struct test_case c, int threads, enum flavour flavour)
{
	for (enum placement p = PLACE_GUARD_AFTER; p <= PLACE_GUARD_BEFORE; p++) {
		c.placement = p;
		snprintf(running, sizeof(running), "%s, level reference\n", case_text(&c));
		case_expect(&c);
		protect_inputs(true);
		for (int i = 0; i < level_count(); i++) {
			snprintf(running, sizeof(running), "%s, level %s, %d threads, guard page %s\n",
				 case_text(&c), level_name(i), threads,
				 p == PLACE_GUARD_AFTER ? "behind" : "before");
			case_check(&c, (struct setting){level_name(i), threads, flavour});
		}
		protect_inputs(false);
	}
}

static void check_alone(const struct test_case *c)
{
	check_placed(*c, 1, PLAIN);
}

/* Gaps between rows must not be written, by non-temporal stores either. */
static void check_non_temporal(const struct test_case *c)
{
	check_placed(*c, 1, PLAIN);
	check_placed(*c, 1, STREAM_ALWAYS);
}

SETUP()
{
	signal(SIGSEGV, on_touch);
	signal(SIGBUS, on_touch);
}

TEST(widths)
{
	sweep_widths(check_alone, 300, 2);
	static const int64_t wide[] = {511,  512,  513,  1000, 1023, 1024, 1025,
				       2047, 2048, 2049, 4096, 5001, 8192};
	for (int w = 0; w < COUNT_OF(wide); w++)
		for (int k = 0; k < OPS; k++)
			check_placed(op_case(k, 3, wide[w]), 1, PLAIN);
}

TEST(operand_forms)
{
	sweep_operand_forms(check_alone, 10);
}

TEST(choices_of_dtypes_and_options)
{
	sweep_choices(check_alone, 4);
}

TEST(groups_of_columns)
{
	sweep_groups(check_alone, 4);
}

TEST(strided_rows)
{
	sweep_strides(check_non_temporal, 2);
}

/* With threads, and with stores past the caches. */
TEST(threads_and_streaming)
{
	static const int64_t shapes[][2] = {{70, 513}, {1030, 40}, {3, 40001}, {2050, 17}, {7, 16384}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			if (!test_sampled(1))
				continue;
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 3, PLAIN);
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 3, STREAM_ALWAYS);
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 2, LOOP_SERIAL);
		}
}
