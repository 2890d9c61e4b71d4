/* Runs a grid: lays out each cluster's blocks, warps and threads, and chooses who runs next.
 * Stacks and threads are kept for the next launch. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "emulator.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "order.h"
#include "traffic.h"

/* Neighbouring stacks start at other cache lines, so that the lanes of a warp do not evict each other. */
enum { STACK_STRIDE = FIBER_STACK_BYTES + 17 * 64 };
/* Behind the shared memory where no AddressSanitizer watches its end. */
enum { MARGIN = FIBER_ASAN ? 0 : 64 };
static const uint64_t stack_end = 0x5741434b454e4421u;

struct cluster emulator_cluster;

const struct standin_machine emulator_machine = {
	.here = (const struct standin_here *const *)&emulator_cluster.running,
	.reading = accesses_reading,
	.writing = accesses_writing,
	.start_fetch = accesses_fetch,
	.fetch_close = accesses_fetch_close,
	.fetch_wait = accesses_fetch_wait,
	.exchange = meetings_exchange,
	.sync_warp = meetings_sync_warp,
	.sync_block = meetings_sync_block,
	.sync_some = meetings_sync_some,
	.sync_cluster = meetings_sync_cluster,
	.mbarrier_make = letters_make,
	.mbarrier_expect = letters_expect,
	.mbarrier_wait = letters_wait,
	.send = letters_send,
	.remote = accesses_remote,
	.wait_for_kernels_before = accesses_wait_for_kernels_before,
};

void emulator_report(const struct standin_place *place, const char *format, ...)
{
	const struct thread *thread = emulator_cluster.running;
	(void)fflush(stdout);
	(void)fprintf(stderr,
		      "standin: kernel %s, block %lld, warp %d, lane %d: ", emulator_cluster.launch->name,
		      (long long)thread->here.block, thread->here.thread / LANES, thread->lane);
	if (place)
		(void)fprintf(stderr, "%s in %s, line %d: ", place->word, place->function, place->line);
	va_list values;
	va_start(values, format);
	(void)vfprintf(stderr, format, values);
	va_end(values);
	(void)fprintf(stderr, " (EVENKEEL_STANDIN_ORDER=%s)\n", order_text());
	abort();
}

/* ---- who runs next ---- */

static struct thread *next_thread(void)
{
	struct cluster *cluster = &emulator_cluster;
	struct warp *warp = cluster->running ? cluster->running->warp : NULL;
	if (!warp || !warp->ready || order_whim()) {
		int number = order_warp(cluster->ready, MOST_WARPS / 64);
		if (number < 0)
			meetings_report_deadlock();
		warp = &cluster->warps[number];
	}
	return &warp->threads[order_lane(warp->ready)];
}

void emulator_pass_on(void)
{
	struct thread *self = emulator_cluster.running, *next = next_thread();
	if (next == self)
		return;
	emulator_cluster.running = next;
	fiber_switch(&self->fiber, &next->fiber);
}

/* What every fiber runs: a thread of one launch after another. */
static void live_forever(void)
{
	struct cluster *cluster = &emulator_cluster;
	for (;;) {
		cluster->launch->kernel->run(cluster->launch->arguments);
		struct thread *self = cluster->running;
		accesses_thread_ended(self);
		if (*(const uint64_t *)self->fiber.bottom != stack_end)
			emulator_report(NULL, "the thread needs more stack than %d bytes", FIBER_STACK_BYTES);
		meetings_thread_ended(self);
		if (cluster->live > 0)
			emulator_pass_on();
		else
			fiber_switch(&self->fiber, &cluster->host);
	}
}

/* ---- layout ---- */

static void *or_die(void *memory, const char *what)
{
	if (!memory || memory == MAP_FAILED) {
		(void)fprintf(stderr, "standin: no memory for %s\n", what);
		abort();
	}
	return memory;
}

static struct thread *create_threads(struct warp *warp)
{
	size_t bytes = (size_t)LANES * STACK_STRIDE;
	unsigned char *stacks = or_die(
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
		"stacks");
	(void)madvise(stacks, bytes, MADV_NOHUGEPAGE); /* a page or two of each is used */
	struct thread *threads = or_die(calloc(LANES, sizeof(*threads)), "threads");
	for (int lane = 0; lane < LANES; lane++) {
		unsigned char *stack = stacks + (size_t)lane * STACK_STRIDE;
		*(uint64_t *)stack = stack_end;
		threads[lane].warp = warp;
		threads[lane].lane = lane;
		fiber_create(&threads[lane].fiber, stack, live_forever);
	}
	return threads;
}

static void reset_warp(struct warp *warp, struct block *block, int first_thread)
{
	const struct emulator_launch *launch = emulator_cluster.launch;
	if (!warp->threads)
		warp->threads = create_threads(warp);
	int lanes = launch->threads - first_thread;
	*warp = (struct warp){
		.threads = warp->threads, .block = block, .members = lanes < LANES ? (1u << lanes) - 1 : ~0u};
	for (int lane = 0; lane < LANES; lane++) {
		struct thread *thread = &warp->threads[lane];
		thread->here = (struct standin_here){.thread = first_thread + lane,
						     .rank = block->rank,
						     .block = block->index,
						     .blocks = launch->blocks,
						     .shared = block->shared};
		thread->waited = !launch->overlaps;
		thread->groups_closed = 0;
	}
	meetings_wake(warp);
}

static void reset_block(struct block *block, int rank, int64_t index)
{
	struct cluster *cluster = &emulator_cluster;
	struct warp *warps = &cluster->warps[rank * cluster->block_warps];
	block->index = index;
	block->rank = rank;
	block->live = cluster->block_warps;
	memset(block->shared, POISON, (size_t)cluster->launch->shared_bytes + MARGIN);
	for (int i = 0; i < BARRIERS; i++)
		block->barriers[i] = (struct barrier){
			.live = &block->live, .first = warps, .end = warps + cluster->block_warps};
	block->mbarriers = block->barriers[0];
	for (int i = 0; i < cluster->block_warps; i++)
		reset_warp(&warps[i], block, i * LANES);
}

static void check_margin(const struct block *block, int shared_bytes)
{
	for (int i = 0; i < MARGIN; i++)
		if (block->shared[shared_bytes + i] != POISON)
			emulator_report(NULL, "block %lld has written past its %d bytes of shared memory",
					(long long)block->index, shared_bytes);
}

static void run_cluster(int64_t number)
{
	struct cluster *cluster = &emulator_cluster;
	int size = cluster->launch->cluster;
	cluster->live = size * cluster->block_warps;
	cluster->barrier = (struct barrier){
		.live = &cluster->live, .first = cluster->warps, .end = cluster->warps + cluster->live};
	for (int rank = 0; rank < size; rank++)
		reset_block(&cluster->blocks[rank], rank, number * size + rank);
	cluster->running = NULL;
	cluster->running = next_thread();
	fiber_switch(&cluster->host, &cluster->running->fiber);
	for (int rank = 0; rank < size; rank++)
		check_margin(&cluster->blocks[rank], cluster->launch->shared_bytes);
}

/* Exactly the bytes asked for, so that AddressSanitizer sees the first one past them. */
static void allocate_shared(int cluster, int bytes)
{
	for (int rank = 0; rank < cluster; rank++) {
		void *shared = NULL;
		if (posix_memalign(&shared, 128, (size_t)bytes + MARGIN) != 0)
			shared = NULL;
		emulator_cluster.blocks[rank].shared = or_die(shared, "shared memory");
	}
}

static void free_shared(int cluster)
{
	for (int rank = 0; rank < cluster; rank++)
		free(emulator_cluster.blocks[rank].shared);
}

void emulator_run(const struct emulator_launch *launch, char *order)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	(void)pthread_mutex_lock(&one_at_a_time);
	struct cluster *cluster = &emulator_cluster;
	cluster->launch = launch;
	cluster->block_warps = (launch->threads + LANES - 1) / LANES;
	order_begin();
	(void)snprintf(order, 32, "%s", order_text());
	allocate_shared(launch->cluster, launch->shared_bytes);
	int64_t clusters = launch->blocks / launch->cluster;
	traffic_begin(launch->name);
	for (int64_t i = 0; i < clusters; i++)
		run_cluster(order_block(i, clusters));
	traffic_end();
	free_shared(launch->cluster);
	(void)pthread_mutex_unlock(&one_at_a_time);
}
