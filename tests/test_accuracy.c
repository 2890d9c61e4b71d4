/* Accuracy against higher precision computed from the same inputs: the figures of docs/numerics.md. Bits
 * are equal on every level (test_bits.c), so one level stands for all: the best, which is the fastest.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "support.h"
#include "support_exact.h"

static ek_context *context(void)
{
	return context_of((struct setting){level_best(), 1, PLAIN});
}

/* What the norm takes: h where forward returns it, else x. */
static const struct operand *norm_input(const struct test_case *c)
{
	return c->pass == FORWARD && ACTUAL("h")->present ? ACTUAL("h") : INPUT("x");
}

/* Statistics of a row of it, in long double. */
struct exact {
	long double mean, rstd;
};

static struct exact exact_statistics(const struct test_case *c, int64_t row)
{
	const struct operand *x = norm_input(c);
	long double sum = 0, squares = 0,
		    eps = c->dtype == EK_F64 ? (long double)c->eps : (long double)(float)c->eps;
	struct exact s = {0, 0};
	for (int64_t i = 0; c->op->kind == EK_LAYER_NORM && i < c->cols; i++)
		sum += (long double)element_value(x->dtype, x->buffer.data, row * x->stride + i);
	s.mean = sum / (long double)c->cols;
	for (int64_t i = 0; i < c->cols; i++) {
		long double d =
			(long double)element_value(x->dtype, x->buffer.data, row * x->stride + i) - s.mean;
		squares += d * d;
	}
	s.rstd = 1 / sqrtl(squares / (long double)c->cols + eps);
	return s;
}

static long double exact_xhat(const struct operand *x, struct exact s, int64_t row, int64_t i)
{
	return ((long double)element_value(x->dtype, x->buffer.data, row * x->stride + i) - s.mean) * s.rstd;
}

/* Rule 10: 1 + weight is a sum in binary32. */
static double weight_at(const struct test_case *c, int64_t i)
{
	double weight = value_at(INPUT("weight"), 0, i, 1);
	return c->weight_offset && INPUT("weight")->present ? (double)(1 + (float)weight) : weight;
}

/* x = mean + scale * filling, over the input, then one value replaced where outlier is not 0. */
static void shape_x(const struct test_case *c, double mean, double scale, double outlier)
{
	struct operand *x = INPUT("x");
	for (int64_t r = 0; r < c->rows; r++) {
		for (int64_t i = 0; i < c->cols; i++)
			element_store(
				x->dtype, x->buffer.data, r * x->stride + i,
				mean + scale * element_value(x->dtype, x->buffer.data, r * x->stride + i));
		if (outlier != 0)
			element_store(x->dtype, x->buffer.data, r * x->stride + r * 31 % c->cols, outlier);
	}
}

/* The largest error of y in ulps of max(|y|, |weight|, |xhat * weight|). */
static double worst_forward_ulps(const struct test_case *c)
{
	long double worst = 0;
	case_run(context(), c, &case_actual);
	const struct operand *x = norm_input(c), *bias = INPUT("bias"), *got_y = ACTUAL("y");
	for (int64_t r = 0; r < c->rows; r++) {
		struct exact s = exact_statistics(c, r);
		for (int64_t i = 0; i < c->cols; i++) {
			long double xhat = exact_xhat(x, s, r, i), w = (long double)weight_at(c, i);
			long double y = xhat * w + (long double)value_at(bias, 0, i, 0);
			long double unit = ulp(fmaxl(fabsl(y), fmaxl(fabsl(w), fabsl(xhat * w))));
			long double got = (long double)element_value(c->dtype, got_y->buffer.data,
								     r * got_y->stride + i);
			long double error = fabsl(got - y) / unit;
			if (!(error <= worst))
				worst = error;
		}
	}
	return (double)worst;
}

static void check_forward(ek_norm norm, int64_t rows, int64_t cols, double mean, double scale, double outlier)
{
	struct test_case c = case_of(false, norm, dtype_pairs[0], rows, cols);
	c.seed = (uint64_t)cols;
	case_fill(&c);
	shape_x(&c, mean, scale, outlier);
	double worst = worst_forward_ulps(&c);
	EXPECT(worst <= 6,
	       "%s, mean %g, scale %g, outlier %g, level %s: y errs by %.2f ulp, at most 6 allowed",
	       case_text(&c), mean, scale, outlier, level_best(), worst);
}

TEST(y_is_within_6_ulp)
{
	static const int64_t widths[] = {1,   2,    3,    7,    17,   64,   100,   256,    257,
					 768, 1000, 1024, 1025, 4096, 5000, 65536, 1048576};
	static const struct {
		double mean, scale, outlier;
	} inputs[] = {{0, 1, 0},    {1e3, 1, 0}, {1e4, 1, 0}, {0, 1e-6, 0},
		      {0, 1e-3, 0}, {0, 1e3, 0}, {0, 1, 1e4}, {0, 1, -1e18}};
	for (int w = 0; w < COUNT_OF(widths) - (test_mode == TEST_SHORT ? 2 : 0); w++)
		for (int n = EK_LAYER_NORM; n <= EK_RMS_NORM; n++)
			for (int i = 0; i < COUNT_OF(inputs); i++)
				check_forward(
					(ek_norm)n,
					widths[w] < 5000 ? 1 + test_scaled(100) * 100 / (widths[w] + 100) : 1,
					widths[w], inputs[i].mean, inputs[i].scale, inputs[i].outlier);
}

/* h is x + x_bias, then + residual, each rounded; y is as near to the norm of that h as a plain norm is to that of x. */
TEST(h_is_rounded_twice_and_y_is_within_6_ulp_of_its_norm)
{
	static const int64_t widths[] = {1, 7, 64, 257, 1000, 4097};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < 8; k++) {
			struct test_case c = case_make(&open_ops[k & 1], FORWARD, dtype_pairs[0],
						       1 + 5000 / (widths[w] + 100), widths[w]);
			c.weight_offset = k >> 1 & 1;
			c.seed = (uint64_t)widths[w];
			case_fill(&c);
			shape_x(&c, k & 4 ? 1e3 : 0, 1, 0);
			double worst = worst_forward_ulps(&c);
			EXPECT(worst <= 6, "%s, level %s: y errs by %.2f ulp, at most 6 allowed",
			       case_text(&c), level_best(), worst);
			for (int64_t i = 0; i < c.rows * c.cols; i++) {
				float x = (float)element_value(EK_F32, INPUT("x")->buffer.data, i),
				      bias = (float)value_at(INPUT("x_bias"), 0, i % c.cols, 0),
				      residual =
					      (float)element_value(EK_F32, INPUT("residual")->buffer.data, i),
				      h = (float)element_value(EK_F32, ACTUAL("h")->buffer.data, i);
				volatile float biased = x + bias, sum = biased + residual;
				EXPECT(h == sum, "%s: h[%lld] is %.9g, expected %.9g", case_text(&c),
				       (long long)i, (double)h, (double)sum);
			}
		}
}

/* 16-bit results are the binary32 value rounded once, so few differ from correct rounding. */
TEST(sixteen_bit_results_are_rounded_once)
{
	for (int p = 1; p < DTYPE_PAIRS; p++) {
		if (dtype_pairs[p].dtype == EK_F64)
			continue;
		struct test_case c = case_of(false, EK_LAYER_NORM, dtype_pairs[p], test_scaled(300), 768);
		int64_t wrong = 0, total = c.rows * c.cols;
		case_fill(&c);
		const struct operand *x = INPUT("x"), *weight = INPUT("weight"), *bias = INPUT("bias");
		case_run(context(), &c, &case_actual);
		for (int64_t r = 0; r < c.rows; r++) {
			struct exact s = exact_statistics(&c, r);
			for (int64_t i = 0; i < c.cols; i++) {
				float y = (float)(exact_xhat(x, s, r, i) *
							  (long double)value_at(weight, 0, i, 1) +
						  (long double)value_at(bias, 0, i, 0));
				uint16_t want = c.dtype == EK_F16 ? ek_float_to_f16(y) : ek_float_to_bf16(y);
				wrong += want !=
					 element_bits(c.dtype, ACTUAL("y")->buffer.data, r * c.cols + i);
			}
		}
		EXPECT(wrong * 1000 < total,
		       "%s, level %s: %lld of %lld elements differ from correct rounding, 0.1 %% allowed",
		       case_text(&c), level_best(), (long long)wrong, (long long)total);
	}
}

/* Any constant, at any width: y is exactly bias. */
TEST(constant_rows_give_exactly_bias)
{
	static const int64_t widths[] = {1, 2, 3, 5, 7, 10, 33, 100, 255, 768, 1000, 1023, 3000};
	uint64_t state = 5;
	for (int w = 0; w < COUNT_OF(widths); w++) {
		struct test_case c = case_of(false, EK_LAYER_NORM, dtype_pairs[0],
					     test_scaled(widths[w] < 1000 ? 6000 : 600), widths[w]);
		case_fill(&c);
		for (int64_t r = 0; r < c.rows; r++) {
			/* Any float whose row sum does not overflow. */
			uint32_t bits = (uint32_t)random_bits(&state) & 0xbfffffff;
			float constant;
			memcpy(&constant, &bits, 4);
			if (r % 3 == 0)
				constant = (float)(random_below(&state, 2000000) - 1000000) / 1000;
			for (int64_t i = 0; i < c.cols; i++)
				element_store(EK_F32, INPUT("x")->buffer.data, r * c.cols + i,
					      (double)constant);
		}
		case_run(context(), &c, &case_actual);
		for (int64_t r = 0; r < c.rows; r++)
			for (int64_t i = 0; i < c.cols; i++) {
				double y = element_value(EK_F32, ACTUAL("y")->buffer.data, r * c.cols + i),
				       bias = value_at(INPUT("bias"), 0, i, 0);
				if (y != bias) {
					test_fail(
						"%s, level %s: a row of %.9g: y[%lld][%lld] is %.9g, bias %.9g",
						case_text(&c), level_best(),
						element_value(EK_F32, INPUT("x")->buffer.data, r * c.cols),
						(long long)r, (long long)i, y, bias);
					break;
				}
			}
	}
}

/* eps > 0 and a row sum of |x| below 3.4e38 are enough for finite results. */
TEST(finite_inputs_give_finite_results)
{
	static const double scales[] = {1e-45, 1e-30, 1e10, 1e19, 1e25, 1e35};
	for (int s = 0; s < COUNT_OF(scales); s++)
		for (int n = EK_LAYER_NORM; n <= EK_RMS_NORM; n++)
			for (int64_t cols = 1; cols <= 1100; cols = cols * 2 + 1) {
				struct test_case c = case_of(false, (ek_norm)n, dtype_pairs[0], 5, cols);
				case_fill(&c);
				shape_x(&c, 0, scales[s], 0);
				case_run(context(), &c, &case_actual);
				for (int64_t i = 0; i < c.rows * c.cols; i++) {
					double y = element_value(EK_F32, ACTUAL("y")->buffer.data, i);
					EXPECT(isfinite(y), "%s, scale %g, level %s: y[%lld][%lld] is %g",
					       case_text(&c), scales[s], level_best(), (long long)(i / cols),
					       (long long)(i % cols), y);
				}
			}
}

/* ---- backward ---- */

static const char *const sums[] = {"dweight", "dbias", "dx_bias"};
enum { DWEIGHT, DBIAS, DX_BIAS, SUMS };

/* The largest relative error of a column sum; NaN where one is. */
static double worst_sum(const struct test_case *c, long double *const exact[SUMS])
{
	double worst = 0;
	for (int k = 0; k < SUMS; k++) {
		const struct operand *got = ACTUAL(sums[k]);
		long double off = 0, norm = 0;
		for (int64_t i = 0; got->present && i < c->cols; i++) {
			long double d =
				exact[k][i] - (long double)element_value(got->dtype, got->buffer.data, i);
			off += d * d, norm += exact[k][i] * exact[k][i];
		}
		double error = got->present ? (double)sqrtl(off / norm) : 0;
		worst = isnan(worst) || error <= worst ? worst : error;
	}
	return worst;
}

/* The exact gradients of a case whose inputs are filled; statistics are x's own. dx errs in parts of |g| rstd + |dh|. */
static void exact_backward(const struct test_case *c, double *dx_error, double *sums_error)
{
	long double *exact[SUMS], worst = 0;
	const struct operand *x = INPUT("x"), *in_dy = INPUT("dy"), *in_dh = INPUT("dh"),
			     *out_dx = ACTUAL("dx");
	for (int k = 0; k < SUMS; k++)
		exact[k] = calloc((size_t)c->cols, sizeof(long double));
	for (int64_t r = 0; r < c->rows; r++) {
		struct exact s = exact_statistics(c, r);
		long double a = 0, b = 0, g_norm = 0, dh_norm = 0, error = 0;
		for (int64_t i = 0; i < c->cols; i++) {
			long double xhat = exact_xhat(x, s, r, i),
				    dy = (long double)element_value(c->dtype, in_dy->buffer.data,
								    r * c->cols + i);
			long double g = dy * (long double)weight_at(c, i);
			a += g * xhat, b += g, g_norm += g * g;
			exact[DWEIGHT][i] += dy * xhat, exact[DBIAS][i] += dy;
		}
		a /= (long double)c->cols;
		b = c->op->kind == EK_LAYER_NORM ? b / (long double)c->cols : 0;
		for (int64_t i = 0; i < c->cols; i++) {
			long double dy =
				(long double)element_value(c->dtype, in_dy->buffer.data, r * c->cols + i);
			long double dh = (long double)value_at(in_dh, 0, r * c->cols + i, 0);
			long double dx =
				(dy * (long double)weight_at(c, i) - b - exact_xhat(x, s, r, i) * a) *
					s.rstd +
				dh;
			long double d = dx - (long double)element_value(c->dtype, out_dx->buffer.data,
									r * c->cols + i);
			error += d * d, dh_norm += dh * dh, exact[DX_BIAS][i] += dx;
		}
		error = sqrtl(error) / (sqrtl(g_norm) * s.rstd + sqrtl(dh_norm));
		worst = isnan(worst) || error <= worst ? worst : error;
	}
	*dx_error = (double)worst;
	*sums_error = worst_sum(c, exact);
	for (int k = 0; k < SUMS; k++)
		free(exact[k]);
}

static void check_backward(struct test_case c, double mean, bool constant_dy, double dx_limit,
			   double sums_limit)
{
	double dx_error, sums_error;
	case_fill(&c);
	shape_x(&c, mean, 1, 0);
	EXPECT(inputs_fill_statistics(context(), &c, &case_inputs) == EK_OK, "%s: %s", case_text(&c),
	       ek_error(context())); /* of the shifted x */
	for (int64_t i = 0; constant_dy && i < c.rows * c.cols; i++)
		element_store(c.dtype, INPUT("dy")->buffer.data, i, 0.7);
	case_run(context(), &c, &case_actual);
	exact_backward(&c, &dx_error, &sums_error);
	EXPECT(dx_error < dx_limit, "%s, mean %g, level %s: dx errs by %.3g of |g| rstd, %g allowed",
	       case_text(&c), mean, level_best(), dx_error, dx_limit);
	EXPECT(sums_error < sums_limit, "%s, mean %g, level %s: a column sum errs by %.3g, %g allowed",
	       case_text(&c), mean, level_best(), sums_error, sums_limit);
}

TEST(backward_is_within_1e_6)
{
	static const int64_t shapes[][2] = {{4, 64},   {70, 768},  {33, 1000},
					    {8, 4097}, {2, 65536}, {1000, 100}};
	static const double means[] = {0, 1e3, 1e4};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int m = 0; m < COUNT_OF(means); m++)
			for (int k = 0; k < 8; k++) { /* the plain norms, then those with a residual */
				struct test_case c = case_make(&ek_ops[k & 4 ? 2 + (k & 1) : k & 1], BACKWARD,
							       dtype_pairs[0], shapes[s][0], shapes[s][1]);
				if (k & 2)
					case_drop(&c, STATISTICS);
				c.weight_offset = k >> 2;
				check_backward(c, means[m], false, 1e-6, 1e-6);
			}
}

/* (Three columns leave some rows nearly constant, so dx is not judged here.) */
TEST(column_sums_of_a_million_rows_are_within_1e_6)
{
	for (int constant = 0; constant < 2; constant++)
		for (int n = EK_LAYER_NORM; n <= EK_RMS_NORM; n++) {
			int64_t rows = test_mode == TEST_SHORT ? 65536 : 1048576;
			check_backward(case_of(true, (ek_norm)n, dtype_pairs[0], rows, 3), 0, constant,
				       (double)INFINITY, 1e-6);
		}
}

TEST(statistics_without_mean_lo_cost_digits_at_mean_1000)
{
	struct test_case c = case_of(true, EK_LAYER_NORM, dtype_pairs[0], 100, 768);
	case_drop(&c, "mean_lo");
	check_backward(c, 1e3, false, 2e-5, 2e-5);
}
