/* The column sums of a call on a GPU: partial sums of slots, which an op's kernel writes into the workspace, are folded by the tree
 * over slots into gradients (kernels/columns.cu). Called by the ops' plans. SPDX-License-Identifier: MIT */
#ifndef EK_GPU_COLUMNS_H
#define EK_GPU_COLUMNS_H

#include "kernels/columns_layout.h"
#include "plan.h"

enum { EK_MOST_FOLDS = 6 }; /* of FOLD_TOGETHER partial sums into one: 2^58 rows take six */

/* Where partial sums lie: one after another, then room for those of the first fold; folding goes to and fro. */
struct ek_columns {
	ek_dtype dtype, gradient_dtype; /* dtype: of the arithmetic */
	int64_t cols, groups;           /* a row has `groups` of cols columns each */
	int sums;                       /* of each column */
};

/* Bytes of a partial sum of all columns, and of the workspace for so many of them. */
size_t ek_partial_bytes(const struct ek_columns *columns);
size_t ek_partials_bytes(const struct ek_columns *columns, int64_t partials);

/* Adds the folds of `count` partial sums at `partials`; the last writes the gradients. bytes: one of them is at no multiple of
 * its element size. any_rows: with the kernels that other numbers of rows need. folded, if not NULL, gets the numbers of partial
 * sums before each fold. */
void ek_plan_add_folds(struct ek_plan *plan, const struct ek_columns *columns, void *partials, int64_t count,
		       void *const gradients[MOST_SUMS], bool accumulate, bool bytes, bool any_rows,
		       int64_t folded[EK_MOST_FOLDS + 1]);

/* Partial sums of one column sum, which lie as above. */
struct ek_fold {
	void *partials, *gradient;
	int64_t count, cols;
};

/* The same of one tensor or two, whose last folds are one launch, by kernels for any number of columns. */
void ek_plan_add_fold_pair(struct ek_plan *plan, ek_dtype dtype, ek_dtype gradient_dtype,
			   const struct ek_fold folds[2], int folds_count, bool accumulate, bool bytes,
			   bool any_rows);

#endif
