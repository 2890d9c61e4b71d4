/* The vector vocabulary on arm64's NEON; simd.h says what each word means. SPDX-License-Identifier: MIT */
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

typedef float32x4_t vf;
typedef float64x2_t vd;
enum { vf_WIDTH = 4, vd_WIDTH = 2, REGISTERS = 32, GROUP = 4, vf_BLOCKS = 16, vd_BLOCKS = 32 };

INLINE vf vf_splat(float a) { return vdupq_n_f32(a); }
INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
INLINE vf vf_swap(vf a) { return vrev64q_f32(a); }

INLINE vd vd_splat(double a) { return vdupq_n_f64(a); }
INLINE vd vd_add(vd a, vd b) { return vaddq_f64(a, b); }
INLINE vd vd_sub(vd a, vd b) { return vsubq_f64(a, b); }
INLINE vd vd_mul(vd a, vd b) { return vmulq_f64(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
INLINE vd vd_fnma(vd a, vd b, vd c) { return vfmsq_f64(c, a, b); }
INLINE vd vd_swap(vd a) { return vextq_f64(a, a, 1); }

INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }
INLINE void vd_store(double *p, vd a) { vst1q_f64(p, a); }

/* ---- words of math/math.inc.h; min and max give NaN where one operand is NaN, and +0 is more than -0 ---- */

typedef vf vf_num;
typedef vd vd_num;
INLINE vf vf_magnitude(vf a) { return vabsq_f32(a); }
INLINE vf vf_at_least(vf a, vf c) { return vmaxq_f32(a, c); }
INLINE vf vf_at_most(vf a, vf c) { return vminq_f32(a, c); }
INLINE vf vf_if_less(vf a, vf b, vf x, vf y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
INLINE vf vf_reciprocal(vf a)
{
	uint32x4_t flushed = vcgtq_f32(a, vf_splat(0x1p126f));
	return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(vdivq_f32(vf_splat(1), a)), flushed));
}
INLINE vf vf_power(vf m) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(m), 23)); }
INLINE vd vd_magnitude(vd a) { return vabsq_f64(a); }
INLINE vd vd_at_least(vd a, vd c) { return vmaxq_f64(a, c); }
INLINE vd vd_at_most(vd a, vd c) { return vminq_f64(a, c); }
INLINE vd vd_if_less(vd a, vd b, vd x, vd y) { return vbslq_f64(vcltq_f64(a, b), x, y); }
INLINE vd vd_reciprocal(vd a)
{
	uint64x2_t flushed = vcgtq_f64(a, vd_splat(0x1p1022));
	return vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(vdivq_f64(vd_splat(1), a)), flushed));
}
INLINE vd vd_power(vd m) { return vreinterpretq_f64_u64(vshlq_n_u64(vreinterpretq_u64_f64(m), 52)); }

/* All ones in the first n lanes: a window into ones followed by zeros. */
static const uint32_t word_window[8] = {~0u, ~0u, ~0u, ~0u};
static const uint64_t double_word_window[4] = {~0ull, ~0ull};
INLINE vf vf_first(vf a, int n)
{
	return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vld1q_u32(word_window + 4 - n)));
}
INLINE vd vd_first(vd a, int n)
{
	return vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_f64(a), vld1q_u64(double_word_window + 2 - n)));
}

/* ---- folds: a pairwise add is a step of the tree ---- */

#define NEON_FOLDS(v, real, pairwise, lane)                                     \
	INLINE v v##_narrow(const v a[GROUP])                                        \
	{                                                                            \
		return pairwise(pairwise(a[0], a[1]), pairwise(a[2], a[3]));             \
	}                                                                            \
	INLINE real v##_sum(const v blocks[v##_BLOCKS])                              \
	{                                                                            \
		v a[v##_BLOCKS / 2];                                                     \
		for (int i = 0; i < v##_BLOCKS / 2; i++)                                 \
			a[i] = pairwise(blocks[2 * i], blocks[2 * i + 1]);                   \
		for (int n = v##_BLOCKS / 2; n > 1; n /= 2)                              \
			for (int i = 0; i < n / 2; i++)                                      \
				a[i] = pairwise(a[2 * i], a[2 * i + 1]);                         \
		for (int n = v##_WIDTH; n > 1; n /= 2)                                   \
			a[0] = pairwise(a[0], a[0]);                                         \
		return lane(a[0], 0);                                                    \
	}
NEON_FOLDS(vf, float, vpaddq_f32, vgetq_lane_f32)
NEON_FOLDS(vd, double, vpaddq_f64, vgetq_lane_f64)

/* ---- f32 and f64; a byte pointer, since the address may have any alignment ---- */

INLINE vf f32_load(const float *p) { return vreinterpretq_f32_u8(vld1q_u8((const void *)p)); }
INLINE vf f32_load_part(const float *p, int n)
{
	float part[4] = {0};
	memcpy(part, p, (size_t)n * sizeof *part);
	return vld1q_f32(part);
}
INLINE void f32_store2(float *p, const vf v[2])
{
	vst1q_u8((void *)p, vreinterpretq_u8_f32(v[0]));
	vst1q_u8((void *)(p + 4), vreinterpretq_u8_f32(v[1]));
}
INLINE void f32_store2_nontemporal(float *p, const vf v[2]) { f32_store2(p, v); }
INLINE void f32_store_part(float *p, vf a, int n)
{
	float part[4];
	vst1q_f32(part, a);
	memcpy(p, part, (size_t)n * sizeof *part);
}

INLINE vd f64_load(const double *p) { return vreinterpretq_f64_u8(vld1q_u8((const void *)p)); }
INLINE vd f64_load_part(const double *p, int n)
{
	double part[2] = {0};
	memcpy(part, p, (size_t)n * sizeof *part);
	return vld1q_f64(part);
}
INLINE void f64_store2(double *p, const vd v[2])
{
	vst1q_u8((void *)p, vreinterpretq_u8_f64(v[0]));
	vst1q_u8((void *)(p + 2), vreinterpretq_u8_f64(v[1]));
}
INLINE void f64_store2_nontemporal(double *p, const vd v[2]) { f64_store2(p, v); }
INLINE void f64_store_part(double *p, vd a, int n)
{
	double part[2];
	vst1q_f64(part, a);
	memcpy(p, part, (size_t)n * sizeof *part);
}

/* ---- 16-bit floats ---- */

INLINE uint16x4_t load_halves_part(const uint16_t *p, int n)
{
	uint16_t part[4] = {0};
	memcpy(part, p, (size_t)n * sizeof *part);
	return vld1_u16(part);
}
INLINE uint16x4_t load_halves(const uint16_t *p) { return vreinterpret_u16_u8(vld1_u8((const void *)p)); }
INLINE void store_halves_part(uint16_t *p, uint16x4_t a, int n)
{
	uint16_t part[4];
	vst1_u16(part, a);
	memcpy(p, part, (size_t)n * sizeof *part);
}
INLINE void store_halves2(uint16_t *p, uint16x4_t a, uint16x4_t b)
{
	vst1q_u8((void *)p, vreinterpretq_u8_u16(vcombine_u16(a, b)));
}

INLINE vf f16_load(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(load_halves(p))); }
INLINE vf f16_load_part(const uint16_t *p, int n)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(load_halves_part(p, n)));
}
INLINE uint16x4_t f16_round(vf a) { return vreinterpret_u16_f16(vcvt_f16_f32(a)); }

INLINE vf bf16_load(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(load_halves(p), 16)); }
INLINE vf bf16_load_part(const uint16_t *p, int n)
{
	return vreinterpretq_f32_u32(vshll_n_u16(load_halves_part(p, n), 16));
}
INLINE uint16x4_t bf16_round(vf a)
{
	uint32x4_t bits = vreinterpretq_u32_f32(a);
	uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
	uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
	uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
	return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), rounded, quiet), 16);
}

INLINE void f16_store2(uint16_t *p, const vf v[2]) { store_halves2(p, f16_round(v[0]), f16_round(v[1])); }
INLINE void f16_store2_nontemporal(uint16_t *p, const vf v[2]) { f16_store2(p, v); }
INLINE void f16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, f16_round(a), n); }
INLINE void bf16_store2(uint16_t *p, const vf v[2]) { store_halves2(p, bf16_round(v[0]), bf16_round(v[1])); }
INLINE void bf16_store2_nontemporal(uint16_t *p, const vf v[2]) { bf16_store2(p, v); }
INLINE void bf16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, bf16_round(a), n); }

INLINE void nontemporal_fence(void) {}
