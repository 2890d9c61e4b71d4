/* Running the tasks of a call on the threads of its context, and the little arithmetic of cutting them.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CPU_TASKS_H
#define EK_CPU_TASKS_H

#include "../context.h"

static inline int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int64_t quotient_up(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

/* Runs run(arg, i) for each i in 0 … count-1: on the caller's parallel_for, on the pool, or here. */
void ek_run_tasks(const ek_context *ctx, int64_t count, void (*run)(void *arg, int64_t i), void *arg);

#endif
