/* The last steps of backward's column sums: folds up to 256 partial sums of every column by the tree over slots, into
 * one partial sum (KIND_FOLD) or into the gradients (KIND_FINAL). Follows elements.cu and columns_layout.h. Constants of its own: SUMS,
 * the number of column sums; COLS, of a group of columns, and ROW_GROUPS; KIND; JOBS, 1 or 2 tensors of partial sums. Where COLS is 0, each
 * job has its number of columns, in one group, and SUMS is 1. Up to MOST partial sums are one thread's work. Of more, a block takes 32
 * columns: its 8 warps load partial sums, a lane a column, so that lines are read whole; then 8 threads share a column. Small
 * blocks fit beside those of the kernel before, so that they are there when it ends. SPDX-License-Identifier: MIT */

enum { WARPS = COLUMN_WARPS, MOST = FOLD_BY_THREAD };

#define GROUP_COLS(job) (COLS ? COLS : (int)(job)->cols)
#define GROUP_PITCH(job) GROUP_PITCH_OF(GROUP_COLS(job), (int)sizeof(real))
#define PITCH(job) (ROW_GROUPS * GROUP_PITCH(job))
#define COLUMNS(job) (SUMS * PITCH(job))

DEVICE void write_gradient(const struct columns_job *job, int at, real sum, int accumulate)
{
	const int c = SUMS == 1 ? at : at % PITCH(job);
	const int group = ROW_GROUPS == 1 ? 0 : c / GROUP_PITCH(job), in_group = c - group * GROUP_PITCH(job);
	u8 *to = job->gradients[0];
	UNROLL
	for (int k = 1; k < SUMS; k++)
		to = at >= k * PITCH(job) ? job->gradients[k] : to;
	const int in_row = group * GROUP_COLS(job) + in_group;
	if (in_group < GROUP_COLS(job))
		store_weight(to, in_row, accumulate ? load_weight(to, in_row) + sum : sum);
}

/* Partial sums first, first + 1, … of a column, folded. */
DEVICE real fold_some(const struct columns_job *job, i64 first, int count, int at)
{
	real part[MOST];
	UNROLL
	for (int i = 0; i < MOST; i++) {
		int there = i < count && first + i < job->count && at < COLUMNS(job);
		part[i] = there ? load_one(real, (const real *)job->partials + (first + i) * COLUMNS(job) + at) : 0;
	}
	return fold_array(part, MOST);
}

KERNEL(KERNEL_NAME, 32 * WARPS, 4, columns_arguments)
{
	real(*board)[33] = (real(*)[33])shared_memory();
	const int lane = thread_index() % 32, warp = thread_index() / 32;
	const int second = JOBS == 2 && block_index() >= a.jobs[0].blocks;
	const struct columns_job job = second ? a.jobs[1] : a.jobs[0];
	const i64 block = block_index() - (second ? a.jobs[0].blocks : 0);
	const int strips = (COLUMNS(&job) + 31) / 32, strip = (int)(block % strips);
	const i64 fold = block / strips;
	const int each = (int)job.each;

	wait_for_kernels_before();
	let_next_kernel_start();
	if (job.count <= MOST) {
		int at = (int)block * 32 * WARPS + thread_index();
		real sum = fold_some(&job, 0, MOST, at);
		if (KIND == KIND_FINAL && at < COLUMNS(&job))
			write_gradient(&job, at, sum + 0, a.accumulate);
		return;
	}
	const i64 first = (fold * WARPS + warp) * each;
	board[warp][lane] = fold_some(&job, first, each, strip * 32 + lane);
	if (each > MOST)
		board[warp][lane] = board[warp][lane] + fold_some(&job, first + MOST, MOST, strip * 32 + lane);
	sync_block();
	real sum = board[lane % WARPS][warp * 4 + lane / WARPS];
	UNROLL
	for (int h = 1; h < WARPS; h *= 2)
		sum = sum + shuffle_xor(sum, h);
	const int at = strip * 32 + warp * 4 + lane / WARPS;
	if (lane % WARPS != 0 || at >= COLUMNS(&job))
		return;
	if (KIND == KIND_FINAL)
		write_gradient(&job, at, sum + 0, a.accumulate);
	else
		store_one(real, (real *)job.folded + fold * COLUMNS(&job) + at, sum);
}
