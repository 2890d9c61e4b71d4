/* How a difference from the reference is shown. SPDX-License-Identifier: MIT */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include "problem.h"

/* Shows the first differing element, both values, and the command that repeats it: `command` is "verify" or
 * "run". Returns STATUS_CHECK_FAILED. */
int show_difference(const struct problem *problem, const struct difference *difference, const ek_context *ctx,
		    const struct options *options, const char *command);

#endif
