/* The numbers of rule 2 of docs/numerics.md: how a row is cut before it is summed. SPDX-License-Identifier: MIT */
#ifndef EK_REF_ORDER_H
#define EK_REF_ORDER_H

enum { SEGMENT = 1024, LANES = 256 };

#endif
