/* Backward of a norm whose row fits the registers of its threads: x and dy are read once, dx is written once,
 * and the column sums of a slot of rows (rule 6) stay in registers while its threads walk its rows. Follows
 * slots.cu; rows.cu explains most constants. Further ones:
 *   HAS_RSTD                     given statistics (else they are recomputed)
 *   STAGES                       steps (of ROWS_AT_ONCE rows) that shared memory holds: the one in hand, and those fetched ahead
 *   KEEP                         what stays in registers between the two passes over a row: KEEP_… (layout.h)
 *   KEEP_WEIGHT                  where weight stays from row to row: KEEP_… (layout.h)
 *   FOLD_BLOCKS                  blocks of a cluster whose column sums are folded before they are written
 * A block has BLOCK_ROWS slots in hand, each walked by ROW_WARPS warps (of ROW_BLOCKS blocks); or, of narrow rows, several
 * a warp, each walked by ROW_THREADS threads, or by several times as many, which take its chunks by turns.
 * columns.cu adds up what the clusters write. SPDX-License-Identifier: MIT */

enum {
	NEEDS_DX = HAS_DX || HAS_DRESIDUAL || HAS_DX_BIAS || HAS_DGATE,
	HAS_THIRD = HAS_DH || HAS_GATE,
	KEEPS_ROWS = KEEP == KEEP_ROWS,
	HAS_LATE_THIRD = HAS_DH || GATE_IN || (HAS_GATE && !KEEPS_ROWS), /* it stays in the ring until dx is written */
	TENSORS = 2 + HAS_THIRD, /* in the ring: x, dy, and dh or the gate */
	SHIFT_BYTES = ACCESS == ACCESS_SHIFTED ? TRAYS_BYTES : 0,
	RING_BYTES = RING_BYTES_OF(STAGES, TENSORS, ROWS_AT_ONCE, TRAYS_BYTES),
	WORK_BYTES = RING_BYTES > FOLD_BYTES ? RING_BYTES : FOLD_BYTES
	/* shared memory: boards, trays in which dx is shifted, weight, ring of trays (later the fold), sums of the
	 * chunks where a slot has several and there is room */
};

/* A row in the ring, and in memory. */
struct source {
	u8 *tray;
	const u8 *row, *matrix;
	int dtype; /* a constant */
};

/* Starts the fetch of a thread's strips of a row, each into the place of a quad. */
DEVICE void fetch_row(struct source s, struct position p)
{
#if ACCESS == ACCESS_QUADS
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		const int bytes = BYTES_OF(s.dtype), strip = PER_QUAD * bytes;
		int c = column(p.first, j), left = (COLS - c) * bytes;
		u8 *to = s.tray + j * TRAY_STEP;
		const u8 *from = s.row + c * bytes;
		if (CAPACITY == COLS && strip == 16)
			fetch(to, from);
		else if (CAPACITY == COLS)
			fetch_8(to, from);
		else if (strip == 16)
			fetch_some(to, from, left >= strip ? strip : TAIL_ELEMENTS != 0 && left > 0 ? left : 0);
		else
			fetch_some_8(to, from, left >= strip ? strip : TAIL_ELEMENTS != 0 && left > 0 ? left : 0);
	}
#elif ACCESS == ACCESS_SHIFTED
	fetch_shifted(s.tray, s.row, s.matrix, p);
#else
	UNROLL
	for (int j = 0; j < QUADS; j++)
		*(quad *)(s.tray + j * TRAY_STEP) = s.dtype == ELEMENT ? load_elements(s.row, column(p.first, j)) : quad_of_strip(load_strip_as(s.row, column(p.first, j), s.dtype));
#endif
}

/* n quads of a fetched row, from quad j on; zeros past its end. */
DEVICE void take_fetched(quad *v, int n, struct source s, int j)
{
	if (ACCESS == ACCESS_SHIFTED)
		take_quads(v, n, s.tray + j * TRAY_STEP, (int)((u64)s.row & 15));
	UNROLL
	for (int i = 0; ACCESS != ACCESS_SHIFTED && i < n; i++)
		v[i] = load_fetched(s.tray + (j + i) * TRAY_STEP);
}

enum { ENDS_INSIDE = ROWS_AT_ONCE * SUB_ROWS > 1 }; /* a step may have rows in hand past the end of its slot */

/* A step of a walk: rows from `row` on, in a stage of the ring. Of several walkers of a slot, each skips the chunks of the
 * others. */
struct step {
	i64 row, end;
	int stage;
	int in_chunk, skip; /* rows */
};

/* The step `steps` later, at most a round of the ring, which is no longer than a chunk. */
DEVICE struct step step_after(struct step t, int steps)
{
	t.row += steps * ROWS_AT_ONCE;
	if (SUB_ROWS > 1) {
		t.in_chunk += steps * ROWS_AT_ONCE;
		t.row += t.in_chunk >= CHUNK_ROWS ? t.skip : 0;
		t.in_chunk %= CHUNK_ROWS;
	}
	t.stage = t.stage + steps >= STAGES ? t.stage + steps - STAGES : t.stage + steps;
	return t;
}

DEVICE struct source source_of(u8 *ring, int tensor, int u, struct step t, const struct backward_arguments *a)
{
	const i64 row = t.row + u;
	struct source s;
	s.tray = ring + ((t.stage * TENSORS + tensor) * ROWS_AT_ONCE + u) * TRAYS_BYTES;
	s.matrix = tensor == 0 ? a->x : tensor == 1 ? a->dy : NEIGHBOUR(a, dh);
	s.row = tensor == 0 ? a->x + row * a->x_stride : tensor == 1 ? a->dy + row * a->dy_stride : NEIGHBOUR_ROW(a, dh, row);
	s.dtype = tensor == 1 ? Y_ELEMENT : tensor == 2 ? NEIGHBOUR_ELEMENT : X_ELEMENT;
	return s;
}

DEVICE void fetch_step(u8 *ring, struct step t, const struct backward_arguments *a, struct position p)
{
	if (ACCESS == ACCESS_SHIFTED)
		sync_warp(); /* all have taken what was there */
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		if (t.row + u >= t.end)
			continue;
		fetch_row(source_of(ring, 0, u, t, a), p);
		if (HAS_DY)
			fetch_row(source_of(ring, 1, u, t, a), p);
		if (HAS_THIRD)
			fetch_row(source_of(ring, 2, u, t, a), p);
	}
	fetch_close();
}

/* Where statistics are recomputed, x is held with its bias or times the gate, in binary32; else that is done where x is
 * used. */
enum { LATE_X_BIAS = HAS_X_BIAS && HAS_RSTD, LATE_GATE = GATE_IN && HAS_RSTD, EARLY_GATE = GATE_IN && !HAS_RSTD };

/* What was fetched of x or dy as the kernel holds it, in ELEMENT; gate: of x, as it was fetched. */
DEVICE quad held_quad(quad v, quad gate, int tensor, int first, int j, const struct backward_arguments *a)
{
	const int dtype = tensor == 1 ? Y_ELEMENT : X_ELEMENT, biased = HAS_X_BIAS && !LATE_X_BIAS && tensor == 0;
	const int gated = EARLY_GATE && tensor == 0;
	real x[PER_QUAD], b[PER_QUAD];
	if (dtype == ELEMENT && !biased && !gated)
		return v;
	widen_strip(strip_of_quad(v), dtype, x);
	if (gated)
		widen_gate(gate, b);
	UNROLL
	for (int e = 0; gated && e < PER_QUAD; e++)
		x[e] = x[e] * gate_of(b[e]);
	if (biased && HAS_QUAD(first, j))
		widen_weights(load_weights(NEIGHBOUR(a, x_bias), column(first, j)), b);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		x[e] = biased && HAS_QUAD(first, j) ? x[e] + b[e] : x[e];
	return narrow(x);
}

/* As it was fetched. */
DEVICE quad raw_quad(u8 *ring, int tensor, int u, int j, struct step t, const struct backward_arguments *a)
{
	quad v;
	take_fetched(&v, 1, source_of(ring, tensor, u, t, a), j);
	return v;
}

/* n quads of a tensor of row u of the step, out of the ring; zeros where there is no such row. */
DEVICE void take_step(quad *v, int n, u8 *ring, int tensor, int u, int j, struct step t, const struct backward_arguments *a, int first)
{
	if ((tensor != 1 || HAS_DY) && (!ENDS_INSIDE || t.row + u < t.end)) {
		take_fetched(v, n, source_of(ring, tensor, u, t, a), j);
		UNROLL
		for (int i = 0; i < n; i++)
			v[i] = held_quad(v[i], EARLY_GATE && tensor == 0 ? raw_quad(ring, 2, u, j + i, t, a) : no_quad(), tensor,
					 first, j + i, a);
		return;
	}
	UNROLL
	for (int i = 0; i < n; i++)
		v[i] = no_quad();
}

DEVICE quad step_quad(u8 *ring, int tensor, int u, int j, struct step t, const struct backward_arguments *a, int first)
{
	quad v;
	take_step(&v, 1, ring, tensor, u, j, t, a, first);
	return v;
}

/* Of the third tensor; zeros where there is no such row. */
DEVICE quad third_quad(u8 *ring, int u, int j, struct step t, const struct backward_arguments *a)
{
	return HAS_THIRD && (!ENDS_INSIDE || t.row + u < t.end) ? raw_quad(ring, 2, u, j, t, a) : no_quad();
}

DEVICE void given_statistics(struct statistics *s, struct step t, const struct backward_arguments *a)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		int there = t.row + u < t.end;
		s[u].rstd = there ? load_real(a->rstd, STATISTIC_OF(t.row + u)) : 0;
		s[u].mean = there && CENTRED ? load_real(a->mean, STATISTIC_OF(t.row + u)) : 0;
		s[u].mean_lo = there && CENTRED && a->mean_lo ? load_real(a->mean_lo, STATISTIC_OF(t.row + u)) : 0;
	}
}

/* What a thread keeps of weight, or of x_bias, from row to row. */
enum {
	KEEPS_SHARED = KEEP_WEIGHT == KEEP_SHARED || KEEP_WEIGHT == KEEP_SHARED_WIDE,
	KEPT_WORDS = KEEP_WEIGHT == KEEP_SHARED_WIDE ? PER_QUAD : WEIGHT_WORDS,
	KEPT_QUADS = KEPT_WORDS < 4 ? 1 : KEPT_WORDS / 4, /* of a quad of the row */
	KEPT_BYTES = KEPT_BYTES_OF(KEEP_WEIGHT, QUADS, ELEMENT_BYTES, WEIGHT_BYTES, THREADS)
};

struct kept {
	const u8 *from;
	struct weights held[KEEP_WEIGHT == KEEP_REGISTERS ? QUADS : 1];
	u8 *shared; /* its own places there */
};

struct kept_operands {
	struct kept weight, x_bias, bias;
};

DEVICE u8 *kept_quad(const struct kept *kept, int j, int i)
{
	return kept->shared + (j * KEPT_QUADS + i) * THREADS * 16;
}

/* Zeros past the end of the row. */
DEVICE struct weights weights_or_none(const u8 *from, int first, int j)
{
	struct weights v = load_weights(from, HAS_QUAD(first, j) ? column(first, j) : 0);
	UNROLL
	for (int i = 0; i < WEIGHT_WORDS; i++)
		v.w[i] = HAS_QUAD(first, j) ? v.w[i] : 0;
	return v;
}

DEVICE void keep_weights(struct kept *kept, const u8 *from, u8 *shared, int first)
{
	kept->from = from;
	kept->shared = shared;
	UNROLL
	for (int j = 0; KEEP_WEIGHT != KEEP_NOWHERE && j < QUADS; j++) {
		struct weights v = weights_or_none(from, first, j);
		real wide[PER_QUAD];
		if (KEEP_WEIGHT == KEEP_REGISTERS)
			kept->held[j % (KEEP_WEIGHT == KEEP_REGISTERS ? QUADS : 1)] = v;
		if (KEEP_WEIGHT == KEEP_SHARED_WIDE)
			widen_weights(v, wide);
		UNROLL
		for (int i = 0; KEEPS_SHARED && i < KEPT_QUADS; i++)
			*(quad *)kept_quad(kept, j, i) =
				KEEP_WEIGHT == KEEP_SHARED_WIDE ? quad_of_sums(wide + i * REALS) : *(const quad *)&v.w[4 * i];
	}
}

/* Those of quad j. */
DEVICE void take_kept(real *w, const struct kept *kept, int first, int j)
{
	struct weights v;
	if (KEEP_WEIGHT == KEEP_NOWHERE)
		v = weights_or_none(kept->from, first, j);
	if (KEEP_WEIGHT == KEEP_REGISTERS)
		v = kept->held[j % (KEEP_WEIGHT == KEEP_REGISTERS ? QUADS : 1)];
	UNROLL
	for (int i = 0; KEEPS_SHARED && i < KEPT_QUADS; i++) {
		if (KEEP_WEIGHT == KEEP_SHARED_WIDE)
			sums_of_quad(load_fetched(kept_quad(kept, j, i)), w + i * REALS);
		else
			*(quad *)&v.w[4 * i] = load_fetched(kept_quad(kept, j, i));
	}
	if (KEEP_WEIGHT != KEEP_SHARED_WIDE)
		widen_weights(v, w);
}

DEVICE void kept_weights(real *w, const struct kept_operands *kept, int first, int j)
{
	take_kept(w, &kept->weight, first, j);
	UNROLL
	for (int e = 0; WEIGHT_OFFSET && e < PER_QUAD; e++)
		w[e] = 1 + w[e];
}

/* The norm's input; factors: of the gate. */
DEVICE void input_of(real *xs, quad x, const real *factors, const struct kept_operands *kept, int first, int j)
{
	real b[PER_QUAD];
	widen(x, xs);
	if (LATE_X_BIAS)
		take_kept(b, &kept->x_bias, first, j);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		xs[e] = LATE_X_BIAS ? xs[e] + b[e] : LATE_GATE ? xs[e] * gate_of(factors[e]) : xs[e];
}

/* What stays in registers between the passes, in binary32: g, the gradient of xhat, where a derivative of 20 to 32
 * instructions is behind it. With KEEP_NOTHING, and where the gate multiplied x, the second pass computes it again. The
 * gradient of a gate of the result needs no sum, and the first pass writes it. */
enum { HOLDS_GRADIENT = ACTIVATION && KEEP != KEEP_NOTHING && !GATE_IN };
struct held_row {
	real g[HOLDS_GRADIENT ? ELEMENTS : 1];
};

/* Past the end of the row, where x is 0, xhat shall be 0. */
DEVICE struct statistics statistics_at(struct statistics s, int first, int j)
{
	s.mean = HAS_QUAD(first, j) ? s.mean : 0;
	s.rstd = HAS_QUAD(first, j) ? s.rstd : 0;
	s.shift = HAS_QUAD(first, j) ? s.shift : 0;
	return s;
}

/* The first pass over quad j of a row: the sums over it, and what it adds to its columns. d is dy and becomes the gradient
 * of the affine result; dgate: of a gate of the result. there: whether the row exists. */
DEVICE void add_quad(quad x, real *d, quad gate, real *dgate, struct held_row *held, int j, struct statistics s,
		     const struct kept_operands *kept, int first, int there, real (*lanes)[THREAD_LANES], real (*sums)[ELEMENTS])
{
	const int segment = j / SEGMENT_QUADS, in = j % SEGMENT_QUADS;
	real xs[PER_QUAD], w[PER_QUAD], b[PER_QUAD], factors[PER_QUAD];
	if (HAS_GATE)
		widen_gate(gate, factors);
	input_of(xs, x, factors, kept, first, j);
	if (HAS_WEIGHT && (NEEDS_DX || ACTIVATION))
		kept_weights(w, kept, first, j);
	if (HAS_BIAS)
		take_kept(b, &kept->bias, first, j);
	s = statistics_at(s, first, j);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int at = j * PER_QUAD + e;
		int ends_here = TAIL_ELEMENTS != 0 && j % SEGMENT_QUADS == TAIL_QUAD;
		real h = !ends_here || HAS_ELEMENT(first, j, e) ? xhat_of(xs[e], s) : 0;
		if (ACTIVATION) {
			/* of a row that does not exist 0, also where weight is infinite; no branch, for it would part the elements */
			real t = activated_gradient(d[e], h, w[e], b[e], factors[e], &dgate[e]);
			d[e] = there ? t : 0;
		}
		if (NEEDS_DX) {
			real g = HAS_WEIGHT ? d[e] * w[e] : d[e];
			if (HOLDS_GRADIENT)
				held->g[HOLDS_GRADIENT ? at : 0] = g;
			ADD_PRODUCT(lanes[segment], in, e, g, h);
			if (CENTRED)
				ADD_TERM(lanes[segment + WARP_SEGMENTS], in, e, g);
		}
		if (HAS_DWEIGHT)
			sums[0][at] = fma_real(d[e], ROUND_EACH ? rounded(h, X_ELEMENT) : h, sums[0][at]);
		if (HAS_DBIAS)
			sums[DBIAS_SUM][at] = sums[DBIAS_SUM][at] + d[e];
	}
	if (NEEDS_DX && in == SEGMENT_QUADS - 1) {
		close_segment(lanes[segment]);
		if (CENTRED)
			close_segment(lanes[segment + WARP_SEGMENTS]);
	}
}

/* The second pass: dx, to xs. d is dy. factors are the gate's, and where it multiplied x become dgate; fetched: x without
 * it. */
DEVICE void gradient(real *xs, quad x, const real *d, const struct held_row *held, real *factors, const real *fetched, int j,
		     struct statistics s, real mean_gx, real mean_g, const struct kept_operands *kept, int first)
{
	real w[PER_QUAD], b[PER_QUAD];
	input_of(xs, x, factors, kept, first, j);
	if (HAS_WEIGHT && !HOLDS_GRADIENT)
		kept_weights(w, kept, first, j);
	if (HAS_BIAS && !HOLDS_GRADIENT)
		take_kept(b, &kept->bias, first, j);
	s = statistics_at(s, first, j); /* as the first pass did, so that xhat is at hand */
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		const int at = j * PER_QUAD + e;
		real dgate, h = xhat_of(xs[e], s), g;
		if (HOLDS_GRADIENT) {
			g = held->g[HOLDS_GRADIENT ? at : 0];
		} else {
			g = activated_gradient(d[e], h, w[e], b[e], factors[e], &dgate);
			g = HAS_WEIGHT ? g * w[e] : g;
		}
		xs[e] = dx_of(h, g, mean_gx, mean_g, s.rstd);
		if (GATE_IN)
			factors[e] = gate_gradient(&xs[e], fetched[e], factors[e]);
	}
}

/* What a thread walks with. */
struct walk {
	struct position p;
	u8 *ring, *out; /* a thread's first quads */
	struct board board;
	struct statistics next[ROWS_AT_ONCE]; /* given ones, loaded a step ahead */
};

/* Quads of the rows in hand: in registers, or out of the ring again. */
#define X_QUAD(u, j) (KEEPS_ROWS ? x[u][j] : step_quad(w->ring, 0, u, j, t, a, w->p.first))
#define DY_QUAD(u, j) (KEEPS_ROWS ? dy[u][j] : step_quad(w->ring, 1, u, j, t, a, w->p.first))

enum { ROW_SUMS = CENTRED ? 2 : 1, STEP_SUMS = ROWS_AT_ONCE * ROW_SUMS };

/* Recomputed statistics; none of rows that are not there. */
DEVICE void recomputed_statistics(struct statistics *s, quad (*x)[QUADS], struct step t, const struct backward_arguments *a,
			    struct walk *w)
{
	struct statistics own[OWN_ROWS];
	row_statistics(x, s, own, (real)a->eps, &w->board, w->p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++)
		if (t.row + u >= t.end)
			s[u].mean = s[u].rstd = s[u].shift = 0;
}

/* dx, and dresidual or dgate, of quad j of a row, and what dx adds to its columns. */
DEVICE void put_gradient(u8 *dx_row, u8 *dresidual_row, real *dx, quad dh, const real *dgate, int j, struct walk *w,
			 real (*column_sums)[ELEMENTS])
{
	int c = column(w->p.first, j);
	real add[PER_QUAD];
	if (HAS_DH)
		widen_strip(strip_of_quad(dh), X_ELEMENT, add);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int at = j * PER_QUAD + e;
		if (HAS_DH)
			dx[e] = dx[e] + add[e];
		if (HAS_DX_BIAS)
			column_sums[DX_BIAS_SUM][at] = column_sums[DX_BIAS_SUM][at] + dx[e];
	}
	if (ACCESS == ACCESS_SHIFTED) {
		*(quad *)(w->out + j * TRAY_STEP) = narrow(dx);
		return;
	}
	if (HAS_DX && HAS_QUAD(w->p.first, j))
		store_strip_as(dx_row, narrow_strip(dx, DX_ELEMENT), c, DX_ELEMENT);
	if (HAS_DRESIDUAL && HAS_QUAD(w->p.first, j))
		store_strip_as(dresidual_row, narrow_strip(dx, X_ELEMENT), c, X_ELEMENT);
	if (HAS_DGATE && GATE_IN && HAS_QUAD(w->p.first, j))
		store_strip_as(dresidual_row, narrow_strip(dgate, GATE_ELEMENT), c, GATE_ELEMENT);
}

/* dx of the rows of a step, from their means of g * xhat and of g. */
DEVICE void write_step(quad (*x)[QUADS], quad (*dy)[QUADS], const struct held_row *held, struct step t, const struct statistics *s,
		       const real *means, const struct kept_operands *kept, const struct backward_arguments *a, struct walk *w, real (*column_sums)[ELEMENTS])
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		real mean_gx = means[u * ROW_SUMS], mean_g = CENTRED ? means[u * ROW_SUMS + ROW_SUMS - 1] : 0;
		u8 *dx_row = a->dx + (t.row + u) * a->dx_stride;
		u8 *dresidual_row = NEIGHBOUR_ROW(a, dresidual, (t.row + u));
		int there = !ENDS_INSIDE || t.row + u < t.end;
		if (ACCESS == ACCESS_SHIFTED)
			sync_warp(); /* the row before is out */
		UNROLL
		for (int j = 0; there && j < QUADS; j++) {
			real dx[PER_QUAD], d[PER_QUAD], factors[PER_QUAD], fetched[PER_QUAD];
			quad third = HAS_LATE_THIRD ? raw_quad(w->ring, 2, u, j, t, a) : no_quad();
			if (HAS_GATE && HAS_LATE_THIRD)
				widen_gate(third, factors);
			if (GATE_IN)
				widen_strip(strip_of_quad(raw_quad(w->ring, 0, u, j, t, a)), X_ELEMENT, fetched);
			if (!HOLDS_GRADIENT)
				widen(DY_QUAD(u, j), d);
			gradient(dx, X_QUAD(u, j), d, &held[u], factors, fetched, j, s[u], mean_gx, mean_g, kept, w->p.first);
			put_gradient(dx_row, dresidual_row, dx, third, factors, j, w, column_sums);
		}
		if (ACCESS == ACCESS_SHIFTED)
			sync_warp();
		if (ACCESS == ACCESS_SHIFTED && HAS_DX && there)
			store_shifted(dx_row, w->out, w->p);
	}
}

/* No loads of a quad before the last one is done: they would take all registers. */
enum { QUAD_BY_QUAD = HAS_GATE && !KEEPS_ROWS && (CAPACITY != COLS || (!HAS_RSTD && ELEMENT_BYTES == 2)) };

/* One step: ROWS_AT_ONCE rows that have been fetched, and the fetch of later ones into their place. */
DEVICE void walk_step(real (*column_sums)[ELEMENTS], struct step t, const struct kept_operands *kept,
		      const struct backward_arguments *a, struct walk *w)
{
	struct statistics s[ROWS_AT_ONCE];
	quad x[ROWS_AT_ONCE][QUADS], dy[ROWS_AT_ONCE][QUADS];
	struct held_row held[ROWS_AT_ONCE];
	real lanes[STEP_SUMS * WARP_SEGMENTS][THREAD_LANES], means[STEP_SUMS], own[STEP_SUMS];

	FETCH_WAIT(STAGES - 1);
	if (ACCESS == ACCESS_SHIFTED)
		sync_warp(); /* others' quads are there, too */
	UNROLL
	for (int u = 0; (KEEPS_ROWS || !HAS_RSTD) && u < ROWS_AT_ONCE; u++) {
		take_step(x[u], QUADS, w->ring, 0, u, 0, t, a, w->p.first);
		if (KEEPS_ROWS)
			take_step(dy[u], QUADS, w->ring, 1, u, 0, t, a, w->p.first);
	}
	if (KEEPS_ROWS && !HAS_THIRD)
		fetch_step(w->ring, step_after(t, STAGES), a, w->p);
	UNROLL
	for (int u = 0; HAS_RSTD && u < ROWS_AT_ONCE; u++) {
		s[u] = w->next[u];
		finish_statistics(&s[u]);
	}
	if (HAS_RSTD)
		given_statistics(w->next, step_after(t, 1), a);
	else
		recomputed_statistics(s, x, t, a, w);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			const int there = !ENDS_INSIDE || t.row + u < t.end;
			real d[PER_QUAD], dgate[PER_QUAD];
			if (QUAD_BY_QUAD)
				sync_warp();
			widen(DY_QUAD(u, j), d);
			add_quad(X_QUAD(u, j), d, HAS_GATE ? third_quad(w->ring, u, j, t, a) : no_quad(), dgate, &held[u], j, s[u],
				 kept, w->p.first, there, lanes + u * ROW_SUMS * WARP_SEGMENTS, column_sums);
			if (HAS_DGATE && GATE_OUT && there && HAS_QUAD(w->p.first, j))
				store_strip_as(NEIGHBOUR_ROW(a, dresidual, (t.row + u)), narrow_strip(dgate, GATE_ELEMENT),
					       column(w->p.first, j), GATE_ELEMENT);
		}
	}
	if (KEEPS_ROWS && HAS_THIRD && !HAS_LATE_THIRD)
		fetch_step(w->ring, step_after(t, STAGES), a, w->p);
	if (NEEDS_DX) {
		row_means(lanes, means, own, STEP_SUMS, &w->board, w->p);
		if (HAS_GATE && HAS_LATE_THIRD)
			sync_warp(); /* nor of the second pass */
		write_step(x, dy, held, t, s, means, kept, a, w, column_sums);
	}
	if (!KEEPS_ROWS || HAS_LATE_THIRD)
		fetch_step(w->ring, step_after(t, STAGES), a, w->p);
}

#if ROW_GROUPS > 1
DEVICE void select_group(struct backward_arguments *a)
{
	const int group = GROUP_OF_BLOCK(ROW_BLOCKS * FOLD_BLOCKS);
	TO_GROUP(a->x, group, BYTES_OF(X_ELEMENT));
	TO_GROUP(a->dy, group, BYTES_OF(Y_ELEMENT));
	TO_GROUP(a->dx, group, BYTES_OF(DX_ELEMENT));
	TO_GROUP(a->weight, group, WEIGHT_BYTES);
	STATISTICS_TO_GROUP(a->mean, group);
	STATISTICS_TO_GROUP(a->rstd, group);
	STATISTICS_TO_GROUP(a->mean_lo, group);
	a->partials = (real *)a->partials + group * GROUP_PITCH;
#if HAS_NEIGHBOURS
	TO_GROUP(a->x_bias, group, WEIGHT_BYTES);
	TO_GROUP(a->bias, group, WEIGHT_BYTES);
	TO_GROUP(a->dh, group, BYTES_OF(NEIGHBOUR_ELEMENT));
	TO_GROUP(a->dresidual, group, BYTES_OF(NEIGHBOUR_ELEMENT));
#endif
}
#endif

GROUP_KERNEL(KERNEL_NAME, THREADS, BLOCKS, backward_arguments)
{
	const int thread = thread_index(), sub = thread % 32 / ROW_THREADS;
	const int rank = ROW_BLOCKS * FOLD_BLOCKS > 1 ? cluster_rank() : 0;
	const int chunked = SUMS > 0 && a.slot_rows > CHUNK_ROWS;
	u8 *kept_shared = shared_memory() + BOARDS_BYTES + SHIFT_BYTES;
	u8 *work = kept_shared + KEPT_BYTES * (1 + HAS_X_BIAS + HAS_BIAS);
	real *slot_sums = a.slot_sums ? (real *)a.slot_sums + block_index() * SUMS * ELEMENTS * THREADS
				      : (real *)(work + WORK_BYTES);
	real *partials = (real *)a.partials + BLOCK_IN_GROUP(ROW_BLOCKS * FOLD_BLOCKS) / (ROW_BLOCKS * FOLD_BLOCKS) * SUMS * PITCH;
	real sums[COLUMN_SUMS][ELEMENTS];
	struct kept_operands kept;
	struct walk w;
	struct step t;

	w.p = position_of(thread, rank % ROW_BLOCKS);
	const int walkers = SUB_ROWS > 1 ? a.walkers : 1;
	const i64 first_slot = (BLOCK_IN_GROUP(ROW_BLOCKS * FOLD_BLOCKS) / ROW_BLOCKS * BLOCK_ROWS + w.p.group) * SUB_ROWS / walkers;
	t.row = (first_slot + sub / walkers) * a.slot_rows;
	t.end = t.row + a.slot_rows < a.rows ? t.row + a.slot_rows : a.rows;
	t.row += sub % walkers * CHUNK_ROWS;
	t.skip = (walkers - 1) * CHUNK_ROWS;
	t.stage = t.in_chunk = 0;
	w.ring = tray_of(work, thread);
	w.out = tray_of(shared_memory() + BOARDS_BYTES, thread);
	slot_sums += thread;
	w.board = make_board(shared_memory() + w.p.group * BOARD_BYTES);
	wait_for_kernels_before();
	let_next_kernel_start();

	UNROLL
	for (int k = 0; k < STAGES; k++)
		fetch_step(w.ring, step_after(t, k), &a, w.p);
	if (HAS_WEIGHT && (NEEDS_DX || ACTIVATION))
		keep_weights(&kept.weight, a.weight, kept_shared + thread * 16, w.p.first);
	if (LATE_X_BIAS)
		keep_weights(&kept.x_bias, NEIGHBOUR(&a, x_bias), kept_shared + KEPT_BYTES + thread * 16, w.p.first);
	if (HAS_BIAS)
		keep_weights(&kept.bias, NEIGHBOUR(&a, bias), kept_shared + (1 + HAS_X_BIAS) * KEPT_BYTES + thread * 16, w.p.first);
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			sums[k][i] = 0;
			if (chunked)
				store_one(real, slot_sums + (k * ELEMENTS + i) * THREADS, 0);
		}
	}
	if (HAS_RSTD)
		given_statistics(w.next, t, &a);

	/* All threads of a warp go as far as its first slot, which is never the shorter one. */
	const i64 left = a.rows - first_slot * a.slot_rows, most = left < a.slot_rows ? left : a.slot_rows;
	const i64 round = walkers * CHUNK_ROWS, steps = walkers > 1 ? (most + round - 1) / round * CHUNK_ROWS : most;
	for (i64 done = 0; done < steps; done += ROWS_AT_ONCE, t = step_after(t, 1)) {
		if (chunked && done > 0 && done % CHUNK_ROWS == 0)
			close_chunk(slot_sums, sums, walkers);
		walk_step(sums, t, &kept, &a, &w);
	}

	if (SUMS == 0)
		return;
	FETCH_WAIT(0);
	if (chunked) {
		close_chunk(slot_sums, sums, walkers);
		UNROLL
		for (int k = 0; k < SUMS; k++) {
			UNROLL
			for (int i = 0; i < ELEMENTS; i++)
				sums[k][i] = load_one(real, slot_sums + (k * ELEMENTS + i) * THREADS);
		}
	}
	fold_warp(sums, walkers);
	if (BLOCK_ROWS * FOLD_BLOCKS > 1)
		fold_slots(sums, work, partials, rank, w.p);
	else if (sub == 0)
		store_sums(partials, sums, w.p.first);
}
