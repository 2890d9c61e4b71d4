/* A GPU's clock: a stream, events around what runs on it, and CUDA graphs, so that the host's part of a launch is not in
 * what is measured. Called by gpu_timing.c and gpu_machine.c. SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_WATCH_H
#define CLI_GPU_WATCH_H

#include "gpu/gpu.h"

/* After a failure the rest is left out, and `what` was being done. */
struct watch {
	struct ek_gpu *gpu;
	const struct ek_driver *driver;
	CUstream stream;
	CUevent from, to;
	CUresult result;
	const char *what;
	ek_status status; /* of the library's calls */
};

bool watch_failed(const struct watch *watch);
/* Says what failed and returns the exit status for it. */
int watch_say_failure(const struct watch *watch);

#define WATCH_TRY(watch, words, call)                                                   \
	do {                                                                            \
		if (!watch_failed(watch) && ((watch)->result = (call)) != CUDA_SUCCESS) \
			(watch)->what = (words);                                        \
	} while (0)

/* In the GPU's CUDA context (ek_gpu_enter). A watch that failed to open is closed, too. */
void watch_open(struct watch *watch, struct ek_gpu *gpu);
void watch_close(struct watch *watch);
void watch_wait(struct watch *watch);

/* Seconds of all that is put on the stream between them. */
void watch_start(struct watch *watch);
double watch_elapsed(struct watch *watch);

/* Puts call number `call` of some work on the stream. */
typedef void watch_enqueue(struct watch *watch, const void *work, int64_t call);

/* A graph of so many calls, and the seconds a call that it takes. */
CUgraphExec watch_capture(struct watch *watch, watch_enqueue *enqueue, const void *work, int64_t calls);
double watch_replay(struct watch *watch, CUgraphExec graph, int64_t calls);
void watch_discard(const struct watch *watch, CUgraphExec graph); /* NULL is allowed */

#endif
