/* The rate of fused multiply-adds, by a loop of twelve independent chains acc = acc * factor + term: enough
 * to hide their latency, few enough for 16 registers. Called by measure.c. SPDX-License-Identifier: MIT */
#include "flops.h"

#include <stdbool.h>

#include "timing.h"

enum { CHAINS = 12, STEPS = 1000000, TRIALS = 5 };

#define EACH_CHAIN(X, a, b) \
	X(0, a, b)          \
	X(1, a, b)          \
	X(2, a, b)          \
	X(3, a, b) X(4, a, b) X(5, a, b) X(6, a, b) X(7, a, b) X(8, a, b) X(9, a, b) X(10, a, b) X(11, a, b)
#define DECLARE_CHAIN(k, vector, set) vector acc##k = set(k);
#define STEP_CHAIN(k, fused, unused) acc##k = fused(acc##k, factor, term);
#define LIST_CHAIN(k, unused, neither) acc##k,

/* The values converge to 2 * one: no overflow, no subnormals. All chains are in the value returned: one that
 * is not, the compiler leaves out. */
#define DEFINE_LOOP(name, isa, vector, scalar, set, fused)                    \
	isa static double name(double one)                                    \
	{                                                                     \
		vector factor = set((scalar)(0.5 * one));                     \
		vector term = set((scalar)one);                               \
		EACH_CHAIN(DECLARE_CHAIN, vector, set)                        \
		for (int step = 0; step < STEPS; step++) {                    \
			EACH_CHAIN(STEP_CHAIN, fused, 0)                      \
		}                                                             \
		const vector chains[CHAINS] = {EACH_CHAIN(LIST_CHAIN, 0, 0)}; \
		double sum = 0;                                               \
		for (int k = 0; k < CHAINS; k++)                              \
			sum += (double)*(const scalar *)&chains[k];           \
		return sum;                                                   \
	}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define AVX2 __attribute__((target("avx2,fma")))
#define SSE2
#define SSE2_FUSED_PS(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define SSE2_FUSED_PD(a, b, c) _mm_add_pd(_mm_mul_pd(a, b), c)

DEFINE_LOOP(avx512_f32, AVX512, __m512, float, _mm512_set1_ps, _mm512_fmadd_ps)
DEFINE_LOOP(avx512_f64, AVX512, __m512d, double, _mm512_set1_pd, _mm512_fmadd_pd)
DEFINE_LOOP(avx2_f32, AVX2, __m256, float, _mm256_set1_ps, _mm256_fmadd_ps)
DEFINE_LOOP(avx2_f64, AVX2, __m256d, double, _mm256_set1_pd, _mm256_fmadd_pd)
DEFINE_LOOP(sse2_f32, SSE2, __m128, float, _mm_set1_ps, SSE2_FUSED_PS)
DEFINE_LOOP(sse2_f64, SSE2, __m128d, double, _mm_set1_pd, SSE2_FUSED_PD)

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#elif defined(__aarch64__)
#include <arm_neon.h>

#define NEON
#define NEON_FUSED_F32(a, b, c) vfmaq_f32(c, a, b)
#define NEON_FUSED_F64(a, b, c) vfmaq_f64(c, a, b)

DEFINE_LOOP(neon_f32, NEON, float32x4_t, float, vdupq_n_f32, NEON_FUSED_F32)
DEFINE_LOOP(neon_f64, NEON, float64x2_t, double, vdupq_n_f64, NEON_FUSED_F64)
#endif

struct loop {
	bool (*usable)(void); /* NULL: always */
	double (*f32)(double one), (*f64)(double one);
	int bytes; /* of a register */
};

/* Widest first. */
static const struct loop loops[] = {
#if defined(__x86_64__)
	{has_avx512, avx512_f32, avx512_f64, 64},
	{has_avx2, avx2_f32, avx2_f64, 32},
	{NULL, sse2_f32, sse2_f64, 16},
#elif defined(__aarch64__)
	{NULL, neon_f32, neon_f64, 16},
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
	if (!loop->f32)
		return 0;
	while (loop->usable && !loop->usable())
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
