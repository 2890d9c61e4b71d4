/* The kernels of rotary position embedding of one level, ek_rope_LEVEL (cpu_kernels.h). Compiled once per level.
 * SPDX-License-Identifier: MIT */
#include "cpu/level.inc.h"
#include "cpu_kernels.h"

#define LEVEL PASTE(ek_rope, ISA)
#ifdef BASE_ISA
#define BASE PASTE(ek_rope, BASE_ISA)
#else
#define BASE LEVEL
#endif

#define V(word) PASTE(vf, word)
#define CONVERTED_DTYPES(X) X(f32) X(f16) X(bf16)
#define ACT f32
#define WEIGHT f32
#include "cpu_heads.inc.h"
#undef V
#undef CONVERTED_DTYPES
#undef ACT
#undef WEIGHT

extern const struct ek_rope_kernel PASTE(BASE, f64);
#ifndef BASE_ISA
#define V(word) PASTE(vd, word)
#define CONVERTED_DTYPES(X) X(f64)
#define ACT f64
#define WEIGHT f64
#include "cpu_heads.inc.h"
#endif

const struct ek_rope_kernels LEVEL = {.f32 = &PASTE(LEVEL, f32), .f64 = &PASTE(BASE, f64)};
