/* A case with its operands: inputs once, outputs twice, so that two computations of it can be compared; what the verifier
 * (verify/operands.h) answers, as exit statuses. Called by verify.c and run.c. SPDX-License-Identifier: MIT */
#ifndef CLI_PROBLEM_H
#define CLI_PROBLEM_H

#include "cases.h"
#include "verify/operands.h"

struct problem {
	struct listed_case listed;
	struct operands inputs, expected, actual; /* keep their memory from case to case */
};

/* Makes and fills the inputs; what backward is given from forward is computed with ctx. Returns an exit status, having
 * complained. */
int problem_make(struct problem *problem, ek_context *ctx, const struct listed_case *listed);
/* Makes outputs, which are problem->expected or ->actual, and computes them with ctx. Returns an exit status, having
 * complained. */
int problem_compute(struct problem *problem, ek_context *ctx, struct operands *outputs);
void problem_free(struct problem *problem);

/* Shows the first differing element, both values, and the command that repeats it: `command` is "verify" or
 * "run". Returns STATUS_CHECK_FAILED. */
int show_difference(const struct problem *problem, const struct difference *difference, const ek_context *ctx,
		    const struct options *options, const char *command);

#endif
