/* A count for each function of a stand-in library, and failure on demand ($EVENKEEL_STANDIN_FAIL). Both libraries
 * have their own copy. SPDX-License-Identifier: MIT */
#ifndef STANDIN_CALLS_H
#define STANDIN_CALLS_H

#include <stdint.h>

/* Counts a call of `name`, a string that stays. Returns the code it has to fail with, or 0. */
int calls_enter(const char *name);
/* -1 where it was never called. */
int64_t calls_count(const char *name);
void calls_reset(void);

/* The environment's number, or fallback. */
int calls_setting(const char *name, int fallback);

#endif
