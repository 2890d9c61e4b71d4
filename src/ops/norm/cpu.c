/* The CPU backend of the norm ops: cuts a call into tasks and hands them to the threads. What runs in a task is
 * a level's kernel (cpu_kernels.h); where the cuts fall changes no bit. Called by op.c through the table ek_norm_cpu.
 * SPDX-License-Identifier: MIT */
#include "cpu.h"

#include "core/slots.h"
#include "cpu/fpenv.h"
#include "cpu/level.h"
#include "cpu_kernels.h"
#include "cpu/tasks.h"
#include "cpu_split.h"

/* Below this many bytes read and written a second thread costs more than it brings: it may have to be woken. */
enum { ONE_THREAD_BYTES = 256 << 10 };
/* A task's rows of one tensor: long enough that its first rows, which nothing fetched ahead, do not matter. */
enum { TASK_BYTES = 256 << 10 };
/* Tasks a thread gets, so that one that is held up leaves work to the others. */
enum { TASKS_A_THREAD = 8 };

#define LEVEL_ROW(name, usable) [EK_LEVEL_ID_##name] = &ek_norm_##name,
static const struct ek_norm_kernels *const levels[EK_LEVEL_COUNT] = {EK_LEVELS(LEVEL_ROW)};

static const struct ek_norm_kernel *kernel_for(const ek_context *ctx, ek_dtype dtype, ek_dtype weight_dtype)
{
	const struct ek_norm_kernels *k = levels[ctx->level->id];
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
static bool is_nontemporal(const ek_context *ctx, const void *out, const void *in0, const void *in1,
			   int64_t bytes, size_t element)
{
	return bytes >= ctx->nontemporal_bytes && out != in0 && out != in1 && (uintptr_t)out % element == 0;
}

static bool one_thread_is_enough(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	return ctx->threads == 1 || rows < quotient_up(ONE_THREAD_BYTES, row_bytes);
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

struct forward_call {
	const struct ek_norm_kernel *kernel;
	const ek_norm_forward_args *args;
	int64_t task_rows;
	bool nontemporal;
};

static void forward_task(void *arg, int64_t i)
{
	const struct forward_call *f = arg;
	int64_t first = i * f->task_rows;
	f->kernel->forward(f->args, first, smaller(first + f->task_rows, f->args->rows), f->nontemporal);
}

static void run_forward(const ek_context *ctx, const ek_norm_forward_args *args)
{
	size_t element = ek_dtype_size(args->dtype);
	int64_t row_bytes = args->cols * (int64_t)element;
	struct forward_call f = {
		.kernel = kernel_for(ctx, args->dtype, args->weight_dtype),
		.args = args,
		.task_rows = args->rows,
		.nontemporal = is_nontemporal(ctx, args->y, args->x, NULL, args->rows * row_bytes, element),
	};
	if (one_thread_is_enough(ctx, args->rows, 2 * row_bytes)) {
		f.kernel->forward(args, 0, args->rows, f.nontemporal);
		return;
	}
	if (ek_split_pays(ctx, args->rows, args->cols, row_bytes)) {
		ek_split_forward(ctx, f.kernel, args, f.nontemporal);
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
	if (one_thread_is_enough(ctx, args->rows, 3 * args->cols * (int64_t)ek_dtype_size(args->dtype)))
		return 1;
	return smaller((int64_t)ctx->threads * TASKS_A_THREAD, EK_MOST_COLUMN_TASKS);
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

static bool is_split(const ek_context *ctx, const ek_norm_backward_args *args)
{
	return ek_split_pays(ctx, args->rows, args->cols, args->cols * (int64_t)ek_dtype_size(args->dtype));
}

static size_t backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args)
{
	if (!args->dweight && !args->dbias)
		return 0;
	if (is_split(ctx, args))
		return ek_split_backward_workspace(args);
	return (size_t)most_workspace_rows(ctx, args) * row_size(args);
}

struct backward_call {
	const struct ek_norm_kernel *kernel;
	const ek_norm_backward_args *args;
	struct column_plan plan;
	int64_t task_rows, task_cols;
	size_t row_size; /* bytes of [2][cols] */
	bool nontemporal;
};

static void backward_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	int64_t first = i * b->task_rows;
	b->kernel->backward(b->args, first, smaller(first + b->task_rows, b->args->rows), b->nontemporal);
}

/* The results of all tasks come first in the workspace, then each task's scratch. */
static void backward_sums_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
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
	b->kernel->backward_with_sums(b->args, &task, b->nontemporal);
}

static void finish_columns_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	int64_t first = i * b->task_cols;
	b->kernel->finish_columns(b->args, b->args->workspace, b->plan.tasks, first,
				  smaller(first + b->task_cols, b->args->cols));
}

static void run_backward(const ek_context *ctx, const ek_norm_backward_args *args)
{
	size_t element = ek_dtype_size(args->dtype);
	int64_t row_bytes = args->cols * (int64_t)element;
	bool one_thread = one_thread_is_enough(ctx, args->rows, 3 * row_bytes);
	struct backward_call b = {
		.kernel = kernel_for(ctx, args->dtype, args->weight_dtype),
		.args = args,
		.nontemporal = args->dx && is_nontemporal(ctx, args->dx, args->x, args->dy,
							  args->rows * row_bytes, element),
	};
	if (is_split(ctx, args)) {
		ek_split_backward(ctx, b.kernel, args, b.nontemporal);
		return;
	}
	if (!args->dweight && !args->dbias) {
		b.task_rows = one_thread ? args->rows : task_rows(ctx, args->rows, row_bytes);
		ek_run_tasks(ctx, args->rows ? quotient_up(args->rows, b.task_rows) : 0, backward_task, &b);
		return;
	}
	b.plan = plan_columns(ctx, args);
	b.row_size = row_size(args);
	ek_run_tasks(ctx, b.plan.tasks, backward_sums_task, &b);
	int64_t parts =
		one_thread || (int64_t)b.row_size * b.plan.tasks < ONE_THREAD_BYTES ? 1 : ctx->threads;
	b.task_cols = (quotient_up(args->cols, parts) + 63) / 64 * 64;
	ek_run_tasks(ctx, quotient_up(args->cols, b.task_cols), finish_columns_task, &b);
}

/* ---- the backend ---- */

static ek_status forward(ek_context *ctx, const ek_norm_forward_args *args, enum ek_intent intent)
{
	if (intent == EK_PREPARE)
		return EK_OK;
	struct ek_fpenv saved = ek_fpenv_enter();
	run_forward(ctx, args);
	ek_fpenv_leave(saved);
	return EK_OK;
}

/* No rows still means sums to write, of nothing. */
static ek_status backward(ek_context *ctx, const ek_norm_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_norm_check_backward_memory(args, backward_workspace(ctx, args));
	if (status != EK_OK || intent == EK_PREPARE)
		return status;
	struct ek_fpenv saved = ek_fpenv_enter();
	run_backward(ctx, args);
	ek_fpenv_leave(saved);
	return EK_OK;
}

const struct ek_norm_backend ek_norm_cpu = {forward, backward, backward_workspace};
