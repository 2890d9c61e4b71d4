/* The forward kernel. Three passes over a row: for its first sum, for LayerNorm's moments, and to write y. The
 * rows before are written first, or at the same time (FUSED); the rows after are fetched meanwhile. But for heads, tails
 * and statistics no store goes between non-temporal ones: it would wait for them, and they for the memory.
 * With neighbours (rule 8): x + residual is made into a buffer that the caches keep, segment by segment before its first
 * sum, and so is x times an activation of a gate that comes first; without a residual x_bias is added in every pass; a
 * residual after is added, an activation (rule 11) applied, or one of a gate multiplied, where y is written.
 * Included by cpu_kernels.inc.h. Makes: N(forward), N(forward_neighbours), and for cpu_split.inc.h N(rows), N(row_at),
 * N(first_pass).
 * SPDX-License-Identifier: MIT */

struct N(row) {
	const T *x, *fetched; /* fetched: x of the call, which differs from the norm's input where that is made */
	const T *after;       /* the residual after, or the gate; absent: two registers of -0, read again and again (mask 0) */
	int64_t after_mask;
	T *y;
	struct N(stats) stats;
	int64_t head;
};

/* What is read beside x where y is written, a segment ahead: the hardware's own prefetcher stops at the end of a page. */
INLINE void N(fetch_after)(const T *after)
{
	const uintptr_t ahead = (uintptr_t)after + SEGMENT * sizeof(T);
	UNROLL for (int line = 0; line < N(STEP) * (int)sizeof(T); line += LINE)
		__builtin_prefetch((const void *)(ahead + (uintptr_t)line));
}

INLINE void N(add_after)(const T *after, vec y[2])
{
	vec a[2];
	A(load2)(after, a);
	UNROLL for (int k = 0; k < 2; k++)
		y[k] = V(add)(y[k], a[k]);
}

/* Rule 11: the affine result times an activation of the gate. */
INLINE void N(multiply_by_gate)(ek_activation activation, vec gate[2], vec y[2])
{
	V(activate)(activation, gate);
	UNROLL for (int k = 0; k < 2; k++)
		y[k] = V(mul)(y[k], gate[k]);
}

/* Columns span of `count` rows, rules 4, 8 and 11. With nontemporal, y + span.from is aligned to a line. */
INLINE void N(normalize)(const int count, const struct N(row) *rows, const struct N(affine) *affine, struct span span,
			 const struct fetch *ahead, const bool centred, const enum beside beside, const bool nontemporal)
{
	struct N(row) r[2] = {rows[0], rows[count - 1]}; /* copies, which no store of the loop can change */
	struct N(affine) f = *affine;
	struct fetch fetch[2] = {ahead[0], ahead[count - 1]};
	int64_t i = span.from;
	for (; i + N(STEP) <= span.to; i += N(STEP)) {
		vec x[2][2], w[2], b[2];
		C(load2)(f.weight + (i & f.weight_mask), w);
		C(load2)(f.bias + (i & f.bias_mask), b);
		UNROLL for (int k = 0; k < count; k++) {
			fetch_ahead(&fetch[k], N(FETCH_WRITE) * N(STEP) * (int)sizeof(T) / 4);
			if (beside == BESIDE_X_BIAS)
				N(load_biased)(r[k].x + i, f.x_bias + i, N(STEP), x[k]);
			else
				A(load2)(r[k].x + i, x[k]);
			UNROLL for (int v = 0; v < 2; v++)
				x[k][v] = V(fma)(N(xhat)(x[k][v], &r[k].stats, centred), w[v], b[v]);
			if (beside != BESIDE_NONE && beside != BESIDE_ACTIVATION)
				N(fetch_after)(r[k].after + (i & r[k].after_mask));
			if (beside == BESIDE_GATE) {
				vec gate[2];
				A(load2)(r[k].after + i, gate);
				N(multiply_by_gate)(f.activation, gate, x[k]);
			} else if (beside == BESIDE_ACTIVATION)
				V(activate)(f.activation, x[k]);
			else if (beside != BESIDE_NONE)
				N(add_after)(r[k].after + (i & r[k].after_mask), x[k]);
		}
		ALL_LOADED;
		UNROLL for (int k = 0; k < count; k++)
			if (nontemporal)
				A(store2_nontemporal)(r[k].y + i, x[k]);
			else
				A(store2)(r[k].y + i, x[k]);
	}
	for (; i < span.to; i += N(W)) {
		int n = span.to - i < N(W) ? (int)(span.to - i) : N(W);
		vec w = B(load_part)(f.weight + (i & f.weight_mask), n), b = B(load_part)(f.bias + (i & f.bias_mask), n);
		for (int k = 0; k < count; k++) {
			vec x = A(load_part)(r[k].x + i, n);
			if (beside == BESIDE_X_BIAS)
				x = V(add)(x, B(load_part)(f.x_bias + i, n));
			vec y[2] = {V(fma)(N(xhat)(x, &r[k].stats, centred), w, b), V(splat)(0)};
			if (beside == BESIDE_GATE) {
				vec gate[2] = {A(load_part)(r[k].after + i, n), V(splat)(0)};
				V(activate_tail)(f.activation, gate);
				y[0] = V(mul)(y[0], gate[0]);
			} else if (beside == BESIDE_ACTIVATION)
				V(activate_tail)(f.activation, y);
			else if (beside != BESIDE_NONE)
				y[0] = V(add)(y[0], A(load_part)(r[k].after + (i & r[k].after_mask), n));
			A(store_part)(r[k].y + i, y[0], n);
		}
	}
}

#define NORMALIZE(name, count, centred, beside)                                                                \
	OUTLINE void N(name)(const struct N(row) *r, const struct N(affine) *f, struct span span,                  \
			     const struct fetch *ahead, bool nontemporal)                                                        \
	{                                                                                                          \
		if (nontemporal)                                                                                            \
			N(normalize)(count, r, f, span, ahead, centred, beside, true);                                     \
		else                                                                                                   \
			N(normalize)(count, r, f, span, ahead, centred, beside, false);                                    \
	}
#define NORMALIZE_ALL(beside, suffix)                                                                          \
	NORMALIZE(normalize_centred##suffix, 1, true, beside)                                                      \
	NORMALIZE(normalize_rms##suffix, 1, false, beside)                                                         \
	NORMALIZE(normalize_centred_pair##suffix, 2, true, beside)                                                 \
	NORMALIZE(normalize_rms_pair##suffix, 2, false, beside)
NORMALIZE_ALL(BESIDE_NONE, )
NORMALIZE_ALL(BESIDE_AFTER, _after)
NORMALIZE_ALL(BESIDE_X_BIAS, _x_bias)
#undef NORMALIZE_ALL
#undef NORMALIZE

/* An activation costs far more than what the functions above leave out: one function for both norms and both stores. */
OUTLINE void N(normalize_activation)(const struct N(row) *r, const struct N(affine) *f, struct span span,
				     const struct fetch *ahead, bool nontemporal)
{
	N(normalize)(1, r, f, span, ahead, true, BESIDE_ACTIVATION, nontemporal);
}

OUTLINE void N(normalize_gate)(const struct N(row) *r, const struct N(affine) *f, struct span span,
			       const struct fetch *ahead, bool nontemporal)
{
	N(normalize)(1, r, f, span, ahead, true, BESIDE_GATE, nontemporal);
}

INLINE void N(write_one)(const struct N(row) *r, const struct N(affine) *f, struct span span, const struct fetch *ahead,
			 const bool centred, enum beside beside, bool nontemporal)
{
	if (beside == BESIDE_NONE)
		(centred ? N(normalize_centred) : N(normalize_rms))(r, f, span, ahead, nontemporal);
	else if (beside == BESIDE_AFTER)
		(centred ? N(normalize_centred_after) : N(normalize_rms_after))(r, f, span, ahead, nontemporal);
	else if (beside == BESIDE_ACTIVATION)
		N(normalize_activation)(r, f, span, ahead, nontemporal);
	else if (beside == BESIDE_GATE)
		N(normalize_gate)(r, f, span, ahead, nontemporal);
	else
		(centred ? N(normalize_centred_x_bias) : N(normalize_rms_x_bias))(r, f, span, ahead, nontemporal);
}

INLINE void N(write_pair)(const struct N(row) *r, const struct N(affine) *f, struct span span, const struct fetch *ahead,
			  const bool centred, enum beside beside, bool nontemporal)
{
	if (beside == BESIDE_NONE)
		(centred ? N(normalize_centred_pair) : N(normalize_rms_pair))(r, f, span, ahead, nontemporal);
	else if (beside == BESIDE_AFTER)
		(centred ? N(normalize_centred_pair_after) : N(normalize_rms_pair_after))(r, f, span, ahead, nontemporal);
	else
		(centred ? N(normalize_centred_pair_x_bias) : N(normalize_rms_pair_x_bias))(r, f, span, ahead, nontemporal);
}

/* The head of a row, before its first whole line, goes with its first segment. */
INLINE void N(normalize_head)(const struct N(row) *r, const struct N(affine) *f, int64_t start, const bool centred,
			      enum beside beside)
{
	const struct fetch none = fetch_from(NULL, r->x);
	if (start == 0 && r->head)
		N(write_one)(r, f, (struct span){0, r->head}, &none, centred, beside, false);
}

/* What goes with segment `start` of `count` rows; next: as many rows whose segment is fetched meanwhile, or NULL. */
INLINE void N(normalize_segment)(int count, const struct N(row) *r, const struct N(affine) *f, int64_t start,
				 int64_t cols, const struct N(row) *next, const bool centred, enum beside beside, bool nontemporal)
{
	int64_t at = start + N(segment_length)(cols, start) * (4 - N(FETCH_WRITE)) / 4;
	struct fetch ahead[2];
	for (int k = 0; k < count; k++)
		ahead[k] = fetch_from(next ? next[k].fetched + at : NULL, r[k].x);
	/* In pairs rows share the loads of weights; an activation costs far more than those. */
	if (count == 2 && beside < BESIDE_ACTIVATION && r[0].head == 0 && r[1].head == 0) {
		struct span span = span_of(start, 0, cols);
		N(write_pair)(r, f, span, ahead, centred, beside, nontemporal);
		return;
	}
	for (int k = 0; k < count; k++) {
		N(normalize_head)(r + k, f, start, centred, beside);
		N(write_one)(r + k, f, span_of(start, r[k].head, cols), ahead + k, centred, beside, nontemporal);
	}
}

/* ---- FUSED: the first sum of a row as it lies in memory, where the CPU's own prefetcher is at its best, while another
 * is stored non-temporally: 2048x1024 f32 forward .87 -> .95 of a copy ---- */

/* STEP columns of y from i on. */
INLINE void N(write_step)(const struct N(row) *r, const struct N(affine) *f, int64_t i, const bool centred,
			  const enum beside beside)
{
	vec x[2], w[2], b[2];
	if (beside == BESIDE_X_BIAS)
		N(load_biased)(r->x + i, f->x_bias + i, N(STEP), x);
	else
		A(load2)(r->x + i, x);
	C(load2)(f->weight + (i & f->weight_mask), w);
	C(load2)(f->bias + (i & f->bias_mask), b);
	UNROLL for (int k = 0; k < 2; k++)
		x[k] = V(fma)(N(xhat)(x[k], &r->stats, centred), w[k], b[k]);
	if (beside != BESIDE_NONE) {
		N(fetch_after)(r->after + (i & r->after_mask));
		N(add_after)(r->after + (i & r->after_mask), x);
	}
	A(store2_nontemporal)(r->y + i, x);
}

/* The sum of the segment of n elements at x, whose x_bias is given, and columns span of another row. */
INLINE real N(sum_and_write)(const T *x, const TW *x_bias, int64_t n, const struct N(row) *row,
			     const struct N(affine) *affine, struct span span, const bool centred, const enum beside beside)
{
	const enum sweep sweep = centred ? SWEEP_SUM : SWEEP_SQUARES;
	const struct fetch none = fetch_from(NULL, row->x);
	struct N(row) r = *row; /* copies, which no store of the loop can change */
	struct N(affine) f = *affine;
	vec lanes[N(LANE_REGS)], blocks[N(BLOCKS)];
	int64_t at = 0, both = smaller(n, span.to - span.from);
#define TERMS(v, n)                                                                                            \
	N(add_terms)(sweep, beside == BESIDE_X_BIAS, x + at + (v) * N(W), x_bias + at + (v) * N(W), n, V(splat)(0), false, \
		     lanes + (v), lanes + (v))
	UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v++)
		lanes[v] = V(splat)(0);
	for (; at + LANES <= both; at += LANES)
		UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v += 2) {
			TERMS(v, N(STEP));
			N(write_step)(&r, &f, span.from + at + v * N(W), centred, beside);
		}
	N(normalize)(1, &r, &f, (struct span){span.from + at, span.to}, &none, centred, beside, true);
	for (; at + LANES <= n; at += LANES) /* a head made the span shorter */
		UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v += 2)
			TERMS(v, N(STEP));
	UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v += 2) {
		int64_t left = n - at - v * N(W);
		if (left <= 0)
			break;
		if (left >= N(STEP))
			TERMS(v, N(STEP));
		else
			TERMS(v, (int)left);
	}
#undef TERMS
	UNROLL_BLOCKS for (int block = 0; block < N(BLOCKS); block++)
		blocks[block] = A(narrow)(lanes + block * GROUP);
	return A(sum)(blocks);
}

#define SUM_AND_WRITE(name, centred, beside)                                                                  \
	OUTLINE real N(name)(const T *x, const TW *x_bias, int64_t n, const struct N(row) *r, const struct N(affine) *f, \
			     struct span span)                                                                         \
	{                                                                                                          \
		return N(sum_and_write)(x, x_bias, n, r, f, span, centred, beside);                                   \
	}
SUM_AND_WRITE(sum_and_write_centred, true, BESIDE_NONE)
SUM_AND_WRITE(sum_and_write_rms, false, BESIDE_NONE)
SUM_AND_WRITE(sum_and_write_centred_after, true, BESIDE_AFTER)
SUM_AND_WRITE(sum_and_write_rms_after, false, BESIDE_AFTER)
SUM_AND_WRITE(sum_and_write_centred_x_bias, true, BESIDE_X_BIAS)
SUM_AND_WRITE(sum_and_write_rms_x_bias, false, BESIDE_X_BIAS)
#undef SUM_AND_WRITE

/* Segment `start` of `now` and what of `before` is written with it. */
INLINE real N(sum_while_writing)(const struct N(row) *now, const struct N(row) *before, const struct N(affine) *f,
				 int64_t start, int64_t cols, const bool centred, enum beside beside)
{
	const T *x = now->x + start;
	const TW *x_bias = f->weight;
	int64_t n = N(segment_length)(cols, start);
	struct span span = span_of(start, before->head, cols);
	if (beside == BESIDE_NONE)
		return (centred ? N(sum_and_write_centred) : N(sum_and_write_rms))(x, x_bias, n, before, f, span);
	if (beside == BESIDE_AFTER)
		return (centred ? N(sum_and_write_centred_after) : N(sum_and_write_rms_after))(x, x_bias, n, before, f, span);
	x_bias = f->x_bias + start;
	return (centred ? N(sum_and_write_centred_x_bias) : N(sum_and_write_rms_x_bias))(x, x_bias, n, before, f, span);
}

INLINE void N(put_stats)(const ek_norm_forward_args *a, int64_t row, const struct N(stats) *stats)
{
	if (a->mean)
		memcpy((real *)a->mean + row, &stats->mean, sizeof(real));
	if (a->rstd)
		memcpy((real *)a->rstd + row, &stats->rstd, sizeof(real));
	if (a->mean_lo)
		memcpy((real *)a->mean_lo + row, &stats->mean_lo, sizeof(real));
}

INLINE struct N(row) N(row_at)(const ek_norm_forward_args *a, int64_t row, bool nontemporal)
{
	struct N(row) r = {.x = (const T *)a->x + row * a->x_stride, .y = (T *)a->y + row * a->y_stride};
	r.fetched = r.x;
	r.head = head_of(r.y, sizeof(T), a->cols, nontemporal);
	return r;
}

/* Rows that go through the passes together. */
struct N(rows) {
	struct N(row) row[MAX_TOGETHER];
	struct V(tree) sum[MAX_TOGETHER];
	const T *next[MAX_TOGETHER]; /* the rows after these, or NULL */
	int64_t count;
};

INLINE void N(rows_at)(const ek_norm_forward_args *a, int64_t first, int64_t count, int64_t end, bool nontemporal,
		       struct N(rows) *rows)
{
	rows->count = count;
	for (int64_t k = 0; k < count; k++) {
		int64_t later = first + count + k;
		rows->row[k] = N(row_at)(a, first + k, nontemporal);
		rows->next[k] = later < end ? (const T *)a->x + later * a->x_stride : NULL;
		if (nontemporal)
			fetch_edges(rows->row[k].y, a->cols * (int64_t)sizeof(T));
		rows->sum[k].count = 0;
	}
}

/* ---- neighbours ---- */

/* The operands beside the norm; of a plain norm NULL takes its place. */
struct N(neighbours) {
	const ek_norm_forward_args *args;
	enum beside beside;
	T *made;          /* the inputs of the rows at hand and of those before; NULL: x, or x + x_bias, is the input */
	int64_t first;    /* of the rows at hand */
	bool nontemporal; /* h goes past the caches */
};

INLINE enum beside N(beside)(const struct N(neighbours) *b)
{
	return b ? b->beside : BESIDE_NONE;
}

/* Puts the rows at hand, from `first` on, where their inputs are made: set 0 or 1 of the buffer. */
INLINE void N(place_rows)(struct N(neighbours) *b, struct N(rows) *now, int64_t first, int64_t set)
{
	const ek_norm_forward_args *a = b->args;
	const T *after = b->beside == BESIDE_GATE ? a->gate : a->residual_after;
	const int64_t after_stride = b->beside == BESIDE_GATE ? a->gate_stride : a->residual_after_stride;
	b->first = first;
	for (int64_t k = 0; k < now->count; k++) {
		struct N(row) *r = &now->row[k];
		r->after = after ? after + (first + k) * after_stride : PASTE(ACT, minus_zeros);
		r->after_mask = after ? -1 : 0;
		if (b->made)
			r->x = b->made + (set * (MADE_BYTES / 2 / (int64_t)sizeof(T)) + k * a->cols);
	}
}

/* Rule 11: n columns of x times an activation of the gate, in real numbers, which T is; ahead: what is fetched
 * meanwhile. */
OUTLINE void N(make_gated)(const T *x, const T *gate, struct fetch ahead, int64_t n, ek_activation activation, T *to)
{
	int64_t i = 0;
	for (; i + N(STEP) <= n; i += N(STEP)) {
		vec u[2], g[2];
		fetch_ahead(&ahead, N(STEP) * (int)sizeof(T));
		A(load2)(x + i, u);
		A(load2)(gate + i, g);
		N(multiply_by_gate)(activation, g, u);
		A(store2)(to + i, u);
	}
	for (; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		vec u = A(load_part)(x + i, left), g[2] = {A(load_part)(gate + i, left), V(splat)(0)};
		V(activate_tail)(activation, g);
		A(store_part)(to + i, V(mul)(u, g[0]), left);
	}
}

/* Rule 8: segment `start` of the input of row k of those at hand; meanwhile the residual, or the gate, of the row that follows
 * in its place is fetched. h goes out in a loop of its own: stores past the caches keep apart from others. */
OUTLINE void N(make_segment)(const struct N(neighbours) *b, const struct N(rows) *now, int64_t k, int64_t start)
{
	const ek_norm_forward_args *a = b->args;
	const struct N(row) *r = &now->row[k];
	int64_t i = 0, n = N(segment_length)(a->cols, start), row = b->first + k;
	const T *x = r->fetched + start, *residual = a->gate ? a->gate : a->residual;
	const int64_t stride = a->gate ? a->gate_stride : a->residual_stride;
	residual += row * stride + start;
	struct fetch ahead = fetch_from(now->next[k] ? residual + now->count * stride : NULL, residual);
	T *to = b->made + (r->x - b->made) + start;
	if (a->gate) {
		N(make_gated)(x, residual, ahead, n, a->activation, to);
		return;
	}
	const struct N(affine) f = N(affine_of)(NULL, a->x_bias ? (const TW *)a->x_bias + start : NULL);
	for (; i + N(STEP) <= n; i += N(STEP)) {
		vec h[2], c[2];
		fetch_ahead(&ahead, N(STEP) * (int)sizeof(T));
		A(load2)(x + i, h);
		C(load2)(f.bias + (i & f.bias_mask), c);
		UNROLL for (int v = 0; v < 2; v++)
			h[v] = V(add)(h[v], c[v]);
		N(add_after)(residual + i, h);
		A(store2)(to + i, h);
	}
	for (; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		vec h = V(add)(A(load_part)(x + i, left), B(load_part)(f.bias + (i & f.bias_mask), left));
		A(store_part)(to + i, V(add)(h, A(load_part)(residual + i, left)), left);
	}
	if (a->h)
		copy_out(to, n * (int64_t)sizeof(T), (T *)a->h + row * a->h_stride + start, b->nontemporal);
}

/* ---- the passes ---- */

/* Segment `start` of a pair of rows, or of one row: `before` is written, the first sums of `now` are taken. */
INLINE void N(write_then_sum)(struct N(rows) *now, const struct N(rows) *before, int64_t k, const struct N(affine) *f,
			      int64_t start, int64_t cols, const bool centred, bool nontemporal,
			      const struct N(neighbours) *neighbours)
{
	int old = (int)smaller(2, before->count - k), coming = (int)smaller(2, now->count - k);
	int64_t n = N(segment_length)(cols, start);
	if (old > 0)
		N(normalize_segment)(old, &before->row[k], f, start, cols, coming >= old ? &now->row[k] : NULL, centred,
				     N(beside)(neighbours), nontemporal);
	for (int i = 0; i < coming; i++) {
		const T *x = now->row[k + i].x + start;
		if (i >= old)
			fetch_lines(now->row[k + i].fetched + start, n * (int64_t)sizeof(T));
		if (neighbours && neighbours->made)
			N(make_segment)(neighbours, now, k + i, start);
		const TW *x_bias = N(beside)(neighbours) == BESIDE_X_BIAS ? f->x_bias + start : NULL;
		N(add_first)(x, x_bias, n, now->next[k + i] ? now->next[k + i] + start : NULL, &now->sum[k + i], centred);
	}
}

/* An activation is computed apart from sums: it needs the registers. */
INLINE bool N(writes_while_summing)(const struct N(neighbours) *neighbours)
{
	return !neighbours || (!neighbours->made && neighbours->beside < BESIDE_ACTIVATION);
}

/* Columns from … to-1, a run of segments: the first sums of `now`, after or while `before` is written. */
INLINE void N(first_pass)(struct N(rows) *now, const struct N(rows) *before, const struct N(affine) *f, int64_t from,
			  int64_t to, int64_t cols, const bool centred, bool nontemporal,
			  const struct N(neighbours) *neighbours)
{
	for (int64_t start = from; start < to; start += SEGMENT) {
		int64_t k = 0;
		for (; N(FUSED) && N(writes_while_summing)(neighbours) && nontemporal && k < now->count && k < before->count; k++) {
			const struct N(row) *b = &before->row[k];
			N(normalize_head)(b, f, start, centred, N(beside)(neighbours));
			V(tree_add)(&now->sum[k], N(sum_while_writing)(&now->row[k], b, f, start, cols, centred,
								       N(beside)(neighbours)));
		}
		for (; k < now->count || k < before->count; k += 2)
			N(write_then_sum)(now, before, k, f, start, cols, centred, nontemporal, neighbours);
	}
}

/* Their statistics; meanwhile the beginnings of the rows after them are fetched. */
INLINE void N(second_pass)(const ek_norm_forward_args *a, int64_t first, struct N(rows) *now, const TW *x_bias,
			   const bool centred)
{
	for (int64_t k = 0; k < now->count; k++) {
		struct N(row) *r = &now->row[k];
		r->stats = N(stats_from)(r->x, x_bias, a->cols, (real)a->eps, V(tree_sum)(&now->sum[k]), now->next[k], centred);
		N(put_stats)(a, first + k, &r->stats);
	}
}

/* neighbours: or NULL. */
INLINE void N(forward_rows)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal,
			    const bool centred, struct N(neighbours) *neighbours)
{
	struct N(affine) f = N(affine_of)(a->weight, a->bias);
	f.x_bias = N(beside)(neighbours) == BESIDE_X_BIAS ? a->x_bias : NULL;
	f.activation = a->activation;
	struct N(rows) rows[2];
	/* In pairs also where instructions are the limit: 16-bit elements, and data in the caches (8x768 f32 171 -> 147 ns
	 * a row). */
	int64_t pairs_from = N(HALF) || !nontemporal ? 0 : PAIR_FORWARD_BYTES, row_bytes = a->cols * (int64_t)sizeof(T);
	int64_t together = rows_together(row_bytes, pairs_from);
	if (neighbours && neighbours->made)
		together = smaller(together, MADE_BYTES / 2 / row_bytes);
	rows[1].count = 0;
	for (int64_t row = first, i = 0; row < end || rows[!i].count; row += rows[i].count, i = !i) {
		struct N(rows) *now = &rows[i], *before = &rows[!i];
		N(rows_at)(a, row, smaller(together, end - row), end, nontemporal, now);
		if (neighbours)
			N(place_rows)(neighbours, now, row, i);
		N(first_pass)(now, before, &f, 0, a->cols, a->cols, centred, nontemporal, neighbours);
		N(second_pass)(a, row, now, f.x_bias, centred);
	}
	if (nontemporal)
		nontemporal_fence();
}

static void N(forward)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal)
{
	if (a->norm == EK_LAYER_NORM)
		N(forward_rows)(a, first, end, nontemporal, true, NULL);
	else
		N(forward_rows)(a, first, end, nontemporal, false, NULL);
}

/* All of one dtype; with a residual or a gate that comes first, rows of at most MADE_BYTES / 2, and with such a gate of real
 * numbers. */
static void N(forward_neighbours)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal)
{
	_Alignas(LINE) T made[MADE_BYTES / sizeof(T)];
	struct N(neighbours) neighbours = {.args = a, .nontemporal = nontemporal};
	if (a->residual || a->gate_first)
		neighbours.made = made;
	if (a->gate)
		neighbours.beside = a->gate_first ? BESIDE_NONE : BESIDE_GATE;
	else if (a->activation)
		neighbours.beside = BESIDE_ACTIVATION;
	else if (!a->residual)
		neighbours.beside = a->x_bias ? BESIDE_X_BIAS : BESIDE_AFTER;
	if (a->norm == EK_LAYER_NORM)
		N(forward_rows)(a, first, end, nontemporal, true, &neighbours);
	else
		N(forward_rows)(a, first, end, nontemporal, false, &neighbours);
}
