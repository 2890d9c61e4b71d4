/* The contract as scalar C: the level "reference". SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_REFERENCE_H
#define EK_OPS_GLU_REFERENCE_H

#include "op.h"

extern const struct ek_glu_backend ek_glu_reference;

#endif
