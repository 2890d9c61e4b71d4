/* info --measure: what this machine's memory and arithmetic can do. SPDX-License-Identifier: MIT */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include <stdio.h>

#include "evenkeel.h"

/* Measures, shows a table on out and writes the machine file. Returns an exit status. */
int measure_machine(const char *name, const ek_context *ctx, int threads, FILE *out);

#endif
