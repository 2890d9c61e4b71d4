/* malloc and its kin, replaced by ones that count and, when told, fail; glibc keeps its own under other names. Included
 * once, by the program that is to be watched, which says with IS_COUNTED(caller) whose calls count.
 * SPDX-License-Identifier: MIT */
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *old);

static atomic_llong asked, live_blocks;
static atomic_llong fail_after = -1; /* how many more allocations succeed; -1: all */

static bool may_allocate(const void *caller)
{
	(void)caller;
	if (!IS_COUNTED(caller))
		return true;
	atomic_fetch_add(&asked, 1);
	long long left = atomic_load(&fail_after);
	if (left > 0)
		atomic_store(&fail_after, left - 1);
	if (left == 0)
		errno = ENOMEM;
	return left != 0;
}
#define MAY_ALLOCATE() may_allocate(__builtin_return_address(0))

static void *counted(void *made)
{
	if (made)
		atomic_fetch_add(&live_blocks, 1);
	return made;
}

void *malloc(size_t bytes)
{
	return MAY_ALLOCATE() ? counted(__libc_malloc(bytes)) : NULL;
}

void *calloc(size_t count, size_t bytes)
{
	return MAY_ALLOCATE() ? counted(__libc_calloc(count, bytes)) : NULL;
}

void *realloc(void *old, size_t bytes)
{
	if (!MAY_ALLOCATE())
		return NULL;
	void *made = __libc_realloc(old, bytes);
	return old ? made : counted(made);
}

void *memalign(size_t alignment, size_t bytes)
{
	return MAY_ALLOCATE() ? counted(__libc_memalign(alignment, bytes)) : NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	return MAY_ALLOCATE() ? counted(__libc_memalign(alignment, bytes)) : NULL;
}

int posix_memalign(void **made, size_t alignment, size_t bytes)
{
	void *block = MAY_ALLOCATE() ? counted(__libc_memalign(alignment, bytes)) : NULL;
	if (!block)
		return ENOMEM;
	*made = block;
	return 0;
}

void free(void *old)
{
	if (old)
		atomic_fetch_sub(&live_blocks, 1);
	__libc_free(old);
}
