/* Opening a GPU and speaking to it: contexts, errors, names for profilers. Called by api.c, norm.c and the
 * program's info. SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../status.h"
#include "kernel.h"
#include "nvtx.h"
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
	return ek_fail(
		EK_ERROR_CUDA,
		"the CUDA context on GPU %d is of no more use since %s: end the process and start it anew",
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
		sticky ? "; a kernel before this call (of any library) or the GPU itself is to blame, and the "
			 "CUDA context is of no more use: end the process and start it anew"
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

static CUresult read_arch(const struct ek_driver *driver, CUdevice device, int *arch)
{
	int major = 0, minor = 0;
	CUresult result =
		driver->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	if (result == CUDA_SUCCESS)
		result = driver->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
						  device);
	*arch = major * 10 + minor;
	return result;
}

static CUresult read_attributes(struct ek_gpu *gpu)
{
	const struct {
		int attribute, *value;
	} wanted[] = {{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &gpu->multiprocessors},
		      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &gpu->shared_limit}};
	int pageable = 0;
	CUresult result = read_arch(gpu->driver, gpu->device, &gpu->arch);
	for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++)
		result = gpu->driver->device_attribute(wanted[i].value, wanted[i].attribute, gpu->device);
	if (result == CUDA_SUCCESS)
		result = gpu->driver->device_attribute(&pageable, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
						       gpu->device);
	if (result == CUDA_SUCCESS)
		result = gpu->driver->device_name(gpu->name, sizeof gpu->name, gpu->device);
	gpu->any_pointers = pageable != 0;
	gpu->overlaps = gpu->arch >= OVERLAP_ARCH && gpu->driver->version >= OVERLAP_DRIVER;
	return result;
}

static ek_status find_device(struct ek_gpu *gpu)
{
	int count = 0;
	CUresult result = gpu->driver->device_count(&count);
	if (result == CUDA_SUCCESS && gpu->ordinal >= count)
		return ek_fail(EK_ERROR_NO_DEVICE,
			       "device EK_CUDA, ordinal %d: there %s %d GPU%s, counted from 0", gpu->ordinal,
			       count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
	if (result == CUDA_SUCCESS)
		result = gpu->driver->device_get(&gpu->device, gpu->ordinal);
	if (result == CUDA_SUCCESS)
		result = read_attributes(gpu);
	if (result != CUDA_SUCCESS)
		return ek_gpu_fail(gpu, result, "asking for attributes");
	if (gpu->arch < EK_OLDEST_ARCH)
		return ek_fail(
			EK_ERROR_UNSUPPORTED,
			"device EK_CUDA, ordinal %d: %s has compute capability %d.%d, evenkeel needs %d.%d "
			"(Ampere) or newer",
			gpu->ordinal, gpu->name, gpu->arch / 10, gpu->arch % 10, EK_OLDEST_ARCH / 10,
			EK_OLDEST_ARCH % 10);
	return EK_OK;
}

/* ---- opening and closing ---- */

static ek_status load_driver(struct ek_gpu *gpu)
{
	char why[768];
	ek_status status = ek_driver_get(&gpu->driver);
	if (status == EK_OK)
		return EK_OK;
	(void)snprintf(why, sizeof why, "%s", ek_error(NULL));
	return ek_fail(status, "device EK_CUDA, ordinal %d: %s", gpu->ordinal, why);
}

static ek_status open_parts(struct ek_gpu *gpu, const ek_options *options)
{
	ek_status status = load_driver(gpu);
	if (status == EK_OK)
		status = find_device(gpu);
	if (status == EK_OK)
		status = choose_context(gpu);
	if (status != EK_OK)
		return status;
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

/* ---- what there is ---- */

static CUresult describe(const struct ek_driver *driver, int ordinal, struct ek_gpu_list *list)
{
	CUdevice device = 0;
	char *name = list->gpus[ordinal].name;
	CUresult result = driver->device_get(&device, ordinal);
	if (result == CUDA_SUCCESS)
		result = driver->device_name(name, sizeof list->gpus[ordinal].name, device);
	if (result == CUDA_SUCCESS)
		result = driver->device_memory(&list->gpus[ordinal].memory, device);
	if (result == CUDA_SUCCESS)
		result = read_arch(driver, device, &list->gpus[ordinal].arch);
	if (result == CUDA_SUCCESS)
		result = driver->device_attribute(&list->gpus[ordinal].multiprocessors,
						  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	return result;
}

void ek_gpu_describe_all(struct ek_gpu_list *list)
{
	const struct ek_driver *driver;
	*list = (struct ek_gpu_list){0};
	if (ek_driver_get(&driver) != EK_OK) {
		(void)snprintf(list->missing, sizeof list->missing, "%s", ek_error(NULL));
		return;
	}
	list->driver_version = driver->version;
	CUresult result = driver->device_count(&list->count);
	for (int i = 0; i < list->count && i < EK_GPUS_LISTED && result == CUDA_SUCCESS; i++)
		result = describe(driver, i, list);
	if (result != CUDA_SUCCESS)
		(void)snprintf(list->missing, sizeof list->missing, "the driver answers %s",
			       ek_driver_error(driver, result));
	else if (list->count == 0)
		(void)snprintf(list->missing, sizeof list->missing, "the driver sees no GPU");
}
