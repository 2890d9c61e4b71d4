/* The contract as scalar C: the level "reference". SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_REFERENCE_H
#define EK_OPS_ROPE_REFERENCE_H

#include "op.h"

extern const struct ek_rope_backend ek_rope_reference;

#endif
