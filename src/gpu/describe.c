/* ek_describe_cuda and ek_describe_gpu: what EK_CUDA finds, without making a CUDA context.
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "core/versions.h"
#include "gpu.h"
#include "gpu/cuda/nvrtc.h"

static void count_gpus(ek_cuda_info *info)
{
	const struct ek_driver *driver;
	if (ek_driver_get(&driver) != EK_OK) {
		(void)snprintf(info->gpu_missing, sizeof info->gpu_missing, "%s", ek_error(NULL));
		return;
	}
	info->driver_version = driver->version;
	CUresult result = driver->device_count(&info->gpu_count);
	if (result != CUDA_SUCCESS)
		(void)snprintf(info->gpu_missing, sizeof info->gpu_missing, "the driver answers %s",
			       ek_driver_error(driver, result));
	else if (info->gpu_count == 0)
		(void)snprintf(info->gpu_missing, sizeof info->gpu_missing, "the driver sees no GPU");
}

ek_status ek_describe_cuda(ek_cuda_info *info)
{
	struct ek_nvrtc_info nvrtc;
	REQUIRE(info, EK_ERROR_ARGUMENT, "info is NULL: give the address of an ek_cuda_info");
	REQUIRE_SIZE(info->size, ek_cuda_info);
	ek_cuda_info found = {.size = info->size};
	count_gpus(&found);
	ek_nvrtc_describe(&nvrtc);
	found.nvrtc_version = nvrtc.version;
	memcpy(found.nvrtc_missing, nvrtc.missing, sizeof nvrtc.missing);
	memcpy(found.nvrtc_path, nvrtc.path, sizeof nvrtc.path);
	memcpy(info, &found, found.size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}

ek_status ek_describe_gpu(int ordinal, ek_gpu_info *info)
{
	struct ek_gpu gpu = {.ordinal = ordinal};
	size_t memory = 0;
	REQUIRE(info, EK_ERROR_ARGUMENT, "info is NULL: give the address of an ek_gpu_info");
	REQUIRE_SIZE(info->size, ek_gpu_info);
	REQUIRE(ordinal >= 0, EK_ERROR_ARGUMENT, "ordinal (%d) must not be negative", ordinal);
	PASS_ON(ek_gpu_find(&gpu));
	CUresult result = gpu.driver->device_memory(&memory, gpu.device);
	if (result != CUDA_SUCCESS)
		return ek_gpu_fail(&gpu, result, "asking for attributes");
	ek_gpu_info found = {.size = info->size,
			     .ordinal = ordinal,
			     .arch = gpu.limits.arch,
			     .multiprocessors = gpu.limits.multiprocessors,
			     .usable = gpu.limits.arch >= EK_OLDEST_ARCH,
			     .memory = (int64_t)memory};
	memcpy(found.name, gpu.name, sizeof gpu.name);
	memcpy(info, &found, found.size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}
