/* The norm kernels of one level as a table, ek_norm_LEVEL (cpu_kernels.h). Compiled once per level, as
 * cpu_level_DTYPE.c, which have the kernels. SPDX-License-Identifier: MIT */
#include ISA_HEADER

#include "cpu_kernels.h"
#include "cpu/simd.h"

#define LEVEL PASTE(ek_norm, ISA)
#ifdef BASE_ISA
#define BASE PASTE(ek_norm, BASE_ISA)
#else
#define BASE LEVEL
#endif

extern const struct ek_norm_kernel PASTE(BASE, f32_f32), PASTE(BASE, f16_f32), PASTE(BASE, f16_f16),
	PASTE(LEVEL, bf16_f32), PASTE(LEVEL, bf16_bf16), PASTE(BASE, f64_f64);
extern const struct ek_fused_kernel PASTE(BASE, f32_fused), PASTE(BASE, f64_fused);

const struct ek_norm_kernels LEVEL = {
	.f32_f32 = &PASTE(BASE, f32_f32),
	.f16_f32 = &PASTE(BASE, f16_f32),
	.f16_f16 = &PASTE(BASE, f16_f16),
	.bf16_f32 = &PASTE(LEVEL, bf16_f32),
	.bf16_bf16 = &PASTE(LEVEL, bf16_bf16),
	.f64_f64 = &PASTE(BASE, f64_f64),
	.f32_fused = &PASTE(BASE, f32_fused),
	.f64_fused = &PASTE(BASE, f64_fused),
};
