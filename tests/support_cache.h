/* What tests of the cache, of packs and of NVRTC share. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_CACHE_H
#define EK_TESTS_SUPPORT_CACHE_H

#include <stdio.h>
#include <string.h>

#include "gpu/cache.h"
#include "gpu/entry.h"

/* Where a cache with this folder keeps its files. */
static inline void cache_path(const char *folder, const char *name, char path[256])
{
	(void)snprintf(path, 256, "%s/evenkeel-kernels/%s", folder, name);
}

/* The file of a key, with the ending ".ekc", or of a kernel's log, with ".log". */
static inline void cache_file(const char *folder, const char *key, const char *ending, char path[256])
{
	char name[64];
	(void)snprintf(name, sizeof name, "%016llx%s", (unsigned long long)ek_entry_hash(key), ending);
	cache_path(folder, name, path);
}

static inline struct ek_image image_of(char *text)
{
	return (struct ek_image){text, strlen(text)};
}

static inline bool image_is(const struct ek_image *image, const char *text)
{
	return image->size == strlen(text) && memcmp(image->data, text, image->size) == 0;
}

static inline struct ek_cache_info describe(struct ek_cache *cache)
{
	struct ek_cache_info info;
	ek_cache_describe(cache, &info);
	return info;
}

#endif
