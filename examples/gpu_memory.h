/* Memory on an NVIDIA GPU for programs that are not linked with CUDA: its driver's functions, found at run
 * time. A program that is linked with CUDA calls cudaMalloc and cudaMemcpy instead, and needs none of this.
 * SPDX-License-Identifier: MIT */
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* X(name, symbol, parameters), as cuda.h declares them. */
#define GPU_FUNCTIONS(X)                                                                   \
	X(init, "cuInit", (unsigned flags))                                                \
	X(device, "cuDeviceGet", (int *device, int ordinal))                               \
	X(retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                \
	X(enter, "cuCtxPushCurrent_v2", (void *context))                                   \
	X(synchronize, "cuCtxSynchronize", (void))                                         \
	X(allocate, "cuMemAlloc_v2", (unsigned long long *pointer, size_t bytes))          \
	X(release, "cuMemFree_v2", (unsigned long long pointer))                           \
	X(put, "cuMemcpyHtoD_v2", (unsigned long long to, const void *from, size_t bytes)) \
	X(get, "cuMemcpyDtoH_v2", (void *to, unsigned long long from, size_t bytes))

struct gpu {
#define GPU_FIELD(name, symbol, parameters) int(*name) parameters;
	GPU_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
};

/* Ends the program where the driver refuses. */
static void gpu_check(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "CUDA's driver refuses %s: error %d\n", what, result);
	exit(1);
}

/* Makes the primary context of the GPU current for the calling thread: the one that ek_open uses too. */
static void gpu_open(struct gpu *gpu, int ordinal)
{
	const char *file = getenv("EVENKEEL_LIBCUDA");
	void *library = dlopen(file ? file : "libcuda.so.1", RTLD_NOW);
	void *context = NULL;
	int device = 0;
#define GPU_FIND(name, symbol, parameters)                              \
	*(void **)&gpu->name = library ? dlsym(library, symbol) : NULL; \
	gpu_check(!gpu->name, symbol);
	GPU_FUNCTIONS(GPU_FIND)
#undef GPU_FIND
	gpu_check(gpu->init(0), "cuInit");
	gpu_check(gpu->device(&device, ordinal), "cuDeviceGet");
	gpu_check(gpu->retain(&context, device), "cuDevicePrimaryCtxRetain");
	gpu_check(gpu->enter(context), "cuCtxPushCurrent");
}

static void *gpu_allocate(const struct gpu *gpu, size_t bytes)
{
	unsigned long long pointer = 0;
	gpu_check(gpu->allocate(&pointer, bytes ? bytes : 1), "cuMemAlloc");
	return (void *)(uintptr_t)pointer;
}

static void gpu_free(const struct gpu *gpu, void *memory)
{
	gpu_check(gpu->release((uintptr_t)memory), "cuMemFree");
}

static void gpu_put(const struct gpu *gpu, void *to, const void *from, size_t bytes)
{
	gpu_check(gpu->put((uintptr_t)to, from, bytes), "cuMemcpyHtoD");
}

/* Waits for what was launched on the default stream. */
static void gpu_get(const struct gpu *gpu, void *to, const void *from, size_t bytes)
{
	gpu_check(gpu->get(to, (uintptr_t)from, bytes), "cuMemcpyDtoH");
}

static void gpu_synchronize(const struct gpu *gpu)
{
	gpu_check(gpu->synchronize(), "cuCtxSynchronize");
}

#endif
