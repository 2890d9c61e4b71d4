/* Large results in large pages. A tensor that was just made has no memory yet: each page comes with a fault when it is
 * first written, 8192 of them in 32 MB, or 16 where the pages are large, which a program must ask for on most systems.
 * Called by output.c. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE /* madvise */

#include "pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum { LARGE = 4 << 20, PAGE = 4096 }; /* below, the faults cost little */

void prefer_large_pages(void *data, size_t bytes)
{
#ifdef MADV_HUGEPAGE
	uintptr_t start = ((uintptr_t)data + PAGE - 1) / PAGE * PAGE,
		  end = ((uintptr_t)data + bytes) / PAGE * PAGE;
	if (bytes >= LARGE)
		(void)madvise((void *)start, end - start,
			      MADV_HUGEPAGE); /* a wish: where it is not granted, all goes on */
#else
	(void)data;
	(void)bytes;
#endif
}
