/* One cell of the speed list: its buffers, on either device, and the timing on the CPU (gpu_timing.c has that
 * of GPUs). Called by bench.c and run.c. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "cell.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "choices.h"
#include "cli.h"
#include "device.h"
#include "heads.h"
#include "gpu/gpu.h"
#include "options.h"
#include "peers.h"
#include "timing.h"
#include "verify/memory.h"

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

/* The packed tensor that contains this operand; -1: the operand has a tensor of its own. */
static int packed_into(const struct cell *cell, int number)
{
	static const char *const halves[][2] = {{"gate", "value"}, {"dgate", "dvalue"}};
	for (int i = 0; i < 2 && cell->test_case.packed; i++)
		if (strcmp(cell->op->operands[number].name, halves[i][1]) == 0)
			return operand_number(cell->op, halves[i][0]);
	return -1;
}

/* Gaps between rows aside, unless another operand is in them. */
static size_t slab_bytes(const struct cell *cell, int number)
{
	const struct test_case *c = &cell->test_case;
	return (size_t)(c->pad[number] ? stride_bytes(c, number) * c->rows : operand_bytes(c, number));
}

/* Where an operand begins in the slab that it is in. */
static size_t place_in_slab(const struct cell *cell, int number)
{
	return packed_into(cell, number) < 0 ? 0 : (size_t)stride_bytes(&cell->test_case, number) / 2;
}

/* The values of an input, and of what is packed into it, at the start of its slab and once in each set. The sets hold the
 * same values, which costs nothing and spares the filling. */
static bool fill_slab(const struct cell *cell, int number)
{
	struct operand o;
	size_t bytes = slab_bytes(cell, number);
	unsigned char *values = malloc(bytes);
	if (!values)
		return false;
	for (int i = number; i < cell->op->operand_count; i++) {
		if (i != number && packed_into(cell, i) != number)
			continue;
		operand_describe(&cell->test_case, i, &o);
		o.buffer.data = values + place_in_slab(cell, i);
		operand_fill(&cell->test_case, i, &o);
	}
	ek_status status = memory_write(cell->gpu, cell->slabs[number], values, bytes);
	free(values);
	if (status == EK_OK && cell->steps[number])
		status = memory_repeat(cell->gpu, cell->slabs[number], cell->steps[number], cell->sets);
	return status == EK_OK;
}

/* A slab for each operand: of all sets where it has rows, else one that all sets share. */
static void make_slabs(struct cell *cell, bool *fine)
{
	const struct test_case *c = &cell->test_case;
	for (int i = 0; i < cell->op->operand_count; i++) {
		size_t bytes = round_up(cell, slab_bytes(cell, i));
		bool has_rows = cell->op->operands[i].dims[0].size == 0;
		int whole = packed_into(cell, i);
		if (!(c->present >> i & 1))
			continue;
		if (whole >= 0) {
			cell->steps[i] = cell->steps[whole];
			cell->slabs[i] =
				cell->slabs[whole] ? cell->slabs[whole] + place_in_slab(cell, i) : NULL;
			continue;
		}
		cell->steps[i] = has_rows ? bytes : 0;
		cell->slabs[i] = make_buffer(cell, bytes * (size_t)(has_rows ? cell->sets : 1), fine);
		bool input = i >= cell->op->output_count && !(case_statistics(c) >> i & 1);
		*fine = *fine && (!input || fill_slab(cell, i));
	}
}

unsigned char *cell_slab(const struct cell *cell, const char *name)
{
	int number = ek_operand_named(cell->op, name);
	return number < 0 ? NULL : cell->slabs[number];
}

static int refused(ek_status status, const ek_context *ctx)
{
	return status == EK_OK ? STATUS_FINE : complain(device_exit_status(status), "%s", ek_error(ctx));
}

/* The workspace is made before, as training has it. */
static int make_args(struct cell *cell, ek_context *ctx, bool *fine)
{
	size_t bytes = 0;
	case_args(&cell->test_case, (void *const *)cell->slabs, &cell->args);
	ek_status status = args_workspace(cell->op, ctx, &cell->args, &bytes);
	if (bytes)
		args_set_workspace(cell->op, &cell->args, cell->workspace = make_buffer(cell, bytes, fine),
				   bytes);
	return refused(status, ctx);
}

/* What backward is given from forward; the result of forward goes where that of backward will. */
static int keep_statistics(struct cell *cell, ek_context *ctx)
{
	uint32_t statistics = case_statistics(&cell->test_case) & cell->test_case.present;
	void *at[EK_MOST_OPERANDS];
	union op_args args;
	if (!statistics)
		return STATUS_FINE;
	const struct test_case forward = case_forward(&cell->test_case);
	const struct ek_op *op = case_op(&forward);
	for (int i = 0; i < op->operand_count; i++) {
		at[i] = cell_slab(cell, op->operands[i].name);
		at[i] = at[i] ? at[i] : cell->slabs[0];
	}
	case_args(&forward, at, &args);
	ek_status status = op->call(ctx, &args);
	for (int i = 0; i < cell->op->operand_count && status == EK_OK; i++)
		if (statistics >> i & 1)
			status = memory_repeat(cell->gpu, cell->slabs[i], cell->steps[i], cell->sets);
	return refused(status, ctx);
}

static int no_memory(const struct cell *cell, double bytes)
{
	return complain(STATUS_USAGE, "--rows %lld --cols %lld: needs %.1f GB, more than %s",
			(long long)case_shape(&cell->test_case).rows,
			(long long)case_shape(&cell->test_case).cols, bytes * 1e-9,
			cell->gpu ? "the GPU has free" : "this machine has");
}

/* On a GPU at least four times its L2. */
static double rotating_bytes(const struct cell *cell, const struct options *options)
{
	int l2 = 0;
	if (options->rotate > 0)
		return 1048576 * (double)options->rotate;
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
	*cell = (struct cell){
		.test_case = *test_case, .op = case_op(test_case), .gpu = gpu_of(ctx), .sets = sets};
	if (!cell->gpu && test_case->pass == FORWARD) /* what a CPU's inference does without */
		case_drop_statistics(&cell->test_case);
	if (sets == 0)
		cell->sets = choose_sets(cell, options, bytes);
	if (!memory_suffices(cell->gpu, bytes * (double)cell->sets))
		return no_memory(cell, bytes * (double)cell->sets);
	make_slabs(cell, &fine);
	int status = fine ? make_args(cell, ctx, &fine) : STATUS_FINE;
	if (!fine)
		status = no_memory(cell, bytes * (double)cell->sets);
	if (status == STATUS_FINE)
		status = keep_statistics(cell, ctx);
	if (status != STATUS_FINE)
		cell_free(cell);
	return status;
}

void cell_free(struct cell *cell)
{
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		memory_free(cell->gpu, cell->slabs[i] && packed_into(cell, i) < 0 ? cell->slabs[i] : NULL);
	memory_free(cell->gpu, cell->workspace);
	*cell = (struct cell){.sets = 0};
}

static void point_at(struct cell *cell, int64_t set)
{
	for (int i = 0; i < cell->op->operand_count; i++)
		if (cell->steps[i])
			ek_operand_set(&cell->op->operands[i], &cell->args,
				       cell->slabs[i] + cell->steps[i] * (size_t)set);
	cell->set = set;
}

ek_status cell_call(struct cell *cell, ek_context *ctx, int64_t set)
{
	if (set != cell->set)
		point_at(cell, set);
	return cell->op->call(ctx, &cell->args);
}

static double time_op(struct cell *cell, ek_context *ctx)
{
	double start = seconds_now();
	for (int64_t set = 0; set < cell->sets; set++)
		(void)cell_call(cell, ctx, set);
	return (seconds_now() - start) / (double)cell->sets;
}

/* The first input of forward; of a backward that is not given it, the first of its own. */
int cell_input(const struct cell *cell)
{
	const struct ek_op *forward = cell->test_case.op->forward;
	int number = ek_operand_named(cell->op, forward->operands[forward->output_count].name);
	return number >= 0 && cell->slabs[number] ? number : cell->op->output_count;
}

/* The smallest of the result, the input and dy, whose dtypes and widths may differ. */
size_t cell_copied(const struct cell *cell)
{
	const int copied[] = {cell_input(cell), ek_operand_named(cell->op, "dy")};
	size_t bytes = cell->steps[0];
	for (int i = 0; i < 2; i++)
		if (copied[i] >= 0 && cell->slabs[copied[i]] && cell->steps[copied[i]] < bytes)
			bytes = cell->steps[copied[i]];
	return bytes;
}

double cell_copies(const struct cell *cell, int tensors)
{
	return case_bytes(&cell->test_case) / tensors / (double)cell_copied(cell);
}

/* The slabs are copied as one piece: of the op's bytes alone, without a call for each set. */
static double time_copy(const struct cell *cell, struct team *team)
{
	const unsigned char *dy = cell_slab(cell, "dy");
	double start = seconds_now();
	copy_streams(team, cell->slabs[0], cell->slabs[cell_input(cell)], dy,
		     cell_copied(cell) * (size_t)cell->sets);
	return (seconds_now() - start) / (double)cell->sets * cell_copies(cell, dy ? 3 : 2);
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
				  .rows = case_shape(test_case).rows,
				  .cols = case_shape(test_case).cols,
				  .device = device_words(ctx),
				  .bytes = case_bytes(test_case)};
	bool x_bias = op_has(test_case->op, "x_bias") && case_has(test_case, "x_bias dx_bias");
	(void)snprintf(result->choices, sizeof result->choices, "%s%s", choices_text(test_case),
		       x_bias ? " --x-bias 1" : "");
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
	copy_prepare(team, cell->slabs[0], cell->slabs[cell_input(cell)], cell_slab(cell, "dy"),
		     cell_copied(cell) * (size_t)cell->sets);
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
