/* Compiled kernels in a folder: one file per entry (entry.h), written whole or not at all, so that processes share
 * it without locks. The files are in a subfolder of the folder that the user names, because evenkeel deletes there.
 * What is loaded from it runs on the GPU with the user's rights: folders and files must be the user's own and closed
 * to others. No failure here is an error to the caller. Called by kernel.c and gpu.c. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_files.h"
#include "entry.h"
#include "file.h"

#define SUBFOLDER "evenkeel-kernels"

struct ek_cache {
	char named[512];  /* by the user */
	char folder[512]; /* named/SUBFOLDER; "": none */
	char why_not[512];
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

/* Relative paths are taken from the working directory of now: later ones may differ. False: too long. */
static bool join(struct ek_cache *cache, const char *base, const char *rest)
{
	char here[PATH_MAX];
	int length = 512;
	if (is_absolute(base))
		length = snprintf(cache->named, 512, "%s%s", base, rest);
	else if (getcwd(here, sizeof here))
		length = snprintf(cache->named, 512, "%s/%s%s", here, base, rest);
	if (length < 0 || length >= 512)
		return false;
	while (length > 1 && cache->named[length - 1] == '/') /* "link/" would be followed */
		cache->named[--length] = '\0';
	length = snprintf(cache->folder, 512, "%s/" SUBFOLDER, cache->named);
	return length > 0 && length < 512;
}

/* The folders to use; "" and why_not if there are none. */
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
	else if (!join(cache, asked, rest)) {
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

/* A descriptor of a folder, `path` in messages; -1 and why. */
static int open_private(int at, const char *name, const char *path, char why[512], bool *is_unsafe)
{
	struct stat status;
	int folder = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0) {
		int error = errno;
		*is_unsafe = fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
		if (*is_unsafe)
			say(why, "%.400s is a link: name the folder itself", path);
		else
			say(why, "%.400s: %s", path, strerror(error));
		return -1;
	}
	const char *wrong = fstat(folder, &status) == 0 ? unsafe(&status) : "cannot be looked at";
	if (!wrong)
		return folder;
	*is_unsafe = true;
	say(why, "%.400s %s", path, wrong);
	(void)close(folder);
	return -1;
}

/* A descriptor of the subfolder, checked at each use: it may have been removed or changed since. -1 and why. */
static int open_folder(const struct ek_cache *cache, bool make, char why[512], bool *is_unsafe)
{
	int folder = -1;
	*is_unsafe = false;
	if (!cache->folder[0])
		return -1;
	if (make)
		make_folders(cache->named);
	int named = open_private(AT_FDCWD, cache->named, cache->named, why, is_unsafe);
	if (named < 0)
		return -1;
	if (make && mkdirat(named, SUBFOLDER, 0700) != 0 && errno != EEXIST)
		say(why, "%.400s: %s", cache->folder, strerror(errno));
	else
		folder = open_private(named, SUBFOLDER, cache->folder, why, is_unsafe);
	(void)close(named);
	return folder;
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

/* Reads the entry from an open file and validates it; *ours: the file is one that we may remove. */
static bool read_entry(int file, const char *key, struct ek_image *image, bool *ours)
{
	struct stat status;
	*ours = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid();
	if (!*ours || unsafe(&status) || status.st_size > EK_ENTRY_BOUND)
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
	char name[EK_CACHE_NAME];
	bool good = false, ours = false;
	int folder = open_folder_again(cache, false);
	if (folder < 0)
		return false;
	ek_cache_file_name(key, EK_CACHE_ENTRY, name);
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

void ek_cache_put(struct ek_cache *cache, const char *key, const struct ek_image *image)
{
	char name[EK_CACHE_NAME];
	const size_t size = ek_entry_size(key, image);
	if (size > EK_ENTRY_BOUND)
		return;
	int folder = open_folder_again(cache, true);
	if (folder < 0)
		return;
	void *bytes = malloc(size);
	if (bytes) {
		ek_cache_file_name(key, EK_CACHE_ENTRY, name);
		ek_entry_write(bytes, key, image);
		(void)ek_file_write(folder, name, 0600, bytes, size);
		free(bytes);
		ek_cache_files_sweep(folder);
	}
	(void)close(folder);
}

/* With a first line that names the kernel. malloc; NULL without memory. */
static char *log_text(const char *kernel, const char *log)
{
	char *text = NULL;
	if (asprintf(&text, EK_CACHE_LOG_START ": NVRTC on %s\n%s", kernel, log) < 0)
		return NULL;
	return text;
}

bool ek_cache_put_log(struct ek_cache *cache, const char *kernel, const char *log, char *path, size_t size)
{
	char name[EK_CACHE_NAME];
	bool kept = false;
	int folder = open_folder_again(cache, true);
	if (folder < 0)
		return false;
	char *text = log_text(kernel, log);
	if (text) {
		ek_cache_file_name(kernel, EK_CACHE_LOG, name);
		kept = ek_file_write(folder, name, 0600, text, strlen(text)) == 0;
		free(text);
	}
	if (kept) {
		(void)snprintf(path, size, "%s/%s", cache->folder, name);
		ek_cache_files_sweep(folder);
	}
	(void)close(folder);
	return kept;
}

void ek_cache_describe(struct ek_cache *cache, struct ek_cache_info *info)
{
	*info = (struct ek_cache_info){.pack_entries = cache->pack ? ek_pack_count(cache->pack) : 0};
	say(info->folder, "%s", cache->folder);
	say(info->why_not, "%s", cache->why_not);
	say(info->pack, "%s", cache->pack_file);
	say(info->pack_why_not, "%s", cache->pack_why_not);
	if (cache->pack && ek_pack_damaged(cache->pack))
		say(info->pack_why_not, "an entry of %.400s is damaged: write it again", cache->pack_file);
	int folder = open_folder_again(cache, false);
	if (folder < 0)
		return;
	ek_cache_files_count(folder, &info->entries, &info->bytes);
	(void)close(folder);
}
