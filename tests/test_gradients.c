/* Backward is the derivative of forward: float64 gradients against central differences of float64
 * forward, and the narrower dtypes' gradients against float64's. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "support.h"

static const char *level;

static ek_context *context(void)
{
	return context_of((struct setting){level, 1, PLAIN});
}

/* The loss whose gradient backward computes: the sum of y * dy. */
static long double loss(const struct norm_case *c)
{
	struct norm_case forward = *c;
	forward.backward = false;
	forward.form = c->form & FORM_WEIGHT ? FORM_WEIGHT | FORM_BIAS : FORM_BIAS;
	static struct operand set[OPERANDS];
	EXPECT(case_call(context(), &forward, set) == EK_OK, "%s: %s", case_text(&forward),
	       ek_error(context()));
	long double sum = 0;
	for (int64_t i = 0; i < c->rows * c->cols; i++)
		sum += (long double)value_get(EK_F64, set[Y].buffer.data, i) *
		       (long double)value_get(EK_F64, case_inputs[DY].buffer.data, i);
	return sum;
}

static double difference(const struct norm_case *c, struct operand *o, int64_t i)
{
	double *at = (double *)(void *)o->buffer.data + i, kept = *at, h = 1e-5;
	*at = kept + h;
	long double above = loss(c);
	*at = kept - h;
	long double below = loss(c);
	*at = kept;
	return (double)((above - below) / (2 * (long double)h));
}

static void check_gradient(const struct norm_case *c, enum operand_id input, enum operand_id gradient)
{
	struct operand *o = &case_inputs[input];
	double worst = 0, scale = 0;
	int64_t at = 0;
	for (int64_t i = 0; i < o->rows * o->cols; i++) {
		double got = value_get(EK_F64, case_actual[gradient].buffer.data, i),
		       want = difference(c, o, i);
		scale = fmax(scale, fabs(want));
		if (!(fabs(got - want) <= worst))
			worst = fabs(got - want), at = i;
	}
	double got = value_get(EK_F64, case_actual[gradient].buffer.data, at), want = difference(c, o, at);
	EXPECT(worst <= 1e-7 * fmax(scale, 1),
	       "%s, level %s: gradient %d, element [%lld][%lld] is %.17g, differences say %.17g",
	       case_text(c), level, gradient - DX, (long long)(at / o->cols), (long long)(at % o->cols), got,
	       want);
}

static void gradients_are_finite_differences(void)
{
	static const int64_t shapes[][2] = {{1, 2}, {3, 5}, {7, 13}, {40, 3}, {2, 33}};
	for (int l = -1; l < level_count(); l++)
		for (int s = 0; s < COUNT_OF(shapes); s++)
			for (int k = 0; k < 8; k++) {
				level = l < 0 ? "reference" : level_name(l);
				struct norm_case c = case_of(true, k & 1 ? EK_RMS_NORM : EK_LAYER_NORM,
							     dtype_pairs[3], shapes[s][0], shapes[s][1]);
				c.eps = 0.01; /* keeps two-element rows from standing on a cliff */
				if (k & 2)
					c.form &= ~(unsigned)FORM_STATS;
				if (k & 4)
					c.form &= ~(unsigned)FORM_WEIGHT;
				c.seed = (uint64_t)(s * 8 + k);
				case_fill(&c);
				EXPECT(case_call(context(), &c, case_actual) == EK_OK, "%s: %s",
				       case_text(&c), ek_error(context()));
				/* forward's bias, which backward does not have */
				case_inputs[BIAS] = (struct operand){.present = false};
				check_gradient(&c, X, DX);
				if (c.form & FORM_WEIGHT)
					check_gradient(&c, WEIGHT, DWEIGHT);
				for (int64_t i = 0; i < c.cols;
				     i++) { /* dbias is the plain column sum of dy */
					double sum = 0,
					       got = value_get(EK_F64, case_actual[DBIAS].buffer.data, i);
					for (int64_t r = 0; r < c.rows; r++)
						sum += value_get(EK_F64, case_inputs[DY].buffer.data,
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
		double d = value_get(o->dtype, o->buffer.data, i) - keep[i];
		off += d * d, norm += keep[i] * keep[i];
	}
	return sqrt(off / norm);
}

/* One dtype's gradients against float64's from the very same numbers. */
static void check_narrow(struct dtype_pair dtypes, ek_norm norm, int64_t rows, int64_t cols, bool given)
{
	static struct operand wide[OPERANDS], held[OPERANDS];
	struct norm_case c = case_of(true, norm, dtypes, rows, cols),
			 c64 = case_of(true, norm, dtype_pairs[3], rows, cols);
	c.seed = (uint64_t)cols;
	c.form &= ~(unsigned)FORM_STATS;
	if (given)
		c.form |= FORM_STATS | FORM_ARBITRARY;
	case_normalise(&c);
	c64.form = c.form;
	c64.eps = (double)(float)c.eps;
	case_fill(&c);
	EXPECT(case_call(context(), &c, case_actual) == EK_OK, "%s: %s", case_text(&c), ek_error(context()));
	for (int id = X; id <= MEAN_LO; id++) { /* widen the inputs where they are */
		struct operand *o = &case_inputs[id];
		held[id] = *o;
		if (!o->present)
			continue;
		wide[id] = *o;
		wide[id].dtype = EK_F64;
		wide[id].buffer = (struct buffer){0};
		buffer_reset(&wide[id].buffer, (size_t)(o->rows * o->cols) * 8, PLACE_OFFSET, 0);
		for (int64_t i = 0; i < o->rows * o->cols; i++)
			value_set(EK_F64, wide[id].buffer.data, i, value_get(o->dtype, o->buffer.data, i));
		*o = wide[id];
	}
	EXPECT(case_call(context(), &c64, case_expected) == EK_OK, "%s: %s", case_text(&c64),
	       ek_error(context()));
	double limit[] = {0, 2e-6, 1e-3, 8e-3};
	for (int id = DX; id <= DBIAS; id++) {
		ek_dtype stored = case_actual[id].dtype;
		double off = distance(&case_actual[id],
				      (const double *)(const void *)case_expected[id].buffer.data);
		EXPECT(off <= limit[stored], "%s, level %s: gradient %d is %.3g from float64's, %g allowed",
		       case_text(&c), level, id - DX, off, limit[stored]);
	}
	for (int id = X; id <= MEAN_LO; id++) {
		if (case_inputs[id].present)
			free(case_inputs[id].buffer.block);
		case_inputs[id] = held[id];
	}
}

static void narrow_gradients_are_near_float64(void)
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

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	TEST(gradients_are_finite_differences);
	TEST(narrow_gradients_are_near_float64);
	return test_end();
}
