/* Wide rows, pair by pair: the steps of a pair (norm_wide.inc.h) follow one another, and the parts of a step go to
 * the threads. A pair is written in the first step of the next one. Called by norm.c.
 * SPDX-License-Identifier: MIT */
#include "wide.h"

#include <string.h>

#include "../ref/order.h"
#include "../ref/slots.h"
#include "tasks.h"

enum { WIDE_BYTES = 128 << 10 };

bool ek_wide_pays(const ek_context *ctx, int64_t rows, int64_t cols, int64_t row_bytes)
{
	/* One row to a slot of rule 6, so that a pair is a leaf of its tree. */
	bool pair_is_leaf = ek_slot_rows(rows, cols) == 1 && rows <= 2 * EK_MAX_COLUMN_TASKS;
	return ctx->threads > 1 && row_bytes >= WIDE_BYTES && rows > 0 && rows < 4 * (int64_t)ctx->threads &&
	       pair_is_leaf;
}

/* Parts of a power of two of segments: aligned subtrees of rule 2's tree. */
static void cut_columns(const ek_context *ctx, int64_t cols, struct ek_wide *wide)
{
	int64_t most = smaller(2 * (int64_t)ctx->threads, EK_MAX_PARTS);
	for (wide->part_cols = SEGMENT; quotient_up(cols, wide->part_cols) > most;)
		wide->part_cols *= 2;
	wide->parts = quotient_up(cols, wide->part_cols);
}

struct step {
	const ek_norm_forward_args *forward;
	const ek_norm_backward_args *backward;
	const struct ek_norm_kernel *kernel;
	struct ek_wide wide;
};

static void first_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->wide_first(s->forward, &s->wide, part);
}

static void second_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->wide_second(s->forward, &s->wide, part);
}

static void reduce_task(void *arg, int64_t part)
{
	struct step *s = arg;
	s->kernel->wide_reduce(s->backward, &s->wide, part);
}

static void finish_columns_task(void *arg, int64_t part)
{
	struct step *s = arg;
	const ek_norm_backward_args *a = s->backward;
	s->kernel->finish_columns(a, a->workspace, quotient_up(a->rows, 2), part * s->wide.part_cols,
				  smaller((part + 1) * s->wide.part_cols, a->cols));
}

/* The pair at `row`, which may be past the last: then only the one before is left. */
static void begin_pair(struct ek_wide *wide, int64_t row, int64_t rows)
{
	wide->row = row;
	wide->count = (int)larger(0, smaller(2, rows - row));
}

static void end_pair(struct ek_wide *wide)
{
	wide->before = wide->count;
	memcpy(wide->old, wide->now, sizeof wide->old);
}

/* The statistics of the pair, from x; the pair before is written, if there is one. */
static void statistics(const ek_context *ctx, struct step *s)
{
	ek_run_tasks(ctx, s->wide.parts, first_task, s);
	s->kernel->wide_finish(s->forward, &s->wide);
	if (s->forward->norm == EK_RMS_NORM || !s->wide.count)
		return;
	s->wide.second = true;
	ek_run_tasks(ctx, s->wide.parts, second_task, s);
	s->kernel->wide_finish(s->forward, &s->wide);
	s->wide.second = false;
}

void ek_wide_forward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		     const ek_norm_forward_args *args, bool stream)
{
	struct step s = {.forward = args, .kernel = kernel, .wide = {.stream = stream}};
	cut_columns(ctx, args->cols, &s.wide);
	for (int64_t row = 0; row < args->rows || s.wide.before; row += 2) {
		begin_pair(&s.wide, row, args->rows);
		statistics(ctx, &s);
		end_pair(&s.wide);
	}
}

/* A leaf of [2][cols] for each pair of rows. */
size_t ek_wide_backward_workspace(const ek_norm_backward_args *args)
{
	size_t number = args->dtype == EK_F64 ? sizeof(double) : sizeof(float);
	return (size_t)quotient_up(args->rows, 2) * 2 * (size_t)args->cols * number;
}

void ek_wide_backward(const ek_context *ctx, const struct ek_norm_kernel *kernel,
		      const ek_norm_backward_args *args, bool stream)
{
	const ek_norm_forward_args anew = {.norm = args->norm,
					   .dtype = args->dtype,
					   .rows = args->rows,
					   .cols = args->cols,
					   .x_stride = args->x_stride,
					   .eps = args->eps,
					   .x = args->x};
	bool sums = args->dweight || args->dbias;
	struct step s = {.forward = &anew, .backward = args, .kernel = kernel, .wide = {.stream = stream}};
	cut_columns(ctx, args->cols, &s.wide);
	size_t leaf_size = sums ? ek_wide_backward_workspace(args) / (size_t)quotient_up(args->rows, 2) : 0;
	for (int64_t row = 0; row < args->rows || s.wide.before; row += 2) {
		begin_pair(&s.wide, row, args->rows);
		s.wide.leaf = sums ? (char *)args->workspace + (size_t)(row / 2) * leaf_size : NULL;
		if (args->rstd) {
			kernel->wide_given(args, &s.wide);
		} else {
			int before = s.wide.before;
			s.wide.before = 0; /* nothing is written yet */
			statistics(ctx, &s);
			s.wide.before = before;
		}
		ek_run_tasks(ctx, s.wide.parts, reduce_task, &s);
		kernel->wide_means(args, &s.wide);
		end_pair(&s.wide);
		s.wide.before = args->dx ? s.wide.before : 0;
	}
	if (sums)
		ek_run_tasks(ctx, s.wide.parts, finish_columns_task, &s);
}
