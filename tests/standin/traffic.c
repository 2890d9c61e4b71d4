/* Counts what launches read and write of each allocation: a mark for every byte tells the different ones. Called by
 * emulator.c around a launch, by accesses.c at each access, by tests. SPDX-License-Identifier: MIT */
#include "traffic.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

/* A record on its way: marks has a byte for each of the allocation, of bits of enum traffic_kind. */
struct counted {
	struct standin_traffic record;
	unsigned char *marks;
	size_t bytes;
};

bool traffic_counts;

static atomic_bool wanted;
static struct counted *counted;
static int count, room, launches;
static int first; /* of the running launch */
static const char *running;

void standin_traffic_count(bool on)
{
	wanted = on;
	count = launches = 0;
}

bool standin_traffic_get(int index, struct standin_traffic *record)
{
	if (index < 0 || index >= count)
		return false;
	*record = counted[index].record;
	return true;
}

void traffic_begin(const char *kernel)
{
	traffic_counts = wanted;
	running = kernel;
	first = count;
}

static struct counted *append(const struct memory_range *allocation)
{
	if (count == room) {
		room = room ? 2 * room : 64;
		struct counted *larger = realloc(counted, (size_t)room * sizeof(*counted));
		if (!larger)
			abort();
		counted = larger;
	}
	unsigned char *marks = calloc(allocation->bytes, 1);
	if (!marks)
		abort();
	struct counted *added = &counted[count++];
	*added = (struct counted){.record = {.launch = launches, .buffer = allocation->start},
				  .marks = marks,
				  .bytes = allocation->bytes};
	(void)snprintf(added->record.kernel, sizeof(added->record.kernel), "%s", running);
	return added;
}

static struct counted *counted_of(const struct memory_range *allocation)
{
	for (int i = first; i < count; i++)
		if (counted[i].record.buffer == allocation->start)
			return &counted[i];
	return append(allocation);
}

void traffic_add(const struct memory_range *allocation, const void *address, size_t bytes,
		 enum traffic_kind kind)
{
	struct counted *to = counted_of(allocation);
	unsigned char *marks = to->marks + ((const unsigned char *)address - allocation->start);
	for (size_t i = 0; i < bytes; i++)
		marks[i] |= (unsigned char)kind;
	*(kind == TRAFFIC_READ ? &to->record.read_in_all : &to->record.written_in_all) += (int64_t)bytes;
}

static void finish(struct counted *one)
{
	for (size_t i = 0; i < one->bytes; i++) {
		one->record.read += (one->marks[i] & TRAFFIC_READ) != 0;
		one->record.written += (one->marks[i] & TRAFFIC_WRITTEN) != 0;
	}
	free(one->marks);
}

void traffic_end(void)
{
	if (!traffic_counts)
		return;
	for (int i = first; i < count; i++)
		finish(&counted[i]);
	launches++;
	traffic_counts = false;
}
