/* Contexts on a GPU. Called by ek_open and ek_close. SPDX-License-Identifier: MIT */
#include "open.h"

#include <string.h>

#include "core/backend.h"
#include "core/require.h"
#include "gpu.h"

ek_status ek_cuda_open(const ek_options *options, ek_context *ctx)
{
	PASS_ON(ek_gpu_open(options, &ctx->gpu));
	ctx->backend = &ek_backend_cuda;
	memcpy(ctx->name, ctx->gpu->name, sizeof ctx->name);
	return EK_OK;
}

void ek_cuda_close(ek_context *ctx)
{
	ek_gpu_close(ctx->gpu);
}

void ek_cuda_describe(const ek_context *ctx, ek_description *description)
{
	(void)ctx;
	description->isa = "cuda";
}
