/* All norm kernels of one level, the table ek_norm_LEVEL (cpu_kernels.h). Compiled once per level: ISA_HEADER is its
 * cpu/isa_….h, which names it and its vocabulary, and BASE_ISA where it shares kernels of another level.
 * Each kernel source is included once per pair of dtypes, with
 *     ACT, WEIGHT    the dtypes of activations and weights
 *     T, TW          their elements          A(word), B(word)   their words of the vocabulary
 *     real, vec      the arithmetic          V(word)            its words of the vocabulary
 *     C(word)        the words for weights in the order of activations
 *     N(name)        name, made unique
 * SPDX-License-Identifier: MIT */
#include ISA_HEADER

#include <stddef.h>
#include <string.h>

#include "core/dtype.h"
#include "core/slots.h"
#include "cpu_kernels.h"
#include "cpu/simd.h"
#include "math/activations.h"
#include "math/simd.h"

/* What a sweep over a row sums: x; d = x - m0 and its square; the square of x. */
enum sweep { SWEEP_SUM, SWEEP_MOMENTS, SWEEP_SQUARES };

/* What a write of y has beside the norm: nothing; a residual after; an x_bias, and a residual after or -0; an activation. */
enum beside { BESIDE_NONE, BESIDE_AFTER, BESIDE_X_BIAS, BESIDE_ACTIVATION };

/* Rule 11, of two registers: one activation a call, so the branch costs nothing. */
#define ACTIVATE_TWO(v, number, name)    \
	case number:                     \
		t[0] = v##_##name(t[0]); \
		t[1] = v##_##name(t[1]); \
		break;
#define ACTIVATE_VF(number, name) ACTIVATE_TWO(vf, number, name)
#define ACTIVATE_VD(number, name) ACTIVATE_TWO(vd, number, name)
INLINE void vf_activate(ek_activation activation, vf t[2])
{
	switch (activation) {
		EK_ACTIVATIONS(ACTIVATE_VF)
	default:
		break;
	}
}
INLINE void vd_activate(ek_activation activation, vd t[2])
{
	switch (activation) {
		EK_ACTIVATIONS(ACTIVATE_VD)
	default:
		break;
	}
}

/* What rows do to the column sums: nothing; go on with a chunk of a slot; add slots of one row (R = 1). */
enum columns { COLUMNS_NONE, COLUMNS_CHAIN, COLUMNS_SLOTS };

/* Rows that go through a kernel together: four narrow ones, so that the latency of one row's sums hides behind the
 * others'; two beyond pair_bytes (0: beyond the narrow ones), which share what weights cost; between them one. With the
 * row before and the weights one row of up to 4 KB fits the L1 and two do not (16384x768 f32 backward .80 of a copy, in
 * pairs .74); in forward one row at a time is as good up to 16 KB and better read in order. */
enum {
	MAX_TOGETHER = 4,
	NARROW_BYTES = 1 << 10,
	PAIR_FORWARD_BYTES = 16 << 10,
	PAIR_BACKWARD_BYTES = 4 << 10
};
INLINE int64_t rows_together(int64_t row_bytes, int64_t pair_bytes)
{
	if (row_bytes <= NARROW_BYTES)
		return MAX_TOGETHER;
	return row_bytes <= pair_bytes ? 1 : 2;
}

/* Bytes as they are. */
OUTLINE void copy_out(const void *from, int64_t bytes, void *to, bool nontemporal)
{
	const int64_t step = 2 * vf_WIDTH * (int64_t)sizeof(float);
	const char *p = from;
	char *q = to;
	int64_t i = head_of(to, 1, bytes, nontemporal);
	memcpy(q, p, (size_t)i);
	for (; nontemporal && i + step <= bytes; i += step) {
		vf v[2] = {vf_load((const void *)(p + i)), vf_load((const void *)(p + i + step / 2))};
		f32_store2_nontemporal((void *)(q + i), v);
	}
	memcpy(q + i, p + i, (size_t)(bytes - i));
}

#define NAMED(dtype, name, bytes) dtype_##name = (dtype),
enum { EK_DTYPES(NAMED) dtype_end };
/* From registers side by side to the order of a dtype's store2. */
#define f32_in_order(v) (void)(v)
#define f16_in_order(v) (void)(v)
#define f64_in_order(v) (void)(v)
#define bf16_in_order(v) vf_split(v)

#define LEVEL PASTE(ek_norm, ISA)
#define T PASTE(ACT, element)
#define TW PASTE(WEIGHT, element)
#define A(word) PASTE(ACT, word)
#define B(word) PASTE(WEIGHT, word)
#define C(word) PASTE(PASTE(ACT, WEIGHT), word)
#define real PASTE(ACT, real)
#define vec PASTE(ACT, vec)
#define N(name) PASTE(name, PASTE(ACT, WEIGHT))

#define V(word) PASTE(vf, word)
#define ACT bf16
#define WEIGHT f32
#include "cpu_kernels.inc.h"
#define ACT bf16
#define WEIGHT bf16
#include "cpu_kernels.inc.h"
#ifndef BASE_ISA
#define ACT f32
#define WEIGHT f32
#define FUSED_DTYPES(X) X(f32) X(f16) X(bf16)
#define FUSED_PAIRS(X) X(f32, f32) X(f32, f16) X(f32, bf16) X(f16, f32) X(f16, f16) X(bf16, f32) X(bf16, bf16)
#define FUSED_16_BIT
#include "cpu_kernels.inc.h"
#undef FUSED_DTYPES
#undef FUSED_PAIRS
#undef FUSED_16_BIT
#define ACT f16
#define WEIGHT f32
#include "cpu_kernels.inc.h"
#define ACT f16
#define WEIGHT f16
#include "cpu_kernels.inc.h"
#undef V
#define V(word) PASTE(vd, word)
#define ACT f64
#define WEIGHT f64
#define FUSED_DTYPES(X) X(f64)
#define FUSED_PAIRS(X) X(f64, f64)
#include "cpu_kernels.inc.h"
#undef FUSED_DTYPES
#undef FUSED_PAIRS
#define BASE LEVEL
#else
#define BASE PASTE(ek_norm, BASE_ISA)
extern const struct ek_norm_kernel PASTE(BASE, f32_f32), PASTE(BASE, f16_f32), PASTE(BASE, f16_f16),
	PASTE(BASE, f64_f64);
extern const struct ek_fused_kernel PASTE(BASE, f32_fused), PASTE(BASE, f64_fused);
#endif

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
