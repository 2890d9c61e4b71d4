/* The normative scalar definition of the norms (docs/numerics.md), slow and plain. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_REFERENCE_H
#define EK_OPS_NORM_REFERENCE_H

#include "op.h"

extern const struct ek_norm_backend ek_norm_reference;

#endif
