/* What ek_open makes and every call reads. Nothing in it changes after ek_open, but inside the pool and the GPU.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CORE_CONTEXT_H
#define EK_CORE_CONTEXT_H

#include "evenkeel.h"

struct ek_backend;
struct ek_gpu;
struct ek_level;
struct ek_pool;

/* The most threads that ek_options.threads may ask for. */
#define EK_MAX_THREADS 4096

struct ek_context {
	const struct ek_backend *backend;
	ek_device device;
	int ordinal;
	char name[96];
	struct ek_gpu *gpu; /* EK_CUDA alone: the rest is the CPU's */
	int threads;
	int64_t nontemporal_bytes;    /* of ek_options.stream_bytes; INT64_MAX: never */
	const struct ek_level *level; /* of CPU kernels */
	struct ek_pool *pool;         /* NULL with one thread or a caller's parallel_for */
	ek_parallel_for parallel_for;
	void *parallel_user;
};

/* Fill in a context that is zero but for device and ordinal: cpu/open.c, gpu/open.c. Options are validated. */
ek_status ek_cpu_open(const ek_options *options, ek_context *ctx);
ek_status ek_cuda_open(const ek_options *options, ek_context *ctx);

#endif
