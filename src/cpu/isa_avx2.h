/* The level avx2, for the ops' kernels (cpu_level*.c of each op). SPDX-License-Identifier: MIT */
#define ISA avx2
#define SIMD "simd_avx2.h"
