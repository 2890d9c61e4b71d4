/* Where arguments are judged: api.c calls these before anything else reads them, cost/ ek_check_dtypes alone. Each
 * returns EK_OK, or the status of the first rule that is broken, with a message that names the argument and its values.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CHECK_H
#define EK_CHECK_H

#include "context.h"

/* The most threads that ek_options.threads may ask for. */
#define EK_MAX_THREADS 4096

/* Whether a norm takes such activations and weights; 0 as *weight_dtype becomes dtype. */
ek_status ek_check_dtypes(ek_dtype dtype, ek_dtype *weight_dtype);

/* All but isa, which is looked up (api.c). *resolved becomes a copy of options, or the defaults where options is NULL;
 * fields that the caller's version of the struct does not have are zero. */
ek_status ek_check_options(const ek_options *options, ek_options *resolved);
ek_status ek_check_describe(const ek_context *ctx, const ek_description *description);

/* *resolved becomes a copy of args with the zero strides and weight_dtype filled in. */
ek_status ek_check_norm_forward(const ek_context *ctx, const ek_norm_forward_args *args,
				ek_norm_forward_args *resolved);

/* Backward is judged in two steps, since its sizes must be right before they can say how much workspace
 * it needs: first all that is not a buffer, then the buffers of what the first step resolved. */
ek_status ek_check_norm_backward_sizes(const ek_context *ctx, const ek_norm_backward_args *args,
				       ek_norm_backward_args *resolved);
ek_status ek_check_norm_backward_buffers(const ek_context *ctx, const ek_norm_backward_args *resolved,
					 size_t workspace_bytes);

#endif
