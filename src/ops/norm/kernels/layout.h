/* What the host and the kernels of the norms share, in one text that both compile: kinds of kernels, argument structs and the
 * layout of shared memory. The host includes it in C11 (policy.h); recipe.c puts it in front of the kernels, after words.cu,
 * which defines DEVICE. SPDX-License-Identifier: MIT */
#ifndef EK_NORM_LAYOUT_H
#define EK_NORM_LAYOUT_H

#ifdef DEVICE
#define LAYOUT_ASSERT(condition) typedef char layout_assert[(condition) ? 1 : -1]
#else
#include "core/order.h"
#define LAYOUT_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* KIND of a kernel. */
#define KIND_FORWARD 1        /* forward.cu */
#define KIND_BACKWARD 2       /* backward.cu */
#define KIND_STAGED_FORWARD 3 /* staged.cu */
#define KIND_STAGED_ROWS \
	4 /* staged.cu: statistics and sums over rows, and dx where no column sums are wanted */
#define KIND_STAGED_COLUMNS 5 /* staged.cu: dx and column sums */

/* ACCESS: how rows start in memory. */
#define ACCESS_QUADS 0    /* at multiples of 16 bytes */
#define ACCESS_SHIFTED 1  /* at multiples of the element size */
#define ACCESS_ELEMENTS 2 /* anywhere */
/* To plan.c alone: rows of 16 bits at multiples of 8 bytes, of a width that keeps them from those of 16. The kernels hold them
 * in binary32, as ACCESS_QUADS, and a thread's four neighbours are an access of 8 bytes. */
#define ACCESS_HALF_QUADS 3

/* Flavours of a norm; a kernel may combine them. */
#define FLAVOUR_WEIGHT_OFFSET 1 /* 1 + weight for weight */
#define FLAVOUR_ROUND_EACH 2    /* xhat rounds before it is multiplied */

/* The activation in a key, above the flavours. */
#define ACTIVATION_OF(flavour) ((flavour) >> 2 & 7)
#define GATE_FIRST_OF(flavour) ((flavour) >> 5)
#define FLAVOUR_OF(activation, gate_first) ((activation) << 2 | (gate_first) << 5)

enum {
	ROW_NUMBERS = 8,    /* of a row, from KIND_STAGED_ROWS to KIND_STAGED_COLUMNS */
	WALK_WARPS = 4,     /* of a block of KIND_STAGED_COLUMNS */
	WALK_AHEAD = 8,     /* rows that each of its warps fetches ahead */
	MOST_WALK_SLOTS = 4 /* slots that a warp walks, whose sums it folds */
};

/* KEEP, of backward: what stays in registers from the first pass over a row to the second; the rest stays in shared memory. */
#define KEEP_NOTHING 0
#define KEEP_ROWS 1     /* x and dy; of an activation also the gradient of xhat */
#define KEEP_GRADIENT 2 /* the gradient of xhat, of an activation: x is read and widened again */

/* KEEP_WEIGHT, of backward: where weight stays from row to row. */
#define KEEP_NOWHERE 0
#define KEEP_REGISTERS 1
#define KEEP_SHARED 2
#define KEEP_SHARED_WIDE 3 /* in binary32, of 16-bit rows: read again, but not widened again */

/* ---- arguments; strides in bytes, pointers of absent operands NULL ---- */

/* Kernels of calls without neighbours have shorter structs: of over 128 bytes the compiler loads each field where it is
 * used, again and again (8192 columns: 4 % more instructions). The host's are whole, and kernels are given their start. */
#ifndef DEVICE
#define HAS_NEIGHBOURS 1
#endif
/* An operand of such a struct, and a row of it. */
#if HAS_NEIGHBOURS
#define NEIGHBOUR(a, name) ((a)->name)
#define NEIGHBOUR_ROW(a, name, row) ((a)->name + (row) * (a)->name##_stride)
#else
#define NEIGHBOUR(a, name) ((unsigned char *)0)
#define NEIGHBOUR_ROW(a, name, row) ((unsigned char *)0)
#endif

struct forward_arguments {
	const unsigned char *x;
	unsigned char *y;
	const unsigned char *weight, *bias;
	void *mean, *rstd, *mean_lo;
	long long x_stride, y_stride;
	long long rows;
	double eps;
#if HAS_NEIGHBOURS
	const unsigned char *x_bias, *residual; /* residual: before or after the norm, or the gate */
	unsigned char *h;
	long long residual_stride, h_stride;
#endif
};
LAYOUT_ASSERT(sizeof(struct forward_arguments) == 88 + 40 * HAS_NEIGHBOURS);

struct backward_arguments {
	const unsigned char *x, *dy;
	unsigned char *dx;
	const unsigned char *weight;
	const void *mean, *rstd, *mean_lo;
	void *partials; /* [cluster][sum][PITCH] */
	long long x_stride, dy_stride, dx_stride;
	long long rows, slot_rows;
	double eps;
	void *slot_sums; /* of the chunks of a slot, where shared memory has no room for them; else NULL */
	int walkers; /* of a slot: parts of a warp that take its chunks by turns, where rows are narrow; a power of two */
	int unused;
#if HAS_NEIGHBOURS
	const unsigned char *x_bias, *dh; /* dh: or the gate */
	unsigned char *dresidual;         /* or dgate */
	long long dh_stride, dresidual_stride;
	const unsigned char *bias; /* of an activation */
#endif
};
LAYOUT_ASSERT(sizeof(struct backward_arguments) == 128 + 48 * HAS_NEIGHBOURS);

struct staged_arguments {
	const unsigned char *x, *dy;
	unsigned char *y; /* dx in backward */
	const unsigned char *weight, *bias;
	void *mean, *rstd, *mean_lo;
	void *numbers;  /* [rows][ROW_NUMBERS] */
	void *partials; /* [walk][sum][PITCH] */
	long long x_stride, dy_stride, y_stride;
	long long rows, slot_rows;
	double eps;
	int walk_slots; /* slots that a warp walks: 1, 2 or 4 */
	int unused;
#if HAS_NEIGHBOURS
	const unsigned char *x_bias, *residual; /* residual: or the gate; dh in backward */
	unsigned char *h;                       /* dresidual or dgate in backward */
	long long residual_stride, h_stride;
#endif
};
LAYOUT_ASSERT(sizeof(struct staged_arguments) == 136 + 40 * HAS_NEIGHBOURS);

/* ---- shared memory, in bytes ---- */

/* Quads (16 bytes) of a segment that a thread holds, row_threads of which share it. */
#define SEGMENT_QUADS_OF(cols, element_bytes, row_threads)                                  \
	((((cols) < SEGMENT ? (cols) : SEGMENT) * (element_bytes) + 16 * (row_threads)-1) / \
	 (16 * (row_threads)))

/* A board: two sides of places for the sums of a row's units, 16 or less, or a power of two of 32 and more; behind them the
 * mbarriers of a cluster. */
#define PLACES_OF(units)            \
	((units) <= 16    ? (units) \
	 : (units) <= 32  ? 32      \
	 : (units) <= 64  ? 64      \
	 : (units) <= 128 ? 128     \
	 : (units) <= 256 ? 256     \
			  : 512)
#define BOARD_NUMBERS_OF(units, rows_at_once) ((units) == 1 ? 0 : 4 * (rows_at_once)*PLACES_OF(units))
#define BOARD_BYTES_OF(units, rows_at_once, row_blocks, real_bytes) \
	(BOARD_NUMBERS_OF(units, rows_at_once) * (real_bytes) + ((row_blocks) > 1 ? 16 : 0))
#define BOARDS_BYTES_OF(block_rows, board_bytes) (((block_rows) * (board_bytes) + 127) / 128 * 128)

/* Trays: a row for each row_threads threads of a block; a shifted row takes a quad more. */
#define TRAY_QUADS_OF(quads, row_threads, shifted) ((quads) * (row_threads) + ((shifted) ? 1 : 0))
#define TRAYS_BYTES_OF(quads, threads, row_threads, shifted) \
	((threads) / (row_threads)*TRAY_QUADS_OF(quads, row_threads, shifted) * 16)

/* Backward: the column sums of a thread; those that a block folds at once; weights kept there; the ring of trays, which
 * the fold takes over. */
#define THREAD_SUMS_BYTES_OF(sums, quads, element_bytes, real_bytes) \
	((sums) * (quads)*16 / (element_bytes) * (real_bytes))
#define FOLD_BYTES_OF(block_rows, fold_blocks, thread_sums_bytes, row_warps) \
	((block_rows) * (fold_blocks) > 1 ? (block_rows) * (thread_sums_bytes)*32 * (row_warps) : 0)
#define KEPT_BYTES_OF(keep_weight, quads, element_bytes, weight_bytes, threads)                              \
	((keep_weight) == KEEP_SHARED                                                                        \
		 ? (quads)*16 * ((weight_bytes) <= (element_bytes) ? 1 : (weight_bytes) / (element_bytes)) * \
			   (threads)                                                                         \
	 : (keep_weight) == KEEP_SHARED_WIDE ? (quads)*16 / (element_bytes)*4 * (threads)                    \
					     : 0)
#define RING_BYTES_OF(stages, tensors, rows_at_once, trays_bytes) \
	((stages) * (tensors) * (rows_at_once) * (trays_bytes))

/* Forward: a gate of the result stays in registers, where its loads go out with those of x; a residual after the norm, which
 * is needed for a moment only, in a tray. */
#define HOLDS_GATE_OF(gate_out, element_bytes, warp_segments, access) \
	((gate_out) && (element_bytes) == 2 && (warp_segments) == 1 && (access) == ACCESS_QUADS)

/* Staged rows: a tile is a segment of x, or of x and dy. */
#define TILE_BYTES_OF(quads, tensors) ((quads)*32 * 16 * (tensors))
/* KIND_STAGED_COLUMNS: x, dy and dh of a row in a strip of columns, and the row's numbers. */
#define WALK_ROW_BYTES_OF(tensors, real_bytes) ((tensors)*32 * 16 + ROW_NUMBERS * (real_bytes))

#endif
