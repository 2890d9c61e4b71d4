/* info --measure --device cuda: what a GPU's memory and arithmetic can do. Called by info.c.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_MACHINE_H
#define CLI_GPU_MACHINE_H

#include <stdio.h>

#include "evenkeel.h"

/* Measures, shows a table on out and writes the machine file. Returns an exit status. */
int gpu_machine_measure(const char *name, ek_context *ctx, FILE *out);

#endif
