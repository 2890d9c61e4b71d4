/* The copy that speed is measured against, on a team of threads. SPDX-License-Identifier: MIT */
#ifndef CLI_COPY_H
#define CLI_COPY_H

#include <stddef.h>

struct team;

/* A team of threads that sleep between jobs, so that they are in nobody's way. NULL and errno: no memory or no
 * threads. */
struct team *team_create(int threads);
void team_destroy(struct team *team);
/* Runs job(arg, thread) on each thread, the caller's included, and waits for all. */
void team_run(struct team *team, void (*job)(void *arg, int thread), void *arg);
int team_threads(const struct team *team);

/* Finds the fastest way to copy these buffers; copy_streams uses it from then on. */
void copy_prepare(struct team *team, void *to, const void *a, const void *b, size_t bytes);
/* Copies from a to `to` past the caches; with b, reads a and b and writes once, as backward does. */
void copy_streams(struct team *team, void *to, const void *a, const void *b, size_t bytes);

/* The best bytes per second (read plus written) of copying `bytes` within memory of that size, cached or
 * not: plain and past the caches, the faster counts. */
double copy_rate(struct team *team, size_t bytes);

#endif
