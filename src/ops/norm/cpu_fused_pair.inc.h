/* Two loops of the fused forward kernel for a pair of dtypes: OUTER of x or y, INNER of the residual before or after the
 * norm. Each element is read, computed and rounded in one loop. Included by cpu_fused.inc.h.
 * Makes: P(make), P(write_centred), P(write_rms). SPDX-License-Identifier: MIT */
#define D(word) PASTE(OUTER, word)
#define E(word) PASTE(INNER, word)
#define P(name) PASTE(name, PASTE(PASTE(ACT, OUTER), INNER))

/* Rule 8. `rounded` receives h as it is stored, where that is not in real numbers. */
INLINE void P(make_h)(const struct N(parts) *p, int64_t n, real *to, E(element) *rounded, const bool has_residual)
{
	const D(element) *x = p->x;
	const E(element) *residual = p->residual;
	const bool rounds = has_residual && sizeof *rounded != sizeof *to;
	int64_t i = 0;
	for (; i + N(STEP) <= n; i += N(STEP)) {
		vec h[2];
		UNROLL for (int k = 0; k < 2; k++) {
			int64_t at = i + k * N(W);
			h[k] = V(add)(D(load)(x + at), V(load)(p->x_bias + (at & p->x_bias_mask)));
			if (has_residual)
				h[k] = V(add)(h[k], E(load)(residual + at));
		}
		if (rounds) {
			E(in_order)(h);
			E(store2)(rounded + i, h);
			h[0] = E(load)(rounded + i);
			h[1] = E(load)(rounded + i + N(W));
		}
		V(store)(to + i, h[0]);
		V(store)(to + i + N(W), h[1]);
	}
	for (; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		vec h = V(add)(D(load_part)(x + i, left), V(load_part)(p->x_bias + (i & p->x_bias_mask), left));
		if (has_residual)
			h = V(add)(h, E(load_part)(residual + i, left));
		if (rounds) {
			E(store_part)(rounded + i, h, left);
			h = E(load_part)(rounded + i, left);
		}
		V(store_part)(to + i, h, left);
	}
}

/* n is at most SEGMENT. Stores of h past the caches come in a loop of their own: others would wait for them. */
static void P(make)(const struct N(parts) *p, int64_t n, real *to, void *h, bool nontemporal)
{
	E(element) rounded[SEGMENT];
	const bool is_real = sizeof *rounded == sizeof *to;
	if (!p->residual) {
		P(make_h)(p, n, to, rounded, false);
		return;
	}
	P(make_h)(p, n, to, rounded, true);
	if (h)
		copy_out(is_real ? (const void *)to : rounded, n * (int64_t)sizeof *rounded, h, nontemporal);
}

/* Columns span of y, rules 4 and 8. With nontemporal, y + span.from is aligned to a line. */
INLINE void P(write_y)(const struct N(result) *r, struct span span, const bool centred, const bool has_after,
		       const bool nontemporal)
{
	const struct N(result) c = *r; /* a copy, which no store of the loop can change */
	const E(element) *after = c.after;
	D(element) *y = c.y;
	int64_t i = span.from;
	for (; i + N(STEP) <= span.to; i += N(STEP)) {
		vec v[2];
		UNROLL for (int k = 0; k < 2; k++) {
			int64_t at = i + k * N(W);
			vec w = V(load)(c.affine.weight + (at & c.affine.weight_mask)), b = V(load)(c.affine.bias + (at & c.affine.bias_mask));
			v[k] = V(fma)(N(xhat)(V(load)(c.x + at), &c.stats, centred), w, b);
			if (has_after)
				v[k] = V(add)(v[k], E(load)(after + at));
		}
		D(in_order)(v);
		if (nontemporal)
			D(store2_nontemporal)(y + i, v);
		else
			D(store2)(y + i, v);
	}
	for (; i < span.to; i += N(W)) {
		int n = (int)smaller(N(W), span.to - i);
		vec w = V(load_part)(c.affine.weight + (i & c.affine.weight_mask), n);
		vec b = V(load_part)(c.affine.bias + (i & c.affine.bias_mask), n);
		vec v = V(fma)(N(xhat)(V(load_part)(c.x + i, n), &c.stats, centred), w, b);
		D(store_part)(y + i, has_after ? V(add)(v, E(load_part)(after + i, n)) : v, n);
	}
}

INLINE void P(write)(const struct N(result) *r, int64_t n, bool nontemporal, const bool centred, const bool has_after)
{
	struct span head = {0, head_of(r->y, sizeof(D(element)), n, nontemporal)}, rest = {head.to, n};
	if (!nontemporal) {
		P(write_y)(r, rest, centred, has_after, false);
		return;
	}
	P(write_y)(r, head, centred, has_after, false);
	P(write_y)(r, rest, centred, has_after, true);
}

#define WRITE(name, centred)                                                                                       \
	static void P(name)(const struct N(result) *r, int64_t n, bool nontemporal)                                \
	{                                                                                                          \
		if (r->after)                                                                                      \
			P(write)(r, n, nontemporal, centred, true);                                                \
		else                                                                                               \
			P(write)(r, n, nontemporal, centred, false);                                               \
	}
WRITE(write_centred, true)
WRITE(write_rms, false)
#undef WRITE

#undef D
#undef E
#undef P
#undef OUTER
#undef INNER
