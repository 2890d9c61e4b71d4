/* The norm kernels at level "scalar". SPDX-License-Identifier: MIT */
#define SIMD "simd_scalar.h"
#define LEVEL ek_norm_scalar
#include "norm_level.inc.h"
