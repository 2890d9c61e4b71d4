/* Exact values: libm in double precision, and MPFR with 160 bits where it is installed. The formulas are those of textbooks, not
 * those of src/math. SPDX-License-Identifier: MIT */
#include "math_exact.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* ---- double precision ---- */

static double sigmoid(double t)
{
	return t < 0 ? exp(t) / (1 + exp(t)) : 1 / (1 + exp(-t));
}

static double density(double t)
{
	return exp(-t * t / 2) / sqrt(2 * pi);
}

static double cdf(double t)
{
	return erfc(-t / sqrt(2)) / 2;
}

static double clamped(double t)
{
	return fmin(fmax(fabs(t), MATH_LEAST), MATH_MOST);
}

/* value = first + second */
static struct math_exact sum_of(double first, double second)
{
	return (struct math_exact){first + second, fabs(first) + fabs(second), 0};
}

static struct math_exact gelu_tanh(double t, bool slope)
{
	const double c = 2 * sqrt(2 / pi), u2 = c * (t + 0.044715 * t * t * t), s = sigmoid(u2);
	const double rest = sigmoid(-u2), size = fabs(u2);
	struct math_exact exact = sum_of(t == 0 || s == 0 ? 0 : t * s, 0);
	if (slope)
		exact = sum_of(s, s * rest == 0 ? 0 : t * s * rest * c * (1 + 3 * 0.044715 * t * t));
	exact.argument = size < 2000 ? size : 2000; /* beyond, s or the rest is 0 */
	return exact;
}

static struct math_exact gelu_slope(double t)
{
	struct math_exact exact = sum_of(cdf(t), density(t) == 0 ? 0 : t * density(t));
	exact.argument = fabs(t) < 40 ? t * t / 2 : 800;
	return exact;
}

struct math_exact math_exact_of(enum math_function f, double t)
{
	switch (f) {
	case MATH_exp:
		return sum_of(exp(t), 0);
	case MATH_normal_density:
		return sum_of(density(t), 0);
	case MATH_normal_cdf:
		return sum_of(cdf(t), 0);
	case MATH_sigmoid:
		return sum_of(sigmoid(t), 0);
	case MATH_silu:
		return sum_of(t * sigmoid(t), 0);
	case MATH_gelu:
		return sum_of(t * cdf(t), 0);
	case MATH_gelu_tanh:
		return gelu_tanh(t, false);
	case MATH_sigmoid_slope:
		return sum_of(sigmoid(t) * sigmoid(-t), 0);
	case MATH_silu_slope:
		return sum_of(sigmoid(t), t * sigmoid(t) * sigmoid(-t));
	case MATH_gelu_slope:
		return gelu_slope(t);
	case MATH_relu:
		return sum_of(fmax(t, 0), 0);
	case MATH_relu_slope:
		return sum_of(t > 0, 0);
	case MATH_relu_squared:
		return sum_of(fmax(t, 0) * fmax(t, 0), 0);
	case MATH_relu_squared_slope:
		return sum_of(2 * fmax(t, 0), 0);
	case MATH_identity:
		return sum_of(t, 0);
	case MATH_identity_slope:
		return sum_of(1, 0);
	case MATH_reciprocal:
		return sum_of(1 / clamped(t), 0);
	default:
		return gelu_tanh(t, true);
	}
}

/* ---- MPFR ---- */

#ifdef HAS_MPFR
#include <mpfr.h>

#define ROUND MPFR_RNDN
static mpfr_t value, t_exact, a, b, u2;

/* to = 1 / (1 + exp(-sign x)) */
static void put_sigmoid(mpfr_t to, const mpfr_t x, int sign)
{
	mpfr_mul_si(to, x, -sign, ROUND);
	mpfr_exp(to, to, ROUND);
	mpfr_add_ui(to, to, 1, ROUND);
	mpfr_ui_div(to, 1, to, ROUND);
}

static void put_cdf(mpfr_t to)
{
	mpfr_sqrt_ui(to, 2, ROUND);
	mpfr_div(to, t_exact, to, ROUND);
	mpfr_neg(to, to, ROUND);
	mpfr_erfc(to, to, ROUND);
	mpfr_div_ui(to, to, 2, ROUND);
}

static void put_density(mpfr_t to)
{
	mpfr_const_pi(b, ROUND);
	mpfr_mul_ui(b, b, 2, ROUND);
	mpfr_sqrt(b, b, ROUND);
	mpfr_sqr(to, t_exact, ROUND);
	mpfr_div_si(to, to, -2, ROUND);
	mpfr_exp(to, to, ROUND);
	mpfr_div(to, to, b, ROUND);
}

/* to = 2 sqrt(2 / pi) (1 + factor 0.044715 t^2) */
static void put_tanh_factor(mpfr_t to, int factor)
{
	mpfr_set_str(to, "0.044715", 10, ROUND);
	mpfr_mul_ui(to, to, (unsigned)factor, ROUND);
	mpfr_mul(to, to, t_exact, ROUND);
	mpfr_mul(to, to, t_exact, ROUND);
	mpfr_add_ui(to, to, 1, ROUND);
	mpfr_const_pi(b, ROUND);
	mpfr_ui_div(b, 8, b, ROUND);
	mpfr_sqrt(b, b, ROUND);
	mpfr_mul(to, to, b, ROUND);
}

/* value = s(x) + t s(x) s(-x) factor, the derivative of t s(x); a has the factor. */
static void put_slope(const mpfr_t x)
{
	put_sigmoid(value, x, 1);
	put_sigmoid(b, x, -1);
	mpfr_mul(a, a, b, ROUND);
	mpfr_mul(a, a, value, ROUND);
	mpfr_mul(a, a, t_exact, ROUND);
	mpfr_add(value, value, a, ROUND);
}

/* A derivative at 0 is 0. */
static void put_relu(enum math_function f)
{
	int sign = mpfr_sgn(t_exact);
	if (sign <= 0)
		mpfr_set_zero(value, 1);
	else if (f == MATH_relu_slope)
		mpfr_set_ui(value, 1, ROUND);
	else if (f == MATH_relu_squared)
		mpfr_sqr(value, t_exact, ROUND);
	else
		mpfr_mul_ui(value, t_exact, f == MATH_relu ? 1 : 2, ROUND);
}

static void put_value(enum math_function f)
{
	switch (f) {
	case MATH_exp:
		mpfr_exp(value, t_exact, ROUND);
		break;
	case MATH_normal_density:
		put_density(value);
		break;
	case MATH_normal_cdf:
	case MATH_gelu:
		put_cdf(value);
		break;
	case MATH_sigmoid:
	case MATH_silu:
		put_sigmoid(value, t_exact, 1);
		break;
	case MATH_sigmoid_slope:
		put_sigmoid(value, t_exact, 1);
		put_sigmoid(a, t_exact, -1);
		mpfr_mul(value, value, a, ROUND);
		break;
	case MATH_silu_slope:
		mpfr_set_ui(a, 1, ROUND);
		put_slope(t_exact);
		break;
	case MATH_gelu_slope:
		put_density(value);
		mpfr_mul(value, value, t_exact, ROUND);
		put_cdf(a);
		mpfr_add(value, value, a, ROUND);
		break;
	case MATH_relu:
	case MATH_relu_slope:
	case MATH_relu_squared:
	case MATH_relu_squared_slope:
		put_relu(f);
		break;
	case MATH_identity:
		mpfr_set(value, t_exact, ROUND);
		break;
	case MATH_identity_slope:
		mpfr_set_ui(value, 1, ROUND);
		break;
	case MATH_reciprocal:
		mpfr_set_d(a, clamped(mpfr_get_d(t_exact, ROUND)), ROUND);
		mpfr_ui_div(value, 1, a, ROUND);
		break;
	default: /* gelu_tanh and its slope */
		put_tanh_factor(u2, 1);
		mpfr_mul(u2, u2, t_exact, ROUND);
		put_tanh_factor(a, 3);
		if (f == MATH_gelu_tanh)
			put_sigmoid(value, u2, 1);
		else
			put_slope(u2);
	}
	if (f == MATH_silu || f == MATH_gelu || f == MATH_gelu_tanh)
		mpfr_mul(value, value, t_exact, ROUND);
}

bool math_has_mpfr(void)
{
	return true;
}

struct math_error math_error_of(enum math_function f, double t, double actual)
{
	struct math_exact near = math_exact_of(f, t);
	mpfr_inits2(160, value, t_exact, a, b, u2, (mpfr_ptr)0);
	mpfr_set_d(t_exact, t, ROUND);
	put_value(f);
	mpfr_sub_d(value, value, actual, ROUND);
	struct math_error error = {fabs(mpfr_get_d(value, ROUND)), near.scale, near.argument};
	mpfr_clears(value, t_exact, a, b, u2, (mpfr_ptr)0);
	return error;
}
#else
bool math_has_mpfr(void)
{
	return false;
}

struct math_error math_error_of(enum math_function f, double t, double actual)
{
	struct math_exact exact = math_exact_of(f, t);
	return (struct math_error){fabs(exact.value - actual), exact.scale, exact.argument};
}
#endif
