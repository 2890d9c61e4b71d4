/* Rows so wide, and so few, that threads share them: each step of forward and backward for one part of the columns
 * of a pair of rows. A part is an aligned subtree of the row's tree (rule 2), so folding the parts' sums by the same
 * tree gives the row's. wide.c runs the steps. Included by norm_kernels.inc.h. SPDX-License-Identifier: MIT */

INLINE int64_t N(part_end)(const struct ek_wide *w, int64_t cols, int64_t part)
{
	return smaller((part + 1) * w->part_cols, cols);
}

/* The row's sum from its parts'. */
INLINE real N(fold_parts)(const struct ek_wide *w, const double *parts)
{
	struct V(tree) tree;
	tree.count = 0;
	for (int64_t part = 0; part < w->parts; part++)
		V(tree_add)(&tree, (real)parts[part]);
	return V(tree_sum)(&tree);
}

INLINE struct N(stats) N(wide_stats)(const struct ek_wide *w, int k)
{
	struct N(stats) stats = {(real)w->mean[k], (real)w->mean_lo[k], (real)w->rstd[k], 0};
	N(set_shift)(&stats);
	return stats;
}

/* Part of the first or second look at x. */
static void N(wide_sums)(const ek_norm_forward_args *a, struct ek_wide *w, int64_t part)
{
	int64_t end = N(part_end)(w, a->cols, part);
	for (int k = 0; k < w->count; k++) {
		const T *x = (const T *)a->x + (w->row + k) * a->x_stride;
		struct V(tree) sum = {.count = 0}, squares = {.count = 0};
		for (int64_t start = part * w->part_cols; start < end; start += SEGMENT) {
			int64_t n = N(segment_length)(end, start);
			if (w->second)
				N(add_moments)(x + start, n, (real)w->mean[k], fetch_from(NULL, x), &sum, &squares);
			else {
				fetch_lines(x + start, n * (int64_t)sizeof(T));
				N(add_first)(x + start, n, NULL, &sum, a->norm == EK_LAYER_NORM);
			}
		}
		w->sums[0][k][part] = V(tree_sum)(&sum);
		w->sums[1][k][part] = V(tree_sum)(&squares);
	}
}

/* What the sweep gives: m0 (into mean), or the statistics. */
static void N(wide_finish)(const ek_norm_forward_args *a, struct ek_wide *w)
{
	for (int k = 0; k < w->count; k++) {
		real sum = N(fold_parts)(w, w->sums[0][k]), squares = N(fold_parts)(w, w->sums[1][k]);
		struct N(stats) stats = {.mean = 0};
		if (a->norm == EK_RMS_NORM)
			N(finish_rms)(&stats, sum, a->cols, (real)a->eps);
		else if (w->second)
			N(finish_moments)(&stats, (real)w->mean[k], sum, squares, a->cols, (real)a->eps);
		else
			stats.mean = sum / (real)a->cols;
		w->mean[k] = stats.mean;
		w->mean_lo[k] = stats.mean_lo;
		w->rstd[k] = stats.rstd;
		if (w->second || a->norm == EK_RMS_NORM)
			N(put_stats)(a, w->row + k, &stats);
	}
}

static void N(wide_normalize)(const ek_norm_forward_args *a, struct ek_wide *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, a->bias);
	struct N(row) rows[2];
	for (int k = 0; k < w->count; k++) {
		rows[k] = N(row_at)(a, w->row + k, w->stream);
		rows[k].stats = N(wide_stats)(w, k);
	}
	for (int64_t start = part * w->part_cols; start < N(part_end)(w, a->cols, part); start += SEGMENT)
		N(normalize_segment)(w->count, rows, &f, start, a->cols, NULL, a->norm == EK_LAYER_NORM, w->stream);
	if (w->stream)
		stream_fence();
}

INLINE struct N(grad_row) N(wide_grad_row)(const ek_norm_backward_args *a, const struct ek_wide *w, int k)
{
	struct N(grad_row) r = N(grad_row_at)(a, w->row + k, w->stream);
	r.stats = N(wide_stats)(w, k);
	r.mean_g = (real)w->mean_g[k];
	r.mean_g_xhat = (real)w->mean_g_xhat[k];
	return r;
}

/* Part of the row sums of backward; its columns of the pair's leaf of the column sums go to w->leaf. */
static void N(wide_reduce)(const ek_norm_backward_args *a, struct ek_wide *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	int64_t end = N(part_end)(w, a->cols, part);
	bool centred = a->norm == EK_LAYER_NORM;
	struct N(grad_rows) rows;
	for (int k = 0; k < w->count; k++) {
		rows.row[k] = N(wide_grad_row)(a, w, k);
		rows.g_xhat[k].count = rows.g[k].count = 0;
	}
	struct N(columns) c = {w->leaf ? COLUMNS_SLOTS : COLUMNS_NONE, V(zeros), w->leaf, 0, a->cols};
	for (int64_t start = part * w->part_cols; start < end; start += SEGMENT) {
		int64_t n = N(segment_length)(end, start), next = start + SEGMENT;
		struct fetch ahead[2][2];
		for (int k = 0; k < w->count; k++) {
			const struct N(grad_row) *r = &rows.row[k];
			fetch_lines(r->x + start, n * (int64_t)sizeof(T));
			fetch_lines(r->dy + start, n * (int64_t)sizeof(T));
			ahead[k][0] = fetch_from(next < end ? r->x + next : NULL, r->x);
			ahead[k][1] = fetch_from(next < end ? r->dy + next : NULL, r->dy);
		}
		N(add_grad_segment)(w->count, rows.row, start, n, &f, &c, ahead, centred, rows.g_xhat, rows.g);
	}
	for (int k = 0; k < w->count; k++) {
		w->sums[0][k][part] = V(tree_sum)(&rows.g_xhat[k]);
		w->sums[1][k][part] = V(tree_sum)(&rows.g[k]);
	}
}

/* Given statistics of the pair. */
static void N(wide_given)(const ek_norm_backward_args *a, struct ek_wide *w)
{
	for (int k = 0; k < w->count; k++) {
		w->mean[k] = N(given)(a->mean, w->row + k);
		w->mean_lo[k] = N(given)(a->mean_lo, w->row + k);
		w->rstd[k] = N(given)(a->rstd, w->row + k);
	}
}

static void N(wide_means)(const ek_norm_backward_args *a, struct ek_wide *w)
{
	for (int k = 0; k < w->count; k++) {
		w->mean_g_xhat[k] = N(fold_parts)(w, w->sums[0][k]) / (real)a->cols;
		w->mean_g[k] = N(fold_parts)(w, w->sums[1][k]) / (real)a->cols;
	}
}

static void N(wide_dx)(const ek_norm_backward_args *a, struct ek_wide *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	struct N(grad_row) rows[2];
	for (int k = 0; k < w->count; k++)
		rows[k] = N(wide_grad_row)(a, w, k);
	for (int64_t start = part * w->part_cols; start < N(part_end)(w, a->cols, part); start += SEGMENT)
		for (int k = 0; k < w->count; k++)
			N(write_dx_segment)(&rows[k], &f, start, a->cols, NULL, a->norm == EK_LAYER_NORM, w->stream);
	if (w->stream)
		stream_fence();
}
