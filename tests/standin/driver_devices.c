/* The stand-in driver's devices and contexts, and the names of its errors. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver_parts.h"

enum { MOST_DEVICES = 8, MOST_PUSHED = 64 };

/* ---- errors ---- */

#define ERRORS(X)                                                                                    \
	X(CUDA_SUCCESS, "no error")                                                                  \
	X(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                              \
	X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                                 \
	X(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                        \
	X(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                          \
	X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                                \
	X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                       \
	X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                                \
	X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                      \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")  \
	X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                      \
	X(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                            \
	X(CUDA_ERROR_NOT_READY, "device not ready")                                                  \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                    \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")             \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")                      \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                                   \
	X(CUDA_ERROR_ASSERT, "device-side assert triggered")                                         \
	X(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")                                   \
	X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                    \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing") \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                                        \
	  "operation would make the legacy stream depend on a capturing stream")                     \
	X(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size")

#define ERROR_ENTRY(code, text) {code, #code, text},
static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {ERRORS(ERROR_ENTRY)};
enum { ERROR_COUNT = sizeof(errors) / sizeof(errors[0]) };

static int error_index(CUresult error)
{
	int i = 0;
	while (i < ERROR_COUNT && errors[i].code != error)
		i++;
	return i;
}

CUresult driver_error_name(CUresult error, const char **name)
{
	ENTER(error_name, NEEDS_NOTHING);
	int i = error_index(error);
	*name = i < ERROR_COUNT ? errors[i].name : NULL;
	return i < ERROR_COUNT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult driver_error_string(CUresult error, const char **text)
{
	ENTER(error_string, NEEDS_NOTHING);
	int i = error_index(error);
	*text = i < ERROR_COUNT ? errors[i].text : NULL;
	return i < ERROR_COUNT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---- */

int device_arch(void)
{
	return calls_setting("EVENKEEL_STANDIN_ARCH", 90);
}

int device_shared_limit(void)
{
	switch (device_arch()) {
	case 80:
	case 87:
		return 163 << 10;
	case 86:
	case 89:
	case 120:
	case 121:
		return 99 << 10;
	case 75:
		return 64 << 10;
	default:
		return 227 << 10;
	}
}

static int device_count(void)
{
	int count = calls_setting("EVENKEEL_STANDIN_DEVICES", 1);
	return count < MOST_DEVICES ? count : MOST_DEVICES;
}

bool device_is(CUdevice device)
{
	return device >= 0 && device < device_count();
}

/* A failure code of a thousand and more is a version. */
CUresult driver_driver_version(int *version)
{
	CUresult entered = driver_enter(driver_names.driver_version, NEEDS_NOTHING);
	if (entered != CUDA_SUCCESS && entered < 1000)
		return entered;
	*version = entered ? entered : 12080;
	return CUDA_SUCCESS;
}

CUresult driver_device_count(int *count)
{
	ENTER(device_count, NEEDS_INIT);
	*count = device_count();
	return CUDA_SUCCESS;
}

CUresult driver_device_get(CUdevice *device, int ordinal)
{
	ENTER(device_get, NEEDS_INIT);
	if (!device_is(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult driver_device_name(char *name, int length, CUdevice device)
{
	ENTER(device_name, NEEDS_INIT);
	if (!device_is(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (length <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)snprintf(name, (size_t)length, "evenkeel stand-in GPU %d", device);
	return CUDA_SUCCESS;
}

CUresult driver_device_attribute(int *value, int attribute, CUdevice device)
{
	ENTER(device_attribute, NEEDS_INIT);
	if (!device_is(device))
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = calls_setting("EVENKEEL_STANDIN_SMS", 132);
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		*value = 50 << 20;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = device_arch() / 10;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = device_arch() % 10;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
		*value = calls_setting("EVENKEEL_STANDIN_PAGEABLE", 0);
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = device_shared_limit();
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- contexts ---- */

static _Thread_local CUcontext pushed[MOST_PUSHED];
static _Thread_local int pushed_count;

static CUcontext top_context(void)
{
	return pushed_count > 0 ? pushed[pushed_count - 1] : NULL;
}

CUcontext context_current(void)
{
	CUcontext context = top_context();
	return object_is(KIND_CONTEXT, context) ? context : NULL;
}

static void free_context(struct object *object)
{
	objects_destroy_of((CUcontext)object);
	free(object);
}

CUcontext standin_context_create(CUdevice device)
{
	CUcontext context = object_create(KIND_CONTEXT, sizeof(*context), free_context);
	if (!context)
		return NULL;
	context->device = device;
	object_list(context);
	return context;
}

void standin_context_destroy(CUcontext context)
{
	object_destroy(context);
}

static bool is_primary_of(const struct object *object, const void *device)
{
	const struct CUctx_st *context = (const struct CUctx_st *)object;
	return context->retained > 0 && context->device == *(const CUdevice *)device;
}

static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult driver_primary_state(CUdevice device, unsigned *flags, int *active)
{
	ENTER(primary_state, NEEDS_INIT);
	if (!device_is(device))
		return CUDA_ERROR_INVALID_DEVICE;
	(void)pthread_mutex_lock(&primary_lock);
	*active = object_find(KIND_CONTEXT, is_primary_of, &device) != NULL;
	(void)pthread_mutex_unlock(&primary_lock);
	*flags = 0;
	return CUDA_SUCCESS;
}

CUresult driver_primary_retain(CUcontext *context, CUdevice device)
{
	ENTER(primary_retain, NEEDS_HEALTH);
	if (!device_is(device))
		return CUDA_ERROR_INVALID_DEVICE;
	(void)pthread_mutex_lock(&primary_lock);
	CUcontext primary = (CUcontext)object_find(KIND_CONTEXT, is_primary_of, &device);
	if (!primary)
		primary = standin_context_create(device);
	if (primary)
		primary->retained++;
	(void)pthread_mutex_unlock(&primary_lock);
	*context = primary;
	return primary ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult driver_primary_release(CUdevice device)
{
	ENTER(primary_release, NEEDS_INIT);
	(void)pthread_mutex_lock(&primary_lock);
	CUcontext primary = (CUcontext)object_find(KIND_CONTEXT, is_primary_of, &device);
	if (primary && --primary->retained == 0)
		object_destroy(primary);
	(void)pthread_mutex_unlock(&primary_lock);
	return primary ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult driver_context_current(CUcontext *context)
{
	ENTER(context_current, NEEDS_INIT);
	*context = top_context();
	return CUDA_SUCCESS;
}

CUresult driver_context_device(CUdevice *device)
{
	ENTER(context_device, NEEDS_INIT);
	CUcontext context = context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult driver_context_push(CUcontext context)
{
	ENTER(context_push, NEEDS_INIT);
	if (!object_is(KIND_CONTEXT, context) || pushed_count == MOST_PUSHED)
		return CUDA_ERROR_INVALID_CONTEXT;
	pushed[pushed_count++] = context;
	return CUDA_SUCCESS;
}

CUresult driver_context_pop(CUcontext *context)
{
	ENTER(context_pop, NEEDS_INIT);
	if (pushed_count == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	pushed_count--;
	if (context)
		*context = pushed[pushed_count];
	return CUDA_SUCCESS;
}

CUresult driver_context_synchronize(void)
{
	ENTER(context_synchronize, NEEDS_PEACE);
	return CUDA_SUCCESS;
}
