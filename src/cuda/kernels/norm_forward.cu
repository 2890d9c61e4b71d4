/* Forward of a norm whose row fits the registers of its threads: read once, summed, written once. Follows
 * norm_rows.cu and norm_sums.cu, which explains the constants; HAS_WEIGHT and HAS_BIAS say which operands there
 * are. A block has BLOCK_ROWS rows in hand (each ROW_WARPS warps), or many narrow ones. The number of rows is
 * no constant. SPDX-License-Identifier: MIT */

struct arguments {
	const u8 *x;
	u8 *y;
	const u8 *weight, *bias;
	void *mean, *rstd, *mean_lo; /* each may be NULL */
	i64 x_stride, y_stride;      /* in bytes */
	i64 rows;
	double eps;
};

/* One quad of the result, from column c. */
DEVICE quad normalized(quad v, struct statistics s, const struct arguments *a, int c)
{
	real x[PER_QUAD], w[PER_QUAD], b[PER_QUAD];
	widen(v, x);
	if (HAS_WEIGHT)
		widen_weights(load_weights(a->weight, c), w);
	if (HAS_BIAS)
		widen_weights(load_weights(a->bias, c), b);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		x[e] = affine(xhat_of(x[e], s), w[e], b[e]);
	return narrow(x);
}

/* A quad is written as soon as it is there, which frees its registers. */
DEVICE void write_row(quad *v, i64 row, struct statistics s, const struct arguments *a, struct place p)
{
	u8 *y = a->y + row * a->y_stride;
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		if (!HAS_QUAD(p.first, j))
			continue;
		v[j] = normalized(v[j], s, a, column(p.first, j));
		if (ACCESS != 1)
			store_strip(y, v[j], column(p.first, j));
	}
	if (ACCESS == 1)
		store_row(y, v, p);
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS)(const struct arguments a)
{
	const int row_block = ROW_BLOCKS > 1 ? cluster_rank() : 0;
	const struct place p = place_of(thread_index(), row_block);
	const int sub = thread_index() % 32 / ROW_THREADS;
	const i64 first = (block_index() / ROW_BLOCKS * BLOCK_ROWS + p.group) * ROWS_AT_ONCE * SUB_ROWS + sub;
	quad v[ROWS_AT_ONCE][HELD];
	struct statistics s[ROWS_AT_ONCE];

	if (first - sub >= a.rows)
		return;
	struct board board = make_board(shared_memory() + p.group * BOARD_BYTES);
	wait_for_kernels_before();
	let_next_kernel_start();
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		i64 row = first + u * SUB_ROWS;
		if (row < a.rows) {
			load_row(v[u], a.x + row * a.x_stride, p);
			continue;
		}
		UNROLL
		for (int j = 0; j < QUADS; j++)
			v[u][j] = no_quad();
	}
	row_statistics(v, s, (real)a.eps, &board, p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		i64 row = first + u * SUB_ROWS;
		if (row >= a.rows)
			continue;
		if (p.unit == 0 && p.lane == 0) {
			if (a.mean)
				store_real(a.mean, row, s[u].mean);
			if (a.rstd)
				store_real(a.rstd, row, s[u].rstd);
			if (a.mean_lo)
				store_real(a.mean_lo, row, s[u].mean_lo);
		}
		write_row(v[u], row, s[u], &a, p);
	}
}
