/* The timing of a cell on a GPU. Called by bench.c and run.c. SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_TIMING_H
#define CLI_GPU_TIMING_H

#include "cell.h"

/* Times calls that were captured in a CUDA graph, by the GPU's clock, and the fastest copy of x to y likewise, in
 * interleaved rounds; then calls in a loop on a stream, and what they take from the host alone. Fills
 * result. Returns an exit status. */
int gpu_measure(struct cell *cell, ek_context *ctx, const struct effort *effort, struct result *result);

/* Seconds to make ready for the first call: with NVRTC, and with the kernels in the cache. 0: not measured, since
 * there is no NVRTC, or no cache. */
struct first_use {
	double compiled, cached;
};
struct first_use gpu_first_use(const struct cell *cell, const ek_context *ctx);

#endif
