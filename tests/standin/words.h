/* The words of src/gpu/kernels/words.cu in plain C: the stand-in for NVRTC (nvrtc.c) puts this file in front of a
 * kernel's text and hands both to the C compiler. Words that others can see (memory, meetings) go to the
 * emulator with the place where they stand; arithmetic is done here.
 * SPDX-License-Identifier: MIT */
#ifndef STANDIN_WORDS_H
#define STANDIN_WORDS_H

#include <stdbool.h>

#include "../../src/core/half.h"
#include "machine.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

static const struct standin_machine *standin_machine;

__attribute__((visibility("default"))) standin_attach_function standin_attach;
void standin_attach(const struct standin_machine *machine)
{
	standin_machine = machine;
}

extern const struct standin_target standin_target;
__attribute__((visibility("default")))
const struct standin_target standin_target = {__CUDA_ARCH__ / 10, STANDIN_FINAL};

#define DEVICE static inline __attribute__((unused))
#define PRAGMA(text) _Pragma(#text)
#define UNROLL
#define NO_UNROLL

/* A kernel has one parameter, the struct a; the driver calls it through a pointer to one. */
#define KERNEL(name, most_threads, blocks, type) STANDIN_KERNEL(name, most_threads, type)
#define STANDIN_KERNEL(name, most_threads, type)                                                      \
	static void name##_kernel(const struct type);                                                 \
	static void standin_run_##name(const void *arguments)                                         \
	{                                                                                             \
		name##_kernel(*(const struct type *)arguments);                                       \
	}                                                                                             \
	extern const struct standin_kernel name;                                                      \
	__attribute__((visibility("default")))                                                        \
	const struct standin_kernel name = {standin_run_##name, sizeof(struct type), (most_threads)}; \
	static void name##_kernel(const struct type a)

/* The place of a word: one object for each time it is written in the text. */
#define STANDIN_PLACE(word)                                                                   \
	({                                                                                    \
		static const struct standin_place standin_place = {word, __func__, __LINE__}; \
		&standin_place;                                                               \
	})

/* 16 bytes: what one access moves. */
typedef struct {
	_Alignas(16) u32 w[4];
} quad;

/* ---- where a thread is ---- */

DEVICE int thread_index(void)
{
	return (*standin_machine->here)->thread;
}

DEVICE i64 block_index(void)
{
	return (*standin_machine->here)->block;
}

DEVICE i64 block_count(void)
{
	return (*standin_machine->here)->blocks;
}

DEVICE int cluster_rank(void)
{
	return (*standin_machine->here)->rank;
}

/* ---- global memory ---- */

DEVICE quad standin_load(const void *from, const struct standin_place *place)
{
	return *(const quad *)standin_machine->reading(from, sizeof(quad), place);
}

DEVICE void standin_store(void *to, quad v, const struct standin_place *place)
{
	*(quad *)standin_machine->writing(to, sizeof(quad), place) = v;
}

#define load_once(from) standin_load(from, STANDIN_PLACE("load_once"))
#define load_kept(from) standin_load(from, STANDIN_PLACE("load_kept"))
#define load_shared_by_all(from) standin_load(from, STANDIN_PLACE("load_shared_by_all"))
#define store_once(to, v) standin_store(to, v, STANDIN_PLACE("store_once"))
#define load_shared_by_all_8(from) \
	(*(const u64 *)standin_machine->reading(from, sizeof(u64), STANDIN_PLACE("load_shared_by_all_8")))
#define load_once_8(from) \
	(*(const u64 *)standin_machine->reading(from, sizeof(u64), STANDIN_PLACE("load_once_8")))
#define load_kept_8(from) \
	(*(const u64 *)standin_machine->reading(from, sizeof(u64), STANDIN_PLACE("load_kept_8")))
#define store_once_8(to, v) \
	(*(u64 *)standin_machine->writing(to, sizeof(u64), STANDIN_PLACE("store_once_8")) = (v))
#define store_kept(to, v) standin_store(to, v, STANDIN_PLACE("store_kept"))
#define store_kept_8(to, v) \
	(*(u64 *)standin_machine->writing(to, sizeof(u64), STANDIN_PLACE("store_kept_8")) = (v))
#define load_one(type, from) \
	(*(const type *)standin_machine->reading(from, sizeof(type), STANDIN_PLACE("load_one")))
#define store_one(type, to, value) \
	(*(type *)standin_machine->writing(to, sizeof(type), STANDIN_PLACE("store_one")) = (value))

/* ---- shared memory ---- */

DEVICE u8 *shared_memory(void)
{
	return (*standin_machine->here)->shared;
}

#define fetch(to, from) standin_machine->start_fetch(to, from, 16, 16, STANDIN_PLACE("fetch"))
#define fetch_8(to, from) standin_machine->start_fetch(to, from, 8, 8, STANDIN_PLACE("fetch_8"))
#define fetch_some(to, from, bytes) \
	standin_machine->start_fetch(to, from, 16, bytes, STANDIN_PLACE("fetch_some"))
#define fetch_some_8(to, from, bytes) \
	standin_machine->start_fetch(to, from, 8, bytes, STANDIN_PLACE("fetch_some_8"))
#define load_fetched(shared)                                                          \
	(*(const quad *)standin_machine->remote(shared, cluster_rank(), sizeof(quad), \
						STANDIN_PLACE("load_fetched")))
#define fetch_close() standin_machine->fetch_close()
#define FETCH_WAIT(open) standin_machine->fetch_wait(open, STANDIN_PLACE("FETCH_WAIT"))

/* ---- meeting others ---- */

DEVICE float standin_xor_f32(float value, int mask, const struct standin_place *place)
{
	int source = (thread_index() & 31) ^ mask;
	return ek_float_of_bits((u32)standin_machine->exchange(ek_bits_of_float(value), source, place));
}

DEVICE double standin_xor_f64(double value, int mask, const struct standin_place *place)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	bits = standin_machine->exchange(bits, (thread_index() & 31) ^ mask, place);
	memcpy(&value, &bits, sizeof bits);
	return value;
}

#define shuffle_xor_f32(value, mask) standin_xor_f32(value, mask, STANDIN_PLACE("shuffle_xor_f32"))
#define shuffle_xor_f64(value, mask) standin_xor_f64(value, mask, STANDIN_PLACE("shuffle_xor_f64"))

#define sync_warp() standin_machine->sync_warp(STANDIN_PLACE("sync_warp"))
#define sync_block() standin_machine->sync_block(STANDIN_PLACE("sync_block"))
#define sync_some(barrier, threads) standin_machine->sync_some(barrier, threads, STANDIN_PLACE("sync_some"))
#if __CUDA_ARCH__ >= 900
#define sync_cluster() standin_machine->sync_cluster(STANDIN_PLACE("sync_cluster"))
#else
#define sync_cluster() (void)0
#endif

#define mbarrier_make(box) standin_machine->mbarrier_make(box, STANDIN_PLACE("mbarrier_make"))
#define mbarrier_expect(box, bytes) \
	standin_machine->mbarrier_expect(box, bytes, STANDIN_PLACE("mbarrier_expect"))
#define mbarrier_wait(box, round) standin_machine->mbarrier_wait(box, round, STANDIN_PLACE("mbarrier_wait"))

DEVICE void standin_send_f32(float *to, int rank, float value, u64 *box, const struct standin_place *place)
{
	*(float *)standin_machine->send(to, rank, sizeof value, box, place) = value;
}

DEVICE void standin_send_f64(double *to, int rank, double value, u64 *box, const struct standin_place *place)
{
	*(double *)standin_machine->send(to, rank, sizeof value, box, place) = value;
}

#define send_f32(to, rank, value, box) standin_send_f32(to, rank, value, box, STANDIN_PLACE("send_f32"))
#define send_f64(to, rank, value, box) standin_send_f64(to, rank, value, box, STANDIN_PLACE("send_f64"))
#define get_quad(from, rank) \
	(*(const quad *)standin_machine->remote(from, rank, sizeof(quad), STANDIN_PLACE("get_quad")))

DEVICE void wait_for_kernels_before(void)
{
	standin_machine->wait_for_kernels_before();
}

DEVICE void let_next_kernel_start(void)
{
}

/* ---- arithmetic ---- */

DEVICE float fma_f32(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

DEVICE double fma_f64(double a, double b, double c)
{
	return __builtin_fma(a, b, c);
}

DEVICE float sqrt_f32(float a)
{
	return __builtin_sqrtf(a);
}

DEVICE double sqrt_f64(double a)
{
	return __builtin_sqrt(a);
}

DEVICE float magnitude_f32(float a)
{
	return __builtin_fabsf(a);
}

DEVICE double magnitude_f64(double a)
{
	return __builtin_fabs(a);
}

DEVICE float at_least_f32(float a, float c)
{
	return a < c ? c : a;
}

DEVICE float at_most_f32(float a, float c)
{
	return a > c ? c : a;
}

DEVICE float reciprocal_f32(float a)
{
	return a > 0x1p126f ? 0 : 1 / a;
}

DEVICE double reciprocal_f64(double a)
{
	return a > 0x1p1022 ? 0 : 1 / a;
}

DEVICE float f32_of_bits(u32 bits)
{
	return ek_float_of_bits(bits);
}

DEVICE u32 bits_of_f32(float value)
{
	return ek_bits_of_float(value);
}

DEVICE double f64_of_bits(u32 low, u32 high)
{
	u64 bits = (u64)high << 32 | low;
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

DEVICE u32 low_bits_of_f64(double value)
{
	u64 bits;
	memcpy(&bits, &value, sizeof bits);
	return (u32)bits;
}

DEVICE u32 high_bits_of_f64(double value)
{
	u64 bits;
	memcpy(&bits, &value, sizeof bits);
	return (u32)(bits >> 32);
}

DEVICE float f32_of_f16(u32 half)
{
	return ek_f16_to_float((u16)half);
}

DEVICE u32 pack_f16(float low, float high)
{
	return ek_float_to_f16(low) | (u32)ek_float_to_f16(high) << 16;
}

DEVICE u32 pack_bf16(float low, float high)
{
	return ek_float_to_bf16(low) | (u32)ek_float_to_bf16(high) << 16;
}

DEVICE u32 shift_right(u32 low, u32 high, u32 bits)
{
	return (u32)(((u64)high << 32 | low) >> (bits & 31));
}

#endif
