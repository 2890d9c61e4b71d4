/* Rule 12 of docs/numerics.md a second time, without the reference's code; its accuracy against binary64; and backward against
 * difference quotients. Single-precision steps are binary64 operations rounded once more, which changes no bit of them.
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/slots.h"
#include "support_rope.h"

/* ---- the rule ---- */

static bool single; /* the arithmetic is binary32 */

static double R(double x)
{
	return single ? (double)(float)x : x;
}

static double fused(double a, double b, double c)
{
	return single ? (double)fmaf((float)a, (float)b, (float)c) : fma(a, b, c);
}

/* Rule 2's tree over a[first], a[first + step], …, of which there are n, from number `lo` on `size`, a power of two. */
static double tree(const double *a, int64_t step, int64_t n, int64_t lo, int64_t size)
{
	if (size == 1)
		return a[lo * step];
	const double left = tree(a, step, n, lo, size / 2);
	return lo + size / 2 < n ? R(left + tree(a, step, n, lo + size / 2, size / 2)) : left;
}

static double folded(const double *a, int64_t step, int64_t n)
{
	int64_t size = 1;
	while (size < n)
		size *= 2;
	return n ? R(tree(a, step, n, 0, size) + 0) : 0;
}

/* v NULL: of u. */
static double row_sum(const double *u, const double *v, int64_t n)
{
	double lanes[LANES];
	const int64_t count = n < LANES ? n : LANES;
	for (int64_t lane = 0; lane < count; lane++) {
		lanes[lane] = 0;
		for (int64_t i = lane; i < n; i += LANES)
			lanes[lane] = v ? fused(u[i], v[i], lanes[lane]) : R(lanes[lane] + u[i]);
	}
	return folded(lanes, 1, count);
}

/* A head on its way: what it was, its norm, and the gradients. */
struct head {
	double v[EK_MAX_HEAD_DIM], xhat[EK_MAX_HEAD_DIM], o[EK_MAX_HEAD_DIM], d[EK_MAX_HEAD_DIM],
		dv[EK_MAX_HEAD_DIM];
	double rstd;
};

static void norm_of(const struct test_case *c, const double *x, struct head *h)
{
	const int64_t n = c->head_dim;
	const double eps = R(c->eps);
	double d[EK_MAX_HEAD_DIM] = {0};
	if (c->norm == EK_RMS_NORM) {
		h->rstd = R(1 / R(sqrt(R(R(row_sum(x, x, n) / (double)n) + eps))));
		for (int64_t i = 0; i < n; i++)
			h->xhat[i] = R(x[i] * h->rstd);
		return;
	}
	const double m0 = R(row_sum(x, NULL, n) / (double)n);
	for (int64_t i = 0; i < n; i++)
		d[i] = R(x[i] - m0);
	const double s = R(row_sum(d, NULL, n) / (double)n), q = R(row_sum(d, d, n) / (double)n);
	const double mean = R(m0 + s), mean_lo = R(R(m0 - mean) + s), v = fused(-s, s, q);
	h->rstd = R(1 / R(sqrt(R((v < 0 ? 0 : v) + eps))));
	for (int64_t i = 0; i < n; i++)
		h->xhat[i] = fused(R(x[i] - mean), h->rstd, -R(mean_lo * h->rstd));
}

static void norm_back(const struct test_case *c, const struct head *h, const double *g, double *dx)
{
	const int64_t n = c->head_dim;
	const double a = R(row_sum(g, h->xhat, n) / (double)n), b = R(row_sum(g, NULL, n) / (double)n);
	for (int64_t i = 0; i < n; i++)
		dx[i] = c->norm == EK_RMS_NORM ? R(fused(-h->xhat[i], a, g[i]) * h->rstd)
					       : R(R(g[i] - fused(h->xhat[i], a, b)) * h->rstd);
}

static double value_at(const struct operand *o, int64_t row, int64_t i, double otherwise)
{
	return o->present ? element_value(o->dtype, o->buffer.data, operand_row(o, row) + i) : otherwise;
}

/* sign -1: back. */
static void turn(const struct test_case *c, int64_t token, double sign, double *x)
{
	int64_t row = token / c->seq * c->table_step + c->first_row + token % c->seq;
	const struct operand *positions = INPUT("positions");
	const int64_t half = c->rotary_dim / 2, start = c->trailing ? c->head_dim - c->rotary_dim : 0;
	if (positions->present)
		row = (int64_t)element_bits(EK_F64, positions->buffer.data,
					    operand_row(positions, token / c->seq) + token % c->seq);
	for (int64_t i = 0; i < half; i++) {
		double *a = x + start + (c->interleaved ? 2 * i : i), *b = a + (c->interleaved ? 1 : half),
		       was = *a;
		const double cosine = value_at(INPUT("cos"), row, i, 0),
			     sine = sign * value_at(INPUT("sin"), row, i, 0);
		*a = fused(was, cosine, -R(*b * sine));
		*b = fused(*b, cosine, R(was * sine));
	}
}

/* The operand of q or of k: its name with '*' for the letter. */
static const struct operand *of_side(struct operand *(*named)(const char *name), const char *pattern,
				     char side)
{
	char name[32];
	(void)snprintf(name, sizeof name, "%s", pattern);
	*strchr(name, '*') = side;
	return (*named)(name);
}

static struct operand *input(const char *name)
{
	return INPUT(name);
}

static struct operand *expected(const char *name)
{
	return EXPECTED(name);
}

static double weight_at(const struct test_case *c, char side, int64_t i)
{
	const struct operand *weight = of_side(input, "*_weight", side);
	const double w = value_at(weight, 0, i, 1);
	return weight->present && c->weight_offset ? R(1 + w) : w;
}

/* The row of an operand in which a head of a token is. */
static int64_t row_of(int64_t heads, int64_t token, int64_t head)
{
	return token * heads + head;
}

static void read_head(const struct test_case *c, char side, int64_t heads, int64_t token, int64_t head,
		      struct head *h)
{
	const struct operand *bias = of_side(input, "*_bias", side), *x = of_side(input, "*", side);
	for (int64_t i = 0; i < c->head_dim && x->present; i++) {
		h->v[i] = value_at(x, row_of(heads, token, head), i, 0);
		if (bias->present)
			h->v[i] = R(h->v[i] + value_at(bias, head, i, 0));
	}
}

static void forward_head(const struct test_case *c, char side, int64_t token, struct head *h)
{
	memcpy(h->o, h->v, sizeof h->o);
	if (c->norm && !c->norm_last) {
		norm_of(c, h->v, h);
		for (int64_t i = 0; i < c->head_dim; i++)
			h->o[i] = R(h->xhat[i] * weight_at(c, side, i));
	}
	turn(c, token, 1, h->o);
	if (c->norm_last)
		norm_of(c, h->o, h);
}

static void backward_head(const struct test_case *c, char side, int64_t token, struct head *h)
{
	double g[EK_MAX_HEAD_DIM];
	if (c->norm)
		forward_head(c, side, token, h);
	if (c->norm_last) {
		memcpy(g, h->d, sizeof g);
		norm_back(c, h, g, h->d);
	}
	turn(c, token, -1, h->d);
	memcpy(h->dv, h->d, sizeof h->dv);
	if (!c->norm || c->norm_last)
		return;
	for (int64_t i = 0; i < c->head_dim; i++)
		g[i] = R(h->d[i] * weight_at(c, side, i));
	norm_back(c, h, g, h->dv);
}

static void expect_element(const struct test_case *c, const struct operand *o, int64_t row, int64_t i,
			   double value)
{
	double room = 0;
	if (!o->present)
		return;
	element_store(o->dtype, &room, 0, value);
	uint64_t want = element_bits(o->dtype, &room, 0),
		 is = element_bits(o->dtype, o->buffer.data, operand_row(o, row) + i);
	EXPECT(want == is || (bits_are_nan(o->dtype, want) && bits_are_nan(o->dtype, is)),
	       "%s: row %lld, column %lld is %.17g, by the rules %.17g", case_text(c), (long long)row,
	       (long long)i, element_value(o->dtype, o->buffer.data, operand_row(o, row) + i), value);
}

/* ---- column sums ---- */

/* Rule 6 for a column whose terms are a[row] * b[row], or a[row] where b is NULL; R as for so many columns. */
static double column_sum(const double *a, const double *b, int64_t rows, int64_t cols)
{
	const int64_t slot_rows = ek_slot_rows(rows, cols), slots = ek_slot_count(rows, cols);
	double *sums = calloc((size_t)slots + 1, sizeof *sums), chunk = 0;
	for (int64_t row = 0; row < rows; row++) {
		const int64_t in_slot = row % slot_rows;
		if (in_slot % CHUNK_ROWS == 0)
			chunk = 0;
		chunk = b ? fused(a[row], b[row], chunk) : R(chunk + a[row]);
		if (in_slot % CHUNK_ROWS == CHUNK_ROWS - 1 || in_slot == slot_rows - 1 || row == rows - 1)
			sums[row / slot_rows] = R(sums[row / slot_rows] + chunk);
	}
	const double sum = folded(sums, 1, slots);
	free(sums);
	return sum;
}

static double started(const struct test_case *c, const struct operand *gradient, int64_t row, int64_t i,
		      double sum)
{
	struct operand start = *gradient;
	if (!c->accumulate || !gradient->present)
		return sum;
	outputs_make(reference(), c, &case_inputs, &case_actual);
	start = *operand_named(&case_actual, case_op(c)->operands[gradient - case_expected.of].name);
	return R(value_at(&start, row, i, 0) + sum);
}

static void check_sums(const struct test_case *c, char side, int64_t heads, const struct head *all,
		       int64_t rows)
{
	const struct operand *dbias = of_side(expected, "d*_bias", side),
			     *dweight = of_side(expected, "d*_weight", side);
	double *a = calloc((size_t)rows + 1, sizeof *a), *b = calloc((size_t)rows + 1, sizeof *b);
	for (int64_t i = 0; i < c->head_dim && dweight->present; i++) {
		for (int64_t row = 0; row < rows; row++)
			a[row] = all[row].d[i], b[row] = all[row].xhat[i];
		expect_element(c, dweight, 0, i,
			       started(c, dweight, 0, i, column_sum(a, b, rows, c->head_dim)));
	}
	for (int64_t i = 0; i < heads * c->head_dim && dbias->present; i++) {
		for (int64_t token = 0; token < rows / heads; token++)
			a[token] = all[row_of(heads, token, i / c->head_dim)].dv[i % c->head_dim];
		const double sum = column_sum(a, NULL, rows / heads, heads * c->head_dim);
		expect_element(c, dbias, i / c->head_dim, i % c->head_dim,
			       started(c, dbias, i / c->head_dim, i % c->head_dim, sum));
	}
	free(a);
	free(b);
}

static void check_side(const struct test_case *c, char side, int64_t heads)
{
	const int64_t rows = c->batch * c->seq * heads;
	const struct operand *dy = of_side(input, "d*_out", side), *x = of_side(input, "*", side);
	struct head *all = calloc((size_t)rows + 1, sizeof *all);
	const bool there = c->pass == FORWARD ? x->present : dy->present;
	for (int64_t row = 0; row < rows && there; row++) {
		struct head *h = &all[row];
		read_head(c, side, heads, row / heads, row % heads, h);
		for (int64_t i = 0; i < c->head_dim; i++)
			h->d[i] = value_at(dy, row, i, 0);
		(c->pass == FORWARD ? forward_head : backward_head)(c, side, row / heads, h);
		for (int64_t i = 0; i < c->head_dim; i++)
			expect_element(c,
				       c->pass == FORWARD ? of_side(expected, "*_out", side)
							  : of_side(expected, "d*", side),
				       row, i,
				       c->pass == BACKWARD ? h->dv[i]
				       : c->norm_last      ? h->xhat[i]
							   : h->o[i]);
	}
	if (c->pass == BACKWARD)
		check_sums(c, side, heads, all, there ? rows : 0);
	free(all);
}

static void check_rules(const struct test_case *c)
{
	single = c->dtype != EK_F64;
	case_expect(c);
	check_side(c, 'q', c->heads);
	check_side(c, 'k', c->k_heads);
}

TEST(the_reference_follows_the_rules)
{
	static const struct head_sizes shapes[] = {
		{1, 1, 1, 1, 2, 2},      {2, 3, 4, 2, 10, 6},   {1, 5, 2, 1, 17, 16},
		{2, 2, 3, 3, 64, 64},    {1, 33, 4, 1, 40, 20}, {1, 2, 2, 1, 257, 64},
		{1, 2, 1, 1, 1024, 512}, {1, 1030, 1, 1, 6, 4}, {2, 700, 3, 1, 4, 4}};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_EXTREME, FILL_OFFSET};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < ROPE_CASES; k++) {
			struct test_case c = rope_case(k, shapes[s]);
			c.filling = fillings[(s + k) % COUNT_OF(fillings)];
			c.accumulate = k % 5 == 0;
			case_normalise(&c);
			check_rules(&c);
		}
}

/* ---- accuracy: the same in binary64 ---- */

static void fill_angles(const struct test_case *c)
{
	struct operand *cosines = INPUT("cos"), *sines = INPUT("sin");
	for (int64_t row = 0; row < c->table_rows; row++)
		for (int64_t i = 0; i < cosines->cols; i++) {
			const double angle = (double)row * pow(10000, -(double)i / (double)cosines->cols);
			element_store(cosines->dtype, cosines->buffer.data, operand_row(cosines, row) + i,
				      cos(angle));
			element_store(sines->dtype, sines->buffer.data, operand_row(sines, row) + i,
				      sin(angle));
		}
}

static double largest(const double *x, int64_t n)
{
	double most = 0;
	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

/* The unit in the last place of binary32 numbers of that size. */
static double ulp(double x)
{
	return ldexp(1, ilogb(fmax(x, 1e-30)) - 23);
}

/* What docs/numerics.md promises of a head of q: ulps of results, of the largest number of the head; errors of gradients. */
static void check_head_accuracy(const struct test_case *c, int64_t row)
{
	static struct head h;
	const int64_t n = c->head_dim;
	const struct operand *y = EXPECTED("q_out"), *dq = EXPECTED("dq");
	double norm = 0, error = 0;
	read_head(c, 'q', c->heads, row / c->heads, row % c->heads, &h);
	for (int64_t i = 0; i < n; i++) {
		h.d[i] = value_at(INPUT("dq_out"), row, i, 0);
		norm += h.d[i] * h.d[i];
	}
	(c->pass == FORWARD ? forward_head : backward_head)(c, 'q', row / c->heads, &h);
	const double *want = c->norm_last ? h.xhat : h.o,
		     size = fmax(largest(want, n), largest(h.v, n) * (c->norm ? h.rstd : 1));
	for (int64_t i = 0; i < n && c->pass == FORWARD; i++) {
		const double ulps = fabs(value_at(y, row, i, 0) - want[i]) / ulp(size);
		EXPECT(ulps <= (c->norm ? 6 : 2), "%s: row %lld, column %lld is %.2f ulp off", case_text(c),
		       (long long)row, (long long)i, ulps);
	}
	for (int64_t i = 0; i < n && c->pass == BACKWARD; i++)
		error = fmax(error, fabs(value_at(dq, row, i, 0) - h.dv[i]));
	EXPECT(error <= 1e-6 * sqrt(norm) * (c->norm ? h.rstd : 1), "%s: row %lld: dq is %.2g off",
	       case_text(c), (long long)row, error);
}

TEST(results_are_as_exact_as_promised)
{
	static const struct head_sizes shapes[] = {
		{1, 40, 2, 2, 64, 64}, {1, 40, 2, 1, 128, 96}, {2, 20, 3, 1, 256, 256}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < 64; k++) {
			struct test_case c = case_make_heads(&ek_ops[FIRST_ROPE_OP + k / 2 % ROPE_OPS],
							     k % 2 ? BACKWARD : FORWARD,
							     (struct dtype_pair){EK_F32, EK_F32}, shapes[s]);
			case_choose(&c, k * 7 % case_choice_count(&c));
			c.seed = (uint64_t)k;
			c.filling = FILL_DECIMALS;
			case_drop(&c, "positions");
			case_fill(&c);
			fill_angles(&c);
			case_run(reference(), &c, &case_expected);
			single = false;
			for (int64_t row = 0; row < c.batch * c.seq * c.heads; row++)
				check_head_accuracy(&c, row);
		}
}

/* ---- gradients ---- */

/* The loss whose gradients backward gives: the sum of q_out dq_out and k_out dk_out; in `given` the inputs of forward. */
static struct operands given, found;

static double loss_of(const char *output, const char *gradient)
{
	const struct operand *y = operand_named(&found, output), *dy = INPUT(gradient);
	double sum = 0;
	for (int64_t r = 0; y->present && dy->present && r < dy->rows; r++)
		for (int64_t i = 0; i < dy->cols; i++)
			sum += element_value(EK_F64, y->buffer.data, operand_row(y, r) + i) *
			       element_value(EK_F64, dy->buffer.data, operand_row(dy, r) + i);
	return sum;
}

static double loss(const struct test_case *forward)
{
	ek_context *ctx = context_of((struct setting){"scalar", 1, PLAIN});
	EXPECT(outputs_compute(ctx, forward, &given, &found) == EK_OK, "%s: %s", case_text(forward),
	       ek_error(ctx));
	return loss_of("q_out", "dq_out") + loss_of("k_out", "dk_out");
}

/* Central differences of forward in binary64. */
static void check_gradient(const struct test_case *forward, const struct test_case *backward,
			   const char *input, const char *gradient)
{
	struct operand *o = operand_named(&given, input);
	const struct operand *got = ACTUAL(gradient);
	const double h = 1e-6;
	for (int64_t at = 0; o->present && got->present && at < o->rows * o->cols; at++) {
		double *element =
			       (double *)(void *)o->buffer.data + operand_row(o, at / o->cols) + at % o->cols,
		       kept = *element;
		*element = kept + h;
		double above = loss(forward);
		*element = kept - h;
		double want = (above - loss(forward)) / (2 * h);
		*element = kept;
		double is = element_value(EK_F64, got->buffer.data,
					  operand_row(got, at / o->cols) + at % o->cols);
		EXPECT(fabs(is - want) < 1e-6 * (1 + fabs(want)),
		       "%s: %s[%lld] is %.9g, the difference quotient %.9g", case_text(backward), gradient,
		       (long long)at, is, want);
	}
}

TEST(gradients_are_difference_quotients)
{
	static const char *const names[][2] = {{"q", "dq"},
					       {"k", "dk"},
					       {"q_bias", "dq_bias"},
					       {"k_bias", "dk_bias"},
					       {"q_weight", "dq_weight"},
					       {"k_weight", "dk_weight"}};
	for (int op = 0; op < ROPE_OPS; op++)
		for (int turn = 0; turn < 24; turn++) {
			struct test_case backward = rope_case(
						 op + ROPE_OPS,
						 (struct head_sizes){2, 2, 2, 1, 5, 2 + turn % 2 * 2}),
					 forward;
			backward.dtype = backward.weight_dtype = EK_F64;
			case_choose(&backward, turn % case_choice_count(&backward));
			backward.present = ~UINT32_C(0);
			backward.seed = (uint64_t)turn;
			case_normalise(&backward);
			forward = backward;
			forward.pass = FORWARD;
			forward.present = ~UINT32_C(0);
			forward.heads_first = 0;
			memset(forward.over, 0, sizeof forward.over);
			case_normalise(&forward);
			case_expect(&backward);
			case_run(context_of((struct setting){"scalar", 1, PLAIN}), &backward, &case_actual);
			EXPECT(inputs_fill(reference(), &forward, &given) == EK_OK, "%s",
			       ek_error(reference()));
			for (int i = 0; i < given.op->operand_count; i++) { /* the values that backward had */
				const struct operand *from = INPUT(given.op->operands[i].name);
				for (int64_t r = 0; from->present && r < given.of[i].rows; r++)
					memcpy(given.of[i].buffer.data + operand_row(&given.of[i], r) * 8,
					       from->buffer.data + operand_row(from, r) * 8,
					       (size_t)from->cols * 8);
			}
			for (int i = 0; i < COUNT_OF(names); i++)
				check_gradient(&forward, &backward, names[i][0], names[i][1]);
		}
}
