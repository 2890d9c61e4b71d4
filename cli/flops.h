/* The rate of fused multiply-adds. SPDX-License-Identifier: MIT */
#ifndef CLI_FLOPS_H
#define CLI_FLOPS_H

#include "copy.h"
#include "evenkeel.h"

/* FLOPs per second of all threads of the team (an FMA counts two), dtype EK_F32 or EK_F64. */
double flop_rate(struct team *team, ek_dtype dtype);

#endif
