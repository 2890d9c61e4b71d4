/* Floating-point environments that a caller may have set: flush to zero, other rounding modes, both. Used by tests of
 * what must not depend on them. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_FPENV_H
#define EK_TESTS_SUPPORT_FPENV_H

#include "cpu/fpenv.h"

#if defined(__x86_64__)
enum { FPENV_MODES = 5 };
static const unsigned fpenv_modes[FPENV_MODES] = {0x1f80 | 0x8040, 0x1f80 | 0x6000, 0x1f80 | 0x4000,
						  0x1f80 | 0x2000, 0x1f80 | 0xe040};
#elif defined(__aarch64__)
enum { FPENV_MODES = 4 };
static const unsigned fpenv_modes[FPENV_MODES] = {1u << 24, 1u << 22, 2u << 22, 3u << 22};
#endif

/* Without the flags of what has happened so far. */
static inline uint64_t fpenv_get(void)
{
	return ek_fpenv_read().control & ~(uint64_t)EK_FPENV_FLAGS;
}

static inline void fpenv_set(uint64_t control)
{
	ek_fpenv_write((struct ek_fpenv){control});
}

#endif
