/* What ek_open makes and every call reads. Nothing in it changes after ek_open, but inside the pool.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CONTEXT_H
#define EK_CONTEXT_H

#include "evenkeel.h"

struct ek_gpu;
struct ek_level;
struct ek_pool;

struct ek_context {
	ek_device device;
	int ordinal;
	struct ek_gpu *gpu; /* EK_CUDA alone: the rest is the CPU's */
	int threads;
	int64_t stream_bytes;         /* INT64_MAX: never */
	const struct ek_level *level; /* CPU kernels */
	struct ek_pool *pool;         /* NULL with one thread or a caller's parallel_for */
	ek_parallel_for parallel_for;
	void *parallel_user;
	char name[96];
};

#endif
