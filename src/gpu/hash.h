/* FNV-1a, 64 bits: names of cache entries, their checksums, and digests of kernels' texts. Not for hostile data.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_HASH_H
#define EK_CUDA_HASH_H

#include <stddef.h>
#include <stdint.h>

#define EK_HASH_START 0xcbf29ce484222325u

/* Goes on from hash. Any change of one byte changes the result. */
static inline uint64_t ek_hash(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

#endif
