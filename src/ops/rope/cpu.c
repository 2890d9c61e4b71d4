/* The CPU backend of rotary position embedding: cuts a call into tasks of tokens, and column sums into passes over one side. What runs
 * in a task is a level's kernel (cpu_kernels.h); where the cuts fall changes no bit. Called by op.c through the table ek_rope_cpu.
 * SPDX-License-Identifier: MIT */
#include "cpu.h"

#include "core/dtype.h"
#include "core/order.h"
#include "cpu/cut.h"
#include "cpu/fpenv.h"
#include "cpu/level.h"
#include "cpu/tasks.h"
#include "cpu_kernels.h"

_Static_assert(EK_MAX_HEAD_DIM <= SEGMENT, "a head is one segment of rule 2, and fits the kernels' buffers");

#define LEVEL_ROW(name, usable) [EK_LEVEL_ID_##name] = &ek_rope_##name,
static const struct ek_rope_kernels *const levels[EK_LEVEL_COUNT] = {EK_LEVELS(LEVEL_ROW)};

static const struct ek_rope_kernel *kernel_for(const ek_context *ctx, ek_dtype dtype)
{
	const struct ek_rope_kernels *k = levels[ctx->level->id];
	return dtype == EK_F64 ? k->f64 : k->f32;
}

/* ---- tokens, of all sides ---- */

struct token_call {
	const struct ek_rope_kernel *kernel;
	const struct ek_rope_call *call;
	int64_t tokens, task_tokens;
	bool backward;
	bool nontemporal[2];
};

/* Bytes of a token of a side's result. */
static int64_t side_bytes(const struct ek_rope_call *call, const struct ek_rope_side *side)
{
	return side->heads * call->head_dim * (int64_t)ek_bytes_of_dtype(call->dtype);
}

/* Read and written of a token of a side. */
static int64_t token_bytes(const struct ek_rope_call *call, const struct ek_rope_side *side)
{
	return (1 + (side->x != NULL) + (side->dy != NULL)) * side_bytes(call, side);
}

/* Whole lines alone: heads that are apart must be made of them. */
static bool is_nontemporal(const ek_context *ctx, const struct ek_rope_call *call,
			   const struct ek_rope_side *side)
{
	const size_t element = ek_bytes_of_dtype(call->dtype), head = (size_t)call->head_dim * element;
	const bool in_lines =
		side->y_strides[2] == call->head_dim || (head % 64 == 0 && (uintptr_t)side->y % 64 == 0);
	return side->y && in_lines &&
	       ek_is_nontemporal(ctx, side->y, side->x, side->dy,
				 call->batch * call->seq * side_bytes(call, side), element);
}

static void token_task(void *arg, int64_t i)
{
	const struct token_call *t = arg;
	const int64_t first = i * t->task_tokens, end = smaller(first + t->task_tokens, t->tokens);
	for (int k = 0; k < t->call->side_count; k++) {
		const struct ek_rope_side *side = &t->call->sides[k];
		const struct ek_rope_heads heads = {t->call, side, first * side->heads, end * side->heads,
						    t->nontemporal[k]};
		if (!t->backward)
			t->kernel->forward(&heads);
		else if (side->y && !side->dbias && !side->dweight)
			t->kernel->backward(&heads, EK_ROPE_NO_SUM, NULL, true);
	}
}

static void run_tokens(const ek_context *ctx, const struct ek_rope_call *call, bool backward)
{
	struct token_call t = {.kernel = kernel_for(ctx, call->dtype),
			       .call = call,
			       .tokens = call->batch * call->seq,
			       .backward = backward};
	int64_t bytes = 0, written = 0;
	for (int k = 0; k < call->side_count; k++) {
		bytes += token_bytes(call, &call->sides[k]);
		written += side_bytes(call, &call->sides[k]);
		t.nontemporal[k] = is_nontemporal(ctx, call, &call->sides[k]);
	}
	if (t.tokens == 0 || bytes == 0)
		return;
	const bool one_thread = ek_one_thread_is_enough(ctx, t.tokens, bytes);
	t.task_tokens = one_thread ? t.tokens : ek_task_rows(ctx, t.tokens, written);
	ek_run_tasks(ctx, quotient_up(t.tokens, t.task_tokens), token_task, &t);
}

static ek_status forward(ek_context *ctx, const ek_rope_forward_args *args, enum ek_intent intent)
{
	if (intent == EK_PREPARE)
		return EK_OK;
	struct ek_rope_call call;
	ek_rope_forward_call(args, &call);
	struct ek_fpenv saved = ek_fpenv_enter();
	run_tokens(ctx, &call, false);
	ek_fpenv_leave(saved);
	return EK_OK;
}

/* ---- a side with column sums ----
 * A pass for the weight, then one for the bias: their rows are cut in other places. The last one writes y, which may lie where the
 * others read. */

struct pass {
	const struct ek_rope_kernel *kernel;
	const struct ek_rope_call *call;
	const struct ek_rope_side *side;
	enum ek_rope_sum sum;
	void *gradient, *workspace;
	int64_t rows, cols, row_bytes;
	struct ek_column_plan plan;
	bool writes, nontemporal;
};

static struct pass pass_of(const struct ek_rope_call *call, const struct ek_rope_side *side,
			   enum ek_rope_sum sum)
{
	const bool of_bias = sum == EK_ROPE_OF_BIAS;
	const int64_t tokens = call->batch * call->seq;
	return (struct pass){.call = call,
			     .side = side,
			     .sum = sum,
			     .gradient = of_bias ? side->dbias : side->dweight,
			     .rows = of_bias ? tokens : tokens * side->heads,
			     .cols = of_bias ? side->heads * call->head_dim : call->head_dim,
			     .row_bytes = token_bytes(call, side) / (of_bias ? 1 : side->heads)};
}

static size_t row_size(const struct pass *p)
{
	return (size_t)p->cols * ek_bytes_of_dtype(ek_real_of(p->call->dtype));
}

static void pass_task(void *arg, int64_t i)
{
	const struct pass *p = arg;
	const struct ek_column_task task = ek_column_task_at(&p->plan, i, p->rows, p->workspace, row_size(p));
	const int64_t heads = p->sum == EK_ROPE_OF_BIAS ? p->side->heads : 1;
	const struct ek_rope_heads rows = {p->call, p->side, task.first_row * heads, task.end_row * heads,
					   p->nontemporal};
	p->kernel->backward(&rows, p->sum, &task, p->writes);
}

static void finish_task(void *arg, int64_t i)
{
	const struct pass *p = arg;
	p->kernel->finish_columns(p->call, p->gradient, p->workspace, p->plan.tasks, p->cols, i * SEGMENT,
				  smaller((i + 1) * SEGMENT, p->cols));
}

static void run_pass(const ek_context *ctx, struct pass p, void *workspace, bool writes)
{
	p.kernel = kernel_for(ctx, p.call->dtype);
	p.workspace = workspace;
	p.writes = writes;
	p.nontemporal = writes && is_nontemporal(ctx, p.call, p.side);
	p.plan = ek_plan_columns(ctx, p.rows, p.cols, p.row_bytes);
	ek_run_tasks(ctx, p.plan.tasks, pass_task, &p);
	ek_run_tasks(ctx, quotient_up(p.cols, SEGMENT), finish_task, &p);
}

static size_t pass_workspace(const ek_context *ctx, struct pass p)
{
	return (size_t)ek_column_workspace_rows(ctx, p.rows, p.cols, p.row_bytes) * row_size(&p);
}

/* The passes follow each other, so they share the workspace. */
static size_t backward_workspace(const ek_context *ctx, const ek_rope_backward_args *args)
{
	struct ek_rope_call call;
	size_t most = 0;
	ek_rope_backward_call(args, &call);
	for (int k = 0; k < call.side_count; k++)
		for (enum ek_rope_sum sum = EK_ROPE_OF_BIAS; sum <= EK_ROPE_OF_WEIGHT; sum++) {
			const struct pass p = pass_of(&call, &call.sides[k], sum);
			size_t bytes = p.gradient ? pass_workspace(ctx, p) : 0;
			most = bytes > most ? bytes : most;
		}
	return most;
}

static void run_backward(const ek_context *ctx, const struct ek_rope_call *call, void *workspace)
{
	run_tokens(ctx, call, true);
	for (int k = 0; k < call->side_count; k++) {
		const struct ek_rope_side *side = &call->sides[k];
		if (side->dweight)
			run_pass(ctx, pass_of(call, side, EK_ROPE_OF_WEIGHT), workspace,
				 side->y && !side->dbias);
		if (side->dbias)
			run_pass(ctx, pass_of(call, side, EK_ROPE_OF_BIAS), workspace, side->y != NULL);
	}
}

static ek_status backward(ek_context *ctx, const ek_rope_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_rope_check_backward_memory(args, backward_workspace(ctx, args));
	if (status != EK_OK || intent == EK_PREPARE)
		return status;
	struct ek_rope_call call;
	ek_rope_backward_call(args, &call);
	struct ek_fpenv saved = ek_fpenv_enter();
	run_backward(ctx, &call, args->workspace);
	ek_fpenv_leave(saved);
	return EK_OK;
}

const struct ek_rope_backend ek_rope_cpu = {forward, backward, backward_workspace};
