/* Accuracy of what lies beside the norm (activations, gates, a residual behind it) against double precision computed from the
 * same inputs: the figures of docs/numerics.md. As test_accuracy.c, on the best level. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "math_exact.h"
#include "support.h"
#include "support_exact.h"

static ek_context *context(void)
{
	return context_of((struct setting){level_best(), 1, PLAIN});
}

static long double value(const struct test_case *c, long double t)
{
	static const enum math_function of[] = {[EK_SIGMOID] = MATH_sigmoid,
						[EK_SILU] = MATH_silu,
						[EK_GELU] = MATH_gelu,
						[EK_GELU_TANH] = MATH_gelu_tanh};
	return (long double)math_exact_of(of[c->activation], (double)t).value;
}

static long double slope(const struct test_case *c, long double t)
{
	static const enum math_function of[] = {[EK_SIGMOID] = MATH_sigmoid_slope,
						[EK_SILU] = MATH_silu_slope,
						[EK_GELU] = MATH_gelu_slope,
						[EK_GELU_TANH] = MATH_gelu_tanh_slope};
	return (long double)math_exact_of(of[c->activation], (double)t).value;
}

/* The relative error of gelu_tanh grows with exp's argument (docs/math.md), here in ulps. */
static long double own_error(const struct test_case *c, long double t)
{
	return c->activation == EK_GELU_TANH
		       ? 2 * (long double)math_exact_of(MATH_gelu_tanh, (double)t).argument
		       : 0;
}

/* An element of a row: what the norm takes, its result before and after weight and bias, the gate's activation, y. */
struct element {
	long double u, xhat, weight, t, s, y;
};

/* Rule 8: a sum with x_bias is rounded; it is the norm of that sum that y is compared with. */
static long double norm_input(int64_t r, int64_t i)
{
	float x = (float)value_at(INPUT("x"), r, i, 0), bias = (float)value_at(INPUT("x_bias"), 0, i, 0);
	volatile float sum = x + bias;
	return (long double)sum;
}

static long double normalise(const struct test_case *c, struct element *row)
{
	long double sum = 0, squares = 0;
	for (int64_t i = 0; c->op->kind == EK_LAYER_NORM && i < c->cols; i++)
		sum += row[i].u;
	const long double mean = sum / (long double)c->cols;
	for (int64_t i = 0; i < c->cols; i++)
		squares += (row[i].u - mean) * (row[i].u - mean);
	const long double rstd = 1 / sqrtl(squares / (long double)c->cols + (long double)(float)c->eps);
	for (int64_t i = 0; i < c->cols; i++)
		row[i].xhat = (row[i].u - mean) * rstd;
	return rstd;
}

/* Returns rstd. */
static long double exact_row(const struct test_case *c, int64_t r, struct element *row)
{
	const bool gate = INPUT("gate")->present;
	for (int64_t i = 0; i < c->cols; i++) {
		row[i].s = gate ? value(c, (long double)value_at(INPUT("gate"), r, i, 0)) : 1;
		row[i].u = norm_input(r, i) * (c->gate_first ? row[i].s : 1);
	}
	const long double rstd = normalise(c, row);
	for (int64_t i = 0; i < c->cols; i++) {
		struct element *e = &row[i];
		e->weight = (long double)value_at(INPUT("weight"), 0, i, 1);
		e->t = e->xhat * e->weight + (long double)value_at(INPUT("bias"), 0, i, 0);
		e->y = c->gate_first        ? e->t
		       : gate               ? e->t * e->s
		       : c->activation      ? value(c, e->t)
		       : c->pass == FORWARD ? e->t + (long double)value_at(INPUT("residual_after"), r, i, 0)
					    : e->t;
	}
	return rstd;
}

/* x = mean + scale * filling. */
static void shape_x(const struct test_case *c, double mean, double scale)
{
	struct operand *x = INPUT("x");
	for (int64_t i = 0; i < c->rows * c->cols; i++)
		element_store(x->dtype, x->buffer.data, i,
			      mean + scale * element_value(x->dtype, x->buffer.data, i));
}

/* The largest error of y in ulps of max(|y|, |t|, |weight|, |xhat * weight|), times |s| of a gate behind the norm, whose own
 * error is beside it. */
static double worst_y(const struct test_case *c)
{
	const bool gate_behind = INPUT("gate")->present && !c->gate_first;
	struct element *row = calloc((size_t)c->cols, sizeof *row);
	long double worst = 0; /* NaN where an error is */
	for (int64_t r = 0; r < c->rows; r++) {
		(void)exact_row(c, r, row);
		for (int64_t i = 0; i < c->cols; i++) {
			const struct element *e = &row[i];
			long double part = fmaxl(fabsl(e->weight), fabsl(e->xhat * e->weight));
			part = fmaxl(part, fabsl(e->t)) * (gate_behind ? fabsl(e->s) : 1);
			long double got = (long double)value_at(ACTUAL("y"), r, i, 0);
			long double error = fabsl(got - e->y) / ulp(fmaxl(fabsl(e->y), part));
			if (gate_behind)
				error -= own_error(c, (long double)value_at(INPUT("gate"), r, i, 0));
			if (!(error <= worst))
				worst = error;
		}
	}
	free(row);
	return (double)worst;
}

struct square_sums {
	long double off, whole;
};

static void note(struct square_sums *sums, long double exact, long double actual)
{
	sums->off += (exact - actual) * (exact - actual);
	sums->whole += exact * exact;
}

static void keep_worst(double *worst, long double off, long double whole)
{
	double error = (double)sqrtl(off / whole);
	*worst = isnan(*worst) || error <= *worst ? *worst : error;
}

static const char *const sums[] = {"dweight", "dbias", "dx_bias"};
enum { DWEIGHT, DBIAS, DX_BIAS, SUMS };

struct errors {
	double dx, dgate, of[SUMS];
};

/* A row's dx and dgate, in parts of what they are made of: |g| rstd, and for a gate before the norm the root mean square of
 * what that is multiplied by. Adds to the column sums. */
static void row_errors(const struct test_case *c, int64_t r, struct element *row, long double *exact[SUMS],
		       struct errors *errors)
{
	const bool gate = INPUT("gate")->present;
	const long double rstd = exact_row(c, r, row), n = (long double)c->cols;
	struct square_sums dx = {0, 0}, dgate = {0, 0};
	long double a = 0, b = 0, g_norm = 0, s_norm = 0, gate_norm = 0;
	for (int64_t i = 0; i < c->cols; i++) {
		struct element *e = &row[i];
		const long double dy = (long double)value_at(INPUT("dy"), r, i, 0),
				  d = c->gate_first   ? dy
				      : gate          ? dy * e->s
				      : c->activation ? dy * slope(c, e->t)
						      : dy;
		a += d * e->weight * e->xhat, b += d * e->weight, g_norm += d * e->weight * d * e->weight;
		exact[DWEIGHT][i] += d * e->xhat, exact[DBIAS][i] += d;
		if (gate && !c->gate_first)
			note(&dgate, dy * e->t * slope(c, (long double)value_at(INPUT("gate"), r, i, 0)),
			     (long double)value_at(ACTUAL("dgate"), r, i, 0));
		e->y = d; /* from here on: dL/dt */
	}
	b = c->op->kind == EK_LAYER_NORM ? b : 0;
	for (int64_t i = 0; i < c->cols; i++) {
		const struct element *e = &row[i];
		const long double du = (e->y * e->weight - b / n - e->xhat * (a / n)) * rstd,
				  s = c->gate_first ? e->s : 1;
		note(&dx, du * s, (long double)value_at(ACTUAL("dx"), r, i, 0));
		exact[DX_BIAS][i] += du * s;
		s_norm += s * s;
		if (c->gate_first) {
			long double by =
				norm_input(r, i) * slope(c, (long double)value_at(INPUT("gate"), r, i, 0));
			note(&dgate, du * by, (long double)value_at(ACTUAL("dgate"), r, i, 0));
			gate_norm += by * by;
		}
	}
	const long double unit = g_norm * rstd * rstd / n;
	keep_worst(&errors->dx, dx.off, unit * s_norm);
	if (gate)
		keep_worst(&errors->dgate, dgate.off, c->gate_first ? unit * gate_norm : dgate.whole);
}

static struct errors backward_errors(const struct test_case *c)
{
	struct errors errors = {.dx = 0};
	struct element *row = calloc((size_t)c->cols, sizeof *row);
	long double *exact[SUMS];
	for (int k = 0; k < SUMS; k++)
		exact[k] = calloc((size_t)c->cols, sizeof(long double));
	for (int64_t r = 0; r < c->rows; r++)
		row_errors(c, r, row, exact, &errors);
	for (int k = 0; k < SUMS; k++) {
		struct square_sums sum = {0, 0};
		for (int64_t i = 0; ACTUAL(sums[k])->present && i < c->cols; i++)
			note(&sum, exact[k][i], (long double)value_at(ACTUAL(sums[k]), 0, i, 0));
		if (sum.whole > 0)
			keep_worst(&errors.of[k], sum.off, sum.whole);
		free(exact[k]);
	}
	free(row);
	return errors;
}

/* ---- the cases ---- */

/* Of the registry: a residual behind the norm, an activation, a gate; then the gate first. */
enum { AFTER = 4, ACTIVATED = 6, GATED = 8, GATED_FIRST = 10 };

/* choice: the norm and the activation in turn. */
static struct test_case fused_case(int op, enum pass pass, int choice, int64_t rows, int64_t cols)
{
	struct test_case c = case_make(&ek_ops[(op == GATED_FIRST ? GATED : op) + choice % 2], pass,
				       dtype_pairs[0], rows, cols);
	c.activation = op == AFTER ? EK_NO_ACTIVATION : 1 + choice / 2 % EK_GELU_TANH;
	c.gate_first = op == GATED_FIRST;
	c.seed = (uint64_t)(cols + choice);
	case_normalise(&c);
	return c;
}

static const double means[] = {0, 1e3, 1e4};

static void check_y(int op, double limit)
{
	static const int64_t widths[] = {1, 7, 64, 257, 1000, 4097};
	static const struct {
		double mean, scale;
	} inputs[] = {{0, 1}, {1e3, 1}, {1e4, 1}, {0, 1e-3}, {0, 1e3}};
	enum { CHOICES = 2 * EK_GELU_TANH };
	for (int i = 0; i < COUNT_OF(widths) * CHOICES * COUNT_OF(inputs); i++) {
		const int64_t cols = widths[i % COUNT_OF(widths)],
			      rows = test_scaled(1 + 5000 / (cols + 100));
		const double mean = inputs[i / COUNT_OF(widths) / CHOICES].mean,
			     scale = inputs[i / COUNT_OF(widths) / CHOICES].scale;
		struct test_case c = fused_case(op, FORWARD, i / COUNT_OF(widths), rows, cols);
		case_fill(&c);
		shape_x(&c, mean, scale);
		case_run(context(), &c, &case_actual);
		double worst = worst_y(&c);
		EXPECT(worst <= limit,
		       "%s, mean %g, scale %g, level %s: y errs by %.2f ulp, at most %g allowed",
		       case_text(&c), mean, scale, level_best(), worst, limit);
	}
}

TEST(y_with_a_residual_behind_the_norm_is_within_6_ulp)
{
	check_y(AFTER, 6);
}

TEST(y_of_an_activation_is_within_6_ulp)
{
	check_y(ACTIVATED, 6);
}

TEST(y_of_a_gate_is_within_8_ulp)
{
	check_y(GATED, 8);
}

TEST(y_of_a_gate_before_the_norm_is_within_12_ulp)
{
	check_y(GATED_FIRST, 12);
}

static void expect_small(const struct test_case *c, const char *name, double error)
{
	EXPECT(error < 1e-6, "%s, level %s: %s errs by %.3g, 1e-6 allowed", case_text(c), level_best(), name,
	       error);
}

/* Each norm with each activation, the means by turns. */
static void check_gradients(int op)
{
	static const int64_t shapes[][2] = {{4, 64}, {33, 300}, {3, 4097}, {300, 100}};
	for (int i = 0; i < COUNT_OF(shapes) * 2 * EK_GELU_TANH; i++) {
		const int64_t *shape = shapes[i % COUNT_OF(shapes)];
		struct test_case c = fused_case(op, BACKWARD, i / COUNT_OF(shapes), shape[0], shape[1]);
		case_fill(&c);
		shape_x(&c, means[(i + i / COUNT_OF(shapes)) % COUNT_OF(means)], 1);
		EXPECT(inputs_fill_statistics(context(), &c, &case_inputs) == EK_OK, "%s: %s", case_text(&c),
		       ek_error(context())); /* of the shifted x */
		case_run(context(), &c, &case_actual);
		struct errors errors = backward_errors(&c);
		expect_small(&c, "dx", errors.dx);
		expect_small(&c, "dgate", errors.dgate);
		for (int k = 0; k < SUMS; k++)
			expect_small(&c, sums[k], errors.of[k]);
	}
}

TEST(gradients_with_a_residual_behind_the_norm_are_within_1e_6)
{
	check_gradients(AFTER);
}

TEST(gradients_of_an_activation_are_within_1e_6)
{
	check_gradients(ACTIVATED);
}

TEST(gradients_of_a_gate_are_within_1e_6)
{
	check_gradients(GATED);
}

TEST(gradients_of_a_gate_before_the_norm_are_within_1e_6)
{
	check_gradients(GATED_FIRST);
}
