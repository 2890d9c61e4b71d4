/* What the norm kernels share, first part: how a row lies in the registers of its threads, and how it gets there
 * from memory and back. Placed after layout.h, before shift.cu. SPDX-License-Identifier: MIT
 *
 * Constants, given as -D:
 *   KERNEL_NAME       of the function
 *   KIND              of the kernel (layout.h)
 *   ELEMENT           of the activations as the kernel holds them: DTYPE_… (layout.h)
 *   X_ELEMENT         of x, Y_ELEMENT of y: where they are not ELEMENT, that of a row as the kernel holds it
 *   NEIGHBOUR_ELEMENT of a residual, before or after, and of h; of dh and dresidual; or of the gate
 *   WEIGHT_ELEMENT    of weight, bias and their gradients
 *   COLS              elements in a row; of a kernel with groups, in a group
 *   ROW_GROUPS        groups of COLS columns in a row (rule 13): each is a row to the kernel, of a block of its own
 *   CENTRED           1 LayerNorm, 0 RMSNorm
 *   ACCESS            of rows: ACCESS_… (layout.h); shift.cu has ACCESS_SHIFTED
 *   WEIGHT_ACCESS     of weight and bias: 0 they start at multiples of 16 bytes, 1 element by element
 *   BYTES             1: some pointer is no multiple of its element size: byte by byte (with ACCESS_ELEMENTS)
 *   ROW_WARPS         warps of a block that share a row
 *   ROW_BLOCKS        blocks of a cluster that share a row
 *   WARP_SEGMENTS     segments of 1024 elements that a warp holds: 1, 2, 4 or 8
 *   BLOCK_ROWS        rows, or sets of ROWS_AT_ONCE rows for every ROW_THREADS threads, that a block has in hand
 *   ROW_THREADS       threads of a warp that share a row: 32, or less where the row is narrow
 *   ROWS_AT_ONCE      rows that a thread has in hand at once
 *   BLOCKS            blocks that shall fit a multiprocessor
 *   BOUND_THREADS     of how many threads they could be: both bound the registers of a thread
 *   STAGED_UNITS      0, or in staged.cu the units of a row, which its warps take one after another
 *   WEIGHT_OFFSET     1: 1 + weight is used for weight
 *   ACTIVATION        of the norm's result: ACTIVATION_… (layout.h), 0 none
 *   GATE_FIRST        1: the gate multiplies x, 0: the result
 *   ROUND_EACH        1: xhat rounds to the dtype of the norm's input before it is multiplied
 *   HAS_…             1: the call has that operand
 *
 * A lane of the contract is an element's number mod 256. A thread holds quads (16 bytes, PER_QUAD elements) of a
 * segment; quad j of thread t starts at element (ROW_THREADS j + t) PER_QUAD, so that a warp reads whole lines, and a
 * thread's elements fall on THREAD_LANES lanes, in LANE_RUNS runs of PER_QUAD neighbours. */

#ifndef HAS_BIAS
#define HAS_BIAS 0
#endif

#define mean_of(sum) MEAN_OF(sum, COLS)

/* A gate that multiplies x, or the affine result; its dtype. */
#define GATE_IN (HAS_GATE && GATE_FIRST)
#define GATE_OUT (HAS_GATE && !GATE_FIRST)
#ifdef HAS_RESIDUAL
#define GATE_ELEMENT X_ELEMENT
#else
#define GATE_ELEMENT DX_ELEMENT
#define HAS_RESIDUAL 0 /* backward has none of these */
#define HAS_RESIDUAL_AFTER 0
#define HAS_H 0
#endif

enum {
	THREAD_LANES = LANES / ROW_THREADS,
	WARP_ELEMENTS = ROW_THREADS * PER_QUAD, /* from a quad of a thread to its next */
	SEGMENT_QUADS = SEGMENT_QUADS_OF(COLS, ELEMENT_BYTES, ROW_THREADS),
	MOST_LANE_RUNS = THREAD_LANES / PER_QUAD,
	LANE_RUNS = SEGMENT_QUADS < MOST_LANE_RUNS ? SEGMENT_QUADS : MOST_LANE_RUNS,
	QUADS = WARP_SEGMENTS * SEGMENT_QUADS,
	UNITS = STAGED_UNITS ? STAGED_UNITS : ROW_WARPS * ROW_BLOCKS, /* a unit is what a warp sums up of a row */
	CAPACITY = STAGED_UNITS ? (COLS + SEGMENT - 1) / SEGMENT * SEGMENT : UNITS * WARP_SEGMENTS * SEGMENT,
	SUB_ROWS = 32 / ROW_THREADS,
	THREADS = 32 * ROW_WARPS * BLOCK_ROWS,
	TAIL_QUAD = (COLS - 1) % SEGMENT / WARP_ELEMENTS, /* of a segment: the one that may end inside */
	TAIL_ELEMENTS = COLS % PER_QUAD
};

#define ROW_BYTES (COLS * ELEMENT_BYTES) /* under 2^28 */

/* Two sums of rows that leave no thread idle stay side by side in the tree over threads (folds.cu): 2048x4096 .91, shared .89. */
enum {
	FILLED = UNITS == 1 ? COLS % WARP_ELEMENTS == 0 : CAPACITY == COLS,
	SIDE_BY_SIDE = FILLED && LANE_RUNS == 1 && WARP_SEGMENTS == 1 && ROWS_AT_ONCE == 1 ? 2 : 1
};

/* Clusters of `blocks` blocks take the groups of the same rows one after another: which group, and which block it would be
 * without groups. */
#define GROUP_OF_BLOCK(blocks) (ROW_GROUPS > 1 ? (int)(block_index() / (blocks) % ROW_GROUPS) : 0)
#define BLOCK_IN_GROUP(blocks) \
	(ROW_GROUPS > 1 ? block_index() / (blocks) / ROW_GROUPS * (blocks) + block_index() % (blocks) : block_index())
/* The number of a row's statistics, once their pointer is that of the group. */
#define STATISTIC_OF(row) ((row) * ROW_GROUPS)
/* A KERNEL whose struct a has the pointers of its group (select_group, of the kernel's file); without groups as it is given. */
#if ROW_GROUPS > 1
#define GROUP_KERNEL(name, threads, blocks, arguments)  \
	DEVICE void run_group(const struct arguments a); \
	KERNEL(name, threads, blocks, arguments)         \
	{                                                \
		struct arguments of_group = a;           \
		select_group(&of_group);                 \
		run_group(of_group);                     \
	}                                                \
	DEVICE void run_group(const struct arguments a)
#else
#define GROUP_KERNEL KERNEL
#endif
/* Moves a pointer to the first element of a group. */
#define TO_GROUP(pointer, group, bytes) ((pointer) += (i64)(group) * COLS * (bytes))
#define STATISTICS_TO_GROUP(pointer, group) \
	((pointer) = (pointer) ? (u8 *)(pointer) + (group) * sizeof(real) : (u8 *)0)

/* Where a thread stands in its row. */
struct position {
	int lane;  /* thread of its ROW_THREADS */
	int unit;  /* of the row */
	int group; /* which row of the block */
	int first; /* column of its first quad */
};

DEVICE struct position position_of(int thread, int row_block)
{
	struct position p;
	int warp = thread / 32;
	p.lane = thread % ROW_THREADS;
	/* One row a block needs no division; but it is only with many segments that the compiler spills less for it. */
	int one_row = BLOCK_ROWS == 1 && WARP_SEGMENTS >= (ACCESS == ACCESS_SHIFTED ? 2 : 4);
	p.unit = row_block * ROW_WARPS + (one_row ? warp : warp % ROW_WARPS);
	p.group = one_row ? 0 : warp / ROW_WARPS;
	p.first = p.unit * WARP_SEGMENTS * SEGMENT + p.lane * PER_QUAD;
	return p;
}

/* Column of quad j of a thread. */
DEVICE int column(int first, int j)
{
	return first + j / SEGMENT_QUADS * SEGMENT + j % SEGMENT_QUADS * WARP_ELEMENTS;
}

/* Whether quad j has an element in the row, and element e of it. */
enum { ALL_QUADS = CAPACITY == COLS || (UNITS == 1 && COLS == SEGMENT_QUADS * WARP_ELEMENTS) };
#define HAS_QUAD(first, j) (ALL_QUADS || column(first, j) < COLS)
#define HAS_ELEMENT(first, j, e)                                                                    \
	(TAIL_ELEMENTS == 0 || (j) % SEGMENT_QUADS != TAIL_QUAD ? HAS_QUAD(first, j)               \
								 : column(first, j) + (e) < COLS)

/* PER_QUAD neighbours of weight or bias, as they are in memory. */
enum { WEIGHT_WORDS = PER_QUAD * WEIGHT_BYTES / 4 };
struct weights {
	u32 w[WEIGHT_WORDS < 4 ? 4 : WEIGHT_WORDS];
};

/* From column c; zeros past the end of the row. */
DEVICE struct weights load_weights(const u8 *from, int c)
{
	struct weights v;
	if (WEIGHT_ACCESS == 0 && (TAIL_ELEMENTS == 0 || c + PER_QUAD <= COLS)) {
		if (WEIGHT_WORDS == 2) {
			u64 half = load_shared_by_all_8(from + c * WEIGHT_BYTES);
			v.w[0] = (u32)half;
			v.w[1] = (u32)(half >> 32);
			return v;
		}
		UNROLL
		for (int i = 0; i < WEIGHT_WORDS; i += 4) {
			quad q = load_shared_by_all(from + c * WEIGHT_BYTES + 4 * i);
			UNROLL
			for (int k = 0; k < 4; k++)
				v.w[i + k] = q.w[k];
		}
		return v;
	}
	UNROLL
	for (int i = 0; i < WEIGHT_WORDS; i++)
		v.w[i] = 0;
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		u64 bits = c + e < COLS ? load_bits(from + (c + e) * WEIGHT_BYTES, WEIGHT_BYTES) : 0;
		v.w[e * WEIGHT_BYTES / 4] |= (u32)(WEIGHT_BYTES == 2 ? bits << 16 * (e % 2) : bits);
		if (WEIGHT_BYTES == 8)
			v.w[(e * WEIGHT_BYTES / 4 + 1) % WEIGHT_WORDS] = (u32)(bits >> 32);
	}
	return v;
}

DEVICE void widen_weights(struct weights v, real *w)
{
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
#if WEIGHT_ELEMENT == DTYPE_F32
		w[e] = f32_of_bits(v.w[e]);
#elif WEIGHT_ELEMENT == DTYPE_F16
		w[e] = f32_of_f16(e % 2 ? v.w[e / 2] >> 16 : v.w[e / 2] & 0xffff);
#elif WEIGHT_ELEMENT == DTYPE_BF16
		w[e] = f32_of_bits(e % 2 ? v.w[e / 2] & 0xffff0000u : v.w[e / 2] << 16);
#else
		w[e] = f64_of_bits(v.w[2 * e], v.w[2 * e + 1]);
#endif
	}
}

/* ---- column sums on their way ---- */

enum { GROUP_PITCH = GROUP_PITCH_OF(COLS, (int)sizeof(real)), PITCH = ROW_GROUPS * GROUP_PITCH };

/* ---- rows in and out; shift.cu has those that start anywhere ---- */

/* The elements of a row from column c on that there are; c may be before its start. */
DEVICE quad load_elements(const u8 *row, int c)
{
	quad v = no_quad();
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		if (c + e >= 0 && c + e < COLS)
			v = put_bits(v, e, load_bits(row + (c + e) * ELEMENT_BYTES, ELEMENT_BYTES));
	return v;
}

/* The first `count` elements of a quad that starts at `to`. */
DEVICE void store_elements(u8 *to, quad v, int count)
{
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		if (e < count)
			store_bits(to + e * ELEMENT_BYTES, ELEMENT_BYTES, quad_bits(v, e));
}

/* One quad of a row, from column c, where ACCESS is not ACCESS_SHIFTED. */
DEVICE quad load_strip(const u8 *row, int c)
{
	if (ACCESS == ACCESS_QUADS && (TAIL_ELEMENTS == 0 || c + PER_QUAD <= COLS))
		return load_once(row + c * ELEMENT_BYTES);
	return load_elements(row, c);
}

DEVICE void store_strip(u8 *row, quad v, int c)
{
	if (ACCESS == ACCESS_QUADS && (TAIL_ELEMENTS == 0 || c + PER_QUAD <= COLS))
		store_once(row + c * ELEMENT_BYTES, v);
	else
		store_elements(row + c * ELEMENT_BYTES, v, COLS - c);
}

/* A thread's quads of a row, zeros past its end. */
DEVICE void load_row(quad *v, const u8 *row, struct position p)
{
	UNROLL
	for (int j = 0; j < QUADS; j++)
		v[j] = HAS_QUAD(p.first, j) ? load_strip(row, column(p.first, j)) : no_quad();
}
