/* The norm kernels at level "neon". SPDX-License-Identifier: MIT */
#define SIMD "simd_neon.h"
#define LEVEL ek_norm_neon
#include "norm_level.inc.h"
