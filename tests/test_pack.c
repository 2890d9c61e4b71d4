/* Packs, files of compiled kernels: what is in them comes back, and nothing that is damaged does.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/hash.h"
#include "gpu/pack.h"
#include "support.h"
#include "support_cache.h"
#include "support_files.h"

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
	bool same = image_is(&image, text);
	free(image.data);
	return same;
}

SETUP()
{
	files_begin();
	set("EVENKEEL_PACK", NULL);
}

TEST(packs_serve_their_entries)
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

TEST(bad_packs_are_refused)
{
	const char *file = in_base("bad.pack");
	refused_pack(in_base("no.pack"), "no.pack: No such file");
	refused_pack(in_base(""), "is not a file");
	write_file(file, "something else altogether", 25);
	refused_pack(file, "no pack of evenkeel: evenkeel warmup --pack writes one");
	write_pack(file);
	(void)chmod(file, 0646);
	refused_pack(file, "may be written by others: chmod go-w it");
	(void)chmod(file, 0664);
	refused_pack(file, "may be written by others: chmod go-w it");
	(void)chmod(file, 0644);
	if (geteuid() == 0) {
		EXPECT(chown(file, 65534, 65534) == 0, "no other user");
		refused_pack(file, "belongs to another user: it must be yours or root's");
	}
	EXPECT(ek_pack_write(in_base("no/folder.pack"), NULL, NULL, 0) == EK_ERROR_ARGUMENT &&
		       strstr(ek_error(NULL), "no/folder.pack"),
	       "written into nothing: %s", ek_error(NULL));
}

static void roots_pack_in_a_child(void)
{
	EXPECT(setuid(65534) == 0, "no other user");
	struct ek_cache *cache = ek_cache_open("", in_base("root.pack"));
	EXPECT(packed(cache, "key 7", pack_texts[7]), "root's pack is refused: %s",
	       describe(cache).pack_why_not);
	ek_cache_close(cache);
}

TEST(a_pack_of_roots_serves_every_user)
{
	if (geteuid() != 0) {
		test_skip("only root can write a file of root's");
		return;
	}
	write_pack(in_base("root.pack"));
	EXPECT(chmod(in_base(""), 0755) == 0 && chmod(in_base("root.pack"), 0644) == 0, "no pack");
	in_child(roots_pack_in_a_child);
	EXPECT(chmod(in_base(""), 0700) == 0, "the folder stays open");
}

/* The start of a pack with one entry, as pack.c lays it out, with a checksum that is right. */
struct one_entry_pack {
	char magic[8];
	uint32_t version, count;
	uint64_t hash, offset, size;
	uint64_t checksum;
};

static void refused_claim(uint32_t count, uint64_t size)
{
	struct one_entry_pack start = {0};
	struct ek_image image = image_of("the image");
	const char *file = in_base("claims.pack"), *key = "the key";
	EXPECT(ek_pack_write(file, &key, &image, 1) == EK_OK &&
		       read_file(file, (char *)&start, sizeof start) == sizeof start,
	       "no pack: %s", ek_error(NULL));
	start.count = count;
	start.size = size;
	start.checksum = ek_hash(EK_HASH_START, &start, offsetof(struct one_entry_pack, checksum));
	write_file(file, (const char *)&start, sizeof start);
	EXPECT(truncate(file, (off_t)3 << 30) == 0, "no sparse file");
	refused_pack(file, "is damaged");
}

/* Before anything of that size is allocated or read. */
TEST(packs_that_claim_too_much_are_refused)
{
	refused_claim(1, (uint64_t)2 << 30);
	refused_claim(1, ((uint64_t)16 << 20) + 1);
	refused_claim(100000000, 100); /* an index of 2.4 GB */
}

static void refused_write(const char *file, const struct ek_image *image, const char *part)
{
	const char *key = "the key";
	EXPECT(ek_pack_write(file, &key, image, 1) == EK_ERROR_ARGUMENT && strstr(ek_error(NULL), part),
	       "%s: written, or for another reason: \"%s\"", part, ek_error(NULL));
}

/* A file that is renamed over a device or a link would take its place. */
TEST(a_pack_replaces_nothing_but_a_file)
{
	char target[128];
	struct ek_image image = image_of("the image"), large = {NULL, 16 << 20};
	const char *link = in_base("link.pack"), *fifo = in_base("fifo.pack");
	(void)snprintf(target, sizeof target, "%s", in_base("target.pack"));
	write_pack(target);
	EXPECT(symlink(target, link) == 0 && mkfifo(fifo, 0600) == 0, "no link");
	refused_write(link, &image, "it exists and is not a regular file");
	refused_write(fifo, &image, "it exists and is not a regular file");
	refused_write(in_base(""), &image, "it exists and is not a regular file");
	refused_write(in_base("large.pack"), &large, "a kernel has more than 16 MiB");
	write_pack(target); /* a second time: it may replace a pack */
}

/* Counts the entries that come back right; one that comes back otherwise fails the test. */
static int right_entries(struct ek_cache *cache)
{
	int right = 0;
	for (int i = 0; i < PACKED; i++) {
		struct ek_image image;
		if (!ek_cache_get_packed(cache, pack_keys[i], &image))
			continue;
		EXPECT(image_is(&image, pack_texts[i]), "%s comes back wrong", pack_keys[i]);
		free(image.data);
		right++;
	}
	return right;
}

TEST(damaged_packs_give_nothing_wrong)
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

TEST(a_pack_that_shrinks_ends_nothing)
{
	const char *file = in_base("shrinking.pack");
	write_pack(file);
	struct ek_cache *cache = ek_cache_open("", file);
	EXPECT(truncate(file, 1100) == 0 && right_entries(cache) < PACKED, "entries outlive the file");
	ek_cache_close(cache);
}
