/* The level avx512bf16, for the ops' kernels (cpu_level*.c of each op): bf16 alone differs from avx512, whose kernels of the
 * other dtypes it shares. SPDX-License-Identifier: MIT */
#define ISA avx512bf16
#define BASE_ISA avx512
#define SIMD "simd_avx512.h"
#define EK_NATIVE_BF16
