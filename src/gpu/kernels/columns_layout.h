/* What the host and the kernels that fold column sums share, in one text that both compile: kinds, numbers, arguments.
 * SPDX-License-Identifier: MIT */
#ifndef EK_GPU_COLUMNS_LAYOUT_H
#define EK_GPU_COLUMNS_LAYOUT_H

/* KIND of a kernel of columns.cu; other kernels have other numbers. */
#define KIND_FOLD 6  /* partial column sums into fewer */
#define KIND_FINAL 7 /* into the gradients */

enum {
	MOST_SUMS = 4,       /* column sums of an op */
	COLUMN_WARPS = 8,    /* of a block of columns.cu */
	FOLD_BY_THREAD = 16, /* up to so many partial sums are one thread's work */
	FOLD_TOGETHER =
		256 /* partial sums that a launch folds into one: a thread loads up to twice FOLD_BY_THREAD */
};

/* Numbers from a column sum of a group to that of the next: each starts at a quad. */
#define GROUP_PITCH_OF(cols, real_bytes) (((cols) * (real_bytes) + 15) / 16 * (16 / (real_bytes)))

struct columns_job {
	const void *partials;                /* [count][sum][PITCH] */
	void *folded;                        /* KIND_FOLD: the same of the folded ones */
	unsigned char *gradients[MOST_SUMS]; /* KIND_FINAL: where each sum goes */
	long long count, cols;               /* cols: where COLS is 0 */
	long long blocks;
	long long each; /* partial sums that a thread loads: 1 to twice FOLD_BY_THREAD, a power of two */
};

struct columns_arguments {
	struct columns_job jobs[2]; /* the blocks of the second are behind those of the first */
	int accumulate;
};

#endif
