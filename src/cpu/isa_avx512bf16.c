/* The norm kernels at level "avx512bf16": bf16 alone differs from "avx512". SPDX-License-Identifier: MIT */
#define SIMD "simd_avx512.h"
#define EK_NATIVE_BF16
#define LEVEL ek_norm_avx512bf16
#define BASE ek_norm_avx512
#include "norm_level.inc.h"
