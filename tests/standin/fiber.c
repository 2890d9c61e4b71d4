/* Switching of stacks. On x86-64 by hand: swapcontext saves the signal mask with a system call, and a switch per
 * thread and meeting is what the emulator spends its time on. AddressSanitizer is told, so that it knows the
 * stack in use. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "fiber.h"

#include <stdint.h>

#if FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

/* Who switches, and what a fiber that starts runs: one thread at a time is here. */
static struct fiber *leaving, *entering;

static void announce(struct fiber *from, struct fiber *to)
{
	leaving = from;
	entering = to;
#if FIBER_ASAN
	__sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
}

static void arrived(struct fiber *fiber)
{
#if FIBER_ASAN
	__sanitizer_finish_switch_fiber(fiber->fake_stack, &leaving->bottom, &leaving->bytes);
#else
	(void)fiber;
#endif
}

static void (*starting)(void); /* the emulator has one entry for all */

static void start(void)
{
	arrived(entering);
	starting();
}

#ifdef __x86_64__

/* Saves what a call preserves and the stack pointer at *save, goes on at `load`. The jump, unlike a return, is
 * predicted: it is not paired with a call. */
void standin_switch_stack(void **save, void *load) __attribute__((visibility("hidden")));
__asm__(".text\n"
	".p2align 4\n"
	".globl standin_switch_stack\n"
	".hidden standin_switch_stack\n"
	".type standin_switch_stack, @function\n"
	"standin_switch_stack:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	popq %rcx\n"
	"	jmp *%rcx\n"
	".size standin_switch_stack, . - standin_switch_stack\n");

void fiber_create(struct fiber *fiber, void *stack, void (*entry)(void))
{
	enum { SAVED_ADDRESS = 6, WORDS = 8 };
	starting = entry;
	*fiber = (struct fiber){.bottom = stack, .bytes = FIBER_STACK_BYTES};
	uintptr_t top = ((uintptr_t)stack + FIBER_STACK_BYTES) & ~(uintptr_t)63;
	uintptr_t *frame = (uintptr_t *)top - WORDS;
	for (int i = 0; i < WORDS; i++)
		frame[i] = 0; /* a frame pointer and a return address of 0 end a backtrace */
	frame[SAVED_ADDRESS] = (uintptr_t)start;
	fiber->stack_pointer = frame;
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
	announce(from, to);
	standin_switch_stack(&from->stack_pointer, to->stack_pointer);
	arrived(from);
}

#else

void fiber_create(struct fiber *fiber, void *stack, void (*entry)(void))
{
	*fiber = (struct fiber){.bottom = stack, .bytes = FIBER_STACK_BYTES};
	starting = entry;
	(void)getcontext(&fiber->state);
	fiber->state.uc_stack.ss_sp = stack;
	fiber->state.uc_stack.ss_size = FIBER_STACK_BYTES;
	makecontext(&fiber->state, start, 0);
}

void fiber_switch(struct fiber *from, struct fiber *to)
{
	announce(from, to);
	(void)swapcontext(&from->state, &to->state);
	arrived(from);
}

#endif
