/* The level avx512, for the ops' kernels (cpu_level*.c of each op). SPDX-License-Identifier: MIT */
#define ISA avx512
#define SIMD "simd_avx512.h"
