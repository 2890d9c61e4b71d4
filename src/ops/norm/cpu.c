/* The CPU backend of the norm ops: cuts a call into tasks and hands them to the threads. What runs in a task is
 * a level's kernel (cpu_kernels.h); where the cuts fall changes no bit. Called by op.c through the table ek_norm_cpu.
 * SPDX-License-Identifier: MIT */
#include "cpu.h"

#include "cpu/cut.h"
#include "cpu/fpenv.h"
#include "cpu/level.h"
#include "cpu_kernels.h"
#include "cpu/tasks.h"
#include "cpu_split.h"

#define LEVEL_ROW(name, usable) [EK_LEVEL_ID_##name] = &ek_norm_##name,
static const struct ek_norm_kernels *const levels[EK_LEVEL_COUNT] = {EK_LEVELS(LEVEL_ROW)};

static const struct ek_fused_kernel *fused_kernel_for(const ek_context *ctx, ek_dtype dtype)
{
	const struct ek_norm_kernels *k = levels[ctx->level->id];
	return dtype == EK_F64 ? k->f64_fused : k->f32_fused;
}

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

/* ---- forward ---- */

struct forward_call {
	void (*rows)(const ek_norm_forward_args *args, int64_t first, int64_t end, bool nontemporal);
	const ek_norm_forward_args *args;
	int64_t task_rows;
	bool nontemporal;
};

static void forward_task(void *arg, int64_t i)
{
	const struct forward_call *f = arg;
	int64_t first = i * f->task_rows;
	f->rows(f->args, first, smaller(first + f->task_rows, f->args->rows), f->nontemporal);
}

/* Whether the kernels of a plain norm serve: no flavour, no groups, one dtype, beside an activation no x_bias alone, and
 * inputs that are made in rows that they can keep: x + residual, and x times a gate, which does not round, so of f32 and
 * f64. */
static bool forward_is_uniform(const ek_norm_forward_args *a, int64_t row_bytes)
{
	return a->h_dtype == a->dtype && a->y_dtype == a->dtype && !a->weight_offset && !a->rounding &&
	       !a->group_cols && !(a->activation && a->x_bias && !a->residual) &&
	       !(a->gate_first && ek_dtype_size(a->dtype) < sizeof(float)) &&
	       (!(a->residual || a->gate_first) || row_bytes <= MADE_BYTES / 2);
}

/* Past the caches where y and h are: in place of x or a residual, and with elements across lines, they are not. */
static bool fused_forward_is_nontemporal(const ek_context *ctx, const ek_norm_forward_args *a)
{
	size_t y_element = ek_dtype_size(a->y_dtype), h_element = ek_dtype_size(a->h_dtype);
	int64_t bytes = a->rows * a->cols * (int64_t)y_element;
	const void *residual = a->residual ? a->residual : a->residual_after;
	return ek_is_nontemporal(ctx, a->y, a->x, residual ? residual : a->gate, bytes, y_element) &&
	       (!a->h || ek_is_nontemporal(ctx, a->h, a->x, residual, bytes, h_element));
}

static void run_fused_forward(const ek_context *ctx, const ek_norm_forward_args *args)
{
	int64_t row_bytes = args->cols * (int64_t)ek_dtype_size(args->y_dtype);
	struct forward_call f = {
		.rows = forward_is_uniform(args, row_bytes)
				? kernel_for(ctx, args->dtype, args->weight_dtype)->forward_neighbours
				: fused_kernel_for(ctx, args->dtype)->forward,
		.args = args,
		.nontemporal = fused_forward_is_nontemporal(ctx, args),
	};
	bool one_thread = ek_one_thread_is_enough(ctx, args->rows, 4 * row_bytes);
	f.task_rows = one_thread ? args->rows : ek_task_rows(ctx, args->rows, row_bytes);
	ek_run_tasks(ctx, quotient_up(args->rows, f.task_rows), forward_task, &f);
}

static void run_forward(const ek_context *ctx, const ek_norm_forward_args *args)
{
	if (__builtin_expect(ek_norm_forward_is_fused(args), 0)) {
		run_fused_forward(ctx, args);
		return;
	}
	size_t element = ek_dtype_size(args->dtype);
	int64_t row_bytes = args->cols * (int64_t)element;
	const struct ek_norm_kernel *kernel = kernel_for(ctx, args->dtype, args->weight_dtype);
	struct forward_call f = {
		.rows = kernel->forward,
		.args = args,
		.task_rows = args->rows,
		.nontemporal =
			ek_is_nontemporal(ctx, args->y, args->x, NULL, args->rows * row_bytes, element),
	};
	if (ek_one_thread_is_enough(ctx, args->rows, 2 * row_bytes)) {
		kernel->forward(args, 0, args->rows, f.nontemporal);
		return;
	}
	if (ek_split_pays(ctx, args->rows, args->cols, row_bytes)) {
		ek_split_forward(ctx, kernel, args, f.nontemporal);
		return;
	}
	f.task_rows = ek_task_rows(ctx, args->rows, row_bytes);
	ek_run_tasks(ctx, quotient_up(args->rows, f.task_rows), forward_task, &f);
}

/* ---- backward ---- */

/* Of a row that is read and written. */
static int64_t backward_bytes(const ek_norm_backward_args *args)
{
	return 3 * args->cols * (int64_t)ek_dtype_size(args->dtype);
}

static bool has_sums(const ek_norm_backward_args *args)
{
	return args->dweight || args->dbias || args->dx_bias;
}

/* Bytes of a row of sums: [2][cols] real numbers, [3][cols] with dx_bias. */
static size_t row_size(const ek_norm_backward_args *args)
{
	return (args->dx_bias ? 3 : 2) * (size_t)args->cols *
	       (args->dtype == EK_F64 ? sizeof(double) : sizeof(float));
}

static bool is_split(const ek_context *ctx, const ek_norm_backward_args *args)
{
	return !ek_norm_backward_is_fused(args) &&
	       ek_split_pays(ctx, args->rows, args->cols, args->cols * (int64_t)ek_dtype_size(args->dtype));
}

static size_t backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args)
{
	if (!has_sums(args))
		return 0;
	if (is_split(ctx, args))
		return ek_split_backward_workspace(args);
	return (size_t)ek_column_workspace_rows(ctx, args->rows, args->cols, backward_bytes(args)) *
	       row_size(args);
}

struct backward_call {
	void (*rows)(const ek_norm_backward_args *args, int64_t first, int64_t end,
		     const struct ek_column_task *task, bool nontemporal);
	void (*finish_columns)(const ek_norm_backward_args *args, const void *results, int64_t count,
			       int64_t first, int64_t end);
	const ek_norm_backward_args *args;
	struct ek_column_plan plan;
	int64_t task_rows, task_cols;
	size_t row_size;
	bool nontemporal;
};

static void backward_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	int64_t first = i * b->task_rows, end = smaller(first + b->task_rows, b->args->rows);
	b->rows(b->args, first, end, NULL, b->nontemporal);
}

static void backward_sums_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	struct ek_column_task task =
		ek_column_task_at(&b->plan, i, b->args->rows, b->args->workspace, b->row_size);
	b->rows(b->args, task.first_row, task.end_row, &task, b->nontemporal);
}

static void finish_columns_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	int64_t first = i * b->task_cols;
	b->finish_columns(b->args, b->args->workspace, b->plan.tasks, first,
			  smaller(first + b->task_cols, b->args->cols));
}

/* Whether the kernels of a plain norm serve: no flavour, no groups, one dtype and one output of it, no sums but dweight and dbias. */
static bool backward_is_uniform(const ek_norm_backward_args *a)
{
	return a->h_dtype == a->dtype && a->y_dtype == a->dtype && !a->weight_offset && !a->rounding &&
	       !a->activation && !a->group_cols && a->dy && !a->x_bias && !a->dx_bias &&
	       !(a->dx && a->dresidual);
}

/* Chooses the kernels of a fused norm; uniform: a copy of the arguments, whose dx is the one output of its size. */
static void plan_fused_backward(const ek_context *ctx, struct backward_call *b,
				ek_norm_backward_args *uniform)
{
	const struct ek_fused_kernel *fused = fused_kernel_for(ctx, uniform->dtype);
	if (!backward_is_uniform(uniform)) {
		b->rows = fused->backward;
		b->finish_columns = fused->finish_columns;
		return;
	}
	if (uniform->gradient_dtype != uniform->weight_dtype)
		b->finish_columns = fused->finish_columns;
	if (!uniform->dx) {
		uniform->dx = uniform->dresidual;
		uniform->dx_stride = uniform->dresidual_stride;
	}
	b->args = uniform;
}

/* Past the caches where dx and dresidual are: in place, and with elements across lines, they are not. */
static bool backward_is_nontemporal(const ek_context *ctx, const ek_norm_backward_args *a, int64_t bytes)
{
	void *const outputs[] = {a->dx, a->dresidual, a->dgate};
	const ek_dtype dtypes[] = {a->dtype, a->h_dtype, a->dtype};
	for (int i = 0; i < 3; i++)
		if (outputs[i] &&
		    (outputs[i] == a->dh || outputs[i] == a->gate ||
		     !ek_is_nontemporal(ctx, outputs[i], a->x, a->dy, bytes, ek_dtype_size(dtypes[i]))))
			return false;
	return a->dx || a->dresidual || a->dgate;
}

static void run_backward(const ek_context *ctx, const ek_norm_backward_args *given)
{
	int64_t row_bytes = given->cols * (int64_t)ek_dtype_size(given->dtype);
	bool one_thread = ek_one_thread_is_enough(ctx, given->rows, 3 * row_bytes);
	const struct ek_norm_kernel *kernel = kernel_for(ctx, given->dtype, given->weight_dtype);
	struct backward_call b = {
		.rows = kernel->backward,
		.finish_columns = kernel->finish_columns,
		.args = given,
		.nontemporal = backward_is_nontemporal(ctx, given, given->rows * row_bytes),
	};
	ek_norm_backward_args uniform;
	if (__builtin_expect(ek_norm_backward_is_fused(given), 0)) {
		uniform = *given;
		plan_fused_backward(ctx, &b, &uniform);
	}
	const ek_norm_backward_args *args = b.args;
	if (is_split(ctx, args)) {
		ek_split_backward(ctx, kernel, args, b.nontemporal);
		return;
	}
	if (!has_sums(args)) {
		b.task_rows = one_thread ? args->rows : ek_task_rows(ctx, args->rows, row_bytes);
		ek_run_tasks(ctx, args->rows ? quotient_up(args->rows, b.task_rows) : 0, backward_task, &b);
		return;
	}
	b.plan = ek_plan_columns(ctx, args->rows, args->cols, backward_bytes(args));
	b.row_size = row_size(args);
	ek_run_tasks(ctx, b.plan.tasks, backward_sums_task, &b);
	int64_t parts =
		one_thread || (int64_t)b.row_size * b.plan.tasks < EK_ONE_THREAD_BYTES ? 1 : ctx->threads;
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
