/* The copy that is the limit of speed: non-temporal stores with software prefetch, several threads taking
 * chunks in turn. Called by bench.c (copy_streams) and measure.c (copy_rate).
 *
 * An honest limit is the fastest copy, and which that is differs between CPUs and between one stream read
 * and two. So a few variants are tried on the buffers themselves and the fastest stays. What they gave on a
 * Zen 4 server core, one thread, 128 MB a stream, chunks of 128 KB, GB/s (the hints nta and t0 were equal
 * for one stream, nta better for two, so only nta is kept; chunks of 1 MB were the same or slower):
 *
 *   ahead               0     512    1024    2048    4096 bytes
 *   one read   32 B   43.0    44.5    45.9    47.3    47.1
 *              64 B   38.4    44.0    46.5    47.0    45.6
 *              16 B   35.3    39.3    39.7    41.1    31.6
 *   two reads  32 B   40.6    38.0    40.3    40.1    40.1
 *              64 B   37.3    37.0    34.1    32.7    34.6
 *              16 B   38.9    37.3    38.7    39.3    35.0
 *   memcpy            32.6
 *
 * SPDX-License-Identifier: MIT */
#include "copy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

/* Copies bytes, a multiple of BLOCK, prefetching `ahead` bytes ahead; b may be NULL. */
typedef void copy_function(unsigned char *to, const unsigned char *a, const unsigned char *b, size_t bytes,
			   size_t ahead);

enum { BLOCK = 256, LINE = 64, CHUNK = 131072 };

#if defined(__x86_64__)
#include <immintrin.h>

#define DEFINE_COPY(name, isa, vector, load, xor, stream)                                                 \
	__attribute__((target(isa))) static void name(unsigned char *to, const unsigned char *a,          \
						      const unsigned char *b, size_t bytes, size_t ahead) \
	{                                                                                                 \
		for (size_t i = 0; i < bytes; i += BLOCK) {                                               \
			for (size_t k = i; ahead && k < i + BLOCK; k += LINE) {                           \
				_mm_prefetch((const char *)a + k + ahead, _MM_HINT_NTA);                  \
				if (b)                                                                    \
					_mm_prefetch((const char *)b + k + ahead, _MM_HINT_NTA);          \
			}                                                                                 \
			for (size_t k = i; k < i + BLOCK; k += sizeof(vector)) {                          \
				vector v = load((const void *)(a + k));                                   \
				if (b)                                                                    \
					v = xor(v, load((const void *)(b + k)));                          \
				stream((void *)(to + k), v);                                              \
			}                                                                                 \
		}                                                                                         \
		_mm_sfence();                                                                             \
	}

DEFINE_COPY(copy_16, "sse2", __m128i, _mm_loadu_si128, _mm_xor_si128, _mm_stream_si128)
DEFINE_COPY(copy_32, "avx2", __m256i, _mm256_loadu_si256, _mm256_xor_si256, _mm256_stream_si256)
DEFINE_COPY(copy_64, "avx512f", __m512i, _mm512_loadu_si512, _mm512_xor_si512, _mm512_stream_si512)

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f");
}

#else

/* Elsewhere the C library's memcpy, and a loop that the compiler vectorizes for two streams. */
static void copy_plain(unsigned char *to, const unsigned char *a, const unsigned char *b, size_t bytes,
		       size_t ahead)
{
	(void)ahead;
	if (!b) {
		memcpy(to, a, bytes);
		return;
	}
	for (size_t i = 0; i < bytes; i++)
		to[i] = a[i] ^ b[i];
}
#endif

struct variant {
	copy_function *copy;
	bool (*usable)(void); /* NULL: always */
	size_t ahead;
};

static const struct variant variants[] = {
#if defined(__x86_64__)
	{copy_16, NULL, 1024},       {copy_32, has_avx2, 0},   {copy_32, has_avx2, 1024},
	{copy_32, has_avx2, 2048},   {copy_64, has_avx512, 0}, {copy_64, has_avx512, 1024},
	{copy_64, has_avx512, 2048},
#else
	{copy_plain, NULL, 0},
#endif
};

static bool is_usable(const struct variant *variant)
{
	return !variant->usable || variant->usable();
}

enum { VARIANT_COUNT = sizeof variants / sizeof variants[0], TRIALS = 3 };

struct copy_job {
	const struct variant *variant;
	unsigned char *to;
	const unsigned char *a, *b;
	size_t bytes;
	atomic_size_t next;
};

static void copy_chunks(void *arg, int thread)
{
	struct copy_job *job = arg;
	size_t at;
	(void)thread;
	while ((at = atomic_fetch_add(&job->next, CHUNK)) < job->bytes) {
		size_t count = job->bytes - at < CHUNK ? job->bytes - at : CHUNK;
		const unsigned char *b = job->b ? job->b + at : NULL;
		job->variant->copy(job->to + at, job->a + at, b, count, job->variant->ahead);
	}
}

static double time_variant(struct team *team, const struct variant *variant, void *to, const void *a,
			   const void *b, size_t bytes)
{
	struct copy_job job = {variant, to, a, b, bytes / BLOCK * BLOCK, 0};
	double start = seconds_now();
	team_run(team, copy_chunks, &job);
	return seconds_now() - start;
}

/* The fastest on these buffers, by the median of interleaved trials. */
static const struct variant *choose(struct team *team, void *to, const void *a, const void *b, size_t bytes)
{
	static double seconds[VARIANT_COUNT][TRIALS];
	const struct variant *best = &variants[0];
	double best_seconds = 1e300;
	for (int trial = 0; trial < TRIALS; trial++)
		for (int i = 0; i < VARIANT_COUNT; i++)
			seconds[i][trial] = is_usable(&variants[i])
						    ? time_variant(team, &variants[i], to, a, b, bytes)
						    : 1e300;
	for (int i = 0; i < VARIANT_COUNT; i++) {
		double typical = median(seconds[i], TRIALS);
		if (typical < best_seconds) {
			best_seconds = typical;
			best = &variants[i];
		}
	}
	return best;
}

/* The variant for one stream read, and for two. */
static const struct variant *chosen[2] = {&variants[0], &variants[0]};

void copy_prepare(struct team *team, void *to, const void *a, const void *b, size_t bytes)
{
	/* A choice made on buffers far larger than any cache stands for the whole run. */
	static bool settled[2];
	int kind = b != NULL;
	if (settled[kind])
		return;
	chosen[kind] = choose(team, to, a, b, bytes);
	settled[kind] = bytes >= (size_t)1 << 26;
}

void copy_streams(struct team *team, void *to, const void *a, const void *b, size_t bytes)
{
	(void)time_variant(team, chosen[b != NULL], to, a, b, bytes);
}

struct rate_job {
	unsigned char *memory;
	size_t bytes; /* of each thread's source, and of its destination */
	int repeats;
	const struct variant *variant; /* NULL: memcpy */
};

static void copy_own_part(void *arg, int thread)
{
	const struct rate_job *job = arg;
	unsigned char *from = job->memory + 2 * job->bytes * (size_t)thread;
	for (int i = 0; i < job->repeats; i++)
		if (job->variant)
			job->variant->copy(from + job->bytes, from, NULL, job->bytes, job->variant->ahead);
		else
			memcpy(from + job->bytes, from, job->bytes);
}

static double best_rate(struct team *team, struct rate_job *job)
{
	double best = 1e300;
	double moved = 2.0 * (double)job->bytes * team_threads(team) * job->repeats;
	for (int trial = 0; trial < 5; trial++) {
		double start = seconds_now();
		team_run(team, copy_own_part, job);
		double seconds = seconds_now() - start;
		best = seconds < best ? seconds : best;
	}
	return moved / best;
}

double copy_rate(struct team *team, size_t bytes)
{
	struct rate_job job = {.bytes = bytes / 2 / (size_t)team_threads(team) / BLOCK * BLOCK};
	size_t all = 2 * job.bytes * (size_t)team_threads(team);
	if (job.bytes == 0 || !(job.memory = aligned_alloc(LINE, all)))
		return 0;
	memset(job.memory, 1, all);
	job.repeats = (int)(((size_t)1 << 27) / all) + 1;
	double best = best_rate(team, &job);
	for (int i = 0; i < VARIANT_COUNT; i++) {
		if (!is_usable(&variants[i]))
			continue;
		job.variant = &variants[i];
		double rate = best_rate(team, &job);
		best = rate > best ? rate : best;
	}
	free(job.memory);
	return best;
}
