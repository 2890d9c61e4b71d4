/* Fibers: stacks that the emulator switches between, one for each CUDA thread. SPDX-License-Identifier: MIT */
#ifndef STANDIN_FIBER_H
#define STANDIN_FIBER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#ifndef FIBER_ASAN
#define FIBER_ASAN 0
#endif

#ifndef __x86_64__
#include <ucontext.h>
#endif

struct fiber {
#ifdef __x86_64__
	void *stack_pointer;
#else
	ucontext_t state;
#endif
	/* Of the stack; a thread's own, from which a run starts, is learned at the first switch. */
	const void *bottom;
	size_t bytes;
	void *fake_stack; /* AddressSanitizer's */
};

/* What a fiber's stack needs: frames are larger where they are watched. */
enum { FIBER_STACK_BYTES = FIBER_ASAN ? 256 << 10 : 64 << 10 };

/* Lays out a fiber that runs entry, which never returns, when it is first switched to. */
void fiber_create(struct fiber *fiber, void *stack, void (*entry)(void));

/* Leaves `from`, the running one, for `to`; returns when somebody switches back. One thread at a time. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
