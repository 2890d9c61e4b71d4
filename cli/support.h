/* What the library can do here: every op, pass and pair of dtypes, found by calling it. Called by info.c.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_SUPPORT_H
#define CLI_SUPPORT_H

#include <stdio.h>

#include "evenkeel.h"

/* Calls on the context, and prints what they answered as a table. */
void print_support(FILE *out, ek_context *ctx);

/* The member "support" of a JSON object: the CPU's context, then every GPU that is there. */
void write_support(FILE *file, ek_context *cpu);

#endif
