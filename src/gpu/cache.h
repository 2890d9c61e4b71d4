/* Compiled kernels on disk: the user's private folder, and read-only packs. Entries are found by a key text
 * that names all that made them (kernels' text, options, NVRTC, architecture). Called by kernel.c.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_CACHE_H
#define EK_CUDA_CACHE_H

#include <stdbool.h>

#include "gpu/cuda/nvrtc.h"
#include "pack.h"

struct ek_cache;

/* folder NULL: $EVENKEEL_CACHE, else $XDG_CACHE_HOME/evenkeel, else ~/.cache/evenkeel; "" (also as
 * $EVENKEEL_CACHE): no folder. Files are kept in its subfolder evenkeel-kernels. pack NULL: $EVENKEEL_PACK, else
 * none; "": none. A folder that cannot be used (another user's, writable by others, a link …) is not an error: the
 * cache then has no folder, and says why (once per process on standard error where it is a matter of safety). One
 * that cannot be written is still read. NULL only without memory. */
struct ek_cache *ek_cache_open(const char *folder, const char *pack);
void ek_cache_close(struct ek_cache *cache); /* NULL is allowed */

struct ek_cache_info {
	char folder[512];       /* with the files, in the folder that was named; "" if none */
	char why_not[512];      /* why there is none, or why nothing is kept in it; "" */
	char pack[512];         /* in use; "" if none */
	char pack_why_not[512]; /* what is wrong with the pack that was asked for; "" */
	int pack_entries;
	long long entries, bytes; /* in the folder */
};
void ek_cache_describe(struct ek_cache *cache, struct ek_cache_info *info);

/* A whole, undamaged entry of exactly this key, of the folder or of the pack; false: there is none. */
bool ek_cache_get(struct ek_cache *cache, const char *key, struct ek_image *image);
bool ek_cache_get_packed(struct ek_cache *cache, const char *key, struct ek_image *image);
/* Keeps an entry in the folder, if it can. Where its files exceed the bound, the oldest are deleted. */
enum { EK_CACHE_BOUND = 64 << 20 };
void ek_cache_put(struct ek_cache *cache, const char *key, const struct ek_image *image);

/* Keeps the compiler's log of a kernel in the folder and writes its path; false: it could not. */
bool ek_cache_put_log(struct ek_cache *cache, const char *kernel, const char *log, char *path, size_t size);

#endif
