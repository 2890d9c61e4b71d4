/* The tables. Figures are shares of a copy's speed on an H200, bf16 unless said; docs/optimization.md has what
 * else was tried. Called by norm.c. SPDX-License-Identifier: MIT */
#include "policy.h"

#include "../ref/order.h"

const struct ek_policy_trial *ek_policy_tried;

enum {
	REGISTERS = 64 << 10, /* of a multiprocessor */
	MOST_CLUSTER = 8      /* blocks, on every GPU that has clusters */
};

/* A row of a table: for rows of up to `cols` elements. row_warps 0: as many as their segments need. */
struct choice {
	int64_t cols;
	struct ek_policy policy;
	int registers; /* of a thread, in forward */
};

#define FORWARD(most, warps, cluster, held, rows, number)          \
	{                                                          \
		.cols = (most), .registers = (number), .policy = { \
			.row_warps = (warps),                      \
			.row_blocks = (cluster),                   \
			.warp_segments = (held),                   \
			.block_rows = (rows),                      \
			.fold_blocks = 1                           \
		}                                                  \
	}

#define BACKWARD(most, warps, cluster, held, rows, ahead, kept, weight, fold) \
	{                                                                     \
		.cols = (most), .policy = {                                   \
			.row_warps = (warps),                                 \
			.row_blocks = (cluster),                              \
			.warp_segments = (held),                              \
			.block_rows = (rows),                                 \
			.blocks = 1,                                          \
			.stages = (ahead),                                    \
			.keep = (kept),                                       \
			.keep_weight = (weight),                              \
			.fold_blocks = (fold)                                 \
		}                                                             \
	}

#define END               \
	{                 \
		.cols = 0 \
	}

/* A row a line. */
/* clang-format off */

/* ---- forward: what counts is that many rows are on their way, so 64 to 80 registers a thread, more where a warp has more of a row ---- */

/* cols, row_warps, row_blocks, warp_segments, block_rows, registers: as many blocks a multiprocessor as have those */
static const struct choice forward_16bit[] = {
	FORWARD(1024, 1, 1, 1, 2, 72),   /* 8192x1024: 14 blocks of 2 rows .94, 12 or 16 .92; of 1 row .87, of 4 rows .93 */
	FORWARD(5120, 0, 1, 1, 1, 64),   /* 2048x4096: 64 registers .92, 80 .87; 32768x4096: .98; 2048x5120: .90 */
	FORWARD(16384, 0, 1, 2, 1, 80),  /* 4096x8192: .95, a warp a segment .92; 4096x12288: .94, a warp a segment .77 */
	FORWARD(65536, 0, 1, 4, 1, 128), /* 4096x32768: .95; 2048x65536: .86 (weights from the L2 for every row); clusters .70 */
	END,                             /* 1024x131072: .74 through shared memory, .68 in registers */
};

/* Rows of whole segments that do not fill the warps above. */
static const struct choice forward_16bit_whole[] = {
	FORWARD(8192, 0, 1, 1, 1, 64), /* 2048x7168: .88, two segments a warp .84; 8192x7168: .93, .95 */
	END,
};

/* All others: what is there is looked at for every quad. A warp that has a row for itself waits for no other. */
static const struct choice forward_16bit_uneven[] = {
	FORWARD(1024, 1, 1, 1, 2, 72),
	FORWARD(1280, 1, 1, 2, 2, 80),  /* 16384x1280: .93, 88 registers .90; two warps .69 */
	FORWARD(2048, 1, 1, 2, 2, 88),  /* 16384x1536: .95, 80 registers .93; two warps .79 */
	FORWARD(2560, 1, 1, 4, 2, 128), /* 4096x2560: .88, three warps .82; 2048x2304: .89, .75 */
	FORWARD(4608, 0, 1, 1, 1, 64),  /* 4096x3584: .87, a warp a row .85; 8192x4608: .88, two segments a warp .88 */
	FORWARD(8192, 0, 1, 2, 1, 80),  /* 8192x6656: .92, a warp a segment .85 */
	FORWARD(16384, 0, 1, 2, 1, 80), /* 4096x11008: .89, 96 registers .83, a warp a segment .72 */
	END,                            /* 4096x24000: .83 through shared memory, .65 in registers */
};

/* Few rows, where the tables above have two segments a warp and several warps. 8x8192: 2.3 us, two segments 2.65; 400x8192: 5.8, 6.7;
 * 8x11008: 3.2, 4.2; 264x12288: 5.9, 6.1. */
static const struct choice forward_16bit_few[] = {
	FORWARD(8192, 0, 1, 1, 1, 64),
	FORWARD(16384, 0, 1, 1, 1, 72),
	END,
};

/* Rows that start anywhere, and come through shared memory. */
static const struct choice forward_16bit_shifted[] = {
	FORWARD(1024, 1, 1, 1, 2, 64),
	FORWARD(2048, 1, 1, 2, 2, 88),  /* 16384x1500: .75, two warps .67 */
	FORWARD(16384, 0, 1, 1, 1, 64), /* 1000x3333: .68, by shuffles .45; 513x12345: .53, two segments a warp .49 */
	FORWARD(32768, 0, 1, 2, 1, 128),
	FORWARD(65536, 0, 2, 2, 1, 128),
	FORWARD(131072, 0, 4, 2, 1, 128),
	END,
};

static const struct choice forward_32bit[] = {
	FORWARD(1024, 1, 1, 1, 1, 128),  /* 16384x768: .98 */
	FORWARD(2047, 1, 1, 2, 1, 128),  /* 8192x1280: .97, two warps .91; but 8192x2048: .91, .97 */
	FORWARD(4096, 0, 1, 1, 1, 128),  /* 32768x4096: .97 */
	FORWARD(8192, 0, 1, 1, 1, 80),   /* 4096x8192: .96; 2 blocks .95 */
	FORWARD(32768, 0, 1, 2, 1, 128), /* 2048x16384: .94, a warp a segment .83; 2048x32768: .88, a cluster of 2 .67 */
	END,                             /* 512x131072: .70 through shared memory, .72 in registers of clusters */
};

static const struct choice forward_32bit_shifted[] = {
	FORWARD(1024, 1, 1, 1, 1, 112),
	FORWARD(2048, 1, 1, 2, 1, 168), /* 8192x1281: .75, two warps .70 */
	FORWARD(16384, 0, 1, 1, 1, 104),
	FORWARD(32768, 0, 2, 1, 1, 104),
	FORWARD(65536, 0, 4, 1, 1, 104),
	FORWARD(131072, 0, 8, 1, 1, 104),
	END,
};

static const struct choice forward_64bit[] = {
	FORWARD(8192, 0, 1, 1, 1, 255),
	FORWARD(16384, 0, 2, 1, 1, 255),
	FORWARD(32768, 0, 4, 1, 1, 255),
	FORWARD(65536, 0, 8, 1, 1, 255),
	END,
};

/* ---- backward: over 200 registers a thread, so eight warps a multiprocessor; rows are fetched ahead ---- */

/* cols, row_warps, row_blocks, warp_segments, block_rows, stages, keep, keep_weight, fold_blocks */
static const struct choice backward_16bit[] = {
	BACKWARD(1024, 1, 1, 1, 8, 3, 1, 1, 1),   /* 16384x768: .84; twice the slots at 168 registers .65 */
	BACKWARD(2048, 2, 1, 1, 4, 2, 1, 1, 1),
	BACKWARD(4096, 0, 1, 1, 2, 2, 1, 1, 1),   /* 32768x4096: .91; two rows at once .88 */
	BACKWARD(6144, 0, 1, 1, 1, 2, 1, 1, 1),   /* 4096x6144: .81; folded in pairs of blocks .77 */
	BACKWARD(8192, 0, 1, 1, 1, 3, 1, 1, 2),   /* 1024x8192: folded in pairs of blocks .69, not folded .62 */
	BACKWARD(16384, 0, 2, 1, 1, 2, 1, 1, 1),  /* 4096x16384: .87; one block, x and dy not in registers .81 */
	BACKWARD(32768, 0, 4, 1, 1, 3, 1, 1, 1),  /* 4096x32768: .86 */
	BACKWARD(65536, 0, 8, 1, 1, 3, 1, 1, 1),  /* 2048x65536: .85 */
	BACKWARD(131072, 0, 8, 2, 1, 2, 0, 2, 1), /* 1024x131072: .79; clusters of 16 .69: seven fit */
	END,
};

static const struct choice backward_32bit[] = {
	BACKWARD(1024, 1, 1, 1, 8, 2, 1, 1, 1),
	BACKWARD(2048, 2, 1, 1, 4, 2, 1, 1, 1),
	BACKWARD(4096, 0, 1, 1, 2, 2, 1, 1, 1),  /* 8192x4096: .90 */
	BACKWARD(8192, 0, 1, 1, 1, 1, 1, 1, 1),  /* 4096x8192: .91 */
	BACKWARD(16384, 0, 2, 1, 1, 2, 0, 1, 1), /* 2048x16384: .88 */
	BACKWARD(32768, 0, 4, 1, 1, 2, 0, 1, 1), /* 1024x32768: .84 */
	BACKWARD(65536, 0, 8, 1, 1, 2, 0, 1, 1),
	END,
};

/* Without clusters, in place of their rows: 128 registers. */
static const struct choice backward_16bit_alone[] = {
	BACKWARD(16384, 0, 1, 1, 1, 2, 0, 2, 1), /* 4096x16384 on a GPU with clusters: .81 */
	END,
};

static const struct choice none = END;

/* clang-format on */

/* ---- what the tables leave to arithmetic ---- */

static int element_bytes(ek_dtype dtype)
{
	return dtype == EK_F64 ? 8 : dtype == EK_F32 ? 4 : 2;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

struct ek_gpu_limits ek_limits_of(int arch)
{
	bool large = arch == 90 || arch / 10 == 10, medium = arch == 80 || arch == 87;
	return (struct ek_gpu_limits){arch, (large ? 227 : medium ? 163 : 99) << 10};
}

static int64_t segments_of(int64_t cols)
{
	return quotient_up(cols, SEGMENT);
}

static int quads_of(ek_dtype dtype, int64_t cols)
{
	int64_t used = cols < SEGMENT ? cols : SEGMENT;
	int warp_bytes = 32 * 16;
	return (int)((used * element_bytes(dtype) + warp_bytes - 1) / warp_bytes);
}

static const struct choice *choose(const struct choice *table, int64_t cols)
{
	const struct choice *row = table;
	while (row->cols != 0 && row->cols < cols)
		row++;
	return row;
}

/* ---- rows that no registers hold: they pass through shared memory, and stay there as far as they fit ---- */

enum {
	WIDE_UNITS = 512,    /* of a row at most: what its board has room for */
	WIDE_AHEAD = 3,      /* segments that a warp has on the way: 64 KiB and more a multiprocessor */
	WIDE_PART = 64 << 10 /* bytes of x that are worth a block of a cluster */
};

/* Of x, or of x and dy. */
static int64_t segment_bytes(ek_dtype dtype, int64_t cols, int tensors)
{
	return (int64_t)quads_of(dtype, cols) * 32 * 16 * tensors;
}

/* Segments of a row that a warp takes, at most. */
static int turns_of(const struct ek_policy *p, int64_t cols)
{
	int64_t units = quotient_up(segments_of(cols), p->unit_segments);
	return (int)quotient_up(units, p->row_warps * p->row_blocks) * p->unit_segments;
}

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

/* Clusters, so that few rows have all multiprocessors. */
static int wide_blocks(int64_t row_bytes, bool forward, struct ek_gpu_limits limits)
{
	int blocks = 1;
	/* 16 where 8 would keep less than half of a row between forward's passes. */
	if (limits.arch == 90 && forward && row_bytes > 2 * MOST_CLUSTER * (int64_t)limits.shared_bytes)
		return 2 * MOST_CLUSTER;
	while (limits.arch >= 90 && blocks < MOST_CLUSTER && row_bytes > (int64_t)blocks * WIDE_PART)
		blocks *= 2;
	return blocks;
}

/* Forward makes several passes over a row, backward usually one. */
struct ek_policy ek_wide_policy(ek_dtype dtype, int64_t cols, bool forward, struct ek_gpu_limits limits)
{
	if (ek_policy_tried)
		return ek_policy_tried->policy;
	int64_t segments = segments_of(cols);
	struct ek_wide_form form = {.dtype = dtype, .cols = cols, .tensors = forward ? 1 : 2};
	struct ek_policy p = {.row_warps = 8,
			      .row_blocks =
				      wide_blocks(segments * segment_bytes(dtype, cols, 1), forward, limits),
			      .warp_segments = 1,
			      .block_rows = 1,
			      .row_threads = 32,
			      .rows_at_once = 1,
			      .stages = 1,
			      .fold_blocks = 1,
			      .unit_segments = 1};
	while (segments > (int64_t)p.unit_segments * WIDE_UNITS)
		p.unit_segments *= 2;
	/* Two blocks a multiprocessor, so that one computes while the other waits; a row that needs all is alone. */
	int room = limits.shared_bytes / 2;
	if (forward && ek_wide_shared(&p, &form, turns_of(&p, cols)) > room) {
		room = limits.shared_bytes;
		p.row_warps = dtype == EK_F64 ? 8 : 16;
	}
	/* No warp without a segment, and for each one on the way beside the one in hand. */
	while (p.row_warps > 1 && (p.row_warps / 2 * p.row_blocks >= segments ||
				   ek_wide_shared(&p, &form, at_most(turns_of(&p, cols), 2)) > room))
		p.row_warps /= 2;
	if (segments <= p.row_warps && p.row_warps < 4) /* blocks of a warp or two are too many to start */
		p.block_rows = 4 / p.row_warps;
	p.blocks = (dtype == EK_F64 ? 12 : 16) /
		   (p.row_warps * p.block_rows); /* 168 or 128 registers a thread */
	return p;
}

/* A narrow row takes part of a warp, and a thread takes several such rows. */
static void share_warps(struct ek_policy *p, ek_dtype dtype, int64_t cols)
{
	int per_quad = 16 / element_bytes(dtype);
	p->row_threads = 32;
	if (p->rows_at_once == 0 || cols <= 512)
		p->rows_at_once =
			cols <= 512 ? 2 : 1; /* 65536x512: .95, 32768x256: .86, with 1 .91 and .83 */
	while (p->row_threads > 1 && p->row_threads / 2 * per_quad >= cols)
		p->row_threads /= 2;
}

/* Whether all quads of all warps are in the row. */
static bool fills_warps(const struct choice *choice, int64_t cols)
{
	const struct ek_policy *p = &choice->policy;
	return choice->cols > 0 && cols % ((int64_t)SEGMENT * p->warp_segments * p->row_blocks) == 0;
}

/* As many blocks as have so many registers a thread. A multiprocessor has four parts, each with a quarter of the registers and of
 * the warps. */
static void share_registers(struct ek_policy *p, int registers)
{
	int warps = ek_policy_threads(p) / 32, most = REGISTERS / 4 / (32 * registers);
	p->registers = registers;
	for (p->blocks = 1; quotient_up((p->blocks + 1) * warps, 4) <= most;)
		p->blocks++;
}

void ek_policy_add_registers(struct ek_policy *policy, int more)
{
	if (policy->registers)
		share_registers(policy, policy->registers + more);
}

int ek_policy_bound(const struct ek_policy *policy)
{
	int threads = ek_policy_threads(policy);
	int bound =
		policy->registers ? REGISTERS / (policy->registers * policy->blocks) / 128 * 128 : threads;
	return bound < threads ? threads : at_most(bound, 1024);
}

static struct ek_policy policy_of(const struct choice *choice, ek_dtype dtype, int64_t cols)
{
	struct ek_policy p = choice->policy;
	if (p.row_warps == 0)
		p.row_warps = (int)quotient_up(segments_of(cols), p.warp_segments * p.row_blocks);
	if (choice->registers)
		share_registers(&p, choice->registers);
	share_warps(&p, dtype, cols);
	return p;
}

static const struct choice *forward_table(ek_dtype dtype, int64_t cols, enum ek_access access)
{
	if (dtype == EK_F64)
		return forward_64bit;
	if (dtype == EK_F32)
		return access == EK_ACCESS_QUADS ? forward_32bit : forward_32bit_shifted;
	if (access != EK_ACCESS_QUADS)
		return forward_16bit_shifted;
	if (fills_warps(choose(forward_16bit, cols), cols))
		return forward_16bit;
	return fills_warps(choose(forward_16bit_whole, cols), cols) ? forward_16bit_whole
								    : forward_16bit_uneven;
}

struct ek_policy ek_forward_policy(ek_dtype dtype, int64_t cols, enum ek_access access,
				   struct ek_gpu_limits limits)
{
	if (ek_policy_tried)
		return ek_policy_tried->policy;
	const struct choice *choice = choose(forward_table(dtype, cols, access), cols);
	if (choice->cols == 0 || (choice->policy.row_blocks > 1 && limits.arch < 90))
		return ek_wide_policy(dtype, cols, true, limits);
	return policy_of(choice, dtype, cols);
}

bool ek_forward_few_policy(ek_dtype dtype, int64_t cols, enum ek_access access, struct ek_policy *policy)
{
	if (ek_policy_tried || element_bytes(dtype) != 2 || access != EK_ACCESS_QUADS)
		return false;
	const struct choice *many = choose(forward_table(dtype, cols, access), cols);
	const struct choice *few = choose(forward_16bit_few, cols);
	if (few->cols == 0 || many->policy.warp_segments < 2 || many->policy.row_warps == 1)
		return false;
	*policy = policy_of(few, dtype, cols);
	return true;
}

/* On a GPU with less shared memory: fewer rows ahead, then fewer slots a block. */
static bool needs_less_shared(struct ek_policy *p)
{
	if (p->stages > 2)
		p->stages--;
	else if (p->block_rows > 1)
		p->block_rows /= 2;
	else if (p->stages > 1)
		p->stages = 1;
	else
		return false;
	return true;
}

struct ek_policy ek_backward_policy(ek_dtype dtype, int64_t cols, enum ek_access access,
				    struct ek_gpu_limits limits)
{
	if (ek_policy_tried)
		return ek_policy_tried->policy;
	if (dtype == EK_F64) /* column sums of binary64 would take all registers */
		return ek_wide_policy(dtype, cols, false, limits);
	const struct choice *choice = choose(dtype == EK_F32 ? backward_32bit : backward_16bit, cols);
	if (choice->policy.row_blocks > 1 && limits.arch < 90)
		choice = choose(dtype == EK_F32 ? &none : backward_16bit_alone, cols);
	bool uneven = access != EK_ACCESS_QUADS || !fills_warps(choice, cols);
	if (choice->cols == 0 || (choice->policy.warp_segments > 1 && uneven)) /* no registers for that */
		return ek_wide_policy(dtype, cols, false, limits);
	struct ek_policy p = policy_of(choice, dtype, cols);
	if (limits.arch < 90)
		p.fold_blocks = 1;
	if (p.rows_at_once > 1)
		p.stages = at_most(p.stages, 2); /* 65536x512: .88, three stages .86 */
	if (access == EK_ACCESS_ELEMENTS)
		p.keep = p.keep_weight = 0;
	struct ek_backward_form most = {.dtype = dtype,
					.weight_dtype = EK_F32,
					.cols = cols,
					.shifted = access == EK_ACCESS_SHIFTED,
					.sums = 2};
	while (p.unit_segments == 0 && ek_backward_shared(&p, &most) > limits.shared_bytes)
		if (!needs_less_shared(&p))
			return ek_wide_policy(dtype, cols, false, limits);
	return p;
}

int ek_policy_threads(const struct ek_policy *policy)
{
	return 32 * policy->row_warps * policy->block_rows;
}

int ek_policy_slots(const struct ek_policy *policy)
{
	return policy->block_rows * (32 / policy->row_threads) * policy->fold_blocks;
}

int ek_policy_cluster(const struct ek_policy *policy)
{
	return policy->row_blocks * (policy->fold_blocks > 1 ? policy->fold_blocks : 1);
}

/* ---- shared memory, as the kernels lay it out ---- */

static int real_bytes(ek_dtype dtype)
{
	return dtype == EK_F64 ? 8 : 4;
}

/* BOARDS_BYTES of kernels/norm_sums.cu: two sides of places for 16 units or less, or for 32 lanes, each of which folds 1, 2, 4, …
 * units; and the letterboxes of a cluster. */
static int boards_bytes(const struct ek_policy *p, ek_dtype dtype, int64_t units)
{
	int64_t places = units <= 16 ? units : 32;
	while (places < units)
		places *= 2;
	int64_t numbers = 4 * places * p->rows_at_once * p->block_rows;
	return ((int)numbers * real_bytes(dtype) + (p->row_blocks > 1 ? 16 : 0) + 127) / 128 * 128;
}

static int board_bytes(const struct ek_policy *p, ek_dtype dtype)
{
	int units = p->row_warps * p->row_blocks;
	return units == 1 ? 0 : boards_bytes(p, dtype, units);
}

/* TRAYS_BYTES of kernels/norm_shift.cu: one row for each row_threads threads of a block. */
static int trays_bytes(const struct ek_policy *p, ek_dtype dtype, int64_t cols, bool shifted)
{
	int threads = ek_policy_threads(p), quads = quads_of(dtype, cols) * p->warp_segments;
	return (quads * threads + (shifted ? threads / p->row_threads : 0)) * 16;
}

int ek_forward_shared(const struct ek_policy *policy, ek_dtype dtype, int64_t cols, enum ek_access access)
{
	int trays = access == EK_ACCESS_SHIFTED ? trays_bytes(policy, dtype, cols, true) : 0;
	return board_bytes(policy, dtype) + policy->rows_at_once * trays;
}

static int thread_quads(const struct ek_policy *p, const struct ek_backward_form *form)
{
	return quads_of(form->dtype, form->cols) * p->warp_segments;
}

/* Bytes of a thread's column sums. */
static int thread_sums(const struct ek_policy *p, const struct ek_backward_form *form)
{
	return form->sums * thread_quads(p, form) * 16 / element_bytes(form->dtype) * real_bytes(form->dtype);
}

int ek_backward_shared(const struct ek_policy *policy, const struct ek_backward_form *form)
{
	const struct ek_policy *p = policy;
	int trays = trays_bytes(p, form->dtype, form->cols, form->shifted);
	int ring = p->stages * 2 * p->rows_at_once * trays, shift = form->shifted ? trays : 0;
	int folded = p->block_rows > 1 ? p->block_rows / 2 : p->fold_blocks > 1;
	int fold = folded * thread_sums(p, form) * 32 * p->row_warps;
	int weights = p->keep_weight == 2 ? thread_quads(p, form) * 16 / element_bytes(form->dtype) *
						    element_bytes(form->weight_dtype) * ek_policy_threads(p)
					  : 0;
	return board_bytes(p, form->dtype) + shift + weights + (ring > fold ? ring : fold);
}

int ek_backward_chunk_bytes(const struct ek_policy *policy, const struct ek_backward_form *form)
{
	return thread_sums(policy, form) * ek_policy_threads(policy);
}

static int wide_board_bytes(const struct ek_policy *p, const struct ek_wide_form *form)
{
	int64_t units = quotient_up(segments_of(form->cols), p->unit_segments);
	return units == 1 ? 0 : boards_bytes(p, form->dtype, units);
}

int ek_wide_shared(const struct ek_policy *policy, const struct ek_wide_form *form, int slots)
{
	return wide_board_bytes(policy, form) +
	       policy->block_rows * policy->row_warps * slots *
		       (int)segment_bytes(form->dtype, form->cols, form->tensors);
}

/* Of a row that is looked at again all segments, or as many as fit; of one that is not those on the way, in half of the
 * memory. */
int ek_wide_slots(const struct ek_policy *policy, const struct ek_wide_form *form, int shared_limit)
{
	int turns = turns_of(policy, form->cols);
	int slots = form->again ? turns : at_most(turns, WIDE_AHEAD);
	int room = form->again ? shared_limit : shared_limit / 2;
	while (slots > 1 && ek_wide_shared(policy, form, slots) > room)
		slots--;
	return slots;
}

int ek_walk_shared(ek_dtype dtype)
{
	return EK_WALK_WARPS * EK_WALK_AHEAD * (2 * 32 * 16 + EK_ROW_NUMBERS * real_bytes(dtype));
}
