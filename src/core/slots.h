/* R of rule 6 of docs/numerics.md: how many rows a slot of a column sum holds. One fixed function, the
 * same for every dtype, backend and device. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_SLOTS_H
#define EK_CORE_SLOTS_H

#include <stdint.h>

#include "order.h"

/* A slot adds its rows in chunks of CHUNK_ROWS. */
enum {
	EK_MAX_SLOT_ROWS = 2048 /* more would cost accuracy: a constant dy errs in proportion to R */
};

/* Slots that a GPU can walk at once. Its multiprocessors hold about 1024 warps of backward, and a slot takes one for every 1024
 * columns (a segment), and half of one where rows are narrow; wide slots take several multiprocessors, which come in groups,
 * so that a few are left over, and the widest half as many, each with two segments a warp. */
static inline int64_t ek_slot_target(int64_t cols)
{
	int64_t target = cols <= 128 ? 2048 : cols <= 16384 ? 1024 : cols <= 65536 ? 960 : 1920;
	for (int64_t width = 1024; width < cols && target > 7; width *= 2)
		target /= 2;
	return target;
}

/* Even from 2 up, so that two neighbouring rows share a slot and a kernel may take them as a pair. */
static inline int64_t ek_slot_rows(int64_t rows, int64_t cols)
{
	int64_t target = ek_slot_target(cols);
	int64_t per_slot = rows / target + (rows % target != 0);
	if (per_slot > EK_MAX_SLOT_ROWS)
		return EK_MAX_SLOT_ROWS;
	return per_slot <= 1 ? 1 : per_slot + per_slot % 2;
}

static inline int64_t ek_slot_count(int64_t rows, int64_t cols)
{
	int64_t per_slot = ek_slot_rows(rows, cols);
	return rows / per_slot + (rows % per_slot != 0);
}

/* The most slots that any number of rows up to `rows` has, for workspaces: a row each until the target is reached, and
 * over the target only where slots have as many rows as they may. */
static inline int64_t ek_most_slots(int64_t rows, int64_t cols)
{
	int64_t target = ek_slot_target(cols);
	int64_t full = rows / EK_MAX_SLOT_ROWS + (rows % EK_MAX_SLOT_ROWS != 0);
	return rows <= target ? rows : full > target ? full : target;
}

#endif
