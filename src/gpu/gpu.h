/* A GPU as a context holds it: opened by ek_open, entered by every call. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_GPU_H
#define EK_CUDA_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache.h"
#include "gpu/cuda/driver.h"
#include "limits.h"

struct ek_nvtx;
struct ek_table;

/* The oldest compute capability that the kernels run on, 8.0: asynchronous copies and bf16. */
enum { EK_OLDEST_ARCH = 80 };

struct ek_gpu {
	const struct ek_driver *driver;
	int ordinal;
	CUdevice device;
	CUcontext context;
	bool retained; /* the context is the primary one, and ek_gpu_close releases it */
	struct ek_gpu_limits limits;
	bool overlaps;     /* kernels may start while the one before ends (programmatic dependent launch) */
	bool any_pointers; /* not looked up: the GPU reads pageable host memory, or ek_options.trust_pointers */
	bool ranges;       /* calls are named in profilers: nvtx is there */
	const struct ek_nvtx *nvtx;
	char name[96];
	struct ek_cache *cache;
	struct ek_table *kernels; /* in memory */
	_Atomic(CUresult) sticky; /* an error that the CUDA context does not recover from; 0: none */
};

/* Finds gpu->ordinal and reads what the driver says of it; makes no CUDA context. */
ek_status ek_gpu_find(struct ek_gpu *gpu);

/* Opens ordinal: the current CUDA context where it is on that device, else the primary one. The primary one is
 * retained until ek_gpu_close; any other must outlive the ek_gpu. */
ek_status ek_gpu_open(const ek_options *options, struct ek_gpu **gpu);
void ek_gpu_close(struct ek_gpu *gpu); /* NULL is allowed */

/* Makes the GPU's context current for the calling thread, if it is not; leave undoes that. */
ek_status ek_gpu_enter(struct ek_gpu *gpu, bool *pushed);
void ek_gpu_leave(struct ek_gpu *gpu, bool pushed);

/* Turns a CUresult of a call on this GPU into a status and a message that starts with `what`. */
ek_status ek_gpu_fail(struct ek_gpu *gpu, CUresult result, const char *what);

/* EK_ERROR_CUDA once the CUDA context is beyond recovery; every call asks first. */
ek_status ek_gpu_fail_sticky(struct ek_gpu *gpu);
static inline ek_status ek_gpu_check(struct ek_gpu *gpu)
{
	return atomic_load_explicit(&gpu->sticky, memory_order_relaxed) == CUDA_SUCCESS
		       ? EK_OK
		       : ek_gpu_fail_sticky(gpu);
}

/* Names what the calling thread does until the matching end in NVIDIA's profilers, where gpu->ranges. */
void ek_gpu_range_begin(const struct ek_gpu *gpu, const char *name);
void ek_gpu_range_end(const struct ek_gpu *gpu);

#endif
