/* What tests of the cache, of packs and of NVRTC share. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_CACHE_H
#define EK_TESTS_SUPPORT_CACHE_H

#include <string.h>

#include "cuda/cache.h"

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
