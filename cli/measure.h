/* What a machine's memory and arithmetic can do. Called by info.c (--measure) and machine.c (--machine this).
 * SPDX-License-Identifier: MIT */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include <stdbool.h>
#include <stdio.h>

#include "evenkeel.h"

enum { COPY_SIZES = 8, FLOP_DTYPES = 2 };
/* Of what a copy touches, source and destination together. */
extern const size_t copy_sizes[COPY_SIZES];
extern const ek_dtype flop_dtypes[FLOP_DTYPES];

struct rates {
	int threads;               /* 0: of a GPU */
	double copy[COPY_SIZES];   /* bytes a second, read and written; 0: not measured */
	double flops[FLOP_DTYPES]; /* a second */
};

/* Measures a context's device, a CPU with all threads and, unless `quickly`, with one. Shows a table on out, which may be
 * NULL, and writes what a machine file contains to file. Returns an exit status. */
int measure_machine(ek_context *ctx, bool quickly, FILE *out, FILE *file);

/* Of a GPU, by its own clock: gpu_machine.c. Returns an exit status. */
int gpu_rates(ek_context *ctx, struct rates *rates);

#endif
