/* The cache's folder: one file per entry (entry.h), written whole or not at all, so that processes share it
 * without locks. What is loaded from it runs on the GPU with the user's rights: folder and files must be the
 * user's own and closed to others. Nothing here is an error to the caller. Called by kernel.c and gpu.c.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"
#include "file.h"

struct ek_cache {
	char folder[512], why_not[512];
	char pack_file[512], pack_why_not[512];
	struct ek_pack *pack;
};

__attribute__((format(printf, 2, 3))) static void say(char text[512], const char *format, ...)
{
	va_list values;
	va_start(values, format);
	(void)vsnprintf(text, 512, format, values);
	va_end(values);
}

/* ---- which folder ---- */

/* The value of a variable, not one that whoever starts a set-user-ID program chose; NULL if unset. */
static const char *variable(const char *name)
{
	return secure_getenv(name);
}

static bool is_absolute(const char *path)
{
	return path && *path == '/';
}

/* Relative paths are taken from the working directory of now: later ones may differ. */
static bool join(char folder[512], const char *base, const char *rest)
{
	char here[PATH_MAX];
	int length = 512;
	if (is_absolute(base))
		length = snprintf(folder, 512, "%s%s", base, rest);
	else if (getcwd(here, sizeof here))
		length = snprintf(folder, 512, "%s/%s%s", here, base, rest);
	if (length < 0 || length >= 512)
		return false;
	while (length > 1 && folder[length - 1] == '/') /* "link/" would be followed */
		folder[--length] = '\0';
	return true;
}

/* The folder to use; "" and why_not if there is none. */
static void choose_folder(struct ek_cache *cache, const char *asked)
{
	const char *source = "the option cache", *rest = "";
	if (!asked) {
		source = "$EVENKEEL_CACHE";
		asked = variable("EVENKEEL_CACHE");
	}
	if (asked && !*asked) {
		say(cache->why_not, "turned off: %s is empty", source);
		return;
	}
	if (!asked && is_absolute(variable("XDG_CACHE_HOME"))) {
		asked = variable("XDG_CACHE_HOME"); /* a relative one is to be ignored, says its standard */
		rest = "/evenkeel";
	} else if (!asked && is_absolute(variable("HOME"))) {
		asked = variable("HOME");
		rest = "/.cache/evenkeel";
	}
	if (!asked)
		say(cache->why_not, "neither $XDG_CACHE_HOME nor $HOME is a folder: set $EVENKEEL_CACHE");
	else if (!join(cache->folder, asked, rest)) {
		cache->folder[0] = '\0';
		say(cache->why_not, "the path %.400s is too long", asked);
	}
}

/* ---- may it be used ---- */

static void make_folders(const char *folder)
{
	char path[512];
	say(path, "%s", folder);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(path, 0700);
		*slash = '/';
	}
	(void)mkdir(path, 0700);
}

/* Ours alone to write; else what is wrong. */
static const char *unsafe(const struct stat *status)
{
	if (status->st_uid != geteuid())
		return "belongs to another user: set $EVENKEEL_CACHE to a folder of your own";
	if (status->st_mode & (S_IWGRP | S_IWOTH))
		return "may be written by others: chmod 700 it, or set $EVENKEEL_CACHE";
	return NULL;
}

/* A descriptor of the folder, judged anew every time: it may have been removed or changed since. -1 and why. */
static int open_folder(const struct ek_cache *cache, bool make, char why[512], bool *is_unsafe)
{
	struct stat status;
	*is_unsafe = false;
	if (!cache->folder[0])
		return -1;
	if (make)
		make_folders(cache->folder);
	int folder = open(cache->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0) {
		int error = errno;
		*is_unsafe = lstat(cache->folder, &status) == 0 && S_ISLNK(status.st_mode);
		if (*is_unsafe)
			say(why, "%.400s is a link: name the folder itself", cache->folder);
		else
			say(why, "%.400s: %s", cache->folder, strerror(error));
		return -1;
	}
	const char *wrong = fstat(folder, &status) == 0 ? unsafe(&status) : "cannot be looked at";
	if (!wrong)
		return folder;
	*is_unsafe = true;
	say(why, "%.400s %s", cache->folder, wrong);
	(void)close(folder);
	return -1;
}

static int open_folder_again(const struct ek_cache *cache, bool make)
{
	char why[512];
	bool is_unsafe;
	return open_folder(cache, make, why, &is_unsafe);
}

static void note_once(const char *why)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	if (!atomic_flag_test_and_set(&said))
		(void)fprintf(stderr, "evenkeel: compiled kernels are not kept: the cache folder %s\n", why);
}

static void try_folder(struct ek_cache *cache)
{
	bool is_unsafe;
	int folder = open_folder(cache, true, cache->why_not, &is_unsafe);
	if (folder < 0) {
		cache->folder[0] = '\0';
		if (is_unsafe)
			note_once(cache->why_not);
		return;
	}
	if (faccessat(folder, ".", W_OK | X_OK, AT_EACCESS) != 0)
		say(cache->why_not, "nothing is kept in it: %s", strerror(errno));
	(void)close(folder);
}

static void try_pack(struct ek_cache *cache, const char *file)
{
	if (!file)
		file = variable("EVENKEEL_PACK");
	if (!file || !*file)
		return;
	cache->pack = ek_pack_open(file, cache->pack_why_not, sizeof cache->pack_why_not);
	if (cache->pack)
		say(cache->pack_file, "%s", file);
}

struct ek_cache *ek_cache_open(const char *folder, const char *pack)
{
	struct ek_cache *cache = calloc(1, sizeof *cache);
	if (!cache)
		return NULL;
	choose_folder(cache, folder);
	if (cache->folder[0])
		try_folder(cache);
	try_pack(cache, pack);
	return cache;
}

void ek_cache_close(struct ek_cache *cache)
{
	if (!cache)
		return;
	ek_pack_close(cache->pack);
	free(cache);
}

/* ---- entries ---- */

static void entry_name(const char *key, char name[32])
{
	(void)snprintf(name, 32, "%016" PRIx64 ".ekc", ek_entry_hash(key));
}

/* Reads the entry from an open file and judges it; *ours: the file is one that we may remove. */
static bool read_entry(int file, const char *key, struct ek_image *image, bool *ours)
{
	struct stat status;
	*ours = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
	if (!*ours || unsafe(&status) || status.st_size > EK_CACHE_BOUND)
		return false;
	const size_t size = (size_t)status.st_size;
	void *bytes = malloc(size + 1);
	if (!bytes) {
		*ours = false; /* nothing is wrong with it */
		return false;
	}
	bool good = ek_file_read(file, bytes, size, 0) && ek_entry_read(bytes, size, key, image);
	free(bytes);
	return good;
}

bool ek_cache_get(struct ek_cache *cache, const char *key, struct ek_image *image)
{
	char name[32];
	bool good = false, ours = false;
	int folder = open_folder_again(cache, false);
	if (folder < 0)
		return false;
	entry_name(key, name);
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file >= 0) {
		good = read_entry(file, key, image, &ours);
		if (good)
			(void)futimens(file, NULL); /* the oldest by use go first */
		else if (ours)
			(void)unlinkat(folder, name, 0);
		(void)close(file);
	}
	(void)close(folder);
	return good;
}

bool ek_cache_get_packed(struct ek_cache *cache, const char *key, struct ek_image *image)
{
	return cache->pack && ek_pack_get(cache->pack, key, image);
}

/* ---- the bound ---- */

struct kept {
	char name[160];
	long long bytes;
	struct timespec used;
};

static bool ends_in(const char *name, const char *end)
{
	size_t length = strlen(name), tail = strlen(end);
	return length > tail && strcmp(name + length - tail, end) == 0;
}

/* The files that we write: entries, logs, and what a killed process left half written. */
static bool is_kept(int folder, const char *name, struct kept *kept)
{
	struct stat status;
	const size_t length = strlen(name);
	if (!ends_in(name, ".ekc") && !ends_in(name, ".log") && !ends_in(name, ".tmp"))
		return false;
	if (length >= sizeof kept->name || fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
	    !S_ISREG(status.st_mode))
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

/* All of them (malloc); 0 without memory, too. */
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

static int by_use(const void *a, const void *b)
{
	const struct kept *left = a, *right = b;
	if (left->used.tv_sec != right->used.tv_sec)
		return left->used.tv_sec < right->used.tv_sec ? -1 : 1;
	return (left->used.tv_nsec > right->used.tv_nsec) - (left->used.tv_nsec < right->used.tv_nsec);
}

/* Over the bound, the oldest go until a quarter of it is free: not one by one with every new entry. */
static void sweep(int folder)
{
	struct kept *list;
	int count = list_kept(folder, &list);
	long long bytes = 0;
	for (int i = 0; i < count; i++)
		bytes += list[i].bytes;
	if (bytes > EK_CACHE_BOUND) {
		qsort(list, (size_t)count, sizeof *list, by_use);
		for (int i = 0; i < count && bytes > EK_CACHE_BOUND / 4 * 3; i++) {
			if (unlinkat(folder, list[i].name, 0) == 0)
				bytes -= list[i].bytes;
		}
	}
	free(list);
}

void ek_cache_put(struct ek_cache *cache, const char *key, const struct ek_image *image)
{
	char name[32];
	const size_t size = ek_entry_size(key, image);
	if (size > EK_CACHE_BOUND / 4)
		return;
	int folder = open_folder_again(cache, true);
	if (folder < 0)
		return;
	void *bytes = malloc(size);
	if (bytes) {
		entry_name(key, name);
		ek_entry_write(bytes, key, image);
		(void)ek_file_write(folder, name, 0600, bytes, size);
		free(bytes);
		sweep(folder);
	}
	(void)close(folder);
}

bool ek_cache_put_log(struct ek_cache *cache, const char *name, const char *log, char *path, size_t size)
{
	char file[128];
	int folder = open_folder_again(cache, true);
	if (folder < 0)
		return false;
	(void)snprintf(file, sizeof file, "%.100s.log", name);
	bool kept = ek_file_write(folder, file, 0600, log, strlen(log)) == 0;
	if (kept) {
		(void)snprintf(path, size, "%s/%s", cache->folder, file);
		sweep(folder);
	}
	(void)close(folder);
	return kept;
}

void ek_cache_describe(struct ek_cache *cache, struct ek_cache_info *info)
{
	struct kept *list;
	*info = (struct ek_cache_info){.pack_entries = cache->pack ? ek_pack_count(cache->pack) : 0};
	say(info->folder, "%s", cache->folder);
	say(info->why_not, "%s", cache->why_not);
	say(info->pack, "%s", cache->pack_file);
	say(info->pack_why_not, "%s", cache->pack_why_not);
	if (cache->pack && ek_pack_damaged(cache->pack))
		say(info->pack_why_not, "an entry of %.400s is damaged: write it anew", cache->pack_file);
	int folder = open_folder_again(cache, false);
	if (folder < 0)
		return;
	int count = list_kept(folder, &list);
	for (int i = 0; i < count; i++) {
		if (!ends_in(list[i].name, ".ekc"))
			continue;
		info->entries++;
		info->bytes += list[i].bytes;
	}
	free(list);
	(void)close(folder);
}
