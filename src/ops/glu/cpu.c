/* The CPU backend of gated activations: cuts a call into tasks of rows, or of parts of rows where there are few, and hands them
 * to the threads. What runs in a task is a level's kernel (cpu_kernels.h); where the cuts fall changes no bit. Called by op.c
 * through the table ek_glu_cpu. SPDX-License-Identifier: MIT */
#include "cpu.h"

#include "core/dtype.h"
#include "core/order.h"
#include "cpu/cut.h"
#include "cpu/fpenv.h"
#include "cpu/level.h"
#include "cpu/tasks.h"
#include "cpu_kernels.h"

#define LEVEL_ROW(name, usable) [EK_LEVEL_ID_##name] = &ek_glu_##name,
static const struct ek_glu_kernels *const levels[EK_LEVEL_COUNT] = {EK_LEVELS(LEVEL_ROW)};

static const struct ek_glu_kernel *kernel_for(const ek_context *ctx, ek_dtype dtype)
{
	const struct ek_glu_kernels *k = levels[ctx->level->id];
	return dtype == EK_F64 ? k->f64 : k->f32;
}

/* ---- parts of rows ---- */

/* Bytes of a part's y. */
enum { PART_BYTES = 64 << 10 };

/* Columns of a part, whole segments: a row's own, unless `tasks` of whole rows would leave threads without work. */
static int64_t part_cols(const ek_context *ctx, int64_t tasks, int64_t cols, int64_t row_bytes)
{
	int64_t wanted = (int64_t)ctx->threads * 4;
	if (ctx->threads == 1 || tasks >= wanted || row_bytes <= PART_BYTES)
		return cols;
	int64_t parts = smaller(quotient_up(wanted, larger(1, tasks)), quotient_up(row_bytes, PART_BYTES));
	return quotient_up(quotient_up(cols, parts), SEGMENT) * SEGMENT;
}

/* Cuts the call to columns first … first + count - 1. */
static void take_columns(const struct ek_op *op, void *args, int64_t first, int64_t count)
{
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		char *at = ek_operand_pointer(operand, args);
		int64_t each = ek_dim_each(op, &operand->dims[operand->rank - 1], args);
		size_t element = ek_bytes_of_dtype(ek_operand_dtype(op, operand, args));
		if (at)
			ek_operand_set(operand, args, at + (size_t)(first * each) * element);
	}
	*(int64_t *)ek_field(args, op->sizes[EK_GLU_COLS].offset) = count;
}

/* Tasks by number: the parts of the first rows, then those of the next. */
struct cut {
	int64_t parts, part_cols, task_rows;
};

struct piece {
	int64_t first_row, end_row, first_col, cols;
};

static struct piece piece_of(const struct cut *cut, int64_t i, int64_t rows, int64_t cols)
{
	int64_t row = i / cut->parts * cut->task_rows, col = i % cut->parts * cut->part_cols;
	return (struct piece){row, smaller(row + cut->task_rows, rows), col,
			      smaller(cut->part_cols, cols - col)};
}

/* Of a call without column sums; bytes are read and written of a row. */
static struct cut cut_of(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes, int64_t bytes)
{
	struct cut cut = {1, cols, rows};
	if (ek_one_thread_is_enough(ctx, rows, bytes))
		return cut;
	cut.part_cols = part_cols(ctx, rows, cols, row_bytes);
	cut.parts = quotient_up(cols, cut.part_cols);
	cut.task_rows = cut.parts > 1 ? 1 : ek_task_rows(ctx, rows, row_bytes);
	return cut;
}

static int64_t tasks_of(const struct cut *cut, int64_t rows)
{
	return rows ? quotient_up(rows, cut->task_rows) * cut->parts : 0;
}

/* ---- forward ---- */

struct forward_call {
	const struct ek_glu_kernel *kernel;
	const ek_glu_forward_args *args;
	struct cut cut;
	bool nontemporal;
};

static void forward_task(void *arg, int64_t i)
{
	const struct forward_call *f = arg;
	const struct piece piece = piece_of(&f->cut, i, f->args->rows, f->args->cols);
	ek_glu_forward_args part = *f->args;
	if (f->cut.parts > 1)
		take_columns(&ek_glu_forward_op, &part, piece.first_col, piece.cols);
	f->kernel->forward(&part, piece.first_row, piece.end_row, f->nontemporal);
}

static ek_status forward(ek_context *ctx, const ek_glu_forward_args *args, enum ek_intent intent)
{
	if (intent == EK_PREPARE)
		return EK_OK;
	const size_t element = ek_bytes_of_dtype(args->dtype);
	const int64_t row_bytes = args->cols * (int64_t)element;
	const int tensors = args->value || args->interleaved ? 3 : 2;
	struct forward_call f = {
		.kernel = kernel_for(ctx, args->dtype),
		.args = args,
		.cut = cut_of(ctx, args->rows, args->cols, row_bytes, tensors * row_bytes),
		.nontemporal = ek_is_nontemporal(ctx, args->y, args->gate, args->value,
						 args->rows * row_bytes, element),
	};
	struct ek_fpenv saved = ek_fpenv_enter();
	ek_run_tasks(ctx, tasks_of(&f.cut, args->rows), forward_task, &f);
	ek_fpenv_leave(saved);
	return EK_OK;
}

/* ---- backward ---- */

static bool has_sums(const ek_glu_backward_args *args)
{
	return args->dgate_bias || args->dvalue_bias;
}

/* Read and written of a row. */
static int64_t backward_bytes(const ek_glu_backward_args *args)
{
	return (args->value || args->interleaved ? 5 : 3) * args->cols *
	       (int64_t)ek_bytes_of_dtype(args->dtype);
}

/* Bytes of a row of sums of so many columns. */
static size_t sums_size(const ek_glu_backward_args *args, int64_t cols)
{
	return (size_t)(ek_glu_sums(args) * cols) * ek_bytes_of_dtype(ek_real_of(args->dtype));
}

static size_t backward_workspace(const ek_context *ctx, const ek_glu_backward_args *args)
{
	if (!has_sums(args))
		return 0;
	return (size_t)ek_column_workspace_rows(ctx, args->rows, args->cols, backward_bytes(args)) *
	       sums_size(args, args->cols);
}

struct backward_call {
	const struct ek_glu_kernel *kernel;
	const ek_glu_backward_args *args;
	struct cut cut;
	struct ek_column_plan plan;
	bool nontemporal;
};

static void backward_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	const struct piece piece = piece_of(&b->cut, i, b->args->rows, b->args->cols);
	ek_glu_backward_args part = *b->args;
	if (b->cut.parts > 1)
		take_columns(&ek_glu_backward_op, &part, piece.first_col, piece.cols);
	b->kernel->backward(&part, piece.first_row, piece.end_row, NULL, b->nontemporal);
}

/* The sums of a part have their own stretch of the workspace. */
static void *sums_at(const struct backward_call *b, int64_t first_col)
{
	size_t rows = (size_t)(b->plan.tasks * (1 + b->plan.scratch));
	return (char *)b->args->workspace + rows * sums_size(b->args, first_col);
}

static void backward_sums_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	const struct piece piece = piece_of(&b->cut, i % b->cut.parts, 1, b->args->cols);
	ek_glu_backward_args part = *b->args;
	take_columns(&ek_glu_backward_op, &part, piece.first_col, piece.cols);
	struct ek_column_task task =
		ek_column_task_at(&b->plan, i / b->cut.parts, part.rows, sums_at(b, piece.first_col),
				  sums_size(&part, piece.cols));
	b->kernel->backward(&part, task.first_row, task.end_row, &task, b->nontemporal);
}

static void finish_columns_task(void *arg, int64_t i)
{
	const struct backward_call *b = arg;
	const struct piece piece = piece_of(&b->cut, i, 1, b->args->cols);
	ek_glu_backward_args part = *b->args;
	take_columns(&ek_glu_backward_op, &part, piece.first_col, piece.cols);
	b->kernel->finish_columns(&part, sums_at(b, piece.first_col), b->plan.tasks, 0, piece.cols);
}

/* Past the caches where the outputs are. */
static bool backward_is_nontemporal(const ek_context *ctx, const ek_glu_backward_args *a)
{
	const size_t element = ek_bytes_of_dtype(a->dtype);
	const int64_t bytes = a->rows * a->cols * (int64_t)element;
	void *const outputs[] = {a->dgate, a->dvalue};
	for (int i = 0; i < 2; i++)
		if (outputs[i] && (outputs[i] == a->dy ||
				   !ek_is_nontemporal(ctx, outputs[i], a->gate, a->value, bytes, element)))
			return false;
	return a->dgate || a->dvalue;
}

static void run_backward(const ek_context *ctx, const ek_glu_backward_args *args)
{
	const int64_t row_bytes = args->cols * (int64_t)ek_bytes_of_dtype(args->dtype);
	struct backward_call b = {
		.kernel = kernel_for(ctx, args->dtype),
		.args = args,
		.nontemporal = backward_is_nontemporal(ctx, args),
	};
	if (!has_sums(args)) {
		b.cut = cut_of(ctx, args->rows, args->cols, row_bytes, backward_bytes(args));
		ek_run_tasks(ctx, tasks_of(&b.cut, args->rows), backward_task, &b);
		return;
	}
	const bool one_thread = ek_one_thread_is_enough(ctx, args->rows, backward_bytes(args));
	b.plan = ek_plan_columns(ctx, args->rows, args->cols, backward_bytes(args));
	b.cut.part_cols = one_thread ? args->cols : part_cols(ctx, b.plan.tasks, args->cols, row_bytes);
	b.cut.parts = quotient_up(args->cols, b.cut.part_cols);
	b.cut.task_rows = 1;
	ek_run_tasks(ctx, b.plan.tasks * b.cut.parts, backward_sums_task, &b);
	ek_run_tasks(ctx, b.cut.parts, finish_columns_task, &b);
}

/* No rows still means sums to write, of nothing. */
static ek_status backward(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_glu_check_backward_memory(args, backward_workspace(ctx, args));
	if (status != EK_OK || intent == EK_PREPARE)
		return status;
	struct ek_fpenv saved = ek_fpenv_enter();
	run_backward(ctx, args);
	ek_fpenv_leave(saved);
	return EK_OK;
}

const struct ek_glu_backend ek_glu_cpu = {forward, backward, backward_workspace};
