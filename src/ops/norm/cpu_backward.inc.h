/* The backward kernel, rules 5 and 6 of docs/numerics.md. Two passes over a row: for its row sums and its part of the
 * column sums, and to write dx. Non-temporal stores keep apart from others, which would wait for them as they wait for the
 * memory: dx of the rows before is written, then come the sums of these. The rows after them are fetched meanwhile, a
 * quarter with the sums and the rest with dx. dh (rule 8) is added where dx is written.
 * Included by cpu_kernels.inc.h. Makes: N(backward), N(finish_columns), and for cpu_split.inc.h N(grad_rows), N(grad_row_at), N(columns).
 * SPDX-License-Identifier: MIT */

struct N(grad_row) {
	const T *x, *dy, *dh; /* dh: NULL if absent */
	T *dx;
	struct N(stats) stats;
	real mean_g, mean_g_xhat;
	int64_t head;
};

/* ---- dx ---- */

INLINE vec N(dx)(vec x, vec dy, vec w, const struct N(grad_row) *r, const bool centred)
{
	vec xhat = N(xhat)(x, &r->stats, centred), g = V(mul)(dy, w), a = V(splat)(r->mean_g_xhat);
	vec d = centred ? V(sub)(g, V(fma)(xhat, a, V(splat)(r->mean_g))) : V(fnma)(xhat, a, g);
	return V(mul)(d, V(splat)(r->stats.rstd));
}

/* Columns span. With nontemporal, dx + span.from is aligned to a line. */
INLINE void N(write_dx)(const struct N(grad_row) *row, const struct N(affine) *affine, struct span span,
			const struct fetch *ahead, const bool centred, const bool has_dh, const bool nontemporal)
{
	struct N(grad_row) r = *row; /* copies, which no store of the loop can change */
	struct N(affine) f = *affine;
	struct fetch fetch[2] = {ahead[0], ahead[1]};
	int64_t i = span.from;
	for (; i + N(STEP) <= span.to; i += N(STEP)) {
		vec x[2], dy[2], w[2];
		UNROLL for (int k = 0; k < 2; k++)
			fetch_ahead(&fetch[k], N(FETCH_DX) * N(STEP) * (int)sizeof(T) / 4);
		A(load2)(r.x + i, x);
		A(load2)(r.dy + i, dy);
		C(load2)(f.weight + (i & f.weight_mask), w);
		UNROLL for (int k = 0; k < 2; k++)
			x[k] = N(dx)(x[k], dy[k], w[k], &r, centred);
		if (has_dh) {
			N(fetch_after)(r.dh + i);
			N(add_after)(r.dh + i, x);
		}
		if (nontemporal)
			A(store2_nontemporal)(r.dx + i, x);
		else
			A(store2)(r.dx + i, x);
	}
	for (; i < span.to; i += N(W)) {
		int n = span.to - i < N(W) ? (int)(span.to - i) : N(W);
		vec w = B(load_part)(f.weight + (i & f.weight_mask), n);
		vec dx = N(dx)(A(load_part)(r.x + i, n), A(load_part)(r.dy + i, n), w, &r, centred);
		A(store_part)(r.dx + i, has_dh ? V(add)(dx, A(load_part)(r.dh + i, n)) : dx, n);
	}
}

#define WRITE_DX(name, centred, has_dh)                                                                        \
	OUTLINE void N(name)(const struct N(grad_row) *r, const struct N(affine) *f, struct span span,             \
			     const struct fetch *ahead, bool nontemporal)                                                        \
	{                                                                                                          \
		if (nontemporal)                                                                                            \
			N(write_dx)(r, f, span, ahead, centred, has_dh, true);                                             \
		else                                                                                                   \
			N(write_dx)(r, f, span, ahead, centred, has_dh, false);                                            \
	}
WRITE_DX(write_dx_centred, true, false)
WRITE_DX(write_dx_rms, false, false)
WRITE_DX(write_dx_centred_dh, true, true)
WRITE_DX(write_dx_rms_dh, false, true)
#undef WRITE_DX

INLINE void N(write_dx_span)(const struct N(grad_row) *r, const struct N(affine) *f, struct span span,
			     const struct fetch *ahead, const bool centred, bool nontemporal)
{
	if (__builtin_expect(r->dh != NULL, 0))
		(centred ? N(write_dx_centred_dh) : N(write_dx_rms_dh))(r, f, span, ahead, nontemporal);
	else
		(centred ? N(write_dx_centred) : N(write_dx_rms))(r, f, span, ahead, nontemporal);
}

/* What of dx goes with segment `start`; next: the row whose segment is fetched meanwhile, or NULL. */
INLINE void N(write_dx_segment)(const struct N(grad_row) *r, const struct N(affine) *f, int64_t start, int64_t cols,
				const struct N(grad_row) *next, const bool centred, bool nontemporal)
{
	int64_t at = start + N(segment_length)(cols, start) * N(FETCH_SUMS) / 4;
	const struct fetch none[2] = {fetch_from(NULL, r->x), fetch_from(NULL, r->dy)};
	const struct fetch ahead[2] = {fetch_from(next ? next->x + at : NULL, r->x),
				       fetch_from(next ? next->dy + at : NULL, r->dy)};
	if (start == 0 && r->head)
		N(write_dx_span)(r, f, (struct span){0, r->head}, none, centred, false);
	N(write_dx_span)(r, f, span_of(start, r->head, cols), ahead, centred, nontemporal);
}

#include "cpu/columns.inc.h"

/* ---- row sums and column sums ---- */

/* Registers of lanes of a block: the sums of g * xhat and of g, for one or two rows. */
struct N(grad_lanes) {
	vec g_xhat[2][GROUP], g[2][GROUP];
};

/* The first n (1 … W) columns from i on of `count` rows, register v of the block. */
INLINE void N(add_grad_terms)(const int count, const struct N(grad_row) *r, int64_t i, int n, const struct N(affine) *f,
			      const struct N(columns) *c, const enum columns kind, const bool centred, const int v,
			      struct N(grad_lanes) *lanes)
{
	const bool part = n != N(W);
	const TW *weight = f->weight + (i & f->weight_mask);
	vec w = part ? B(load_part)(weight, n) : B(load)(weight), dy[2], xhat[2], dw, db;
	UNROLL for (int k = 0; k < count; k++) {
		dy[k] = part ? A(load_part)(r[k].dy + i, n) : A(load)(r[k].dy + i);
		xhat[k] = N(xhat)(part ? A(load_part)(r[k].x + i, n) : A(load)(r[k].x + i), &r[k].stats, centred);
		if (part)
			xhat[k] = V(first)(xhat[k], n); /* 0 * infinity must not come in */
		IN_REGISTER(dy[k]);
		vec g = V(mul)(dy[k], w);
		lanes->g_xhat[k][v] = V(fma)(g, xhat[k], lanes->g_xhat[k][v]);
		if (centred)
			lanes->g[k][v] = V(add)(lanes->g[k][v], g);
	}
	if (kind == COLUMNS_NONE)
		return;
	const real *from = c->from + (i & c->mask), *from_db = from + (c->cols & c->mask);
	dw = part ? V(load_part)(from, n) : V(load)(from);
	db = part ? V(load_part)(from_db, n) : V(load)(from_db);
	UNROLL for (int k = 0; k < count; k++) {
		if (kind == COLUMNS_SLOTS && (k || count == 1))
			dw = V(add)(dw, V(mul)(dy[k], xhat[k]));
		else
			dw = V(fma)(dy[k], xhat[k], dw);
		db = V(add)(db, dy[k]);
	}
	if (part) {
		V(store_part)(c->to + i, dw, n);
		V(store_part)(c->to + c->cols + i, db, n);
	} else {
		V(store)(c->to + i, dw);
		V(store)(c->to + c->cols + i, db);
	}
}

/* The segment of n columns at `start` of `count` rows: their row sums go to g_xhat and g. */
INLINE void N(grad_sums)(const int count, const struct N(grad_row) *rows, int64_t start, int64_t n,
			 const struct N(affine) *affine, const struct N(columns) *columns,
			 struct fetch ahead[2][2], const enum columns kind, const bool centred, real g_xhat[2],
			 real g[2])
{
	struct N(grad_row) r[2] = {rows[0], rows[count - 1]}; /* copies, which no store of the loop can change */
	struct N(affine) f = *affine;
	struct N(columns) c = *columns;
	struct fetch fetch[2][2] = {{ahead[0][0], ahead[0][1]}, {ahead[count - 1][0], ahead[count - 1][1]}};
	vec a[2][N(BLOCKS)], b[2][N(BLOCKS)];
	UNROLL_BLOCKS for (int block = 0; block < N(BLOCKS); block++) {
		struct N(grad_lanes) lanes;
		int64_t at = (int64_t)block * N(BLOCK);
		UNROLL for (int k = 0; k < count; k++)
			a[k][block] = b[k][block] = V(splat)(0);
		if (at >= n) /* a narrow row */
			continue;
#define TERMS(v, n) N(add_grad_terms)(count, r, start + at + (v) * N(W), n, &f, &c, kind, centred, v, &lanes)
		UNROLL for (int v = 0; v < GROUP; v++)
			lanes.g_xhat[0][v] = lanes.g_xhat[1][v] = lanes.g[0][v] = lanes.g[1][v] = V(splat)(0);
		for (; at + N(BLOCK) <= n; at += LANES) {
			UNROLL for (int k = 0; k < count; k++) {
				fetch_ahead(&fetch[k][0], N(FETCH_SUMS) * N(BLOCK) * (int)sizeof(T) / 4);
				fetch_ahead(&fetch[k][1], N(FETCH_SUMS) * N(BLOCK) * (int)sizeof(T) / 4);
			}
			UNROLL for (int v = 0; v < GROUP; v++)
				TERMS(v, N(W));
		}
		UNROLL for (int v = 0; v < GROUP; v++) {
			int64_t left = n - at - v * N(W);
			if (left <= 0)
				break;
			if (left >= N(W))
				TERMS(v, N(W));
			else
				TERMS(v, (int)left);
		}
#undef TERMS
		UNROLL for (int k = 0; k < count; k++) {
			a[k][block] = V(narrow)(lanes.g_xhat[k]);
			b[k][block] = V(narrow)(lanes.g[k]);
		}
	}
	UNROLL for (int k = 0; k < count; k++) {
		g_xhat[k] = V(sum)(a[k]);
		g[k] = centred ? V(sum)(b[k]) : 0;
	}
}

#define GRAD_SUMS(name, kind, centred)                                                                         \
	OUTLINE void N(name)(int count, const struct N(grad_row) *r, int64_t start, int64_t n, const struct N(affine) *f, \
			     const struct N(columns) *c, struct fetch ahead[2][2], real g_xhat[2], real g[2])        \
	{                                                                                                          \
		if (count == 2)                                                                                        \
			N(grad_sums)(2, r, start, n, f, c, ahead, kind, centred, g_xhat, g);                               \
		else                                                                                                   \
			N(grad_sums)(1, r, start, n, f, c, ahead, kind, centred, g_xhat, g);                               \
	}
GRAD_SUMS(centred_none, COLUMNS_NONE, true)
GRAD_SUMS(centred_chain, COLUMNS_CHAIN, true)
GRAD_SUMS(centred_slots, COLUMNS_SLOTS, true)
GRAD_SUMS(rms_none, COLUMNS_NONE, false)
GRAD_SUMS(rms_chain, COLUMNS_CHAIN, false)
GRAD_SUMS(rms_slots, COLUMNS_SLOTS, false)
#undef GRAD_SUMS

/* One or two rows; ahead: what is fetched meanwhile, for each row its x and its dy. */
INLINE void N(add_grad_segment)(int count, const struct N(grad_row) *r, int64_t start, int64_t n,
				const struct N(affine) *f, const struct N(columns) *c, struct fetch ahead[2][2],
				const bool centred, struct V(tree) *g_xhat, struct V(tree) *g)
{
	real a[2], b[2];
	if (c->kind == COLUMNS_CHAIN)
		(centred ? N(centred_chain) : N(rms_chain))(count, r, start, n, f, c, ahead, a, b);
	else if (c->kind == COLUMNS_SLOTS)
		(centred ? N(centred_slots) : N(rms_slots))(count, r, start, n, f, c, ahead, a, b);
	else
		(centred ? N(centred_none) : N(rms_none))(count, r, start, n, f, c, ahead, a, b);
	for (int k = 0; k < count; k++) {
		V(tree_add)(&g_xhat[k], a[k]);
		V(tree_add)(&g[k], b[k]);
	}
}

/* ---- rows ---- */

/* Rows that go through the passes together. */
struct N(grad_rows) {
	struct N(grad_row) row[MAX_TOGETHER];
	struct V(tree) g_xhat[MAX_TOGETHER], g[MAX_TOGETHER];
	struct N(columns) columns[MAX_TOGETHER / 2]; /* of each pair */
	int64_t count;
};

INLINE real N(given)(const void *tensor, int64_t row)
{
	real value = 0;
	if (tensor)
		memcpy(&value, (const real *)tensor + row, sizeof value);
	return value;
}

/* The statistics of a row: the given ones, or x's own. */
INLINE struct N(stats) N(grad_stats)(const ek_norm_backward_args *a, int64_t row, const T *x, const bool centred)
{
	struct N(stats) stats = {N(given)(a->mean, row), N(given)(a->mean_lo, row), N(given)(a->rstd, row), 0};
	N(set_shift)(&stats);
	if (a->rstd)
		return stats;
	struct V(tree) sum = {.count = 0};
	for (int64_t start = 0; start < a->cols; start += SEGMENT)
		N(add_first)(x + start, NULL, N(segment_length)(a->cols, start), NULL, &sum, centred);
	return N(stats_from)(x, NULL, a->cols, (real)a->eps, V(tree_sum)(&sum), NULL, centred);
}

INLINE struct N(grad_row) N(grad_row_at)(const ek_norm_backward_args *a, int64_t row, bool nontemporal)
{
	struct N(grad_row) r = {.x = (const T *)a->x + row * a->x_stride,
				.dy = (const T *)a->dy + row * a->dy_stride,
				.dh = a->dh ? (const T *)a->dh + row * a->dh_stride : NULL,
				.dx = a->dx ? (T *)a->dx + row * a->dx_stride : NULL};
	r.head = head_of(r.dx, sizeof(T), a->cols, nontemporal);
	return r;
}

INLINE void N(grad_rows_at)(const ek_norm_backward_args *a, int64_t first, int64_t count, bool nontemporal,
			    const bool centred, struct N(grad_rows) *rows)
{
	rows->count = count;
	for (int64_t k = 0; k < count; k++) {
		rows->row[k] = N(grad_row_at)(a, first + k, nontemporal);
		rows->row[k].stats = N(grad_stats)(a, first + k, rows->row[k].x, centred);
		rows->g_xhat[k].count = rows->g[k].count = 0;
		if (nontemporal)
			fetch_edges(rows->row[k].dx, a->cols * (int64_t)sizeof(T));
	}
}

/* Columns from … to-1, a run of segments: dx of `before`, then the sums of `now`, which are rows first … of those up to
 * `end`. */
INLINE void N(pass_over_rows)(const ek_norm_backward_args *a, int64_t first, int64_t end, struct N(grad_rows) *now,
			    const struct N(grad_rows) *before, const struct N(affine) *f, int64_t from, int64_t to,
			    const bool centred, bool nontemporal)
{
	for (int64_t start = from; start < to; start += SEGMENT) {
		int64_t n = N(segment_length)(a->cols, start);
		for (int64_t k = 0; k < before->count; k++)
			N(write_dx_segment)(&before->row[k], f, start, a->cols, k < now->count ? &now->row[k] : NULL, centred,
					    nontemporal);
		for (int64_t k = before->count; k < now->count; k++) {
			fetch_lines(now->row[k].x + start, n * (int64_t)sizeof(T));
			fetch_lines(now->row[k].dy + start, n * (int64_t)sizeof(T));
		}
		for (int64_t k = 0; k < now->count; k += 2) {
			bool last = start + SEGMENT >= a->cols;
			int64_t at = last ? 0 : start + SEGMENT;
			int count = (int)smaller(2, now->count - k);
			struct fetch ahead[2][2];
			for (int i = 0; i < count; i++) {
				int64_t row = first + k + i + (last ? now->count : 0);
				const struct N(grad_row) *r = &now->row[k + i];
				bool there = row < end;
				ahead[i][0] = fetch_from(there ? (const T *)a->x + row * a->x_stride + at : NULL, r->x);
				ahead[i][1] = fetch_from(there ? (const T *)a->dy + row * a->dy_stride + at : NULL, r->dy);
			}
			N(add_grad_segment)(count, &now->row[k], start, n, f, &now->columns[k / 2], ahead, centred, &now->g_xhat[k],
					    &now->g[k]);
		}
	}
}

/* Of the rows from `row` on, as many as go through the passes together: at most so many, and of one chunk. */
INLINE int64_t N(rows_from)(struct N(column_sums) *sums, int64_t row, int64_t end, int64_t together)
{
	int64_t count = smaller(together, end - row);
	return sums->task && count ? smaller(count, N(rows_in_chunk)(sums, row)) : count;
}

/* The means of rule 5, where all sums of the rows, which end before `end`, are complete. */
INLINE void N(rows_are_summed)(struct N(grad_rows) *rows, struct N(column_sums) *sums, int64_t end, int64_t cols)
{
	for (int64_t k = 0; k < rows->count; k++) {
		rows->row[k].mean_g_xhat = V(tree_sum)(&rows->g_xhat[k]) / (real)cols;
		rows->row[k].mean_g = V(tree_sum)(&rows->g[k]) / (real)cols;
	}
	if (sums->task && rows->count)
		N(rows_are_in)(sums, end);
}

INLINE void N(close_sums)(struct N(column_sums) *sums, bool nontemporal)
{
	if (sums->task)
		N(finish_tree)(&sums->tree, sums->task->result);
	if (nontemporal)
		nontemporal_fence();
}

/* Rows first … end-1; the column sums of task, if there is one. */
INLINE void N(backward_rows)(const ek_norm_backward_args *a, int64_t first, int64_t end,
			     const struct ek_column_task *task, bool nontemporal, const bool centred)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	struct N(grad_rows) rows[2];
	struct N(column_sums) sums;
	int64_t together = rows_together(a->cols * (int64_t)sizeof(T), PAIR_BACKWARD_BYTES);
	N(open_sums)(&sums, task, end - first, a->cols, 2);
	rows[1].count = 0;
	for (int64_t row = first, i = 0; row < end || rows[!i].count; row += rows[i].count, i = !i) {
		struct N(grad_rows) *now = &rows[i], *before = &rows[!i];
		int64_t count = N(rows_from)(&sums, row, end, together);
		N(grad_rows_at)(a, row, count, nontemporal, centred, now);
		if (!a->dx)
			before->count = 0;
		for (int64_t k = 0; k < count; k += 2)
			now->columns[k / 2] = N(columns_for)(&sums, row + k);
		N(pass_over_rows)(a, row, end, now, before, &f, 0, a->cols, centred, nontemporal);
		N(rows_are_summed)(now, &sums, row + count, a->cols);
	}
	N(close_sums)(&sums, nontemporal);
}

static void N(backward)(const ek_norm_backward_args *a, int64_t first, int64_t end, const struct ek_column_task *task,
			bool nontemporal)
{
	if (a->norm == EK_LAYER_NORM)
		N(backward_rows)(a, first, end, task, nontemporal, true);
	else
		N(backward_rows)(a, first, end, task, nontemporal, false);
}

static void N(finish_columns)(const ek_norm_backward_args *args, const void *results, int64_t count, int64_t first,
			      int64_t end)
{
	const real *of_weight = results, *of_bias = of_weight + args->cols;
	int64_t stride = 2 * args->cols;
	if (args->dweight)
		N(finish_gradient)(of_weight, count, stride, first, end, args->accumulate, args->dweight);
	if (args->dbias)
		N(finish_gradient)(of_bias, count, stride, first, end, args->accumulate, args->dbias);
}
