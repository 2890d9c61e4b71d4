/* Support for the tests of the CUDA backend on the stand-in GPU: the stand-ins' switches, work whose every byte is
 * watched, verdicts on refusals. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_CUDA_H
#define EK_TESTS_SUPPORT_CUDA_H

#include "gpu/gpu.h"
#include "support.h"
#include "support_files.h"
#include "support_standin.h"
#include "verify/memory.h"

/* Opens the stand-ins and makes the test's folder (support_files.h). A process has one driver and one NVRTC, found once:
 * what is about finding them runs in a child. */
void cuda_test_begin(void);

/* ---- the stand-ins ---- */

/* Makes driver calls fail from now on: "NAME=CODE,…" as standin.h says. Resets the counts of calls. NULL: none fails. */
void fail(const char *failures);

/* What a call answers then. */
struct failure {
	const char *failure;
	ek_status status;
	const char *says;
};

/* The process's driver, which is loaded if it was not. */
const struct ek_driver *cuda(void);
CUcontext current_context(void);
void push(CUcontext context);
void pop(void);

/* In the context's CUDA context, as a program that owns it would have. */
CUstream stream_make(ek_context *ctx);
void stream_free(ek_context *ctx, CUstream stream);

/* What a context and its calls must not leave behind. */
struct living {
	int64_t contexts, modules, memory, streams, graphs;
};

struct living living(void);
void nothing_is_left(const char *what, struct living before);

/* ---- contexts and work ---- */

/* A GPU, with compiled kernels kept from run to run, and no pack. */
ek_options gpu_options(void);
/* Ends the process where there is none. */
ek_context *opened(ek_options options);
/* With this folder as its cache. */
ek_context *opened_with(const char *folder);

/* A forward and a backward with every operand: all of it in one block on the GPU, so that one comparison sees each
 * byte, and what the reference makes of it. */
struct work {
	ek_context *ctx;
	struct test_case forward_case;
	size_t offset[PASS_COUNT][EK_MOST_OPERANDS]; /* of each operand in the block */
	size_t workspace;                            /* the last */
	size_t bytes;
	unsigned char *there;          /* on the GPU */
	unsigned char *start, *wanted; /* here */
	ek_norm_forward_args forward;
	ek_norm_backward_args backward;
};

struct shape {
	ek_dtype dtype;
	int64_t rows, cols;
};
static const struct shape small = {EK_F32, 5, 40};

struct work work_make(ek_context *ctx, struct shape s);
void work_free(struct work *w);
/* work_free, and ek_close of its context. */
void work_close(struct work *w);
void work_restart(struct work *w);
size_t work_offset(const struct work *w, const char *name);
/* Are all results the reference's? The workspace is nobody's concern. */
bool is_right(struct work *w);
/* Is every byte as it was at the start? */
bool is_untouched(struct work *w);
ek_status run_forward(struct work *w);
ek_status run_backward(struct work *w);
ek_status prepare_forward(struct work *w);
ek_status prepare_backward(struct work *w);
/* Both passes, from the start, give the reference's bits. For any thread. */
bool runs(struct work *w);
void expect_runs(const char *what, struct work *w);
/* For contexts that are only to be seen working. */
void expect_works(const char *what, ek_context *ctx);
/* and are then closed. */
void expect_works_once(const char *what, ek_context *ctx);

/* ---- verdicts ---- */

/* The status of a call, and parts of its message. */
void expect_status(const char *what, ek_status status, ek_status wanted, const char *const *parts);
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})
void open_refused(const char *what, ek_options options, ek_status wanted, const char *const *parts);

/* Once the environment is right, the same process finds its GPU. */
void opens_after_all(void);

#endif
