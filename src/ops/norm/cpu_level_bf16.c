/* The norm kernels of a level for bf16. SPDX-License-Identifier: MIT */
#include "cpu_level.inc.h"

#define V(word) PASTE(vf, word)
#define ACT bf16
#define WEIGHT f32
#include "cpu_kernels.inc.h"
#define ACT bf16
#define WEIGHT bf16
#include "cpu_kernels.inc.h"
