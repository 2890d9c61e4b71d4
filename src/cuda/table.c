/* Open addressing with linear probing. A slot's key is published after its function, and slots are never
 * emptied, so a reader needs two loads and no lock. A table that is half full is copied into one of twice
 * the size; the old one stays for readers that are still in it, until the end.
 * SPDX-License-Identifier: MIT */
#include "table.h"

#include <pthread.h>
#include <stdlib.h>

enum { FIRST_SLOTS = 1024 };

struct slot {
	_Atomic uint64_t key; /* 0: free, as is the rest of the chain */
	CUfunction function;
	CUmodule module;
};

struct slots {
	struct slots *smaller; /* the one before */
	uint64_t mask;
	struct slot slot[];
};

struct ek_table {
	_Atomic(struct slots *) slots;
	uint64_t used;
	pthread_mutex_t mutex; /* of used, making and additions */
	pthread_cond_t ended;  /* one left the list `making` */
	struct ek_making *making;
};

static struct slots *make_slots(uint64_t count, struct slots *smaller)
{
	struct slots *slots = calloc(1, sizeof *slots + count * sizeof *slots->slot);
	if (slots) {
		slots->mask = count - 1;
		slots->smaller = smaller;
	}
	return slots;
}

/* Keys are packed fields: spread them. */
static uint64_t spread(uint64_t key)
{
	key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
	return key ^ key >> 29;
}

/* The slot of key, or the free one where it belongs. */
static struct slot *slot_of(struct slots *slots, uint64_t key)
{
	for (uint64_t i = spread(key);; i++) {
		struct slot *slot = &slots->slot[i & slots->mask];
		uint64_t found = atomic_load_explicit(&slot->key, memory_order_acquire);
		if (found == key || found == 0)
			return slot;
	}
}

static void fill(struct slot *slot, uint64_t key, CUfunction function, CUmodule module)
{
	slot->function = function;
	slot->module = module;
	atomic_store_explicit(&slot->key, key, memory_order_release);
}

struct ek_table *ek_table_create(void)
{
	struct ek_table *table = calloc(1, sizeof *table);
	struct slots *slots = make_slots(FIRST_SLOTS, NULL);
	if (!table || !slots) {
		free(table);
		free(slots);
		return NULL;
	}
	atomic_init(&table->slots, slots);
	(void)pthread_mutex_init(&table->mutex, NULL);
	(void)pthread_cond_init(&table->ended, NULL);
	return table;
}

void ek_table_destroy(struct ek_table *table, void (*unload)(void *user, CUmodule module), void *user)
{
	struct slots *slots = atomic_load(&table->slots);
	for (uint64_t i = 0; i <= slots->mask; i++)
		if (atomic_load(&slots->slot[i].key) != 0)
			unload(user, slots->slot[i].module);
	while (slots) {
		struct slots *smaller = slots->smaller;
		free(slots);
		slots = smaller;
	}
	(void)pthread_cond_destroy(&table->ended);
	(void)pthread_mutex_destroy(&table->mutex);
	free(table);
}

CUfunction ek_table_find(struct ek_table *table, uint64_t key)
{
	struct slots *slots = atomic_load_explicit(&table->slots, memory_order_acquire);
	struct slot *slot = slot_of(slots, key);
	/* Read again: between the two loads the free slot may have become another key's. */
	return atomic_load_explicit(&slot->key, memory_order_acquire) == key ? slot->function : NULL;
}

static struct slots *twice(struct slots *slots)
{
	struct slots *larger = make_slots(2 * (slots->mask + 1), slots);
	for (uint64_t i = 0; larger && i <= slots->mask; i++) {
		const struct slot *slot = &slots->slot[i];
		uint64_t key = atomic_load_explicit(&slot->key, memory_order_relaxed);
		if (key != 0)
			fill(slot_of(larger, key), key, slot->function, slot->module);
	}
	return larger;
}

/* A key that is not there; under the mutex. False without memory. */
static bool add(struct ek_table *table, uint64_t key, CUfunction function, CUmodule module)
{
	struct slots *slots = atomic_load_explicit(&table->slots, memory_order_relaxed);
	if (2 * (table->used + 1) > slots->mask) {
		slots = twice(slots);
		if (!slots)
			return false;
		atomic_store_explicit(&table->slots, slots, memory_order_release);
	}
	fill(slot_of(slots, key), key, function, module);
	table->used++;
	return true;
}

/* ---- kernels in the making ---- */

static bool is_being_made(const struct ek_table *table, uint64_t key)
{
	const struct ek_making *making = table->making;
	while (making && making->key != key)
		making = making->next;
	return making != NULL;
}

bool ek_table_begin(struct ek_table *table, struct ek_making *making, CUfunction *function)
{
	(void)pthread_mutex_lock(&table->mutex);
	while (is_being_made(table, making->key))
		(void)pthread_cond_wait(&table->ended, &table->mutex);
	*function = ek_table_find(table, making->key);
	if (!*function) {
		making->next = table->making;
		table->making = making;
	}
	(void)pthread_mutex_unlock(&table->mutex);
	return !*function;
}

bool ek_table_end(struct ek_table *table, struct ek_making *making, CUfunction function, CUmodule module)
{
	struct ek_making **link = &table->making;
	(void)pthread_mutex_lock(&table->mutex);
	bool added = !function || add(table, making->key, function, module);
	while (*link != making)
		link = &(*link)->next;
	*link = making->next;
	(void)pthread_cond_broadcast(&table->ended);
	(void)pthread_mutex_unlock(&table->mutex);
	return added;
}
