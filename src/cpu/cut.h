/* How the CPU cuts a call into tasks of rows; where the cuts fall changes no bit. Called by the CPU backend of each op.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CPU_CUT_H
#define EK_CPU_CUT_H

#include <stdbool.h>

#include "core/context.h"
#include "core/sizes.h"

/* Below this many bytes read and written a second thread costs more than it brings: it may have to be woken. */
enum { EK_ONE_THREAD_BYTES = 256 << 10 };
/* A task's rows of one tensor: long enough that its first rows, which nothing fetched ahead, do not matter. */
enum { EK_TASK_BYTES = 256 << 10 };
/* Tasks a thread gets, so that one that is held up leaves work to the others. */
enum { EK_TASKS_A_THREAD = 8 };

/* Past the caches, unless the output's lines are in them already (in place) or its elements straddle lines. */
static inline bool ek_is_nontemporal(const ek_context *ctx, const void *out, const void *in0, const void *in1,
				     int64_t bytes, size_t element)
{
	return bytes >= ctx->nontemporal_bytes && out != in0 && out != in1 && (uintptr_t)out % element == 0;
}

static inline bool ek_one_thread_is_enough(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	return ctx->threads == 1 || rows < quotient_up(EK_ONE_THREAD_BYTES, row_bytes);
}

/* Rows of a task: each thread gets the same number of tasks. A multiple of four: kernels take up to four rows together. */
static inline int64_t ek_task_rows(const ek_context *ctx, int64_t rows, int64_t row_bytes)
{
	int64_t thread_bytes = rows * row_bytes / ctx->threads;
	int64_t tasks = larger(1, smaller(thread_bytes / EK_TASK_BYTES, EK_TASKS_A_THREAD)) * ctx->threads;
	int64_t count = quotient_up(rows, tasks);
	return (count + 3) / 4 * 4;
}

#endif
