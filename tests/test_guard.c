/* Memory that may not be touched: every buffer stands directly before, then directly behind a page without
 * access, inputs are read-only, and a touch ends the program, after saying in which case. Canaries in the
 * gaps between strided rows are seen to by the comparison. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support.h"

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
	for (int id = X; id <= MEAN_LO; id++)
		if (case_inputs[id].present)
			buffer_protect(&case_inputs[id].buffer, read_only);
}

static void check_placed(struct norm_case c, int threads, enum flavour flavour)
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

static struct norm_case op_case(int k, int64_t rows, int64_t cols)
{
	return case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM, dtype_pairs[k / 4], rows, cols);
}

enum { OPS = 4 * DTYPE_PAIRS };

static void widths(void)
{
	for (int64_t cols = 1; cols <= 300; cols = test_step(cols))
		for (int k = 0; k < OPS; k++)
			check_placed(op_case(k, 1 + cols % 4, cols), 1, PLAIN);
	static const int64_t wide[] = {511,  512,  513,  1000, 1023, 1024, 1025,
				       2047, 2048, 2049, 4096, 5001, 8192};
	for (int w = 0; w < COUNT_OF(wide); w++)
		for (int k = 0; k < OPS; k++)
			check_placed(op_case(k, 3, wide[w]), 1, PLAIN);
}

static void operand_forms(void)
{
	static const int64_t widths_of_forms[] = {5, 37, 64, 515};
	for (int w = 0; w < COUNT_OF(widths_of_forms); w++)
		for (unsigned form = 0; form < 1u << 12; form += test_mode == TEST_SHORT ? 97 : 7)
			for (int k = 0; k < 4; k++) {
				struct norm_case c =
					op_case(k + 4 * (int)(form % DTYPE_PAIRS), 3, widths_of_forms[w]);
				c.form = form;
				case_normalise(&c);
				check_placed(c, 1, PLAIN);
			}
}

static void strided_rows(void)
{
	static const int64_t pads[] = {1, 7, 64, 1021};
	for (int p = 0; p < COUNT_OF(pads); p++)
		for (int64_t cols = 1; cols <= 130; cols += test_mode == TEST_SHORT ? 23 : 7)
			for (int k = 0; k < OPS; k++) {
				struct norm_case c = op_case(k, 5, cols);
				c.pad[X] = c.pad[Y] = c.pad[DY] = c.pad[DX] = pads[p];
				check_placed(c, 1, PLAIN);
				c.form |= FORM_IN_PLACE;
				check_placed(c, 1, STREAM_ALWAYS);
			}
}

/* With threads, and with stores past the caches. */
static void threads_and_streaming(void)
{
	static const int64_t shapes[][2] = {{70, 513}, {1030, 40}, {3, 40001}, {2050, 17}, {7, 16384}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k++) {
			if (test_mode == TEST_SHORT && (k + s) % 5 > 0)
				continue;
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 3, PLAIN);
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 3, STREAM_ALWAYS);
			check_placed(op_case(k, shapes[s][0], shapes[s][1]), 2, LOOP_SERIAL);
		}
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	signal(SIGSEGV, on_touch);
	signal(SIGBUS, on_touch);
	TEST(widths);
	TEST(operand_forms);
	TEST(strided_rows);
	TEST(threads_and_streaming);
	return test_end();
}
