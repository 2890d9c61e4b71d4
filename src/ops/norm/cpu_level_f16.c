/* The norm kernels of a level for f16. SPDX-License-Identifier: MIT */
#include "cpu_level.inc.h"

#ifndef BASE_ISA
#define V(word) PASTE(vf, word)
#define ACT f16
#define WEIGHT f32
#include "cpu_kernels.inc.h"
#define ACT f16
#define WEIGHT f16
#include "cpu_kernels.inc.h"
#endif
