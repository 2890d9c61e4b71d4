/* The levels of CPU kernels (instruction sets): one table, slowest first, that ek_open, ek_cpu_level and
 * the tests read. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_LEVEL_H
#define EK_CPU_LEVEL_H

#include <stdbool.h>

struct ek_norm_kernels;

struct ek_level {
	const char *name;
	bool (*usable)(void);               /* does this CPU (and its OS) run it? */
	const struct ek_norm_kernels *norm; /* NULL: the reference (src/ref/) */
};

/* The level at index, NULL past the last. */
const struct ek_level *ek_level_at(int index);
/* The level of that name, usable or not; NULL if there is none. */
const struct ek_level *ek_level_named(const char *name);
/* The fastest level that this CPU can run. */
const struct ek_level *ek_level_best(void);

#endif
