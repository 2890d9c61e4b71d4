/* The CPU's kernels of rotary position embedding. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_CPU_H
#define EK_OPS_ROPE_CPU_H

#include "op.h"

extern const struct ek_rope_backend ek_rope_cpu;

#endif
