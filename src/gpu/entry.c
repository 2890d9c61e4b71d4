/* The bytes of a cache entry, written and validated: for cache.c and pack.c. SPDX-License-Identifier: MIT */
#include "entry.h"

#include <stdlib.h>
#include <string.h>

#include "hash.h"

/* In the byte order of the machine: on one with the other order the version does not match. */
struct header {
	char magic[8];
	uint32_t version, key_length;
	uint64_t image_length;
};
const char ek_entry_magic[8] = "ek entry";
enum { VERSION = 1, CHECKSUM_BYTES = sizeof(uint64_t) };

uint64_t ek_entry_hash(const char *key)
{
	return ek_hash(EK_HASH_START, key, strlen(key));
}

size_t ek_entry_size(const char *key, const struct ek_image *image)
{
	return sizeof(struct header) + strlen(key) + image->size + CHECKSUM_BYTES;
}

static struct header header_of(const char *key, size_t image_length)
{
	struct header header = {
		.version = VERSION, .key_length = (uint32_t)strlen(key), .image_length = image_length};
	memcpy(header.magic, ek_entry_magic, sizeof ek_entry_magic);
	return header;
}

void ek_entry_write(void *to, const char *key, const struct ek_image *image)
{
	const struct header header = header_of(key, image->size);
	char *at = to;
	memcpy(at, &header, sizeof header);
	at += sizeof header;
	memcpy(at, key, header.key_length);
	at += header.key_length;
	memcpy(at, image->data, image->size);
	at += image->size;
	const uint64_t checksum = ek_hash(EK_HASH_START, to, (size_t)(at - (char *)to));
	memcpy(at, &checksum, sizeof checksum);
}

bool ek_entry_read(const void *bytes, size_t size, const char *key, struct ek_image *image)
{
	const size_t around = sizeof(struct header) + strlen(key) + CHECKSUM_BYTES;
	if (size <= around) /* an image has at least a byte */
		return false;
	const struct header expected = header_of(key, size - around);
	const char *stored_key = (const char *)bytes + sizeof expected;
	uint64_t checksum;
	memcpy(&checksum, (const char *)bytes + size - CHECKSUM_BYTES, sizeof checksum);
	if (memcmp(bytes, &expected, sizeof expected) != 0 ||
	    memcmp(stored_key, key, expected.key_length) != 0 ||
	    checksum != ek_hash(EK_HASH_START, bytes, size - CHECKSUM_BYTES))
		return false;

	image->size = size - around;
	image->data = malloc(image->size);
	if (!image->data)
		return false;
	memcpy(image->data, stored_key + expected.key_length, image->size);
	return true;
}
