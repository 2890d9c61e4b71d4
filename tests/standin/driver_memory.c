/* The stand-in driver's memory: the host's, with an end that AddressSanitizer sees, and a list that tells it from
 * other memory. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_parts.h"
#include "memory.h"

static _Atomic size_t bytes_in_use;

static size_t total_bytes(void)
{
	return (size_t)calls_setting("EVENKEEL_STANDIN_MEMORY", 16 << 20) << 10;
}

struct memory {
	struct object object;
	unsigned char *data;
	size_t bytes;
	CUdevice device;
};

static bool covers(const struct object *object, const void *wanted)
{
	const struct memory *memory = (const struct memory *)object;
	const struct memory_range *range = wanted;
	size_t offset = (uintptr_t)range->start - (uintptr_t)memory->data;
	return offset <= memory->bytes && memory->bytes - offset >= range->bytes;
}

static struct memory *find(const void *start, size_t bytes)
{
	struct memory_range range = {start, bytes};
	return (struct memory *)object_find(KIND_MEMORY, covers, &range);
}

/* A kernel asks at each access: the ranges found last are looked at first, as long as nothing is freed. */
enum { REMEMBERED = 8 };
static struct memory_range remembered[REMEMBERED];
static int newest;
static _Atomic bool outdated;

const struct memory_range *memory_range_of(const void *address, size_t bytes)
{
	if (outdated) {
		memset(remembered, 0, sizeof(remembered));
		outdated = false;
	}
	for (int i = 0; i < REMEMBERED; i++) {
		const struct memory_range *range = &remembered[(newest + i) % REMEMBERED];
		size_t offset = (uintptr_t)address - (uintptr_t)range->start;
		if (offset < range->bytes && range->bytes - offset >= bytes)
			return range;
	}
	const struct memory *memory = find(address, bytes);
	if (!memory)
		return NULL;
	newest = (newest + REMEMBERED - 1) % REMEMBERED;
	remembered[newest] = (struct memory_range){memory->data, memory->bytes};
	return &remembered[newest];
}

/* Is a range within `bytes` of an allocation's ends? */
static bool is_near(const struct object *object, const void *wanted)
{
	const struct memory *memory = (const struct memory *)object;
	const struct memory_range *range = wanted;
	return (uintptr_t)range->start + range->bytes - (uintptr_t)memory->data <=
	       memory->bytes + 2 * range->bytes;
}

const char *memory_describe(const void *address)
{
	static char text[120];
	const struct memory *memory = NULL;
	for (size_t distance = 16; !memory && distance <= 4096; distance *= 16) {
		struct memory_range range = {address, distance};
		memory = (const struct memory *)object_find(KIND_MEMORY, is_near, &range);
	}
	if (!memory)
		return "";
	(void)snprintf(text, sizeof(text), ": byte %lld of an allocation of %zu",
		       (long long)((intptr_t)address - (intptr_t)memory->data), memory->bytes);
	return text;
}

static void free_memory(struct object *object)
{
	struct memory *memory = (struct memory *)object;
	outdated = true;
	bytes_in_use -= memory->bytes;
	free(memory->data);
	free(memory);
}

CUresult driver_memory_alloc(CUdeviceptr *pointer, size_t bytes)
{
	ENTER(memory_alloc, NEEDS_PEACE);
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes_in_use > total_bytes() || bytes > total_bytes() - bytes_in_use)
		return CUDA_ERROR_OUT_OF_MEMORY;
	void *data = NULL;
	if (posix_memalign(&data, 256, bytes) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct memory *memory = object_create(KIND_MEMORY, sizeof(*memory), free_memory);
	if (!memory) {
		free(data);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memset(data, POISON, bytes);
	memory->device = context_current()->device;
	memory->data = data;
	memory->bytes = bytes;
	bytes_in_use += bytes;
	object_list(memory);
	*pointer = (CUdeviceptr)(uintptr_t)data;
	return CUDA_SUCCESS;
}

static bool starts_at(const struct object *object, const void *wanted)
{
	return ((const struct memory *)object)->data == wanted;
}

CUresult driver_memory_free(CUdeviceptr pointer)
{
	ENTER(memory_free, NEEDS_PEACE);
	struct object *object = object_find(KIND_MEMORY, starts_at, (const void *)(uintptr_t)pointer);
	if (pointer && !object)
		return CUDA_ERROR_INVALID_VALUE;
	if (object)
		object_destroy(object);
	return CUDA_SUCCESS;
}

CUresult driver_memory_info(size_t *free_bytes, size_t *total)
{
	ENTER(memory_info, NEEDS_CONTEXT);
	*total = total_bytes();
	*free_bytes = *total > bytes_in_use ? *total - bytes_in_use : 0;
	return CUDA_SUCCESS;
}

CUresult driver_device_memory(size_t *bytes, CUdevice device)
{
	ENTER(device_memory, NEEDS_INIT);
	if (!device_is(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = total_bytes();
	return CUDA_SUCCESS;
}

CUresult driver_pointer_attribute(void *value, int attribute, CUdeviceptr pointer)
{
	ENTER(pointer_attribute, NEEDS_HEALTH);
	const struct memory *memory = find((const void *)(uintptr_t)pointer, 1);
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned *)value = CU_MEMORYTYPE_DEVICE;
	else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
		*(int *)value = memory->device;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult driver_copy_to_device(CUdeviceptr to, const void *from, size_t bytes)
{
	ENTER(copy_to_device, NEEDS_PEACE);
	if (!find((const void *)(uintptr_t)to, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

CUresult driver_copy_to_host(void *to, CUdeviceptr from, size_t bytes)
{
	ENTER(copy_to_host, NEEDS_PEACE);
	if (!find((const void *)(uintptr_t)from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to, (const void *)(uintptr_t)from, bytes);
	return CUDA_SUCCESS;
}

CUresult driver_fill_bytes(CUdeviceptr to, unsigned char value, size_t bytes)
{
	ENTER(fill_bytes, NEEDS_PEACE);
	if (!find((const void *)(uintptr_t)to, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memset((void *)(uintptr_t)to, value, bytes);
	return CUDA_SUCCESS;
}
