/* Turning the pairs of heads, rule 12 of docs/numerics.md, for numbers of the arithmetic. Included by cpu_heads.inc.h.
 * Makes: N(angles), N(set_angles), N(turn), N(turn_start). SPDX-License-Identifier: MIT */

/* The angles of a token, as they are multiplied: o = fma(x, cos, partner * sin). Of halves cos has rotary_dim / 2 numbers; sin has
 * those of the first elements of pairs and then those of the second. Interleaved both have a number for each element. */
struct N(angles) {
	real cos[EK_MAX_HEAD_DIM], sin[EK_MAX_HEAD_DIM];
};

/* back: the other way. */
static void N(set_angles)(const struct ek_rope_call *c, int64_t token, bool back, struct N(angles) *angles)
{
	real cosines[EK_MAX_HEAD_DIM / 2], sines[EK_MAX_HEAD_DIM / 2];
	const int64_t half = c->rotary_dim / 2, row = ek_rope_row(c, token / c->seq, token % c->seq);
	const struct N(tensor) cos_from = N(tensor_at)(c->cos, c->table_dtype, row * c->cos_stride),
			       sin_from = N(tensor_at)(c->sin, c->table_dtype, row * c->sin_stride);
	N(widen)(&sin_from, 0, half, sines);
	if (!c->interleaved) {
		N(widen)(&cos_from, 0, half, angles->cos);
		for (int64_t i = 0; i < half; i++) {
			angles->sin[i] = back ? sines[i] : -sines[i];
			angles->sin[half + i] = back ? -sines[i] : sines[i];
		}
		return;
	}
	N(widen)(&cos_from, 0, half, cosines);
	for (int64_t i = 0; i < half; i++) {
		angles->cos[2 * i] = angles->cos[2 * i + 1] = cosines[i];
		angles->sin[2 * i] = back ? sines[i] : -sines[i];
		angles->sin[2 * i + 1] = back ? -sines[i] : sines[i];
	}
}

/* x and y may be the same. */
INLINE void N(turn_halves)(const struct N(angles) *t, const real *x, real *y, int64_t half)
{
	for (int64_t i = 0; i < half; i += N(W)) {
		const int n = (int)smaller(N(W), half - i);
		const vec a = N(load)(x + i, n), b = N(load)(x + half + i, n), cos = N(load)(t->cos + i, n);
		N(store)(y + i, V(fma)(a, cos, V(mul)(b, N(load)(t->sin + i, n))), n);
		N(store)(y + half + i, V(fma)(b, cos, V(mul)(a, N(load)(t->sin + half + i, n))), n);
	}
}

/* Pairs are neighbours: two registers at a time, so that one lane has its partner in hand, too. */
INLINE void N(turn_neighbours)(const struct N(angles) *t, const real *x, real *y, int64_t count)
{
	for (int64_t i = 0; i < count; i += N(STEP)) {
		vec o[2];
		UNROLL for (int k = 0; k < 2; k++) {
			const int64_t at = i + k * N(W);
			const int n = (int)larger(0, smaller(N(W), count - at));
			const vec turned = V(mul)(V(partners)(x, at, n), N(load)(t->sin + at, n));
			o[k] = V(fma)(N(load)(x + at, n), N(load)(t->cos + at, n), turned);
		}
		UNROLL for (int k = 0; k < 2; k++)
			N(store)(y + i + k * N(W), o[k], (int)larger(0, smaller(N(W), count - i - k * N(W))));
	}
}

/* The first element of a head that turns. */
INLINE int64_t N(turn_start)(const struct ek_rope_call *c)
{
	return c->trailing ? c->head_dim - c->rotary_dim : 0;
}

/* A head. */
INLINE void N(turn)(const struct ek_rope_call *c, const struct N(angles) *t, const real *x, real *y)
{
	const int64_t start = N(turn_start)(c), rest = c->head_dim - c->rotary_dim, rest_at = start ? 0 : c->rotary_dim;
	if (c->interleaved)
		N(turn_neighbours)(t, x + start, y + start, c->rotary_dim);
	else
		N(turn_halves)(t, x + start, y + start, c->rotary_dim / 2);
	if (x != y && rest)
		memcpy(y + rest_at, x + rest_at, (size_t)rest * sizeof *x);
}
