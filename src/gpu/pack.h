/* Packs: many compiled kernels in one read-only file, for machines without NVRTC. Written by `evenkeel warmup`,
 * read through the cache. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_PACK_H
#define EK_CUDA_PACK_H

#include <stdbool.h>

#include "gpu/cuda/nvrtc.h"

struct ek_pack;

/* NULL where the file is missing, not a pack or damaged, belongs to another user than the caller or root, or may be
 * written by others: why (of size bytes) says it in words. */
struct ek_pack *ek_pack_open(const char *file, char *why, size_t size);
void ek_pack_close(struct ek_pack *pack); /* NULL is allowed */

/* A whole, undamaged entry of exactly this key (*image: malloc); false: there is none. */
bool ek_pack_get(struct ek_pack *pack, const char *key, struct ek_image *image);

int ek_pack_count(const struct ek_pack *pack);
/* An entry that was asked for did not match its checksum. */
bool ek_pack_damaged(const struct ek_pack *pack);

/* Writes a pack of count entries. EK_ERROR_ARGUMENT where the file cannot be written, or exists and is not a regular
 * file. */
ek_status ek_pack_write(const char *file, const char *const *keys, const struct ek_image *images, int count);

#endif
