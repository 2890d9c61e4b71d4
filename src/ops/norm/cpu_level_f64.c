/* The norm kernels of a level for f64, and those of fused calls. SPDX-License-Identifier: MIT */
#include "cpu_level.inc.h"

#ifndef BASE_ISA
#define V(word) PASTE(vd, word)
#define FUSED_DTYPES(X) X(f64)
#define FUSED_PAIRS(X) X(f64, f64)
#define ACT f64
#define WEIGHT f64
#include "cpu_kernels.inc.h"
#endif
