/* The vector vocabulary that every kernel is written in, and what is the same for all instruction sets.
 * A level's simd_*.h defines, for binary32 registers `vf` and binary64 registers `vd` (here `v`):
 *     v_WIDTH                  lanes of a register
 *     v_splat v_add v_sub v_mul v_fma(a, b, c) = a*b + c, v_fnma = -a*b + c
 *     v_num (a register), v_magnitude v_at_least v_at_most v_if_less v_reciprocal v_power    as math/math.inc.h says
 *     v_store(p, a)            a whole register of real numbers, in a workspace
 *     v_swap(a)                lanes 2i and 2i + 1 exchanged; with one lane a
 *     v_first(a, n)            lanes from n on set to +0, n in 0 … WIDTH
 *     v_narrow(a)              the first steps of the tree of rule 2 over the lanes of GROUP registers side by
 *                              side (a block of lanes), until one register is left
 *     v_sum(blocks)            the rest of it, over the v_BLOCKS such registers of a segment
 * and for each dtype d in f32, f16, bf16, f64 and its element pointer p:
 *     d_load(p), d_load_part(p, n)       widened; lanes from n on +0 and not read
 *     d_store_part(p, a, n)              rounded, the first n lanes alone, n in 0 … WIDTH
 * and for two registers of 2 WIDTH neighbouring elements, in an order of d's own (even lanes, odd lanes):
 *     d_load2(p, v), d_load2_part(p, n, v)   all of them, or the first n
 *     d_store2(p, v), d_store2_nontemporal(p, v)        rounded; past the caches, p aligned to what it fills
 *     d_first2(v, n), d_narrow, d_sum        v_first, v_narrow and v_sum for that order
 *     d_e_load2(p, v)                        elements of dtype e in d's order
 * which mean the same side by side, but for bf16 where simd_*.h says bf16_SPLIT, with vf_split(v) from side by side
 * to even and odd;
 * and nontemporal_fence(), which ends a run of d_store2_nontemporal, REGISTERS (how many there are) and GROUP. Pointers have any alignment otherwise.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CPU_SIMD_H
#define EK_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/order.h"
#include "core/sizes.h"

#define INLINE static inline __attribute__((always_inline, unused))
#define OUTLINE static __attribute__((noinline, unused)) /* keeps a loop's registers its own */
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL_BLOCKS _Pragma("GCC unroll 4")
#define UNROLL_LANES _Pragma("GCC unroll 16")
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
#define FOUR(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define EIGHT(a) a, a, a, a, a, a, a, a
#define NEUTRAL(dtype, one, minus_zero)                                                  \
	static const dtype##_element dtype##_ones[32] = {FOUR(EIGHT(one))};                  \
	static const dtype##_element dtype##_minus_zeros[32] = {FOUR(EIGHT(minus_zero))};
_Static_assert(2 * vf_WIDTH <= 32 && 2 * vd_WIDTH <= 32, "a step reads two registers of them");
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
#define vf_split(v) (void)(v)
#define bf16_narrow vf_narrow
#define bf16_sum vf_sum
SIDE_BY_SIDE(bf16, vf)
#endif

/* Weights in the order of activations. */
#define f32_f32_load2 f32_load2
#define f16_f32_load2 f32_load2
#define f16_f16_load2 f16_load2
#define bf16_bf16_load2 bf16_load2
#define f64_f64_load2 f64_load2
INLINE void bf16_f32_load2(const float *p, vf v[2])
{
	f32_load2(p, v);
	vf_split(v);
}

/* What comes next is fetched while what is at hand is computed, a line or two with each step: in bursts the same
 * lines cost half as much again (512x768). */
struct fetch {
	const char *at;
	int64_t mask; /* 0: nothing comes next */
};

/* From `next` on; NULL: nothing, and the line at `now` serves as one that is there. */
INLINE struct fetch fetch_from(const void *next, const void *now)
{
	return (struct fetch){next ? next : now, next ? -1 : 0};
}

INLINE void fetch_ahead(struct fetch *f, const int bytes)
{
	UNROLL for (int line = 0; line < bytes; line += LINE)
		__builtin_prefetch(f->at + line);
	f->at += bytes & f->mask;
}

/* A run of lines at once, for data that nothing has fetched ahead: the order of a segment's blocks hides from the
 * CPU's own prefetcher what these lines show it (reading from memory 10 -> 29 GB/s). */
INLINE void fetch_lines(const void *p, int64_t bytes)
{
	for (int64_t at = 0; at < bytes; at += LINE)
		__builtin_prefetch((const char *)p + at);
}

/* The lines that a stored non-temporally row shares with its neighbours are written in the cache: brought there in time, they
 * do not hold up the stores behind them. */
INLINE void fetch_edges(const void *row, int64_t bytes)
{
	const char *end = (const char *)row + bytes;
	if ((uintptr_t)row % LINE)
		__builtin_prefetch(row, 1);
	if ((uintptr_t)end % LINE)
		__builtin_prefetch(end - 1, 1);
}

/* Columns that are written with a segment. A stored non-temporally row is written in whole lines, so its spans lie to the right of
 * the segments, by the length of the head before the first line; the head goes with the first. */
struct span {
	int64_t from, to;
};

INLINE int64_t head_of(const void *row, int64_t size, int64_t cols, bool nontemporal)
{
	return nontemporal ? smaller((int64_t)(-(uintptr_t)row % LINE) / size, cols) : 0;
}

INLINE struct span span_of(int64_t start, int64_t head, int64_t cols)
{
	return (struct span){start + head, smaller(start + SEGMENT + head, cols)};
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

/* Of numbers in pairs of neighbours at p, the partners of the first n from the i-th on; the others are +0. */
#define PARTNERS(v)                                                                      \
	INLINE v v##_partners(const v##_real *p, int64_t i, int n)                           \
	{                                                                                    \
		if (v##_WIDTH == 1)                                                              \
			return v##_load_part(p + (i ^ 1), n);                                        \
		return v##_swap(n == v##_WIDTH ? v##_load(p + i) : v##_load_part(p + i, n));     \
	}
PARTNERS(vf)
PARTNERS(vd)

#endif
