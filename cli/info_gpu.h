/* The GPUs' part of evenkeel info. SPDX-License-Identifier: MIT */
#ifndef CLI_INFO_GPU_H
#define CLI_INFO_GPU_H

#include <stdio.h>

/* Lines for GPUs, driver, NVRTC, cache and pack, or what is missing and what to install. */
void print_gpus(FILE *out);
/* The lines for cache and pack alone. */
struct ek_cache_info;
void print_cache(FILE *out, const struct ek_cache_info *cache);
/* The same as members of a JSON object: "gpus", "driver", "nvrtc", "cache". */
void write_gpus(FILE *file);

#endif
