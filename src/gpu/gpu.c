/* Opening a GPU and speaking to it: contexts, errors, names for profilers. Called by open.c, describe.c, plan.c
 * and kernel.c. SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/require.h"
#include "kernel.h"
#include "gpu/cuda/nvtx.h"
#include "table.h"

enum {
	OVERLAP_ARCH = 90,      /* programmatic dependent launch … */
	OVERLAP_DRIVER = 12030, /* … also where a stream is captured */
};

/* ---- errors ---- */

/* Those after which CUDA's documentation says that the context, or the process, is of no more use. */
static bool is_sticky(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
		return true;
	default:
		return result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED;
	}
}

ek_status ek_gpu_fail_sticky(struct ek_gpu *gpu)
{
	return ek_fail(EK_ERROR_CUDA, "the CUDA context on GPU %d is unusable after %s; restart the process",
		       gpu->ordinal, ek_driver_error(gpu->driver, atomic_load(&gpu->sticky)));
}

ek_status ek_gpu_fail(struct ek_gpu *gpu, CUresult result, const char *what)
{
	CUresult none = CUDA_SUCCESS;
	bool sticky = is_sticky(result);
	if (sticky)
		(void)atomic_compare_exchange_strong(&gpu->sticky, &none, result);
	return ek_fail(
		result == CUDA_ERROR_OUT_OF_MEMORY ? EK_ERROR_MEMORY : EK_ERROR_CUDA,
		"%s on GPU %d failed: %s%s", what, gpu->ordinal, ek_driver_error(gpu->driver, result),
		sticky ? "; the error comes from an earlier kernel (of any library) or from the GPU, and the "
			 "CUDA context is unusable; restart the process"
		       : "");
}

/* ---- the CUDA context ---- */

ek_status ek_gpu_enter(struct ek_gpu *gpu, bool *pushed)
{
	CUcontext current = NULL;
	*pushed = false;
	CUresult result = gpu->driver->context_current(&current);
	if (result == CUDA_SUCCESS && current == gpu->context)
		return EK_OK;
	if (result == CUDA_SUCCESS)
		result = gpu->driver->context_push(gpu->context);
	if (result != CUDA_SUCCESS)
		return ek_gpu_fail(gpu, result, "entering the CUDA context");
	*pushed = true;
	return EK_OK;
}

void ek_gpu_leave(struct ek_gpu *gpu, bool pushed)
{
	CUcontext ours;
	if (pushed)
		(void)gpu->driver->context_pop(&ours);
}

/* The calling thread's context, where it is on our device: tensors that a program made with it stay usable. */
static CUcontext current_on_device(struct ek_gpu *gpu)
{
	CUcontext current = NULL;
	CUdevice device;
	if (gpu->driver->context_current(&current) != CUDA_SUCCESS || !current ||
	    gpu->driver->context_device(&device) != CUDA_SUCCESS || device != gpu->device)
		return NULL;
	return current;
}

static ek_status retain_primary(struct ek_gpu *gpu)
{
	CUresult result = gpu->driver->primary_retain(&gpu->context, gpu->device);
	if (result != CUDA_SUCCESS)
		return ek_gpu_fail(gpu, result, "making a CUDA context");
	gpu->retained = true;
	return EK_OK;
}

/* The current context: retained where it is the primary one, so that it lives until ek_close; any other is the
 * caller's to keep. The primary one is not made for this comparison, which would take memory of the GPU. */
static ek_status adopt(struct ek_gpu *gpu, CUcontext current)
{
	unsigned flags;
	int active = 0;
	CUresult result = gpu->driver->primary_state(gpu->device, &flags, &active);
	if (result != CUDA_SUCCESS)
		return ek_gpu_fail(gpu, result, "asking for the primary CUDA context");
	ek_status status = active ? retain_primary(gpu) : EK_OK;
	if (status != EK_OK || gpu->context == current)
		return status;
	if (gpu->retained)
		(void)gpu->driver->primary_release(gpu->device);
	gpu->retained = false;
	gpu->context = current;
	return EK_OK;
}

static ek_status choose_context(struct ek_gpu *gpu)
{
	CUcontext current = current_on_device(gpu);
	return current ? adopt(gpu, current) : retain_primary(gpu);
}

/* ---- what it can do ---- */

static CUresult read_attributes(struct ek_gpu *gpu)
{
	int major = 0, minor = 0, pageable = 0;
	const struct {
		int attribute, *value;
	} wanted[] = {{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
		      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
		      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &gpu->limits.multiprocessors},
		      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &gpu->limits.shared_bytes},
		      {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &pageable}};
	CUresult result = gpu->driver->device_name(gpu->name, sizeof gpu->name, gpu->device);
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && result == CUDA_SUCCESS; i++)
		result = gpu->driver->device_attribute(wanted[i].value, wanted[i].attribute, gpu->device);
	gpu->limits.arch = major * 10 + minor;
	gpu->any_pointers = pageable != 0;
	gpu->overlaps = gpu->limits.arch >= OVERLAP_ARCH && gpu->driver->version >= OVERLAP_DRIVER;
	return result;
}

static ek_status load_driver(struct ek_gpu *gpu)
{
	char why[768];
	ek_status status = ek_driver_get(&gpu->driver);
	if (status == EK_OK)
		return EK_OK;
	(void)snprintf(why, sizeof why, "%s", ek_error(NULL));
	return ek_fail(status, "device EK_CUDA, ordinal %d: %s", gpu->ordinal, why);
}

ek_status ek_gpu_find(struct ek_gpu *gpu)
{
	int count = 0;
	PASS_ON(load_driver(gpu));
	CUresult result = gpu->driver->device_count(&count);
	if (result == CUDA_SUCCESS && gpu->ordinal >= count)
		return ek_fail(EK_ERROR_NO_DEVICE,
			       "device EK_CUDA, ordinal %d: there %s %d GPU%s, counted from 0", gpu->ordinal,
			       count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
	if (result == CUDA_SUCCESS)
		result = gpu->driver->device_get(&gpu->device, gpu->ordinal);
	if (result == CUDA_SUCCESS)
		result = read_attributes(gpu);
	return result == CUDA_SUCCESS ? EK_OK : ek_gpu_fail(gpu, result, "asking for attributes");
}

static ek_status check_arch(const struct ek_gpu *gpu)
{
	REQUIRE(gpu->limits.arch >= EK_OLDEST_ARCH, EK_ERROR_UNSUPPORTED,
		"device EK_CUDA, ordinal %d: %s has compute capability %d.%d, evenkeel needs %d.%d (Ampere) or newer",
		gpu->ordinal, gpu->name, gpu->limits.arch / 10, gpu->limits.arch % 10, EK_OLDEST_ARCH / 10,
		EK_OLDEST_ARCH % 10);
	return EK_OK;
}

/* ---- opening and closing ---- */

static ek_status open_parts(struct ek_gpu *gpu, const ek_options *options)
{
	PASS_ON(ek_gpu_find(gpu));
	PASS_ON(check_arch(gpu));
	PASS_ON(choose_context(gpu));
	gpu->any_pointers = gpu->any_pointers || options->trust_pointers;
	gpu->nvtx = options->nvtx ? ek_nvtx_get() : NULL;
	gpu->ranges = gpu->nvtx != NULL;
	gpu->cache = ek_cache_open(options->cache, options->pack);
	gpu->kernels = ek_table_create();
	if (!gpu->cache || !gpu->kernels)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a context on GPU %d", gpu->ordinal);
	return EK_OK;
}

ek_status ek_gpu_open(const ek_options *options, struct ek_gpu **gpu)
{
	struct ek_gpu *made = calloc(1, sizeof *made);
	if (!made)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a context on GPU %d", options->ordinal);
	made->ordinal = options->ordinal;
	atomic_init(&made->sticky, CUDA_SUCCESS);
	ek_status status = open_parts(made, options);
	if (status == EK_OK)
		*gpu = made;
	else
		ek_gpu_close(made);
	return status;
}

void ek_gpu_close(struct ek_gpu *gpu)
{
	if (!gpu)
		return;
	if (gpu->kernels)
		ek_kernels_unload(gpu);
	ek_cache_close(gpu->cache);
	if (gpu->retained)
		(void)gpu->driver->primary_release(gpu->device);
	free(gpu);
}

/* ---- profilers ---- */

void ek_gpu_range_begin(const struct ek_gpu *gpu, const char *name)
{
	if (gpu->ranges)
		(void)gpu->nvtx->push(name);
}

void ek_gpu_range_end(const struct ek_gpu *gpu)
{
	if (gpu->ranges)
		(void)gpu->nvtx->pop();
}
