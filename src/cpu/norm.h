/* The CPU backend of the norm ops: called by api.c with arguments that have been judged and whose zero
 * strides and weight_dtype have been filled in. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_NORM_H
#define EK_CPU_NORM_H

#include "../context.h"

void ek_cpu_norm_forward(const ek_context *ctx, const ek_norm_forward_args *args);
void ek_cpu_norm_backward(const ek_context *ctx, const ek_norm_backward_args *args);
/* Reads sizes, dtypes and whether dweight and dbias are there. Enough for any number of rows up to args->rows. */
size_t ek_cpu_norm_backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args);

#endif
