/* The CUDA backend of the norms: builds the call's plan once, and runs it. Called by op.c through the table ek_norm_cuda.
 * SPDX-License-Identifier: MIT */
#include "cuda.h"

#include "core/require.h"
#include "plan.h"

static ek_status forward(ek_context *ctx, const ek_norm_forward_args *args, enum ek_intent intent)
{
	struct ek_norm_plan plan;
	ek_norm_plan_forward(args, &ctx->gpu->limits, &plan);
	return ek_plan_run(ctx->gpu, &ek_norm_forward_op, args, &plan.plan, intent);
}

static ek_status backward(ek_context *ctx, const ek_norm_backward_args *args, enum ek_intent intent)
{
	struct ek_norm_plan plan;
	ek_norm_plan_backward(args, &ctx->gpu->limits, intent == EK_PREPARE, &plan);
	PASS_ON(ek_norm_check_backward_memory(args, plan.plan.workspace_bytes));
	return ek_plan_run(ctx->gpu, &ek_norm_backward_op, args, &plan.plan, intent);
}

static size_t backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args)
{
	return ek_norm_plan_workspace(args, &ctx->gpu->limits);
}

const struct ek_norm_backend ek_norm_cuda = {forward, backward, backward_workspace};
