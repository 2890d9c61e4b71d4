/* The last steps of backward's column sums: folds up to 128 partial sums of every column by the tree over slots, into
 * one partial sum or, with FINAL, into dweight and dbias. Follows norm_sums.cu. Constants of its own:
 * WANT_DWEIGHT, WANT_DBIAS, FINAL. Up to MOST partial sums are one thread's work. Of more, a block takes 32 columns: its
 * 8 warps load partial sums, a lane a column, so that lines are read whole; then 8 threads share a column. Small
 * blocks fit beside those of the kernel before, so that they are there when it ends. SPDX-License-Identifier: MIT */

struct arguments {
	const real *partials; /* [count][dweight, dbias][PITCH] */
	real *folded;         /* the same of the folded ones, unless FINAL */
	u8 *dweight, *dbias;
	i64 count;
	int each; /* partial sums that a thread loads: 1 to MOST, a power of two */
	int accumulate;
};

enum {
	WANT_SUMS = WANT_DWEIGHT + WANT_DBIAS,
	PITCH = (COLS + REALS - 1) / REALS * REALS,
	COLUMNS = WANT_SUMS * PITCH,
	STRIPS = (COLUMNS + 31) / 32,
	WARPS = 8,
	MOST = 16
};

DEVICE void write_gradient(const struct arguments *a, int at, real sum)
{
	const int c = at % PITCH;
	u8 *to = WANT_DWEIGHT && at < PITCH ? a->dweight : a->dbias;
	if (c < COLS)
		store_weight(to, c, a->accumulate ? load_weight(to, c) + sum : sum);
}

/* Partial sums first, first + 1, … of a column, folded. */
DEVICE real fold_some(const struct arguments *a, i64 first, int count, int at)
{
	real part[MOST];
	UNROLL
	for (int i = 0; i < MOST; i++) {
		int there = i < count && first + i < a->count && at < COLUMNS;
		part[i] = there ? load_one(real, a->partials + (first + i) * COLUMNS + at) : 0;
	}
	return fold_array(part, MOST);
}

KERNEL(KERNEL_NAME, 32 * WARPS, 4)(const struct arguments a)
{
	real(*board)[33] = (real(*)[33])shared_memory();
	const int lane = thread_index() % 32, warp = thread_index() / 32;
	const int strip = (int)(block_index() % STRIPS);
	const i64 fold = block_index() / STRIPS;

	wait_for_kernels_before();
	let_next_kernel_start();
	if (a.count <= MOST) {
		int at = (int)block_index() * 32 * WARPS + thread_index();
		real sum = fold_some(&a, 0, MOST, at);
		if (FINAL && at < COLUMNS)
			write_gradient(&a, at, sum + 0);
		return;
	}
	board[warp][lane] = fold_some(&a, (fold * WARPS + warp) * a.each, a.each, strip * 32 + lane);
	sync_block();
	real sum = board[lane % WARPS][warp * 4 + lane / WARPS];
	UNROLL
	for (int h = 1; h < WARPS; h *= 2)
		sum = sum + shuffle_xor(sum, h);
	const int at = strip * 32 + warp * 4 + lane / WARPS;
	if (lane % WARPS != 0 || at >= COLUMNS)
		return;
	if (FINAL)
		write_gradient(&a, at, sum + 0);
	else
		store_one(real, a.folded + fold * COLUMNS + at, sum);
}
