/* The levels that tests go through, and contexts of every kind that stay open; support.h says what.
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static const char *levels[16];

/* "cuda" or "cuda:N"; NULL: the CPU. */
static const char *device_tested(void)
{
	const char *device = getenv("EVENKEEL_TEST_DEVICE");
	return device && strncmp(device, "cuda", 4) == 0 ? device : NULL;
}

/* Asked once: finding out what a CPU has is slow on a virtual machine. */
static void find_levels(void)
{
	const char *name;
	int count = 0, usable;
	if (device_tested()) {
		levels[0] = "cuda";
		return;
	}
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++)
		if (usable && strcmp(name, "reference") != 0 && count + 1 < COUNT_OF(levels))
			levels[count++] = name;
}

const char *level_name(int index)
{
	if (!levels[0])
		find_levels();
	return levels[index];
}

int level_count(void)
{
	int count = 0;
	while (level_name(count))
		count++;
	return count;
}

const char *level_best(void)
{
	return level_name(level_count() - 1);
}

static void loop_serial(void *user, int64_t count, void (*run)(void *task, int64_t i), void *task)
{
	(void)user;
	for (int64_t i = 0; i < count; i++)
		run(task, i);
}

static void loop_reverse(void *user, int64_t count, void (*run)(void *task, int64_t i), void *task)
{
	(void)user;
	for (int64_t i = count; i-- > 0;)
		run(task, i);
}

struct loop {
	void (*run)(void *task, int64_t i);
	void *task;
	int64_t count;
	_Atomic int64_t next;
};

static void *loop_worker(void *argument)
{
	struct loop *loop = argument;
	for (int64_t i; (i = atomic_fetch_add(&loop->next, 1)) < loop->count;)
		loop->run(loop->task, i);
	return NULL;
}

/* On threads of the test's own, which each loop creates. */
static void loop_threads(void *user, int64_t count, void (*run)(void *task, int64_t i), void *task)
{
	(void)user;
	struct loop loop = {run, task, count, 0};
	pthread_t threads[3];
	int started = 0;
	while (started < 3 && pthread_create(&threads[started], NULL, loop_worker, &loop) == 0)
		started++;
	loop_worker(&loop);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}

static ek_status open_context(struct setting setting, ek_context **ctx)
{
	static const ek_parallel_for loops[FLAVOURS] = {
		[LOOP_SERIAL] = loop_serial, [LOOP_REVERSE] = loop_reverse, [LOOP_THREADS] = loop_threads};
	ek_options options = {.size = sizeof(options),
			      .threads = setting.threads,
			      .isa = setting.level,
			      .parallel_for = loops[setting.flavour],
			      .stream_bytes = setting.flavour == STREAM_ALWAYS  ? 1
					      : setting.flavour == STREAM_NEVER ? -1
										: 0};
	if (strcmp(setting.level, "cuda") == 0) {
		const char *colon = strchr(device_tested(), ':');
		options = (ek_options){
			.size = sizeof(options), .device = EK_CUDA, .ordinal = colon ? atoi(colon + 1) : 0};
	}
	return ek_open(ctx, &options);
}

ek_context *context_of(struct setting setting)
{
	static struct {
		struct setting setting;
		ek_context *ctx;
	} opened[64];
	if (strcmp(setting.level, "cuda") == 0) /* the rest is the CPU's: one context has every kernel */
		setting = (struct setting){"cuda", 1, PLAIN};
	int i = 0;
	for (; i < COUNT_OF(opened) && opened[i].ctx; i++)
		if (strcmp(opened[i].setting.level, setting.level) == 0 &&
		    opened[i].setting.threads == setting.threads &&
		    opened[i].setting.flavour == setting.flavour)
			return opened[i].ctx;
	if (i == COUNT_OF(opened) || open_context(setting, &opened[i].ctx) != EK_OK) {
		fprintf(stderr, "no context for level %s, %d threads: %s\n", setting.level, setting.threads,
			ek_error(NULL));
		exit(1);
	}
	opened[i].setting = setting;
	return opened[i].ctx;
}

ek_context *reference(void)
{
	return context_of((struct setting){"reference", 1, PLAIN});
}
