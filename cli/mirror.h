/* Norm calls on host memory, wherever the context computes. Called by problem.c and by the tests.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_MIRROR_H
#define CLI_MIRROR_H

#include <stddef.h>

#include "evenkeel.h"

/* On the CPU the plain calls. On a GPU all that the arguments point to is copied there before the call and
 * back after it, in the same lie: what overlaps or touches here does so there, addresses are equal mod 64.
 * `margin` bytes before and behind each buffer go along, so that stains and canaries can be judged; they
 * must be there. The workspace is one of the buffers. */
ek_status mirror_forward(ek_context *ctx, const ek_norm_forward_args *args, size_t margin);
ek_status mirror_backward(ek_context *ctx, const ek_norm_backward_args *args, size_t margin);

#endif
