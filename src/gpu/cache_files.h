/* The files of the cache's folder: their names, which of them evenkeel wrote, and the bound on their bytes. For
 * cache.c. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_CACHE_FILES_H
#define EK_CUDA_CACHE_FILES_H

#include <stdbool.h>

/* An entry and the log of a compilation that failed: 16 hexadecimal digits, the hash of a key, and one of these. */
#define EK_CACHE_ENTRY ".ekc"
#define EK_CACHE_LOG ".log"
enum { EK_CACHE_NAME = 21 };
void ek_cache_file_name(const char *key, const char *ending, char name[EK_CACHE_NAME]);

/* The first bytes of every log. */
#define EK_CACHE_LOG_START "evenkeel"

/* The entries in a folder, given as a descriptor. */
void ek_cache_files_count(int folder, long long *entries, long long *bytes);

/* Where entries, logs and temporaries have more bytes than EK_CACHE_BOUND, deletes the least recently used until a
 * quarter of the bound is free. No other file is deleted: names, kinds and first bytes must be evenkeel's. */
void ek_cache_files_sweep(int folder);

#endif
