/* A case with its tensors: inputs once, outputs twice, so that two computations of it can be compared.
 * Called by verify.c and run.c. SPDX-License-Identifier: MIT */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "cases.h"
#include "tensors.h"

enum output { OUT_RESULT, OUT_MEAN, OUT_RSTD, OUT_MEAN_LO, OUT_DWEIGHT, OUT_DBIAS, OUTPUT_COUNT };

struct outputs {
	struct tensor tensors[OUTPUT_COUNT]; /* memory NULL: not asked for */
};

struct problem {
	struct test_case test_case;
	double eps;
	uint64_t seed;
	enum init init;
	struct tensor x, dy, weight, bias;
	struct tensor mean, rstd, mean_lo; /* given to backward */
	struct outputs expected, actual;
	struct tensor workspace; /* of as many bytes as the calls have needed */
};

struct difference {
	enum output output;
	int64_t row, col;
	int64_t index;
};

/* Makes and fills the inputs; statistics that backward is given are computed with ctx. Returns an exit
 * status, having complained. */
int problem_make(struct problem *problem, ek_context *ctx, const struct options *options,
		 const struct test_case *test_case);
void problem_free(struct problem *problem);

/* Stains the outputs and computes them with ctx. Returns an exit status, having complained. */
int problem_compute(struct problem *problem, ek_context *ctx, struct outputs *outputs);

/* Whether expected and actual are the same bits; else where they first differ. */
bool problem_same(const struct problem *problem, struct difference *difference);

/* "y", "dx", "mean", …; the name of an output in that pass. */
const char *output_name(enum pass pass, enum output output);
/* How many values the outputs hold, gaps between rows left out. */
double outputs_values(const struct outputs *outputs);

#endif
