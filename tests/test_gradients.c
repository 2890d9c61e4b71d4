/* Backward is the derivative of forward: float64 gradients against central differences of float64
 * forward, and the narrower dtypes' gradients against float64's. SPDX-License-Identifier: MIT */
#include <math.h>

#include "support.h"

static const char *level;

static ek_context *context(void)
{
	return context_of((struct setting){level, 1, PLAIN});
}

/* The loss whose gradient backward computes: the sum of y * dy. It does not need bias, which backward does not have. */
static long double loss(const struct test_case *c)
{
	static struct operands inputs, set;
	struct test_case forward = case_make(c->op, FORWARD, dtype_pairs[3], c->rows, c->cols);
	forward.eps = c->eps;
	case_set(&forward, case_has(c, "weight") ? "weight" : "");
	operands_borrow(&forward, &inputs, &case_inputs);
	EXPECT(outputs_compute(context(), &forward, &inputs, &set) == EK_OK, "%s: %s", case_text(&forward),
	       ek_error(context()));
	const unsigned char *y = operand_named(&set, "y")->buffer.data, *dy = INPUT("dy")->buffer.data;
	long double sum = 0;
	for (int64_t i = 0; i < c->rows * c->cols; i++)
		sum += (long double)element_value(EK_F64, y, i) * (long double)element_value(EK_F64, dy, i);
	return sum;
}

static double difference(const struct test_case *c, struct operand *o, int64_t i)
{
	double *at = (double *)(void *)o->buffer.data + i, kept = *at, h = 1e-5;
	*at = kept + h;
	long double above = loss(c);
	*at = kept - h;
	long double below = loss(c);
	*at = kept;
	return (double)((above - below) / (2 * (long double)h));
}

static void check_gradient(const struct test_case *c, const char *input, const char *gradient)
{
	struct operand *o = INPUT(input);
	double worst = 0, scale = 0;
	int64_t at = 0;
	for (int64_t i = 0; i < o->rows * o->cols; i++) {
		double got = element_value(EK_F64, ACTUAL(gradient)->buffer.data, i),
		       want = difference(c, o, i);
		scale = fmax(scale, fabs(want));
		if (!(fabs(got - want) <= worst))
			worst = fabs(got - want), at = i;
	}
	double got = element_value(EK_F64, ACTUAL(gradient)->buffer.data, at), want = difference(c, o, at);
	EXPECT(worst <= 1e-7 * fmax(scale, 1),
	       "%s, level %s: %s, element [%lld][%lld] is %.17g, differences say %.17g", case_text(c), level,
	       gradient, (long long)(at / o->cols), (long long)(at % o->cols), got, want);
}

TEST(gradients_are_finite_differences)
{
	static const int64_t shapes[][2] = {{1, 2}, {3, 5}, {7, 13}, {40, 3}, {2, 33}};
	for (int l = -1; l < level_count(); l++)
		for (int s = 0; s < COUNT_OF(shapes); s++)
			for (int k = 0; k < 8; k++) {
				level = l < 0 ? "reference" : level_name(l);
				struct test_case c = case_of(true, k & 1 ? EK_RMS_NORM : EK_LAYER_NORM,
							     dtype_pairs[3], shapes[s][0], shapes[s][1]);
				c.eps = 0.01; /* keeps two-element rows from standing on a cliff */
				if (k & 2)
					case_drop(&c, STATISTICS);
				if (k & 4)
					case_drop(&c, "weight");
				c.seed = (uint64_t)(s * 8 + k);
				case_fill(&c);
				case_run(context(), &c, &case_actual);
				check_gradient(&c, "x", "dx");
				if (case_has(&c, "weight"))
					check_gradient(&c, "weight", "dweight");
				for (int64_t i = 0; i < c.cols;
				     i++) { /* dbias is the plain column sum of dy */
					double sum = 0,
					       got = element_value(EK_F64, ACTUAL("dbias")->buffer.data, i);
					for (int64_t r = 0; r < c.rows; r++)
						sum += element_value(EK_F64, INPUT("dy")->buffer.data,
								     r * c.cols + i);
					EXPECT(fabs(got - sum) <= 1e-12,
					       "%s, level %s: dbias[%lld] is %.17g, the sum is %.17g",
					       case_text(&c), level, (long long)i, got, sum);
				}
			}
}

/* The relative L2 distance of a gradient from its float64 twin, which keep holds. */
static double distance(const struct operand *o, const double *keep)
{
	double off = 0, norm = 0;
	for (int64_t i = 0; i < o->rows * o->cols; i++) {
		double d = element_value(o->dtype, o->buffer.data, i) - keep[i];
		off += d * d, norm += keep[i] * keep[i];
	}
	return sqrt(off / norm);
}

/* The inputs in float64. */
static void widen_inputs(struct operands *wide)
{
	wide->op = case_inputs.op;
	for (int i = wide->op->output_count; i < wide->op->operand_count; i++) {
		const struct operand *o = &case_inputs.of[i];
		struct buffer buffer = wide->of[i].buffer;
		EXPECT(buffer_reset(&buffer, (size_t)(o->rows * o->cols) * 8, PLACE_OFFSET, 0), "no memory");
		for (int64_t k = 0; o->present && k < o->rows * o->cols; k++)
			element_store(EK_F64, buffer.data, k, element_value(o->dtype, o->buffer.data, k));
		wide->of[i] = *o;
		wide->of[i].dtype = EK_F64;
		wide->of[i].buffer = buffer;
	}
}

/* One dtype's gradients against float64's from the very same numbers. */
static void check_narrow(struct dtype_pair dtypes, ek_norm norm, int64_t rows, int64_t cols, bool given)
{
	static const double limit[] = {[EK_F32] = 2e-6, [EK_F16] = 1e-3, [EK_BF16] = 8e-3};
	static struct operands wide;
	struct test_case c = case_of(true, norm, dtypes, rows, cols), c64;
	c.seed = (uint64_t)cols;
	if (given)
		case_add(&c, "arbitrary");
	else
		case_drop(&c, STATISTICS);
	c64 = c;
	c64.dtype = c64.weight_dtype = EK_F64;
	c64.eps = (double)(float)c.eps;
	case_fill(&c);
	case_run(context(), &c, &case_actual);
	widen_inputs(&wide);
	EXPECT(outputs_compute(context(), &c64, &wide, &case_expected) == EK_OK, "%s: %s", case_text(&c64),
	       ek_error(context()));
	for (int i = 0; i < case_op(&c)->output_count; i++) {
		const struct operand *gradient = &case_actual.of[i];
		double off =
			distance(gradient, (const double *)(const void *)case_expected.of[i].buffer.data);
		EXPECT(off <= limit[gradient->dtype], "%s, level %s: %s is %.3g from float64's, %g allowed",
		       case_text(&c), level, case_op(&c)->operands[i].name, off, limit[gradient->dtype]);
	}
}

TEST(narrow_gradients_are_near_float64)
{
	static const int64_t shapes[][2] = {{3, 17}, {64, 256}, {33, 1000}, {5, 3000}, {1030, 9}};
	for (int l = -1; l < level_count(); l++)
		for (int s = 0; s < COUNT_OF(shapes); s++)
			for (int p = 0; p < DTYPE_PAIRS; p++)
				for (int k = 0; k < 4; k++) {
					level = l < 0 ? "reference" : level_name(l);
					if (dtype_pairs[p].dtype != EK_F64)
						check_narrow(dtype_pairs[p],
							     k & 1 ? EK_RMS_NORM : EK_LAYER_NORM,
							     shapes[s][0], shapes[s][1], k & 2);
				}
}
