/* The normative scalar definition of the norm ops (docs/numerics.md), slow and plain. Arguments as for
 * the backends: judged, strides filled in. SPDX-License-Identifier: MIT */
#ifndef EK_REF_NORM_H
#define EK_REF_NORM_H

#include "evenkeel.h"

void ek_ref_norm_forward(const ek_norm_forward_args *args);
void ek_ref_norm_backward(const ek_norm_backward_args *args);
size_t ek_ref_norm_backward_workspace(const ek_norm_backward_args *args);

#endif
