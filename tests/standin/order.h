/* In which order what could run at the same time does run. SPDX-License-Identifier: MIT */
#ifndef STANDIN_ORDER_H
#define STANDIN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

/* The order of the launch that starts: $EVENKEEL_STANDIN_ORDER, else one that changes from launch to launch. */
void order_begin(void);
/* As EVENKEEL_STANDIN_ORDER has it. */
const char *order_text(void);

/* The next of the bits that are set; there is one. */
int order_lane(uint32_t ready);
/* The next of the bits that are set in `words` words, or -1. */
int order_warp(const uint64_t *ready, int words);
/* The i-th of count. */
int64_t order_block(int64_t i, int64_t count);

/* Once in a while, and only where the order is shuffled: true. */
bool order_whim(void);

#endif
