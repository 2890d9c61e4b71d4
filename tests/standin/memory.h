/* Which addresses are device memory: what cuMemAlloc gave out. SPDX-License-Identifier: MIT */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include <stddef.h>

struct memory_range {
	const unsigned char *start;
	size_t bytes;
};

/* The allocation that holds all of it, until the next call; NULL: there is none. */
const struct memory_range *memory_range_of(const void *address, size_t bytes);
/* ": 16 bytes past the end of 64 bytes" where an allocation is near, else "". For messages. */
const char *memory_describe(const void *address);

#endif
