/* The public functions of an op as its tables have them, with arguments of any type. Placed in op.c before the tables.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CORE_BY_TABLE_H
#define EK_CORE_BY_TABLE_H

#include "evenkeel.h"

#define EK_CALL_BY_TABLE(name, function)                         \
	static ek_status name(ek_context *ctx, const void *args) \
	{                                                        \
		return function(ctx, args);                      \
	}

/* op: ek_norm, and so on. */
#define EK_BY_TABLE(op)                                                                                \
	EK_CALL_BY_TABLE(call_forward, op##_forward)                                                   \
	EK_CALL_BY_TABLE(prepare_forward, op##_forward_prepare)                                        \
	EK_CALL_BY_TABLE(call_backward, op##_backward)                                                 \
	EK_CALL_BY_TABLE(prepare_backward, op##_backward_prepare)                                      \
	static ek_status workspace_of_backward(const ek_context *ctx, const void *args, size_t *bytes) \
	{                                                                                              \
		return op##_backward_workspace(ctx, args, bytes);                                      \
	}

#endif
