/* Two loops of cpu_fused_dt.inc.h for a dtype OUTER, that of x, dy, the gate and their gradients. Each element is
 * read, computed and rounded in one loop. Included by cpu_fused_dt.inc.h.
 * Makes: P(make_dt), P(write_dt_row). SPDX-License-Identifier: MIT */
#define D(word) PASTE(OUTER, word)
#define P(name) PASTE(name, PASTE(ACT, OUTER))

INLINE vec P(read)(const void *row, int64_t i, int n)
{
	const D(element) *from = (const D(element) *)row + i;
	return n == N(W) ? D(load)(from) : D(load_part)(from, n);
}

/* The affine result. */
INLINE vec P(affine)(vec x, const struct N(stats) *stats, const struct N(affine) *f, int64_t i, int n)
{
	return V(fma)(N(xhat)(x, stats, true), N(take)(f->weight + (i & f->weight_mask), n),
		      N(take)(f->bias + (i & f->bias_mask), n));
}

/* Rule 11 for n (1 … W) columns from i on: keeps what the later passes need, and gives dgate. `kind` is a constant. */
INLINE vec P(keep_terms)(const struct N(dt_row) *s, const struct N(stats) *stats, const struct N(affine) *f, int64_t i,
			 int n, const enum dt_form kind, vec value, vec slope)
{
	vec x = P(read)(s->x, i, n), dy = P(read)(s->dy, i, n), input = x, dt = dy, dgate = dy;
	if (kind == DT_OF_ACTIVATION) {
		dt = V(mul)(dy, slope);
	} else if (kind == DT_OF_GATE) {
		dgate = V(mul)(V(mul)(dy, P(affine)(x, stats, f, i, n)), slope);
		dt = V(mul)(dy, value);
	} else {
		input = V(mul)(x, value);
		N(put)(s->value + i, value, n);
		N(put)(s->slope + i, slope, n);
	}
	N(put)(s->dt + i, dt, n);
	if (kind != DT_OF_ACTIVATION || sizeof(D(element)) != sizeof(real))
		N(put)(s->input + i, input, n);
	return dgate;
}

/* What the activation is applied to: the affine result or the gate; n (1 … W) columns from i on. */
INLINE vec P(activated)(const struct N(dt_row) *s, const struct N(stats) *stats, const struct N(affine) *f, int64_t i,
			int n, const enum dt_form kind)
{
	return kind == DT_OF_ACTIVATION ? P(affine)(P(read)(s->x, i, n), stats, f, i, n) : P(read)(s->gate, i, n);
}

/* Columns span of a row. Meanwhile x, dy and the gate are fetched from elsewhere. */
INLINE void P(make)(const struct N(dt_row) *given, const struct N(stats) *row_stats, const struct N(affine) *affine,
		    struct span span, const struct fetch ahead[3], const enum dt_form kind, const ek_activation activation)
{
	const struct N(dt_row) s = *given; /* copies, which no store of the loop can change */
	const struct N(stats) stats = *row_stats;
	const struct N(affine) f = *affine;
	struct fetch fetch[3] = {ahead[0], ahead[1], ahead[2]};
	D(element) dgate[SEGMENT];
	int64_t i = span.from;
	for (; i + N(STEP) <= span.to; i += N(STEP)) {
		vec t[2], slope[2], d[2];
		UNROLL for (int k = 0; k < 3; k++)
			if (k < 2 || kind != DT_OF_ACTIVATION)
				fetch_ahead(&fetch[k], N(STEP) * (int)sizeof(D(element)));
		UNROLL for (int k = 0; k < 2; k++)
			t[k] = P(activated)(&s, &stats, &f, i + k * N(W), N(W), kind);
		V(activate_and_slope)(activation, t, slope);
		UNROLL for (int k = 0; k < 2; k++)
			d[k] = P(keep_terms)(&s, &stats, &f, i + k * N(W), N(W), kind, t[k], slope[k]);
		if (kind == DT_OF_GATE) {
			D(in_order)(d);
			D(store2)(dgate + (i - span.from), d);
		}
	}
	for (; i < span.to; i += N(W)) {
		int n = (int)smaller(N(W), span.to - i);
		vec t[2] = {P(activated)(&s, &stats, &f, i, n, kind), V(splat)(0)}, slope[2];
		V(activate_and_slope_tail)(activation, t, slope);
		vec d = P(keep_terms)(&s, &stats, &f, i, n, kind, t[0], slope[0]);
		if (kind == DT_OF_GATE)
			D(store_part)(dgate + (i - span.from), d, n);
	}
	if (kind == DT_OF_GATE && s.dgate)
		copy_out(dgate, (span.to - span.from) * (int64_t)sizeof *dgate, (D(element) *)s.dgate + span.from,
			 s.nontemporal);
}

/* A loop for each activation, so that its constants stay in registers. */
INLINE void P(make_kind)(const struct N(dt_row) *s, const struct N(stats) *stats, const struct N(affine) *f,
			 struct span span, const struct fetch ahead[3], const enum dt_form kind)
{
#define MAKE(number, name)                                       \
	case number:                                             \
		P(make)(s, stats, f, span, ahead, kind, number); \
		break;
	switch (s->activation) {
		EK_ACTIVATIONS(MAKE)
	default:
		break;
	}
#undef MAKE
}

/* Of both norms: the activation costs far more than what RMSNorm could leave out. */
static void P(make_dt)(const struct N(dt_row) *s, const struct N(stats) *stats, const struct N(affine) *f,
		       struct span span, const struct fetch ahead[3])
{
	if (s->kind == DT_OF_GATE_FIRST)
		P(make_kind)(s, stats, f, span, ahead, DT_OF_GATE_FIRST);
	else if (s->kind == DT_OF_GATE)
		P(make_kind)(s, stats, f, span, ahead, DT_OF_GATE);
	else
		P(make_kind)(s, stats, f, span, ahead, DT_OF_ACTIVATION);
}

/* n (1 … W) columns of dx from i on, and of dgate where the gate comes first. */
INLINE vec P(dx_terms)(const struct N(dt_row) *s, const struct N(grad_row) *r, const struct N(affine) *f, int64_t i,
		       int n, const bool first, const bool centred, vec *dgate)
{
	vec dx = N(dx)(N(take)(r->x + i, n), N(take)(r->dy + i, n), N(take)(f->weight + (i & f->weight_mask), n), r, centred);
	if (!first)
		return dx;
	*dgate = V(mul)(V(mul)(dx, P(read)(s->x, i, n)), N(take)(s->slope + i, n));
	return V(mul)(dx, N(take)(s->value + i, n));
}

/* Columns span. With nontemporal, dx + span.from is aligned to a line. */
INLINE void P(write)(const struct N(dt_row) *given, const struct N(grad_row) *row, const struct N(affine) *affine,
		     struct span span, const bool first, const bool centred, const bool nontemporal)
{
	const struct N(dt_row) s = *given; /* copies, which no store of the loop can change */
	const struct N(grad_row) r = *row;
	const struct N(affine) f = *affine;
	D(element) *dx = s.dx, dgate[SEGMENT];
	int64_t i = span.from;
	for (; i + N(STEP) <= span.to; i += N(STEP)) {
		vec v[2], d[2];
		UNROLL for (int k = 0; k < 2; k++)
			v[k] = P(dx_terms)(&s, &r, &f, i + k * N(W), N(W), first, centred, &d[k]);
		D(in_order)(v);
		if (nontemporal)
			D(store2_nontemporal)(dx + i, v);
		else
			D(store2)(dx + i, v);
		if (first) {
			D(in_order)(d);
			D(store2)(dgate + (i - span.from), d);
		}
	}
	for (; i < span.to; i += N(W)) {
		int n = (int)smaller(N(W), span.to - i);
		vec d = V(splat)(0), v = P(dx_terms)(&s, &r, &f, i, n, first, centred, &d);
		D(store_part)(dx + i, v, n);
		if (first)
			D(store_part)(dgate + (i - span.from), d, n);
	}
	if (first && s.dgate && span.from < span.to) /* a head may reach into the last segment */
		copy_out(dgate, (span.to - span.from) * (int64_t)sizeof *dgate, (D(element) *)s.dgate + span.from,
			 s.nontemporal);
}

static void P(write_dt_row)(const struct N(dt_row) *s, const struct N(grad_row) *r, const struct N(affine) *f,
			      struct span span, bool centred, bool nontemporal)
{
#define WRITE(first, centred)                                             \
	if (nontemporal)                                                  \
		P(write)(s, r, f, span, first, centred, true);            \
	else                                                              \
		P(write)(s, r, f, span, first, centred, false)
	if (s->kind == DT_OF_GATE_FIRST && centred) {
		WRITE(true, true);
	} else if (s->kind == DT_OF_GATE_FIRST) {
		WRITE(true, false);
	} else if (centred) {
		WRITE(false, true);
	} else {
		WRITE(false, false);
	}
#undef WRITE
}

#undef D
#undef P
#undef OUTER
