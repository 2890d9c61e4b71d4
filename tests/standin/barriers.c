/* Where threads meet: lanes at a word of their warp, whole warps at a barrier of the block or the cluster.
 * The rules are PTX's for aligned instructions: all lanes of a warp come to the same word in the text, and none
 * of them has ended. Whoever breaks them is named. SPDX-License-Identifier: MIT */
#include "emulator.h"

#include <stdio.h>
#include <stdlib.h>

#include "order.h"

static void mark_ready(const struct warp *warp, bool ready)
{
	int number = (int)(warp - emulator_cluster.warps);
	uint64_t bit = (uint64_t)1 << (number % 64);
	if (ready)
		emulator_cluster.ready[number / 64] |= bit;
	else
		emulator_cluster.ready[number / 64] &= ~bit;
}

void meetings_wake(struct warp *warp)
{
	warp->waiting = 0;
	warp->at = NULL;
	warp->turn++;
	warp->ready = warp->members;
	mark_ready(warp, true);
}

static void stop(struct thread *thread)
{
	struct warp *warp = thread->warp;
	warp->ready &= ~(1u << thread->lane);
	if (!warp->ready)
		mark_ready(warp, false);
}

/* The running thread waits at place. True where it was the last of its warp. */
bool meetings_arrive(const struct standin_place *place, int argument)
{
	struct thread *self = emulator_cluster.running;
	struct warp *warp = self->warp;
	if (warp->ended)
		emulator_report(place, "lane %d of the warp has ended and will not come",
				__builtin_ctz(warp->ended));
	if (warp->waiting && warp->place != place)
		emulator_report(place, "lane %d of the warp waits elsewhere, at %s in %s, line %d",
				__builtin_ctz(warp->waiting), warp->place->word, warp->place->function,
				warp->place->line);
	if (warp->waiting && warp->argument != argument)
		emulator_report(place, "lane %d of the warp waits at another barrier or for other threads",
				__builtin_ctz(warp->waiting));
	warp->place = place;
	warp->argument = argument;
	warp->waiting |= 1u << self->lane;
	stop(self);
	return warp->waiting == warp->members;
}

/* ---- in a warp ---- */

static void meet_warp(const struct standin_place *place)
{
	struct warp *warp = emulator_cluster.running->warp;
	if (meetings_arrive(place, 0))
		meetings_wake(warp);
	emulator_pass_on();
}

uint64_t meetings_exchange(uint64_t value, int source, const struct standin_place *place)
{
	struct thread *self = emulator_cluster.running;
	struct warp *warp = self->warp;
	if (source < 0 || source >= LANES)
		emulator_report(place, "lane %d does not exist", source);
	if (warp->members != ~0u)
		emulator_report(place, "the warp has %d lanes only", __builtin_popcount(warp->members));
	uint64_t *values = warp->values[warp->turn % 2]; /* a lane that runs ahead uses the others */
	values[self->lane] = value;
	meet_warp(place);
	return values[source];
}

void meetings_sync_warp(const struct standin_place *place)
{
	meet_warp(place);
}

/* ---- at a barrier ---- */

/* Lets the warps go on, if all have come. */
static void settle(struct barrier *barrier)
{
	int wanted = barrier->wanted ? barrier->wanted : *barrier->live;
	if (barrier->arrived == 0 || barrier->arrived < wanted)
		return;
	barrier->arrived = 0;
	for (struct warp *warp = barrier->first; warp < barrier->end; warp++)
		if (warp->at == barrier)
			meetings_wake(warp);
}

static void meet_at(struct barrier *barrier, int wanted, const struct standin_place *place)
{
	struct warp *warp = emulator_cluster.running->warp;
	int argument = (int)(barrier - warp->block->barriers) * 64 + wanted;
	if (meetings_arrive(place, argument)) {
		if (barrier->arrived > 0 && barrier->wanted != wanted)
			emulator_report(place, "others wait there for %d threads, not %d",
					barrier->wanted * LANES, wanted * LANES);
		barrier->wanted = wanted;
		barrier->arrived++;
		warp->at = barrier;
		settle(barrier);
	}
	emulator_pass_on();
}

void meetings_sync_block(const struct standin_place *place)
{
	meet_at(&emulator_cluster.running->warp->block->barriers[0], 0, place);
}

void meetings_sync_some(int barrier, int threads, const struct standin_place *place)
{
	if (barrier < 1 || barrier >= BARRIERS)
		emulator_report(place, "barrier %d is not from 1 to %d", barrier, BARRIERS - 1);
	if (threads < LANES || threads % LANES != 0 || threads > emulator_cluster.block_warps * LANES)
		emulator_report(place, "%d threads are not some of the block's warps", threads);
	meet_at(&emulator_cluster.running->warp->block->barriers[barrier], threads / LANES, place);
}

void meetings_sync_cluster(const struct standin_place *place)
{
	struct warp *warp = emulator_cluster.running->warp;
	if (meetings_arrive(place, 0)) {
		emulator_cluster.barrier.arrived++;
		warp->at = &emulator_cluster.barrier;
		settle(&emulator_cluster.barrier);
	}
	emulator_pass_on();
}

/* ---- the end ---- */

void meetings_thread_ended(struct thread *thread)
{
	struct warp *warp = thread->warp;
	if (warp->waiting)
		emulator_report(NULL, "the thread ends while lane %d waits at %s in %s, line %d",
				__builtin_ctz(warp->waiting), warp->place->word, warp->place->function,
				warp->place->line);
	warp->ended |= 1u << thread->lane;
	stop(thread);
	if (warp->ended != warp->members)
		return;
	emulator_cluster.live--;
	warp->block->live--;
	settle(&warp->block->barriers[0]); /* those that have ended are not waited for there */
	settle(&emulator_cluster.barrier);
}

static bool same_wait(const struct warp *a, const struct warp *b)
{
	return a->block == b->block && a->at == b->at && a->place == b->place;
}

/* Says once for neighbouring warps where they wait. */
void meetings_report_deadlock(void)
{
	const struct warp *end = emulator_cluster.barrier.end;
	(void)fflush(stdout);
	for (const struct warp *warp = emulator_cluster.warps, *next; warp < end; warp = next) {
		for (next = warp + 1; next < end && same_wait(warp, next);)
			next++;
		if (!warp->at)
			continue;
		int first = warp->threads[0].here.thread / LANES;
		(void)fprintf(stderr, "standin: block %lld, warps %d to %d wait at %s in %s, line %d",
			      (long long)warp->block->index, first, first + (int)(next - warp) - 1,
			      warp->place->word, warp->place->function, warp->place->line);
		(void)fprintf(stderr, ", where %d of %d warps are\n", warp->at->arrived,
			      warp->at->wanted ? warp->at->wanted : *warp->at->live);
	}
	emulator_report(NULL, "deadlock: nobody can run");
}
