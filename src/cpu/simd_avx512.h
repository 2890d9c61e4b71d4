/* The vector vocabulary on AVX-512 (F, BW, DQ, VL); simd.h says what each word means. With EK_NATIVE_BF16
 * the AVX512-BF16 conversion does the rounding where its bits agree. SPDX-License-Identifier: MIT */
#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;
typedef __m512d vd;
enum { vf_WIDTH = 16, vd_WIDTH = 8, REGISTERS = 32, GROUP = 4, vf_BLOCKS = 4, vd_BLOCKS = 8 };

INLINE vf vf_splat(float a) { return _mm512_set1_ps(a); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE vf vf_first(vf a, int n) { return _mm512_maskz_mov_ps((__mmask16)((1u << n) - 1), a); }
INLINE vf vf_swap(vf a) { return _mm512_permute_ps(a, 0xb1); }

INLINE vd vd_splat(double a) { return _mm512_set1_pd(a); }
INLINE vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
INLINE vd vd_sub(vd a, vd b) { return _mm512_sub_pd(a, b); }
INLINE vd vd_mul(vd a, vd b) { return _mm512_mul_pd(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
INLINE vd vd_fnma(vd a, vd b, vd c) { return _mm512_fnmadd_pd(a, b, c); }
INLINE vd vd_first(vd a, int n) { return _mm512_maskz_mov_pd((__mmask8)((1u << n) - 1), a); }
INLINE vd vd_swap(vd a) { return _mm512_permute_pd(a, 0x55); }

INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE void vd_store(double *p, vd a) { _mm512_storeu_pd(p, a); }

/* ---- words of math/math.inc.h; min and max return their second operand where one is NaN or both are zeros ---- */

typedef vf vf_num;
typedef vd vd_num;
INLINE vf vf_magnitude(vf a) { return _mm512_abs_ps(a); }
INLINE vf vf_at_least(vf a, vf c) { return _mm512_max_ps(c, a); }
INLINE vf vf_at_most(vf a, vf c) { return _mm512_min_ps(c, a); }
INLINE vf vf_if_less(vf a, vf b, vf x, vf y)
{
	return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
INLINE vf vf_reciprocal(vf a)
{
	return _mm512_maskz_div_ps(_mm512_cmp_ps_mask(a, vf_splat(0x1p126f), _CMP_NGT_UQ), vf_splat(1), a);
}
INLINE vf vf_power(vf m) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(m), 23)); }
INLINE vd vd_magnitude(vd a) { return _mm512_abs_pd(a); }
INLINE vd vd_at_least(vd a, vd c) { return _mm512_max_pd(c, a); }
INLINE vd vd_at_most(vd a, vd c) { return _mm512_min_pd(c, a); }
INLINE vd vd_if_less(vd a, vd b, vd x, vd y)
{
	return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), y, x);
}
INLINE vd vd_reciprocal(vd a)
{
	return _mm512_maskz_div_pd(_mm512_cmp_pd_mask(a, vd_splat(0x1p1022), _CMP_NGT_UQ), vd_splat(1), a);
}
INLINE vd vd_power(vd m) { return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(m), 52)); }

/* ---- folds: a step adds neighbours and halves the registers ---- */

INLINE vf fold_floats(vf a, vf b)
{
	return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

INLINE vf fold_quads(vf a, vf b)
{
	return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

INLINE vf vf_narrow(const vf a[GROUP])
{
	return fold_floats(fold_floats(a[0], a[1]), fold_floats(a[2], a[3]));
}

/* A quad a block, then inside each, then across them. */
INLINE float vf_sum(const vf blocks[vf_BLOCKS])
{
	vf a = fold_quads(fold_quads(blocks[0], blocks[1]), fold_quads(blocks[2], blocks[3]));
	a = _mm512_add_ps(a, _mm512_permute_ps(a, 0xb1));
	a = _mm512_add_ps(a, _mm512_permute_ps(a, 0x4e));
	a = _mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1));
	return _mm512_cvtss_f32(_mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0x4e)));
}

/* Registers that come as even and odd lanes: the first step is a plain add. */
INLINE vf vf_narrow_split(const vf a[GROUP])
{
	return fold_floats(vf_add(a[0], a[1]), vf_add(a[2], a[3]));
}

INLINE float vf_sum_split(const vf blocks[vf_BLOCKS])
{
	vf a = fold_quads(fold_floats(blocks[0], blocks[1]), fold_floats(blocks[2], blocks[3]));
	a = fold_quads(a, a);
	a = _mm512_add_ps(a, _mm512_permute_ps(a, 0xb1));
	a = _mm512_add_ps(a, _mm512_permute_ps(a, 0x4e));
	return _mm512_cvtss_f32(_mm512_add_ps(a, _mm512_shuffle_f32x4(a, a, 0xb1)));
}

INLINE vd fold_doubles(vd a, vd b)
{
	return _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
}

INLINE vd fold_pairs(vd a, vd b)
{
	return _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xdd));
}

INLINE vd vd_narrow(const vd a[GROUP])
{
	return fold_pairs(fold_doubles(a[0], a[1]), fold_doubles(a[2], a[3]));
}

INLINE double vd_sum(const vd blocks[vd_BLOCKS])
{
	vd a[4];
	UNROLL for (int i = 0; i < 4; i++)
		a[i] = fold_pairs(blocks[2 * i], blocks[2 * i + 1]);
	a[0] = fold_pairs(fold_doubles(a[0], a[1]), fold_doubles(a[2], a[3]));
	a[0] = fold_pairs(a[0], a[0]);
	a[0] = _mm512_add_pd(a[0], _mm512_permute_pd(a[0], 0x55));
	return _mm512_cvtsd_f64(_mm512_add_pd(a[0], _mm512_shuffle_f64x2(a[0], a[0], 0xb1)));
}

/* ---- f32 and f64 ---- */

INLINE vf f32_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE vf f32_load_part(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p); }
INLINE void f32_store2(float *p, const vf v[2])
{
	_mm512_storeu_ps(p, v[0]);
	_mm512_storeu_ps(p + 16, v[1]);
}
INLINE void f32_store2_nontemporal(float *p, const vf v[2])
{
	_mm512_stream_ps(p, v[0]);
	_mm512_stream_ps(p + 16, v[1]);
}
INLINE void f32_store_part(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }

INLINE vd f64_load(const double *p) { return _mm512_loadu_pd(p); }
INLINE vd f64_load_part(const double *p, int n) { return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p); }
INLINE void f64_store2(double *p, const vd v[2])
{
	_mm512_storeu_pd(p, v[0]);
	_mm512_storeu_pd(p + 8, v[1]);
}
INLINE void f64_store2_nontemporal(double *p, const vd v[2])
{
	_mm512_stream_pd(p, v[0]);
	_mm512_stream_pd(p + 8, v[1]);
}
INLINE void f64_store_part(double *p, vd a, int n) { _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), a); }

/* ---- 16-bit floats ---- */

INLINE __m256i load_halves(const uint16_t *p) { return _mm256_loadu_si256((const void *)p); }
INLINE __m256i load_halves_part(const uint16_t *p, int n)
{
	return _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
}
INLINE void store_halves_part(uint16_t *p, __m256i a, int n)
{
	_mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), a);
}
INLINE __m512i join_halves(__m256i a, __m256i b)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

INLINE vf f16_load(const uint16_t *p) { return _mm512_cvtph_ps(load_halves(p)); }
INLINE vf f16_load_part(const uint16_t *p, int n) { return _mm512_cvtph_ps(load_halves_part(p, n)); }
INLINE __m256i f16_round(vf a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
INLINE __m512i f16_round2(const vf v[2]) { return join_halves(f16_round(v[0]), f16_round(v[1])); }

/* One permutation puts 16 halves in the upper parts of 16 words. */
INLINE vf widen_bf16(__m256i halves)
{
	const __m512i word = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const __m512i upper = _mm512_slli_epi32(word, 16);
	return _mm512_castsi512_ps(
		_mm512_maskz_permutexvar_epi16(0xaaaaaaaau, upper, _mm512_castsi256_si512(halves)));
}
INLINE vf bf16_load(const uint16_t *p) { return widen_bf16(load_halves(p)); }
INLINE vf bf16_load_part(const uint16_t *p, int n) { return widen_bf16(load_halves_part(p, n)); }

/* Even lanes and odd lanes apart: a shift and a mask for 32 halves. */
INLINE void split_bf16(__m512i halves, vf v[2])
{
	v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
	v[1] = _mm512_castsi512_ps(_mm512_and_si512(halves, _mm512_set1_epi32((int)0xffff0000)));
}
INLINE void bf16_load2(const uint16_t *p, vf v[2]) { split_bf16(_mm512_loadu_si512(p), v); }
INLINE void bf16_load2_part(const uint16_t *p, int n, vf v[2])
{
	split_bf16(_mm512_maskz_loadu_epi16((__mmask32)((1ull << n) - 1), p), v);
}
INLINE void vf_split(vf v[2])
{
	const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
	const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
	vf a = v[0];
	v[0] = _mm512_permutex2var_ps(a, even, v[1]);
	v[1] = _mm512_permutex2var_ps(a, odd, v[1]);
}
#define bf16_SPLIT

/* To nearest even, the result in the upper half of each word. */
INLINE __m512i bf16_round_words(vf a)
{
	__m512i bits = _mm512_castps_si512(a);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	__m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	__mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
	return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
}

INLINE __m512i bf16_round2(const vf v[2])
{
#ifdef EK_NATIVE_BF16
	/* The instruction flushes subnormals to 0: its result stands where it has no 0. */
	__m512i native = (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]);
	if (__builtin_expect(_mm512_testn_epi16_mask(native, _mm512_set1_epi16(0x7fff)) == 0, 1)) {
		const __m512i word = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
		const __m512i alternate = _mm512_or_si512(_mm512_set1_epi32(0x100000),
							  _mm512_or_si512(word, _mm512_slli_epi32(word, 16)));
		return _mm512_permutexvar_epi16(alternate, native);
	}
#endif
	return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(bf16_round_words(v[0]), 16),
				       bf16_round_words(v[1]));
}
INLINE __m256i bf16_round(vf a)
{
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_round_words(a), 16));
}

INLINE void f16_store2(uint16_t *p, const vf v[2]) { _mm512_storeu_si512(p, f16_round2(v)); }
INLINE void f16_store2_nontemporal(uint16_t *p, const vf v[2]) { _mm512_stream_si512((void *)p, f16_round2(v)); }
INLINE void f16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, f16_round(a), n); }
INLINE void bf16_store2(uint16_t *p, const vf v[2]) { _mm512_storeu_si512(p, bf16_round2(v)); }
INLINE void bf16_store2_nontemporal(uint16_t *p, const vf v[2]) { _mm512_stream_si512((void *)p, bf16_round2(v)); }
INLINE void bf16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, bf16_round(a), n); }

INLINE void nontemporal_fence(void) { _mm_sfence(); }
