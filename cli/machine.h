/* A measured machine and its roofline: how long at least an op takes that computes and moves so much. Called by
 * explain.c. SPDX-License-Identifier: MIT */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stdbool.h>

#include "evenkeel.h"

struct options;

enum { MOST_COPIES = 64 };

struct machine {
	char name[96];
	bool gpu;                  /* else a CPU */
	int arch, multiprocessors; /* of a GPU; 0: not known */
	struct {
		double bytes, seconds; /* read and written together */
	} copies[MOST_COPIES];         /* by size, each slower than the one before */
	int copy_count;
	double flops[2]; /* a second, of f32 and f64 */
};

/* name: "this" measures (its GPU with `gpu`, else its CPU), "h200" is built in, else a file from info --measure; what
 * the machine is, it says itself. Returns an exit status, having complained. */
int machine_find(struct machine *machine, const char *name, bool gpu, const struct options *options);

/* Seconds that a copy of so many bytes takes at least, none of them in a cache: at the speed of the largest. A GPU is
 * slower with less: between the sizes that were measured, and below the smallest as long as for that. */
double machine_copy_seconds(const struct machine *machine, double bytes);
double machine_flop_rate(const struct machine *machine, ek_dtype dtype);
/* Of matrix products: of 16 bits on a GPU by the tensor cores, as many times the rate of fma as they have more of them in a clock. */
double machine_product_rate(const struct machine *machine, ek_dtype dtype);
/* Bytes a second of the largest copy. */
double machine_bandwidth(const struct machine *machine);

#endif
