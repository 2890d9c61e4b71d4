/* Rotary position embedding by rule 12 of docs/numerics.md, in the arithmetic `real`, slow and plain: this text is what every
 * kernel must equal bit for bit. A head at a time: its row is read, computed, and written.
 * Included by reference.c for binary32 and binary64. Parameters: real, fma_real, sqrt_real, NAME().
 * Makes: NAME(forward), NAME(backward). SPDX-License-Identifier: MIT */

#include "ops/fold.inc.h"

/* ---- the norm of a row of head_dim elements ---- */

/* Rule 2, of u, or accumulated as fma(u, v, lane). */
static real NAME(rowsum)(const real *u, const real *v, int64_t n)
{
	real lane[LANES] = {0};
	for (int64_t i = 0; i < n; i++)
		lane[i % LANES] = v ? fma_real(u[i], v[i], lane[i % LANES]) : lane[i % LANES] + u[i];
	return NAME(fold)(lane, LANES, 1) + 0;
}

/* Rules 3 and 4: xhat of x; returns rstd. */
static real NAME(normalize)(const struct ek_rope_call *c, const real *x, real *xhat)
{
	const int64_t count = c->head_dim;
	const real n = (real)count, eps = (real)c->eps;
	if (c->norm == EK_RMS_NORM) {
		const real rstd = 1 / sqrt_real(NAME(rowsum)(x, x, count) / n + eps);
		for (int64_t i = 0; i < count; i++)
			xhat[i] = x[i] * rstd;
		return rstd;
	}
	const real m0 = NAME(rowsum)(x, NULL, count) / n;
	for (int64_t i = 0; i < count; i++)
		xhat[i] = x[i] - m0;
	const real s = NAME(rowsum)(xhat, NULL, count), q = NAME(rowsum)(xhat, xhat, count);
	const real correction = s / n, mean = m0 + correction, mean_lo = (m0 - mean) + correction;
	const real v = fma_real(-correction, correction, q / n), var = v < 0 ? 0 : v;
	const real rstd = 1 / sqrt_real(var + eps);
	for (int64_t i = 0; i < count; i++)
		xhat[i] = fma_real(x[i] - mean, rstd, -(mean_lo * rstd));
	return rstd;
}

/* Rule 5: g becomes dx. */
static void NAME(norm_backward)(const struct ek_rope_call *c, const real *xhat, real rstd, real *g)
{
	const int64_t count = c->head_dim;
	const real n = (real)count, a = NAME(rowsum)(g, xhat, count), b = NAME(rowsum)(g, NULL, count);
	for (int64_t i = 0; i < count; i++) {
		if (c->norm == EK_RMS_NORM)
			g[i] = fma_real(-xhat[i], a / n, g[i]) * rstd;
		else
			g[i] = (g[i] - fma_real(xhat[i], a / n, b / n)) * rstd;
	}
}

/* ---- the turn ---- */

/* Of the pairs of a head, in place; back: the other way. */
static void NAME(turn)(const struct ek_rope_call *c, int64_t token, bool back, real *x)
{
	const int64_t row = ek_rope_row(c, token / c->seq, token % c->seq);
	for (int64_t i = 0; i < c->rotary_dim / 2; i++) {
		const int64_t a = ek_rope_first(c, i), b = a + ek_rope_distance(c);
		const real cos = (real)ek_read_element(c->cos, c->table_dtype, row * c->cos_stride + i);
		const real sin = (real)ek_read_element(c->sin, c->table_dtype, row * c->sin_stride + i);
		const real first = x[a], second = x[b];
		x[a] = fma_real(first, cos, back ? second * sin : -(second * sin));
		x[b] = fma_real(second, cos, back ? -(first * sin) : first * sin);
	}
}

/* ---- a head ---- */

/* The element of a head of a token where it starts. */
static int64_t NAME(start)(const struct ek_rope_call *c, const int64_t strides[3], int64_t token,
			   int64_t head)
{
	return token / c->seq * strides[0] + token % c->seq * strides[1] + head * strides[2];
}

static real NAME(weight)(const struct ek_rope_call *c, const struct ek_rope_side *side, int64_t i)
{
	if (!side->weight)
		return 1;
	const real weight = (real)ek_read_element(side->weight, c->weight_dtype, i);
	return c->weight_offset ? 1 + weight : weight;
}

/* v: the head after its bias. */
static void NAME(read_head)(const struct ek_rope_call *c, const struct ek_rope_side *side, int64_t token,
			    int64_t head, real *v)
{
	const int64_t start = NAME(start)(c, side->x_strides, token, head);
	for (int64_t i = 0; i < c->head_dim; i++) {
		v[i] = (real)ek_read_element(side->x, c->dtype, start + i);
		if (side->bias)
			v[i] = v[i] +
			       (real)ek_read_element(side->bias, c->weight_dtype, head * c->head_dim + i);
	}
}

static void NAME(write_head)(const struct ek_rope_call *c, const struct ek_rope_side *side, int64_t token,
			     int64_t head, const real *y)
{
	const int64_t start = NAME(start)(c, side->y_strides, token, head);
	for (int64_t i = 0; i < c->head_dim; i++)
		ek_write_element(side->y, c->dtype, start + i, y[i]);
}

static void NAME(forward_head)(const struct ek_rope_call *c, const struct ek_rope_side *side, int64_t token,
			       int64_t head)
{
	real x[EK_MAX_HEAD_DIM] = {0}, xhat[EK_MAX_HEAD_DIM];
	NAME(read_head)(c, side, token, head, x);
	if (c->norm && !c->norm_last) {
		(void)NAME(normalize)(c, x, xhat);
		for (int64_t i = 0; i < c->head_dim; i++)
			x[i] = xhat[i] * NAME(weight)(c, side, i);
	}
	NAME(turn)(c, token, false, x);
	if (c->norm_last)
		(void)NAME(normalize)(c, x, xhat);
	NAME(write_head)(c, side, token, head, c->norm_last ? xhat : x);
}

static void NAME(forward)(const struct ek_rope_call *c)
{
	for (int k = 0; k < c->side_count; k++)
		for (int64_t token = 0; token < c->batch * c->seq; token++)
			for (int64_t head = 0; head < c->sides[k].heads; head++)
				NAME(forward_head)(c, &c->sides[k], token, head);
}

/* ---- backward ---- */

/* What backward has of a head: d, the gradient after it is turned back; xhat of a norm before the turn; dv. */
struct NAME(gradients) {
	real d[EK_MAX_HEAD_DIM], xhat[EK_MAX_HEAD_DIM], dv[EK_MAX_HEAD_DIM];
};

static void NAME(backward_head)(const struct ek_rope_call *c, const struct ek_rope_side *side, int64_t token,
				int64_t head, struct NAME(gradients) * g)
{
	const int64_t start = NAME(start)(c, side->dy_strides, token, head);
	real x[EK_MAX_HEAD_DIM] = {0}, rstd = 1;
	for (int64_t i = 0; i < c->head_dim; i++)
		g->d[i] = (real)ek_read_element(side->dy, c->dtype, start + i);
	if (c->norm)
		NAME(read_head)(c, side, token, head, x);
	if (c->norm_last)
		NAME(turn)(c, token, false, x);
	if (c->norm)
		rstd = NAME(normalize)(c, x, g->xhat);
	if (c->norm_last)
		NAME(norm_backward)(c, g->xhat, rstd, g->d);
	NAME(turn)(c, token, true, g->d);
	const bool norm_first = c->norm && !c->norm_last;
	for (int64_t i = 0; i < c->head_dim; i++)
		g->dv[i] = norm_first ? g->d[i] * NAME(weight)(c, side, i) : g->d[i];
	if (norm_first)
		NAME(norm_backward)(c, g->xhat, rstd, g->dv);
}

/* The rows of a column sum: tokens with one of their heads, or, where head is -1, the heads of all tokens. */
struct NAME(sum) {
	const struct ek_rope_call *call;
	const struct ek_rope_side *side;
	int64_t head, rows;
};

/* Rule 6 for a chunk of rows: bias gradients add dv, those of weights d * xhat. */
static void NAME(add_chunk)(const struct NAME(sum) * s, int64_t first, int64_t end, real *slot)
{
	struct NAME(gradients) g = {0};
	real acc[EK_MAX_HEAD_DIM] = {0};
	const int64_t heads = s->side->heads, count = s->call->head_dim;
	for (int64_t row = first; row < end; row++) {
		const bool of_weight = s->head < 0;
		NAME(backward_head)
		(s->call, s->side, of_weight ? row / heads : row, of_weight ? row % heads : s->head, &g);
		for (int64_t i = 0; i < count; i++)
			acc[i] = of_weight ? fma_real(g.d[i], g.xhat[i], acc[i]) : acc[i] + g.dv[i];
	}
	for (int64_t i = 0; i < count; i++)
		slot[i] = slot[i] + acc[i];
}

/* Rule 6 for head_dim columns, with R of all `cols`; the gradient has them from element `at` on. */
static void NAME(column_sums)(const struct NAME(sum) * s, int64_t cols, real *slots, void *gradient,
			      int64_t at)
{
	const struct ek_rope_call *c = s->call;
	const int64_t per_slot = ek_slot_rows(s->rows, cols), count = ek_slot_count(s->rows, cols);
	for (int64_t k = 0; k < count; k++) {
		const int64_t end = (k + 1) * per_slot < s->rows ? (k + 1) * per_slot : s->rows;
		memset(slots + k * c->head_dim, 0, (size_t)c->head_dim * sizeof *slots);
		for (int64_t row = k * per_slot; row < end; row += CHUNK_ROWS)
			NAME(add_chunk)
		(s, row, row + CHUNK_ROWS < end ? row + CHUNK_ROWS : end, slots + k * c->head_dim);
	}
	for (int64_t i = 0; i < c->head_dim; i++) {
		real total = (count ? NAME(fold)(slots + i, count, c->head_dim) : 0) + 0;
		if (c->accumulate)
			total = (real)ek_read_element(gradient, c->gradient_dtype, at + i) + total;
		ek_write_element(gradient, c->gradient_dtype, at + i, total);
	}
}

/* The sums come first: dq may lie where dq_out or q does, and a head is written once it is read. */
static void NAME(backward)(const struct ek_rope_call *c, void *workspace)
{
	const int64_t tokens = c->batch * c->seq;
	for (int k = 0; k < c->side_count; k++) {
		const struct ek_rope_side *side = &c->sides[k];
		struct NAME(gradients) g = {0};
		for (int64_t head = 0; side->dbias && head < side->heads; head++)
			NAME(column_sums)
		(&(struct NAME(sum)){c, side, head, tokens}, side->heads * c->head_dim, workspace,
		 side->dbias, head * c->head_dim);
		if (side->dweight)
			NAME(column_sums)
		(&(struct NAME(sum)){c, side, -1, tokens * side->heads}, c->head_dim, workspace,
		 side->dweight, 0);
		for (int64_t token = 0; side->y && token < tokens; token++)
			for (int64_t head = 0; head < side->heads; head++) {
				NAME(backward_head)(c, side, token, head, &g);
				NAME(write_head)(c, side, token, head, g.dv);
			}
	}
}
