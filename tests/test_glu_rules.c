/* Rule 14 of docs/numerics.md a second time, without the reference's code, and its accuracy against higher precision. Steps in
 * binary32 are binary64 operations rounded once more, which changes no bit of them. The activations and their slopes are
 * src/math's, which test_math_errors.c bounds. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "core/slots.h"
#include "math/activations.h"
#include "math/reference.h"
#include "math_exact.h"
#include "support.h"
#include "support_exact.h"

/* ---- the rule ---- */

static bool single; /* the arithmetic is binary32 */

static double R(double x)
{
	return single ? (double)(float)x : x;
}

static double activation_of(ek_activation activation, double x, double *slope)
{
	float slope32 = 0, x32 = (float)x, y32 = 0;
	double y64 = 0;
	*slope = 0;
	switch (activation) {
#define CASE(number, name)                                                   \
	case number:                                                         \
		y32 = single ? name##_and_slope_f32(x32, &slope32) : 0;      \
		y64 = single ? (double)y32 : name##_and_slope_f64(x, slope); \
		break;
		EK_GLU_ACTIVATIONS(CASE)
#undef CASE
	default:
		break;
	}
	if (single)
		*slope = (double)slope32;
	return y64;
}

/* What rule 14 names; before: the value before its limit. */
struct element {
	double t, before, w, a, d, y, dgate, dvalue;
};

/* The number of a tensor, plus that of a bias: of pairs gate and value are at 2 col and 2 col + 1. */
static double number_at(const char *tensor, const char *bias, int64_t row, int64_t col)
{
	const double number = value_at(INPUT(tensor), row, col, 1);
	return INPUT(bias)->present ? R(number + value_at(INPUT(bias), 0, col, 0)) : number;
}

static struct element element_at(const struct test_case *c, int64_t row, int64_t col)
{
	const double limit = R(c->limit), alpha = c->alpha != 0 ? R(c->alpha) : 1,
		     offset = R(c->value_offset);
	const bool has_value = c->interleaved || INPUT("value")->present;
	struct element e = {.t = number_at("gate", "gate_bias", row, c->interleaved ? 2 * col : col)};
	e.before = c->interleaved ? number_at("gate", "gate_bias", row, 2 * col + 1)
				  : number_at("value", "value_bias", row, col);
	double x = e.t;
	e.w = e.before;
	if (limit != 0) {
		x = e.t > limit ? limit : e.t;
		e.w = !has_value ? 1 : e.before > limit ? limit : e.before < -limit ? -limit : e.before;
	}
	e.w = offset != 0 ? R(e.w + offset) : e.w;
	e.a = activation_of(c->activation, alpha != 1 ? R(alpha * x) : x, &e.d);
	e.a = alpha != 1 ? R(e.a * R(1 / alpha)) : e.a;
	e.y = R(e.a * e.w);
	if (c->pass == BACKWARD) {
		const double dy = value_at(INPUT("dy"), row, col, 0);
		e.dgate = limit != 0 && e.t > limit ? 0 : R(R(dy * e.w) * e.d);
		e.dvalue = limit != 0 && fabs(e.before) > limit ? 0 : R(dy * e.a);
	}
	return e;
}

/* Rule 6 for a column: rows in chunks of 32, chunks in slots, slots by the tree over first … first + span - 1 of them. */
static double slots_sum(const struct test_case *c, int64_t col, bool of_value, int64_t first, int64_t span)
{
	const int64_t slot_rows = ek_slot_rows(c->rows, c->cols), slots = ek_slot_count(c->rows, c->cols);
	if (span > 1) {
		const double left = slots_sum(c, col, of_value, first, span / 2);
		return first + span / 2 < slots
			       ? R(left + slots_sum(c, col, of_value, first + span / 2, span / 2))
			       : left;
	}
	double slot = 0, chunk = 0;
	for (int64_t i = 0; i < slot_rows && first * slot_rows + i < c->rows; i++) {
		const struct element e = element_at(c, first * slot_rows + i, col);
		if (i % 32 == 0 && i > 0) {
			slot = R(slot + chunk);
			chunk = 0;
		}
		chunk = R(chunk + (of_value ? e.dvalue : e.dgate));
	}
	return R(slot + chunk);
}

static double column_sum(const struct test_case *c, int64_t col, bool of_value)
{
	int64_t span = 1;
	while (span < ek_slot_count(c->rows, c->cols))
		span *= 2;
	return c->rows ? R(slots_sum(c, col, of_value, 0, span) + 0) : 0;
}

static void put(const char *name, int64_t row, int64_t col, double value)
{
	const struct operand *o = ACTUAL(name);
	if (o->present)
		element_store(o->dtype, o->buffer.data, row * o->stride + col, value);
}

static void put_sum(const struct test_case *c, const char *name, int64_t col, double sum)
{
	const struct operand *o = ACTUAL(name);
	if (o->present)
		put(name, 0, col, c->accumulate ? R(value_at(o, 0, col, 0) + sum) : sum);
}

static void second_writing(const struct test_case *c)
{
	const int each = c->interleaved ? 2 : 1;
	single = c->dtype != EK_F64;
	for (int64_t row = 0; row < c->rows; row++)
		for (int64_t col = 0; col < c->cols; col++) {
			const struct element e = element_at(c, row, col);
			put("y", row, col, e.y);
			put("dgate", row, each * col, e.dgate);
			put(c->interleaved ? "dgate" : "dvalue", row, c->interleaved ? 2 * col + 1 : col,
			    e.dvalue);
		}
	for (int64_t col = 0; col < c->cols && c->pass == BACKWARD; col++) {
		put_sum(c, "dgate_bias", each * col, column_sum(c, col, false));
		put_sum(c, c->interleaved ? "dgate_bias" : "dvalue_bias", c->interleaved ? 2 * col + 1 : col,
			column_sum(c, col, true));
	}
}

TEST(the_reference_equals_a_second_writing)
{
	static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {2, 300}, {70, 5}, {1025, 2}, {2100, 1}, {0, 3}};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_EXTREME, FILL_NOT_FINITE};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < GLU_CASES; k++)
			for (int turn = 0; turn < 12; turn++) {
				struct test_case c = glu_case(k, shapes[s][0], shapes[s][1]);
				case_choose(&c, (turn * 7 + k) % case_choice_count(&c));
				c.filling = fillings[turn % COUNT_OF(fillings)];
				c.accumulate = turn % 2;
				c.seed = (uint64_t)turn;
				case_normalise(&c);
				if (!test_sampled(2))
					continue;
				case_expect(&c);
				case_outputs(reference(), &c, &case_actual);
				second_writing(&c);
				case_compare(&c, "second writing", 1, &case_actual);
			}
}

/* ---- accuracy ---- */

static const enum math_function values
	[] = {[EK_SIGMOID] = MATH_sigmoid,     [EK_SILU] = MATH_silu, [EK_GELU] = MATH_gelu,
	      [EK_GELU_TANH] = MATH_gelu_tanh, [EK_RELU] = MATH_relu, [EK_RELU_SQUARED] = MATH_relu_squared,
	      [EK_IDENTITY] = MATH_identity},
  slopes[] = {[EK_SIGMOID] = MATH_sigmoid_slope,  [EK_SILU] = MATH_silu_slope,
	      [EK_GELU] = MATH_gelu_slope,        [EK_GELU_TANH] = MATH_gelu_tanh_slope,
	      [EK_RELU] = MATH_relu_slope,        [EK_RELU_SQUARED] = MATH_relu_squared_slope,
	      [EK_IDENTITY] = MATH_identity_slope};

struct exact {
	long double y, dgate, dvalue, tolerance; /* tolerance: of y, in ulp of which 6 are allowed */
};

/* From the same inputs in binary64, with the choices of limits that rule 14 makes. */
static struct exact exact_at(const struct test_case *c, int64_t row, int64_t col)
{
	const double limit = (double)(float)c->limit, alpha = c->alpha != 0 ? (double)(float)c->alpha : 1,
		     offset = (double)(float)c->value_offset;
	const double t = value_at(INPUT("gate"), row, col, 0) + value_at(INPUT("gate_bias"), 0, col, 0),
		     v = value_at(INPUT("value"), row, col, 1) + value_at(INPUT("value_bias"), 0, col, 0);
	const double x = limit != 0 && t > limit ? limit : t;
	const double clamped = limit == 0   ? v
			       : v > limit  ? limit
			       : v < -limit ? -limit
					    : v,
		     w = clamped + offset;
	const struct math_exact a = math_exact_of(values[c->activation], alpha * x),
				d = math_exact_of(slopes[c->activation], alpha * x);
	const double dy = value_at(INPUT("dy"), row, col, 0), result = a.value / alpha;
	const double scale = (offset != 0 ? fabs(clamped) : 0) + fabs(w);
	struct exact e = {.y = (long double)(result * w),
			  .dgate = limit != 0 && t > limit ? 0 : (long double)(dy * w * d.value),
			  .dvalue = limit != 0 && fabs(v) > limit ? 0 : (long double)(dy * result)};
	e.tolerance = ulp((long double)(scale * fmax(fabs(result), fabs(x * d.value))));
	if (c->activation == EK_GELU_TANH)
		e.tolerance *= 1 + (long double)a.argument / 3;
	return e;
}

static struct test_case accuracy_case(enum pass pass, int activation, int turn)
{
	struct test_case c = case_make(&ek_ops[EK_NORM_OPS], pass, (struct dtype_pair){EK_F32, EK_F32},
				       pass == FORWARD ? 40
				       : turn % 2      ? 4096
						       : 300,
				       pass == FORWARD ? 500 : 7);
	c.activation = activation;
	c.limit = turn & 2 ? 1.5 : 0;
	c.alpha = turn & 2 ? 1.702 : 0;
	c.value_offset = turn & 4 ? 1 : 0;
	c.seed = (uint64_t)turn;
	case_normalise(&c);
	return c;
}

TEST(y_is_within_6_ulp)
{
	for (int activation = EK_SIGMOID; activation <= EK_IDENTITY; activation++)
		for (int turn = 0; turn < 8; turn++) {
			struct test_case c = accuracy_case(FORWARD, activation, turn);
			long double worst = 0;
			case_fill(&c);
			case_run(context_of((struct setting){level_best(), 1, PLAIN}), &c, &case_actual);
			for (int64_t row = 0; row < c.rows; row++)
				for (int64_t col = 0; col < c.cols; col++) {
					const struct exact e = exact_at(&c, row, col);
					const long double error =
						fabsl((long double)value_at(ACTUAL("y"), row, col, 0) - e.y);
					worst = error > worst * e.tolerance ? error / e.tolerance : worst;
				}
			EXPECT(worst <= 6, "%s: an error of %.2Lf ulp", case_text(&c), worst);
		}
}

/* Of sums and numbers that are compared as vectors. */
struct norm {
	long double error, size;
};

static void add_error(struct norm *norm, double actual, long double exact)
{
	norm->error += ((long double)actual - exact) * ((long double)actual - exact);
	norm->size += exact * exact;
}

TEST(gradients_have_relative_errors_below_1e_6)
{
	static const char *const names[] = {"dgate", "dvalue", "dgate_bias", "dvalue_bias"};
	for (int activation = EK_SIGMOID; activation <= EK_IDENTITY; activation++)
		for (int turn = 0; turn < 8; turn++) {
			struct test_case c = accuracy_case(BACKWARD, activation, turn);
			struct norm norms[4] = {{0}};
			case_fill(&c);
			case_run(context_of((struct setting){level_best(), 1, PLAIN}), &c, &case_actual);
			for (int64_t col = 0; col < c.cols; col++) {
				long double sums[2] = {0};
				for (int64_t row = 0; row < c.rows; row++) {
					const struct exact e = exact_at(&c, row, col);
					add_error(&norms[0], value_at(ACTUAL("dgate"), row, col, 0), e.dgate);
					add_error(&norms[1], value_at(ACTUAL("dvalue"), row, col, 0),
						  e.dvalue);
					sums[0] += e.dgate;
					sums[1] += e.dvalue;
				}
				for (int i = 0; i < 2; i++)
					add_error(&norms[2 + i], value_at(ACTUAL(names[2 + i]), 0, col, 0),
						  sums[i]);
			}
			for (int i = 0; i < COUNT_OF(names); i++)
				EXPECT(norms[i].size > 0 && sqrtl(norms[i].error / norms[i].size) < 1e-6L,
				       "%s: %s has a relative error of %.2Lg", case_text(&c), names[i],
				       sqrtl(norms[i].error / norms[i].size));
		}
}
