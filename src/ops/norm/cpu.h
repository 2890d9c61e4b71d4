/* The norms on the CPU. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_CPU_H
#define EK_OPS_NORM_CPU_H

#include "op.h"

extern const struct ek_norm_backend ek_norm_cpu;

#endif
