/* The CUDA backend of gated activations: builds the call's plan, and runs it. Called by op.c through the table ek_glu_cuda.
 * SPDX-License-Identifier: MIT */
#include "cuda.h"

#include "core/require.h"
#include "plan.h"

static ek_status forward(ek_context *ctx, const ek_glu_forward_args *args, enum ek_intent intent)
{
	struct ek_plan plan;
	ek_glu_plan_forward(args, &plan);
	return ek_plan_run(ctx->gpu, &ek_glu_forward_op, args, &plan, intent);
}

static ek_status backward(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent)
{
	struct ek_plan plan;
	ek_glu_plan_backward(args, intent == EK_PREPARE, &plan);
	PASS_ON(ek_glu_check_backward_memory(args, plan.workspace_bytes));
	return ek_plan_run(ctx->gpu, &ek_glu_backward_op, args, &plan, intent);
}

static size_t backward_workspace(const ek_context *ctx, const ek_glu_backward_args *args)
{
	(void)ctx;
	return ek_glu_plan_workspace(args);
}

const struct ek_glu_backend ek_glu_cuda = {forward, backward, backward_workspace};
