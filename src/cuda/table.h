/* The kernels in memory: a hash table that is read without locks. kernel.c's alone. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_TABLE_H
#define EK_CUDA_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver.h"

struct ek_table;

struct ek_table *ek_table_create(void); /* NULL without memory */
void ek_table_destroy(struct ek_table *table, void (*unload)(void *user, CUmodule module), void *user);

/* The function of a key; NULL: none. At any time, from any thread. */
CUfunction ek_table_find(struct ek_table *table, uint64_t key);

/* Adds a key that is not there (never 0). By one thread at a time. False without memory. */
bool ek_table_add(struct ek_table *table, uint64_t key, CUfunction function, CUmodule module);

#endif
