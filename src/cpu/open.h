/* The CPU's part of its backends (core/backend.h), the reference's too; ops/registry.c lists them.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CPU_OPEN_H
#define EK_CPU_OPEN_H

#include "core/context.h"

void ek_cpu_close(ek_context *ctx);
void ek_cpu_describe(const ek_context *ctx, ek_description *description);

#endif
