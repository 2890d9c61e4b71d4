/* The norm kernels of a level for f32, and those of fused calls of f32 and 16-bit dtypes. SPDX-License-Identifier: MIT */
#include "cpu_level.inc.h"

#ifndef BASE_ISA
#define V(word) PASTE(vf, word)
#define FUSED_DTYPES(X) X(f32) X(f16) X(bf16)
#define FUSED_PAIRS(X) X(f32, f32) X(f32, f16) X(f32, bf16) X(f16, f32) X(f16, f16) X(bf16, f32) X(bf16, bf16)
#define FUSED_16_BIT
#define ACT f32
#define WEIGHT f32
#include "cpu_kernels.inc.h"
#endif
