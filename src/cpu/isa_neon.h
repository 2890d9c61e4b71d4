/* The level neon, for the ops' kernels (cpu_level*.c of each op). SPDX-License-Identifier: MIT */
#define ISA neon
#define SIMD "simd_neon.h"
