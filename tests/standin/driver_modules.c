/* The stand-in driver's modules: shared libraries that the stand-in NVRTC made, loaded from memory.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver_parts.h"

struct CUmod_st {
	struct object object;
	void *library;
	int file; /* open while it is loaded, for the names in a sanitizer's report; -1: closed */
};

/* Descriptors are few; beyond these, reports have addresses instead of names. */
enum { MOST_FILES_OPEN = 128 };
static _Atomic int files_open;

/* ---- loading ---- */

/* An image comes without its size: an ELF file ends with its table of sections. 0: it is none. */
static size_t image_size(const void *image)
{
	const Elf64_Ehdr *head = image;
	if (strncmp(image, ELFMAG, SELFMAG) != 0 || head->e_type != ET_DYN)
		return 0;
	return head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
}

static bool write_all(int file, const unsigned char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t written = write(file, bytes, count);
		if (written <= 0)
			return false;
		bytes += written;
		count -= (size_t)written;
	}
	return true;
}

/* A GPU runs machine code of its own generation, and PTX of all that came before. */
static bool target_fits(const struct standin_target *target)
{
	int arch = device_arch();
	return arch >= target->arch && (!target->final || arch / 10 == target->arch / 10);
}

static CUresult attach(void *library)
{
	const struct standin_target *target = dlsym(library, "standin_target");
	standin_attach_function *attach_machine = NULL;
	void *symbol = dlsym(library, "standin_attach");
	memcpy(&attach_machine, &symbol,
	       sizeof(symbol)); /* C has no cast from an object to a function pointer */
	if (!target || !attach_machine)
		return CUDA_ERROR_INVALID_IMAGE;
	if (!target_fits(target))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	attach_machine(&emulator_machine);
	return CUDA_SUCCESS;
}

/* dlopen takes equal paths for the same library, and the numbers of descriptors come again: a serial number
 * stands in the path, its binary digits written as "/" and "/.". */
static void write_path(char *path, size_t room, int file)
{
	static _Atomic unsigned modules;
	char digits[72] = "";
	for (unsigned serial = modules++; serial > 0; serial /= 2)
		(void)strcat(digits, serial % 2 ? "/." : "/");
	(void)snprintf(path, room, "/proc/%d/fd%s/%d", (int)getpid(), digits, file);
}

static CUresult load(struct CUmod_st *module, const void *image, size_t bytes)
{
	char path[128];
	if (!write_all(module->file, image, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	write_path(path, sizeof(path), module->file);
	module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (module->library)
		return attach(module->library);
	(void)fprintf(stderr, "standin: %s\n", dlerror());
	return CUDA_ERROR_INVALID_IMAGE;
}

static void close_file(struct CUmod_st *module)
{
	if (module->file < 0)
		return;
	(void)close(module->file);
	module->file = -1;
	files_open--;
}

static bool is_in(const struct object *object, const void *module)
{
	return ((const struct CUfunc_st *)object)->module == module;
}

static void free_module(struct object *object)
{
	struct CUmod_st *module = (struct CUmod_st *)object;
	struct object *function;
	while ((function = object_find(KIND_FUNCTION, is_in, module)))
		object_destroy(function);
	if (module->library)
		(void)dlclose(module->library);
	close_file(module);
	free(module);
}

CUresult driver_module_load(CUmodule *module, const void *image)
{
	ENTER(module_load, NEEDS_PEACE);
	size_t bytes = image ? image_size(image) : 0;
	if (bytes == 0)
		return image ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_INVALID_VALUE;
	struct CUmod_st *loaded = object_create(KIND_MODULE, sizeof(*loaded), free_module);
	if (!loaded)
		return CUDA_ERROR_OUT_OF_MEMORY;
	loaded->file = memfd_create("evenkeel-kernel", MFD_CLOEXEC);
	files_open += loaded->file >= 0;
	CUresult result = load(loaded, image, bytes);
	if (files_open > MOST_FILES_OPEN)
		close_file(loaded);
	object_list(loaded);
	if (result != CUDA_SUCCESS)
		object_destroy(loaded);
	else
		*module = loaded;
	return result;
}

CUresult driver_module_unload(CUmodule module)
{
	ENTER(module_unload, NEEDS_CONTEXT);
	return object_end(KIND_MODULE, module, CUDA_ERROR_INVALID_HANDLE);
}

/* ---- functions ---- */

CUresult driver_module_function(CUfunction *function, CUmodule module, const char *name)
{
	ENTER(module_function, NEEDS_CONTEXT);
	if (!object_is(KIND_MODULE, module))
		return CUDA_ERROR_INVALID_HANDLE;
	const struct standin_kernel *kernel = dlsym(module->library, name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	CUfunction found = object_create(KIND_FUNCTION, sizeof(*found), NULL);
	if (!found)
		return CUDA_ERROR_OUT_OF_MEMORY;
	found->module = module;
	found->kernel = kernel;
	found->shared_limit = DEFAULT_SHARED_LIMIT;
	(void)snprintf(found->name, sizeof(found->name), "%s", name);
	object_list(found);
	*function = found;
	return CUDA_SUCCESS;
}

CUresult driver_function_attribute(int *value, int attribute, CUfunction function)
{
	ENTER(function_attribute, NEEDS_CONTEXT);
	if (!object_is(KIND_FUNCTION, function))
		return CUDA_ERROR_INVALID_HANDLE;
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = 64;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = function->shared_limit;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = function->large_clusters;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult driver_function_set(CUfunction function, int attribute, int value)
{
	ENTER(function_set, NEEDS_CONTEXT);
	if (!object_is(KIND_FUNCTION, function))
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 &&
	    value <= device_shared_limit())
		function->shared_limit = value;
	else if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED && device_arch() >= 90)
		function->large_clusters = value != 0;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}
