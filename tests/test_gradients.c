/* Backward is the derivative of forward: float64 gradients against central differences of float64
 * forward, and the narrower dtypes' gradients against float64's. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support.h"

static const char *level;

static ek_context *context(void)
{
	return context_of((struct setting){level, 1, PLAIN});
}

/* What forward is given and gives, beside backward's case_inputs. */
static struct operands given, found;

static const struct {
	const char *input, *gradient;
} gradients[] = {{"x", "dx"},           {"residual", "dresidual"}, {"x_bias", "dx_bias"},
		 {"weight", "dweight"}, {"bias", "dbias"},         {"gate", "dgate"}};

/* The loss whose gradient backward computes: the sum of y * dy and of h * dh. */
static long double loss(const struct test_case *forward)
{
	static const char *const terms[][2] = {{"y", "dy"}, {"h", "dh"}};
	long double sum = 0;
	EXPECT(outputs_compute(context(), forward, &given, &found) == EK_OK, "%s: %s", case_text(forward),
	       ek_error(context()));
	for (int k = 0; k < COUNT_OF(terms); k++) {
		const struct operand *value = operand_named(&found, terms[k][0]), *by = INPUT(terms[k][1]);
		for (int64_t i = 0; by->present && i < by->rows * by->cols; i++)
			sum += (long double)element_value(EK_F64, value->buffer.data, i) *
			       (long double)element_value(EK_F64, by->buffer.data, i);
	}
	return sum;
}

static double difference(const struct test_case *forward, struct operand *o, int64_t i)
{
	double *at = (double *)(void *)o->buffer.data + i, kept = *at, h = 1e-5;
	*at = kept + h;
	long double above = loss(forward);
	*at = kept - h;
	long double below = loss(forward);
	*at = kept;
	return (double)((above - below) / (2 * (long double)h));
}

static void check_gradient(const struct test_case *forward, const struct test_case *backward,
			   const char *input, const char *gradient)
{
	struct operand *o = operand_named(&given, input);
	double worst = 0, scale = 0;
	int64_t at = 0;
	for (int64_t i = 0; i < o->rows * o->cols; i++) {
		double got = element_value(EK_F64, ACTUAL(gradient)->buffer.data, i),
		       want = difference(forward, o, i);
		scale = fmax(scale, fabs(want));
		if (!(fabs(got - want) <= worst))
			worst = fabs(got - want), at = i;
	}
	double got = element_value(EK_F64, ACTUAL(gradient)->buffer.data, at),
	       want = difference(forward, o, at);
	EXPECT(worst <= 1e-7 * fmax(scale, 1),
	       "%s, level %s: %s, element [%lld][%lld] is %.17g, differences say %.17g", case_text(backward),
	       level, gradient, (long long)(at / o->cols), (long long)(at % o->cols), got, want);
}

/* Backward is given what forward was given, and h for x where there is a residual. */
static void hand_over(const struct test_case *forward, const struct test_case *backward)
{
	static const char *const names[] = {"x", "x_bias", "weight", "bias", "gate"};
	(void)loss(forward); /* for h */
	for (int k = 0; k < COUNT_OF(names); k++) {
		struct operand *to = INPUT(names[k]), *from = operand_named(&given, names[k]);
		if (k == 0 && operand_named(&found, "h")->present)
			from = operand_named(&found, "h");
		for (int64_t i = 0; to->present && i < to->rows * to->cols; i++)
			element_store(EK_F64, to->buffer.data, i,
				      element_value(EK_F64, from->buffer.data, i));
	}
	EXPECT(inputs_fill_statistics(reference(), backward, &case_inputs) == EK_OK, "%s: %s",
	       case_text(backward), ek_error(reference()));
}

static void check_form(struct test_case forward, const char *words, int flavour, int activation)
{
	struct test_case backward = forward;
	backward.pass = BACKWARD;
	forward.weight_offset = backward.weight_offset = flavour & 1;
	forward.rounding = backward.rounding = flavour >> 1 & 1;
	forward.activation = backward.activation = activation;
	forward.gate_first = backward.gate_first = flavour & 1;
	case_set(&forward, words);
	case_set(&backward, words);
	if (case_has(&forward, "residual"))
		case_drop(&backward, "x_bias");
	EXPECT(inputs_fill(reference(), &forward, &given) == EK_OK, "%s: %s", case_text(&forward),
	       ek_error(reference()));
	case_fill(&backward);
	hand_over(&forward, &backward);
	case_run(context(), &backward, &case_actual);
	for (int k = 0; k < COUNT_OF(gradients); k++)
		if (operand_named(&given, gradients[k].input)->present)
			check_gradient(&forward, &backward, gradients[k].input, gradients[k].gradient);
}

/* With every operand beside the norm, with and without weights, statistics and activations, 1 + weight, and each rounding, which in float64
 * changes nothing. */
TEST(gradients_are_finite_differences)
{
	/* rows, columns, columns of a group or 0 */
	static const int64_t shapes[][3] = {{1, 2, 0},  {3, 5, 0},  {7, 13, 0}, {40, 3, 0},
					    {2, 33, 0}, {3, 12, 4}, {5, 10, 5}};
	static const char *const forms[] = {
		("weight bias dy dx dweight dbias " STATISTICS),
		"weight bias dy dx dweight dbias",
		"bias dy dx dbias",
		("weight bias x_bias dy dx dweight dbias dx_bias " STATISTICS),
		("weight bias residual h dy dh dx dresidual dweight dbias " STATISTICS),
		"weight bias residual h x_bias dy dh dx dresidual dweight dbias dx_bias",
		"residual h x_bias dy dx dresidual dx_bias rstd",
		"weight residual h dh dx dresidual dweight",
		("weight bias gate dy dx dgate dweight dbias " STATISTICS),
		"weight gate dy dx dgate dweight",
		"bias gate dy dx dgate dbias"};
	for (int l = -1; l < level_count(); l++)
		for (int s = 0; s < COUNT_OF(shapes); s++)
			for (int k = 0; k < 2 * COUNT_OF(forms); k++) {
				level = l < 0 ? "reference" : level_name(l);
				struct test_case c = case_make(&open_ops[k % 2], FORWARD, dtype_pairs[3],
							       shapes[s][0], shapes[s][1]);
				c.group_cols = shapes[s][2];
				c.eps = 0.01; /* keeps two-element rows from standing on a cliff */
				c.seed = (uint64_t)(s * 8 + k);
				check_form(c, forms[k / 2], (s + k / 2) % 4, (s + k) % (EK_GELU_TANH + 1));
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

/* One dtype's gradients against float64's from the very same numbers. Where xhat rounds, so does dweight. */
static void check_narrow(struct test_case c)
{
	static const double limit[] = {[EK_F32] = 2e-6, [EK_F16] = 1e-3, [EK_BF16] = 8e-3};
	static struct operands wide;
	struct test_case c64 = c;
	c64.dtype = c64.weight_dtype = EK_F64;
	c64.h_dtype = c64.y_dtype = c64.gradient_dtype = (ek_dtype)0;
	c64.eps = (double)(float)c.eps;
	case_fill(&c);
	case_run(context(), &c, &case_actual);
	widen_inputs(&wide);
	EXPECT(outputs_compute(context(), &c64, &wide, &case_expected) == EK_OK, "%s: %s", case_text(&c64),
	       ek_error(context()));
	for (int i = 0; i < case_op(&c)->output_count; i++) {
		const struct operand *gradient = &case_actual.of[i];
		bool rounded = c.rounding && strcmp(case_op(&c)->operands[i].name, "dweight") == 0;
		if (!gradient->present)
			continue;
		double allowed = limit[rounded ? c.dtype : gradient->dtype];
		double off =
			distance(gradient, (const double *)(const void *)case_expected.of[i].buffer.data);
		EXPECT(off <= allowed, "%s, level %s: %s is %.3g from float64's, %g allowed", case_text(&c),
		       level, case_op(&c)->operands[i].name, off, allowed);
	}
}

TEST(narrow_gradients_are_near_float64)
{
	static const int64_t shapes[][2] = {{3, 17}, {64, 256}, {33, 1000}, {5, 3000}, {1030, 9}};
	for (int l = -1; l < level_count(); l++)
		for (int s = 0; s < COUNT_OF(shapes); s++)
			for (int k = 1; k < OPS; k += 2)
				for (int arbitrary = 0; arbitrary < 2; arbitrary++) {
					level = l < 0 ? "reference" : level_name(l);
					struct test_case c = op_case(k, shapes[s][0], shapes[s][1]);
					if (arbitrary)
						case_add(&c, "arbitrary");
					else
						case_drop(&c, STATISTICS);
					if (c.dtype != EK_F64)
						check_narrow(c);
				}
}
