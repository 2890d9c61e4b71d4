/* The GPU's part of its backend (core/backend.h); ops/registry.c lists it. SPDX-License-Identifier: MIT */
#ifndef EK_GPU_OPEN_H
#define EK_GPU_OPEN_H

#include "core/context.h"

void ek_cuda_close(ek_context *ctx);
void ek_cuda_describe(const ek_context *ctx, ek_description *description);

#endif
