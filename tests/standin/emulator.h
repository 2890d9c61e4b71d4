/* The emulated GPU: a grid's clusters run one after another, the threads of a cluster as fibers that switch where
 * they meet. One launch runs at a time. SPDX-License-Identifier: MIT */
#ifndef STANDIN_EMULATOR_H
#define STANDIN_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "fiber.h"
#include "machine.h"

enum {
	LANES = 32,
	BLOCK_WARPS = 32,
	MOST_CLUSTER = 16,
	MOST_WARPS = BLOCK_WARPS * MOST_CLUSTER,
	BARRIERS = 16
};

/* What memory holds that nobody has written: large in every dtype, so that no sum hides it. */
enum { POISON = 0xfb };

struct emulator_launch {
	const char *name;
	const struct standin_kernel *kernel;
	const void *arguments;
	int64_t blocks;
	int threads, cluster, shared_bytes;
	bool overlaps;       /* kernels before may still run: threads must wait for them */
	bool host_addresses; /* any address may be read and written */
};

/* Runs the whole grid; does not return from a kernel that breaks a rule. Calls from several threads wait for each
 * other. order, of 32 bytes, is the order that was taken. */
void emulator_run(const struct emulator_launch *launch, char *order);

extern const struct standin_machine emulator_machine;

/* ---- inside ---- */

/* An asynchronous copy that is under way. */
struct fetch {
	unsigned char *to;
	const unsigned char *from;
	int size, bytes;
	unsigned group;
	bool read; /* data has been read already */
	unsigned char data[16];
};

struct thread {
	struct standin_here here;
	struct fiber fiber;
	struct warp *warp;
	int lane;
	bool waited; /* for kernels before */
	struct fetch *fetches;
	int fetch_first, fetch_end, fetch_room;
	unsigned groups_closed;
};

/* Where whole warps meet: a block's or the cluster's. */
struct barrier {
	int arrived;     /* warps */
	int wanted;      /* warps; 0: all of *live */
	const int *live; /* warps that have not ended */
	struct warp *first, *end;
};

struct warp {
	struct block *block;
	struct thread *threads; /* LANES of them */
	uint32_t members, ended, waiting, ready;
	const struct standin_place *place; /* where lanes wait */
	int argument;                      /* and what for */
	struct barrier *at;                /* where all of them wait */
	const void *box;                   /* at the mbarriers: at which */
	unsigned turn;                     /* counts meetings */
	uint64_t values[2][LANES];         /* what lanes bring to this meeting and to the one before */
};

struct block {
	int64_t index;
	int rank, live;
	unsigned char *shared;
	struct barrier barriers[BARRIERS];
	struct barrier mbarriers; /* all of them: the warps that wait are told apart by their box */
};

struct cluster {
	const struct emulator_launch *launch;
	struct block blocks[MOST_CLUSTER];
	struct warp warps[MOST_WARPS];
	uint64_t ready[MOST_WARPS / 64]; /* the warps with a lane that can run */
	int block_warps, live;
	struct barrier barrier;
	struct thread *running;
	struct fiber host; /* where emulator_run was called */
};

extern struct cluster emulator_cluster;

/* Says what the running thread did wrong, at a place if there is one, and ends the process. */
__attribute__((noreturn, format(printf, 2, 3))) void emulator_report(const struct standin_place *place,
								     const char *format, ...);

/* Lets the next thread run, if another than the running one; returns when its turn comes again. */
void emulator_pass_on(void);

/* barriers.c: the running thread waits at a place, and true where it was the last of its warp; a warp's lanes may run
 * on, or one of them has ended. */
bool meetings_arrive(const struct standin_place *place, int argument);
void meetings_wake(struct warp *warp);
void meetings_thread_ended(struct thread *thread);
__attribute__((noreturn)) void meetings_report_deadlock(void);
uint64_t meetings_exchange(uint64_t value, int source, const struct standin_place *place);
void meetings_sync_warp(const struct standin_place *place);
void meetings_sync_block(const struct standin_place *place);
void meetings_sync_some(int barrier, int threads, const struct standin_place *place);
void meetings_sync_cluster(const struct standin_place *place);

/* mbarriers.c */
void letters_make(void *box, const struct standin_place *place);
void letters_expect(void *box, int bytes, const struct standin_place *place);
void letters_wait(const void *box, int round, const struct standin_place *place);
void *letters_send(const void *own, int rank, int bytes, const void *box, const struct standin_place *place);

/* accesses.c */
const void *accesses_reading(const void *address, size_t bytes, const struct standin_place *place);
void *accesses_writing(void *address, size_t bytes, const struct standin_place *place);
void accesses_fetch(void *to, const void *from, int size, int bytes, const struct standin_place *place);
void accesses_fetch_close(void);
void accesses_fetch_wait(int open, const struct standin_place *place);
void accesses_thread_ended(struct thread *thread); /* finishes the fetches that nobody waited for */
void *accesses_remote(const void *own, int rank, size_t bytes, const struct standin_place *place);
void accesses_wait_for_kernels_before(void);

#endif
