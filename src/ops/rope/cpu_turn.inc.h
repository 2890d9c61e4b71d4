/* Turning the pairs of heads, rule 12 of docs/numerics.md, for numbers of the arithmetic and, where nothing else is done to a head,
 * from a tensor's elements to another's in registers. Included by cpu_heads.inc.h.
 * Makes: N(angles), N(set_angles), N(turn), N(direct_turn). SPDX-License-Identifier: MIT */

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

/* ---- from elements to elements ---- */

struct N(direct_turn) {
	/* The angles of halves in the order that the dtype's load2 has. */
	void (*order)(struct N(angles) *t, int64_t half);
	/* A head from x to y, after its bias, if there is one; half is a multiple of STEP. */
	void (*turn)(const struct ek_rope_call *c, const struct N(angles) *t, const void *x, const void *bias, void *y,
		     bool nontemporal);
};

/* No bias, real numbers, or elements of the tensors' dtype. */
enum N(bias_form) { N(NO_BIAS), N(REAL_BIAS), N(SAME_BIAS) };

#define DIRECT(d)                                                                                                  \
	static void N(order_##d)(struct N(angles) *t, int64_t half)                                                \
	{                                                                                                          \
		real *const numbers[] = {t->cos, t->sin, t->sin + half};                                           \
		for (int k = 0; k < 3; k++)                                                                        \
			for (int64_t i = 0; i < half; i += N(STEP)) {                                              \
				vec v[2] = {V(load)(numbers[k] + i), V(load)(numbers[k] + i + N(W))};              \
				PASTE(d, in_order)(v);                                                             \
				V(store)(numbers[k] + i, v[0]);                                                    \
				V(store)(numbers[k] + i + N(W), v[1]);                                             \
			}                                                                                          \
	}                                                                                                          \
	INLINE void N(load_##d)(const enum N(bias_form) form, const PASTE(d, element) *x, const void *bias,        \
				int64_t i, vec v[2])                                                               \
	{                                                                                                          \
		vec b[2];                                                                                          \
		PASTE(d, load2)(x + i, v);                                                                         \
		if (form == N(NO_BIAS))                                                                            \
			return;                                                                                    \
		if (form == N(SAME_BIAS)) {                                                                        \
			PASTE(d, load2)((const PASTE(d, element) *)bias + i, b);                                   \
		} else {                                                                                           \
			b[0] = V(load)((const real *)bias + i);                                                    \
			b[1] = V(load)((const real *)bias + i + N(W));                                             \
			PASTE(d, in_order)(b);                                                                     \
		}                                                                                                  \
		UNROLL for (int k = 0; k < 2; k++) v[k] = V(add)(v[k], b[k]);                                      \
	}                                                                                                          \
	INLINE void N(turn_as_##d)(const enum N(bias_form) form, const bool nontemporal,                           \
				   const struct N(angles) *t, const PASTE(d, element) *x, const void *bias,        \
				   PASTE(d, element) *y, int64_t half)                                             \
	{                                                                                                          \
		for (int64_t i = 0; i < half; i += N(STEP)) {                                                      \
			vec a[2], b[2], first[2], second[2];                                                       \
			N(load_##d)(form, x, bias, i, a);                                                          \
			N(load_##d)(form, x, bias, half + i, b);                                                   \
			UNROLL for (int k = 0; k < 2; k++) {                                                       \
				const int64_t at = i + k * N(W);                                                   \
				const vec cos = V(load)(t->cos + at);                                              \
				first[k] = V(fma)(a[k], cos, V(mul)(b[k], V(load)(t->sin + at)));                  \
				second[k] = V(fma)(b[k], cos, V(mul)(a[k], V(load)(t->sin + half + at)));          \
			}                                                                                          \
			if (nontemporal) {                                                                         \
				PASTE(d, store2_nontemporal)(y + i, first);                                        \
				PASTE(d, store2_nontemporal)(y + half + i, second);                                \
			} else {                                                                                   \
				PASTE(d, store2)(y + i, first);                                                    \
				PASTE(d, store2)(y + half + i, second);                                            \
			}                                                                                          \
		}                                                                                                  \
	}                                                                                                          \
	static void N(turn_##d)(const struct ek_rope_call *c, const struct N(angles) *t, const void *from,         \
				const void *bias, void *to, bool nontemporal)                                      \
	{                                                                                                          \
		const int64_t half = c->rotary_dim / 2, start = N(turn_start)(c), rest = start ? 0 : c->rotary_dim; \
		const PASTE(d, element) *x = from;                                                                 \
		PASTE(d, element) *y = to;                                                                         \
		if (x != y && c->head_dim > c->rotary_dim)                                                         \
			memcpy(y + rest, x + rest, (size_t)(c->head_dim - c->rotary_dim) * sizeof *x);             \
		if (!bias)                                                                                         \
			nontemporal ? N(turn_as_##d)(N(NO_BIAS), true, t, x + start, NULL, y + start, half)        \
				    : N(turn_as_##d)(N(NO_BIAS), false, t, x + start, NULL, y + start, half);      \
		else if (ek_bytes_of_dtype(c->weight_dtype) == sizeof(real))                                       \
			nontemporal ? N(turn_as_##d)(N(REAL_BIAS), true, t, x, bias, y, half)                      \
				    : N(turn_as_##d)(N(REAL_BIAS), false, t, x, bias, y, half);                    \
		else                                                                                               \
			nontemporal ? N(turn_as_##d)(N(SAME_BIAS), true, t, x, bias, y, half)                      \
				    : N(turn_as_##d)(N(SAME_BIAS), false, t, x, bias, y, half);                    \
	}
CONVERTED_DTYPES(DIRECT)
#undef DIRECT

#define ROW(d) [dtype_##d] = {N(order_##d), N(turn_##d)},
static const struct N(direct_turn) N(direct_turns)[dtype_end] = {CONVERTED_DTYPES(ROW)};
#undef ROW

/* Of heads to which nothing else is done; NULL: they become real numbers. y is stored past the caches in whole lines alone. */
INLINE const struct N(direct_turn) * N(direct_turn_of)(const struct ek_rope_heads *h)
{
	const struct ek_rope_call *c = h->call;
	const int64_t element = (int64_t)ek_bytes_of_dtype(c->dtype), *strides = h->side->y_strides;
	bool in_lines = (uintptr_t)h->side->y % LINE == 0 && N(turn_start)(c) * element % LINE == 0;
	for (int i = 0; i < 3; i++)
		in_lines = in_lines && strides[i] * element % LINE == 0;
	const bool simple = !c->norm && !c->interleaved && (!h->side->bias || c->rotary_dim == c->head_dim);
	const bool direct = simple && c->rotary_dim / 2 % N(STEP) == 0 && (in_lines || !h->nontemporal);
	return direct ? &N(direct_turns)[c->dtype] : NULL;
}
