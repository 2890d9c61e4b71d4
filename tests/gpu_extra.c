/* What a GPU must do beside giving the right bits, and what takes a large one: tensors of over 2^31 elements, many
 * threads and streams at once, graphs, the host's cost of a call. For a machine with a GPU; gpu_check.sh runs it,
 * ctest does not. `gpu_extra short` takes small tensors, for a trial without one. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "ops/norm/plan.h"
#include "support.h"
#include "verify/memory.h"

static ek_context *ctx;
static struct ek_gpu *gpu;
static bool entered;

SETUP()
{
	ek_options options = {.size = sizeof options, .device = EK_CUDA};
	if (ek_open(&ctx, &options) != EK_OK || ek_gpu_enter(ctx->gpu, &entered) != EK_OK) {
		printf("no GPU: %s\n", ek_error(NULL));
		exit(1);
	}
	gpu = ctx->gpu;
	printf("  on %s\n", gpu->name);
}

/* A context of its own, whose kernels are compiled. */
static ek_status open_uncached(ek_context **made)
{
	return ek_open(made, &(ek_options){.size = sizeof(ek_options),
					   .device = EK_CUDA,
					   .ordinal = ctx->ordinal,
					   .cache = ""});
}

#define CUDA_OK(call) expect_cuda((call), #call)

static bool expect_cuda(CUresult result, const char *call)
{
	EXPECT(result == CUDA_SUCCESS, "%s: %s", call, ek_driver_error(gpu->driver, result));
	return result == CUDA_SUCCESS;
}

static bool expect_ok(ek_status status, const char *what)
{
	EXPECT(status == EK_OK, "%s: %s: %s", what, ek_status_name(status), ek_error(NULL));
	return status == EK_OK;
}

/* ---- a case on the GPU ---- */

/* A call whose operands are in the GPU's memory, and what the reference says to it. */
struct gpu_call {
	struct test_case c;
	char text[400];
	union op_args args;
	unsigned char *device[EK_MOST_OPERANDS];   /* by number */
	unsigned char *expected[EK_MOST_OPERANDS]; /* of outputs */
	size_t bytes[EK_MOST_OPERANDS];
	void *workspace;
};

static void *on_gpu(struct gpu_call *call, size_t bytes)
{
	void *memory = memory_make(gpu, bytes);
	EXPECT(memory, "%s: no GPU memory for %zu bytes", call->text, bytes);
	return memory;
}

/* The operand on the GPU: an input with its values, an output with what is expected of it. */
static void operand_put(struct gpu_call *call, int i)
{
	bool output = i < case_op(&call->c)->output_count;
	const struct operand *o = output ? &case_expected.of[i] : &case_inputs.of[i];
	if (!o->present)
		return;
	call->bytes[i] = o->buffer.bytes;
	call->device[i] = on_gpu(call, o->buffer.bytes);
	if (!output) {
		(void)expect_ok(memory_write(gpu, call->device[i], o->buffer.data, call->bytes[i]),
				call->text);
		return;
	}
	call->expected[i] = memory_make(NULL, call->bytes[i]);
	(void)memory_write(NULL, call->expected[i], o->buffer.data, call->bytes[i]);
}

static void workspace_put(struct gpu_call *call)
{
	size_t bytes = 0;
	(void)expect_ok(args_workspace(case_op(&call->c), ctx, &call->args, &bytes), call->text);
	call->workspace = bytes ? on_gpu(call, bytes) : NULL;
	args_set_workspace(case_op(&call->c), &call->args, call->workspace, bytes);
}

static void call_put(struct gpu_call *call, const struct test_case *c)
{
	*call = (struct gpu_call){.c = *c};
	(void)snprintf(call->text, sizeof call->text, "%s", case_text(c));
	case_expect(c);
	for (int i = 0; i < case_op(c)->operand_count; i++)
		operand_put(call, i);
	case_args(c, (void *const *)call->device, &call->args);
	workspace_put(call);
}

static void call_free(struct gpu_call *call)
{
	for (int i = 0; i < EK_MOST_OPERANDS; i++) {
		memory_free(gpu, call->device[i]);
		memory_free(NULL, call->expected[i]);
	}
	memory_free(gpu, call->workspace);
}

static ek_status call_launch(struct gpu_call *call, ek_context *on, CUstream stream)
{
	args_set_stream(case_op(&call->c), &call->args, stream);
	return case_op(&call->c)->call(on, &call->args);
}

static ek_status call_prepare(const struct gpu_call *call, ek_context *on)
{
	return case_op(&call->c)->prepare(on, &call->args);
}

/* Stains the outputs, so that what is not written is seen. */
static void call_stain(const struct gpu_call *call)
{
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		if (call->expected[i])
			CUDA_OK(gpu->driver->fill_bytes((CUdeviceptr)(uintptr_t)call->device[i], CANARY,
							call->bytes[i]));
	CUDA_OK(gpu->driver->context_synchronize());
}

/* The name of an output that differs; NULL: none. No test_fail: threads call it. */
static const char *call_difference(const struct gpu_call *call)
{
	const char *differing = NULL;
	for (int i = 0; i < EK_MOST_OPERANDS && !differing; i++) {
		unsigned char *got = call->expected[i] ? malloc(call->bytes[i]) : NULL;
		if (got && (memory_read(gpu, got, call->device[i], call->bytes[i]) != EK_OK ||
			    memcmp(got, call->expected[i], call->bytes[i]) != 0))
			differing = case_op(&call->c)->operands[i].name;
		free(got);
	}
	return differing;
}

static void expect_same(const struct gpu_call *call, const char *when)
{
	const char *differing = call_difference(call);
	EXPECT(!differing, "%s: %s differs %s", call->text, differing, when);
}

/* A few calls of all kinds, the ops by turns: one warp a row, several, clusters, partial sums that are folded in two steps. */
static int mixed_cases(struct test_case *cases)
{
	static const struct {
		int64_t rows, cols;
		ek_dtype dtype;
	} shapes[] = {{64, 768, EK_F32},    {37, 4096, EK_BF16}, {20, 5000, EK_F16},
		      {5, 131072, EK_BF16}, {9, 1000, EK_F64},   {262144, 8, EK_F64}};
	int count = 0;
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int backward = 0; backward < 2; backward++)
			cases[count++] = case_make(
				&ek_ops[(2 * s + 3 * backward) % EK_OP_COUNT], backward ? BACKWARD : FORWARD,
				(struct dtype_pair){shapes[s].dtype, shapes[s].dtype},
				test_mode == TEST_SHORT && shapes[s].rows > 1000 ? 1000 : shapes[s].rows,
				shapes[s].cols);
	return count;
}

enum { MIXED_CASES = 12 };

/* ---- threads and streams ---- */

enum { THREADS = 8, ROUNDS = 20 };

struct worker {
	ek_context *ctx; /* NULL: opens its own */
	struct gpu_call calls[MIXED_CASES];
	int count;
	pthread_barrier_t *start;
	char trouble[600];
};

static void launch_rounds(struct worker *worker, ek_context *on, CUstream stream)
{
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < worker->count; i++)
			if (call_launch(&worker->calls[i], on, stream) != EK_OK) {
				(void)snprintf(worker->trouble, sizeof worker->trouble, "%s: %s",
					       worker->calls[i].text, ek_error(on));
				return;
			}
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	ek_context *own = NULL, *on = worker->ctx;
	CUstream stream = NULL;
	bool pushed;
	(void)pthread_barrier_wait(worker->start);
	if (!on && open_uncached(&own) == EK_OK)
		on = own;
	if (!on || ek_gpu_enter(on->gpu, &pushed) != EK_OK) {
		(void)snprintf(worker->trouble, sizeof worker->trouble, "%s", ek_error(NULL));
		return NULL;
	}
	if (gpu->driver->stream_create(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		(void)snprintf(worker->trouble, sizeof worker->trouble, "no stream");
	launch_rounds(worker, on, stream);
	if (gpu->driver->stream_synchronize(stream) != CUDA_SUCCESS)
		(void)snprintf(worker->trouble, sizeof worker->trouble, "the stream failed");
	for (int i = 0; i < worker->count && !worker->trouble[0]; i++) {
		const char *differing = call_difference(&worker->calls[i]);
		if (differing)
			(void)snprintf(worker->trouble, sizeof worker->trouble, "%s: %s differs",
				       worker->calls[i].text, differing);
	}
	(void)gpu->driver->stream_destroy(stream);
	ek_gpu_leave(on->gpu, pushed);
	ek_close(own);
	return NULL;
}

/* Half of the threads share a context, where each kernel is compiled once for all of them. */
TEST(many_threads_and_streams_at_once)
{
	static struct worker workers[THREADS];
	pthread_t threads[THREADS];
	pthread_barrier_t start;
	struct test_case cases[MIXED_CASES];
	ek_context *shared = NULL;
	int count = mixed_cases(cases);
	if (!expect_ok(open_uncached(&shared), "opening a context"))
		return;
	(void)pthread_barrier_init(&start, NULL, THREADS);
	for (int t = 0; t < THREADS; t++) {
		workers[t] = (struct worker){.ctx = t % 2 ? shared : NULL, .count = count, .start = &start};
		for (int i = 0; i < count; i++) {
			cases[i].seed = (uint64_t)(t * count + i);
			call_put(&workers[t].calls[i], &cases[i]);
			call_stain(&workers[t].calls[i]);
		}
	}
	for (int t = 0; t < THREADS; t++)
		if (pthread_create(&threads[t], NULL, work, &workers[t]) != 0)
			abort();
	for (int t = 0; t < THREADS; t++) {
		(void)pthread_join(threads[t], NULL);
		EXPECT(!workers[t].trouble[0], "thread %d: %s", t, workers[t].trouble);
		for (int i = 0; i < count; i++)
			call_free(&workers[t].calls[i]);
	}
	(void)pthread_barrier_destroy(&start);
	ek_close(shared);
}

/* ---- graphs ---- */

static CUgraphExec capture(struct gpu_call *calls, int count, CUstream stream)
{
	CUgraph graph = NULL;
	CUgraphExec ready = NULL;
	if (!CUDA_OK(gpu->driver->capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)))
		return NULL;
	for (int i = 0; i < count; i++)
		(void)expect_ok(call_launch(&calls[i], ctx, stream), calls[i].text);
	if (!CUDA_OK(gpu->driver->capture_end(stream, &graph)))
		return NULL;
	CUDA_OK(gpu->driver->graph_instantiate(&ready, graph, 0));
	CUDA_OK(gpu->driver->graph_destroy(graph));
	return ready;
}

TEST(replay_equals_a_plain_call)
{
	static struct gpu_call calls[MIXED_CASES];
	struct test_case cases[MIXED_CASES];
	CUstream stream = NULL;
	int count = mixed_cases(cases);
	if (!CUDA_OK(gpu->driver->stream_create(&stream, CU_STREAM_NON_BLOCKING)))
		return;
	for (int i = 0; i < count; i++) {
		call_put(&calls[i], &cases[i]);
		call_stain(&calls[i]);
		(void)expect_ok(call_launch(&calls[i], ctx, stream), calls[i].text);
		CUDA_OK(gpu->driver->stream_synchronize(stream));
		expect_same(&calls[i], "in a plain call");
		call_stain(&calls[i]);
	}
	CUgraphExec graph = capture(calls, count, stream);
	for (int replay = 0; replay < 3 && graph; replay++) {
		CUDA_OK(gpu->driver->graph_launch(graph, stream));
		CUDA_OK(gpu->driver->stream_synchronize(stream));
		for (int i = 0; i < count; i++) {
			expect_same(&calls[i], "in a replayed graph");
			call_stain(&calls[i]);
		}
	}
	if (graph)
		CUDA_OK(gpu->driver->graph_exec_destroy(graph));
	for (int i = 0; i < count; i++)
		call_free(&calls[i]);
	CUDA_OK(gpu->driver->stream_destroy(stream));
}

/* A capture meets a kernel that is not there, goes on unharmed, and after prepare, for another number of
 * rows, succeeds. */
TEST(capture_after_prepare)
{
	struct test_case c = case_of(true, EK_LAYER_NORM, (struct dtype_pair){EK_F64, EK_F64},
				     test_mode == TEST_SHORT ? 2000 : 262144, 24);
	struct gpu_call call;
	ek_context *on = NULL, *usual = ctx;
	CUstream stream = NULL;
	CUgraph graph = NULL;
	if (!expect_ok(open_uncached(&on), "opening a context") ||
	    !CUDA_OK(gpu->driver->stream_create(&stream, CU_STREAM_NON_BLOCKING)))
		return;
	call_put(&call, &c);
	call_stain(&call);
	CUDA_OK(gpu->driver->capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ek_status status = call_launch(&call, on, stream);
	EXPECT(status == EK_ERROR_NOT_READY, "a call in a capture, without its kernel: %s",
	       ek_status_name(status));
	CUDA_OK(gpu->driver->capture_end(stream, &graph));
	if (graph)
		CUDA_OK(gpu->driver->graph_destroy(graph));
	args_take_rows(case_op(&c), &call.args, 0, 1);
	(void)expect_ok(call_prepare(&call, on), "prepare for one row");
	args_take_rows(case_op(&c), &call.args, 0, c.rows);
	ctx = on;
	CUgraphExec ready = capture(&call, 1, stream);
	ctx = usual;
	if (ready && CUDA_OK(gpu->driver->graph_launch(ready, stream)) &&
	    CUDA_OK(gpu->driver->stream_synchronize(stream)))
		expect_same(&call, "in a graph of a prepared call");
	if (ready)
		CUDA_OK(gpu->driver->graph_exec_destroy(ready));
	call_free(&call);
	CUDA_OK(gpu->driver->stream_destroy(stream));
	ek_close(on);
}

/* ---- more than 2^31 elements ---- */

static int64_t many_elements(void)
{
	return test_mode == TEST_SHORT ? INT64_C(1) << 20 : (INT64_C(1) << 31) + 12345;
}

/* A block of rows, again and again: rows must come out as those of the block, sums as the CPU's over all. */
struct large {
	struct test_case block;
	int64_t blocks;
	size_t block_bytes;
	unsigned char *all[EK_MOST_OPERANDS]; /* blocks on the GPU of the matrices, by number */
};

static bool is_matrix(const struct large *large, int i)
{
	return case_op(&large->block)->operands[i].rank > 1 && large->block.present >> i & 1;
}

static bool large_make(struct large *large)
{
	const struct ek_op *op = case_op(&large->block);
	size_t bytes = large->block_bytes * (size_t)large->blocks;
	int tensors = 0;
	for (int i = 0; i < op->operand_count; i++)
		tensors += is_matrix(large, i);
	if (!memory_suffices(gpu, (double)bytes * tensors * 1.05)) {
		test_skip("the GPU has not %.0f GB", (double)bytes * tensors * 1e-9);
		return false;
	}
	for (int i = 0; i < op->operand_count; i++) {
		if (!is_matrix(large, i))
			continue;
		large->all[i] = memory_make(gpu, bytes);
		if (!large->all[i]) {
			test_fail("%s: %s", case_text(&large->block), ek_error(NULL));
			return false;
		}
		if (i < op->output_count)
			continue;
		(void)expect_ok(
			memory_write(gpu, large->all[i], case_inputs.of[i].buffer.data, large->block_bytes),
			"uploading");
		(void)expect_ok(memory_repeat(gpu, large->all[i], large->block_bytes, large->blocks),
				"uploading");
	}
	return true;
}

static void large_free(struct large *large)
{
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		memory_free(gpu, large->all[i]);
}

/* The first block of an output, the last, and the one where indices pass 2^31. */
static void check_rows(const struct large *large, int output)
{
	const struct operand *expected = &case_expected.of[output];
	int64_t block_elements = large->block.rows * large->block.cols;
	int64_t passing = (INT64_C(1) << 31) / block_elements;
	int64_t sample[] = {0, passing < large->blocks ? passing : large->blocks / 2, large->blocks - 1};
	unsigned char *got = malloc(large->block_bytes);
	for (int i = 0; i < COUNT_OF(sample); i++) {
		(void)expect_ok(memory_read(gpu, got,
					    large->all[output] + (size_t)sample[i] * large->block_bytes,
					    large->block_bytes),
				"downloading");
		EXPECT(memcmp(got, expected->buffer.data, large->block_bytes) == 0,
		       "%s, %lld times: rows of %s in block %lld differ", case_text(&large->block),
		       (long long)large->blocks, case_op(&large->block)->operands[output].name,
		       (long long)sample[i]);
	}
	free(got);
}

/* The CPU's sums over all rows, by its fastest level, into case_expected. */
static void expect_sums(const struct large *large)
{
	const struct ek_op *op = case_op(&large->block);
	ek_context *cpu = NULL;
	union op_args args = case_args_in(&large->block, &case_expected);
	size_t bytes = 0, all = large->block_bytes * (size_t)large->blocks;
	if (!expect_ok(ek_open(&cpu, NULL), "opening the CPU"))
		return;
	args_take_rows(op, &args, 0, large->block.rows * large->blocks);
	for (int i = 0; i < op->operand_count; i++)
		if (is_matrix(large, i))
			ek_operand_set(&op->operands[i], &args,
				       i < op->output_count
					       ? NULL
					       : memory_repeated(case_inputs.of[i].buffer.data,
								 large->block_bytes, large->blocks));
	if (!test_failed() && expect_ok(args_workspace(op, cpu, &args, &bytes), "workspace")) {
		void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
		args_set_workspace(op, &args, workspace, bytes);
		(void)expect_ok(op->call(cpu, &args), "the CPU's sums");
		free(workspace);
	}
	ek_close(cpu);
	for (int i = op->output_count; i < op->operand_count; i++)
		if (is_matrix(large, i) && ek_operand_pointer(&op->operands[i], &args))
			(void)munmap(ek_operand_pointer(&op->operands[i], &args), all);
}

static bool has_sums(const struct test_case *c)
{
	bool has = false;
	for (int i = 0; i < case_op(c)->output_count; i++)
		has = has || (c->present >> i & 1 && case_op(c)->operands[i].flags & EK_ACCUMULATES);
	return has;
}

static void run_large(struct large *large)
{
	const struct ek_op *op = case_op(&large->block);
	struct gpu_call call = {.c = large->block};
	void *at[EK_MOST_OPERANDS];
	if (has_sums(&large->block))
		expect_sums(large);
	for (int i = 0; i < op->operand_count; i++) {
		if (!is_matrix(large, i))
			operand_put(&call, i);
		at[i] = is_matrix(large, i) ? large->all[i] : call.device[i];
	}
	(void)snprintf(call.text, sizeof call.text, "%s, %lld times", case_text(&large->block),
		       (long long)large->blocks);
	case_args(&large->block, at, &call.args);
	args_take_rows(op, &call.args, 0, large->block.rows * large->blocks);
	workspace_put(&call);
	if (expect_ok(op->call(ctx, &call.args), call.text) && CUDA_OK(gpu->driver->context_synchronize())) {
		for (int i = 0; i < op->output_count; i++)
			if (is_matrix(large, i))
				check_rows(large, i);
		expect_same(&call, "from the CPU's");
	}
	call_free(&call);
}

static const struct ek_op_entry *op_named(const char *name)
{
	const struct ek_op_entry *op = ek_ops;
	while (strcmp(op->name, name) != 0)
		op++;
	return op;
}

static void check_large(const char *op, enum pass pass, ek_dtype dtype, int64_t cols, const char *without)
{
	int64_t rows = (test_mode == TEST_SHORT ? 1 << 16 : 1 << 24) / cols;
	if (rows == 0)
		rows = 1;
	if (pass == BACKWARD && !*without) /* the CPU's sums, over blocks of whole pages */
		rows = rows < 2048 ? 2048 : rows / 2048 * 2048;
	struct large large = {
		.block = case_make(op_named(op), pass, (struct dtype_pair){dtype, dtype}, rows, cols)};
	case_drop_statistics(&large.block);
	case_drop(&large.block, without);
	large.blocks = many_elements() / (rows * cols) + 1;
	large.block_bytes = (size_t)(rows * cols) * ek_dtype_size(dtype);
	case_expect(&large.block);
	if (large_make(&large))
		run_large(&large);
	large_free(&large);
}

#define SUMS_OF_COLUMNS "dweight dbias dx_bias"
#define SUMS_OF_BIASES "dgate_bias dvalue_bias"
#define BIASES "gate_bias value_bias"

TEST(more_than_2_31_elements_forward)
{
	check_large("layer_norm", FORWARD, EK_F32, 1024, "");
	check_large("rms_norm", FORWARD, EK_BF16, 5000, "");
	check_large("layer_norm", FORWARD, EK_BF16, 1 << 20, "");
	check_large("add_rms_norm", FORWARD, EK_BF16, 4096, "");
	check_large("add_layer_norm", FORWARD, EK_BF16, 1 << 20, "");
	check_large("swiglu", FORWARD, EK_BF16, 5001, BIASES);
	check_large("bias_act", FORWARD, EK_F32, 4096, "");
}

TEST(more_than_2_31_elements_backward)
{
	check_large("layer_norm", BACKWARD, EK_BF16, 4096, SUMS_OF_COLUMNS);
	check_large("rms_norm", BACKWARD, EK_F32, 1 << 18, SUMS_OF_COLUMNS);
	check_large("add_layer_norm", BACKWARD, EK_BF16, 4096, SUMS_OF_COLUMNS);
	check_large("add_rms_norm", BACKWARD, EK_BF16, 1 << 18, SUMS_OF_COLUMNS);
	check_large("swiglu", BACKWARD, EK_BF16, 5001, BIASES " " SUMS_OF_BIASES);
	check_large("geglu", BACKWARD, EK_BF16, 11008, SUMS_OF_BIASES);
}

TEST(column_sums_over_2_31_elements)
{
	check_large("layer_norm", BACKWARD, EK_BF16, 24, "");
	check_large("rms_norm", BACKWARD, EK_F32, 100, "");
	check_large("add_layer_norm", BACKWARD, EK_BF16, 24, "");
	check_large("swiglu", BACKWARD, EK_BF16, 24, "");
}

/* More rows than a launch may have blocks. */
TEST(more_than_2_31_rows)
{
	check_large("rms_norm", FORWARD, EK_F16, 1, "");
	check_large("rms_norm", BACKWARD, EK_F16, 1, SUMS_OF_COLUMNS);
	check_large("rms_norm", BACKWARD, EK_F64, 1, SUMS_OF_COLUMNS);
	check_large("add_layer_norm", FORWARD, EK_F16, 1, "");
	check_large("add_rms_norm", BACKWARD, EK_F16, 1, SUMS_OF_COLUMNS);
	check_large("swiglu", FORWARD, EK_F16, 1, "");
}

/* q alone, the same sequence again and again: it must come out so each time. */
static void check_large_heads(const char *op, int64_t seq, int64_t heads, int64_t head_dim, int64_t elements)
{
	const struct head_sizes sizes = {1, seq, heads, heads, head_dim, head_dim / 2 * 2};
	struct gpu_call call = {
		.c = case_make_heads(op_named(op), FORWARD, (struct dtype_pair){EK_BF16, EK_BF16}, sizes)};
	void *at[EK_MOST_OPERANDS];
	case_set(&call.c, "");
	case_expect(&call.c);
	const int64_t block = seq * heads * head_dim, blocks = elements / block + 1;
	const size_t bytes = (size_t)block * 2;
	unsigned char *got = malloc(bytes);
	(void)snprintf(call.text, sizeof call.text, "%s, %lld sequences", case_text(&call.c),
		       (long long)blocks);
	if (!memory_suffices(gpu, 2.1 * (double)bytes * (double)blocks)) {
		test_skip("the GPU has not %.0f GB", 2 * (double)bytes * (double)blocks * 1e-9);
		free(got);
		return;
	}
	for (int i = 0; i < case_op(&call.c)->operand_count; i++) {
		if (i == EK_ROPE_FORWARD_Q || i == EK_ROPE_FORWARD_Q_OUT)
			call.device[i] = on_gpu(&call, bytes * (size_t)blocks);
		else
			operand_put(&call, i);
		at[i] = call.device[i];
	}
	const unsigned char *q = case_inputs.of[EK_ROPE_FORWARD_Q].buffer.data;
	(void)expect_ok(memory_write(gpu, call.device[EK_ROPE_FORWARD_Q], q, bytes), "uploading");
	(void)expect_ok(memory_repeat(gpu, call.device[EK_ROPE_FORWARD_Q], bytes, blocks), "uploading");
	case_args(&call.c, at, &call.args);
	call.args.rope_forward.batch = blocks;
	const int64_t sample[] = {0, blocks / 2, blocks * 3 / 4, blocks - 1};
	bool ran = expect_ok(case_op(&call.c)->call(ctx, &call.args), call.text) &&
		   CUDA_OK(gpu->driver->context_synchronize());
	for (int i = 0; ran && i < COUNT_OF(sample); i++) {
		(void)expect_ok(memory_read(gpu, got,
					    call.device[EK_ROPE_FORWARD_Q_OUT] + (size_t)sample[i] * bytes,
					    bytes),
				"downloading");
		EXPECT(memcmp(got, case_expected.of[EK_ROPE_FORWARD_Q_OUT].buffer.data, bytes) == 0,
		       "%s: sequence %lld differs", call.text, (long long)sample[i]);
	}
	free(got);
	call_free(&call);
}

/* Wide heads; and heads of one pair: more tokens than have 31 bits, and more threads than a launch has. */
TEST(more_than_2_31_elements_on_heads)
{
	check_large_heads("rope", 2048, 32, 128, many_elements());
	check_large_heads("qk_norm_rope", 1000, 5, 128, many_elements());
	check_large_heads("rope", 5000, 1, 2, test_mode == TEST_SHORT ? 1 << 18 : INT64_C(4500000000));
}

/* ---- the host's part of a call ---- */

enum { BATCH = 200, BATCHES = 51 }; /* a stream takes a batch without waiting */

static double now(void)
{
	struct timespec time;
	(void)clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

/* The same kernel launched without the library, in as many blocks; no row is there. */
struct bare {
	CUlaunchConfig config;
	CUlaunchAttribute attribute;
	CUfunction function;
	char arguments[256];
};

static bool bare_make(struct bare *bare, const struct gpu_call *call, CUstream stream)
{
	ek_norm_forward_args args = call->args.forward;
	struct ek_norm_plan plan;
	ek_norm_plan_forward(&args, &gpu->limits, &plan);
	const struct ek_step *step = &plan.plan.steps[plan.plan.count - 1];
	*bare = (struct bare){.config = {.gridDimX = (unsigned)step->launch.blocks,
					 .gridDimY = 1,
					 .gridDimZ = 1,
					 .blockDimX = (unsigned)step->launch.threads,
					 .blockDimY = 1,
					 .blockDimZ = 1,
					 .hStream = stream},
			      .attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
					    .value.programmaticStreamSerializationAllowed = 1}};
	bare->config.attrs = &bare->attribute;
	bare->config.numAttrs = gpu->overlaps;
	return expect_ok(ek_kernel_get(gpu, &step->key, step->write_recipe, stream, "", &bare->function),
			 "the kernel");
}

/* Seconds a launch, of the library (bare NULL) or bare. */
static double time_batch(struct gpu_call *call, struct bare *bare, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;
	ek_status status = EK_OK;
	double start = now();
	for (int i = 0; i < BATCH; i++)
		if (bare) {
			void *parameters[] = {bare->arguments};
			result |= gpu->driver->launch(&bare->config, bare->function, parameters, NULL);
		} else {
			status |= call_launch(call, ctx, stream);
		}
	double seconds = (now() - start) / BATCH;
	EXPECT(result == CUDA_SUCCESS && status == EK_OK, "a launch failed: %s", ek_error(ctx));
	CUDA_OK(gpu->driver->stream_synchronize(stream));
	return seconds;
}

TEST(host_cost_of_a_warm_call)
{
	struct test_case c = case_of(false, EK_LAYER_NORM, (struct dtype_pair){EK_BF16, EK_BF16}, 64, 1024);
	struct gpu_call call;
	struct bare bare;
	CUstream stream = NULL;
	double library[BATCHES], launches[BATCHES];
	call_put(&call, &c);
	if (!CUDA_OK(gpu->driver->stream_create(&stream, CU_STREAM_NON_BLOCKING)) ||
	    !bare_make(&bare, &call, stream))
		return;
	(void)time_batch(&call, NULL, stream);
	for (int i = 0; i < BATCHES; i++) {
		library[i] = time_batch(&call, NULL, stream);
		launches[i] = time_batch(&call, &bare, stream);
	}
	qsort(library, BATCHES, sizeof library[0], by_value);
	qsort(launches, BATCHES, sizeof launches[0], by_value);
	double whole = library[BATCHES / 2] * 1e6, least = launches[BATCHES / 2] * 1e6;
	printf("  host: ek_norm_forward %.2f us a call, a bare cuLaunchKernelEx %.2f us, above it %.2f us\n",
	       whole, least, whole - least);
	call_free(&call);
	CUDA_OK(gpu->driver->stream_destroy(stream));
}

TEARDOWN()
{
	ek_gpu_leave(gpu, entered);
	ek_close(ctx);
}
