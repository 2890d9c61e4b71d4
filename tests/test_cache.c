/* Compiled kernels on disk: which folder is used and which are refused, entries that are damaged in every way,
 * the bound, processes that write at once, packs; and NVRTC, where it is installed.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda/cache.h"
#include "cuda/entry.h"
#include "cuda/kernel.h"
#include "cuda/table.h"
#include "support.h"

static char base[64]; /* of every file here; removed at the end */

/* base/NAME; four of them at a time. */
static const char *in_base(const char *name)
{
	static char paths[4][128];
	static int next;
	char *path = paths[next++ & 3];
	(void)snprintf(path, sizeof paths[0], "%s/%s", base, name);
	return path;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status, (void)kind, (void)where;
	return remove(path);
}

static void remove_tree(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A folder of its own for a test. */
static const char *fresh_folder(void)
{
	remove_tree(in_base("folder"));
	return in_base("folder");
}

static struct ek_image image_of(char *text)
{
	return (struct ek_image){text, strlen(text)};
}

static bool holds(struct ek_cache *cache, const char *key, const char *text)
{
	struct ek_image image = {NULL, 0};
	if (!ek_cache_get(cache, key, &image))
		return false;
	bool same = image.size == strlen(text) && memcmp(image.data, text, image.size) == 0;
	free(image.data);
	return same;
}

static struct ek_cache_info describe(struct ek_cache *cache)
{
	struct ek_cache_info info;
	ek_cache_describe(cache, &info);
	return info;
}

static void entry_path(const char *folder, const char *key, char path[256])
{
	(void)snprintf(path, 256, "%s/%016llx.ekc", folder, (unsigned long long)ek_entry_hash(key));
}

static size_t read_file(const char *path, char *bytes, size_t room)
{
	FILE *file = fopen(path, "re");
	size_t size = file ? fread(bytes, 1, room, file) : 0;
	if (file)
		(void)fclose(file);
	return size;
}

static void write_file(const char *path, const char *bytes, size_t size)
{
	FILE *file = fopen(path, "we");
	EXPECT(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s cannot be written",
	       path);
	(void)chmod(path, 0600);
}

static bool exists(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

/* Runs a part in a child and says whether it was content. */
static bool in_child(bool (*part)(void))
{
	int status = -1;
	(void)fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(part() ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}

/* ---- entries ---- */

static void entries_come_back(void)
{
	struct stat status;
	char path[256];
	const char *folder = fresh_folder();
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
	const char *folder = fresh_folder();
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
	const char *folder = fresh_folder();
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
	const char *folder = fresh_folder(), *link = in_base("link");
	char slash[160];
	EXPECT(mkdir(folder, 0700) == 0 && symlink(folder, link) == 0, "no link");
	(void)snprintf(slash, sizeof slash, "%s///", link);
	refused_folder(link, "is a link");
	refused_folder(slash, "is a link");
	(void)unlink(link);
	(void)chmod(folder, 0720);
	refused_folder(folder, "written by others");
	(void)chmod(folder, 0702);
	refused_folder(folder, "written by others");
	(void)chmod(folder, 0700);
	if (geteuid() == 0) {
		EXPECT(chown(folder, 65534, 65534) == 0, "no other user");
		refused_folder(folder, "another user");
	}
	remove_tree(folder);
	write_file(folder, "a file", 6);
	refused_folder(folder, "Not a directory");
	(void)unlink(folder);
}

/* What becomes unsafe later is noticed, too. */
static void folders_are_judged_anew(void)
{
	const char *folder = fresh_folder();
	struct ek_cache *cache = ek_cache_open(folder, "");
	struct ek_image image = image_of("the image");
	ek_cache_put(cache, "key", &image);
	(void)chmod(folder, 0777);
	EXPECT(!holds(cache, "key", "the image"), "a folder that became writable by all is read");
	(void)chmod(folder, 0700);
	EXPECT(holds(cache, "key", "the image"), "a folder that became safe again is not read");
	ek_cache_close(cache);
}

static bool notes_are_written_once(void)
{
	char text[1024] = "";
	int ends[2];
	const char *folder = in_base("open");
	if (mkdir(folder, 0700) != 0 || chmod(folder, 0777) != 0 || pipe(ends) != 0 || dup2(ends[1], 2) != 2)
		return false;
	for (int i = 0; i < 3; i++)
		ek_cache_close(ek_cache_open(folder, ""));
	ssize_t length = read(ends[0], text, sizeof text - 1);
	const char *said = strstr(text, "evenkeel: ");
	return length > 0 && said && strstr(said, folder) && !strstr(said + 1, "evenkeel: ");
}

static void an_unsafe_folder_is_noted_once(void)
{
	EXPECT(in_child(notes_are_written_once), "not noted, or more than once");
}

/* Rights do not bind root: as somebody else. */
static bool read_only_folder_serves(void)
{
	struct ek_image image = image_of("the image");
	const char *folder = in_base("folder");
	if (geteuid() == 0 &&
	    (chown(folder, 65534, 65534) != 0 || chmod(base, 0755) != 0 || setuid(65534) != 0))
		return false;
	struct ek_cache *cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "key", &image);
	if (chmod(folder, 0500) != 0 || !holds(cache, "key", "the image"))
		return false;
	ek_cache_close(cache);
	cache = ek_cache_open(folder, "");
	ek_cache_put(cache, "other", &image);
	struct ek_cache_info info = describe(cache);
	bool right = holds(cache, "key", "the image") && !holds(cache, "other", "the image") &&
		     strstr(info.why_not, "Permission denied") && info.entries == 1;
	ek_cache_close(cache);
	/* A folder that cannot be made is none. */
	cache = ek_cache_open(in_base("folder/sub/folder"), "");
	right = right && describe(cache).folder[0] == 0 && describe(cache).why_not[0];
	ek_cache_close(cache);
	return chmod(folder, 0700) == 0 && right;
}

static void a_read_only_folder_serves_what_it_holds(void)
{
	EXPECT(mkdir(fresh_folder(), 0700) == 0, "no folder");
	EXPECT(in_child(read_only_folder_serves), "it does not");
}

/* The nearest to a full disk that a test can make: files may not grow past a limit. */
static bool too_large_is_left_out(void)
{
	const struct rlimit limit = {4096, 4096};
	struct ek_image image = {calloc(1, 100000), 100000}, got;
	struct ek_cache *cache = ek_cache_open(in_base("folder"), "");
	(void)signal(SIGXFSZ, SIG_IGN);
	if (!image.data || setrlimit(RLIMIT_FSIZE, &limit) != 0)
		return false;
	ek_cache_put(cache, "key", &image);
	bool right = !ek_cache_get(cache, "key", &got) && describe(cache).entries == 0;
	ek_cache_close(cache);
	free(image.data);
	return right && rmdir(in_base("folder")) == 0; /* nothing was left behind */
}

static void a_full_disk_leaves_nothing_behind(void)
{
	(void)fresh_folder();
	EXPECT(in_child(too_large_is_left_out), "it does");
}

/* ---- the environment ---- */

static void set(const char *name, const char *value)
{
	if (value)
		(void)setenv(name, value, 1);
	else
		(void)unsetenv(name);
}

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

static bool relative_folder_stays(void)
{
	struct ek_image image = image_of("the image");
	if (chdir(base) != 0)
		return false;
	struct ek_cache *cache = ek_cache_open("relative", "");
	ek_cache_put(cache, "key", &image);
	bool right = chdir("/") == 0 && holds(cache, "key", "the image") &&
		     strcmp(describe(cache).folder, in_base("relative")) == 0;
	ek_cache_close(cache);
	return right;
}

static void a_relative_folder_stays_where_it_was(void)
{
	EXPECT(in_child(relative_folder_stays), "it moves with the working directory");
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
	const char *folder = fresh_folder();
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
	const char *folder = fresh_folder();
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
	const char *folder = fresh_folder();
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

/* ---- packs ---- */

enum { PACKED = 40 };
static char pack_keys[PACKED][16], pack_texts[PACKED][48];

static void write_pack(const char *file)
{
	const char *keys[PACKED];
	struct ek_image images[PACKED];
	for (int i = 0; i < PACKED; i++) {
		(void)snprintf(pack_keys[i], sizeof pack_keys[i], "key %d", i);
		(void)snprintf(pack_texts[i], sizeof pack_texts[i], "image %d%.*s", i, i % 20,
			       "....................");
		keys[i] = pack_keys[i];
		images[i] = image_of(pack_texts[i]);
	}
	EXPECT(ek_pack_write(file, keys, images, PACKED) == EK_OK, "%s", ek_error(NULL));
}

static bool packed(struct ek_cache *cache, const char *key, const char *text)
{
	struct ek_image image;
	if (!ek_cache_get_packed(cache, key, &image))
		return false;
	bool same = image.size == strlen(text) && memcmp(image.data, text, image.size) == 0;
	free(image.data);
	return same;
}

static void packs_serve_their_entries(void)
{
	const char *file = in_base("kernels.pack");
	write_pack(file);
	struct ek_cache *cache = ek_cache_open("", file);
	EXPECT(describe(cache).pack_entries == PACKED && strcmp(describe(cache).pack, file) == 0,
	       "\"%s\" has %d entries (%s)", describe(cache).pack, describe(cache).pack_entries,
	       describe(cache).pack_why_not);
	for (int i = 0; i < PACKED; i++)
		EXPECT(packed(cache, pack_keys[i], pack_texts[i]), "%s does not come back", pack_keys[i]);
	EXPECT(!packed(cache, "key 40", "image 40") && !packed(cache, "", ""),
	       "what is not there comes back");
	EXPECT(!describe(cache).pack_why_not[0], "something is wrong: %s", describe(cache).pack_why_not);
	ek_cache_close(cache);
	set("EVENKEEL_PACK", file);
	cache = ek_cache_open("", NULL);
	EXPECT(packed(cache, "key 7", pack_texts[7]), "$EVENKEEL_PACK is not read");
	ek_cache_close(cache);
	cache = ek_cache_open("", "");
	EXPECT(!describe(cache).pack[0], "an empty option does not turn $EVENKEEL_PACK off");
	ek_cache_close(cache);
	set("EVENKEEL_PACK", NULL);
	EXPECT(ek_pack_write(in_base("empty.pack"), NULL, NULL, 0) == EK_OK, "%s", ek_error(NULL));
	cache = ek_cache_open("", in_base("empty.pack"));
	EXPECT(describe(cache).pack[0] && !packed(cache, "key 1", "image 1."), "the empty pack is not empty");
	ek_cache_close(cache);
}

static void refused_pack(const char *file, const char *part)
{
	struct ek_cache *cache = ek_cache_open("", file);
	EXPECT(!describe(cache).pack[0] && strstr(describe(cache).pack_why_not, part),
	       "%s: used, or for another reason: \"%s\"", part, describe(cache).pack_why_not);
	ek_cache_close(cache);
}

static void bad_packs_are_refused(void)
{
	const char *file = in_base("bad.pack");
	refused_pack(in_base("no.pack"), "No such file");
	refused_pack(base, "is not a file");
	write_file(file, "something else altogether", 25);
	refused_pack(file, "no pack");
	write_pack(file);
	(void)chmod(file, 0646);
	refused_pack(file, "everyone");
	EXPECT(ek_pack_write(in_base("no/folder.pack"), NULL, NULL, 0) == EK_ERROR_ARGUMENT &&
		       strstr(ek_error(NULL), "no/folder.pack"),
	       "written into nothing: %s", ek_error(NULL));
}

/* Counts the entries that come back right; one that comes back otherwise fails the test. */
static int right_entries(struct ek_cache *cache)
{
	int right = 0;
	for (int i = 0; i < PACKED; i++) {
		struct ek_image image;
		if (!ek_cache_get_packed(cache, pack_keys[i], &image))
			continue;
		EXPECT(image.size == strlen(pack_texts[i]) &&
			       memcmp(image.data, pack_texts[i], image.size) == 0,
		       "%s comes back wrong", pack_keys[i]);
		free(image.data);
		right++;
	}
	return right;
}

static void damaged_packs_give_nothing_wrong(void)
{
	static char good[16384], bad[16384];
	const char *file = in_base("damaged.pack");
	write_pack(file);
	size_t size = read_file(file, good, sizeof good);
	EXPECT(size < sizeof good, "the pack has %zu bytes", size);
	for (size_t i = 0; i < size; i += test_mode == TEST_SHORT ? 11 : 1) {
		memcpy(bad, good, size);
		bad[i] ^= 0x10;
		write_file(file, bad, size);
		struct ek_cache *cache = ek_cache_open("", file);
		int right = right_entries(cache);
		struct ek_cache_info info = describe(cache);
		EXPECT(right < PACKED && (right >= PACKED - 1 || !info.pack[0]) && info.pack_why_not[0],
		       "byte %zu: %d entries, pack \"%s\", why not \"%s\"", i, right, info.pack,
		       info.pack_why_not);
		ek_cache_close(cache);
		write_file(file, good, i);
		cache = ek_cache_open("", file);
		EXPECT(!describe(cache).pack[0], "cut at %zu it is still a pack", i);
		ek_cache_close(cache);
	}
}

static void a_pack_that_shrinks_ends_nothing(void)
{
	const char *file = in_base("shrinking.pack");
	write_pack(file);
	struct ek_cache *cache = ek_cache_open("", file);
	EXPECT(truncate(file, 1100) == 0 && right_entries(cache) < PACKED, "entries outlive the file");
	ek_cache_close(cache);
}

/* ---- the table of kernels ---- */

/* Handles that are never followed. */
union handle {
	uint64_t number;
	void *pointer;
};

static void *address(uint64_t number)
{
	return (union handle){.number = number}.pointer;
}

static void count_unloads(void *user, CUmodule module)
{
	*(uint64_t *)user += (union handle){.pointer = module}.number;
}

static void the_table_grows(void)
{
	enum { KEYS = 5000 };
	struct ek_table *table = ek_table_create();
	uint64_t sum = 0, unloaded = 0;
	for (uint64_t i = 1; i <= KEYS; i++) {
		EXPECT(!ek_table_find(table, i << 40), "key %d is there before", (int)i);
		EXPECT(ek_table_add(table, i << 40, address(i), address(2 * i)), "no memory");
		sum += 2 * i;
	}
	for (uint64_t i = 1; i <= KEYS; i++)
		EXPECT(ek_table_find(table, i << 40) == address(i), "key %d is another's", (int)i);
	EXPECT(!ek_table_find(table, 1), "a key that was never added is there");
	ek_table_destroy(table, count_unloads, &unloaded);
	EXPECT(unloaded == sum, "not each module is unloaded once");
}

/* ---- NVRTC ---- */

static const char scale_text[] =
	"extern \"C\" __global__ void NAME(float *x)\n{\n\tx[threadIdx.x] *= FACTOR;\n}\n";

static struct ek_recipe scale_recipe(const char *factor)
{
	struct ek_recipe recipe = {
		.texts = {"/* one text */\n", scale_text}, .option_count = 2, .name = "scale"};
	(void)snprintf(recipe.options[0], sizeof recipe.options[0], "-DNAME=scale");
	(void)snprintf(recipe.options[1], sizeof recipe.options[1], "-DFACTOR=%s", factor);
	return recipe;
}

static bool nvrtc_is_there(void)
{
	struct ek_nvrtc_info info;
	ek_nvrtc_describe(&info);
	if (info.version)
		EXPECT(info.path[0] && !info.missing[0] && info.version >= 12000,
		       "NVRTC %d in \"%s\", \"%s\"", info.version, info.path, info.missing);
	else
		EXPECT(strstr(info.missing, "install") && !info.path[0], "\"%s\" does not help",
		       info.missing);
	return info.version != 0;
}

static void texts_are_compiled(void)
{
	struct ek_image machine_code, text;
	char *log, *key;
	struct ek_recipe recipe = scale_recipe("2.0f");
	if (!nvrtc_is_there())
		return;
	EXPECT(ek_kernel_build(&recipe, 80, NULL, &machine_code, &key, &log) == EK_OK, "%s", ek_error(NULL));
	EXPECT(machine_code.size > 500 && memcmp(machine_code.data, "\177ELF", 4) == 0, "no machine code");
	EXPECT(strstr(key, "scale") && strstr(key, "arch=80") && strstr(key, "-DFACTOR=2.0f") &&
		       strstr(key, "--fmad=false") && !strstr(key, "nvrtc"),
	       "the key is \"%s\"", key);
	free(machine_code.data);
	free(key);
	free(log);
	/* One that no NVRTC knows yet. */
	EXPECT(ek_kernel_build(&recipe, 999, NULL, &text, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	EXPECT(text.size > 100 && strstr(text.data, ".visible .entry scale("), "no PTX");
	free(text.data);
	EXPECT(ek_kernel_build(&recipe, 10, NULL, &text, NULL, NULL) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), "1.0"),
	       "compiled for 1.0: %s", ek_error(NULL));
}

static void the_compiler_may_be_asked_about_registers(void)
{
	struct ek_image image;
	char *log = NULL;
	struct ek_recipe recipe = scale_recipe("2.0f");
	if (!nvrtc_is_there())
		return;
	(void)snprintf(recipe.options[recipe.option_count++], 64, "--ptxas-options=-v");
	EXPECT(ek_kernel_build(&recipe, 80, NULL, &image, NULL, &log) == EK_OK, "%s", ek_error(NULL));
	EXPECT(log && strstr(log, "registers"), "it said \"%s\"", log ? log : "");
	free(image.data);
	free(log);
}

static void a_refused_text_is_explained(void)
{
	char path[512], text[512] = "";
	const char *folder = fresh_folder();
	struct ek_image image;
	char *log = NULL;
	struct ek_recipe recipe = scale_recipe("no_such_name");
	if (!nvrtc_is_there())
		return;
	EXPECT(ek_kernel_build(&recipe, 80, NULL, &image, NULL, &log) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), "no_such_name") && strstr(ek_error(NULL), "scale"),
	       "the message is \"%s\"", ek_error(NULL));
	EXPECT(log && strstr(log, "no_such_name"), "the log is \"%s\"", log ? log : "");
	free(log);
	struct ek_cache *cache = ek_cache_open(folder, "");
	(void)snprintf(path, sizeof path, "%s/scale.log", folder);
	EXPECT(ek_kernel_build(&recipe, 80, cache, &image, NULL, NULL) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), path),
	       "the message is \"%s\"", ek_error(NULL));
	EXPECT(read_file(path, text, sizeof text - 1) > 20 && strstr(text, "no_such_name"), "%s says \"%s\"",
	       path, text);
	EXPECT(describe(cache).entries == 0, "a failure is kept");
	ek_cache_close(cache);
}

/* Two builds are one compilation; other options, texts or architectures are other entries. */
static void builds_go_through_the_cache(void)
{
	struct ek_image first = {0}, again = {0}, other = {0};
	char *log = NULL;
	struct ek_recipe recipe = scale_recipe("2.0f"), other_recipe = scale_recipe("3.0f");
	if (!nvrtc_is_there())
		return;
	struct ek_cache *cache = ek_cache_open(fresh_folder(), "");
	EXPECT(ek_kernel_build(&recipe, 80, cache, &first, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	EXPECT(describe(cache).entries == 1, "%lld entries after one build", describe(cache).entries);
	EXPECT(ek_kernel_build(&recipe, 80, cache, &again, NULL, &log) == EK_OK && !log, "%s",
	       ek_error(NULL));
	EXPECT(first.size == again.size && memcmp(first.data, again.data, first.size) == 0,
	       "another image comes back");
	EXPECT(ek_kernel_build(&other_recipe, 80, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	EXPECT(ek_kernel_build(&recipe, 90, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	recipe.texts[0] = "/* another text */\n";
	EXPECT(ek_kernel_build(&recipe, 80, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	EXPECT(describe(cache).entries == 4, "%lld entries of four", describe(cache).entries);
	free(first.data);
	free(again.data);
	ek_cache_close(cache);
}

/* A pack with the key that a build gives, and an image that no compiler made. */
static bool write_scale_pack(void)
{
	struct ek_image image = image_of("compiled"), built;
	struct ek_recipe recipe = scale_recipe("2.0f");
	char *key = NULL;
	return ek_kernel_build(&recipe, 80, NULL, &built, &key, NULL) == EK_OK &&
	       ek_pack_write(in_base("scale.pack"), (const char *const *)&key, &image, 1) == EK_OK;
}

static bool pack_serves(void)
{
	struct ek_image image = {NULL, 0};
	struct ek_recipe recipe = scale_recipe("2.0f"), other = scale_recipe("3.0f");
	set("EVENKEEL_NVRTC", in_base("no such library"));
	struct ek_cache *cache = ek_cache_open("", in_base("scale.pack"));
	EXPECT(ek_kernel_build(&recipe, 80, cache, &image, NULL, NULL) == EK_OK && image.size == 8 &&
		       memcmp(image.data, "compiled", 8) == 0,
	       "the pack does not serve: %s", ek_error(NULL));
	EXPECT(ek_kernel_build(&other, 80, cache, &image, NULL, NULL) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), "scale.pack has no such kernel") &&
		       strstr(ek_error(NULL), "$EVENKEEL_NVRTC"),
	       "the message is \"%s\"", ek_error(NULL));
	ek_cache_close(cache);
	free(image.data);
	return !test_failed();
}

/* A process that has found NVRTC keeps it: both parts are processes of their own. */
static void a_pack_serves_without_nvrtc(void)
{
	if (in_child(write_scale_pack))
		EXPECT(in_child(pack_serves), "it does not");
}

static bool bad_library_is_explained(void)
{
	struct ek_nvrtc_info info;
	set("EVENKEEL_NVRTC", in_base("no such library"));
	ek_nvrtc_describe(&info);
	EXPECT(info.version == 0 && strstr(info.missing, "$EVENKEEL_NVRTC") &&
		       strstr(info.missing, "no such library"),
	       "missing: \"%s\"", info.missing);
	set("EVENKEEL_NVRTC", "libc.so.6");
	ek_nvrtc_describe(&info);
	EXPECT(info.version == 0 && strstr(info.missing, "lacks nvrtcVersion"), "missing: \"%s\"",
	       info.missing);
	return !test_failed();
}

static void a_library_that_is_not_nvrtc_is_explained(void)
{
	EXPECT(in_child(bad_library_is_explained), "it is not");
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	set("EVENKEEL_CACHE", "");
	set("EVENKEEL_PACK", NULL);
	(void)snprintf(base, sizeof base, "/tmp/evenkeel_test_cache_XXXXXX");
	if (!mkdtemp(base)) {
		perror("mkdtemp");
		return 1;
	}
	TEST(a_pack_serves_without_nvrtc); /* this and the next before NVRTC is found */
	TEST(a_library_that_is_not_nvrtc_is_explained);
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
	TEST(packs_serve_their_entries);
	TEST(bad_packs_are_refused);
	TEST(damaged_packs_give_nothing_wrong);
	TEST(a_pack_that_shrinks_ends_nothing);
	TEST(the_table_grows);
	TEST(texts_are_compiled);
	TEST(the_compiler_may_be_asked_about_registers);
	TEST(a_refused_text_is_explained);
	TEST(builds_go_through_the_cache);
	remove_tree(base);
	return test_end();
}
