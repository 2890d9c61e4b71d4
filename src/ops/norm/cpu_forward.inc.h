/* The forward kernel. Three passes over a row: for its first sum, for LayerNorm's moments, and to write y. The
 * rows before are written first, or at the same time (FUSED); the rows after are fetched meanwhile. But for heads, tails
 * and statistics no store goes between non-temporal ones: it would wait for them, and they for the memory.
 * Included by cpu_kernels.inc.h. Makes: N(forward), and for cpu_split.inc.h N(rows), N(row_at), N(first_pass).
 * SPDX-License-Identifier: MIT */

struct N(row) {
	const T *x;
	T *y;
	struct N(stats) stats;
	int64_t head;
};

/* Columns span of `count` rows, rule 4. With nontemporal, y + span.from is aligned to a line. */
INLINE void N(normalize)(const int count, const struct N(row) *rows, const struct N(affine) *affine, struct span span,
			 const struct fetch *ahead, const bool centred, const bool nontemporal)
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
			A(load2)(r[k].x + i, x[k]);
			UNROLL for (int v = 0; v < 2; v++)
				x[k][v] = V(fma)(N(xhat)(x[k][v], &r[k].stats, centred), w[v], b[v]);
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
			A(store_part)(r[k].y + i, V(fma)(N(xhat)(x, &r[k].stats, centred), w, b), n);
		}
	}
}

#define NORMALIZE(name, count, centred)                                                                        \
	OUTLINE void N(name)(const struct N(row) *r, const struct N(affine) *f, struct span span,                  \
			     const struct fetch *ahead, bool nontemporal)                                                        \
	{                                                                                                          \
		if (nontemporal)                                                                                            \
			N(normalize)(count, r, f, span, ahead, centred, true);                                             \
		else                                                                                                   \
			N(normalize)(count, r, f, span, ahead, centred, false);                                            \
	}
NORMALIZE(normalize_centred, 1, true)
NORMALIZE(normalize_rms, 1, false)
NORMALIZE(normalize_centred_pair, 2, true)
NORMALIZE(normalize_rms_pair, 2, false)
#undef NORMALIZE

/* The head of a row, before its first whole line, goes with its first segment. */
INLINE void N(normalize_head)(const struct N(row) *r, const struct N(affine) *f, int64_t start, const bool centred)
{
	const struct fetch none = fetch_from(NULL, r->x);
	if (start == 0 && r->head)
		(centred ? N(normalize_centred) : N(normalize_rms))(r, f, (struct span){0, r->head}, &none, false);
}

/* What goes with segment `start` of `count` rows; next: as many rows whose segment is fetched meanwhile, or NULL. */
INLINE void N(normalize_segment)(int count, const struct N(row) *r, const struct N(affine) *f, int64_t start,
				 int64_t cols, const struct N(row) *next, const bool centred, bool nontemporal)
{
	int64_t at = start + N(segment_length)(cols, start) * (4 - N(FETCH_WRITE)) / 4;
	struct fetch ahead[2];
	for (int k = 0; k < count; k++)
		ahead[k] = fetch_from(next ? next[k].x + at : NULL, r[k].x);
	if (count == 2 && r[0].head == 0 && r[1].head == 0) {
		struct span span = span_of(start, 0, cols);
		(centred ? N(normalize_centred_pair) : N(normalize_rms_pair))(r, f, span, ahead, nontemporal);
		return;
	}
	for (int k = 0; k < count; k++) {
		N(normalize_head)(r + k, f, start, centred);
		(centred ? N(normalize_centred) : N(normalize_rms))(r + k, f, span_of(start, r[k].head, cols), ahead + k, nontemporal);
	}
}

/* ---- FUSED: the first sum of a row as it lies in memory, where the CPU's own prefetcher is at its best, while another
 * is stored non-temporally: 2048x1024 f32 forward .87 -> .95 of a copy ---- */

/* STEP columns of y from i on. */
INLINE void N(write_step)(const struct N(row) *r, const struct N(affine) *f, int64_t i, const bool centred)
{
	vec x[2], w[2], b[2];
	A(load2)(r->x + i, x);
	C(load2)(f->weight + (i & f->weight_mask), w);
	C(load2)(f->bias + (i & f->bias_mask), b);
	UNROLL for (int k = 0; k < 2; k++)
		x[k] = V(fma)(N(xhat)(x[k], &r->stats, centred), w[k], b[k]);
	A(store2_nontemporal)(r->y + i, x);
}

/* The sum of the segment of n elements at x, and columns span of another row. */
INLINE real N(sum_and_write)(const T *x, int64_t n, const struct N(row) *row, const struct N(affine) *affine,
			      struct span span, const bool centred)
{
	const enum sweep sweep = centred ? SWEEP_SUM : SWEEP_SQUARES;
	const struct fetch none = fetch_from(NULL, row->x);
	struct N(row) r = *row; /* copies, which no store of the loop can change */
	struct N(affine) f = *affine;
	vec lanes[N(LANE_REGS)], blocks[N(BLOCKS)];
	int64_t at = 0, both = smaller(n, span.to - span.from);
#define TERMS(v, n) N(add_terms)(sweep, x + at + (v) * N(W), n, V(splat)(0), false, lanes + (v), lanes + (v))
	UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v++)
		lanes[v] = V(splat)(0);
	for (; at + LANES <= both; at += LANES)
		UNROLL_LANES for (int v = 0; v < N(LANE_REGS); v += 2) {
			TERMS(v, N(STEP));
			N(write_step)(&r, &f, span.from + at + v * N(W), centred);
		}
	N(normalize)(1, &r, &f, (struct span){span.from + at, span.to}, &none, centred, true);
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

#define SUM_AND_WRITE(name, centred)                                                                          \
	OUTLINE real N(name)(const T *x, int64_t n, const struct N(row) *r, const struct N(affine) *f, struct span span) \
	{                                                                                                          \
		return N(sum_and_write)(x, n, r, f, span, centred);                                                   \
	}
SUM_AND_WRITE(sum_and_write_centred, true)
SUM_AND_WRITE(sum_and_write_rms, false)
#undef SUM_AND_WRITE

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

/* Segment `start` of a pair of rows, or of one row: `before` is written, the first sums of `now` are taken. */
INLINE void N(write_then_sum)(struct N(rows) *now, const struct N(rows) *before, int64_t k, const struct N(affine) *f,
			      int64_t start, int64_t cols, const bool centred, bool nontemporal)
{
	int old = (int)smaller(2, before->count - k), coming = (int)smaller(2, now->count - k);
	int64_t n = N(segment_length)(cols, start);
	if (old > 0)
		N(normalize_segment)(old, &before->row[k], f, start, cols, coming >= old ? &now->row[k] : NULL, centred, nontemporal);
	for (int i = 0; i < coming; i++) {
		const T *x = now->row[k + i].x + start;
		if (i >= old)
			fetch_lines(x, n * (int64_t)sizeof(T));
		N(add_first)(x, n, now->next[k + i] ? now->next[k + i] + start : NULL, &now->sum[k + i], centred);
	}
}

/* Columns from … to-1, a run of segments: the first sums of `now`, after or while `before` is written. */
INLINE void N(first_pass)(struct N(rows) *now, const struct N(rows) *before, const struct N(affine) *f, int64_t from,
			  int64_t to, int64_t cols, const bool centred, bool nontemporal)
{
	for (int64_t start = from; start < to; start += SEGMENT) {
		int64_t k = 0;
		for (; N(FUSED) && nontemporal && k < now->count && k < before->count; k++) {
			const struct N(row) *b = &before->row[k];
			N(normalize_head)(b, f, start, centred);
			V(tree_add)(&now->sum[k], (centred ? N(sum_and_write_centred) : N(sum_and_write_rms))(
							  now->row[k].x + start, N(segment_length)(cols, start), b, f,
							  span_of(start, b->head, cols)));
		}
		for (; k < now->count || k < before->count; k += 2)
			N(write_then_sum)(now, before, k, f, start, cols, centred, nontemporal);
	}
}

/* Their statistics; meanwhile the beginnings of the rows after them are fetched. */
INLINE void N(second_pass)(const ek_norm_forward_args *a, int64_t first, struct N(rows) *now, const bool centred)
{
	for (int64_t k = 0; k < now->count; k++) {
		struct N(row) *r = &now->row[k];
		r->stats = N(stats_from)(r->x, a->cols, (real)a->eps, V(tree_sum)(&now->sum[k]), now->next[k], centred);
		N(put_stats)(a, first + k, &r->stats);
	}
}

INLINE void N(forward_rows)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal,
			    const bool centred)
{
	struct N(affine) f = N(affine_of)(a->weight, a->bias);
	struct N(rows) rows[2];
	/* In pairs also where instructions are the limit: 16-bit elements, and data in the caches (8x768 f32 171 -> 147 ns
	 * a row). */
	int64_t pairs_from = N(HALF) || !nontemporal ? 0 : PAIR_FORWARD_BYTES;
	int64_t together = rows_together(a->cols * (int64_t)sizeof(T), pairs_from);
	rows[1].count = 0;
	for (int64_t row = first, i = 0; row < end || rows[!i].count; row += rows[i].count, i = !i) {
		struct N(rows) *now = &rows[i], *before = &rows[!i];
		N(rows_at)(a, row, smaller(together, end - row), end, nontemporal, now);
		N(first_pass)(now, before, &f, 0, a->cols, a->cols, centred, nontemporal);
		N(second_pass)(a, row, now, centred);
	}
	if (nontemporal)
		nontemporal_fence();
}

static void N(forward)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal)
{
	if (a->norm == EK_LAYER_NORM)
		N(forward_rows)(a, first, end, nontemporal, true);
	else
		N(forward_rows)(a, first, end, nontemporal, false);
}
