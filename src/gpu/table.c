/* Open addressing with linear probing. A bucket's hash is published after its key and function, and buckets are never
 * emptied, so a reader takes no lock. A table that is half full is copied into one of twice
 * the size; the old one stays for readers that are still in it, until the end.
 * SPDX-License-Identifier: MIT */
#include "table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024 };

struct bucket {
	_Atomic uint64_t hash; /* 0: free, as is the rest of the chain */
	struct ek_kernel_key key;
	CUfunction function;
	CUmodule module;
};

struct buckets {
	struct buckets *smaller; /* the one before */
	uint64_t mask;
	struct bucket bucket[];
};

struct ek_table {
	_Atomic(struct buckets *) buckets;
	uint64_t used;
	pthread_mutex_t mutex; /* of used, making and additions */
	pthread_cond_t ended;  /* one left the list `making` */
	struct ek_making *making;
};

static struct buckets *make_buckets(uint64_t count, struct buckets *smaller)
{
	struct buckets *buckets = calloc(1, sizeof *buckets + count * sizeof *buckets->bucket);
	if (buckets) {
		buckets->mask = count - 1;
		buckets->smaller = smaller;
	}
	return buckets;
}

/* Never 0. */
static uint64_t hash_of(const struct ek_kernel_key *key)
{
	uint64_t hash = 0;
	for (int i = 0; i < EK_KEY_WORDS; i++) {
		hash = (hash ^ key->words[i]) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash | 1;
}

static bool is_same(const struct ek_kernel_key *a, const struct ek_kernel_key *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* The bucket of key, or the free one where it belongs; *found is which. */
static struct bucket *bucket_of(struct buckets *buckets, const struct ek_kernel_key *key, uint64_t hash,
				bool *found)
{
	for (uint64_t i = hash >> 1;; i++) {
		struct bucket *bucket = &buckets->bucket[i & buckets->mask];
		uint64_t there = atomic_load_explicit(&bucket->hash, memory_order_acquire);
		*found = there == hash && is_same(&bucket->key, key);
		if (*found || there == 0)
			return bucket;
	}
}

/* Under the mutex. */
static void fill(struct buckets *buckets, const struct ek_kernel_key *key, CUfunction function,
		 CUmodule module)
{
	bool found;
	uint64_t hash = hash_of(key);
	struct bucket *bucket = bucket_of(buckets, key, hash, &found);
	bucket->key = *key;
	bucket->function = function;
	bucket->module = module;
	atomic_store_explicit(&bucket->hash, hash, memory_order_release);
}

struct ek_table *ek_table_create(void)
{
	struct ek_table *table = calloc(1, sizeof *table);
	struct buckets *buckets = make_buckets(FIRST_BUCKETS, NULL);
	if (!table || !buckets) {
		free(table);
		free(buckets);
		return NULL;
	}
	atomic_init(&table->buckets, buckets);
	(void)pthread_mutex_init(&table->mutex, NULL);
	(void)pthread_cond_init(&table->ended, NULL);
	return table;
}

void ek_table_destroy(struct ek_table *table, void (*unload)(void *user, CUmodule module), void *user)
{
	struct buckets *buckets = atomic_load(&table->buckets);
	for (uint64_t i = 0; i <= buckets->mask; i++)
		if (atomic_load(&buckets->bucket[i].hash) != 0)
			unload(user, buckets->bucket[i].module);
	while (buckets) {
		struct buckets *smaller = buckets->smaller;
		free(buckets);
		buckets = smaller;
	}
	(void)pthread_cond_destroy(&table->ended);
	(void)pthread_mutex_destroy(&table->mutex);
	free(table);
}

CUfunction ek_table_find(struct ek_table *table, const struct ek_kernel_key *key)
{
	bool found;
	struct buckets *buckets = atomic_load_explicit(&table->buckets, memory_order_acquire);
	const struct bucket *bucket = bucket_of(buckets, key, hash_of(key), &found);
	return found ? bucket->function : NULL;
}

static struct buckets *twice(struct buckets *buckets)
{
	struct buckets *larger = make_buckets(2 * (buckets->mask + 1), buckets);
	for (uint64_t i = 0; larger && i <= buckets->mask; i++) {
		const struct bucket *bucket = &buckets->bucket[i];
		if (atomic_load_explicit(&bucket->hash, memory_order_relaxed) != 0)
			fill(larger, &bucket->key, bucket->function, bucket->module);
	}
	return larger;
}

/* A key that is not there; under the mutex. False without memory. */
static bool add(struct ek_table *table, const struct ek_kernel_key *key, CUfunction function, CUmodule module)
{
	struct buckets *buckets = atomic_load_explicit(&table->buckets, memory_order_relaxed);
	if (2 * (table->used + 1) > buckets->mask) {
		buckets = twice(buckets);
		if (!buckets)
			return false;
		atomic_store_explicit(&table->buckets, buckets, memory_order_release);
	}
	fill(buckets, key, function, module);
	table->used++;
	return true;
}

/* ---- kernels in the making ---- */

static bool is_being_made(const struct ek_table *table, const struct ek_kernel_key *key)
{
	const struct ek_making *making = table->making;
	while (making && !is_same(&making->key, key))
		making = making->next;
	return making != NULL;
}

bool ek_table_begin(struct ek_table *table, struct ek_making *making, CUfunction *function)
{
	(void)pthread_mutex_lock(&table->mutex);
	while (is_being_made(table, &making->key))
		(void)pthread_cond_wait(&table->ended, &table->mutex);
	*function = ek_table_find(table, &making->key);
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
	bool added = !function || add(table, &making->key, function, module);
	while (*link != making)
		link = &(*link)->next;
	*link = making->next;
	(void)pthread_cond_broadcast(&table->ended);
	(void)pthread_mutex_unlock(&table->mutex);
	return added;
}
