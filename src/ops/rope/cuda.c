/* The CUDA backend of rotary position embedding: builds the call's plan, and runs it. Called by op.c through the table
 * ek_rope_cuda. SPDX-License-Identifier: MIT */
#include "cuda.h"

#include "core/require.h"
#include "plan.h"

static ek_status forward(ek_context *ctx, const ek_rope_forward_args *args, enum ek_intent intent)
{
	struct ek_plan plan;
	ek_rope_plan_forward(args, &plan);
	return ek_plan_run(ctx->gpu, &ek_rope_forward_op, args, &plan, intent);
}

static ek_status backward(ek_context *ctx, const ek_rope_backward_args *args, enum ek_intent intent)
{
	struct ek_plan plan;
	ek_rope_plan_backward(args, intent == EK_PREPARE, &plan);
	PASS_ON(ek_rope_check_backward_memory(args, plan.workspace_bytes));
	return ek_plan_run(ctx->gpu, &ek_rope_backward_op, args, &plan, intent);
}

static size_t backward_workspace(const ek_context *ctx, const ek_rope_backward_args *args)
{
	(void)ctx;
	return ek_rope_plan_workspace(args);
}

const struct ek_rope_backend ek_rope_cuda = {forward, backward, backward_workspace};
