/* Words that touch memory: global memory, asynchronous copies, the shared memory of other blocks.
 * Rules that hardware leaves to chance are enforced here. SPDX-License-Identifier: MIT */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "order.h"
#include "traffic.h"

static bool is_aligned(const void *address, size_t bytes)
{
	return (uintptr_t)address % bytes == 0;
}

/* The offset of an address in the running thread's shared memory; reports one that is not there. */
static size_t own_offset(const void *address, size_t bytes, const struct standin_place *place)
{
	uintptr_t start = (uintptr_t)emulator_cluster.running->here.shared, wanted = (uintptr_t)address;
	size_t limit = (size_t)emulator_cluster.launch->shared_bytes;
	if (wanted < start || wanted - start > limit || limit - (wanted - start) < bytes)
		emulator_report(place, "%p is not in the block's %zu bytes of shared memory", address, limit);
	if (!is_aligned(address, bytes))
		emulator_report(place, "byte %zu of shared memory is not a multiple of %zu", wanted - start,
				bytes);
	return wanted - start;
}

static bool is_shared(const void *address)
{
	size_t offset = (uintptr_t)address - (uintptr_t)emulator_cluster.running->here.shared;
	return offset < (size_t)emulator_cluster.launch->shared_bytes;
}

/* Of `bytes` out of the `unit` that an address is a multiple of. */
static void look_at(const void *address, size_t bytes, size_t unit, enum traffic_kind kind,
		    const struct standin_place *place)
{
	if (!is_aligned(address, unit))
		emulator_report(place, "%p is not a multiple of %zu", address, unit);
	if (is_shared(address)) {
		if (unit == 16)
			emulator_report(place, "%p is in shared memory", address);
		return;
	}
	if (!emulator_cluster.running->waited)
		emulator_report(place, "global memory before wait_for_kernels_before");
	const bool anywhere = emulator_cluster.launch->host_addresses;
	const struct memory_range *range =
		anywhere && !traffic_counts ? NULL : memory_range_of(address, bytes);
	if (!range && !anywhere)
		emulator_report(place, "%zu bytes at %p are not in device memory%s", bytes, address,
				memory_describe(address));
	if (range && traffic_counts)
		traffic_add(range, address, bytes, kind);
}

const void *accesses_reading(const void *address, size_t bytes, const struct standin_place *place)
{
	look_at(address, bytes, bytes, TRAFFIC_READ, place);
	return address;
}

void *accesses_writing(void *address, size_t bytes, const struct standin_place *place)
{
	look_at(address, bytes, bytes, TRAFFIC_WRITTEN, place);
	return address;
}

void accesses_wait_for_kernels_before(void)
{
	emulator_cluster.running->waited = true;
}

/* ---- asynchronous copies ---- */

static void make_room(struct thread *thread)
{
	if (thread->fetch_first > thread->fetch_room / 2) {
		thread->fetch_end -= thread->fetch_first;
		memmove(thread->fetches, thread->fetches + thread->fetch_first,
			(size_t)thread->fetch_end * sizeof(*thread->fetches));
		thread->fetch_first = 0;
		return;
	}
	thread->fetch_room = thread->fetch_room ? thread->fetch_room * 2 : 64;
	thread->fetches = realloc(thread->fetches, (size_t)thread->fetch_room * sizeof(*thread->fetches));
	if (!thread->fetches)
		abort();
}

static void read_source(struct fetch *fetch)
{
	memcpy(fetch->data, fetch->from, (size_t)fetch->bytes);
	fetch->read = true;
}

/* Between the fetch and the end of the wait nobody can rely on what is there, nor on when the source is read. */
void accesses_fetch(void *to, const void *from, int size, int bytes, const struct standin_place *place)
{
	struct thread *self = emulator_cluster.running;
	(void)own_offset(to, (size_t)size, place);
	if (bytes < 0 || bytes > size)
		emulator_report(place, "%d bytes are not from 0 to %d", bytes, size);
	if (bytes > 0)
		look_at(from, (size_t)bytes, (size_t)size, TRAFFIC_READ, place);
	if (self->fetch_end == self->fetch_room)
		make_room(self);
	struct fetch *fetch = &self->fetches[self->fetch_end++];
	*fetch = (struct fetch){
		.to = to, .from = from, .size = size, .bytes = bytes, .group = self->groups_closed};
	memset(to, POISON, (size_t)size);
	if (order_whim())
		read_source(fetch);
}

void accesses_fetch_close(void)
{
	emulator_cluster.running->groups_closed++;
}

static void finish_oldest(struct thread *thread)
{
	struct fetch *fetch = &thread->fetches[thread->fetch_first++];
	if (!fetch->read)
		read_source(fetch);
	memcpy(fetch->to, fetch->data, (size_t)fetch->size);
	if (thread->fetch_first == thread->fetch_end)
		thread->fetch_first = thread->fetch_end = 0;
}

void accesses_fetch_wait(int open, const struct standin_place *place)
{
	struct thread *self = emulator_cluster.running;
	if (open < 0)
		emulator_report(place, "%d groups cannot stay open", open);
	while (self->fetch_first < self->fetch_end &&
	       self->fetches[self->fetch_first].group + (unsigned)open < self->groups_closed)
		finish_oldest(self);
}

void accesses_thread_ended(struct thread *thread)
{
	while (thread->fetch_first < thread->fetch_end)
		finish_oldest(thread);
}

/* ---- other blocks of the cluster ---- */

void *accesses_remote(const void *own, int rank, size_t bytes, const struct standin_place *place)
{
	size_t offset = own_offset(own, bytes, place);
	if (rank < 0 || rank >= emulator_cluster.launch->cluster)
		emulator_report(place, "the cluster has no block %d", rank);
	struct block *block = &emulator_cluster.blocks[rank];
	if (block->live == 0)
		emulator_report(place, "block %d of the cluster has ended", rank);
	return block->shared + offset;
}
