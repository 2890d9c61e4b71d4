/* From a recipe to a function on the GPU. A key that is in memory costs a look-up in a table; otherwise the image
 * comes from the pack, the cache's folder or NVRTC. Threads make kernels of different keys at the same time, and a
 * kernel that several of them want once. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "hash.h"
#include "table.h"

/* ---- keys on disk ---- */

/* Two hashes with different starts: 128 bits stand for the texts. */
static void hash_texts(const struct ek_recipe *recipe, uint64_t hashes[2])
{
	hashes[0] = EK_HASH_START;
	hashes[1] = ~EK_HASH_START;
	for (int i = 0; i < recipe->text_count; i++)
		for (int h = 0; h < 2; h++)
			hashes[h] = ek_hash(hashes[h], recipe->texts[i], strlen(recipe->texts[i]));
}

/* All that makes an image, but the compiler's version: the key in packs, which serve where there is no compiler.
 * malloc; NULL without memory. */
static char *pack_key(const struct ek_recipe *recipe, int arch)
{
	char *key = NULL;
	size_t size = 0;
	uint64_t hashes[2];
	FILE *text = open_memstream(&key, &size);
	if (!text)
		return NULL;
	hash_texts(recipe, hashes);
	(void)fprintf(text, "%s arch=%d numerics=%d texts=%016" PRIx64 "%016" PRIx64, recipe->name, arch,
		      EK_NUMERICS_VERSION, hashes[0], hashes[1]);
	for (int i = 0; i < recipe->option_count; i++)
		(void)fprintf(text, " %s", recipe->options[i]);
	for (int i = 0; ek_nvrtc_contract[i][0]; i++)
		(void)fprintf(text, " %s", ek_nvrtc_contract[i]);
	if (fclose(text) != 0) {
		free(key);
		return NULL;
	}
	return key;
}

/* The key in the folder: with the compiler's version. malloc; NULL without memory. */
static char *folder_key(const char *key, int nvrtc_version)
{
	size_t size = strlen(key) + 32;
	char *longer = malloc(size);
	if (longer)
		(void)snprintf(longer, size, "%s nvrtc=%d", key, nvrtc_version);
	return longer;
}

/* ---- images ---- */

static char *join_texts(const struct ek_recipe *recipe)
{
	size_t size = 1;
	for (int i = 0; i < recipe->text_count; i++)
		size += strlen(recipe->texts[i]);
	char *joined = malloc(size);
	char *end = joined;
	for (int i = 0; joined && i < recipe->text_count; i++) {
		size_t length = strlen(recipe->texts[i]);
		memcpy(end, recipe->texts[i], length);
		end += length;
	}
	if (joined)
		*end = '\0';
	return joined;
}

static ek_status fail_memory(const struct ek_recipe *recipe)
{
	return ek_fail(EK_ERROR_MEMORY, "out of memory while compiling %s", recipe->name);
}

static ek_status compile(const struct ek_recipe *recipe, int arch, struct ek_image *image, char **log)
{
	const char *options[EK_RECIPE_OPTIONS];
	if (recipe->too_long)
		return ek_fail(EK_ERROR_COMPILE,
			       "the recipe of %s has more texts or options than there is room for",
			       recipe->name);
	char *text = join_texts(recipe);
	if (!text)
		return fail_memory(recipe);
	for (int i = 0; i < recipe->option_count; i++)
		options[i] = recipe->options[i];
	ek_status status =
		ek_nvrtc_compile(recipe->name, text, options, recipe->option_count, arch, image, log);
	free(text);
	return status;
}

/* Adds to the message of a failed compilation where the whole log is. */
static ek_status explain_log(ek_status status, const struct ek_recipe *recipe, struct ek_cache *cache,
			     const char *log)
{
	char why[768], path[640];
	(void)snprintf(why, sizeof why, "%s", ek_error(NULL));
	if (!ek_cache_put_log(cache, recipe->name, log, path, sizeof path))
		return status;
	return ek_fail(status, "%s; all that it said is in %s", why, path);
}

/* Without a compiler the pack was the hope: adds why it was none. */
static ek_status explain_pack(ek_status status, struct ek_cache *cache)
{
	char why[768];
	struct ek_cache_info info;
	(void)snprintf(why, sizeof why, "%s", ek_error(NULL));
	ek_cache_describe(cache, &info);
	if (info.pack_why_not[0])
		return ek_fail(status, "%s; the pack does not help: %s", why, info.pack_why_not);
	if (info.pack[0])
		return ek_fail(status, "%s; the pack %s has no such kernel", why, info.pack);
	return status;
}

/* Where an image came from: one of ours on disk may be refused by the driver and compiled again. */
enum source { FROM_DISK, FROM_COMPILER };

/* key: pack_key's. With FROM_COMPILER in *source the disk is passed by. cache may be NULL. */
static ek_status find_image(const struct ek_recipe *recipe, int arch, struct ek_cache *cache, const char *key,
			    enum source *source, struct ek_image *image, char **log)
{
	struct ek_nvrtc_info nvrtc;
	bool cached = cache && *source == FROM_DISK;
	if (cached && ek_cache_get_packed(cache, key, image))
		return EK_OK;
	ek_nvrtc_describe(&nvrtc);
	char *kept_as = folder_key(key, nvrtc.version);
	if (!kept_as)
		return fail_memory(recipe);
	ek_status status = EK_OK;
	if (!cached || !ek_cache_get(cache, kept_as, image)) {
		*source = FROM_COMPILER;
		status = compile(recipe, arch, image, log);
		if (status == EK_OK && cache)
			ek_cache_put(cache, kept_as, image);
		else if (cache && *log)
			status = explain_log(status, recipe, cache, *log);
		else if (cached)
			status = explain_pack(status, cache);
	}
	free(kept_as);
	return status;
}

ek_status ek_kernel_build(const struct ek_recipe *recipe, int arch, struct ek_cache *cache,
			  struct ek_image *image, char **cache_key, char **log)
{
	char *said = NULL;
	enum source source = FROM_DISK;
	char *key = pack_key(recipe, arch);
	if (!key)
		return fail_memory(recipe);
	ek_status status = find_image(recipe, arch, cache, key, &source, image, &said);
	if (log)
		*log = said;
	else
		free(said);
	if (status == EK_OK && cache_key)
		*cache_key = key;
	else
		free(key);
	return status;
}

/* ---- on the GPU ---- */

enum { SHARED_WITHOUT_ASKING = 48 << 10 };

static CUresult allow(const struct ek_gpu *gpu, CUfunction function, const struct ek_recipe *recipe)
{
	const struct ek_driver *driver = gpu->driver;
	CUresult result = CUDA_SUCCESS;
	int bytes = recipe->shared_bytes == EK_SHARED_MOST ? gpu->limits.shared_bytes : recipe->shared_bytes;
	if (bytes > SHARED_WITHOUT_ASKING)
		result = driver->function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					      bytes);
	if (result == CUDA_SUCCESS && recipe->large_cluster)
		result = driver->function_set(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
					      1);
	return result;
}

/* Loading and unloading are calls that would spoil a capture by another thread, unless this one is relaxed. */
static bool relax(const struct ek_driver *driver, int *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	return driver->capture_exchange(mode) == CUDA_SUCCESS;
}

static void restore(const struct ek_driver *driver, bool relaxed, int mode)
{
	if (relaxed)
		(void)driver->capture_exchange(&mode);
}

static CUresult load(const struct ek_gpu *gpu, const struct ek_recipe *recipe, const struct ek_image *image,
		     CUmodule *module, CUfunction *function)
{
	const struct ek_driver *driver = gpu->driver;
	int mode;
	bool relaxed = relax(driver, &mode);
	CUresult result = driver->module_load(module, image->data);
	if (result == CUDA_SUCCESS) {
		result = driver->module_function(function, *module, recipe->name);
		if (result == CUDA_SUCCESS)
			result = allow(gpu, *function, recipe);
		if (result != CUDA_SUCCESS)
			(void)driver->module_unload(*module);
	}
	restore(driver, relaxed, mode);
	return result;
}

/* The image is to blame, not the moment. */
static bool image_is_refused(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_INVALID_SOURCE:
	case CUDA_ERROR_NOT_FOUND:
		return true;
	default:
		return false;
	}
}

static ek_status fail_load(struct ek_gpu *gpu, CUresult result, const struct ek_recipe *recipe)
{
	char what[256];
	struct ek_nvrtc_info nvrtc = {0};
	if (image_is_refused(result))
		ek_nvrtc_describe(&nvrtc);
	int length = snprintf(what, sizeof what, "loading %s", recipe->name);
	if (nvrtc.version / 1000 > gpu->driver->version / 1000)
		(void)snprintf(
			what + length, sizeof what - (size_t)length,
			" (compiled by NVRTC %d.%d, while the driver is of CUDA %d.%d: update the driver, or "
			"name an older NVRTC in $EVENKEEL_NVRTC)",
			nvrtc.version / 1000, nvrtc.version % 1000 / 10, gpu->driver->version / 1000,
			gpu->driver->version % 1000 / 10);
	return ek_gpu_fail(gpu, result, what);
}

static ek_status find_and_load_from(enum source *source, struct ek_gpu *gpu, const struct ek_recipe *recipe,
				    const char *key, CUmodule *module, CUfunction *function, CUresult *result)
{
	struct ek_image image;
	char *log = NULL;
	ek_status status = find_image(recipe, gpu->limits.arch, gpu->cache, key, source, &image, &log);
	free(log);
	if (status != EK_OK)
		return status;
	*result = load(gpu, recipe, &image, module, function);
	free(image.data);
	return *result == CUDA_SUCCESS ? EK_OK : fail_load(gpu, *result, recipe);
}

/* An image from the disk that the driver refuses is compiled again, once. */
static ek_status find_and_load(struct ek_gpu *gpu, const struct ek_recipe *recipe, const char *key,
			       CUmodule *module, CUfunction *function)
{
	enum source source = FROM_DISK;
	CUresult result = CUDA_SUCCESS;
	char why[768];
	ek_status status = find_and_load_from(&source, gpu, recipe, key, module, function, &result);
	if (status == EK_OK || source == FROM_COMPILER || !image_is_refused(result))
		return status;
	source = FROM_COMPILER;
	status = find_and_load_from(&source, gpu, recipe, key, module, function, &result);
	if (status != EK_ERROR_COMPILE)
		return status;
	(void)snprintf(why, sizeof why, "%s", ek_error(NULL));
	return ek_fail(status, "the driver refused the compiled %s on disk (%s); %s", recipe->name,
		       ek_driver_error(gpu->driver, result), why);
}

static ek_status make(struct ek_gpu *gpu, const struct ek_recipe *recipe, CUmodule *module,
		      CUfunction *function)
{
	char *text = pack_key(recipe, gpu->limits.arch);
	if (!text)
		return fail_memory(recipe);
	ek_status status = find_and_load(gpu, recipe, text, module, function);
	free(text);
	return status;
}

static ek_status make_unless_made(struct ek_gpu *gpu, const struct ek_kernel_key *key, ek_write_recipe *write,
				  CUfunction *function)
{
	struct ek_making making = {.key = *key};
	struct ek_recipe recipe = {0};
	CUmodule module = NULL;
	if (!ek_table_begin(gpu->kernels, &making, function))
		return EK_OK;
	write(key, &recipe);
	ek_status status = make(gpu, &recipe, &module, function);
	if (ek_table_end(gpu->kernels, &making, status == EK_OK ? *function : NULL, module))
		return status;
	(void)gpu->driver->module_unload(module);
	return fail_memory(&recipe);
}

/* A refused handle is the caller's stream: the function is ours, and of this CUDA context. */
static ek_status fail_on_stream(struct ek_gpu *gpu, CUresult result, CUstream stream, const char *what)
{
	if (result != CUDA_ERROR_INVALID_HANDLE)
		return ek_gpu_fail(gpu, result, what);
	char address[32] = "NULL";
	if (stream)
		(void)snprintf(address, sizeof address, "%p", (void *)stream);
	return ek_fail(
		EK_ERROR_ARGUMENT,
		"stream %s does not belong to the current CUDA context of GPU %d: it was destroyed, or made in "
		"another CUDA context",
		address, gpu->ordinal);
}

static ek_status refuse_capture(struct ek_gpu *gpu, CUstream stream, const char *caller)
{
	int capturing = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result = gpu->driver->stream_is_capturing(stream, &capturing);
	if (result != CUDA_SUCCESS)
		return fail_on_stream(gpu, result, stream, "asking whether the stream is captured");
	if (capturing == CU_STREAM_CAPTURE_STATUS_NONE)
		return EK_OK;
	return ek_fail(
		EK_ERROR_NOT_READY,
		"the stream is being captured, and a kernel for these arguments is not loaded: before the "
		"capture, run the model once, forward and backward; or, from C, call %s_prepare with them",
		caller);
}

ek_status ek_kernel_get(struct ek_gpu *gpu, const struct ek_kernel_key *key, ek_write_recipe *write,
			CUstream stream, const char *caller, CUfunction *function)
{
	bool pushed;
	*function = ek_table_find(gpu->kernels, key);
	if (*function)
		return EK_OK;
	ek_status status = ek_gpu_enter(gpu, &pushed);
	if (status != EK_OK)
		return status;
	status = refuse_capture(gpu, stream, caller);
	if (status == EK_OK)
		status = make_unless_made(gpu, key, write, function);
	ek_gpu_leave(gpu, pushed);
	return status;
}

static void unload(void *gpu, CUmodule module)
{
	(void)((struct ek_gpu *)gpu)->driver->module_unload(module);
}

static void leave_loaded(void *gpu, CUmodule module)
{
	(void)gpu;
	(void)module;
}

void ek_kernels_unload(struct ek_gpu *gpu)
{
	bool pushed;
	int mode;
	/* A context that its owner destroyed took the modules along. */
	bool there = ek_gpu_enter(gpu, &pushed) == EK_OK;
	bool relaxed = relax(gpu->driver, &mode);
	ek_table_destroy(gpu->kernels, there ? unload : leave_loaded, gpu);
	restore(gpu->driver, relaxed, mode);
	if (there)
		ek_gpu_leave(gpu, pushed);
	gpu->kernels = NULL;
}

ek_status ek_kernel_launch(struct ek_gpu *gpu, CUfunction function, const struct ek_launch *launch,
			   void *arguments)
{
	CUlaunchAttribute attributes[2];
	if (__builtin_expect(launch->blocks > INT32_MAX, 0))
		return ek_fail(EK_ERROR_UNSUPPORTED, "%" PRId64 " blocks are more than a launch has (%d)",
			       launch->blocks, INT32_MAX);
	CUlaunchConfig config = {.gridDimX = (unsigned)launch->blocks,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = (unsigned)launch->threads,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .sharedMemBytes = (unsigned)launch->shared_bytes,
				 .hStream = launch->stream,
				 .attrs = attributes};
	if (launch->cluster > 1)
		attributes[config.numAttrs++] =
			(CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
					    .value.clusterDim = {(unsigned)launch->cluster, 1, 1}};
	if (gpu->overlaps)
		attributes[config.numAttrs++] =
			(CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
					    .value.programmaticStreamSerializationAllowed = 1};
	void *parameters[] = {arguments};
	CUresult result = gpu->driver->launch(&config, function, parameters, NULL);
	return result == CUDA_SUCCESS ? EK_OK
				      : fail_on_stream(gpu, result, launch->stream, "launching a kernel");
}
