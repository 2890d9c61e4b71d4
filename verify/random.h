/* The random numbers of the program and the tests: splitmix64, integers alone, so that inputs are the same on every
 * machine. SPDX-License-Identifier: MIT */
#ifndef VERIFY_RANDOM_H
#define VERIFY_RANDOM_H

#include <stdint.h>

/* The finalizer: neighbouring numbers come out unrelated. */
static inline uint64_t random_mixed(uint64_t bits)
{
	bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
	return bits ^ bits >> 31;
}

static inline uint64_t random_bits(uint64_t *state)
{
	return random_mixed(*state += UINT64_C(0x9e3779b97f4a7c15));
}

static inline int64_t random_below(uint64_t *state, int64_t limit)
{
	return (int64_t)(random_bits(state) % (uint64_t)limit);
}

#endif
