/* The kernels in memory: a hash table that is read without locks, and the keys whose kernels threads are making. For
 * kernel.c. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_TABLE_H
#define EK_CUDA_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/cuda/driver.h"
#include "recipe.h"

struct ek_table;

struct ek_table *ek_table_create(void); /* NULL without memory */
/* While no thread uses it. */
void ek_table_destroy(struct ek_table *table, void (*unload)(void *user, CUmodule module), void *user);

/* The function of a key; NULL: none. At any time, from any thread. */
CUfunction ek_table_find(struct ek_table *table, const struct ek_kernel_key *key);

/* A kernel that a thread is making: on its stack, from begin to end. */
struct ek_making {
	struct ek_kernel_key key;
	struct ek_making *next;
};

/* Waits while another thread makes the kernel of the key. False: *function is in the table. True: it is not, and the
 * caller makes it and calls ek_table_end; until then other threads wait for this key. */
bool ek_table_begin(struct ek_table *table, struct ek_making *making, CUfunction *function);

/* Adds the function; NULL: it could not be made, and one of the threads that wait for it tries next. False: there was
 * no memory to add it, and the module is still the caller's. */
bool ek_table_end(struct ek_table *table, struct ek_making *making, CUfunction function, CUmodule module);

#endif
