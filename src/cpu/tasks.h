/* Running the tasks of a call on the threads of its context. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_TASKS_H
#define EK_CPU_TASKS_H

#include "core/context.h"
#include "core/sizes.h"

/* Runs run(arg, i) for each i in 0 … count-1: on the caller's parallel_for, on the pool, or here. */
void ek_run_tasks(const ek_context *ctx, int64_t count, void (*run)(void *arg, int64_t i), void *arg);

#endif
