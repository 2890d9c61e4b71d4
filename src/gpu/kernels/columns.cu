/* The last steps of backward's column sums: folds up to 256 partial sums of every column by the tree over slots, into
 * one partial sum (KIND_FOLD) or into the gradients (KIND_FINAL). Follows elements.cu and columns_layout.h. Constants of its own: SUMS,
 * the number of column sums; COLS, of a group of columns, and ROW_GROUPS; KIND. Up to MOST partial sums are one thread's work. Of more, a block takes 32 columns: its
 * 8 warps load partial sums, a lane a column, so that lines are read whole; then 8 threads share a column. Small
 * blocks fit beside those of the kernel before, so that they are there when it ends. SPDX-License-Identifier: MIT */

enum {
	GROUP_PITCH = GROUP_PITCH_OF(COLS, (int)sizeof(real)),
	PITCH = ROW_GROUPS * GROUP_PITCH,
	COLUMNS = SUMS * PITCH,
	STRIPS = (COLUMNS + 31) / 32,
	WARPS = COLUMN_WARPS,
	MOST = FOLD_BY_THREAD
};

DEVICE void write_gradient(const struct columns_arguments *a, int at, real sum)
{
	const int c = at % PITCH;
	u8 *to = a->gradients[0];
	UNROLL
	for (int k = 1; k < SUMS; k++)
		to = at >= k * PITCH ? a->gradients[k] : to;
	const int in_row = c / GROUP_PITCH * COLS + c % GROUP_PITCH;
	if (c % GROUP_PITCH < COLS)
		store_weight(to, in_row, a->accumulate ? load_weight(to, in_row) + sum : sum);
}

/* Partial sums first, first + 1, … of a column, folded. */
DEVICE real fold_some(const struct columns_arguments *a, i64 first, int count, int at)
{
	real part[MOST];
	UNROLL
	for (int i = 0; i < MOST; i++) {
		int there = i < count && first + i < a->count && at < COLUMNS;
		part[i] = there ? load_one(real, (const real *)a->partials + (first + i) * COLUMNS + at) : 0;
	}
	return fold_array(part, MOST);
}

KERNEL(KERNEL_NAME, 32 * WARPS, 4, columns_arguments)
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
		if (KIND == KIND_FINAL && at < COLUMNS)
			write_gradient(&a, at, sum + 0);
		return;
	}
	const i64 first = (fold * WARPS + warp) * a.each;
	board[warp][lane] = fold_some(&a, first, a.each, strip * 32 + lane);
	if (a.each > MOST)
		board[warp][lane] = board[warp][lane] + fold_some(&a, first + MOST, MOST, strip * 32 + lane);
	sync_block();
	real sum = board[lane % WARPS][warp * 4 + lane / WARPS];
	UNROLL
	for (int h = 1; h < WARPS; h *= 2)
		sum = sum + shuffle_xor(sum, h);
	const int at = strip * 32 + warp * 4 + lane / WARPS;
	if (lane % WARPS != 0 || at >= COLUMNS)
		return;
	if (KIND == KIND_FINAL)
		write_gradient(&a, at, sum + 0);
	else
		store_one(real, (real *)a.folded + fold * COLUMNS + at, sum);
}
