/* The words that kernels are written in: everything that is PTX or CUDA C++ is in this file, and the kernels
 * themselves are the common subset of C and C++. Tests put a file of the same words in plain C in its
 * place (EK_WORDS) and run the kernels on the CPU. No includes: they would cost more than the compilation.
 * SPDX-License-Identifier: MIT */

#ifndef EK_WORDS

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
/* A kernel of one parameter, the struct a; threads of a block and blocks that shall fit a multiprocessor. */
#define KERNEL(name, threads, blocks, arguments) \
	extern "C" __global__ void __launch_bounds__(threads, blocks) name(const struct arguments a)
#define PRAGMA(text) _Pragma(#text)
#define UNROLL PRAGMA(unroll)
#define NO_UNROLL PRAGMA(unroll 1)

/* 16 bytes: what one access moves. */
typedef struct __align__(16) {
	u32 w[4];
} quad;

/* ---- where a thread is; blocks and grids have one dimension ---- */

DEVICE int thread_index(void)
{
	return (int)threadIdx.x;
}

DEVICE i64 block_index(void)
{
	return (i64)blockIdx.x;
}

DEVICE i64 block_count(void)
{
	return (i64)gridDim.x;
}

/* Of the block in its cluster. */
DEVICE int cluster_rank(void)
{
	u32 rank;
	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return (int)rank;
}

/* ---- global memory; addresses of quads are multiples of 16 ---- */

/* Read once. */
DEVICE quad load_once(const void *from)
{
	quad v;
	asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "l"(from)
		     : "memory");
	return v;
}

/* Read by many blocks and not written by this kernel. Not ld.global.nc, which needs memory that is read-only during
 * the kernel's lifetime: with programmatic dependent launch the kernel before may still write it. */
DEVICE quad load_shared_by_all(const void *from)
{
	quad v;
	/* volatile: loaded where it is written, not ahead, where it would take registers from the rows */
	asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "l"(from));
	return v;
}

DEVICE u64 load_shared_by_all_8(const void *from)
{
	u64 v;
	asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(from));
	return v;
}

/* 8 bytes, read once; their address is a multiple of 8. */
DEVICE u64 load_once_8(const void *from)
{
	u64 v;
	asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
	return v;
}

/* Not read again soon. */
DEVICE void store_once_8(void *to, u64 v)
{
	asm volatile("st.global.cs.u64 [%0], %1;" : : "l"(to), "l"(v) : "memory");
}

DEVICE void store_once(void *to, quad v)
{
	asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(to), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
		     : "memory");
}

/* Read by the next kernel. */
DEVICE void store_kept(void *to, quad v)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "l"(to), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
		     : "memory");
}

DEVICE void store_kept_8(void *to, u64 v)
{
	asm volatile("st.global.u64 [%0], %1;" : : "l"(to), "l"(v) : "memory");
}

/* Written by the kernel before, where results go out by store_kept. SwiGLU 4096x4096, beside a copy:
 * 1.05 forward and 1.02 backward; load_once with either store .99 and .97. */
DEVICE quad load_kept(const void *from)
{
	quad v;
	asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "l"(from)
		     : "memory");
	return v;
}

DEVICE u64 load_kept_8(const void *from)
{
	u64 v;
	asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
	return v;
}

/* One number: in global memory or, where a pointer may be either, in shared memory. */
#define load_one(type, from) (*(const type *)(from))
#define store_one(type, to, value) (*(type *)(to) = (value))

/* ---- shared memory: all of it is dynamic, and each kernel lays out its own ---- */

DEVICE u8 *shared_memory(void)
{
	extern __shared__ __align__(128) u8 shared[];
	return shared;
}

/* An asynchronous copy of 16 bytes from global to shared memory. */
DEVICE void fetch(void *to_shared, const void *from)
{
	u32 to = (u32)__cvta_generic_to_shared(to_shared);
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

/* The same of 8 bytes. */
DEVICE void fetch_8(void *to_shared, const void *from)
{
	u32 to = (u32)__cvta_generic_to_shared(to_shared);
	asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8;" : : "r"(to), "l"(from) : "memory");
}

/* The same of the first `bytes` (0 to 16), the rest zeros. */
DEVICE void fetch_some(void *to_shared, const void *from, int bytes)
{
	u32 to = (u32)__cvta_generic_to_shared(to_shared);
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

DEVICE void fetch_some_8(void *to_shared, const void *from, int bytes)
{
	u32 to = (u32)__cvta_generic_to_shared(to_shared);
	asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" : : "r"(to), "l"(from), "r"(bytes) : "memory");
}

/* A quad of shared memory, read where it is written: the compiler may not keep it instead for a later look. */
DEVICE quad load_fetched(const void *shared)
{
	u32 from = (u32)__cvta_generic_to_shared(shared);
	quad v;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "r"(from)
		     : "memory");
	return v;
}

/* Ends a group of fetches of this thread. */
DEVICE void fetch_close(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits for all groups of this thread but the newest `open`, a constant. */
#define FETCH_WAIT(open) asm volatile("cp.async.wait_group %0;" : : "n"(open) : "memory")

/* ---- meeting others ---- */

DEVICE float shuffle_xor_f32(float value, int mask)
{
	return __shfl_xor_sync(~0u, value, mask);
}

DEVICE double shuffle_xor_f64(double value, int mask)
{
	return __shfl_xor_sync(~0u, value, mask);
}

DEVICE void sync_warp(void)
{
	__syncwarp();
}

DEVICE void sync_block(void)
{
	__syncthreads();
}

/* Some warps of a block: barrier 1 to 15, and how many threads meet there. */
DEVICE void sync_some(int barrier, int threads)
{
	asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

/* All threads of a cluster; what was written to any of its shared memory is seen after it. It waits for stores to global
 * memory, too, which takes long. */
DEVICE void sync_cluster(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" : : : "memory");
#endif
}

/* A mbarrier, in shared memory, counts the bytes that blocks of the cluster send; a round is over when so many have come as
 * one thread of its block said it expects. */
DEVICE void mbarrier_make(u64 *box)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;"
		     :
		     : "r"((u32)__cvta_generic_to_shared(box))
		     : "memory");
}

DEVICE void mbarrier_expect(u64 *box, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
		     :
		     : "r"((u32)__cvta_generic_to_shared(box)), "r"(bytes)
		     : "memory");
}

/* Round 0 is the first; all threads of a warp wait. */
DEVICE void mbarrier_wait(u64 *box, int round)
{
	asm volatile("{.reg .pred over;\n"
		     "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
		     "@!over bra again;}"
		     :
		     : "r"((u32)__cvta_generic_to_shared(box)), "r"(round & 1)
		     : "memory");
}

/* No word, used here alone: the same place in the shared memory of block `rank` of the cluster. */
static __device__ __forceinline__ u32 place_in_block(const void *own, int rank)
{
	u32 local = (u32)__cvta_generic_to_shared(own), remote;
	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
	return remote;
}

/* Into the shared memory of block `rank`, at the place that is `to` in our own; box likewise. */
DEVICE void send_f32(float *to, int rank, float value, u64 *box)
{
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
		     :
		     : "r"(place_in_block(to, rank)), "f"(value), "r"(place_in_block(box, rank))
		     : "memory");
}

DEVICE void send_f64(double *to, int rank, double value, u64 *box)
{
	asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f64 [%0], %1, [%2];"
		     :
		     : "r"(place_in_block(to, rank)), "d"(value), "r"(place_in_block(box, rank))
		     : "memory");
}

/* Reads from the shared memory of block `rank`. */
DEVICE quad get_quad(const void *from, int rank)
{
	quad v;
	asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : "r"(place_in_block(from, rank))
		     : "memory");
	return v;
}

/* Programmatic dependent launch: before the first access to global memory, wait for the kernels before; let
 * those after us be launched, as far as there is room (they wait likewise). */
DEVICE void wait_for_kernels_before(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

DEVICE void let_next_kernel_start(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* ---- arithmetic: the contract's, exact ---- */

DEVICE float fma_f32(float a, float b, float c)
{
	return __fmaf_rn(a, b, c);
}

DEVICE double fma_f64(double a, double b, double c)
{
	return __fma_rn(a, b, c);
}

DEVICE float sqrt_f32(float a)
{
	return __fsqrt_rn(a);
}

DEVICE double sqrt_f64(double a)
{
	return __dsqrt_rn(a);
}

DEVICE float magnitude_f32(float a)
{
	return fabsf(a);
}

DEVICE double magnitude_f64(double a)
{
	return fabs(a);
}

/* a < c ? c : a and a > c ? c : a; NaN stays, +0 is more than -0. */
DEVICE float at_least_f32(float a, float c)
{
	float value;
	asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(c));
	return value;
}

DEVICE float at_most_f32(float a, float c)
{
	float value;
	asm("min.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(c));
	return value;
}

/* 1 / a of a normal number above 0, correctly rounded; +0 where that is subnormal. Two fused multiply-adds after an estimate
 * that errs by an ulp: what `/` does, without its branch for other numbers. tests/gpu_math.c tries every number. */
DEVICE float reciprocal_f32(float a)
{
	float estimate, value;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(a));
	asm("fma.rn.ftz.f32 %0, %1, %2, %1;" : "=f"(value) : "f"(estimate), "f"(__fmaf_rn(-a, estimate, 1.0f)));
	return value;
}

DEVICE double reciprocal_f64(double a)
{
	return a > 0x1p1022 ? 0 : __drcp_rn(a);
}

DEVICE float f32_of_bits(u32 bits)
{
	return __uint_as_float(bits);
}

DEVICE u32 bits_of_f32(float value)
{
	return __float_as_uint(value);
}

DEVICE double f64_of_bits(u32 low, u32 high)
{
	return __hiloint2double((int)high, (int)low);
}

DEVICE u32 low_bits_of_f64(double value)
{
	return (u32)__double2loint(value);
}

DEVICE u32 high_bits_of_f64(double value)
{
	return (u32)__double2hiint(value);
}

DEVICE float f32_of_f16(u32 half) /* in the low 16 bits */
{
	float value;
	asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(value) : "r"(half));
	return value;
}

/* Two numbers rounded to 16 bits, the first in the low half. */
DEVICE u32 pack_f16(float low, float high)
{
	u32 both;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
	return both;
}

DEVICE u32 pack_bf16(float low, float high)
{
	u32 both;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
	return both;
}

/* The low word of high:low shifted right by `bits` (0 to 31). */
DEVICE u32 shift_right(u32 low, u32 high, u32 bits)
{
	return __funnelshift_r(low, high, bits);
}

#endif
