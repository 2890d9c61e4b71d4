/* One cell of the speed list: its buffers and the timing. Called by bench.c and run.c.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "cell.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "options.h"
#include "peers.h"
#include "timing.h"

enum { ALIGNMENT = 64, MAX_SETS = 65536, MAX_ROUNDS = 64, BATCHES = 25 };

static size_t round_up(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Written at once, so that pages are there before anything is timed. */
static void *make_buffer(size_t bytes, bool *fine)
{
	void *memory = NULL;
	if (posix_memalign(&memory, ALIGNMENT, round_up(bytes + 1))) {
		*fine = false;
		return NULL;
	}
	memset(memory, 0, bytes);
	return memory;
}

/* A slab of all sets; the sets hold the same values, which costs nothing and spares the filling. */
static unsigned char *make_slab(const struct cell *cell, const struct options *options, uint64_t seed,
				bool *fine)
{
	unsigned char *slab = make_buffer(cell->step * (size_t)cell->sets, fine);
	if (!slab)
		return NULL;
	int64_t elements = cell->test_case.rows * cell->test_case.cols;
	fill_elements(slab, cell->test_case.dtype, elements, options->init, seed, ACTIVATION);
	for (int64_t set = 1; set < cell->sets; set++)
		memcpy(slab + cell->step * (size_t)set, slab, cell->step);
	return slab;
}

static void *make_vector(const struct cell *cell, const struct options *options, enum role role, bool *fine)
{
	ek_dtype dtype = cell->test_case.weight_dtype;
	void *vector = make_buffer((size_t)cell->test_case.cols * ek_dtype_size(dtype), fine);
	if (vector)
		fill_elements(vector, dtype, cell->test_case.cols, options->init, options->seed, role);
	return vector;
}

static void make_forward(struct cell *cell, const struct options *options, bool *fine)
{
	const struct test_case *test_case = &cell->test_case;
	if (test_case->form.weight)
		cell->weight = make_vector(cell, options, WEIGHT, fine);
	if (test_case->form.bias)
		cell->bias = make_vector(cell, options, BIAS, fine);
	cell->forward = (ek_norm_forward_args){.size = sizeof cell->forward,
					       .norm = test_case->op->norm,
					       .dtype = test_case->dtype,
					       .weight_dtype = test_case->weight_dtype,
					       .rows = test_case->rows,
					       .cols = test_case->cols,
					       .eps = options->eps,
					       .weight = cell->weight,
					       .bias = cell->bias,
					       .x = cell->x,
					       .y = cell->out};
}

/* Backward as training has it: statistics kept from forward, all gradients, a workspace made before. */
static int make_backward(struct cell *cell, ek_context *ctx, const struct options *options, bool *fine)
{
	const struct test_case *test_case = &cell->test_case;
	bool layer_norm = test_case->op->norm == EK_LAYER_NORM;
	size_t vector_bytes = (size_t)test_case->cols * ek_dtype_size(test_case->weight_dtype);
	cell->dweight = test_case->form.dweight ? make_buffer(vector_bytes, fine) : NULL;
	cell->dbias = test_case->form.dbias ? make_buffer(vector_bytes, fine) : NULL;
	cell->rstd = make_buffer(cell->stats_step * (size_t)cell->sets, fine);
	if (layer_norm) {
		cell->mean = make_buffer(cell->stats_step * (size_t)cell->sets, fine);
		cell->mean_lo = make_buffer(cell->stats_step * (size_t)cell->sets, fine);
	}
	cell->backward = (ek_norm_backward_args){.size = sizeof cell->backward,
						 .norm = test_case->op->norm,
						 .dtype = test_case->dtype,
						 .weight_dtype = test_case->weight_dtype,
						 .rows = test_case->rows,
						 .cols = test_case->cols,
						 .eps = options->eps,
						 .weight = cell->weight,
						 .x = cell->x,
						 .dy = cell->dy,
						 .dx = cell->out,
						 .dweight = cell->dweight,
						 .dbias = cell->dbias,
						 .mean = cell->mean,
						 .rstd = cell->rstd,
						 .mean_lo = cell->mean_lo};
	size_t bytes = 0;
	if (ek_norm_backward_workspace(ctx, &cell->backward, &bytes) != EK_OK)
		return complain(STATUS_USAGE, "%s", ek_error(ctx));
	cell->workspace = make_buffer(bytes, fine);
	cell->backward.workspace = cell->workspace;
	cell->backward.workspace_size = bytes;
	return STATUS_FINE;
}

static int keep_statistics(struct cell *cell, ek_context *ctx)
{
	ek_norm_forward_args args = cell->forward;
	args.mean = cell->mean;
	args.rstd = cell->rstd;
	args.mean_lo = cell->mean_lo;
	if (ek_norm_forward(ctx, &args) != EK_OK)
		return complain(STATUS_USAGE, "%s", ek_error(ctx));
	unsigned char *const slabs[] = {cell->mean, cell->rstd, cell->mean_lo};
	for (int i = 0; i < 3; i++)
		for (int64_t set = 1; set < cell->sets && slabs[i]; set++)
			memcpy(slabs[i] + cell->stats_step * (size_t)set, slabs[i], cell->stats_step);
	return STATUS_FINE;
}

static int no_memory(const struct test_case *test_case, double bytes)
{
	return complain(STATUS_USAGE, "--rows %lld --cols %lld: needs %.1f GB, more than this machine has",
			(long long)test_case->rows, (long long)test_case->cols, bytes * 1e-9);
}

int cell_make(struct cell *cell, ek_context *ctx, const struct options *options,
	      const struct test_case *test_case, int64_t sets)
{
	double bytes = case_bytes(test_case);
	bool fine = true;
	*cell = (struct cell){.test_case = *test_case, .sets = sets};
	if (sets == 0) {
		double wanted = ROTATE_BYTES / bytes + 1;
		cell->sets = wanted < 2 ? 2 : wanted > MAX_SETS ? MAX_SETS : (int64_t)wanted;
	}
	if (!memory_suffices(bytes * (double)cell->sets))
		return no_memory(test_case, bytes * (double)cell->sets);
	cell->step = round_up((size_t)(test_case->rows * test_case->cols) * ek_dtype_size(test_case->dtype));
	cell->stats_step = round_up((size_t)test_case->rows * (test_case->dtype == EK_F64 ? 8 : 4));
	cell->x = make_slab(cell, options, options->seed, &fine);
	if (test_case->pass == BACKWARD)
		cell->dy = make_slab(cell, options, ~options->seed, &fine);
	cell->out = make_buffer(cell->step * (size_t)cell->sets, &fine);
	make_forward(cell, options, &fine);
	int status = STATUS_FINE;
	if (test_case->pass == BACKWARD)
		status = make_backward(cell, ctx, options, &fine);
	if (!fine)
		status = no_memory(test_case, bytes * (double)cell->sets);
	if (status == STATUS_FINE && test_case->pass == BACKWARD)
		status = keep_statistics(cell, ctx);
	if (status != STATUS_FINE)
		cell_free(cell);
	return status;
}

void cell_free(struct cell *cell)
{
	void *const buffers[] = {cell->x,       cell->dy,      cell->out,      cell->mean,
				 cell->rstd,    cell->mean_lo, cell->weight,   cell->bias,
				 cell->dweight, cell->dbias,   cell->workspace};
	for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
		free(buffers[i]);
	*cell = (struct cell){0};
}

ek_status cell_call(struct cell *cell, ek_context *ctx, int64_t set)
{
	size_t at = cell->step * (size_t)set;
	size_t stats_at = cell->stats_step * (size_t)set;
	if (cell->test_case.pass == FORWARD) {
		cell->forward.x = cell->x + at;
		cell->forward.y = cell->out + at;
		return ek_norm_forward(ctx, &cell->forward);
	}
	ek_norm_backward_args *args = &cell->backward;
	args->x = cell->x + at;
	args->dy = cell->dy + at;
	args->dx = cell->out + at;
	args->rstd = cell->rstd + stats_at;
	if (cell->mean) {
		args->mean = cell->mean + stats_at;
		args->mean_lo = cell->mean_lo + stats_at;
	}
	return ek_norm_backward(ctx, args);
}

static double time_op(struct cell *cell, ek_context *ctx)
{
	double start = seconds_now();
	for (int64_t set = 0; set < cell->sets; set++)
		(void)cell_call(cell, ctx, set);
	return (seconds_now() - start) / (double)cell->sets;
}

/* The slabs are copied as one piece: of the op's bytes alone, without a call for each set. */
static double time_copy(const struct cell *cell, struct team *team)
{
	size_t bytes = cell->step * (size_t)cell->sets;
	double padding = case_bytes(&cell->test_case) / (cell->dy ? 3 : 2) / (double)cell->step;
	double start = seconds_now();
	copy_streams(team, cell->out, cell->x, cell->dy, bytes);
	return (seconds_now() - start) / (double)cell->sets * padding;
}

static double time_peer(const struct cell *cell, struct peer *peer)
{
	/* Its threads go on spinning for a while: they must be asleep when the others run. */
	static const struct timespec pause = {.tv_nsec = 4000000};
	double start = seconds_now();
	for (int64_t set = 0; set < cell->sets; set++)
		peer_call(peer, set);
	double seconds = seconds_now() - start;
	(void)nanosleep(&pause, NULL);
	return seconds / (double)cell->sets;
}

static void describe_result(const struct cell *cell, const ek_context *ctx, struct result *result)
{
	ek_description description = {.size = sizeof description};
	(void)ek_describe(ctx, &description);
	const struct test_case *test_case = &cell->test_case;
	*result = (struct result){.op = test_case->op,
				  .pass = test_case->pass,
				  .dtype = test_case->dtype,
				  .weight_dtype = test_case->weight_dtype,
				  .rows = test_case->rows,
				  .cols = test_case->cols,
				  .threads = description.threads,
				  .isa = description.isa,
				  .bytes = case_bytes(test_case)};
}

int cell_measure(struct cell *cell, ek_context *ctx, struct team *team, struct peer *peer,
		 const struct effort *effort, struct result *result)
{
	double op[MAX_ROUNDS];
	double copy[MAX_ROUNDS];
	double other[MAX_ROUNDS];
	int rounds = 0;
	describe_result(cell, ctx, result);
	if (cell_call(cell, ctx, 0) != EK_OK)
		return complain(STATUS_USAGE, "%s", ek_error(ctx));
	bool with_peer = peer && peer_prepare(peer, cell);
	copy_prepare(team, cell->out, cell->x, cell->dy, cell->step * (size_t)cell->sets);
	(void)time_op(cell, ctx); /* a round that does not count: pages, clocks and threads warm up */
	double begun = seconds_now();
	while (rounds < effort->least_rounds ||
	       (rounds < effort->most_rounds && seconds_now() - begun < effort->seconds)) {
		op[rounds] = time_op(cell, ctx);
		copy[rounds] = time_copy(cell, team);
		other[rounds] = with_peer ? time_peer(cell, peer) : 0;
		rounds++;
	}
	if (with_peer)
		peer_release(peer);
	result->seconds = median(op, rounds);
	result->copy_seconds = median(copy, rounds);
	result->onednn_seconds = with_peer ? median(other, rounds) : 0;
	return STATUS_FINE;
}

/* Seconds a call, the median of batches of about a millisecond; peer NULL: the op. */
static double time_batches(struct cell *cell, ek_context *ctx, struct peer *peer)
{
	double seconds[BATCHES];
	int64_t calls = 1;
	for (int batch = -1; batch < BATCHES;) {
		double start = seconds_now();
		for (int64_t i = 0; i < calls; i++)
			if (peer)
				peer_call(peer, 0);
			else
				(void)cell_call(cell, ctx, 0);
		double spent = seconds_now() - start;
		if (batch < 0 && spent < 1e-3) {
			calls *= 2;
			continue;
		}
		if (batch >= 0)
			seconds[batch] = spent / (double)calls;
		batch++;
	}
	return median(seconds, BATCHES);
}

int cell_measure_cached(struct cell *cell, ek_context *ctx, struct peer *peer, struct result *result)
{
	describe_result(cell, ctx, result);
	result->cached = true;
	if (cell_call(cell, ctx, 0) != EK_OK)
		return complain(STATUS_USAGE, "%s", ek_error(ctx));
	result->seconds = time_batches(cell, ctx, NULL);
	if (peer && peer_prepare(peer, cell)) {
		result->onednn_seconds = time_batches(cell, ctx, peer);
		peer_release(peer);
	}
	return STATUS_FINE;
}
