/* A pool of worker threads that run the tasks of one call. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_POOL_H
#define EK_CPU_POOL_H

#include <stdint.h>

struct ek_pool;

/* threads counts the caller's; workers start with ek_pool_start or the first ek_pool_run. NULL: out of memory. */
struct ek_pool *ek_pool_create(int threads);
void ek_pool_destroy(struct ek_pool *pool);

/* Starts all workers, or as many as the system allows. */
void ek_pool_start(struct ek_pool *pool);

/* The workers that run in this process. *error becomes the errno of a worker that the system refused, 0 if none was. */
int ek_pool_workers(const struct ek_pool *pool, int *error);

/* Runs run(arg, i) once for each i in 0 … tasks-1 on the caller and the workers, and returns when all
 * have returned. Indices are handed out in increasing order. A pool that another call is using, or that
 * cannot start threads, leaves all tasks to the caller: never an error, never a wait for another call. */
void ek_pool_run(struct ek_pool *pool, int64_t tasks, void (*run)(void *arg, int64_t i), void *arg);

#endif
