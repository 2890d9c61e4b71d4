/* The vector vocabulary on AVX2 with FMA and F16C; simd.h says what each word means.
 * SPDX-License-Identifier: MIT */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m256 vf;
typedef __m256d vd;
enum { vf_WIDTH = 8, vd_WIDTH = 4, REGISTERS = 16, GROUP = 2, vf_BLOCKS = 16, vd_BLOCKS = 32 };

INLINE vf vf_splat(float a) { return _mm256_set1_ps(a); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }

INLINE vf vf_swap(vf a) { return _mm256_permute_ps(a, 0xb1); }

INLINE vd vd_splat(double a) { return _mm256_set1_pd(a); }
INLINE vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
INLINE vd vd_sub(vd a, vd b) { return _mm256_sub_pd(a, b); }
INLINE vd vd_mul(vd a, vd b) { return _mm256_mul_pd(a, b); }
INLINE vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
INLINE vd vd_fnma(vd a, vd b, vd c) { return _mm256_fnmadd_pd(a, b, c); }
INLINE vd vd_swap(vd a) { return _mm256_permute_pd(a, 0x5); }

INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE void vd_store(double *p, vd a) { _mm256_storeu_pd(p, a); }

/* All ones in the first n lanes: a window into ones followed by zeros. */
static const int32_t lane_window[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
INLINE __m256i first_words(int n) { return _mm256_loadu_si256((const void *)(lane_window + 8 - n)); }
INLINE __m256i first_double_words(int n)
{
	return _mm256_cvtepi32_epi64(_mm_loadu_si128((const void *)(lane_window + 8 - n)));
}
INLINE vf vf_first(vf a, int n) { return _mm256_and_ps(a, _mm256_castsi256_ps(first_words(n))); }
INLINE vd vd_first(vd a, int n) { return _mm256_and_pd(a, _mm256_castsi256_pd(first_double_words(n))); }

/* ---- words of math/math.inc.h; min and max return their second operand where one is NaN or both are zeros ---- */

typedef vf vf_num;
typedef vd vd_num;
INLINE vf vf_magnitude(vf a) { return _mm256_andnot_ps(vf_splat(-0.0f), a); }
INLINE vf vf_at_least(vf a, vf c) { return _mm256_max_ps(c, a); }
INLINE vf vf_at_most(vf a, vf c) { return _mm256_min_ps(c, a); }
INLINE vf vf_if_less(vf a, vf b, vf x, vf y)
{
	return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE vf vf_reciprocal(vf a)
{
	return _mm256_and_ps(_mm256_cmp_ps(a, vf_splat(0x1p126f), _CMP_NGT_UQ), _mm256_div_ps(vf_splat(1), a));
}
INLINE vf vf_power(vf m) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(m), 23)); }
INLINE vd vd_magnitude(vd a) { return _mm256_andnot_pd(vd_splat(-0.0), a); }
INLINE vd vd_at_least(vd a, vd c) { return _mm256_max_pd(c, a); }
INLINE vd vd_at_most(vd a, vd c) { return _mm256_min_pd(c, a); }
INLINE vd vd_if_less(vd a, vd b, vd x, vd y)
{
	return _mm256_blendv_pd(y, x, _mm256_cmp_pd(a, b, _CMP_LT_OQ));
}
INLINE vd vd_reciprocal(vd a)
{
	return _mm256_and_pd(_mm256_cmp_pd(a, vd_splat(0x1p1022), _CMP_NGT_UQ), _mm256_div_pd(vd_splat(1), a));
}
INLINE vd vd_power(vd m) { return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_castpd_si256(m), 52)); }

/* ---- folds: a step adds neighbours and halves the registers ---- */

INLINE vf fold_floats(vf a, vf b)
{
	return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

INLINE vf fold_quads(vf a, vf b)
{
	return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

INLINE vf vf_narrow(const vf a[GROUP]) { return fold_floats(a[0], a[1]); }

/* Folds neighbours among n registers, n even, into the first n / 2. */
#define HALVE(fold, a, n)                   \
	UNROLL for (int i = 0; i < (n) / 2; i++) \
		(a)[i] = fold((a)[2 * i], (a)[2 * i + 1])

INLINE float vf_sum(const vf blocks[vf_BLOCKS])
{
	vf a[8];
	UNROLL for (int i = 0; i < 8; i++)
		a[i] = fold_floats(blocks[2 * i], blocks[2 * i + 1]);
	HALVE(fold_quads, a, 8);
	HALVE(fold_floats, a, 4);
	HALVE(fold_floats, a, 2);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(a[0]), _mm256_extractf128_ps(a[0], 1));
	four = _mm_add_ps(four, _mm_movehdup_ps(four));
	return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehl_ps(four, four)));
}

/* Registers that come as even and odd lanes: the first step is a plain add. */
INLINE vf vf_narrow_split(const vf a[GROUP]) { return vf_add(a[0], a[1]); }

INLINE float vf_sum_split(const vf blocks[vf_BLOCKS])
{
	vf a[8];
	UNROLL for (int i = 0; i < 8; i++)
		a[i] = fold_floats(blocks[2 * i], blocks[2 * i + 1]);
	HALVE(fold_floats, a, 8);
	HALVE(fold_quads, a, 4);
	HALVE(fold_floats, a, 2);
	a[0] = _mm256_add_ps(a[0], _mm256_movehdup_ps(a[0]));
	__m128 two = _mm_add_ps(_mm256_castps256_ps128(a[0]), _mm256_extractf128_ps(a[0], 1));
	return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehl_ps(two, two)));
}

INLINE vd fold_doubles(vd a, vd b)
{
	return _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
}

INLINE vd fold_pairs(vd a, vd b)
{
	return _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
}

INLINE vd vd_narrow(const vd a[GROUP]) { return fold_doubles(a[0], a[1]); }

INLINE double vd_sum(const vd blocks[vd_BLOCKS])
{
	vd a[16];
	UNROLL for (int i = 0; i < 16; i++)
		a[i] = fold_pairs(blocks[2 * i], blocks[2 * i + 1]);
	HALVE(fold_doubles, a, 16);
	HALVE(fold_pairs, a, 8);
	HALVE(fold_doubles, a, 4);
	HALVE(fold_pairs, a, 2);
	a[0] = _mm256_add_pd(a[0], _mm256_permute_pd(a[0], 5));
	return _mm_cvtsd_f64(_mm_add_sd(_mm256_castpd256_pd128(a[0]), _mm256_extractf128_pd(a[0], 1)));
}

/* ---- f32 and f64 ---- */

INLINE vf f32_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE vf f32_load_part(const float *p, int n) { return _mm256_maskload_ps(p, first_words(n)); }
INLINE void f32_store2(float *p, const vf v[2])
{
	_mm256_storeu_ps(p, v[0]);
	_mm256_storeu_ps(p + 8, v[1]);
}
INLINE void f32_store2_nontemporal(float *p, const vf v[2])
{
	_mm256_stream_ps(p, v[0]);
	_mm256_stream_ps(p + 8, v[1]);
}
INLINE void f32_store_part(float *p, vf a, int n) { _mm256_maskstore_ps(p, first_words(n), a); }

INLINE vd f64_load(const double *p) { return _mm256_loadu_pd(p); }
INLINE vd f64_load_part(const double *p, int n) { return _mm256_maskload_pd(p, first_double_words(n)); }
INLINE void f64_store2(double *p, const vd v[2])
{
	_mm256_storeu_pd(p, v[0]);
	_mm256_storeu_pd(p + 4, v[1]);
}
INLINE void f64_store2_nontemporal(double *p, const vd v[2])
{
	_mm256_stream_pd(p, v[0]);
	_mm256_stream_pd(p + 4, v[1]);
}
INLINE void f64_store_part(double *p, vd a, int n) { _mm256_maskstore_pd(p, first_double_words(n), a); }

/* ---- 16-bit floats: 8 of them fill an XMM register ---- */

INLINE __m128i load_halves(const uint16_t *p) { return _mm_loadu_si128((const void *)p); }

/* n halves (1 to 8) in pieces of 4, 2 and 1: never a byte past the last. */
INLINE __m128i load_halves_part(const uint16_t *p, int n)
{
	uint64_t low = 0, high = 0;
	if (n == 8)
		return load_halves(p);
	int shift = 0;
	uint64_t piece = 0;
	if (n & 4) {
		memcpy(&low, p, 8);
		p += 4;
	}
	if (n & 2) {
		uint32_t two;
		memcpy(&two, p, 4);
		piece = two;
		shift = 32;
		p += 2;
	}
	if (n & 1) {
		uint16_t one;
		memcpy(&one, p, 2);
		piece |= (uint64_t)one << shift;
	}
	*(n & 4 ? &high : &low) |= piece;
	return _mm_set_epi64x((int64_t)high, (int64_t)low);
}

INLINE void store_halves_part(uint16_t *p, __m128i a, int n)
{
	if (n == 8) {
		_mm_storeu_si128((void *)p, a);
		return;
	}
	uint64_t piece = (uint64_t)_mm_cvtsi128_si64(a);
	if (n & 4) {
		memcpy(p, &piece, 8);
		p += 4;
		piece = (uint64_t)_mm_extract_epi64(a, 1);
	}
	if (n & 2) {
		memcpy(p, &piece, 4);
		p += 2;
		piece >>= 32;
	}
	if (n & 1)
		memcpy(p, &piece, 2);
}

INLINE __m256i join_halves(__m128i a, __m128i b) { return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1); }

INLINE vf f16_load(const uint16_t *p) { return _mm256_cvtph_ps(load_halves(p)); }
INLINE vf f16_load_part(const uint16_t *p, int n) { return _mm256_cvtph_ps(load_halves_part(p, n)); }
INLINE __m128i f16_round(vf a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
INLINE __m256i f16_round2(const vf v[2]) { return join_halves(f16_round(v[0]), f16_round(v[1])); }

/* The load port copies the 8 halves to both lanes; one shuffle puts 4 in the upper parts of each. */
INLINE vf widen_bf16(__m128i halves)
{
	const __m256i upper = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1, 6, 7, -1, -1, 8, 9,
					       -1, -1, 10, 11, -1, -1, 12, 13, -1, -1, 14, 15);
	return _mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(halves), upper));
}
INLINE vf bf16_load(const uint16_t *p) { return widen_bf16(load_halves(p)); }
INLINE vf bf16_load_part(const uint16_t *p, int n) { return widen_bf16(load_halves_part(p, n)); }

/* Even lanes and odd lanes apart: a shift and a mask for 16 halves. */
INLINE void split_bf16(__m256i halves, vf v[2])
{
	v[0] = _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16));
	v[1] = _mm256_castsi256_ps(_mm256_and_si256(halves, _mm256_set1_epi32((int)0xffff0000)));
}
INLINE void bf16_load2(const uint16_t *p, vf v[2]) { split_bf16(_mm256_loadu_si256((const void *)p), v); }
INLINE void bf16_load2_part(const uint16_t *p, int n, vf v[2])
{
	__m128i low = load_halves_part(p, n < 8 ? n : 8);
	split_bf16(join_halves(low, n > 8 ? load_halves_part(p + 8, n - 8) : _mm_setzero_si128()), v);
}
INLINE void vf_split(vf v[2])
{
	__m256d even = _mm256_castps_pd(_mm256_shuffle_ps(v[0], v[1], 0x88));
	__m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(v[0], v[1], 0xdd));
	v[0] = _mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8));
	v[1] = _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8));
}
#define bf16_SPLIT

/* To nearest even, the result in the upper half of each word. */
INLINE __m256i bf16_round_words(vf a)
{
	__m256i bits = _mm256_castps_si256(a);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	__m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	__m256 nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
	__m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
	__m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
	return _mm256_castps_si256(chosen);
}
INLINE __m256i bf16_round2(const vf v[2])
{
	return _mm256_blend_epi16(_mm256_srli_epi32(bf16_round_words(v[0]), 16), bf16_round_words(v[1]), 0xaa);
}
INLINE __m128i bf16_round(vf a)
{
	__m256i words = _mm256_srli_epi32(bf16_round_words(a), 16);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0xd8));
}

INLINE void f16_store2(uint16_t *p, const vf v[2]) { _mm256_storeu_si256((void *)p, f16_round2(v)); }
INLINE void f16_store2_nontemporal(uint16_t *p, const vf v[2]) { _mm256_stream_si256((void *)p, f16_round2(v)); }
INLINE void f16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, f16_round(a), n); }
INLINE void bf16_store2(uint16_t *p, const vf v[2]) { _mm256_storeu_si256((void *)p, bf16_round2(v)); }
INLINE void bf16_store2_nontemporal(uint16_t *p, const vf v[2]) { _mm256_stream_si256((void *)p, bf16_round2(v)); }
INLINE void bf16_store_part(uint16_t *p, vf a, int n) { store_halves_part(p, bf16_round(a), n); }

INLINE void nontemporal_fence(void) { _mm_sfence(); }
