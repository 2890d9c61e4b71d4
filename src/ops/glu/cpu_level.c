/* The kernels of gated activations of one level, ek_glu_LEVEL (cpu_kernels.h). Compiled once per level.
 * SPDX-License-Identifier: MIT */
#include "cpu/level.inc.h"
#include "cpu_kernels.h"
#include "math/activations.h"
#include "math/simd.h"

#define LEVEL PASTE(ek_glu, ISA)
#ifdef BASE_ISA
#define BASE PASTE(ek_glu, BASE_ISA)
#else
#define BASE LEVEL
#endif

#define V(word) PASTE(vf, word)
#define CONVERTED_DTYPES(X) X(f32) X(f16) X(bf16)
#define DTYPES_OF(X, name) X(name, f32) X(name, f16) X(name, bf16)
#define ACT f32
#define WEIGHT f32
#include "cpu_rows.inc.h"
#undef V
#undef CONVERTED_DTYPES
#undef DTYPES_OF
#undef ACT
#undef WEIGHT

extern const struct ek_glu_kernel PASTE(BASE, f64);
#ifndef BASE_ISA
#define V(word) PASTE(vd, word)
#define CONVERTED_DTYPES(X) X(f64)
#define DTYPES_OF(X, name) X(name, f64)
#define ACT f64
#define WEIGHT f64
#include "cpu_rows.inc.h"
#endif

const struct ek_glu_kernels LEVEL = {.f32 = &PASTE(LEVEL, f32), .f64 = &PASTE(BASE, f64)};
