/* Memory where a context computes. Called by mirror.c, by the program's bench and by tests of GPUs.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/context.h"
#include "core/status.h"
#include "gpu/gpu.h"

enum { ALIGNMENT = 64 };

struct ek_gpu *gpu_of(const ek_context *ctx)
{
	return ctx->gpu;
}

static CUdeviceptr address_of(const void *memory)
{
	return (CUdeviceptr)(uintptr_t)memory;
}

static void *make_on_gpu(struct ek_gpu *gpu, size_t bytes)
{
	const struct ek_driver *driver = gpu->driver;
	CUdeviceptr memory = 0;
	bool pushed;
	if (ek_gpu_enter(gpu, &pushed) != EK_OK)
		return NULL;
	CUresult result = driver->memory_alloc(&memory, bytes ? bytes : 1);
	if (result == CUDA_SUCCESS && bytes)
		result = driver->fill_bytes(memory, 0, bytes);
	ek_gpu_leave(gpu, pushed);
	if (result == CUDA_SUCCESS)
		return (void *)(uintptr_t)memory;
	(void)ek_gpu_fail(gpu, result, "allocating memory");
	return NULL;
}

void *memory_make(struct ek_gpu *gpu, size_t bytes)
{
	void *memory = NULL;
	if (gpu)
		return make_on_gpu(gpu, bytes);
	if (posix_memalign(&memory, ALIGNMENT, bytes + 1))
		return NULL;
	memset(memory, 0, bytes);
	return memory;
}

void memory_free(struct ek_gpu *gpu, void *memory)
{
	bool pushed;
	if (!gpu) {
		free(memory);
	} else if (memory && ek_gpu_enter(gpu, &pushed) == EK_OK) {
		(void)gpu->driver->memory_free(address_of(memory));
		ek_gpu_leave(gpu, pushed);
	}
}

/* Between the host and where gpu says; there: to the GPU. */
static ek_status transfer(struct ek_gpu *gpu, void *to, const void *from, size_t bytes, bool there)
{
	bool pushed;
	if (bytes == 0)
		return EK_OK;
	if (!gpu) {
		memcpy(to, from, bytes);
		return EK_OK;
	}
	ek_status status = ek_gpu_enter(gpu, &pushed);
	if (status != EK_OK)
		return status;
	CUresult result = there ? gpu->driver->copy_to_device(address_of(to), from, bytes)
				: gpu->driver->copy_to_host(to, address_of(from), bytes);
	ek_gpu_leave(gpu, pushed);
	return result == CUDA_SUCCESS ? EK_OK : ek_gpu_fail(gpu, result, there ? "uploading" : "downloading");
}

ek_status memory_write(struct ek_gpu *gpu, void *to, const void *from, size_t bytes)
{
	return transfer(gpu, to, from, bytes, true);
}

ek_status memory_read(struct ek_gpu *gpu, void *to, const void *from, size_t bytes)
{
	return transfer(gpu, to, from, bytes, false);
}

ek_status memory_repeat(struct ek_gpu *gpu, void *memory, size_t step, int64_t count)
{
	unsigned char *first = memory;
	unsigned char *here = gpu ? malloc(step) : first;
	if (!here)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for %zu bytes", step);
	ek_status status = gpu ? memory_read(gpu, here, first, step) : EK_OK;
	for (int64_t i = 1; i < count && status == EK_OK; i++)
		status = memory_write(gpu, first + step * (size_t)i, here, step);
	if (gpu)
		free(here);
	return status;
}

static bool gpu_suffices(struct ek_gpu *gpu, double bytes)
{
	size_t unused = 0;
	size_t total = 0;
	bool pushed;
	if (ek_gpu_enter(gpu, &pushed) != EK_OK)
		return false;
	bool known = gpu->driver->memory_info(&unused, &total) == CUDA_SUCCESS;
	ek_gpu_leave(gpu, pushed);
	return known && bytes <= 0.9 * (double)unused;
}

bool memory_suffices(struct ek_gpu *gpu, double bytes)
{
	if (gpu)
		return gpu_suffices(gpu, bytes);
	return bytes <= 0.9 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}
