/* The norm kernels at level "avx2". SPDX-License-Identifier: MIT */
#define SIMD "simd_avx2.h"
#define LEVEL ek_norm_avx2
#include "norm_level.inc.h"
