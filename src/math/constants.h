/* Constants of math.inc.h, binary32 (f32_…) and binary64 (f64_…): docs/math.md says how each was found. Preprocessor text
 * alone, since the CUDA kernels take it, too. SPDX-License-Identifier: MIT */

/* 1.5 · 2^23 + 127 (1.5 · 2^52 + 1023): a number added to it is rounded to a whole number k, and the last bits are those of
 * the exponent of 2^k. */
#define f32_ROUND 0x1.8000fep23f
#define f64_ROUND 0x1.80000000003ffp52
#define f32_ZERO 0.0f
#define f64_ZERO 0.0
#define f32_MINUS_ZERO -0.0f
#define f64_MINUS_ZERO -0.0
/* The smallest number above 0. */
#define f32_LEAST 0x1p-149f
#define f64_LEAST 0x1p-1074
#define f32_HALF 0.5f
#define f64_HALF 0.5
#define f32_ONE 1.0f
#define f64_ONE 1.0

/* ---- exp: log2(e), and ln(2) = LN2_HIGH + LN2_LOW, k · LN2_HIGH is exact ---- */

#define f32_LOG2E 0x1.715476p0f
#define f64_LOG2E 0x1.71547652b82fep0
#define f32_LN2_HIGH 0x1.62e4p-1f
#define f64_LN2_HIGH 0x1.62e42fefa4p-1
#define f32_LN2_LOW 0x1.7f7d1cp-20f
#define f64_LN2_LOW -0x1.8432a1b0e2634p-43
/* Beyond these exp is 0 or infinite. */
#define f32_EXP_LEAST -104.0f
#define f64_EXP_LEAST -746.0
#define f32_EXP_MOST 89.0f
#define f64_EXP_MOST 710.0

/* (exp(r) - 1 - r) / r^2, |r| <= ln(2) / 2. Errors of the series, relative to exp: 2^-28.2 and 2^-57.9. */
#define f32_EXP_SERIES(FIRST, NEXT) \
	FIRST(0x1.694c84p-10f)      \
	NEXT(0x1.12397cp-7f)        \
	NEXT(0x1.555a26p-5f)        \
	NEXT(0x1.555492p-3f)        \
	NEXT(0x1.fffffap-2f)
#define f64_EXP_SERIES(FIRST, NEXT)  \
	FIRST(0x1.ad92c7d9c4a65p-26) \
	NEXT(0x1.28adf7a194e4ap-22)  \
	NEXT(0x1.71df18fbc7a1ap-19)  \
	NEXT(0x1.a0199963c9d3dp-16)  \
	NEXT(0x1.a01a012fec2f8p-13)  \
	NEXT(0x1.6c16c18475a18p-10)  \
	NEXT(0x1.1111111126b37p-7)   \
	NEXT(0x1.55555555506cp-5)    \
	NEXT(0x1.55555555554fep-3)   \
	NEXT(0x1.000000000000ap-1)

/* (2^f - 1) / f, |f| <= 1/2. Errors relative to 2^f: 2^-28.0 and 2^-57.3. */
#define f32_EXP2_SERIES(FIRST, NEXT) \
	FIRST(0x1.3faf5ap-13f)       \
	NEXT(0x1.5f0cap-10f)         \
	NEXT(0x1.3b3094p-7f)         \
	NEXT(0x1.c6af74p-5f)         \
	NEXT(0x1.ebfbd8p-3f)         \
	NEXT(0x1.62e43p-1f)
#define f64_EXP2_SERIES(FIRST, NEXT) \
	FIRST(0x1.e9731799ef4d2p-32) \
	NEXT(0x1.e61d433218757p-28)  \
	NEXT(0x1.b52522bc16436p-24)  \
	NEXT(0x1.62bfc6596be0ep-20)  \
	NEXT(0x1.ffcbfc6685f05p-17)  \
	NEXT(0x1.4309130f6cbdbp-13)  \
	NEXT(0x1.5d87fe789e96fp-10)  \
	NEXT(0x1.3b2ab6fb9fda6p-7)   \
	NEXT(0x1.c6b08d704a12cp-5)   \
	NEXT(0x1.ebfbdff82c5a6p-3)   \
	NEXT(0x1.62e42fefa39efp-1)

/* ---- sigmoid: 0 at LEAST, where 1 + exp(-x) has a subnormal reciprocal, and 1 at MOST, where the power of 2 is 0 ---- */

#define f32_SIGMOID_LEAST -88.0f
#define f64_SIGMOID_LEAST -709.0
#define f32_SIGMOID_MOST 88.0f
#define f64_SIGMOID_MOST 709.0

/* ---- gelu_tanh: gelu_tanh(t) = t sigmoid(2 u), 2 u log2(e) = t (A + B t^2), and (2 u)' = A' + B' t^2 ---- */

#define f32_TANH_A 0x1.26aec2p1f
#define f64_TANH_A 0x1.26aec21bce759p1
#define f32_TANH_B 0x1.a5a7dp-4f
#define f64_TANH_B 0x1.a5a7cf7572a98p-4
#define f32_TANH_SLOPE_A 0x1.988454p0f
#define f64_TANH_SLOPE_A 0x1.9884533d43651p0
#define f32_TANH_SLOPE_B 0x1.b6676cp-3f
#define f64_TANH_SLOPE_B 0x1.b6676bf7450fp-3
#define f32_TANH_LEAST -10.03f
#define f64_TANH_LEAST -21.152
#define f32_TANH_MOST 10.03f
#define f64_TANH_MOST 21.152
/* binary32: one term less than EXP2_SERIES (2^-23.3): the rounding of 2 u is larger already. */
#define f32_TANH_SERIES(FIRST, NEXT) \
	FIRST(0x1.5bfd54p-10f)       \
	NEXT(0x1.3ceaf8p-7f)         \
	NEXT(0x1.c6b69ap-5f)         \
	NEXT(0x1.ebf9bap-3f)         \
	NEXT(0x1.62e42ap-1f)
#define f64_TANH_SERIES f64_EXP2_SERIES

/* ---- the normal distribution ---- */

#define f32_MINUS_HALF_LOG2E -0x1.715476p-1f
#define f64_MINUS_HALF_LOG2E -0x1.71547652b82fep-1
#define f32_HALF_LOG2E_ERROR -0x1.cab1b6p-28f /* of the constant, times ln(2) */
#define f64_HALF_LOG2E_ERROR -0x1.0444d0e734faap-57
#define f32_DENSITY 0x1.988454p-2f /* 1 / sqrt(2 pi) */
#define f64_DENSITY 0x1.9884533d43651p-2
#define f32_MINUS_DENSITY -0x1.988454p-2f
#define f64_MINUS_DENSITY -0x1.9884533d43651p-2
/* Beyond it the tail is 0. */
#define f32_NORMAL_MOST 13.26f
#define f64_NORMAL_MOST 37.655
/* Mills's ratio, (1 - Phi(a)) 2^(a^2 HALF_LOG2E), 0 <= a <= NORMAL_MOST. binary32: a quotient of polynomials in a, error
 * 2^-26.5. */
#define f32_MILLS_OVER_EVEN(FIRST, NEXT) \
	FIRST(0x1.13d6ep-8f) NEXT(0x1.7b8e74p-3f) /* a^4, a^2; 0.5 is written there */
#define f32_MILLS_OVER_ODD(FIRST, NEXT) FIRST(0x1.526364p-5f) NEXT(0x1.c3e7fcp-2f)
#define f32_MILLS_UNDER_EVEN(FIRST, NEXT) FIRST(0x1.a81f3cp-4f) NEXT(0x1.3625a8p0f)
#define f32_MILLS_UNDER_ODD(FIRST, NEXT) FIRST(0x1.59b69ap-7f) NEXT(0x1.e6633ap-2f) NEXT(0x1.ae362ep0f)
/* binary64: a polynomial in (a - MILLS_ZERO) / (a + MILLS_POLE), divided by a + MILLS_POLE; error 2^-58.8. */
#define f64_MILLS_POLE 4.0
#define f64_MILLS_ZERO 4.0
#define f64_MILLS_SERIES(FIRST, NEXT) \
	FIRST(-0x1.df8cd85089609p-36) \
	NEXT(-0x1.a37ed3eb4c39cp-31)  \
	NEXT(-0x1.4a34696758678p-29)  \
	NEXT(0x1.1e56fcaae0eb8p-29)   \
	NEXT(0x1.4d1072e56514cp-26)   \
	NEXT(0x1.bd1aa3ba10784p-27)   \
	NEXT(-0x1.6db26326c8ed7p-24)  \
	NEXT(-0x1.4bfc870489b3ap-23)  \
	NEXT(0x1.23a4bfe0a3a65p-22)   \
	NEXT(0x1.1226479f321ap-20)    \
	NEXT(-0x1.5204322aeb85dp-21)  \
	NEXT(-0x1.8d49a31d346b3p-18)  \
	NEXT(0x1.80bdbb72f34c4p-21)   \
	NEXT(0x1.26d08dfca351cp-15)   \
	NEXT(-0x1.001f08dd36832p-19)  \
	NEXT(-0x1.e4a424f82a3e5p-13)  \
	NEXT(0x1.17a4ae9e45becp-13)   \
	NEXT(0x1.ab825fbf70251p-10)   \
	NEXT(-0x1.c81719d5e27dep-9)   \
	NEXT(-0x1.ee2761047960cp-8)   \
	NEXT(0x1.eec4cc3e4d8dap-5)    \
	NEXT(-0x1.7dff2bff683c8p-3)   \
	NEXT(0x1.8c6dbf2cfc2a8p-2)    \
	NEXT(-0x1.373e3a893c28dp-1)   \
	NEXT(0x1.82b4bb8c94dcdp-1)
