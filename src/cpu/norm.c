/* The CPU backend of the norm ops: cuts a call into tasks and hands them to the threads. What runs in a task is
 * a level's kernel (norm_kernels.h); where the cuts fall changes no bit. Called by api.c.
 * SPDX-License-Identifier: MIT */
#include "norm.h"

#include "../ref/slots.h"
#include "level.h"
#include "norm_kernels.h"
#include "tasks.h"
#include "wide.h"

/* Below this many bytes read and written a second thread costs more than it brings: it may have to be woken. */
enum { ALONE_BYTES = 256 << 10 };
/* A task's rows of one tensor: long enough that its first rows, which nothing fetched ahead, do not matter. */
enum { TASK_BYTES = 256 << 10 };
/* Tasks a thread gets, so that one that is held up leaves work to the others. */
enum { TASKS_A_THREAD = 8 };

static const struct ek_norm_kernel *kernel_for(const ek_context *ctx, ek_dtype dtype, ek_dtype weight_dtype)
{
	const struct ek_norm_kernels *k = ctx->level->norm;
	bool same = weight_dtype == dtype;
	switch (dtype) {
	case EK_F32:
		return k->f32_f32;
	case EK_F16:
		return same ? k->f16_f16 : k->f16_f32;
	case EK_BF16:
		return same ? k->bf16_bf16 : k->bf16_f32;
	default:
		return k->f64_f64;
	}
}

/* Past the caches, unless the output's lines are in them already (in place) or its elements straddle lines. */
static bool streams(const ek_context *ctx, const void *out, const void *in0, const void *in1, int64_t bytes,
		    size_t element)
{
	return bytes >= ctx->stream_bytes && out != in0 && out != in1 && (uintptr_t)out % element == 0;
}

static bool alone(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	return ctx->threads == 1 || rows < quotient_up(ALONE_BYTES, row_bytes);
}

/* Rows of a task: each thread gets the same number of tasks. A multiple of four: kernels take up to four rows together. */
static int64_t task_rows(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	int64_t thread_bytes = rows * row_bytes / ctx->threads;
	int64_t tasks = larger(1, smaller(thread_bytes / TASK_BYTES, TASKS_A_THREAD)) * ctx->threads;
	int64_t count = quotient_up(rows, tasks);
	return (count + 3) / 4 * 4;
}

/* ---- forward ---- */

struct forward {
	const struct ek_norm_kernel *kernel;
	const ek_norm_forward_args *args;
	int64_t task_rows;
	bool stream;
};

static void forward_task(void *arg, int64_t i)
{
	const struct forward *f = arg;
	int64_t first = i * f->task_rows;
	f->kernel->forward(f->args, first, smaller(first + f->task_rows, f->args->rows), f->stream);
}

void ek_cpu_norm_forward(const ek_context *ctx, const ek_norm_forward_args *args)
{
	size_t element = ek_dtype_size(args->dtype);
	int64_t row_bytes = args->cols * (int64_t)element;
	struct forward f = {
		.kernel = kernel_for(ctx, args->dtype, args->weight_dtype),
		.args = args,
		.task_rows = args->rows,
		.stream = streams(ctx, args->y, args->x, NULL, args->rows * row_bytes, element),
	};
	if (alone(ctx, args->rows, 2 * row_bytes)) {
		f.kernel->forward(args, 0, args->rows, f.stream);
		return;
	}
	if (ek_wide_pays(ctx, args->rows, args->cols, row_bytes)) {
		ek_wide_forward(ctx, f.kernel, args, f.stream);
		return;
	}
	f.task_rows = task_rows(ctx, args->rows, row_bytes);
	ek_run_tasks(ctx, quotient_up(args->rows, f.task_rows), forward_task, &f);
}

/* ---- backward ---- */

/* How the column sums are cut: each task an aligned subtree of leaves, so of rule 6's tree. */
struct column_plan {
	int64_t slot_rows, leaf_rows, task_leaves, tasks;
	int64_t scratch; /* rows of [2][cols] in a task */
};

/* The most tasks of a call. */
static int64_t most_tasks(const ek_context *ctx, const ek_norm_backward_args *args)
{
	if (alone(ctx, args->rows, 3 * args->cols * (int64_t)ek_dtype_size(args->dtype)))
		return 1;
	return smaller((int64_t)ctx->threads * TASKS_A_THREAD, EK_MAX_COLUMN_TASKS);
}

static int64_t leaves_of_a_task(int64_t leaves, int64_t most)
{
	int64_t task_leaves = 1;
	while (quotient_up(leaves, task_leaves) > most)
		task_leaves *= 2;
	return task_leaves;
}

static struct column_plan plan_columns(const ek_context *ctx, const ek_norm_backward_args *args)
{
	struct column_plan p = {.slot_rows = ek_slot_rows(args->rows, args->cols)};
	p.leaf_rows = ek_leaf_rows(p.slot_rows);
	int64_t leaves = larger(1, quotient_up(args->rows, p.leaf_rows));
	p.task_leaves = leaves_of_a_task(leaves, most_tasks(ctx, args));
	p.tasks = quotient_up(leaves, p.task_leaves);
	p.scratch = ek_column_scratch(p.task_leaves);
	return p;
}

/* The rows of [2][cols] that are enough for every number of rows up to args->rows. Tasks of n leaves need most
 * where their number is the largest allowed, just before tasks get 2n leaves. */
static int64_t most_workspace_rows(const ek_context *ctx, const ek_norm_backward_args *args)
{
	if (args->rows == 0)
		return 1; /* the result */
	int64_t leaves = smaller(quotient_up(args->rows, 2), ek_most_slots(args->rows, args->cols));
	int64_t most = most_tasks(ctx, args), task_leaves = leaves_of_a_task(leaves, most);
	int64_t rows = quotient_up(leaves, task_leaves) * (1 + ek_column_scratch(task_leaves));
	return task_leaves > 1 ? larger(rows, most * (1 + ek_column_scratch(task_leaves / 2))) : rows;
}

/* Bytes of [2][cols] real numbers. */
static size_t row_size(const ek_norm_backward_args *args)
{
	return 2 * (size_t)args->cols * (args->dtype == EK_F64 ? sizeof(double) : sizeof(float));
}

static bool is_wide(const ek_context *ctx, const ek_norm_backward_args *args)
{
	return ek_wide_pays(ctx, args->rows, args->cols, args->cols * (int64_t)ek_dtype_size(args->dtype));
}

size_t ek_cpu_norm_backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args)
{
	if (!args->dweight && !args->dbias)
		return 0;
	if (is_wide(ctx, args))
		return ek_wide_backward_workspace(args);
	return (size_t)most_workspace_rows(ctx, args) * row_size(args);
}

struct backward {
	const struct ek_norm_kernel *kernel;
	const ek_norm_backward_args *args;
	struct column_plan plan;
	int64_t task_rows, task_cols;
	size_t row_size; /* bytes of [2][cols] */
	bool stream;
};

static void backward_task(void *arg, int64_t i)
{
	const struct backward *b = arg;
	int64_t first = i * b->task_rows;
	b->kernel->backward(b->args, first, smaller(first + b->task_rows, b->args->rows), b->stream);
}

/* The results of all tasks come first in the workspace, then each task's scratch. */
static void backward_sums_task(void *arg, int64_t i)
{
	const struct backward *b = arg;
	const struct column_plan *p = &b->plan;
	char *workspace = b->args->workspace;
	int64_t rows = p->task_leaves * p->leaf_rows;
	struct ek_column_task task = {
		.first_row = i * rows,
		.end_row = smaller((i + 1) * rows, b->args->rows),
		.slot_rows = p->slot_rows,
		.result = workspace + (size_t)i * b->row_size,
		.scratch = workspace + (size_t)(p->tasks + i * p->scratch) * b->row_size,
	};
	b->kernel->backward_with_sums(b->args, &task, b->stream);
}

static void finish_columns_task(void *arg, int64_t i)
{
	const struct backward *b = arg;
	int64_t first = i * b->task_cols;
	b->kernel->finish_columns(b->args, b->args->workspace, b->plan.tasks, first,
				  smaller(first + b->task_cols, b->args->cols));
}

void ek_cpu_norm_backward(const ek_context *ctx, const ek_norm_backward_args *args)
{
	size_t element = ek_dtype_size(args->dtype);
	int64_t row_bytes = args->cols * (int64_t)element;
	bool is_alone = alone(ctx, args->rows, 3 * row_bytes);
	struct backward b = {
		.kernel = kernel_for(ctx, args->dtype, args->weight_dtype),
		.args = args,
		.stream = args->dx &&
			  streams(ctx, args->dx, args->x, args->dy, args->rows * row_bytes, element),
	};
	if (is_wide(ctx, args)) {
		ek_wide_backward(ctx, b.kernel, args, b.stream);
		return;
	}
	if (!args->dweight && !args->dbias) {
		b.task_rows = is_alone ? args->rows : task_rows(ctx, args->rows, row_bytes);
		ek_run_tasks(ctx, args->rows ? quotient_up(args->rows, b.task_rows) : 0, backward_task, &b);
		return;
	}
	b.plan = plan_columns(ctx, args);
	b.row_size = row_size(args);
	ek_run_tasks(ctx, b.plan.tasks, backward_sums_task, &b);
	int64_t parts = is_alone || (int64_t)b.row_size * b.plan.tasks < ALONE_BYTES ? 1 : ctx->threads;
	b.task_cols = (quotient_up(args->cols, parts) + 63) / 64 * 64;
	ek_run_tasks(ctx, quotient_up(args->cols, b.task_cols), finish_columns_task, &b);
}
