/* The table of kernels in memory. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>

#include "gpu/table.h"
#include "support_runner.h"

/* Handles that are never followed. */
union handle {
	uint64_t number;
	void *pointer;
};

static void *address(uint64_t number)
{
	return (union handle){.number = number}.pointer;
}

static struct ek_kernel_key key_of(uint64_t number)
{
	return (struct ek_kernel_key){{1, number}};
}

static CUfunction find(struct ek_table *table, uint64_t number)
{
	const struct ek_kernel_key key = key_of(number);
	return ek_table_find(table, &key);
}

static void count_unloads(void *user, CUmodule module)
{
	*(uint64_t *)user += (union handle){.pointer = module}.number;
}

static void add(struct ek_table *table, uint64_t key, void *function, void *module)
{
	CUfunction found;
	struct ek_making making = {.key = key_of(key)};
	EXPECT(ek_table_begin(table, &making, &found) && ek_table_end(table, &making, function, module),
	       "key %llx is there before, or there is no memory", (unsigned long long)key);
}

TEST(the_table_grows)
{
	enum { KEYS = 5000 };
	struct ek_table *table = ek_table_create();
	uint64_t sum = 0, unloaded = 0;
	for (uint64_t i = 1; i <= KEYS; i++) {
		EXPECT(!find(table, i << 40), "key %d is there before", (int)i);
		add(table, i << 40, address(i), address(2 * i));
		sum += 2 * i;
	}
	for (uint64_t i = 1; i <= KEYS; i++)
		EXPECT(find(table, i << 40) == address(i), "key %d is another's", (int)i);
	EXPECT(!find(table, 1), "a key that was never added is there");
	ek_table_destroy(table, count_unloads, &unloaded);
	EXPECT(unloaded == sum, "not each module is unloaded once");
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 200 };

struct asker {
	struct ek_table *table;
	uint64_t key;
	atomic_int *makers; /* at the moment */
	bool fails;         /* whenever it makes a kernel */
	int made;
	CUfunction found;
};

static void *ask(void *argument)
{
	struct asker *asker = argument;
	struct ek_making making = {.key = key_of(asker->key)};
	if (!ek_table_begin(asker->table, &making, &asker->found))
		return NULL;
	bool alone = atomic_fetch_add(asker->makers, 1) == 0;
	asker->made = alone ? 1 : 100;
	(void)atomic_fetch_sub(asker->makers, 1);
	CUfunction function = asker->fails ? NULL : address(7);
	(void)ek_table_end(asker->table, &making, function, address(8));
	asker->found = function;
	return NULL;
}

/* Returns how often it was made, and by how many a function was found. */
static int ask_at_once(struct ek_table *table, uint64_t key, int failing, int *found)
{
	struct asker askers[THREADS];
	pthread_t threads[THREADS];
	atomic_int makers = 0;
	int made = 0;
	for (int i = 0; i < THREADS; i++) {
		askers[i] =
			(struct asker){.table = table, .key = key, .makers = &makers, .fails = i < failing};
		EXPECT(pthread_create(&threads[i], NULL, ask, &askers[i]) == 0, "no thread");
	}
	*found = 0;
	for (int i = 0; i < THREADS; i++) {
		(void)pthread_join(threads[i], NULL);
		made += askers[i].made;
		*found += askers[i].found == address(7);
	}
	return made;
}

TEST(threads_make_a_kernel_once)
{
	struct ek_table *table = ek_table_create();
	uint64_t unloaded = 0;
	for (uint64_t key = 1; key <= ROUNDS; key++) {
		int found, made = ask_at_once(table, key, 0, &found);
		EXPECT(made == 1 && found == THREADS, "made %d times, found by %d", made, found);
	}
	ek_table_destroy(table, count_unloads, &unloaded);
	EXPECT(unloaded == ROUNDS * 8, "not each module is unloaded once");
}

/* When a thread fails to make a kernel, one of the waiting threads tries next, and none waits forever. */
TEST(a_failure_wakes_those_that_wait)
{
	struct ek_table *table = ek_table_create();
	uint64_t unloaded = 0;
	for (uint64_t key = 1; key <= ROUNDS; key++) {
		int found, made = ask_at_once(table, key, THREADS - 1, &found);
		EXPECT(made >= 1 && made <= THREADS && found >= 1, "made %d times, found by %d", made, found);
		EXPECT(find(table, key) == address(7), "the last one's function is not there");
	}
	ek_table_destroy(table, count_unloads, &unloaded);
}

TEST(keys_do_not_wait_for_each_other)
{
	struct ek_table *table = ek_table_create();
	struct ek_making first = {.key = key_of(1)};
	CUfunction none;
	uint64_t unloaded = 0;
	int found;
	EXPECT(ek_table_begin(table, &first, &none) && !none, "an empty table has a function");
	int made = ask_at_once(table, 2, 0, &found); /* would never return */
	EXPECT(made == 1 && found == THREADS, "made %d times, found by %d", made, found);
	EXPECT(ek_table_end(table, &first, NULL, NULL) && !find(table, 1), "a failure was added");
	ek_table_destroy(table, count_unloads, &unloaded);
}
