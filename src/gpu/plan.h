/* A call on a GPU as a list of steps, each a kernel, its launch and its arguments. An op builds it once (ops/NAME/plan.c); a
 * call makes all kernels and launches them, prepare makes them, warmup and the cost model read it.
 * SPDX-License-Identifier: MIT */
#ifndef EK_GPU_PLAN_H
#define EK_GPU_PLAN_H

#include "core/backend.h"
#include "core/operand.h"
#include "kernel.h"

enum { EK_MOST_STEPS = 32, EK_MOST_ARGUMENTS = 456 };

struct ek_step {
	struct ek_kernel_key key;
	ek_write_recipe *write_recipe;
	struct ek_launch launch; /* no blocks: the kernel is made and not launched */
	/* More blocks than a launch has: advances the arguments by the rows of a launch. NULL: there are never so many. */
	void (*advance)(void *arguments, int64_t rows, int64_t statistic_bytes);
	int64_t launch_blocks, launch_rows,
		statistic_bytes; /* of a launch: blocks and rows; the bytes of one statistic of all groups of a row */
	_Alignas(8) unsigned char arguments[EK_MOST_ARGUMENTS]; /* of the kernel: one struct, by value */
};

struct ek_plan {
	size_t workspace_bytes; /* that the call may use; 0: none */
	int count;
	struct ek_step steps[EK_MOST_STEPS];
};

/* The most blocks of a launch, a multiple of every cluster size. */
#define EK_MOST_BLOCKS ((int64_t)0x7fffff00)

/* Adds a step of such arguments, of which `size` bytes are copied; NULL: they stay unset. Aborts where the plan is full,
 * which is a mistake in the op's plan. */
struct ek_step *ek_plan_add(struct ek_plan *plan, ek_write_recipe *write_recipe,
			    const struct ek_kernel_key *key, struct ek_launch launch, const void *arguments,
			    size_t size);

/* The steps of a plan that have its kernels, each kernel once, in the order in which they run. Returns how many. */
int ek_plan_kernels(const struct ek_plan *plan, const struct ek_step *kernels[EK_MOST_STEPS]);

/* Runs the plan of a call of op with resolved arguments, or makes its kernels alone. Every kernel before the first launch:
 * a call that cannot have one writes nothing, and a capture is not left with half of it. */
ek_status ek_plan_run(struct ek_gpu *gpu, const struct ek_op *op, const void *args, struct ek_plan *plan,
		      enum ek_intent intent);

/* The eps that kernels get: in the arithmetic of a call of that dtype. */
double ek_rounded_eps(ek_dtype dtype, double eps);

#endif
