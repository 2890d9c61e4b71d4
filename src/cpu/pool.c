/* The worker threads of a context: tasks.c hands it the tasks of a call, ek_open and ek_close make and end it.
 *
 * A call that owns the pool opens the job: places for workers. A worker that takes a place draws task numbers
 * until none are left, as the caller does. The caller then closes the job and waits for the workers that took
 * a place; one that comes later finds no place and touches nothing. Idle workers spin for a moment, since
 * calls come in rows and waking a sleeper costs tens of microseconds, then sleep on a futex.
 *
 * A child after fork() has the memory but not the workers. The generation of the process, counted by a fork
 * handler, is part of the word that says who owns the pool, so the first call in a child sees that the pool
 * is not its own and starts it over; futexes, unlike mutexes, carry nothing over that could be stale.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fpenv.h"

enum {
	LINE = 128, /* bytes that CPUs move as one: two lines of 64, as prefetchers fetch pairs */
	SPIN_NANOSECONDS = 30000,
	STACK_BYTES =
		1 << 20, /* kernels use up to 224 KiB (evenkeel.h), under AddressSanitizer twice as much */
};

/* `places` counts the workers that work on the job, and the places that it still has for others. */
#define PLACE 1u
#define PLACES 0x3FFFu
#define CALLER_SLEEPS 0x8000u
#define ACTIVE 0x10000u

struct ek_pool {
	/* Written by calls that come and go. */
	alignas(LINE) _Atomic uint64_t owner; /* generation * 2 + (1: a call is using the pool) */
	int limit;                            /* workers to start at most */
	_Atomic int started;                  /* the owner writes it, ek_pool_workers reads it at any time */
	_Atomic int error;                    /* of a pthread_create that was refused; 0: none was */
	pthread_t *threads;

	/* Written by the owner for each job: one line brings a worker all of it. */
	alignas(LINE) _Atomic uint32_t jobs; /* counts them; what idle workers watch */
	_Atomic bool stop;
	int64_t tasks;
	void (*run)(void *arg, int64_t i);
	void *arg;

	/* Written by all that work. */
	alignas(LINE) _Atomic int64_t next; /* the next task number */
	alignas(LINE) _Atomic uint32_t places;

	/* Written by workers as they fall asleep and wake. */
	alignas(LINE) _Atomic int sleepers;
};

/* ---- waiting ---- */

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t nanoseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct spin {
	int turns;
	int64_t end;
};

/* A short pause; false when SPIN_NANOSECONDS have gone by. Timed by the clock, since how long a pause takes
 * differs much between CPUs. */
static bool spin(struct spin *spin)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("isb" : : : "memory"); /* on most arm64 CPUs `yield` does nothing */
#endif
	if (++spin->turns % 16 != 0)
		return true;
	int64_t now = nanoseconds();
	if (spin->end == 0)
		spin->end = now + SPIN_NANOSECONDS;
	return now < spin->end;
}

/* ---- workers ---- */

static void draw_tasks(struct ek_pool *pool)
{
	int64_t tasks = pool->tasks;
	void (*run)(void *arg, int64_t i) = pool->run;
	void *arg = pool->arg;
	for (;;) {
		int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
		if (i >= tasks)
			return;
		run(arg, i);
	}
}

static bool take_place(struct ek_pool *pool)
{
	uint32_t places = atomic_load_explicit(&pool->places, memory_order_relaxed);
	while (places & PLACES)
		if (atomic_compare_exchange_weak_explicit(&pool->places, &places, places - PLACE + ACTIVE,
							  memory_order_acquire, memory_order_relaxed))
			return true;
	return false;
}

static void leave_place(struct ek_pool *pool)
{
	uint32_t before = atomic_fetch_sub_explicit(&pool->places, ACTIVE, memory_order_release);
	if (before == (ACTIVE | CALLER_SLEEPS))
		futex_wake(&pool->places, 1);
}

/* Returns when there has been a job after the one numbered `seen`. */
static void await_job(struct ek_pool *pool, uint32_t seen)
{
	struct spin spinning = {0, 0};
	while (atomic_load_explicit(&pool->jobs, memory_order_acquire) == seen)
		if (!spin(&spinning))
			break;
	while (atomic_load_explicit(&pool->jobs, memory_order_acquire) == seen) {
		/* The order matters, here and in open_job: counted first, then the kernel compares `jobs`. */
		atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
		futex_wait(&pool->jobs, seen);
		atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_seq_cst);
	}
}

static void *worker(void *argument)
{
	struct ek_pool *pool = argument;
	pthread_setname_np(pthread_self(), "evenkeel");
	ek_fpenv_enter(); /* a new thread has its maker's environment */
	for (;;) {
		uint32_t seen = atomic_load_explicit(&pool->jobs, memory_order_acquire);
		if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
			return NULL;
		if (take_place(pool)) {
			draw_tasks(pool);
			leave_place(pool);
		}
		await_job(pool, seen);
	}
}

/* Signals that are sent to the process are for the program's own threads. A fault of the worker itself
 * stays deliverable, so that a crash handler sees it. */
static void block_signals(sigset_t *before)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t blocked;
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		sigdelset(&blocked, faults[i]);
	pthread_sigmask(SIG_SETMASK, &blocked, before); /* a new thread has its maker's mask */
}

static int started(const struct ek_pool *pool)
{
	return atomic_load_explicit(&pool->started, memory_order_relaxed);
}

/* Starts workers until there are `wanted`; returns 0 or what pthread_create returned. */
static int create_threads(struct ek_pool *pool, const pthread_attr_t *attributes, int wanted)
{
	for (int i = started(pool); i < wanted; i++) {
		int error = pthread_create(&pool->threads[i], attributes, worker, pool);
		if (error)
			return error;
		atomic_store_explicit(&pool->started, i + 1, memory_order_relaxed);
	}
	return 0;
}

/* Starts workers until there are `wanted`. After the system has refused one, the pool does not try again. */
static void start_workers(struct ek_pool *pool, int wanted)
{
	pthread_attr_t attributes;
	sigset_t before;
	if (started(pool) >= wanted)
		return;
	int error = pthread_attr_init(&attributes);
	if (!error) {
		pthread_attr_setstacksize(&attributes, STACK_BYTES);
		block_signals(&before);
		error = create_threads(pool, &attributes, wanted);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_attr_destroy(&attributes);
	}
	if (!error)
		return;
	pool->limit = started(pool);
	atomic_store_explicit(&pool->error, error, memory_order_relaxed);
}

/* ---- owning the pool ---- */

static _Atomic uint64_t generation; /* how many forks this process is away from the first */

static void count_fork(void)
{
	atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
}

static int fork_handler_error;

static void add_fork_handler(void)
{
	fork_handler_error = pthread_atfork(NULL, NULL, count_fork);
}

/* As at first: no workers, no job. `limit` is kept. */
static void reset(struct ek_pool *pool)
{
	atomic_store_explicit(&pool->started, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->jobs, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->places, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->sleepers, 0, memory_order_relaxed);
}

/* False: another call is using the pool. In a forked child, what the pool held is its parent's and is
 * dropped; nobody else can be using it, since whoever did is not in this process. */
static bool acquire(struct ek_pool *pool)
{
	uint64_t now = 2 * atomic_load_explicit(&generation, memory_order_relaxed);
	uint64_t owner = atomic_load_explicit(&pool->owner, memory_order_relaxed);
	if (owner == now + 1)
		return false;
	if (!atomic_compare_exchange_strong_explicit(&pool->owner, &owner, now + 1, memory_order_acquire,
						     memory_order_relaxed))
		return false;
	if (owner != now)
		reset(pool);
	return true;
}

static void release(struct ek_pool *pool)
{
	uint64_t owner = atomic_load_explicit(&pool->owner, memory_order_relaxed);
	atomic_store_explicit(&pool->owner, owner - 1, memory_order_release);
}

/* ---- a job ---- */

static void open_job(struct ek_pool *pool, int places)
{
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	atomic_store_explicit(&pool->places, (uint32_t)places * PLACE, memory_order_release);
	atomic_fetch_add_explicit(&pool->jobs, 1, memory_order_seq_cst);
	int sleepers = atomic_load_explicit(&pool->sleepers, memory_order_seq_cst);
	int awake = started(pool) - sleepers;
	if (places > awake)
		futex_wake(&pool->jobs, places - awake);
}

/* Takes the free places away and waits for the workers on the others. */
static void close_job(struct ek_pool *pool)
{
	uint32_t places = atomic_fetch_and_explicit(&pool->places, ~PLACES, memory_order_acquire) & ~PLACES;
	struct spin spinning = {0, 0};
	while (places >= ACTIVE && spin(&spinning))
		places = atomic_load_explicit(&pool->places, memory_order_acquire);
	if (places < ACTIVE)
		return;
	places = atomic_fetch_or_explicit(&pool->places, CALLER_SLEEPS, memory_order_acquire) | CALLER_SLEEPS;
	while (places >= ACTIVE) {
		futex_wait(&pool->places, places);
		places = atomic_load_explicit(&pool->places, memory_order_acquire);
	}
}

void ek_pool_run(struct ek_pool *pool, int64_t tasks, void (*run)(void *arg, int64_t i), void *arg)
{
	if (tasks <= 1 || !acquire(pool)) {
		for (int64_t i = 0; i < tasks; i++)
			run(arg, i);
		return;
	}
	int places = tasks - 1 < pool->limit ? (int)(tasks - 1) : pool->limit;
	start_workers(pool, places);
	if (places > started(pool))
		places = started(pool);
	pool->tasks = tasks;
	pool->run = run;
	pool->arg = arg;
	open_job(pool, places);
	draw_tasks(pool);
	close_job(pool);
	release(pool);
}

void ek_pool_start(struct ek_pool *pool)
{
	if (!acquire(pool))
		return;
	start_workers(pool, pool->limit);
	release(pool);
}

int ek_pool_workers(const struct ek_pool *pool, int *error)
{
	uint64_t now = atomic_load_explicit(&generation, memory_order_relaxed);
	uint64_t owner = atomic_load_explicit(&pool->owner, memory_order_relaxed);
	*error = atomic_load_explicit(&pool->error, memory_order_relaxed);
	return owner / 2 == now ? started(pool) : 0; /* in a forked child they are the parent's */
}

/* ---- making and ending ---- */

struct ek_pool *ek_pool_create(int threads)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, add_fork_handler);
	if (fork_handler_error)
		return NULL;
	struct ek_pool *pool = aligned_alloc(LINE, sizeof *pool);
	if (!pool)
		return NULL;
	memset(pool, 0, sizeof *pool);
	pool->limit = threads > 1 ? threads - 1 : 0;
	pool->threads = calloc((size_t)pool->limit + 1, sizeof *pool->threads);
	if (!pool->threads) {
		free(pool);
		return NULL;
	}
	atomic_init(&pool->owner, 2 * atomic_load_explicit(&generation, memory_order_relaxed));
	return pool;
}

void ek_pool_destroy(struct ek_pool *pool)
{
	if (!pool)
		return;
	/* Not if they are the parent's. */
	if (acquire(pool)) {
		atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
		atomic_fetch_add_explicit(&pool->jobs, 1, memory_order_seq_cst);
		futex_wake(&pool->jobs, INT_MAX);
		for (int i = 0; i < started(pool); i++)
			pthread_join(pool->threads[i], NULL);
	}
	free(pool->threads);
	free(pool);
}
