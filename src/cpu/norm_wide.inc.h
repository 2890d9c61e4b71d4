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

/* Part of the first or second sweep over x. */
static void N(wide_sums)(const ek_norm_forward_args *a, struct ek_wide *w, int64_t part)
{
	int64_t from = part * w->part_cols, cols = N(part_end)(w, a->cols, part) - from;
	const T *const x[2] = {(const T *)a->x + w->row * a->x_stride + from,
			       (const T *)a->x + (w->row + w->count - 1) * a->x_stride + from};
	const real m0[2] = {(real)w->mean[0], (real)w->mean[1]};
	enum sweep sweep = a->norm == EK_RMS_NORM ? SWEEP_SQUARES : w->second ? SWEEP_MOMENTS : SWEEP_SUM;
	struct fetch none = {.cold = !w->second};
	real sum[2], squares[2];
	N(row_sums)(sweep, x, w->count, cols, m0, &none, sum, squares);
	for (int k = 0; k < w->count; k++) {
		w->sums[0][k][part] = sum[k];
		w->sums[1][k][part] = squares[k];
	}
}

/* What the sweep gives: m0 (into mean), or the statistics. */
static void N(wide_finish)(const ek_norm_forward_args *a, struct ek_wide *w)
{
	for (int k = 0; k < w->count; k++) {
		real sum = N(fold_parts)(w, w->sums[0][k]), squares = N(fold_parts)(w, w->sums[1][k]);
		struct N(stats) stats = {.mean = 0};
		if (a->norm == EK_RMS_NORM)
			N(finish_rms)(&stats, squares, a->cols, (real)a->eps);
		else if (w->second)
			N(finish_stats)(&stats, (real)w->mean[k], sum, squares, a->cols, (real)a->eps);
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
	struct N(pair) pair = N(pair_at)(a, w->row, w->row + w->count);
	bool centred = a->norm == EK_LAYER_NORM;
	struct fetch none = {0};
	for (int k = 0; k < w->count; k++)
		pair.rows[k].stats = N(wide_stats)(w, k);
	for (int64_t start = part * w->part_cols; start < N(part_end)(w, a->cols, part); start += SEGMENT)
		N(normalize_segment)(pair.rows, w->count, &f, start, a->cols, &none, centred, w->stream);
	if (w->stream)
		stream_fence();
}

INLINE struct N(grad_pair) N(wide_grad_pair)(const ek_norm_backward_args *a, const struct ek_wide *w)
{
	struct N(grad_pair) pair = {.count = w->count};
	for (int k = 0; k < w->count; k++)
		pair.rows[k] = (struct N(grad_row)){
			.x = (const T *)a->x + (w->row + k) * a->x_stride,
			.dy = (const T *)a->dy + (w->row + k) * a->dy_stride,
			.dx = a->dx ? (T *)a->dx + (w->row + k) * a->dx_stride : NULL,
			.stats = N(wide_stats)(w, k),
			.mean_g = (real)w->mean_g[k],
			.mean_g_xhat = (real)w->mean_g_xhat[k],
		};
	return pair;
}

/* Part of the row sums of backward; its columns of the pair's leaf of the column sums go to w->leaf. */
static void N(wide_reduce)(const ek_norm_backward_args *a, struct ek_wide *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	struct N(grad_pair) pair = N(wide_grad_pair)(a, w);
	struct N(columns) c = {V(zeros), w->leaf, 0, a->cols};
	enum columns kind = w->leaf ? COLUMNS_EACH : COLUMNS_NONE;
	N(reduce) *reduce = N(reduces)[a->norm == EK_LAYER_NORM][w->count - 1][kind];
	struct fetch none[2] = {{0}, {0}};
	struct V(tree) sums[2][2];
	sums[0][0].count = sums[0][1].count = sums[1][0].count = sums[1][1].count = 0;
	for (int64_t start = part * w->part_cols; start < N(part_end)(w, a->cols, part); start += SEGMENT) {
		real g_xhat[2], g_sum[2];
		for (int k = 0; k < w->count; k++) {
			int64_t bytes = N(segment_length)(a->cols, start) * (int64_t)sizeof(T);
			fetch_lines(pair.rows[k].x + start, bytes);
			fetch_lines(pair.rows[k].dy + start, bytes);
		}
		reduce(pair.rows, start, N(segment_length)(a->cols, start), &f, &c, none, g_xhat, g_sum);
		for (int k = 0; k < w->count; k++) {
			V(tree_add)(&sums[0][k], g_xhat[k]);
			V(tree_add)(&sums[1][k], g_sum[k]);
		}
	}
	for (int k = 0; k < w->count; k++) {
		w->sums[0][k][part] = V(tree_sum)(&sums[0][k]);
		w->sums[1][k][part] = V(tree_sum)(&sums[1][k]);
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
	struct N(grad_pair) pair = N(wide_grad_pair)(a, w);
	struct fetch none[2] = {{0}, {0}};
	for (int64_t start = part * w->part_cols; start < N(part_end)(w, a->cols, part); start += SEGMENT)
		N(write_dx_segment)(pair.rows, w->count, &f, start, a->cols, none, a->norm == EK_LAYER_NORM, w->stream);
	if (w->stream)
		stream_fence();
}
