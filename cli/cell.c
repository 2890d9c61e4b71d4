/* One cell of the speed list: its buffers, on either device, and the timing on the CPU (gpu_timing.c has that
 * of GPUs). Called by bench.c and run.c. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "cell.h"

#include <stdlib.h>
#include <time.h>

#include "cli.h"
#include "cuda/gpu.h"
#include "device.h"
#include "memory.h"
#include "options.h"
#include "peers.h"
#include "timing.h"

enum { MAX_SETS = 65536, MAX_GPU_SETS = 4096, BATCHES = 25 };

static const double cpu_rotates = 268435456; /* bytes of all sets together */
static const double gpu_rotates = 536870912;

/* Sets start as allocations do: at cache lines, on a GPU at multiples of 256. */
static size_t round_up(const struct cell *cell, size_t bytes)
{
	size_t alignment = cell->gpu ? 256 : 64;
	return (bytes + alignment - 1) / alignment * alignment;
}

static void *make_buffer(const struct cell *cell, size_t bytes, bool *fine)
{
	void *memory = memory_make(cell->gpu, bytes);
	*fine = *fine && memory;
	return memory;
}

/* Memory for `elements` at its start filled with values; all of it is `bytes` large. */
static void *make_filled(const struct cell *cell, const struct options *options, ek_dtype dtype,
			 int64_t elements, size_t bytes, uint64_t seed, enum role role, bool *fine)
{
	size_t filled = (size_t)elements * ek_dtype_size(dtype);
	void *memory = make_buffer(cell, bytes, fine);
	void *values = malloc(filled);
	if (memory && values) {
		fill_elements(values, dtype, elements, options->init, seed, role);
		*fine = memory_write(cell->gpu, memory, values, filled) == EK_OK && *fine;
	}
	*fine = *fine && values;
	free(values);
	return memory;
}

/* A slab of all sets; the sets hold the same values, which costs nothing and spares the filling. */
static unsigned char *make_slab(const struct cell *cell, const struct options *options, uint64_t seed,
				bool *fine)
{
	unsigned char *slab =
		make_filled(cell, options, cell->test_case.dtype, cell->test_case.rows * cell->test_case.cols,
			    cell->step * (size_t)cell->sets, seed, ACTIVATION, fine);
	if (*fine)
		*fine = memory_repeat(cell->gpu, slab, cell->step, cell->sets) == EK_OK;
	return slab;
}

static void *make_vector(const struct cell *cell, const struct options *options, enum role role, bool *fine)
{
	ek_dtype dtype = cell->test_case.weight_dtype;
	size_t bytes = (size_t)cell->test_case.cols * ek_dtype_size(dtype);
	return make_filled(cell, options, dtype, cell->test_case.cols, bytes, options->seed, role, fine);
}

static void make_statistics(struct cell *cell, bool *fine)
{
	cell->rstd = make_buffer(cell, cell->stats_step * (size_t)cell->sets, fine);
	if (cell->test_case.op->norm != EK_LAYER_NORM)
		return;
	cell->mean = make_buffer(cell, cell->stats_step * (size_t)cell->sets, fine);
	cell->mean_lo = make_buffer(cell, cell->stats_step * (size_t)cell->sets, fine);
}

static void make_forward(struct cell *cell, const struct options *options, bool *fine)
{
	const struct test_case *test_case = &cell->test_case;
	if (test_case->form.weight)
		cell->weight = make_vector(cell, options, WEIGHT, fine);
	if (test_case->form.bias)
		cell->bias = make_vector(cell, options, BIAS, fine);
	cell->forward = forward_args_of(test_case, options->eps);
	cell->forward.weight = cell->weight;
	cell->forward.bias = cell->bias;
	cell->forward.x = cell->x;
	cell->forward.y = cell->out;
}

/* Backward as training has it: statistics kept from forward, all gradients, a workspace made before. */
static int make_backward(struct cell *cell, ek_context *ctx, const struct options *options, bool *fine)
{
	const struct test_case *test_case = &cell->test_case;
	size_t vector_bytes = (size_t)test_case->cols * ek_dtype_size(test_case->weight_dtype);
	cell->dweight = test_case->form.dweight ? make_buffer(cell, vector_bytes, fine) : NULL;
	cell->dbias = test_case->form.dbias ? make_buffer(cell, vector_bytes, fine) : NULL;
	ek_norm_backward_args *args = &cell->backward;
	*args = backward_args_of(test_case, options->eps);
	args->weight = cell->weight;
	args->x = cell->x;
	args->dy = cell->dy;
	args->dx = cell->out;
	args->dweight = cell->dweight;
	args->dbias = cell->dbias;
	args->mean = cell->mean;
	args->rstd = cell->rstd;
	args->mean_lo = cell->mean_lo;
	size_t bytes = 0;
	if (ek_norm_backward_workspace(ctx, args, &bytes) != EK_OK)
		return complain(STATUS_USAGE, "%s", ek_error(ctx));
	args->workspace = cell->workspace = make_buffer(cell, bytes, fine);
	args->workspace_size = bytes;
	return STATUS_FINE;
}

static int keep_statistics(struct cell *cell, ek_context *ctx)
{
	ek_norm_forward_args args = cell->forward;
	args.mean = cell->mean;
	args.rstd = cell->rstd;
	args.mean_lo = cell->mean_lo;
	ek_status status = ek_norm_forward(ctx, &args);
	unsigned char *const slabs[] = {cell->mean, cell->rstd, cell->mean_lo};
	for (int i = 0; i < 3 && status == EK_OK; i++)
		if (slabs[i])
			status = memory_repeat(cell->gpu, slabs[i], cell->stats_step, cell->sets);
	if (status == EK_OK)
		return STATUS_FINE;
	return complain(device_exit_status(status), "%s", ek_error(ctx));
}

static int no_memory(const struct cell *cell, double bytes)
{
	return complain(STATUS_USAGE, "--rows %lld --cols %lld: needs %.1f GB, more than %s",
			(long long)cell->test_case.rows, (long long)cell->test_case.cols, bytes * 1e-9,
			cell->gpu ? "the GPU has free" : "this machine has");
}

/* On a GPU at least four times its L2. */
static double rotating_bytes(const struct cell *cell, const struct options *options)
{
	int l2 = 0;
	if (options->rotate > 0)
		return options->rotate;
	if (!cell->gpu)
		return cpu_rotates;
	(void)cell->gpu->driver->device_attribute(&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, cell->gpu->device);
	return 4.0 * l2 > gpu_rotates ? 4.0 * l2 : gpu_rotates;
}

/* At least 2; on a GPU no more than its memory and a graph hold. */
static int64_t choose_sets(const struct cell *cell, const struct options *options, double bytes)
{
	int64_t most = cell->gpu ? MAX_GPU_SETS : MAX_SETS;
	double wanted = rotating_bytes(cell, options) / bytes + 1;
	int64_t sets = wanted > (double)most ? most : (int64_t)wanted;
	while (cell->gpu && sets > 2 && !memory_suffices(cell->gpu, bytes * (double)sets))
		sets /= 2;
	return sets < 2 ? 2 : sets;
}

int cell_make(struct cell *cell, ek_context *ctx, const struct options *options,
	      const struct test_case *test_case, int64_t sets)
{
	double bytes = case_bytes(test_case);
	bool fine = true;
	*cell = (struct cell){.test_case = *test_case, .gpu = gpu_of(ctx), .sets = sets};
	if (sets == 0)
		cell->sets = choose_sets(cell, options, bytes);
	if (!memory_suffices(cell->gpu, bytes * (double)cell->sets))
		return no_memory(cell, bytes * (double)cell->sets);
	cell->step =
		round_up(cell, (size_t)(test_case->rows * test_case->cols) * ek_dtype_size(test_case->dtype));
	cell->stats_step = round_up(cell, (size_t)test_case->rows * (test_case->dtype == EK_F64 ? 8 : 4));
	cell->x = make_slab(cell, options, options->seed, &fine);
	if (test_case->pass == BACKWARD)
		cell->dy = make_slab(cell, options, ~options->seed, &fine);
	cell->out = make_buffer(cell, cell->step * (size_t)cell->sets, &fine);
	if (test_case->pass == BACKWARD || cell->gpu)
		make_statistics(cell, &fine);
	make_forward(cell, options, &fine);
	int status = STATUS_FINE;
	if (test_case->pass == BACKWARD)
		status = make_backward(cell, ctx, options, &fine);
	if (!fine)
		status = no_memory(cell, bytes * (double)cell->sets);
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
		memory_free(cell->gpu, buffers[i]);
	*cell = (struct cell){0};
}

static void *at_or_null(unsigned char *slab, size_t at)
{
	return slab ? slab + at : NULL;
}

ek_status cell_call(struct cell *cell, ek_context *ctx, int64_t set)
{
	size_t at = cell->step * (size_t)set;
	size_t stats_at = cell->stats_step * (size_t)set;
	if (cell->test_case.pass == FORWARD) {
		ek_norm_forward_args *args = &cell->forward;
		args->x = cell->x + at;
		args->y = cell->out + at;
		args->mean = at_or_null(cell->mean, stats_at);
		args->rstd = at_or_null(cell->rstd, stats_at);
		args->mean_lo = at_or_null(cell->mean_lo, stats_at);
		return ek_norm_forward(ctx, args);
	}
	ek_norm_backward_args *args = &cell->backward;
	args->x = cell->x + at;
	args->dy = cell->dy + at;
	args->dx = cell->out + at;
	args->mean = at_or_null(cell->mean, stats_at);
	args->rstd = at_or_null(cell->rstd, stats_at);
	args->mean_lo = at_or_null(cell->mean_lo, stats_at);
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

void cell_describe(const struct cell *cell, const ek_context *ctx, struct result *result)
{
	const struct test_case *test_case = &cell->test_case;
	*result = (struct result){.op = test_case->op,
				  .pass = test_case->pass,
				  .dtype = test_case->dtype,
				  .weight_dtype = test_case->weight_dtype,
				  .rows = test_case->rows,
				  .cols = test_case->cols,
				  .device = device_words(ctx),
				  .bytes = case_bytes(test_case)};
}

int cell_measure(struct cell *cell, ek_context *ctx, struct team *team, struct peer *peer,
		 const struct effort *effort, struct result *result)
{
	double op[MAX_ROUNDS];
	double copy[MAX_ROUNDS];
	double other[MAX_ROUNDS];
	int rounds = 0;
	cell_describe(cell, ctx, result);
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
	cell_describe(cell, ctx, result);
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
