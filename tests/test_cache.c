/* Compiled kernels on disk: which folder is used and which are refused, entries that are damaged in every way,
 * the bound, processes that write at once. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu/entry.h"
#include "support.h"
#include "support_cache.h"
#include "support_files.h"

static bool holds(struct ek_cache *cache, const char *key, const char *text)
{
	struct ek_image image = {NULL, 0};
	if (!ek_cache_get(cache, key, &image))
		return false;
	bool same = image_is(&image, text);
	free(image.data);
	return same;
}

static void entry_path(const char *folder, const char *key, char path[256])
{
	cache_file(folder, key, ".ekc", path);
}

SETUP()
{
	files_begin();
	set("EVENKEEL_CACHE", "");
	set("EVENKEEL_PACK", NULL);
}

/* ---- entries ---- */

TEST(entries_come_back)
{
	struct stat status;
	char path[256], subfolder[256];
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image first = image_of("first image"), second = image_of("second, longer image");
	EXPECT(!holds(cache, "a key", "first image"), "an empty folder holds an entry");
	ek_cache_put(cache, "a key", &first);
	ek_cache_put(cache, "another key", &second);
	EXPECT(holds(cache, "a key", "first image") && holds(cache, "another key", "second, longer image"),
	       "entries do not come back");
	ek_cache_put(cache, "a key", &second);
	EXPECT(holds(cache, "a key", "second, longer image"), "an entry is not replaced");
	struct ek_cache_info info = describe(cache);
	cache_path(folder, "", subfolder);
	subfolder[strlen(subfolder) - 1] = '\0';
	EXPECT(info.entries == 2 && info.bytes > 40 && strcmp(info.folder, subfolder) == 0 &&
		       !info.why_not[0],
	       "described as %lld entries of %lld bytes in \"%s\", \"%s\"", info.entries, info.bytes,
	       info.folder, info.why_not);
	entry_path(folder, "a key", path);
	EXPECT(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600, "an entry has mode %o",
	       status.st_mode & 0777);
	EXPECT(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0700, "the folder has mode %o",
	       status.st_mode & 0777);
	EXPECT(stat(subfolder, &status) == 0 && (status.st_mode & 0777) == 0700, "the subfolder has mode %o",
	       status.st_mode & 0777);
	ek_cache_close(cache);

	cache = ek_cache_open(folder, "");
	EXPECT(holds(cache, "a key", "second, longer image"), "entries do not outlive the cache");
	remove_tree(folder);
	EXPECT(!holds(cache, "a key", "second, longer image"), "an entry outlives its folder");
	ek_cache_put(cache, "a key", &first);
	EXPECT(holds(cache, "a key", "first image"), "a folder that was removed is not made again");
	ek_cache_close(cache);
	ek_cache_close(NULL);
}

/* Each must be a miss that removes the file, after which a good entry can be written again. */
static void damaged(struct ek_cache *cache, const char *path, const char *bytes, size_t size,
		    const char *what, size_t where)
{
	write_file(path, bytes, size);
	EXPECT(!holds(cache, "the key", "the image"), "%s at %zu: still taken", what, where);
	EXPECT(!exists(path), "%s at %zu: the file stays", what, where);
}

TEST(damaged_entries_are_misses)
{
	char path[256], good[512], bad[512];
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	ek_cache_put(cache, "the key", &image);
	entry_path(folder, "the key", path);
	size_t size = read_file(path, good, sizeof good);
	EXPECT(size > 0 && size < sizeof good, "the entry has %zu bytes", size);
	for (size_t length = 0; length < size; length++)
		damaged(cache, path, good, length, "truncated", length);
	for (size_t i = 0; i < size * 8; i++) {
		memcpy(bad, good, size);
		bad[i / 8] ^= (char)(1 << (i % 8));
		damaged(cache, path, bad, size, "a flipped bit", i);
	}
	memcpy(bad, good, size);
	bad[size] = 0;
	damaged(cache, path, bad, size + 1, "a byte too many", size);
	write_file(path, good, size);
	EXPECT(holds(cache, "the key", "the image"), "the good bytes are not taken");

	size_t other = ek_entry_size("other key", &image);
	ek_entry_write(bad, "other key", &image);
	damaged(cache, path, bad, other, "another key under this name", 0);
	ek_cache_close(cache);
}

TEST(entries_that_others_may_write_are_misses)
{
	char path[256], moved[260];
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	entry_path(folder, "the key", path);
	(void)snprintf(moved, sizeof moved, "%s.org", path);
	ek_cache_put(cache, "the key", &image);
	(void)chmod(path, 0620);
	EXPECT(!holds(cache, "the key", "the image"), "an entry that the group may write is taken");
	ek_cache_put(cache, "the key", &image);
	EXPECT(rename(path, moved) == 0 && symlink(moved, path) == 0, "no link");
	EXPECT(!holds(cache, "the key", "the image"), "a link is followed");
	(void)unlink(path);
	EXPECT(mkfifo(path, 0600) == 0 && !holds(cache, "the key", "the image"), "a pipe is taken");
	(void)unlink(path);
	EXPECT(mkdir(path, 0700) == 0 && !holds(cache, "the key", "the image"), "a folder is taken");
	(void)rmdir(path);
	EXPECT(rename(moved, path) == 0 && holds(cache, "the key", "the image"), "the entry is gone");
	if (geteuid() == 0) {
		EXPECT(chown(path, 65534, 65534) == 0 && !holds(cache, "the key", "the image"),
		       "another user's entry is taken");
		EXPECT(exists(path), "another user's entry is removed");
	}
	ek_cache_close(cache);
}

/* ---- folders ---- */

static void refused_folder(const char *folder, const char *part)
{
	struct ek_image image = image_of("the image");
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_cache_info info = describe(cache);
	EXPECT(!info.folder[0] && strstr(info.why_not, part), "%s: \"%s\" is used, why not: \"%s\"", part,
	       info.folder, info.why_not);
	ek_cache_put(cache, "key", &image);
	EXPECT(!holds(cache, "key", "the image"), "%s: keeps entries", part);
	ek_cache_close(cache);
}

/* A link, one that others may write, another user's, or a file, in place of the folder or of its subfolder. */
static void refused_forms(const char *folder, const char *place)
{
	char other[128], link[64];
	(void)snprintf(other, sizeof other, "%s", in_base("other"));
	(void)snprintf(link, sizeof link, "%s is a link", strrchr(place, '/'));
	EXPECT(mkdir(other, 0700) == 0 && symlink(other, place) == 0, "no link");
	refused_folder(folder, link);
	(void)unlink(place);
	EXPECT(mkdir(place, 0700) == 0 && chmod(place, 0720) == 0, "no folder");
	refused_folder(folder, "written by others: chmod 700 it");
	(void)chmod(place, 0702);
	refused_folder(folder, "written by others: chmod 700 it");
	(void)chmod(place, 0700);
	if (geteuid() == 0) {
		EXPECT(chown(place, 65534, 65534) == 0, "no other user");
		refused_folder(folder, "belongs to another user");
	}
	(void)rmdir(place);
	write_file(place, "a file", 6);
	refused_folder(folder, ": Not a directory");
	EXPECT(files_in(other) == 0 && exists(place), "something was written or deleted");
	(void)rmdir(other);
}

TEST(unsafe_folders_are_refused)
{
	char folder[128], slash[160], subfolder[256];
	(void)snprintf(folder, sizeof folder, "%s", fresh_path());
	refused_forms(folder, folder);
	(void)unlink(folder);
	EXPECT(symlink("other", folder) == 0, "no link");
	(void)snprintf(slash, sizeof slash, "%s///", folder);
	refused_folder(slash, "is a link");
	(void)unlink(folder);
	cache_path(fresh_folder(), "", subfolder);
	subfolder[strlen(subfolder) - 1] = '\0';
	refused_forms(folder, subfolder);
}

/* What becomes unsafe later is noticed, too. */
TEST(folders_are_checked_at_each_use)
{
	char subfolder[256];
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	ek_cache_put(cache, "key", &image);
	(void)chmod(folder, 0777);
	EXPECT(!holds(cache, "key", "the image"), "a folder that became writable by all is read");
	(void)chmod(folder, 0700);
	EXPECT(holds(cache, "key", "the image"), "a folder that became safe again is not read");
	cache_path(folder, ".", subfolder);
	(void)chmod(subfolder, 0770);
	EXPECT(!holds(cache, "key", "the image"), "a subfolder that became writable by others is read");
	ek_cache_close(cache);
}

/* Rights do not bind root: as somebody else, who owns the folder. */
static const char *fresh_folder_of_another(void)
{
	const char *folder = fresh_folder();
	EXPECT(geteuid() != 0 || (chown(folder, 65534, 65534) == 0 && chmod(in_base(""), 0755) == 0 &&
				  setuid(65534) == 0),
	       "no other user");
	return folder;
}

TEST_IN_CHILD(a_read_only_folder_serves_what_it_holds)
{
	struct ek_image image = image_of("the image");
	char subfolder[256];
	const char *folder = fresh_folder_of_another();
	cache_path(folder, ".", subfolder);
	struct ek_cache *cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "key", &image);
	EXPECT(chmod(subfolder, 0500) == 0 && chmod(folder, 0500) == 0 && holds(cache, "key", "the image"),
	       "the entry is gone");
	ek_cache_close(cache);
	cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "other", &image);
	struct ek_cache_info info = describe(cache);
	EXPECT(holds(cache, "key", "the image") && !holds(cache, "other", "the image") &&
		       strstr(info.why_not, "Permission denied") && info.entries == 1,
	       "%lld entries, why not: \"%s\"", info.entries, info.why_not);
	ek_cache_close(cache);
	cache = ek_cache_open(in_base("folder/sub/folder"), "");
	EXPECT(!describe(cache).folder[0] && describe(cache).why_not[0],
	       "a folder that cannot be made is one");
	ek_cache_close(cache);
	EXPECT(chmod(folder, 0700) == 0 && chmod(subfolder, 0700) == 0, "the folder stays closed");
}

TEST_IN_CHILD(a_read_only_folder_without_a_subfolder_is_refused)
{
	const char *folder = fresh_folder_of_another();
	EXPECT(chmod(folder, 0500) == 0, "the folder stays open");
	refused_folder(folder, "evenkeel-kernels: Permission denied");
	EXPECT(chmod(folder, 0700) == 0, "the folder stays closed");
}

/* The nearest to a full disk that a test can make: files may not grow past a limit. */
TEST_IN_CHILD(a_full_disk_leaves_nothing_behind)
{
	const struct rlimit limit = {4096, 4096};
	struct ek_image image = {calloc(1, 100000), 100000}, got;
	struct ek_cache *cache = ek_cache_open(fresh_path(), "");
	char subfolder[256];
	cache_path(in_base("folder"), "", subfolder);
	(void)signal(SIGXFSZ, SIG_IGN);
	EXPECT(image.data && setrlimit(RLIMIT_FSIZE, &limit) == 0, "no limit");
	ek_cache_put(cache, "key", &image);
	EXPECT(!ek_cache_get(cache, "key", &got) && describe(cache).entries == 0, "an entry came through");
	ek_cache_close(cache);
	free(image.data);
	EXPECT(rmdir(subfolder) == 0 && rmdir(in_base("folder")) == 0, "something was left behind");
}

/* ---- the environment ---- */

static void expect_folder(const char *what, const char *folder, const char *why)
{
	struct ek_cache *cache = ek_cache_open(NULL, NULL);
	struct ek_cache_info info = describe(cache);
	char expected[256] = "";
	if (*folder)
		cache_path(folder, "", expected);
	expected[*folder ? strlen(expected) - 1 : 0] = '\0';
	EXPECT(strcmp(info.folder, expected) == 0, "%s: \"%s\", expected \"%s\"", what, info.folder,
	       expected);
	EXPECT(strstr(info.why_not, why), "%s: why not: \"%s\"", what, info.why_not);
	ek_cache_close(cache);
}

TEST(the_environment_chooses_the_folder)
{
	static const struct {
		const char *cache, *xdg, *home; /* in the test's folder, unless relative or empty */
		const char *folder, *why;
	} cases[] = {{NULL, NULL, "home", "home/.cache/evenkeel", ""},
		     {NULL, "xdg/caches", "home", "xdg/caches/evenkeel", ""},
		     {NULL, "relative", "home", "home/.cache/evenkeel", ""},
		     {NULL, "", NULL, "", "EVENKEEL_CACHE"},
		     {"own/", "", NULL, "own", ""},
		     {"", "", "home", "", "turned off"}};
	char long_name[700];
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const char *cache = cases[i].cache, *xdg = cases[i].xdg;
		set("EVENKEEL_CACHE", cache && *cache ? in_base(cache) : cache);
		set("XDG_CACHE_HOME", xdg && strchr(xdg, '/') ? in_base(xdg) : xdg);
		set("HOME", cases[i].home ? in_base(cases[i].home) : NULL);
		expect_folder(cases[i].why, *cases[i].folder ? in_base(cases[i].folder) : "", cases[i].why);
	}
	memset(long_name, 'x', sizeof long_name);
	long_name[0] = '/';
	long_name[sizeof long_name - 1] = '\0';
	set("EVENKEEL_CACHE", long_name);
	expect_folder("a long EVENKEEL_CACHE", "", "too long");
	refused_folder("", "option");
	struct ek_cache *cache = ek_cache_open(in_base("by option"), "");
	EXPECT(strcmp(describe(cache).folder, in_base("by option/evenkeel-kernels")) == 0,
	       "the option does not go before $EVENKEEL_CACHE");
	ek_cache_close(cache);
	set("EVENKEEL_CACHE", "");
}

TEST_IN_CHILD(a_relative_folder_stays_where_it_was)
{
	struct ek_image image = image_of("the image");
	EXPECT(chdir(in_base("")) == 0, "no folder");
	struct ek_cache *cache = ek_cache_open("relative", "");
	ek_cache_put(cache, "key", &image);
	EXPECT(chdir("/") == 0 && holds(cache, "key", "the image") &&
		       strcmp(describe(cache).folder, in_base("relative/evenkeel-kernels")) == 0,
	       "it moves with the working directory, to \"%s\"", describe(cache).folder);
	ek_cache_close(cache);
}

/* ---- the bound ---- */

static void set_age(const char *folder, const char *key, int seconds)
{
	char path[256];
	struct timespec times[2];
	(void)clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= seconds;
	times[1] = times[0];
	entry_path(folder, key, path);
	EXPECT(utimensat(AT_FDCWD, path, times, 0) == 0, "%s has no age", key);
}

TEST(the_oldest_go_when_the_bound_is_reached)
{
	enum { MEGABYTES = 9, ENTRIES = 8 }; /* seven fit, the eighth does not */
	const size_t size = (size_t)MEGABYTES << 20;
	struct ek_image image = {malloc(size), size}, got;
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	char key[16];
	memset(image.data, 'x', size);
	for (int i = 0; i < ENTRIES - 1; i++) {
		(void)snprintf(key, sizeof key, "key %d", i);
		ek_cache_put(cache, key, &image);
		set_age(folder, key, 1000 - i);
	}
	EXPECT(describe(cache).entries == ENTRIES - 1, "%lld entries are left below the bound",
	       describe(cache).entries);
	EXPECT(ek_cache_get(cache, "key 0", &got),
	       "the oldest is gone before the bound"); /* and is young again */
	free(got.data);
	ek_cache_put(cache, "key 7", &image);
	EXPECT(describe(cache).bytes <= EK_CACHE_BOUND / 4 * 3, "%lld bytes are left", describe(cache).bytes);
	for (int i = 0; i < ENTRIES; i++) {
		bool expected = i == 0 || i > 3;
		(void)snprintf(key, sizeof key, "key %d", i);
		bool there = ek_cache_get(cache, key, &got);
		EXPECT(there == expected, "%s is %s", key, there ? "there" : "gone");
		if (there)
			free(got.data);
	}
	image.size = EK_CACHE_BOUND / 4 + 1; /* larger than the memory, which is not touched */
	ek_cache_put(cache, "too large", &image);
	EXPECT(!ek_cache_get(cache, "too large", &got), "an entry of a quarter of the bound is kept");
	free(image.data);
	ek_cache_close(cache);
}

/* A sparse file, older than any entry. */
static void put_old_file(const char *path, const char *start, int megabytes)
{
	const struct timespec times[2] = {{1000, 0}, {1000, 0}};
	write_file(path, start, strlen(start));
	EXPECT(truncate(path, (off_t)megabytes << 20) == 0 && utimensat(AT_FDCWD, path, times, 0) == 0,
	       "no file %s", path);
}

static void put_and_expect(const char *folder, const char *const *paths, int count, bool there)
{
	struct ek_image image = image_of("the image");
	struct ek_cache *cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "a key", &image);
	EXPECT(holds(cache, "a key", "the image"), "the entry is gone");
	ek_cache_close(cache);
	for (int i = 0; i < count; i++)
		EXPECT(exists(paths[i]) == there, "%s is %s", paths[i], there ? "gone" : "still there");
}

/* In the folder that the user named, whatever the files' names are. */
TEST(the_bound_spares_the_named_folder)
{
	static const char *const names[] = {"train.log",
					    "eval.log",
					    "0123456789abcdef.ekc",
					    "0123456789abcdef.log",
					    "checkpoint.tmp",
					    "0123456789abcdef.ekc.1.2.tmp"};
	const char *folder = fresh_folder();
	char paths[COUNT_OF(names)][256];
	const char *list[COUNT_OF(names)];
	for (int i = 0; i < COUNT_OF(names); i++) {
		(void)snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
		put_old_file(paths[i], "ek entry", 20);
		list[i] = paths[i];
	}
	put_and_expect(folder, list, COUNT_OF(names), true);
}

/* In the subfolder, next to files of evenkeel's, which are deleted. */
TEST(the_bound_deletes_only_evenkeels_files)
{
	static const struct {
		const char *name, *start;
	} others[] = {{"train.log", "evenkeel"},
		      {"checkpoint.tmp", "ek entry"},
		      {"0123456789abcdef.txt", "ek entry"},
		      {"0123456789abcdef", "ek entry"},
		      {"0123456789ABCDEF.ekc", "ek entry"},
		      {"0123456789abcde.ekc", "ek entry"},
		      {"00123456789abcdef.ekc", "ek entry"},
		      {"0123456789abcdef.ekc.tmp", "ek entry"},
		      {"0123456789abcdef.ekc.2.tmp", "ek entry"},
		      {"0123456789abcdef.ekc.1.x.tmp", "ek entry"},
		      {"0123456789abcdef.ekc.1.2.tmp.1", "ek entry"},
		      {"0123456789abcdef.ekc", "PNG data"}}, /* not an entry's first bytes */
		ours[] = {{"fedcba9876543210.ekc", "ek entry"},
			  {"fedcba9876543210.log", "evenkeel"},
			  {"fedcba9876543210.ekc.1.2.tmp", "ek entry"},
			  {"fedcba9876543210.log.12345678.4294967295.tmp", "evenkeel"}};
	const char *folder = fresh_folder();
	char paths[COUNT_OF(others)][256], our_paths[COUNT_OF(ours)][256];
	const char *list[COUNT_OF(others)], *our_list[COUNT_OF(ours)];
	ek_cache_close(ek_cache_open(folder, ""));
	for (int i = 0; i < COUNT_OF(others); i++) {
		cache_path(folder, others[i].name, paths[i]);
		put_old_file(list[i] = paths[i], others[i].start, 20);
	}
	for (int i = 0; i < COUNT_OF(ours); i++) {
		cache_path(folder, ours[i].name, our_paths[i]);
		put_old_file(our_list[i] = our_paths[i], ours[i].start, 60); /* none may stay */
	}
	put_and_expect(folder, list, COUNT_OF(others), true);
	put_and_expect(folder, our_list, COUNT_OF(ours), false);
}

TEST(the_bound_follows_no_link_and_opens_no_pipe)
{
	char link[256], pipe_path[256], sub[256], file[256];
	const char *folder = fresh_folder();
	ek_cache_close(ek_cache_open(folder, ""));
	cache_path(folder, "1111111111111111.ekc", link);
	cache_path(folder, "2222222222222222.ekc", pipe_path);
	cache_path(folder, "3333333333333333.ekc", sub);
	(void)snprintf(file, sizeof file, "%s/target", folder);
	put_old_file(file, "ek entry", 20);
	EXPECT(symlink(file, link) == 0 && mkfifo(pipe_path, 0600) == 0 && mkdir(sub, 0700) == 0, "no link");
	for (int i = 4; i < 8; i++) {
		char name[32], path[256];
		(void)snprintf(name, sizeof name, "%d234567890abcdef.ekc", i);
		cache_path(folder, name, path);
		put_old_file(path, "ek entry", 20);
	}
	put_and_expect(folder, (const char *const[]){link, pipe_path, sub, file}, 4, true);
}

/* As a process of the same id leaves them when it is killed, often in a container, where ids are the same again. */
TEST(stale_temporaries_stop_nothing)
{
	char entry[256], stale[300];
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	entry_path(folder, "the key", entry);
	for (int i = 0; i < 1000; i++) { /* from where this process's numbers are, too */
		(void)snprintf(stale, sizeof stale, "%s.%ld.%d.tmp", entry, (long)getpid(), i);
		write_file(stale, "ek e", 4);
	}
	ek_cache_put(cache, "the key", &image);
	EXPECT(holds(cache, "the key", "the image"), "an entry is not kept beside stale temporaries");
	ek_cache_close(cache);
}

TEST(logs_are_kept)
{
	char path[512], expected[256], text[64] = "";
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	EXPECT(ek_cache_put_log(cache, "a_kernel", "what it said", path, sizeof path), "no log");
	cache_file(folder, "a_kernel", ".log", expected);
	EXPECT(strcmp(path, expected) == 0, "it is %s", path);
	EXPECT(read_file(path, text, sizeof text - 1) > 0 &&
		       strcmp(text, "evenkeel: NVRTC on a_kernel\nwhat it said") == 0,
	       "it says %s", text);
	EXPECT(describe(cache).entries == 0, "a log is an entry");
	ek_cache_close(cache);
	cache = ek_cache_open("", "");
	EXPECT(!ek_cache_put_log(cache, "a_kernel", "what it said", path, sizeof path),
	       "a log without a folder");
	ek_cache_close(cache);
}

/* ---- many at once ---- */

/* Images of different lengths under few keys: an entry that is not whole would show. */
static bool write_and_read(unsigned seed, int rounds)
{
	char text[5000], key[16];
	uint64_t state = seed;
	struct ek_cache *cache = ek_cache_open(in_base("folder"), "");
	bool right = true;
	for (int i = 0; i < rounds; i++) {
		struct ek_image image = {text, (size_t)random_below(&state, 4000) + 1}, got;
		memset(text, 'a' + (int)(image.size % 26), image.size);
		(void)snprintf(key, sizeof key, "key %d", (int)random_below(&state, 3));
		ek_cache_put(cache, key, &image);
		if (!ek_cache_get(cache, key, &got))
			continue;
		for (size_t b = 0; b < got.size; b++)
			right = right && ((char *)got.data)[b] == (char)('a' + (int)(got.size % 26));
		free(got.data);
	}
	ek_cache_close(cache);
	return right;
}

TEST(processes_share_a_folder)
{
	enum { PROCESSES = 4 };
	pid_t children[PROCESSES];
	const char *folder = fresh_path();
	(void)fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork();
		if (children[i] == 0)
			_exit(write_and_read((unsigned)i + 1, (int)test_scaled(200)) ? 0 : 1);
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = -1;
		EXPECT(waitpid(children[i], &status, 0) == children[i] && status == 0,
		       "process %d saw an entry that is not whole (status %d)", i, status);
	}
	struct ek_cache *cache = ek_cache_open(folder, "");
	EXPECT(describe(cache).entries <= 3, "%lld entries", describe(cache).entries);
	ek_cache_close(cache);
}
