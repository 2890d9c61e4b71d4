/* Which addresses are device memory: what cuMemAlloc gave out. SPDX-License-Identifier: MIT */
#ifndef STANDIN_MEMORY_H
#define STANDIN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Is all of it in one allocation? */
bool memory_holds(const void *address, size_t bytes);
/* ": 16 bytes past the end of 64 bytes" where an allocation is near, else "". For messages. */
const char *memory_describe(const void *address);

#endif
