/* The level scalar, for the ops' kernels (cpu_level*.c of each op). SPDX-License-Identifier: MIT */
#define ISA scalar
#define SIMD "simd_scalar.h"
