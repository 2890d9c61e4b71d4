/* Cuts the rows of a call into tasks for its column sums; columns.h says what. SPDX-License-Identifier: MIT */
#include "columns.h"

#include "core/slots.h"
#include "cut.h"

/* The most tasks of a call. */
static int64_t most_tasks(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	if (ek_one_thread_is_enough(ctx, rows, row_bytes))
		return 1;
	return smaller((int64_t)ctx->threads * EK_TASKS_A_THREAD, EK_MOST_COLUMN_TASKS);
}

static int64_t leaves_of_a_task(int64_t leaves, int64_t most)
{
	int64_t task_leaves = 1;
	while (quotient_up(leaves, task_leaves) > most)
		task_leaves *= 2;
	return task_leaves;
}

struct ek_column_plan ek_plan_columns(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes)
{
	struct ek_column_plan p = {.slot_rows = ek_slot_rows(rows, cols)};
	p.leaf_rows = ek_leaf_rows(p.slot_rows);
	int64_t leaves = larger(1, quotient_up(rows, p.leaf_rows));
	p.task_leaves = leaves_of_a_task(leaves, most_tasks(ctx, rows, row_bytes));
	p.tasks = quotient_up(leaves, p.task_leaves);
	p.scratch = ek_column_scratch(p.task_leaves);
	return p;
}

/* Tasks of n leaves need most where their number is the largest allowed, just before tasks get 2n leaves. */
int64_t ek_column_workspace_rows(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes)
{
	if (rows == 0)
		return 1; /* the result */
	int64_t leaves = smaller(quotient_up(rows, 2), ek_most_slots(rows, cols));
	int64_t most = most_tasks(ctx, rows, row_bytes), task_leaves = leaves_of_a_task(leaves, most);
	int64_t needed = quotient_up(leaves, task_leaves) * (1 + ek_column_scratch(task_leaves));
	return task_leaves > 1 ? larger(needed, most * (1 + ek_column_scratch(task_leaves / 2))) : needed;
}

struct ek_column_task ek_column_task_at(const struct ek_column_plan *p, int64_t i, int64_t rows,
					void *workspace, size_t row_size)
{
	int64_t task_rows = p->task_leaves * p->leaf_rows;
	char *sums = workspace;
	return (struct ek_column_task){
		.first_row = i * task_rows,
		.end_row = smaller((i + 1) * task_rows, rows),
		.slot_rows = p->slot_rows,
		.result = sums + (size_t)i * row_size,
		.scratch = sums + (size_t)(p->tasks + i * p->scratch) * row_size,
	};
}
