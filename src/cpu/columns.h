/* Column sums on the CPU: how the rows of a call are cut into tasks, each an aligned subtree of rule 6's tree, and what a task
 * adds up. columns.inc.h has the loops. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_COLUMNS_H
#define EK_CPU_COLUMNS_H

#include <stdint.h>

#include "core/context.h"

/* Column sums of a task's rows: an aligned subtree of rule 6's tree. */
struct ek_column_task {
	int64_t first_row, end_row; /* starts with a slot */
	int64_t slot_rows;          /* R */
	void *result;               /* [sums][cols], real numbers */
	void *scratch;              /* ek_column_scratch() such rows */
};

/* Rows of [sums][cols] that a task needs beside its result: the leaf being summed, a chunk, and the pending
 * subtrees of up to `leaves` leaves. */
static inline int64_t ek_column_scratch(int64_t leaves)
{
	int64_t rows = 3;
	for (; leaves > 1; leaves /= 2)
		rows++;
	return rows;
}

enum { EK_MOST_COLUMN_TASKS = 256 };

/* Rows that a leaf of a task's tree covers: a slot, or two slots of one row, whose sum needs no pass of its own. */
static inline int64_t ek_leaf_rows(int64_t slot_rows)
{
	return slot_rows == 1 ? 2 : slot_rows;
}

/* How the column sums are cut: each task an aligned subtree of leaves. */
struct ek_column_plan {
	int64_t slot_rows, leaf_rows, task_leaves, tasks;
	int64_t scratch; /* rows of sums in a task */
};

/* row_bytes: read and written of a row. */
struct ek_column_plan ek_plan_columns(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes);
/* The rows of sums that are enough for every number of rows up to `rows`. */
int64_t ek_column_workspace_rows(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes);
/* Task i of a plan, whose rows of sums have row_size bytes: the results of all tasks come first in the workspace, then each
 * task's scratch. */
struct ek_column_task ek_column_task_at(const struct ek_column_plan *plan, int64_t i, int64_t rows,
					void *workspace, size_t row_size);

#endif
