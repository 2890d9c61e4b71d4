/* Mbarriers: what blocks of a cluster send each other is counted where it arrives, and warps wait for the whole of a
 * round. What is sent is there at once. SPDX-License-Identifier: MIT */
#include "emulator.h"

#include <string.h>

/* As it lies in shared memory, in the 8 bytes that PTX gives it. */
struct mbarrier {
	int32_t missing; /* bytes; below 0: more have come than were expected so far */
	int16_t made;
	uint8_t expected; /* whether somebody has said how many */
	uint8_t round;    /* 0 or 1: the one that is open */
};
_Static_assert(sizeof(struct mbarrier) == 8, "as PTX has it");

enum { MADE = 0x5a17 };

static struct mbarrier *known_box(void *at, const struct standin_place *place)
{
	struct mbarrier *box = at;
	if (box->made != MADE)
		emulator_report(place, "there is no mbarrier");
	return box;
}

void letters_make(void *box, const struct standin_place *place)
{
	(void)place;
	struct mbarrier empty = {.made = MADE};
	memcpy(box, &empty, sizeof empty);
}

/* Opens the next round, if this one is complete. */
static void settle(struct mbarrier *box, struct block *block)
{
	if (!box->expected || box->missing != 0)
		return;
	box->expected = 0;
	box->round ^= 1;
	for (struct warp *warp = block->mbarriers.first; warp < block->mbarriers.end; warp++)
		if (warp->at == &block->mbarriers && warp->box == box)
			meetings_wake(warp);
}

void letters_expect(void *at, int bytes, const struct standin_place *place)
{
	struct mbarrier *box = known_box(at, place);
	if (box->expected)
		emulator_report(place, "the round before is not over");
	box->expected = 1;
	box->missing += bytes;
	settle(box, emulator_cluster.running->warp->block);
}

void letters_wait(const void *at, int round, const struct standin_place *place)
{
	struct mbarrier *box = known_box((void *)(uintptr_t)at, place);
	struct warp *warp = emulator_cluster.running->warp;
	if (meetings_arrive(place, round & 1)) {
		warp->at = &warp->block->mbarriers;
		warp->box = box;
		if (box->round != (round & 1))
			meetings_wake(warp);
	}
	emulator_pass_on();
}

/* The sender writes the store when it is told where, and nobody runs in between. */
void *letters_send(const void *own, int rank, int bytes, const void *box, const struct standin_place *place)
{
	void *to = accesses_remote(own, rank, (size_t)bytes, place);
	struct mbarrier *there = known_box(accesses_remote(box, rank, sizeof *there, place), place);
	there->missing -= bytes;
	settle(there, &emulator_cluster.blocks[rank]);
	return to;
}
