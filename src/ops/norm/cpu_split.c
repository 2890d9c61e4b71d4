/* Wide rows, pair by pair: the steps of a pair (cpu_split.inc.h) follow one another, and the parts of a step go to
 * the threads. A pair is written in the first step of the next one. Called by cpu.c.
 * SPDX-License-Identifier: MIT */
#include "cpu_split.h"

#include <string.h>

#include "core/order.h"
#include "core/slots.h"
#include "cpu/tasks.h"

enum { SPLIT_BYTES = 128 << 10 };

bool ek_split_pays(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes)
{
	/* One row to a slot of rule 6, so that a pair is a leaf of its tree. */
	bool pair_is_leaf = ek_slot_rows(rows, cols) == 1 && rows <= 2 * EK_MOST_COLUMN_TASKS;
	return ctx->threads > 1 && row_bytes >= SPLIT_BYTES && rows > 0 && rows < 4 * (int64_t)ctx->threads &&
	       pair_is_leaf;
}

/* Parts of a power of two of segments: aligned subtrees of rule 2's tree. */
static void cut_columns(const ek_context *ctx, int64_t cols, struct ek_split *split)
{
	int64_t most = smaller(2 * (int64_t)ctx->threads, EK_MOST_PARTS);
	for (split->part_cols = SEGMENT; quotient_up(cols, split->part_cols) > most;)
		split->part_cols *= 2;
	split->parts = quotient_up(cols, split->part_cols);
}

struct step {
	const ek_norm_forward_args *forward;
	const ek_norm_backward_args *backward;
	const struct ek_norm_kernel *kernel;
	struct ek_split split;
};

static void first_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->split_first(s->forward, &s->split, part);
}

static void second_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->split_second(s->forward, &s->split, part);
}

static void reduce_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->split_reduce(s->backward, &s->split, part);
}

static void finish_columns_task(void *arg, int64_t part)
{
	struct step *s = arg;
	const ek_norm_backward_args *a = s->backward;
	s->kernel->finish_columns(a, a->workspace, quotient_up(a->rows, 2), part * s->split.part_cols,
				  smaller((part + 1) * s->split.part_cols, a->cols));
}

/* The pair at `row`, which may be past the last: then only the one before is left. */
static void begin_pair(struct ek_split *split, int64_t row, int64_t rows)
{
	split->row = row;
	split->count = (int)larger(0, smaller(2, rows - row));
}

static void end_pair(struct ek_split *split)
{
	split->before = split->count;
	memcpy(split->old, split->now, sizeof split->old);
}

/* The statistics of the pair, from x; the pair before is written, if there is one. */
static void statistics(const ek_context *ctx, struct step *s)
{
	ek_run_tasks(ctx, s->split.parts, first_task, s);
	s->kernel->split_finish(s->forward, &s->split);
	if (s->forward->norm == EK_RMS_NORM || !s->split.count)
		return;
	s->split.second = true;
	ek_run_tasks(ctx, s->split.parts, second_task, s);
	s->kernel->split_finish(s->forward, &s->split);
	s->split.second = false;
}

void ek_split_forward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		      const ek_norm_forward_args *args, bool nontemporal)
{
	struct step s = {.forward = args, .kernel = kernel, .split = {.nontemporal = nontemporal}};
	cut_columns(ctx, args->cols, &s.split);
	for (int64_t row = 0; row < args->rows || s.split.before; row += 2) {
		begin_pair(&s.split, row, args->rows);
		statistics(ctx, &s);
		end_pair(&s.split);
	}
}

/* A leaf of [2][cols] for each pair of rows. */
size_t ek_split_backward_workspace(const ek_norm_backward_args *args)
{
	size_t number = args->dtype == EK_F64 ? sizeof(double) : sizeof(float);
	return (size_t)quotient_up(args->rows, 2) * 2 * (size_t)args->cols * number;
}

void ek_split_backward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		       const ek_norm_backward_args *args, bool nontemporal)
{
	const ek_norm_forward_args recomputed = {.norm = args->norm,
						 .dtype = args->dtype,
						 .rows = args->rows,
						 .cols = args->cols,
						 .x_stride = args->x_stride,
						 .eps = args->eps,
						 .x = args->x};
	bool sums = args->dweight || args->dbias;
	struct step s = {.forward = &recomputed,
			 .backward = args,
			 .kernel = kernel,
			 .split = {.nontemporal = nontemporal}};
	cut_columns(ctx, args->cols, &s.split);
	size_t leaf_size = sums ? ek_split_backward_workspace(args) / (size_t)quotient_up(args->rows, 2) : 0;
	for (int64_t row = 0; row < args->rows || s.split.before; row += 2) {
		begin_pair(&s.split, row, args->rows);
		s.split.leaf = sums ? (char *)args->workspace + (size_t)(row / 2) * leaf_size : NULL;
		if (args->rstd) {
			kernel->split_given(args, &s.split);
		} else {
			int before = s.split.before;
			s.split.before = 0; /* nothing is written yet */
			statistics(ctx, &s);
			s.split.before = before;
		}
		ek_run_tasks(ctx, s.split.parts, reduce_task, &s);
		kernel->split_means(args, &s.split);
		end_pair(&s.split);
		s.split.before = args->dx ? s.split.before : 0;
	}
	if (sums)
		ek_run_tasks(ctx, s.split.parts, finish_columns_task, &s);
}
