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

#include "cuda/entry.h"
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
	(void)snprintf(path, 256, "%s/%016llx.ekc", folder, (unsigned long long)ek_entry_hash(key));
}

/* ---- entries ---- */

static void entries_come_back(void)
{
	struct stat status;
	char path[256];
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
	EXPECT(info.entries == 2 && info.bytes > 40 && strcmp(info.folder, folder) == 0 && !info.why_not[0],
	       "described as %lld entries of %lld bytes in \"%s\", \"%s\"", info.entries, info.bytes,
	       info.folder, info.why_not);
	entry_path(folder, "a key", path);
	EXPECT(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600, "an entry has mode %o",
	       status.st_mode & 0777);
	EXPECT(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0700, "the folder has mode %o",
	       status.st_mode & 0777);
	ek_cache_close(cache);

	cache = ek_cache_open(folder, "");
	EXPECT(holds(cache, "a key", "second, longer image"), "entries do not outlive the cache");
	remove_tree(folder);
	EXPECT(!holds(cache, "a key", "second, longer image"), "an entry outlives its folder");
	ek_cache_put(cache, "a key", &first);
	EXPECT(holds(cache, "a key", "first image"), "a folder that was removed is not made anew");
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

static void damaged_entries_are_misses(void)
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

static void entries_that_others_may_write_are_misses(void)
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

static void unsafe_folders_are_refused(void)
{
	const char *folder = fresh_path(), *link = in_base("link");
	char slash[160];
	EXPECT(mkdir(folder, 0700) == 0 && symlink(folder, link) == 0, "no link");
	(void)snprintf(slash, sizeof slash, "%s///", link);
	refused_folder(link, "is a link");
	refused_folder(slash, "is a link");
	(void)unlink(link);
	(void)chmod(folder, 0720);
	refused_folder(folder, "written by others: chmod 700 it");
	(void)chmod(folder, 0702);
	refused_folder(folder, "written by others: chmod 700 it");
	(void)chmod(folder, 0700);
	if (geteuid() == 0) {
		EXPECT(chown(folder, 65534, 65534) == 0, "no other user");
		refused_folder(folder, "belongs to another user: set $EVENKEEL_CACHE");
	}
	remove_tree(folder);
	write_file(folder, "a file", 6);
	refused_folder(folder, ": Not a directory");
	(void)unlink(folder);
}

/* What becomes unsafe later is noticed, too. */
static void folders_are_judged_anew(void)
{
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	ek_cache_put(cache, "key", &image);
	(void)chmod(folder, 0777);
	EXPECT(!holds(cache, "key", "the image"), "a folder that became writable by all is read");
	(void)chmod(folder, 0700);
	EXPECT(holds(cache, "key", "the image"), "a folder that became safe again is not read");
	ek_cache_close(cache);
}

static void notes_are_written_once(void)
{
	char text[1024] = "";
	int ends[2] = {-1, -1};
	const char *folder = in_base("open");
	EXPECT(mkdir(folder, 0700) == 0 && chmod(folder, 0777) == 0 && pipe(ends) == 0 &&
		       dup2(ends[1], 2) == 2,
	       "no folder, or no pipe");
	for (int i = 0; i < 3; i++)
		ek_cache_close(ek_cache_open(folder, ""));
	ssize_t length = read(ends[0], text, sizeof text - 1);
	const char *said = strstr(text, "evenkeel: ");
	EXPECT(length > 0 && said && strstr(said, folder), "not noted");
	EXPECT(!said || !strstr(said + 1, "evenkeel: "), "noted more than once");
}

static void an_unsafe_folder_is_noted_once(void)
{
	in_child(notes_are_written_once);
}

/* Rights do not bind root: as somebody else. */
static void read_only_folder_serves(void)
{
	struct ek_image image = image_of("the image");
	const char *folder = in_base("folder");
	EXPECT(geteuid() != 0 || (chown(folder, 65534, 65534) == 0 && chmod(in_base(""), 0755) == 0 &&
				  setuid(65534) == 0),
	       "no other user");
	struct ek_cache *cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "key", &image);
	EXPECT(chmod(folder, 0500) == 0 && holds(cache, "key", "the image"), "the entry is gone");
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
	EXPECT(chmod(folder, 0700) == 0, "the folder stays closed");
}

static void a_read_only_folder_serves_what_it_holds(void)
{
	(void)fresh_folder();
	in_child(read_only_folder_serves);
}

/* The nearest to a full disk that a test can make: files may not grow past a limit. */
static void too_large_is_left_out(void)
{
	const struct rlimit limit = {4096, 4096};
	struct ek_image image = {calloc(1, 100000), 100000}, got;
	struct ek_cache *cache = ek_cache_open(in_base("folder"), "");
	(void)signal(SIGXFSZ, SIG_IGN);
	EXPECT(image.data && setrlimit(RLIMIT_FSIZE, &limit) == 0, "no limit");
	ek_cache_put(cache, "key", &image);
	EXPECT(!ek_cache_get(cache, "key", &got) && describe(cache).entries == 0, "an entry came through");
	ek_cache_close(cache);
	free(image.data);
	EXPECT(rmdir(in_base("folder")) == 0, "something was left behind");
}

static void a_full_disk_leaves_nothing_behind(void)
{
	(void)fresh_path();
	in_child(too_large_is_left_out);
}

/* ---- the environment ---- */

static void expect_folder(const char *what, const char *folder, const char *why)
{
	struct ek_cache *cache = ek_cache_open(NULL, NULL);
	struct ek_cache_info info = describe(cache);
	EXPECT(strcmp(info.folder, folder) == 0, "%s: \"%s\", expected \"%s\"", what, info.folder, folder);
	EXPECT(strstr(info.why_not, why), "%s: why not: \"%s\"", what, info.why_not);
	ek_cache_close(cache);
}

static void the_environment_chooses_the_folder(void)
{
	char home[128], long_name[700];
	(void)snprintf(home, sizeof home, "%s", in_base("home"));
	set("EVENKEEL_CACHE", NULL);
	set("XDG_CACHE_HOME", NULL);
	set("HOME", home);
	expect_folder("HOME", in_base("home/.cache/evenkeel"), "");
	set("XDG_CACHE_HOME", in_base("xdg/caches"));
	expect_folder("XDG_CACHE_HOME", in_base("xdg/caches/evenkeel"), "");
	set("XDG_CACHE_HOME", "relative/caches");
	expect_folder("a relative XDG_CACHE_HOME", in_base("home/.cache/evenkeel"), "");
	set("XDG_CACHE_HOME", "");
	set("HOME", NULL);
	expect_folder("no HOME", "", "EVENKEEL_CACHE");
	set("EVENKEEL_CACHE", in_base("own/"));
	expect_folder("EVENKEEL_CACHE", in_base("own"), "");
	set("EVENKEEL_CACHE", "");
	expect_folder("an empty EVENKEEL_CACHE", "", "turned off");
	memset(long_name, 'x', sizeof long_name);
	long_name[0] = '/';
	long_name[sizeof long_name - 1] = '\0';
	set("EVENKEEL_CACHE", long_name);
	expect_folder("a long EVENKEEL_CACHE", "", "too long");
	struct ek_cache *cache = ek_cache_open("", "");
	EXPECT(!describe(cache).folder[0] && strstr(describe(cache).why_not, "option"), "why not: \"%s\"",
	       describe(cache).why_not);
	ek_cache_close(cache);
	cache = ek_cache_open(in_base("by option"), "");
	EXPECT(strcmp(describe(cache).folder, in_base("by option")) == 0,
	       "the option does not go before $EVENKEEL_CACHE");
	ek_cache_close(cache);
	set("EVENKEEL_CACHE", "");
}

static void relative_folder_stays(void)
{
	struct ek_image image = image_of("the image");
	EXPECT(chdir(in_base("")) == 0, "no folder");
	struct ek_cache *cache = ek_cache_open("relative", "");
	ek_cache_put(cache, "key", &image);
	EXPECT(chdir("/") == 0 && holds(cache, "key", "the image") &&
		       strcmp(describe(cache).folder, in_base("relative")) == 0,
	       "it moves with the working directory, to \"%s\"", describe(cache).folder);
	ek_cache_close(cache);
}

static void a_relative_folder_stays_where_it_was(void)
{
	in_child(relative_folder_stays);
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

static void the_oldest_go_when_the_bound_is_reached(void)
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

static void logs_are_kept(void)
{
	char path[512], text[64] = "";
	const char *folder = fresh_path();
	struct ek_cache *cache = ek_cache_open(folder, "");
	EXPECT(ek_cache_put_log(cache, "a_kernel", "what it said", path, sizeof path), "no log");
	EXPECT(strncmp(path, folder, strlen(folder)) == 0 && strstr(path, "a_kernel.log"), "it is %s", path);
	EXPECT(read_file(path, text, sizeof text) == 12 && memcmp(text, "what it said", 12) == 0,
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

static void processes_share_a_folder(void)
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

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	files_begin();
	set("EVENKEEL_CACHE", "");
	set("EVENKEEL_PACK", NULL);
	TEST(entries_come_back);
	TEST(damaged_entries_are_misses);
	TEST(entries_that_others_may_write_are_misses);
	TEST(an_unsafe_folder_is_noted_once); /* before this process has said it */
	TEST(unsafe_folders_are_refused);
	TEST(folders_are_judged_anew);
	TEST(a_read_only_folder_serves_what_it_holds);
	TEST(a_full_disk_leaves_nothing_behind);
	TEST(the_environment_chooses_the_folder);
	TEST(a_relative_folder_stays_where_it_was);
	TEST(the_oldest_go_when_the_bound_is_reached);
	TEST(logs_are_kept);
	TEST(processes_share_a_folder);
	files_end();
	return test_end();
}
