/* What this CPU's memory and arithmetic can do. Called by info.c (--measure) and machine.c (--machine this).
 * SPDX-License-Identifier: MIT */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include <stdbool.h>
#include <stdio.h>

#include "evenkeel.h"

enum { COPY_SIZES = 7, FLOP_DTYPES = 2, RATES = COPY_SIZES + FLOP_DTYPES };
/* Of what a copy touches, source and destination together, divided among its threads. */
extern const size_t copy_sizes[COPY_SIZES];

struct rates {
	double copy[COPY_SIZES];   /* bytes a second, read and written */
	double flops[FLOP_DTYPES]; /* a second, of f32 and f64 */
};

/* Measures on so many threads, with a step of progress for each of the RATES. False and errno: they cannot be started. */
bool measure_rates(struct rates *rates, int threads);

/* Measures, shows a table on out and writes the machine file. Returns an exit status. */
int measure_machine(const char *name, const ek_context *ctx, int threads, FILE *out);

#endif
