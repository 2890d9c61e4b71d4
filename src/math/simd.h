/* math.inc.h for the kernels of a CPU level: vf_exp, vd_gelu and the like, a register at a time.
 * SPDX-License-Identifier: MIT */
#ifndef EK_MATH_SIMD_H
#define EK_MATH_SIMD_H

#include "constants.h"
#include "cpu/simd.h"

#define MATH INLINE
#define M(word) PASTE(vf, word)
#define REAL f32
#define MATH_F64 0
#include "math.inc.h"
#undef M
#undef REAL
#undef MATH_F64
#define M(word) PASTE(vd, word)
#define REAL f64
#define MATH_F64 1
#include "math.inc.h"
#undef M
#undef REAL
#undef MATH_F64
#undef MATH

#endif
