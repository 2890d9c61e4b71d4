/* Buffers whose surroundings tell when they are touched. SPDX-License-Identifier: MIT */
#ifndef VERIFY_BUFFER_H
#define VERIFY_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

enum placement {
	PLACE_OFFSET,      /* on the heap, `offset` bytes past a 64-byte boundary, canaries on both sides */
	PLACE_GUARD_AFTER, /* its last byte is the last before a page that may not be touched */
	PLACE_GUARD_BEFORE /* its first byte is the first after such a page */
};
#define CANARY 0xA5
enum { BUFFER_MARGIN = 256 }; /* of canaries, on each side */

struct buffer {
	unsigned char *data;
	size_t bytes;
	enum placement placement;
	unsigned char *block;
	size_t block_bytes;
};

/* Makes room for bytes and fills all of it, margins included, with CANARY. Keeps its memory for the next use. false:
 * there is not so much. */
bool buffer_reset(struct buffer *buffer, size_t bytes, enum placement placement, int offset);
void buffer_free(struct buffer *buffer);
/* Whether the canaries around the data are whole. (A touch of the guard pages of the other placements ends the program.) */
bool buffer_margins_whole(const struct buffer *buffer);
/* Forbids or allows writing to a buffer placed next to a guard page. */
void buffer_protect(struct buffer *buffer, bool read_only);

#endif
