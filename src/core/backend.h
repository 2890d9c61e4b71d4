/* What serves the calls of a context: the reference, the CPU's kernels, or a GPU. ops/registry.c has the three.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CORE_BACKEND_H
#define EK_CORE_BACKEND_H

#include "context.h"

/* Whether a call runs, or only makes what it needs (ek_norm_forward_prepare). */
enum ek_intent { EK_CALL, EK_PREPARE };

struct ek_norm_backend;
struct ek_glu_backend;
struct ek_rope_backend;

struct ek_backend {
	void (*close)(ek_context *ctx); /* all but the ek_context itself */
	void (*describe)(const ek_context *ctx, ek_description *description);
	/* A row for each op. */
	const struct ek_norm_backend *norm;
	const struct ek_glu_backend *glu;
	const struct ek_rope_backend *rope;
};

extern const struct ek_backend ek_backend_reference, ek_backend_cpu, ek_backend_cuda;

#endif
