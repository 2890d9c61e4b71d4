/* The parts of evenkeel info: GPUs (info_gpu.c) and what the library can do (support.c). SPDX-License-Identifier: MIT */
#ifndef CLI_INFO_H
#define CLI_INFO_H

#include <stdio.h>

#include "evenkeel.h"

/* Lines for GPUs, driver, NVRTC, cache and pack, or what is missing and what to install. */
void print_gpus(FILE *out);
/* The lines for cache and pack alone. */
struct ek_cache_info;
void print_cache(FILE *out, const struct ek_cache_info *cache);
/* The same as members of a JSON object: "gpus", "driver", "nvrtc", "cache". */
void write_gpus(FILE *file);

/* Calls on the context, and prints what they answered as a table. */
void print_support(FILE *out, ek_context *ctx);

/* The member "support" of a JSON object: the CPU's context, then every GPU that is there. */
void write_support(FILE *file, ek_context *cpu);

#endif
