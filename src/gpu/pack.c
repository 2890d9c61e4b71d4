/* A pack is a header, an index sorted by the hashes of the keys, a checksum of both, then the entries
 * (entry.h). It is read with pread: a file that shrinks under a map would end the process.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"
#include "entry.h"
#include "file.h"
#include "hash.h"

struct header {
	char magic[8];
	uint32_t version, count;
};
struct place {
	uint64_t hash, offset, size;
};
static const char magic[8] = "ek pack ";
enum { VERSION = 1, MOST_ENTRIES = 1 << 16 };

struct ek_pack {
	int file;
	uint32_t count;
	atomic_bool damaged;
	struct place places[]; /* by hash */
};

static uint64_t index_checksum(const struct header *header, const struct place *places)
{
	uint64_t hash = ek_hash(EK_HASH_START, header, sizeof *header);
	return ek_hash(hash, places, header->count * sizeof *places);
}

/* ---- reading ---- */

/* Always NULL. */
static struct ek_pack *refuse(char *why, size_t size, const char *name, const char *words)
{
	(void)snprintf(why, size, "%.400s %s", name, words);
	return NULL;
}

/* Every entry is in the file, and of a size that may be read into memory. */
static bool places_are_sound(const struct ek_pack *pack, uint64_t file_size)
{
	for (uint32_t i = 0; i < pack->count; i++) {
		const struct place *place = &pack->places[i];
		if (place->size > EK_ENTRY_BOUND || place->size > file_size ||
		    place->offset > file_size - place->size)
			return false;
	}
	return true;
}

static struct ek_pack *read_index(int file, const char *name, uint64_t file_size, char *why, size_t size)
{
	struct header header;
	uint64_t checksum;
	if (!ek_file_read(file, &header, sizeof header, 0) || memcmp(header.magic, magic, sizeof magic) != 0)
		return refuse(why, size, name, "is no pack of evenkeel: evenkeel warmup --pack writes one");
	if (header.version != VERSION)
		return refuse(why, size, name, "is a pack of another version: write it again");
	const size_t index_bytes = header.count * sizeof(struct place);
	if (header.count > MOST_ENTRIES || index_bytes > file_size)
		return refuse(why, size, name, "is damaged: write it again");

	struct ek_pack *pack = malloc(sizeof *pack + index_bytes);
	if (!pack)
		return refuse(why, size, name, "has an index too large for the memory");
	pack->file = file;
	pack->count = header.count;
	atomic_init(&pack->damaged, false);
	if (ek_file_read(file, pack->places, index_bytes, sizeof header) &&
	    ek_file_read(file, &checksum, sizeof checksum, (off_t)(sizeof header + index_bytes)) &&
	    checksum == index_checksum(&header, pack->places) && places_are_sound(pack, file_size))
		return pack;
	free(pack);
	return refuse(why, size, name, "is damaged: write it again");
}

/* Why the file's code may not be run; NULL: it may. An administrator may install a pack for all users. */
static const char *unsafe(const struct stat *status)
{
	if (!S_ISREG(status->st_mode))
		return "is not a file";
	if (status->st_uid != geteuid() && status->st_uid != 0)
		return "belongs to another user: it must be yours or root's, copy it";
	if (status->st_mode & (S_IWGRP | S_IWOTH))
		return "may be written by others: chmod go-w it";
	return NULL;
}

struct ek_pack *ek_pack_open(const char *name, char *why, size_t size)
{
	struct stat status;
	int file = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (file < 0) {
		(void)snprintf(why, size, "%.400s: %s", name, strerror(errno));
		return NULL;
	}
	struct ek_pack *pack = NULL;
	const char *wrong = fstat(file, &status) == 0 ? unsafe(&status) : "cannot be looked at";
	if (wrong)
		(void)refuse(why, size, name, wrong);
	else
		pack = read_index(file, name, (uint64_t)status.st_size, why, size);
	if (!pack)
		(void)close(file);
	return pack;
}

void ek_pack_close(struct ek_pack *pack)
{
	if (!pack)
		return;
	(void)close(pack->file);
	free(pack);
}

/* The first place whose hash is not below. */
static uint32_t lower_bound(const struct ek_pack *pack, uint64_t hash)
{
	uint32_t low = 0, high = pack->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (pack->places[middle].hash < hash)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool read_entry(const struct ek_pack *pack, const struct place *place, const char *key,
		       struct ek_image *image)
{
	void *bytes = malloc(place->size);
	bool found = bytes && ek_file_read(pack->file, bytes, place->size, (off_t)place->offset) &&
		     ek_entry_read(bytes, place->size, key, image);
	free(bytes);
	return found;
}

bool ek_pack_get(struct ek_pack *pack, const char *key, struct ek_image *image)
{
	const uint64_t hash = ek_entry_hash(key);
	for (uint32_t i = lower_bound(pack, hash); i < pack->count && pack->places[i].hash == hash; i++) {
		if (read_entry(pack, &pack->places[i], key, image))
			return true;
		atomic_store(&pack->damaged, true);
	}
	return false;
}

int ek_pack_count(const struct ek_pack *pack)
{
	return (int)pack->count;
}

bool ek_pack_damaged(const struct ek_pack *pack)
{
	return atomic_load(&pack->damaged);
}

/* ---- writing ---- */

static int by_hash(const void *a, const void *b)
{
	const struct place *left = a, *right = b;
	return (left->hash > right->hash) - (left->hash < right->hash);
}

/* Header, index and checksum to the front of bytes, the entries behind them. */
static void lay_out(char *bytes, struct place *places, const char *const *keys, const struct ek_image *images,
		    uint32_t count)
{
	struct header header = {.version = VERSION, .count = count};
	memcpy(header.magic, magic, sizeof magic);
	uint64_t offset = sizeof header + count * sizeof *places + sizeof(uint64_t);
	for (uint32_t i = 0; i < count; i++) {
		places[i] =
			(struct place){ek_entry_hash(keys[i]), offset, ek_entry_size(keys[i], &images[i])};
		ek_entry_write(bytes + offset, keys[i], &images[i]);
		offset += places[i].size;
	}
	if (count > 0)
		qsort(places, count, sizeof *places, by_hash);
	const uint64_t checksum = index_checksum(&header, places);
	memcpy(bytes, &header, sizeof header);
	memcpy(bytes + sizeof header, places, count * sizeof *places);
	memcpy(bytes + sizeof header + count * sizeof *places, &checksum, sizeof checksum);
}

static ek_status fail_write(const char *file, const char *words)
{
	return ek_fail(EK_ERROR_ARGUMENT, "the pack \"%.400s\" cannot be written: %s", file, words);
}

/* What ek_pack_open would refuse is not written. Renaming would replace a device, a link or a pipe by a file. */
static ek_status check_write(const char *file, const char *const *keys, const struct ek_image *images,
			     int count)
{
	struct stat status;
	if (lstat(file, &status) == 0 && !S_ISREG(status.st_mode))
		return fail_write(file, "it exists and is not a regular file");
	if (count > MOST_ENTRIES)
		return fail_write(file, "it would have more than 65536 kernels");
	for (int i = 0; i < count; i++)
		if (ek_entry_size(keys[i], &images[i]) > EK_ENTRY_BOUND)
			return fail_write(file, "a kernel has more than 16 MiB");
	return EK_OK;
}

ek_status ek_pack_write(const char *file, const char *const *keys, const struct ek_image *images, int count)
{
	ek_status status = check_write(file, keys, images, count);
	if (status != EK_OK)
		return status;
	size_t size = sizeof(struct header) + (size_t)count * sizeof(struct place) + sizeof(uint64_t);
	for (int i = 0; i < count; i++)
		size += ek_entry_size(keys[i], &images[i]);
	char *bytes = malloc(size);
	struct place *places = malloc(((size_t)count + 1) * sizeof *places);
	int error = ENOMEM;
	if (bytes && places) {
		lay_out(bytes, places, keys, images, (uint32_t)count);
		error = ek_file_write(AT_FDCWD, file, 0644, bytes, size);
	}
	free(places);
	free(bytes);
	if (error == ENOMEM)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a pack of %zu bytes", size);
	return error == 0 ? EK_OK : fail_write(file, strerror(error));
}
