/* Loads the CUDA driver for gpu.c, once it is there. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the two below */
static struct ek_driver loaded;
static bool ready;

/* The library that the user names; NULL if none. */
static const char *named_library(void)
{
	const char *named = secure_getenv("EVENKEEL_LIBCUDA");
	return named && *named ? named : NULL;
}

/* What to do about a library that is none: no driver helps where another file is named. */
static const char *advice(const char *about_driver)
{
	return named_library() ? "unset $EVENKEEL_LIBCUDA, or let it name the driver's libcuda.so.1"
			       : about_driver;
}

/* Fills in what the library has; the first symbol that it lacks, NULL if none. */
static const char *resolve(void *library, struct ek_driver *driver)
{
#define RESOLVE(field, symbol, parameters)                 \
	address = dlsym(library, symbol);                  \
	memcpy(&driver->field, &address, sizeof(address)); \
	if (!address && !lacking)                          \
		lacking = symbol;
	void *address;
	const char *lacking = NULL;
	EK_DRIVER_SYMBOLS(RESOLVE)
	return lacking;
}

/* Its age comes first: an old driver lacks symbols because it is old. */
static ek_status examine(void *library, const char *file, struct ek_driver *driver)
{
	const char *lacking = resolve(library, driver);
	if (driver->driver_version && driver->driver_version(&driver->version) == CUDA_SUCCESS &&
	    driver->version < EK_OLDEST_DRIVER)
		return ek_fail(
			EK_ERROR_NO_DEVICE,
			"the driver supports CUDA %d.%d, evenkeel needs %d.%d: update the NVIDIA driver",
			driver->version / 1000, driver->version % 1000 / 10, EK_OLDEST_DRIVER / 1000,
			EK_OLDEST_DRIVER % 1000 / 10);
	if (lacking)
		return ek_fail(EK_ERROR_NO_DEVICE, "%s has no %s: %s", file, lacking,
			       advice("update the NVIDIA driver"));
	return EK_OK;
}

static ek_status initialise(const struct ek_driver *driver)
{
	CUresult result = driver->init(0);
	if (result == CUDA_SUCCESS)
		return EK_OK;
	if (result == CUDA_ERROR_NO_DEVICE)
		return ek_fail(
			EK_ERROR_NO_DEVICE,
			"the NVIDIA driver sees no GPU: is one there, and does $CUDA_VISIBLE_DEVICES, if "
			"set, name it?");
	return ek_fail(EK_ERROR_NO_DEVICE, "the NVIDIA driver does not start: cuInit answers %s",
		       ek_driver_error(driver, result));
}

/* The library stays loaded from cuInit on, whatever that answered: it may have threads by then. */
static ek_status load(struct ek_driver *driver)
{
	const char *file = named_library() ? named_library() : "libcuda.so.1";
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) /* dlerror's words start with the file's name */
		return ek_fail(EK_ERROR_NO_DEVICE, "no NVIDIA driver: %s; %s", dlerror(),
			       advice("install the driver of the GPU, and in a container have it "
				      "passed in (docker run --gpus all)"));
	ek_status status = examine(library, file, driver);
	if (status != EK_OK) {
		(void)dlclose(library);
		return status;
	}
	return initialise(driver);
}

ek_status ek_driver_get(const struct ek_driver **driver)
{
	ek_status status = EK_OK;
	(void)pthread_mutex_lock(&mutex);
	if (!ready) {
		status = load(&loaded);
		ready = status == EK_OK;
	}
	(void)pthread_mutex_unlock(&mutex);
	if (status == EK_OK)
		*driver = &loaded;
	return status;
}

const char *ek_driver_error(const struct ek_driver *driver, CUresult error)
{
	static _Thread_local char text[256];
	const char *name = NULL, *meaning = NULL;
	if (driver->error_name(error, &name) != CUDA_SUCCESS || !name)
		(void)snprintf(text, sizeof text, "CUDA error %d", error);
	else if (driver->error_string(error, &meaning) != CUDA_SUCCESS || !meaning)
		(void)snprintf(text, sizeof text, "%s", name);
	else
		(void)snprintf(text, sizeof text, "%s (%s)", name, meaning);
	return text;
}
