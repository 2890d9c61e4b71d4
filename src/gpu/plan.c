/* Runs plans: checks pointers, finds kernels in memory (kernel.c), launches them. It allocates, waits and locks nothing once
 * the kernels are there. Called by the ops' backends. SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>

#include "core/require.h"
#include "cpu/fpenv.h"

struct ek_step *ek_plan_add(struct ek_plan *plan, ek_write_recipe *write_recipe,
			    const struct ek_kernel_key *key, struct ek_launch launch, const void *arguments,
			    size_t size)
{
	if (plan->count == EK_MOST_STEPS || size > EK_MOST_ARGUMENTS)
		abort();
	struct ek_step *step = &plan->steps[plan->count++];
	step->key = *key;
	step->write_recipe = write_recipe;
	step->launch = launch;
	step->advance = NULL;
	if (arguments)
		memcpy(step->arguments, arguments, size);
	return step;
}

int ek_plan_kernels(const struct ek_plan *plan, const struct ek_step *kernels[EK_MOST_STEPS])
{
	int count = 0;
	for (int i = 0; i < plan->count; i++) {
		int k = 0;
		while (k < count &&
		       memcmp(&kernels[k]->key, &plan->steps[i].key, sizeof(struct ek_kernel_key)) != 0)
			k++;
		if (k == count)
			kernels[count++] = &plan->steps[i];
	}
	return count;
}

/* A host pointer would fault asynchronously and poison the CUDA context, so each pointer is checked first. */
static ek_status check_pointer(struct ek_gpu *gpu, const char *name, const void *pointer)
{
	int type = 0;
	if (!pointer)
		return EK_OK;
	CUresult result = gpu->driver->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
							 (CUdeviceptr)(uintptr_t)pointer);
	if (__builtin_expect(result == CUDA_SUCCESS, 1))
		return EK_OK; /* device, managed and pinned host memory can all be read */
	if (result != CUDA_ERROR_INVALID_VALUE)
		return ek_gpu_fail(gpu, result, name);
	return ek_fail(EK_ERROR_ARGUMENT,
		       "%s (%p) is not memory that the GPU can reach: it looks like host memory", name,
		       pointer);
}

static ek_status check_pointers(struct ek_gpu *gpu, const struct ek_op *op, const void *args,
				size_t workspace_bytes)
{
	if (gpu->any_pointers)
		return EK_OK;
	for (int i = 0; i < op->operand_count; i++)
		PASS_ON(check_pointer(gpu, op->operands[i].name, ek_operand_pointer(&op->operands[i], args)));
	if (workspace_bytes == 0)
		return EK_OK;
	return check_pointer(gpu, "workspace", ek_pointer_field(args, op->workspace));
}

/* As many launches as the blocks need. */
static ek_status launch_step(struct ek_gpu *gpu, CUfunction function, struct ek_step *step)
{
	struct ek_launch launch = step->launch;
	for (int64_t left = launch.blocks; left > 0; left -= step->launch_blocks) {
		launch.blocks = step->advance && left > step->launch_blocks ? step->launch_blocks : left;
		PASS_ON(ek_kernel_launch(gpu, function, &launch, step->arguments));
		if (launch.blocks == left)
			return EK_OK;
		step->advance(step->arguments, step->launch_rows, step->statistic_bytes);
	}
	return EK_OK;
}

static ek_status run_steps(struct ek_gpu *gpu, const char *caller, struct ek_plan *plan, CUstream stream,
			   enum ek_intent intent)
{
	CUfunction functions[EK_MOST_STEPS];
	for (int i = 0; i < plan->count; i++)
		PASS_ON(ek_kernel_get(gpu, &plan->steps[i].key, plan->steps[i].write_recipe, stream, caller,
				      &functions[i]));
	for (int i = 0; i < plan->count && intent == EK_CALL; i++) {
		plan->steps[i].launch.stream = stream;
		PASS_ON(launch_step(gpu, functions[i], &plan->steps[i]));
	}
	return EK_OK;
}

ek_status ek_plan_run(struct ek_gpu *gpu, const struct ek_op *op, const void *args, struct ek_plan *plan,
		      enum ek_intent intent)
{
	CUstream stream = ek_pointer_field(args, op->stream);
	bool pushed;
	PASS_ON(ek_gpu_check(gpu));
	PASS_ON(ek_gpu_enter(gpu, &pushed));
	ek_gpu_range_begin(gpu, op->function);
	ek_status status =
		intent == EK_PREPARE ? EK_OK : check_pointers(gpu, op, args, plan->workspace_bytes);
	if (status == EK_OK)
		status = run_steps(gpu, op->function, plan, stream, intent);
	ek_gpu_range_end(gpu);
	ek_gpu_leave(gpu, pushed);
	return status;
}

/* Rule 1 of docs/numerics.md: to nearest even, subnormals kept, in any floating-point environment of the caller.
 * volatile: only loads and stores stay between the two calls. */
double ek_rounded_eps(ek_dtype dtype, double eps)
{
	const volatile double exact = eps;
	if (dtype == EK_F64)
		return eps;
	struct ek_fpenv saved = ek_fpenv_enter();
	const volatile double rounded = (double)(float)exact;
	ek_fpenv_leave(saved);
	return rounded;
}
