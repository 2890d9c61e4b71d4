/* Which files of the cache's folder evenkeel wrote, and the deletion of the oldest: for cache.c.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cache_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "entry.h"
#include "file.h"

enum { HASH_DIGITS = 16 };

struct kept {
	char name[64]; /* a temporary's, the longest, has up to 56 characters */
	long long bytes;
	struct timespec used;
};

/* ---- names ---- */

void ek_cache_file_name(const char *key, const char *ending, char name[EK_CACHE_NAME])
{
	(void)snprintf(name, EK_CACHE_NAME, "%016" PRIx64 "%s", ek_entry_hash(key), ending);
}

static bool ends_in(const char *name, size_t length, const char *ending)
{
	return length == HASH_DIGITS + strlen(ending) &&
	       strncmp(name + HASH_DIGITS, ending, strlen(ending)) == 0;
}

/* An entry, a log, or the temporary of one. */
static bool is_our_name(const char *name)
{
	const size_t length = ek_file_final_length(name);
	return strspn(name, "0123456789abcdef") == HASH_DIGITS &&
	       (ends_in(name, length, EK_CACHE_ENTRY) || ends_in(name, length, EK_CACHE_LOG));
}

static bool is_entry(const char *name)
{
	return ends_in(name, strlen(name), EK_CACHE_ENTRY);
}

/* Whether the file starts as entries and logs do; a temporary may have been cut short. */
static bool has_our_start(int folder, const char *name)
{
	char start[sizeof ek_entry_magic];
	_Static_assert(sizeof start == sizeof EK_CACHE_LOG_START - 1,
		       "entries and logs start with as many bytes");
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file < 0)
		return false;
	ssize_t got = pread(file, start, sizeof start, 0);
	(void)close(file);
	return got >= 0 && (memcmp(start, ek_entry_magic, (size_t)got) == 0 ||
			    memcmp(start, EK_CACHE_LOG_START, (size_t)got) == 0);
}

/* ---- the list ---- */

static bool is_kept(int folder, const char *name, struct kept *kept)
{
	struct stat status;
	const size_t length = strlen(name);
	if (!is_our_name(name) || length >= sizeof kept->name ||
	    fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
		return false;
	memcpy(kept->name, name, length + 1);
	kept->bytes = status.st_size;
	kept->used = status.st_mtim;
	return true;
}

static bool append(struct kept **list, int *count, const struct kept *kept)
{
	if ((*count & (*count - 1)) == 0) { /* full at every power of two */
		struct kept *longer = realloc(*list, (*count ? 2 * (size_t)*count : 1) * sizeof *longer);
		if (!longer)
			return false;
		*list = longer;
	}
	(*list)[(*count)++] = *kept;
	return true;
}

/* The files with our names (malloc); as many as there is memory for. */
static int list_kept(int folder, struct kept **list)
{
	int count = 0;
	struct kept kept;
	*list = NULL;
	int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = again < 0 ? NULL : fdopendir(again);
	if (!names) {
		if (again >= 0)
			(void)close(again);
		return 0;
	}
	for (struct dirent *entry = readdir(names); entry; entry = readdir(names))
		if (is_kept(folder, entry->d_name, &kept) && !append(list, &count, &kept))
			break;
	(void)closedir(names);
	return count;
}

void ek_cache_files_count(int folder, long long *entries, long long *bytes)
{
	struct kept *list;
	int count = list_kept(folder, &list);
	*entries = *bytes = 0;
	for (int i = 0; i < count; i++) {
		if (!is_entry(list[i].name))
			continue;
		++*entries;
		*bytes += list[i].bytes;
	}
	free(list);
}

/* ---- the bound ---- */

static int by_use(const void *a, const void *b)
{
	const struct kept *left = a, *right = b;
	if (left->used.tv_sec != right->used.tv_sec)
		return left->used.tv_sec < right->used.tv_sec ? -1 : 1;
	return (left->used.tv_nsec > right->used.tv_nsec) - (left->used.tv_nsec < right->used.tv_nsec);
}

/* A quarter is freed at once, so that not every new entry deletes one. A file that stays is not counted again. */
void ek_cache_files_sweep(int folder)
{
	struct kept *list;
	int count = list_kept(folder, &list);
	long long bytes = 0;
	for (int i = 0; i < count; i++)
		bytes += list[i].bytes;
	if (bytes > EK_CACHE_BOUND) {
		qsort(list, (size_t)count, sizeof *list, by_use);
		for (int i = 0; i < count && bytes > EK_CACHE_BOUND / 4 * 3; i++) {
			if (has_our_start(folder, list[i].name))
				(void)unlinkat(folder, list[i].name, 0);
			bytes -= list[i].bytes;
		}
	}
	free(list);
}
