/* Gated activations: every level's bits against the reference's, over widths, rows, operands, choices, numbers, layouts,
 * threads and guard pages, and what a clamp does to gradients. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support.h"
#include "support_fpenv.h"
#include "verify/mirror.h"
#include "verify/random.h"

TEST(all_widths_to_2100)
{
	for (int64_t cols = 1; cols <= 2100; cols++)
		for (int k = 0; k < GLU_CASES; k++) {
			if ((cols + k) % 6 || (cols > 70 && !test_sampled(2)))
				continue;
			struct test_case c = glu_case(k, 1 + (cols + k) % 4, cols);
			case_check_levels(&c);
		}
}

/* Slots of one row and of several, chunks, and few rows whose columns are cut. */
TEST(rows_and_threads)
{
	static const struct {
		int64_t rows, cols;
	} shapes[] = {{0, 5},     {1, 1},     {2, 3},      {33, 40},   {70, 300},   {1025, 17},  {2049, 3},
		      {2050, 33}, {33000, 5}, {515, 2050}, {3, 70001}, {1, 200003}, {5, 131072}, {40000, 1}};
	static const int threads[] = {1, 2, 3, 7};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < GLU_CASES; k++) {
			if ((s + k) % 3 || !test_in_slice())
				continue;
			struct test_case c = glu_case(k, shapes[s].rows, shapes[s].cols);
			case_expect(&c);
			for (int i = 0; i < level_count(); i++)
				for (int t = 0; t < COUNT_OF(threads); t++)
					case_check(&c, (struct setting){level_name(i), threads[t],
									t == 2 ? STREAM_ALWAYS : PLAIN});
		}
}

/* Every set of optional operands, in place and not, accumulating and not. */
TEST(operands_and_places)
{
	for (int k = 0; k < GLU_CASES; k++) {
		struct test_case c = glu_case(k, 3, 37 + 500 * (k % 3));
		uint32_t optional = case_optional(&c), absent = optional;
		do {
			for (int form = 0; case_set_over(&c, form / 2); form++) {
				struct test_case allowed = c;
				allowed.present &= ~absent;
				allowed.accumulate = form % 2;
				case_normalise(&allowed);
				if (test_sampled(2))
					case_check_levels(&allowed);
			}
			memset(c.over, 0, sizeof c.over);
			absent = (absent - 1) & optional;
		} while (absent != optional);
	}
}

TEST(strides_offsets_and_fillings)
{
	static const int64_t pads[] = {0, 1, 3, 8, 64};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_EXTREME, FILL_NOT_FINITE,
						FILL_INTEGERS};
	for (int k = 0; k < GLU_CASES; k++)
		for (int turn = 0; turn < 60; turn++) {
			struct test_case c = glu_case(k, 12, 1 + (k * 7 + turn * 31) % 300);
			uint64_t drawn = random_mixed((uint64_t)(k * 100 + turn));
			if (!test_sampled(3))
				continue;
			c.filling = fillings[turn % COUNT_OF(fillings)];
			for (int i = 0; i < case_op(&c)->operand_count; i++) {
				c.pad[i] = pads[(drawn >> i) % COUNT_OF(pads)];
				c.offset[i] = turn % 2 ? (int)((drawn >> 2 * i) % 64) : 0;
			}
			case_check_levels(&c);
		}
}

/* Nothing beyond a tensor's last element, or before its first, is read or written. */
TEST(guard_pages)
{
	for (int k = 0; k < GLU_CASES; k++)
		for (int turn = 0; turn < 8; turn++) {
			struct test_case c = glu_case(k, 1 + turn % 3, 1 + (k * 13 + turn * 71) % 1100);
			c.placement = turn % 2 ? PLACE_GUARD_AFTER : PLACE_GUARD_BEFORE;
			case_check_levels(&c);
		}
}

/* Without biases, limits and sums rows go from tensor to tensor: in every width, place and way to store, at guard pages. */
TEST(rows_without_buffers)
{
	static const char *const places[] = {"", "in_place", "y_over_value dgate_over_value dvalue_over_dy",
					     "dgate_over_gate dvalue_over_value"};
	for (int64_t cols = 1; cols <= 1100; cols += cols < 140 ? 1 : 53)
		for (int k = 0; k < PASS_COUNT * DTYPE_PAIRS; k++) {
			const int turn = (int)cols + k;
			struct test_case c =
				case_make(&ek_ops[EK_NORM_OPS], k % PASS_COUNT ? BACKWARD : FORWARD,
					  dtype_pairs[k / PASS_COUNT], 1 + turn % 3, cols);
			c.activation = 1 + turn % EK_IDENTITY;
			c.seed = (uint64_t)turn;
			c.filling = turn % 5 ? FILL_NORMAL : FILL_SPECIAL;
			c.placement = turn % 4 == 1   ? PLACE_GUARD_AFTER
				      : turn % 4 == 2 ? PLACE_GUARD_BEFORE
						      : PLACE_OFFSET;
			case_set(&c, "dgate dvalue");
			case_add(&c, places[turn / 4 % COUNT_OF(places)]);
			for (int i = 0; i < case_op(&c)->operand_count; i++) {
				c.pad[i] = turn % 7 == 3 ? 32 * (1 + i % 2) : turn % 7 == 4 ? 1 : 0;
				c.offset[i] = turn % 11 == 5 ? 2 * i : 0;
			}
			case_normalise(&c);
			case_expect(&c);
			for (int i = 0; i < level_count(); i++) {
				case_check(&c, (struct setting){level_name(i), 1, PLAIN});
				case_check(&c, (struct setting){level_name(i), 1, STREAM_ALWAYS});
			}
		}
}

/* dy and value 1: the gradient of the gate is the activation's derivative up to the limit, at it, and 0 beyond. */
TEST(gradients_stop_where_the_clamp_does)
{
	static const double gates[] = {0.5, 1, 1.5}, values[] = {-1.5, -1, 0.5, 1, 1.5};
	struct test_case c = case_make(&ek_ops[EK_NORM_OPS], BACKWARD, (struct dtype_pair){EK_F32, EK_F32},
				       COUNT_OF(gates), COUNT_OF(values));
	c.limit = 1;
	case_set(&c, "dgate dvalue");
	case_fill(&c);
	for (int row = 0; row < COUNT_OF(gates); row++)
		for (int col = 0; col < COUNT_OF(values); col++) {
			int64_t at = row * COUNT_OF(values) + col;
			element_store(EK_F32, INPUT("dy")->buffer.data, at, 1);
			element_store(EK_F32, INPUT("gate")->buffer.data, at, gates[row]);
			element_store(EK_F32, INPUT("value")->buffer.data, at, values[col]);
		}
	for (int i = 0; i < level_count(); i++) {
		case_run(context_of((struct setting){level_name(i), 1, PLAIN}), &c, &case_actual);
		for (int row = 0; row < COUNT_OF(gates); row++)
			for (int col = 0; col < COUNT_OF(values); col++) {
				int64_t at = row * COUNT_OF(values) + col;
				double dgate = element_value(EK_F32, ACTUAL("dgate")->buffer.data, at),
				       dvalue = element_value(EK_F32, ACTUAL("dvalue")->buffer.data, at);
				EXPECT((dgate == 0) == (gates[row] > 1), "level %s: gate %g: dgate is %g",
				       level_name(i), gates[row], dgate);
				EXPECT((dvalue == 0) == (fabs(values[col]) > 1),
				       "level %s: value %g: dvalue is %g", level_name(i), values[col],
				       dvalue);
			}
	}
}

/* The loss whose gradients backward gives: the sum of y dy; in `given` the inputs of forward. */
static struct operands given, found;

static double loss(const struct test_case *forward)
{
	ek_context *ctx = context_of((struct setting){"scalar", 1, PLAIN});
	const struct operand *dy = INPUT("dy");
	double sum = 0;
	EXPECT(outputs_compute(ctx, forward, &given, &found) == EK_OK, "%s: %s", case_text(forward),
	       ek_error(ctx));
	for (int64_t i = 0; i < dy->rows * dy->cols; i++)
		sum += element_value(EK_F64, found.of[EK_GLU_FORWARD_Y].buffer.data, i) *
		       element_value(EK_F64, dy->buffer.data, i);
	return sum;
}

/* Central differences of forward in binary64. A difference across a corner of a clamp or of ReLU is left out. */
static void check_gradient(const struct test_case *forward, const struct test_case *backward,
			   const char *input, const char *gradient)
{
	struct operand *o = operand_named(&given, input);
	const struct operand *got = ACTUAL(gradient);
	const double h = 1e-6;
	for (int64_t i = 0; o->present && got->present && i < o->rows * o->cols; i++) {
		double *at = (double *)(void *)o->buffer.data + i, kept = *at, middle = loss(forward);
		*at = kept + h;
		double above = loss(forward) - middle;
		*at = kept - h;
		double below = middle - loss(forward), want = (above + below) / (2 * h);
		*at = kept;
		if (fabs(above - below) > 1e-3 * h * (1 + fabs(want)))
			continue;
		double is = element_value(EK_F64, got->buffer.data, i);
		EXPECT(fabs(is - want) < 1e-6 * (1 + fabs(want)),
		       "%s: %s[%lld] is %.9g, the difference quotient %.9g", case_text(backward), gradient,
		       (long long)i, is, want);
	}
}

TEST(gradients_are_difference_quotients)
{
	static const char *const names[][2] = {{"gate", "dgate"},
					       {"value", "dvalue"},
					       {"gate_bias", "dgate_bias"},
					       {"value_bias", "dvalue_bias"}};
	for (int k = 0; k < GLU_OPS; k++)
		for (int turn = 0; turn < 60; turn++) {
			struct test_case backward = glu_case(k + GLU_OPS, 3, 4), forward;
			backward.dtype = backward.weight_dtype = EK_F64;
			backward.limit = turn % 3 ? 0 : 0.9;
			backward.alpha = turn % 2 ? 1.702 : 0;
			backward.value_offset = turn % 4 ? 0 : 1;
			case_choose(&backward, turn % case_choice_count(&backward));
			backward.present = ~UINT32_C(0);
			backward.seed = (uint64_t)turn;
			case_normalise(&backward);
			forward = backward;
			forward.pass = FORWARD;
			forward.present = ~UINT32_C(0);
			memset(forward.over, 0, sizeof forward.over);
			case_normalise(&forward);
			case_expect(&backward);
			case_run(context_of((struct setting){"scalar", 1, PLAIN}), &backward, &case_actual);
			operands_borrow(&forward, &given, &case_inputs);
			for (int i = 0; i < COUNT_OF(names); i++)
				check_gradient(&forward, &backward, names[i][0], names[i][1]);
		}
}

/* A clamp, alpha 1 and an offset of 0 that change nothing leave the bits of a call without them. */
TEST(neutral_numbers_change_no_bit)
{
	for (int k = 0; k < GLU_CASES; k++) {
		struct test_case plain = glu_case(k, 5, 130), limited;
		plain.limit = plain.alpha = plain.value_offset = 0;
		limited = plain;
		limited.limit = 1e30;
		limited.alpha = limited.activation == EK_SILU ? 1 : 0;
		case_expect(&plain);
		for (int i = 0; i < level_count(); i++)
			if (case_check(&plain, (struct setting){level_name(i), 1, PLAIN}))
				case_check(&limited, (struct setting){level_name(i), 1, PLAIN});
	}
}

/* A value of -0 keeps its sign: the number that is added to it is no +0. */
TEST(an_offset_that_rounds_to_0_is_none)
{
	struct test_case c =
		case_make(&ek_ops[EK_NORM_OPS], FORWARD, (struct dtype_pair){EK_F32, EK_F32}, 3, 37);
	c.value_offset = 1e-300;
	case_set(&c, "value");
	case_fill(&c);
	for (int64_t i = 0; i < c.rows * c.cols; i++)
		element_store(EK_F32, INPUT("value")->buffer.data, i, -0.0);
	for (int i = 0; i < level_count(); i++) {
		case_run(context_of((struct setting){level_name(i), 1, PLAIN}), &c, &case_actual);
		for (int64_t k = 0; k < c.rows * c.cols; k++) {
			double gate = element_value(EK_F32, INPUT("gate")->buffer.data, k),
			       y = element_value(EK_F32, ACTUAL("y")->buffer.data, k);
			EXPECT(y == 0 && !signbit(y) == (gate < 0), "level %s: gate %g, value -0: y is %g",
			       level_name(i), gate, y);
		}
	}
}

/* Flush to zero and other roundings; with subnormal numbers, and with limits, whose reciprocals are made in the call. */
TEST(the_callers_float_environment_changes_nothing)
{
	for (int m = 0; m < FPENV_MODES; m++)
		for (int k = 0; k < GLU_CASES; k++) {
			struct test_case c = glu_case(k, 40, 70);
			c.filling = m % 2 ? FILL_EXTREME : FILL_SPECIAL;
			c.alpha = c.activation == EK_SILU ? 1.702 : 0;
			c.limit = 0.75;
			case_expect(&c);
			for (int i = -1; i < level_count(); i++) {
				const char *level = i < 0 ? "reference" : level_name(i);
				ek_context *ctx = context_of((struct setting){level, 1, PLAIN});
				uint64_t before = fpenv_get();
				case_outputs(ctx, &c, &case_actual);
				union op_args args = case_args_in(&c, &case_actual);
				fpenv_set(fpenv_modes[m]);
				ek_status status = mirror_call(ctx, case_op(&c), &args, 0);
				fpenv_set(before);
				EXPECT(status == EK_OK, "%s: %s", case_text(&c), ek_error(ctx));
				case_compare(&c, level, 1, &case_actual);
			}
		}
}
