/* info --measure --device cuda: what a GPU's memory and arithmetic can do. Called by info.c and machine.c.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_MACHINE_H
#define CLI_GPU_MACHINE_H

#include <stdio.h>

#include "evenkeel.h"

/* Measures, shows a table on out and writes what a machine file holds to file. Returns an exit status. */
int gpu_machine_measure(ek_context *ctx, FILE *out, FILE *file);

#endif
