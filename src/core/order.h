/* The numbers of rules 2 and 6 of docs/numerics.md: how a row is cut before it is summed, and how many rows of a column
 * sum are added at a time. Compiled by the host, and in front of every GPU kernel. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_ORDER_H
#define EK_CORE_ORDER_H

enum { SEGMENT = 1024, LANES = 256, CHUNK_ROWS = 32 };

#endif
