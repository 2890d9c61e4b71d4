/* The numbers of rows at which backward's slots change (src/core/slots.h), for tests of its workspace.
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_ROWS_H
#define EK_TESTS_SUPPORT_ROWS_H

#include "core/slots.h"

/* Every number up to a little over two rows a slot, those around each multiple of the target, and some once slots
 * have as many rows as they may. */
static inline int64_t next_rows(int64_t rows, int64_t cols)
{
	int64_t target = ek_slot_target(cols), past = rows % target;
	if (rows < 2 * target + 3)
		return rows + 1;
	if (rows > target * (EK_MAX_SLOT_ROWS + 2))
		return rows + rows / 3;
	if (past < 2 || past == target - 1)
		return rows + 1;
	return rows - past + target - 1;
}
static const int64_t most_rows = (int64_t)1 << 40;

#endif
