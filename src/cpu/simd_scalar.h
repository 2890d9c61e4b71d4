/* The vector vocabulary in plain C, one lane a register: for CPUs without FMA, and the simplest reading of
 * the words that simd.h lists. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/half.h"
#include "math/plain.h"

typedef float vf;
typedef double vd;
enum { vf_WIDTH = 1, vd_WIDTH = 1, REGISTERS = 16, GROUP = 4, vf_BLOCKS = 64, vd_BLOCKS = 64 };

#define SCALAR_WORDS(v, real, fma_real)                                           \
	INLINE v v##_splat(real a) { return a; }                                      \
	INLINE v v##_add(v a, v b) { return a + b; }                                  \
	INLINE v v##_sub(v a, v b) { return a - b; }                                  \
	INLINE v v##_mul(v a, v b) { return a * b; }                                  \
	INLINE v v##_fma(v a, v b, v c) { return fma_real(a, b, c); }                 \
	INLINE v v##_fnma(v a, v b, v c) { return fma_real(-a, b, c); }               \
	INLINE v v##_first(v a, int n) { return n ? a : 0; }                          \
	INLINE v v##_swap(v a) { return a; }                                          \
	INLINE v v##_narrow(const v a[GROUP]) { return (a[0] + a[1]) + (a[2] + a[3]); } \
	INLINE real v##_sum(const v blocks[v##_BLOCKS])                               \
	{                                                                             \
		real a[v##_BLOCKS];                                                       \
		memcpy(a, blocks, sizeof a);                                              \
		for (int n = v##_BLOCKS; n > 1; n /= 2)                                   \
			for (int i = 0; i < n / 2; i++)                                       \
				a[i] = a[2 * i] + a[2 * i + 1];                                   \
		return a[0];                                                              \
	}
SCALAR_WORDS(vf, float, fmaf)
SCALAR_WORDS(vd, double, fma)
#define SCALAR_F32(word) vf_##word
#define SCALAR_F64(word) vd_##word
EK_PLAIN_WORDS(INLINE, SCALAR_F32, float, uint32_t, 23, 0x1p-126f)
EK_PLAIN_WORDS(INLINE, SCALAR_F64, double, uint64_t, 52, 0x1p-1022)

/* Some results are stored where they lie, at any alignment. */
INLINE void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
INLINE void vd_store(double *p, vd a) { memcpy(p, &a, sizeof a); }

/* widen and round are the dtype's; buffers may have any alignment, hence memcpy. */
#define SCALAR_DTYPE(dtype, element, v, widen, round)                             \
	INLINE v dtype##_load(const element *p)                                       \
	{                                                                             \
		element e;                                                                \
		memcpy(&e, p, sizeof e);                                                  \
		return widen(e);                                                          \
	}                                                                             \
	INLINE v dtype##_load_part(const element *p, int n) { return n ? dtype##_load(p) : 0; } \
	INLINE void dtype##_store_part(element *p, v a, int n)                        \
	{                                                                             \
		element e = round(a);                                                     \
		if (n)                                                                    \
			memcpy(p, &e, sizeof e);                                              \
	}                                                                             \
	INLINE void dtype##_store2(element *p, const v a[2])                          \
	{                                                                             \
		dtype##_store_part(p, a[0], 1);                                           \
		dtype##_store_part(p + 1, a[1], 1);                                       \
	}                                                                             \
	INLINE void dtype##_store2_nontemporal(element *p, const v a[2]) { dtype##_store2(p, a); }
SCALAR_DTYPE(f32, float, vf, (float), (float))
SCALAR_DTYPE(f64, double, vd, (double), (double))
SCALAR_DTYPE(f16, uint16_t, vf, ek_f16_to_float, ek_float_to_f16)
SCALAR_DTYPE(bf16, uint16_t, vf, ek_bf16_to_float, ek_float_to_bf16)

INLINE void nontemporal_fence(void) {}
