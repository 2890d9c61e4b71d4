/* Calls on host memory, wherever the context computes. Called by operands.c and by the tests.
 * SPDX-License-Identifier: MIT */
#ifndef VERIFY_MIRROR_H
#define VERIFY_MIRROR_H

#include "case.h"

/* On the CPU the plain call. On a GPU all that the arguments point to is copied there before the call and back after it;
 * what overlaps or touches here does so there, addresses are equal mod 64. `margin` bytes before and behind each buffer
 * go along, so that canaries can be checked; they must be there. The workspace is one of the buffers. */
ek_status mirror_call(ek_context *ctx, const struct ek_op *op, const void *args, size_t margin);

#endif
