/* Buffers whose surroundings tell when they are touched: canaries on the heap, or pages that may not be
 * touched at all; buffer.h says what. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "buffer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

void buffer_free(struct buffer *buffer)
{
	if (!buffer->block)
		return;
	if (buffer->placement == PLACE_OFFSET)
		free(buffer->block);
	else
		munmap(buffer->block - page_size(), buffer->block_bytes + 2 * page_size());
	buffer->block = NULL;
	buffer->block_bytes = 0;
}

static bool acquire_heap(struct buffer *buffer, size_t bytes)
{
	size_t needed = (bytes + 2 * BUFFER_MARGIN + 64 + 63) / 64 * 64;
	if (buffer->block && buffer->block_bytes >= needed)
		return true;
	buffer_free(buffer);
	buffer->block = aligned_alloc(64, needed);
	buffer->block_bytes = buffer->block ? needed : 0;
	return buffer->block != NULL;
}

/* A block of whole pages between two that may not be touched. */
static bool acquire_guarded(struct buffer *buffer, size_t bytes)
{
	size_t page = page_size(), needed = (bytes + page - 1) / page * page;
	if (needed == 0)
		needed = page;
	if (buffer->block && buffer->block_bytes >= needed)
		return true;
	buffer_free(buffer);
	unsigned char *map = mmap(NULL, needed + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED || mprotect(map + page, needed, PROT_READ | PROT_WRITE) != 0)
		return false;
	buffer->block = map + page;
	buffer->block_bytes = needed;
	return true;
}

bool buffer_reset(struct buffer *buffer, size_t bytes, enum placement placement, int offset)
{
	if (buffer->block && (buffer->placement == PLACE_OFFSET) != (placement == PLACE_OFFSET))
		buffer_free(buffer);
	buffer->placement = placement;
	buffer->bytes = bytes;
	if (placement == PLACE_OFFSET) {
		if (!acquire_heap(buffer, bytes))
			return false;
		buffer->data = buffer->block + BUFFER_MARGIN + offset;
		memset(buffer->data - BUFFER_MARGIN, CANARY, bytes + 2 * BUFFER_MARGIN);
		return true;
	}
	if (!acquire_guarded(buffer, bytes))
		return false;
	buffer_protect(buffer, false);
	buffer->data = buffer->block + (placement == PLACE_GUARD_AFTER ? buffer->block_bytes - bytes : 0);
	memset(buffer->data, CANARY, bytes);
	return true;
}

bool buffer_margins_whole(const struct buffer *buffer)
{
	if (buffer->placement != PLACE_OFFSET)
		return true;
	unsigned char canaries[BUFFER_MARGIN];
	memset(canaries, CANARY, BUFFER_MARGIN);
	return memcmp(buffer->data - BUFFER_MARGIN, canaries, BUFFER_MARGIN) == 0 &&
	       memcmp(buffer->data + buffer->bytes, canaries, BUFFER_MARGIN) == 0;
}

void buffer_protect(struct buffer *buffer, bool read_only)
{
	if (buffer->block && buffer->placement != PLACE_OFFSET)
		mprotect(buffer->block, buffer->block_bytes, read_only ? PROT_READ : PROT_READ | PROT_WRITE);
}
