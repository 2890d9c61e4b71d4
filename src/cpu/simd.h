/* The vector vocabulary that every kernel is written in, and what is the same for all instruction sets.
 * A level's simd_*.h defines, for binary32 registers `vf` and binary64 registers `vd` (here `v`):
 *     v_WIDTH                  lanes of a register
 *     v_splat v_add v_sub v_mul v_fma(a, b, c) = a*b + c, v_fnma = -a*b + c
 *     v_store(p, a)            a whole register of real numbers, in a workspace
 *     v_first(a, n)            lanes from n on set to +0, n in 0 … WIDTH
 *     v_narrow(a)              the first steps of the tree of rule 2 over the lanes of GROUP registers side by
 *                              side (a block of lanes), until one register is left
 *     v_sum(blocks)            the rest of it, over the v_BLOCKS such registers of a segment
 * and for each dtype d in f32, f16, bf16, f64 and its element pointer p:
 *     d_load(p), d_load_part(p, n)       widened; lanes from n on +0 and not read
 *     d_store2(p, a, b)                  rounded, two neighbouring registers
 *     d_stream2(p, a, b)                 likewise past the caches; p is aligned to what it fills
 *     d_store_part(p, a, n)              the first n lanes alone, n in 0 … WIDTH
 * and, for sums alone, whose order of lanes within two registers may be another (even lanes, odd lanes):
 *     d_load2(p, v), d_load2_part(p, n, v)   2 WIDTH elements, or the first n of them
 *     d_first2(v, n), d_narrow, d_sum        v_first, v_narrow and v_sum for that order
 * which here mean two d_load side by side unless simd_*.h says d_SPLIT;
 * and stream_fence(), which ends a run of d_stream2, and GROUP. Pointers have any alignment otherwise.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CPU_SIMD_H
#define EK_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "../ref/order.h"
#include "sizes.h"

#define INLINE static inline __attribute__((always_inline, unused))
#define OUTLINE static __attribute__((noinline, unused)) /* keeps a loop's registers its own */
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_BLOCKS _Pragma("GCC unroll 4")
/* A value that is used several times stays in its register, where the compiler would rather load it again. */
#if defined(__x86_64__)
#define IN_REGISTER(a) __asm__("" : "+v"(a))
#else
#define IN_REGISTER(a) __asm__("" : "+w"(a))
#endif
/* No store moves above this point: a load that follows a store to the same place in another page waits for it
 * (8x1024 f32 forward in cache 2.8 -> 1.6 us). */
#define ALL_LOADED __asm__ volatile("" ::: "memory")
#define PASTE(a, b) PASTE_(a, b)
#define PASTE_(a, b) a##_##b

enum { LINE = 64 }; /* bytes of a cache line */

#include SIMD

/* What a dtype is made of: element, register, arithmetic, and the operands that change no bit. */
typedef float vf_real, f32_element, f32_real, f16_real, bf16_real;
typedef double vd_real, f64_element, f64_real;
typedef uint16_t f16_element, bf16_element;
typedef vf f32_vec, f16_vec, bf16_vec;
typedef vd f64_vec;
enum { f32_WIDTH = vf_WIDTH, f16_WIDTH = vf_WIDTH, bf16_WIDTH = vf_WIDTH, f64_WIDTH = vd_WIDTH };
enum { f32_BLOCKS = vf_BLOCKS, f16_BLOCKS = vf_BLOCKS, bf16_BLOCKS = vf_BLOCKS, f64_BLOCKS = vd_BLOCKS };
#define EIGHT(a) a, a, a, a, a, a, a, a
#define NEUTRAL(dtype, one, minus_zero)                                                  \
	static const dtype##_element dtype##_ones[16] = {EIGHT(one), EIGHT(one)};            \
	static const dtype##_element dtype##_minus_zeros[16] = {EIGHT(minus_zero), EIGHT(minus_zero)};
NEUTRAL(f32, 1.0f, -0.0f)
NEUTRAL(f16, 0x3c00, 0x8000)
NEUTRAL(bf16, 0x3f80, 0x8000)
NEUTRAL(f64, 1.0, -0.0)
static const float vf_zeros[16] = {0};
static const double vd_zeros[16] = {0};

#define SIDE_BY_SIDE(d, v)                                                               \
	INLINE void d##_load2(const d##_element *p, v a[2])                                  \
	{                                                                                    \
		a[0] = d##_load(p);                                                              \
		a[1] = d##_load(p + v##_WIDTH);                                                  \
	}                                                                                    \
	INLINE void d##_load2_part(const d##_element *p, int n, v a[2])                      \
	{                                                                                    \
		a[0] = d##_load_part(p, n < v##_WIDTH ? n : v##_WIDTH);                          \
		a[1] = n > v##_WIDTH ? d##_load_part(p + v##_WIDTH, n - v##_WIDTH) : v##_splat(0); \
	}                                                                                    \
	INLINE void d##_first2(v a[2], int n)                                                \
	{                                                                                    \
		a[0] = v##_first(a[0], n < v##_WIDTH ? n : v##_WIDTH);                           \
		a[1] = v##_first(a[1], n > v##_WIDTH ? n - v##_WIDTH : 0);                       \
	}
SIDE_BY_SIDE(f32, vf)
SIDE_BY_SIDE(f16, vf)
SIDE_BY_SIDE(f64, vd)
#define f32_narrow vf_narrow
#define f32_sum vf_sum
#define f16_narrow vf_narrow
#define f16_sum vf_sum
#define f64_narrow vd_narrow
#define f64_sum vd_sum
#ifdef bf16_SPLIT
#define bf16_narrow vf_narrow_split
#define bf16_sum vf_sum_split
INLINE void bf16_first2(vf a[2], int n)
{
	a[0] = vf_first(a[0], (n + 1) / 2);
	a[1] = vf_first(a[1], n / 2);
}
#else
#define bf16_narrow vf_narrow
#define bf16_sum vf_sum
SIDE_BY_SIDE(bf16, vf)
#endif

/* What to bring into the caches while something else is computed: rows in their order, a few lines with each
 * step of the kernel. Even spacing is what counts: in bursts the same lines cost 1.5 times as much (512x768). */
struct fetch {
	const char *at, *end;
	int64_t bytes, stride, rows; /* of a row; between rows; left after this one */
	int64_t due;                 /* bytes to fetch before the next pair of rows begins */
	bool cold;                   /* the data at hand was not fetched ahead */
};

INLINE void fetch_ahead(struct fetch *f, int bytes)
{
	if (f->due <= 0)
		return;
	f->due -= bytes;
	if (f->at >= f->end) {
		if (f->rows == 0)
			return;
		f->rows--;
		f->at = f->end - f->bytes + f->stride;
		f->end = f->at + f->bytes;
	}
	UNROLL for (int line = 0; line < bytes; line += LINE)
		__builtin_prefetch(f->at + line);
	f->at += bytes;
}

/* A run of lines at once, for data that nothing has fetched ahead: the order of a segment's blocks hides from the
 * CPU's own prefetcher what these lines show it (reading from memory 10 -> 29 GB/s). */
INLINE void fetch_lines(const void *p, int64_t bytes)
{
	for (int64_t at = 0; at < bytes; at += LINE)
		__builtin_prefetch((const char *)p + at);
}

/* The lines that a streamed row shares with its neighbours are written in the cache: brought there in time, they
 * do not hold up the stores behind them. */
INLINE void fetch_edges(const void *row, int64_t bytes)
{
	const char *end = (const char *)row + bytes;
	if ((uintptr_t)row % LINE)
		__builtin_prefetch(row, 1);
	if ((uintptr_t)end % LINE)
		__builtin_prefetch(end - 1, 1);
}

/* The steps of a pair bring in as much as they read; what they left out comes at its end. */
INLINE void fetch_rest(struct fetch *f)
{
	while (f->due > 0)
		fetch_ahead(f, LINE);
}

/* Rows first … end-1 of x, half a row or a page ahead of the steps. */
INLINE struct fetch fetch_rows(const void *x, int64_t first, int64_t end, int64_t bytes, int64_t stride)
{
	struct fetch f = {.bytes = bytes, .stride = stride};
	if (first >= end)
		return f;
	f.at = f.end = (const char *)x + (first - 1) * stride + bytes;
	f.rows = end - first;
	f.due = smaller(bytes / 2, 4096);
	fetch_rest(&f);
	return f;
}

/* What a step that writes segment `start` of a row covers: spans[0] is the head before the first whole line
 * of the row, spans[1] whole lines (and the row's end), which may be streamed. They lie to the right of the
 * segment by the head's length. True: two rows that share spans[.][1] and have no head. */
struct span {
	int64_t from, to;
};

INLINE bool write_spans(int count, const void *y0, const void *y1, int64_t size, int64_t start, int64_t cols,
			bool stream, struct span spans[2][2])
{
	const void *y[2] = {y0, y1};
	int64_t head[2] = {0, 0};
	for (int k = 0; k < count; k++) {
		if (stream)
			head[k] = (int64_t)(-(uintptr_t)y[k] % LINE) / size;
		int64_t from = start ? start + head[k] : 0, to = start + SEGMENT + head[k];
		to = to < cols ? to : cols;
		int64_t middle = start ? from : head[k] < to ? head[k] : to;
		spans[k][0] = (struct span){from, start ? from : middle};
		spans[k][1] = (struct span){middle, to};
	}
	return count == 2 && head[0] == 0 && head[1] == 0;
}

/* Scalar steps of the statistics. */
INLINE float vf_fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
INLINE double vd_fma1(double a, double b, double c) { return __builtin_fma(a, b, c); }
INLINE float vf_sqrt1(float a) { return __builtin_sqrtf(a); }
INLINE double vd_sqrt1(double a) { return __builtin_sqrt(a); }

/* The tree of rule 2 over a sequence whose terms come one by one: pending sums of 1, 2, 4, … terms, as
 * the bits of count. */
#define TREE(v, real)                                                                    \
	struct v##_tree {                                                                    \
		int64_t count;                                                                   \
		real pending[24];                                                                \
	};                                                                                   \
	INLINE void v##_tree_add(struct v##_tree *tree, real term)                           \
	{                                                                                    \
		int top = __builtin_popcountll((unsigned long long)tree->count);                 \
		for (int64_t bits = tree->count++; bits & 1; bits >>= 1)                         \
			term = tree->pending[--top] + term;                                          \
		tree->pending[top] = term;                                                       \
	}                                                                                    \
	INLINE real v##_tree_sum(const struct v##_tree *tree)                                \
	{                                                                                    \
		int top = __builtin_popcountll((unsigned long long)tree->count);                 \
		real sum = top ? tree->pending[--top] : 0;                                       \
		while (top)                                                                      \
			sum = tree->pending[--top] + sum;                                            \
		return sum + 0; /* -0 never leaves a sum */                                      \
	}
TREE(vf, float)
TREE(vd, double)

#define vf_load f32_load
#define vd_load f64_load
#define vf_load_part f32_load_part
#define vd_load_part f64_load_part
#define vf_store_part f32_store_part
#define vd_store_part f64_store_part

#endif
