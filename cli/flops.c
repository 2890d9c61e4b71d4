/* The rate of fused multiply-adds, by a loop of twelve independent chains acc = acc * factor + term: enough
 * to hide their latency, few enough for 16 registers. Called by measure.c. SPDX-License-Identifier: MIT */
#include "flops.h"

#include <stdbool.h>

#include "timing.h"

enum { CHAINS = 12, STEPS = 1000000, TRIALS = 5 };

#define EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* The values converge to 2 * one: no overflow, no subnormals. All chains are in the value returned: one that
 * is not, the compiler leaves out. */
#define DEFINE_LOOP(name, isa, vector, scalar, set, fused)          \
	isa static double name(double one)                          \
	{                                                           \
		vector factor = set((scalar)(0.5 * one));           \
		vector term = set((scalar)one);                     \
		EACH_CHAIN(DECLARE_CHAIN)                           \
		for (int step = 0; step < STEPS; step++) {          \
			EACH_CHAIN(fused)                           \
		}                                                   \
		vector chains[CHAINS] = {EACH_CHAIN(LIST_CHAIN)};   \
		double sum = 0;                                     \
		for (int k = 0; k < CHAINS; k++)                    \
			sum += (double)*(const scalar *)&chains[k]; \
		return sum;                                         \
	}
#define LIST_CHAIN(k) acc##k,

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define AVX2 __attribute__((target("avx2,fma")))
#define SSE2

#define DECLARE_CHAIN(k) __m512 acc##k = _mm512_set1_ps(k);
#define FUSED(k) acc##k = _mm512_fmadd_ps(acc##k, factor, term);
DEFINE_LOOP(avx512_f32, AVX512, __m512, float, _mm512_set1_ps, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) __m512d acc##k = _mm512_set1_pd(k);
#define FUSED(k) acc##k = _mm512_fmadd_pd(acc##k, factor, term);
DEFINE_LOOP(avx512_f64, AVX512, __m512d, double, _mm512_set1_pd, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) __m256 acc##k = _mm256_set1_ps(k);
#define FUSED(k) acc##k = _mm256_fmadd_ps(acc##k, factor, term);
DEFINE_LOOP(avx2_f32, AVX2, __m256, float, _mm256_set1_ps, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) __m256d acc##k = _mm256_set1_pd(k);
#define FUSED(k) acc##k = _mm256_fmadd_pd(acc##k, factor, term);
DEFINE_LOOP(avx2_f64, AVX2, __m256d, double, _mm256_set1_pd, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) __m128 acc##k = _mm_set1_ps(k);
#define FUSED(k) acc##k = _mm_add_ps(_mm_mul_ps(acc##k, factor), term);
DEFINE_LOOP(sse2_f32, SSE2, __m128, float, _mm_set1_ps, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) __m128d acc##k = _mm_set1_pd(k);
#define FUSED(k) acc##k = _mm_add_pd(_mm_mul_pd(acc##k, factor), term);
DEFINE_LOOP(sse2_f64, SSE2, __m128d, double, _mm_set1_pd, FUSED)

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool always(void)
{
	return true;
}
#elif defined(__aarch64__)
#include <arm_neon.h>

#define PLAIN
#define DECLARE_CHAIN(k) float32x4_t acc##k = vdupq_n_f32(k);
#define FUSED(k) acc##k = vfmaq_f32(term, acc##k, factor);
DEFINE_LOOP(neon_f32, PLAIN, float32x4_t, float, vdupq_n_f32, FUSED)
#undef DECLARE_CHAIN
#undef FUSED
#define DECLARE_CHAIN(k) float64x2_t acc##k = vdupq_n_f64(k);
#define FUSED(k) acc##k = vfmaq_f64(term, acc##k, factor);
DEFINE_LOOP(neon_f64, PLAIN, float64x2_t, double, vdupq_n_f64, FUSED)

static bool always(void)
{
	return true;
}
#endif

struct loop {
	bool (*usable)(void);
	double (*f32)(double one), (*f64)(double one);
	int bytes; /* of a register */
};

/* Widest first. */
static const struct loop loops[] = {
#if defined(__x86_64__)
	{has_avx512, avx512_f32, avx512_f64, 64},
	{has_avx2, avx2_f32, avx2_f64, 32},
	{always, sse2_f32, sse2_f64, 16},
#elif defined(__aarch64__)
	{always, neon_f32, neon_f64, 16},
#else
	{0},
#endif
};

struct flop_job {
	double (*loop)(double one);
	volatile double one; /* not known when compiling */
	volatile double sink[1024];
};

static void run_loop(void *arg, int thread)
{
	struct flop_job *job = arg;
	job->sink[thread % 1024] = job->loop(job->one);
}

double flop_rate(struct team *team, ek_dtype dtype)
{
	static struct flop_job job;
	const struct loop *loop = loops;
	if (!loop->usable)
		return 0;
	while (!loop->usable())
		loop++;
	job.loop = dtype == EK_F64 ? loop->f64 : loop->f32;
	job.one = 1;
	double best = 1e300;
	for (int trial = 0; trial < TRIALS; trial++) {
		double start = seconds_now();
		team_run(team, run_loop, &job);
		double seconds = seconds_now() - start;
		best = seconds < best ? seconds : best;
	}
	double lanes = (double)loop->bytes / (double)ek_dtype_size(dtype);
	return 2.0 * CHAINS * STEPS * lanes * team_threads(team) / best;
}
