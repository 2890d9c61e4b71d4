/* Rows so wide, and so few, that threads share them: each step of forward and backward for one part of the columns. A
 * part is an aligned subtree of the row's tree (rule 2), so folding the parts' sums by the same tree gives the row's.
 * cpu_split.c runs the steps. Included by cpu_kernels.inc.h.
 * Makes: N(split_first), N(split_second), N(split_finish), N(split_given), N(split_reduce), N(split_means).
 * SPDX-License-Identifier: MIT */

INLINE int64_t N(part_end)(const struct ek_split *w, int64_t cols, int64_t part)
{
	return smaller((part + 1) * w->part_cols, cols);
}

/* The row's sum from its parts'. */
INLINE real N(fold_parts)(const struct ek_split *w, const double *parts)
{
	struct V(tree) tree;
	tree.count = 0;
	for (int64_t part = 0; part < w->parts; part++)
		V(tree_add)(&tree, (real)parts[part]);
	return V(tree_sum)(&tree);
}

INLINE struct N(stats) N(split_stats)(const struct ek_split_row *row)
{
	struct N(stats) stats = {(real)row->mean, (real)row->mean_lo, (real)row->rstd, 0};
	N(set_shift)(&stats);
	return stats;
}

/* The first pass over the pair, while the one before is written. */
static void N(split_first)(const ek_norm_forward_args *a, struct ek_split *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, a->bias);
	struct N(rows) now = {.count = w->count}, before = {.count = w->before};
	for (int k = 0; k < w->count; k++)
		now.row[k].x = now.row[k].fetched = (const T *)a->x + (w->row + k) * a->x_stride;
	for (int k = 0; k < w->before; k++) {
		before.row[k] = N(row_at)(a, w->row - 2 + k, w->nontemporal);
		before.row[k].stats = N(split_stats)(&w->old[k]);
	}
	N(first_pass)(&now, &before, &f, part * w->part_cols, N(part_end)(w, a->cols, part), a->cols,
		      a->norm == EK_LAYER_NORM, w->nontemporal, NULL);
	for (int k = 0; k < w->count; k++)
		w->sums[0][k][part] = V(tree_sum)(&now.sum[k]);
	if (w->nontemporal)
		nontemporal_fence();
}

/* LayerNorm's second pass. */
static void N(split_second)(const ek_norm_forward_args *a, struct ek_split *w, int64_t part)
{
	int64_t end = N(part_end)(w, a->cols, part);
	for (int k = 0; k < w->count; k++) {
		const T *x = (const T *)a->x + (w->row + k) * a->x_stride;
		struct V(tree) sum = {.count = 0}, squares = {.count = 0};
		for (int64_t start = part * w->part_cols; start < end; start += SEGMENT)
			N(add_moments)(x + start, N(segment_length)(end, start), (real)w->now[k].mean, fetch_from(NULL, x), &sum,
				       &squares);
		w->sums[0][k][part] = V(tree_sum)(&sum);
		w->sums[1][k][part] = V(tree_sum)(&squares);
	}
}

/* What a pass gives: m0 (into mean), or the statistics. */
static void N(split_finish)(const ek_norm_forward_args *a, struct ek_split *w)
{
	for (int k = 0; k < w->count; k++) {
		real sum = N(fold_parts)(w, w->sums[0][k]);
		struct N(stats) stats = {.mean = 0};
		if (a->norm == EK_RMS_NORM)
			N(finish_rms)(&stats, sum, a->cols, (real)a->eps);
		else if (w->second)
			N(finish_moments)(&stats, (real)w->now[k].mean, sum, N(fold_parts)(w, w->sums[1][k]), a->cols,
					  (real)a->eps);
		else
			stats.mean = sum / (real)a->cols;
		w->now[k] = (struct ek_split_row){.mean = stats.mean, .mean_lo = stats.mean_lo, .rstd = stats.rstd};
		if (w->second || a->norm == EK_RMS_NORM)
			N(put_stats)(a, w->row + k, &stats);
	}
}

/* Given statistics of the pair. */
static void N(split_given)(const ek_norm_backward_args *a, struct ek_split *w)
{
	for (int k = 0; k < w->count; k++)
		w->now[k] = (struct ek_split_row){.mean = N(given)(a->mean, w->row + k),
						 .mean_lo = N(given)(a->mean_lo, w->row + k),
						 .rstd = N(given)(a->rstd, w->row + k)};
}

/* Row sums of the pair, after dx of the one before is written; its columns of the pair's leaf of the column sums go to
 * w->leaf. */
static void N(split_reduce)(const ek_norm_backward_args *a, struct ek_split *w, int64_t part)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	struct N(grad_rows) now = {.count = w->count}, before = {.count = a->dx ? w->before : 0};
	now.columns[0] = (struct N(columns)){w->leaf ? COLUMNS_SLOTS : COLUMNS_NONE, V(zeros), w->leaf, 0, a->cols};
	for (int k = 0; k < w->count; k++) {
		now.row[k] = N(grad_row_at)(a, w->row + k, w->nontemporal);
		now.row[k].stats = N(split_stats)(&w->now[k]);
	}
	for (int k = 0; k < before.count; k++) {
		before.row[k] = N(grad_row_at)(a, w->row - 2 + k, w->nontemporal);
		before.row[k].stats = N(split_stats)(&w->old[k]);
		before.row[k].mean_g = (real)w->old[k].mean_g;
		before.row[k].mean_g_xhat = (real)w->old[k].mean_g_xhat;
	}
	N(pass_over_rows)(a, w->row, a->rows, &now, &before, &f, part * w->part_cols, N(part_end)(w, a->cols, part),
			a->norm == EK_LAYER_NORM, w->nontemporal);
	for (int k = 0; k < w->count; k++) {
		w->sums[0][k][part] = V(tree_sum)(&now.g_xhat[k]);
		w->sums[1][k][part] = V(tree_sum)(&now.g[k]);
	}
	if (w->nontemporal)
		nontemporal_fence();
}

static void N(split_means)(const ek_norm_backward_args *a, struct ek_split *w)
{
	for (int k = 0; k < w->count; k++) {
		w->now[k].mean_g_xhat = N(fold_parts)(w, w->sums[0][k]) / (real)a->cols;
		w->now[k].mean_g = N(fold_parts)(w, w->sums[1][k]) / (real)a->cols;
	}
}
