/* The stand-ins for libcuda and NVRTC, opened; support_standin.h says what. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "support_standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standin standin;

void standin_find(void *library, const char *name, void *pointer)
{
	void *symbol = dlsym(library, name);
	if (!symbol) {
		printf("there is no %s: name the stand-ins in $EVENKEEL_LIBCUDA and $EVENKEEL_NVRTC\n", name);
		exit(1);
	}
	memcpy(pointer, &symbol, sizeof symbol); /* C has no cast from an object to a function pointer */
}

static void *open_library(const char *variable, char file[512])
{
	const char *value = getenv(variable);
	(void)snprintf(file, 512, "%s", value ? value : "");
	void *library = *file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library) {
		printf("%s: %s\n", variable, *file ? dlerror() : "set it to the stand-in library");
		exit(1);
	}
	return library;
}

void standin_open(void)
{
	void *library = standin.driver_library = open_library("EVENKEEL_LIBCUDA", standin.driver);
	standin_find(library, "standin_count", &standin.count);
	standin_find(library, "standin_last_launch", &standin.last_launch);
	standin_find(library, "standin_traffic_count", &standin.traffic_count);
	standin_find(library, "standin_traffic_get", &standin.traffic_get);
	standin_find(library, "standin_live", &standin.live);
	standin_find(library, "standin_context_create", &standin.context_create);
	standin_find(library, "standin_context_destroy", &standin.context_destroy);
	standin_find(library, "standin_reset", &standin.reset);
	library = standin.nvrtc_library = open_library("EVENKEEL_NVRTC", standin.nvrtc);
	standin_find(library, "standin_count", &standin.nvrtc_count);
	standin_find(library, "standin_reset", &standin.nvrtc_reset);
}
