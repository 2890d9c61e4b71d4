/* The floating-point environment of the kernels: round to nearest, subnormals kept, nothing trapped.
 * The CPU backends of the ops enter it around the work of a call, pool.c in its workers, tasks.c in tasks on a caller's
 * threads; GPU plans to round eps. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_FPENV_H
#define EK_CPU_FPENV_H

#include <stdint.h>

struct ek_fpenv {
	uint64_t control;
};

/* Writing the register stalls the CPU, and it nearly always is as it should be: it is read, and written only
 * where it differs. */
#if defined(__x86_64__)

#include <immintrin.h>

#define EK_FPENV_DEFAULT 0x1F80 /* all exceptions masked */
#define EK_FPENV_FLAGS 0x3Fu    /* what has happened so far: no part of the environment */

static inline struct ek_fpenv ek_fpenv_read(void)
{
	return (struct ek_fpenv){_mm_getcsr()};
}

static inline void ek_fpenv_write(struct ek_fpenv env)
{
	_mm_setcsr((unsigned)env.control);
}

#elif defined(__aarch64__)

#define EK_FPENV_DEFAULT 0
#define EK_FPENV_FLAGS 0u /* they are in another register, FPSR */

static inline struct ek_fpenv ek_fpenv_read(void)
{
	struct ek_fpenv env;
	__asm__ volatile("mrs %0, fpcr" : "=r"(env.control));
	return env;
}

static inline void ek_fpenv_write(struct ek_fpenv env)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(env.control) : "memory");
}

#else
#error "evenkeel knows the floating-point environment of x86-64 and arm64"
#endif

static inline int ek_fpenv_is_default(struct ek_fpenv env)
{
	return (env.control & ~(uint64_t)EK_FPENV_FLAGS) == EK_FPENV_DEFAULT;
}

/* Sets the environment of the kernels and returns what it was. */
static inline struct ek_fpenv ek_fpenv_enter(void)
{
	struct ek_fpenv saved = ek_fpenv_read();
	if (!ek_fpenv_is_default(saved))
		ek_fpenv_write((struct ek_fpenv){EK_FPENV_DEFAULT});
	__asm__ volatile("" : : : "memory"); /* loads, and what is computed from them, stay behind this */
	return saved;
}

static inline void ek_fpenv_leave(struct ek_fpenv saved)
{
	__asm__ volatile("" : : : "memory");
	if (!ek_fpenv_is_default(saved))
		ek_fpenv_write(saved);
}

#endif
