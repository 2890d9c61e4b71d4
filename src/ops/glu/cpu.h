/* Gated activations on the CPU. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_CPU_H
#define EK_OPS_GLU_CPU_H

#include "op.h"

extern const struct ek_glu_backend ek_glu_cpu;

#endif
