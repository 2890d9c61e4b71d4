/* The rules of the numerics contract written a second time, for one type of arithmetic, as a reader would
 * on paper: explicit lists of terms, a recursive tree, no loop shared between two sums. test_rules.c
 * includes it twice. Parameters: REAL (float or double), NAME(x) (x with a suffix), FMA, SQRT.
 * Nothing here comes from src/ but the number of rows in a slot, and the activations and their slopes: test_math_errors.c
 * bounds those against double precision (binary64: MPFR), test_math.c has every level equal the reference.
 * SPDX-License-Identifier: MIT */

/* Rule 2, the tree: neighbours first, so the left half of an aligned span is complete before the right. */
static REAL NAME(tree)(const REAL *list, int64_t count, int64_t first, int64_t span)
{
	if (span == 1)
		return list[first];
	REAL left = NAME(tree)(list, count, first, span / 2);
	if (first + span / 2 >= count)
		return left; /* a missing partner adds nothing */
	return left + NAME(tree)(list, count, first + span / 2, span / 2);
}

static REAL NAME(fold)(const REAL *list, int64_t count)
{
	int64_t span = 1;
	while (span < count)
		span *= 2;
	return NAME(tree)(list, count, 0, span);
}

/* Rule 2, the lanes: the sum of a[i] * b[i] by fma, or of a[i] alone where b is NULL. */
static REAL NAME(segment)(const REAL *a, const REAL *b, int64_t count)
{
	REAL lanes[256];
	int64_t used = count < 256 ? count : 256;
	for (int64_t lane = 0; lane < used; lane++) {
		REAL sum = 0;
		for (int64_t i = lane; i < count; i += 256)
			sum = b ? FMA(a[i], b[i], sum) : sum + a[i];
		lanes[lane] = sum;
	}
	return NAME(fold)(lanes, used);
}

static REAL NAME(rowsum)(const REAL *a, const REAL *b, int64_t cols)
{
	int64_t segments = (cols + 1023) / 1024;
	REAL *sums = list_of(segments, sizeof(REAL));
	for (int64_t s = 0; s < segments; s++) {
		int64_t count = s + 1 < segments ? 1024 : cols - s * 1024;
		sums[s] = NAME(segment)(a + s * 1024, b ? b + s * 1024 : NULL, count);
	}
	REAL sum = NAME(fold)(sums, segments) + (REAL)0;
	free(sums);
	return sum;
}

/* Rule 3: the statistics of one row. */
struct NAME(stats) {
	REAL mean, mean_lo, rstd;
};

static struct NAME(stats) NAME(statistics)(int norm, const REAL *x, int64_t cols, REAL eps)
{
	struct NAME(stats) stats = {0, 0, 0};
	REAL n = (REAL)cols;
	if (norm == EK_RMS_NORM) {
		stats.rstd = 1 / SQRT(NAME(rowsum)(x, x, cols) / n + eps);
		return stats;
	}
	REAL m0 = NAME(rowsum)(x, NULL, cols) / n;
	REAL *d = list_of(cols, sizeof(REAL));
	for (int64_t i = 0; i < cols; i++)
		d[i] = x[i] - m0;
	REAL c = NAME(rowsum)(d, NULL, cols) / n;
	REAL v = FMA(-c, c, NAME(rowsum)(d, d, cols) / n);
	stats.mean = m0 + c;
	stats.mean_lo = (m0 - stats.mean) + c;
	stats.rstd = 1 / SQRT((v < 0 ? (REAL)0 : v) + eps);
	free(d);
	return stats;
}

/* Rule 13: columns that share statistics. */
static int64_t NAME(group_cols)(const struct test_case *c)
{
	return c->group_cols ? c->group_cols : c->cols;
}

/* Rule 3 for each group of a row, or what the caller gives: one after another. */
static struct NAME(stats) *NAME(group_statistics)(const struct test_case *c, const REAL *x, int64_t r,
						  const REAL *mean, const REAL *lo, const REAL *rstd)
{
	int64_t cols = NAME(group_cols)(c), groups = c->cols / cols;
	struct NAME(stats) *all = list_of(groups, sizeof *all);
	for (int64_t g = 0; g < groups; g++) {
		int64_t at = r * groups + g;
		all[g] = (struct NAME(stats)){mean ? mean[at] : 0, lo ? lo[at] : 0, rstd ? rstd[at] : 0};
		if (!rstd)
			all[g] = NAME(statistics)(c->op->kind, x + g * cols, cols, (REAL)c->eps);
	}
	return all;
}

/* Rule 4: the normalized row. */
static void NAME(normalise)(const struct test_case *c, const REAL *x, const struct NAME(stats) *all, REAL *xhat)
{
	for (int64_t i = 0; i < c->cols; i++) {
		struct NAME(stats) s = all[i / NAME(group_cols)(c)];
		xhat[i] = c->op->kind == EK_RMS_NORM ? x[i] * s.rstd
						     : FMA(x[i] - s.mean, s.rstd, -(s.mean_lo * s.rstd));
	}
}

static REAL *NAME(widened)(const struct operand *o, int64_t row)
{
	if (!o->present)
		return NULL;
	REAL *list = list_of(o->cols, sizeof(REAL));
	for (int64_t i = 0; i < o->cols; i++)
		list[i] = (REAL)element_value(o->dtype, o->buffer.data, row * o->stride + i);
	return list;
}

/* A number written in a dtype, and read again. */
static REAL NAME(as)(ek_dtype dtype, REAL value)
{
	double kept = 0;
	struct operand one = {.present = true, .dtype = dtype, .buffer = {.data = (void *)&kept}};
	put(&one, 0, (double)value);
	return (REAL)element_value(dtype, &kept, 0);
}

static void NAME(add)(REAL *list, const REAL *other, int64_t cols)
{
	for (int64_t i = 0; other && i < cols; i++)
		list[i] = list[i] + other[i];
}

/* Rule 10: 1 + weight for weight. */
static REAL *NAME(weights)(const struct test_case *c)
{
	REAL *weight = NAME(widened)(INPUT("weight"), 0);
	for (int64_t i = 0; weight && c->weight_offset && i < c->cols; i++)
		weight[i] = 1 + weight[i];
	return weight;
}

/* Rule 11. */
static REAL NAME(activated)(const struct test_case *c, REAL t)
{
	return c->activation == EK_SIGMOID     ? MATH_NAME(sigmoid)(t)
	       : c->activation == EK_SILU      ? MATH_NAME(silu)(t)
	       : c->activation == EK_GELU      ? MATH_NAME(gelu)(t)
	       : c->activation == EK_GELU_TANH ? MATH_NAME(gelu_tanh)(t)
					       : t;
}

static REAL NAME(slope)(const struct test_case *c, REAL t)
{
	REAL slope = 1;
	if (c->activation == EK_SIGMOID)
		(void)MATH_NAME(sigmoid_and_slope)(t, &slope);
	if (c->activation == EK_SILU)
		(void)MATH_NAME(silu_and_slope)(t, &slope);
	if (c->activation == EK_GELU)
		(void)MATH_NAME(gelu_and_slope)(t, &slope);
	if (c->activation == EK_GELU_TANH)
		(void)MATH_NAME(gelu_tanh_and_slope)(t, &slope);
	return slope;
}

/* Rule 8: what the norm takes, x itself or h. */
static REAL *NAME(norm_input)(const struct test_case *c, int64_t r)
{
	REAL *h = NAME(widened)(INPUT("x"), r), *bias = NAME(widened)(INPUT("x_bias"), 0);
	NAME(add)(h, bias, c->cols);
	if (c->gate_first) {
		REAL *gate = NAME(widened)(INPUT("gate"), r);
		for (int64_t i = 0; i < c->cols; i++)
			h[i] = h[i] * NAME(activated)(c, gate[i]);
		free(gate);
	}
	if (c->pass == FORWARD && INPUT("residual")->present) {
		struct operand *out = ACTUAL("h");
		REAL *residual = NAME(widened)(INPUT("residual"), r);
		NAME(add)(h, residual, c->cols);
		for (int64_t i = 0; i < c->cols; i++)
			h[i] = NAME(as)(INPUT("residual")->dtype, h[i]);
		for (int64_t i = 0; i < c->cols; i++)
			put(out, r * out->stride + i, (double)h[i]);
		free(residual);
	}
	free(bias);
	return h;
}

/* Rule 10: xhat before it is multiplied. */
static void NAME(round_each)(const struct test_case *c, REAL *xhat)
{
	bool is_h = c->pass == FORWARD && INPUT("residual")->present;
	ek_dtype dtype = is_h ? INPUT("residual")->dtype : INPUT("x")->dtype;
	for (int64_t i = 0; c->rounding == EK_ROUND_EACH && i < c->cols; i++)
		xhat[i] = NAME(as)(dtype, xhat[i]);
}

static void NAME(forward)(const struct test_case *c)
{
	REAL *weight = NAME(weights)(c), *bias = NAME(widened)(INPUT("bias"), 0);
	REAL *xhat = list_of(c->cols, sizeof(REAL));
	struct operand *out = ACTUAL("y");
	for (int64_t r = 0; r < c->rows; r++) {
		REAL *x = NAME(norm_input)(c, r), *after = NAME(widened)(INPUT("residual_after"), r),
		     *gate = NAME(widened)(INPUT("gate"), r);
		struct NAME(stats) *s = NAME(group_statistics)(c, x, r, NULL, NULL, NULL);
		int64_t groups = c->cols / NAME(group_cols)(c);
		NAME(normalise)(c, x, s, xhat);
		NAME(round_each)(c, xhat);
		for (int64_t i = 0; i < c->cols; i++) {
			REAL y = weight && bias ? FMA(xhat[i], weight[i], bias[i])
				 : weight       ? xhat[i] * weight[i]
				 : bias         ? xhat[i] + bias[i]
						: xhat[i];
			if ((after || (c->activation && !c->gate_first)) && c->rounding == EK_ROUND_EACH)
				y = NAME(as)(out->dtype, y);
			y = after           ? y + after[i]
			    : c->gate_first ? y
			    : gate          ? y * NAME(activated)(c, gate[i])
					    : NAME(activated)(c, y);
			put(out, r * out->stride + i, (double)y);
		}
		for (int64_t g = 0; g < groups; g++) {
			put(ACTUAL("mean"), r * groups + g, (double)s[g].mean);
			put(ACTUAL("rstd"), r * groups + g, (double)s[g].rstd);
			put(ACTUAL("mean_lo"), r * groups + g, (double)s[g].mean_lo);
		}
		free(x), free(after), free(gate), free(s);
	}
	free(xhat), free(weight), free(bias);
}

/* Rules 5 and 8: dx of one row. */
static void NAME(row_backward)(const struct test_case *c, const REAL *dy, const REAL *xhat,
			       const REAL *weight, const struct NAME(stats) *s, int64_t r, REAL *dx)
{
	int64_t cols = NAME(group_cols)(c);
	REAL *g = list_of(c->cols, sizeof(REAL)), n = (REAL)cols;
	for (int64_t i = 0; i < c->cols; i++)
		g[i] = weight ? dy[i] * weight[i] : dy[i];
	for (int64_t first = 0; first < c->cols; first += cols) {
		REAL a = NAME(rowsum)(g + first, xhat + first, cols) / n,
		     b = NAME(rowsum)(g + first, NULL, cols) / n;
		for (int64_t i = first; i < first + cols; i++) {
			REAL value = c->op->kind == EK_RMS_NORM ? FMA(-xhat[i], a, g[i])
								: g[i] - FMA(xhat[i], a, b);
			dx[i] = value * s[first / cols].rstd;
		}
	}
	REAL *dh = NAME(widened)(INPUT("dh"), r);
	NAME(add)(dx, dh, c->cols);
	free(g), free(dh);
}

static void NAME(put_row)(struct operand *out, int64_t r, const REAL *row, int64_t cols)
{
	for (int64_t i = 0; i < cols; i++)
		put(out, r * out->stride + i, (double)row[i]);
}

/* Rule 6: the sum over rows of dy * xhat, or of dy, in one column; tables[row][col]. */
static REAL NAME(column)(REAL *const *dy, REAL *const *xhat, int64_t rows, int64_t cols, int64_t col)
{
	int64_t per_slot = ek_slot_rows(rows, cols), slots = (rows + per_slot - 1) / per_slot;
	if (rows == 0)
		return 0;
	REAL *sums = list_of(slots, sizeof(REAL));
	for (int64_t k = 0; k < slots; k++) {
		int64_t end = (k + 1) * per_slot < rows ? (k + 1) * per_slot : rows;
		sums[k] = 0;
		for (int64_t chunk = k * per_slot; chunk < end; chunk += 32) {
			REAL sum = 0;
			for (int64_t r = chunk; r < end && r < chunk + 32; r++)
				sum = xhat ? FMA(dy[r][col], xhat[r][col], sum) : sum + dy[r][col];
			sums[k] += sum;
		}
	}
	REAL sum = NAME(fold)(sums, slots) + (REAL)0;
	free(sums);
	return sum;
}

static void NAME(column_gradient)(const struct test_case *c, REAL *const *dy, REAL *const *xhat,
				  struct operand *out)
{
	for (int64_t i = 0; out->present && i < c->cols; i++) {
		REAL sum = NAME(column)(dy, xhat, c->rows, c->cols, i);
		REAL held = (REAL)element_value(out->dtype, out->buffer.data, i);
		put(out, i, (double)(c->accumulate ? held + sum : sum));
	}
}

static void NAME(backward)(const struct test_case *c)
{
	REAL *weight = NAME(weights)(c);
	REAL *bias = NAME(widened)(INPUT("bias"), 0);
	REAL *mean = NAME(widened)(INPUT("mean"), 0), *rstd = NAME(widened)(INPUT("rstd"), 0),
	     *lo = NAME(widened)(INPUT("mean_lo"), 0);
	REAL **dy = list_of(c->rows, sizeof(REAL *)), **xhat = list_of(c->rows, sizeof(REAL *)),
	     **dx = list_of(c->rows, sizeof(REAL *));
	for (int64_t r = 0; r < c->rows; r++) {
		REAL *x = NAME(norm_input)(c, r);
		struct NAME(stats) *s = NAME(group_statistics)(c, x, r, mean, lo, rstd);
		dy[r] = INPUT("dy")->present ? NAME(widened)(INPUT("dy"), r) : list_of(c->cols, sizeof(REAL));
		xhat[r] = list_of(c->cols, sizeof(REAL));
		dx[r] = list_of(c->cols, sizeof(REAL));
		NAME(normalise)(c, x, s, xhat[r]);
		REAL *gate = NAME(widened)(INPUT("gate"), r), *dgate = list_of(c->cols, sizeof(REAL));
		for (int64_t i = 0; c->activation && !c->gate_first && i < c->cols; i++) {
			REAL t = weight ? xhat[r][i] * weight[i] : xhat[r][i];
			if (bias)
				t = weight ? FMA(xhat[r][i], weight[i], bias[i]) : xhat[r][i] + bias[i];
			if (gate)
				dgate[i] = (dy[r][i] * t) * NAME(slope)(c, gate[i]);
			dy[r][i] = dy[r][i] * (gate ? NAME(activated)(c, gate[i]) : NAME(slope)(c, t));
		}
		NAME(row_backward)(c, dy[r], xhat[r], weight, s, r, dx[r]);
		REAL *given = NAME(widened)(INPUT("x"), r);
		for (int64_t i = 0; c->gate_first && i < c->cols; i++) {
			dgate[i] = (dx[r][i] * given[i]) * NAME(slope)(c, gate[i]);
			dx[r][i] = dx[r][i] * NAME(activated)(c, gate[i]);
		}
		NAME(put_row)(ACTUAL("dgate"), r, dgate, c->cols);
		free(gate), free(dgate), free(given);
		NAME(put_row)(ACTUAL("dx"), r, dx[r], c->cols);
		NAME(put_row)(ACTUAL("dresidual"), r, dx[r], c->cols);
		NAME(round_each)(c, xhat[r]);
		free(x), free(s);
	}
	NAME(column_gradient)(c, dy, xhat, ACTUAL("dweight"));
	NAME(column_gradient)(c, dy, NULL, ACTUAL("dbias"));
	NAME(column_gradient)(c, dx, NULL, ACTUAL("dx_bias"));
	for (int64_t r = 0; r < c->rows; r++)
		free(dy[r]), free(xhat[r]), free(dx[r]);
	free(dy), free(xhat), free(dx), free(weight), free(bias), free(mean), free(rstd), free(lo);
}
