/* One compiled kernel as bytes: lengths, the key text, the image, a checksum. A file of the cache's folder is
 * one entry, a pack holds many. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_ENTRY_H
#define EK_CUDA_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/cuda/nvrtc.h"

/* The first bytes of every entry, and the most bytes that one may have: kernels have 10 to 100 KB. */
extern const char ek_entry_magic[8];
enum { EK_ENTRY_BOUND = 16 << 20 };

/* What an entry is found by: a hash of its key. */
uint64_t ek_entry_hash(const char *key);

size_t ek_entry_size(const char *key, const struct ek_image *image);
/* Writes ek_entry_size bytes. */
void ek_entry_write(void *to, const char *key, const struct ek_image *image);

/* Copies the image (malloc) of an entry that is whole and has exactly this key; else false. */
bool ek_entry_read(const void *bytes, size_t size, const char *key, struct ek_image *image);

#endif
