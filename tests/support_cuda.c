/* What tests of the CUDA backend share; support_cuda.h says what. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "support_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the stand-ins ---- */

void fail(const char *failures)
{
	standin.reset();
	standin.nvrtc_reset();
	set("EVENKEEL_STANDIN_FAIL", failures);
}

const struct ek_driver *cuda(void)
{
	const struct ek_driver *driver = NULL;
	if (ek_driver_get(&driver) != EK_OK) {
		printf("no driver: %s\n", ek_error(NULL));
		exit(1);
	}
	return driver;
}

CUcontext current_context(void)
{
	CUcontext context = NULL;
	EXPECT(cuda()->context_current(&context) == CUDA_SUCCESS, "cuCtxGetCurrent fails");
	return context;
}

struct living living(void)
{
	return (struct living){standin.live("context"), standin.live("module"), standin.live("memory"),
			       standin.live("stream"), standin.live("graph")};
}

void nothing_is_left(const char *what, struct living before)
{
	struct living now = living();
	EXPECT(memcmp(&now, &before, sizeof(now)) == 0,
	       "%s leaves %d CUDA contexts, %d modules, %d allocations, %d streams, %d graphs", what,
	       (int)(now.contexts - before.contexts), (int)(now.modules - before.modules),
	       (int)(now.memory - before.memory), (int)(now.streams - before.streams),
	       (int)(now.graphs - before.graphs));
}

/* ---- contexts and work ---- */

static char cache[512]; /* compiled kernels, for tests that are not about that */

ek_options gpu_options(void)
{
	return (ek_options){.size = sizeof(ek_options), .device = EK_CUDA, .cache = cache, .pack = ""};
}

ek_context *opened(ek_options options)
{
	ek_context *ctx = NULL;
	if (ek_open(&ctx, &options) != EK_OK) {
		test_fail("ek_open: %s", ek_error(NULL));
		printf("there is no going on\n");
		(void)fflush(stdout);
		_exit(1);
	}
	return ctx;
}

ek_context *opened_with(const char *folder)
{
	ek_options options = gpu_options();
	options.cache = folder;
	return opened(options);
}

/* Where the operand of either pass is in the block: x of both, and what forward returns to backward, have one place. */
size_t work_offset(const struct work *w, const char *name)
{
	int number = ek_operand_named(w->forward_case.op->forward, name);
	return number >= 0 ? w->offset[FORWARD][number]
			   : w->offset[BACKWARD][operand_number(w->forward_case.op->backward, name)];
}

static void point_at(struct work *w, unsigned char *block)
{
	for (int pass = 0; pass < PASS_COUNT; pass++) {
		struct test_case c = w->forward_case;
		const struct ek_op *op = pass ? c.op->backward : c.op->forward;
		void *at[EK_MOST_OPERANDS];
		union op_args args;
		c = case_make(c.op, (enum pass)pass, (struct dtype_pair){c.dtype, c.dtype}, c.rows, c.cols);
		for (int i = 0; i < op->operand_count; i++)
			at[i] = block + w->offset[pass][i];
		case_args(&c, at, &args);
		args_set_workspace(op, &args, block + w->workspace, w->bytes - w->workspace);
		memcpy(pass ? (void *)&w->backward : &w->forward, &args, op->args_size);
	}
}

/* What the reference makes of start, into wanted. The statistics in start are x's own, too, so that forward and
 * backward may run in any order. */
static void expect_by_reference(struct work *w)
{
	const struct ek_op *op = w->forward_case.op->forward;
	size_t bytes = 0;
	point_at(w, w->wanted);
	memcpy(w->wanted, w->start, w->bytes);
	EXPECT(ek_norm_backward_workspace(reference(), &w->backward, &bytes) == EK_OK, "%s", ek_error(NULL));
	w->backward.workspace = aligned_alloc(64, bytes / 64 * 64 + 64);
	w->backward.workspace_size = bytes;
	EXPECT(ek_norm_forward(reference(), &w->forward) == EK_OK &&
		       ek_norm_backward(reference(), &w->backward) == EK_OK,
	       "the reference: %s", ek_error(NULL));
	for (int i = 0; i < op->output_count; i++)
		if (ek_operand_named(w->forward_case.op->backward, op->operands[i].name) >= 0)
			memcpy(w->start + w->offset[FORWARD][i], w->wanted + w->offset[FORWARD][i],
			       (size_t)operand_bytes(&w->forward_case, i));
	free(w->backward.workspace);
}

static void lay_out(struct work *w)
{
	size_t workspace = 0;
	for (int pass = 0; pass < PASS_COUNT; pass++) {
		struct test_case c = w->forward_case;
		c.pass = (enum pass)pass;
		for (int i = 0; i < case_op(&c)->operand_count; i++) {
			int shared = ek_operand_named(c.op->forward, case_op(&c)->operands[i].name);
			bool has_place = pass == BACKWARD && shared >= 0;
			w->offset[pass][i] = has_place ? w->offset[FORWARD][shared] : w->bytes;
			w->bytes += has_place ? 0 : (size_t)operand_bytes(&c, i) / 256 * 256 + 256;
		}
	}
	w->workspace = w->bytes;
	point_at(w, (unsigned char *)w);
	EXPECT(ek_norm_backward_workspace(w->ctx, &w->backward, &workspace) == EK_OK, "%s", ek_error(w->ctx));
	w->bytes += workspace;
}

void work_restart(struct work *w)
{
	EXPECT(memory_write(gpu_of(w->ctx), w->there, w->start, w->bytes) == EK_OK, "%s", ek_error(w->ctx));
}

struct work work_make(ek_context *ctx, struct shape s)
{
	static const char *const filled[] = {"x", "dy", "weight", "bias"};
	struct work w = {.ctx = ctx,
			 .forward_case = case_of(false, EK_LAYER_NORM, (struct dtype_pair){s.dtype, s.dtype},
						 s.rows, s.cols)};
	lay_out(&w);
	w.start = aligned_alloc(256, w.bytes / 256 * 256 + 256);
	w.wanted = aligned_alloc(256, w.bytes / 256 * 256 + 256);
	w.there = memory_make(gpu_of(ctx), w.bytes);
	if (!w.start || !w.wanted || !w.there) {
		printf("no memory for %zu bytes: %s\n", w.bytes, ek_error(ctx));
		exit(1);
	}
	memset(w.start, CANARY, w.bytes);
	for (int i = 0; i < COUNT_OF(filled); i++) {
		int64_t count = i < 2 ? s.rows * s.cols : s.cols;
		fill_rows(FILL_NORMAL, s.dtype, w.start + work_offset(&w, filled[i]), 1, count, count,
			  (uint64_t)s.cols + (uint64_t)i);
	}
	expect_by_reference(&w);
	point_at(&w, w.there);
	if (w.backward.workspace_size == 0)
		w.backward.workspace = NULL;
	work_restart(&w);
	return w;
}

void work_free(struct work *w)
{
	memory_free(gpu_of(w->ctx), w->there);
	free(w->start);
	free(w->wanted);
}

void work_close(struct work *w)
{
	work_free(w);
	ek_close(w->ctx);
}

static bool holds(struct work *w, const unsigned char *expected, size_t bytes)
{
	unsigned char *now = malloc(bytes + 1);
	bool same = now && memory_read(gpu_of(w->ctx), now, w->there, bytes) == EK_OK &&
		    memcmp(now, expected, bytes) == 0;
	free(now);
	return same;
}

bool is_right(struct work *w)
{
	return holds(w, w->wanted, w->workspace);
}

bool is_untouched(struct work *w)
{
	return holds(w, w->start, w->bytes);
}

ek_status run_forward(struct work *w)
{
	return ek_norm_forward(w->ctx, &w->forward);
}

ek_status run_backward(struct work *w)
{
	return ek_norm_backward(w->ctx, &w->backward);
}

ek_status prepare_forward(struct work *w)
{
	return ek_norm_forward_prepare(w->ctx, &w->forward);
}

ek_status prepare_backward(struct work *w)
{
	return ek_norm_backward_prepare(w->ctx, &w->backward);
}

bool runs(struct work *w)
{
	return memory_write(gpu_of(w->ctx), w->there, w->start, w->bytes) == EK_OK &&
	       run_forward(w) == EK_OK && run_backward(w) == EK_OK && is_right(w);
}

void expect_runs(const char *what, struct work *w)
{
	EXPECT(runs(w), "%s: the calls do not give the reference's bits; the last message is \"%s\"", what,
	       ek_error(w->ctx));
	work_restart(w);
}

void expect_works(const char *what, ek_context *ctx)
{
	struct work w = work_make(ctx, small);
	expect_runs(what, &w);
	work_free(&w);
}

void expect_works_once(const char *what, ek_context *ctx)
{
	expect_works(what, ctx);
	ek_close(ctx);
}

/* ---- verdicts ---- */

void expect_status(const char *what, ek_status status, ek_status wanted, const char *const *parts)
{
	const char *message = ek_error(NULL);
	EXPECT(status == wanted, "%s: answered %s (\"%s\"), expected %s", what, ek_status_name(status),
	       status == EK_OK ? "" : message, ek_status_name(wanted));
	for (; status == wanted && *parts; parts++)
		EXPECT(strstr(message, *parts), "%s: the message \"%s\" does not say \"%s\"", what, message,
		       *parts);
}

void open_refused(const char *what, ek_options options, ek_status wanted, const char *const *parts)
{
	struct living before = living();
	ek_context *ctx = (ek_context *)&options;
	ek_status status = ek_open(&ctx, &options);
	expect_status(what, status, wanted, parts);
	EXPECT(status == EK_OK || !ctx, "%s: *ctx is %p after a failure, expected NULL", what, (void *)ctx);
	if (status == EK_OK)
		ek_close(ctx);
	nothing_is_left(what, before);
}

void opens_after_all(void)
{
	fail(NULL);
	set("EVENKEEL_LIBCUDA", standin.driver);
	struct living before = living();
	expect_works_once("after all is well", opened(gpu_options()));
	nothing_is_left("a context that was closed", before);
}

/* ---- CUDA contexts and streams ---- */

void push(CUcontext context)
{
	EXPECT(cuda()->context_push(context) == CUDA_SUCCESS, "cuCtxPushCurrent fails");
}

void pop(void)
{
	EXPECT(cuda()->context_pop(NULL) == CUDA_SUCCESS, "cuCtxPopCurrent fails");
}

CUstream stream_make(ek_context *ctx)
{
	CUstream stream = NULL;
	push(gpu_of(ctx)->context);
	EXPECT(cuda()->stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS, "no stream");
	pop();
	return stream;
}

void stream_free(ek_context *ctx, CUstream stream)
{
	push(gpu_of(ctx)->context);
	EXPECT(cuda()->stream_destroy(stream) == CUDA_SUCCESS, "cuStreamDestroy fails");
	pop();
}

/* ---- begin ---- */

void cuda_test_begin(void)
{
	const char *folder = getenv("EVENKEEL_CACHE");
	files_begin();
	(void)snprintf(cache, sizeof(cache), "%s", folder && *folder ? folder : in_base("cache"));
	set("EVENKEEL_PACK", NULL);
	set("EVENKEEL_STANDIN_FAIL", NULL);
	standin_open();
}
