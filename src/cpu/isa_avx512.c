/* The norm kernels at level "avx512". SPDX-License-Identifier: MIT */
#define SIMD "simd_avx512.h"
#define LEVEL ek_norm_avx512
#include "norm_level.inc.h"
