/* The tables. Figures are shares of a copy's speed on an H200, bf16 unless said; docs/optimization.md has what
 * else was tried. Called by plan.c. SPDX-License-Identifier: MIT */
#include "policy.h"

#include "core/dtype.h"
#include "core/sizes.h"

enum {
	REGISTERS = 64 << 10, /* of a multiprocessor */
	MOST_CLUSTER = 8      /* blocks, on every GPU that has clusters */
};

/* A row of a table: for rows of up to `cols` elements. row_warps 0: as many as their segments need. */
struct choice {
	int64_t cols;
	struct ek_norm_policy policy;
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

/* All others: every quad is tested for the end of the row. A warp that has a whole row does not wait for others. */
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

/* Beside a residual, or with x_bias: a warp a segment, for a row takes twice the registers. */
static const struct choice forward_16bit_fused[] = {
	FORWARD(1024, 1, 1, 1, 2, 80),  /* 8192x1024: .94, 72 registers .92 */
	FORWARD(5120, 0, 1, 1, 1, 72),  /* 4096x4096: .93; 16384x2560: .95, a warp a row .94 */
	FORWARD(32768, 0, 1, 1, 1, 64), /* 8192x8192: .96, two segments a warp .92; 4096x11008: .91, .89; 2048x32768: .91, four .87 */
	END,
};

static const struct choice forward_16bit_fused_uneven[] = {
	FORWARD(1024, 1, 1, 1, 2, 80),
	FORWARD(2048, 1, 1, 2, 2, 96), /* 16384x1280: .94, two warps .90 */
	FORWARD(5120, 0, 1, 1, 1, 72),
	FORWARD(32768, 0, 1, 1, 1, 64),
	END,
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

/* With x_bias, or beside a residual where they do not fill the warps above. */
static const struct choice forward_32bit_fused[] = {
	FORWARD(1024, 1, 1, 1, 1, 128),
	FORWARD(2047, 1, 1, 2, 1, 128),
	FORWARD(16384, 0, 1, 1, 1, 96),
	END,
};

/* 16-bit rows held in binary32: blocks of one warp would not start as fast as they end. */
static const struct choice forward_half_quads[] = {
	FORWARD(1024, 1, 1, 1, 2, 128), /* 47936x700: .84, a row a block .58; 16776x500: .83, .77 */
	FORWARD(2047, 1, 1, 2, 2, 128), /* 5592x1500: .70, .68 */
	END,
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
static const struct choice backward_16bit_unclustered[] = {
	BACKWARD(16384, 0, 1, 1, 1, 2, 0, 2, 1), /* 4096x16384 on a GPU with clusters: .81 */
	END,
};

static const struct choice none = END;

/* clang-format on */

/* ---- what the tables leave to arithmetic ---- */

static int element_bytes(const struct ek_norm_form *form)
{
	return (int)ek_bytes_of_dtype(form->dtype);
}

static int real_bytes(const struct ek_norm_form *form)
{
	return (int)ek_bytes_of_dtype(ek_real_of(form->dtype));
}

static int per_quad(const struct ek_norm_form *form)
{
	return 16 / element_bytes(form);
}

static int64_t segments_of(int64_t cols)
{
	return quotient_up(cols, SEGMENT);
}

/* Of a thread and a segment. */
static int quads_of(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	return (int)SEGMENT_QUADS_OF(form->cols, element_bytes(form), policy->row_threads);
}

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

static const struct choice *choose(const struct choice *table, int64_t cols)
{
	const struct choice *row = table;
	while (row->cols != 0 && row->cols < cols)
		row++;
	return row;
}

bool ek_policy_is_staged(const struct ek_norm_policy *policy)
{
	return policy->unit_segments > 0;
}

int ek_policy_threads(const struct ek_norm_policy *policy)
{
	return 32 * policy->row_warps * policy->block_rows;
}

int ek_policy_rows(const struct ek_norm_policy *policy)
{
	if (ek_policy_is_staged(policy))
		return policy->block_rows;
	return policy->block_rows * policy->rows_at_once * (32 / policy->row_threads);
}

int ek_policy_slots(const struct ek_norm_policy *policy)
{
	return policy->block_rows * (32 / policy->row_threads) * policy->fold_blocks;
}

int ek_policy_cluster(const struct ek_norm_policy *policy)
{
	return policy->row_blocks * policy->fold_blocks;
}

int ek_policy_units(const struct ek_norm_policy *policy, int64_t cols)
{
	return ek_policy_is_staged(policy) ? (int)quotient_up(segments_of(cols), policy->unit_segments) : 0;
}

/* ---- shared memory ---- */

static int boards_bytes(const struct ek_norm_policy *p, const struct ek_norm_form *form)
{
	int units = ek_policy_is_staged(p) ? ek_policy_units(p, form->cols) : p->row_warps * p->row_blocks;
	return BOARDS_BYTES_OF(p->block_rows,
			       BOARD_BYTES_OF(units, p->rows_at_once, p->row_blocks, real_bytes(form)));
}

static int trays_bytes(const struct ek_norm_policy *p, const struct ek_norm_form *form)
{
	return TRAYS_BYTES_OF(quads_of(p, form) * p->warp_segments, ek_policy_threads(p), p->row_threads,
			      form->access == ACCESS_SHIFTED);
}

static bool holds_gate(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	return HOLDS_GATE_OF(form->gate && form->after, element_bytes(form), policy->warp_segments,
			     form->access);
}

int ek_forward_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	bool after = form->after && !holds_gate(policy, form);
	int trays = form->access == ACCESS_SHIFTED || after ? trays_bytes(policy, form) : 0;
	return boards_bytes(policy, form) + policy->rows_at_once * trays;
}

/* Bytes of a thread's column sums. */
static int thread_sums(const struct ek_norm_policy *p, const struct ek_norm_form *form)
{
	return THREAD_SUMS_BYTES_OF(form->sums, quads_of(p, form) * p->warp_segments, element_bytes(form),
				    real_bytes(form));
}

int ek_backward_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	const struct ek_norm_policy *p = policy;
	int trays = trays_bytes(p, form), shift = form->access == ACCESS_SHIFTED ? trays : 0;
	int ring = RING_BYTES_OF(p->stages, form->tensors, p->rows_at_once, trays);
	int fold = FOLD_BYTES_OF(p->block_rows, p->fold_blocks, thread_sums(p, form), p->row_warps);
	int weights = KEPT_BYTES_OF(p->keep_weight, quads_of(p, form) * p->warp_segments, element_bytes(form),
				    (int)ek_bytes_of_dtype(form->weight_dtype), ek_policy_threads(p));
	return boards_bytes(p, form) + shift + form->kept * weights + (ring > fold ? ring : fold);
}

int ek_backward_chunk_bytes(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	return thread_sums(policy, form) * ek_policy_threads(policy);
}

static int staged_bytes(const struct ek_norm_policy *p, const struct ek_norm_form *form, int tensors,
			int tiles)
{
	return boards_bytes(p, form) +
	       p->block_rows * p->row_warps * tiles * TILE_BYTES_OF(quads_of(p, form), tensors);
}

int ek_staged_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form, int tensors)
{
	return staged_bytes(policy, form, tensors, policy->tiles);
}

int ek_walk_shared(ek_dtype dtype, int tensors)
{
	return WALK_WARPS * WALK_AHEAD *
	       WALK_ROW_BYTES_OF(tensors, (int)ek_bytes_of_dtype(ek_real_of(dtype)));
}

/* ---- rows that no registers hold: they pass through shared memory, and stay there as far as they fit ---- */

enum {
	STAGED_UNITS = 512, /* of a row at most: what its board has room for */
	STAGED_AHEAD = 3,   /* segments that a warp has on the way: 64 KiB and more a multiprocessor */
	STAGED_BLOCK_BYTES = 64 << 10 /* bytes of x that are worth a block of a cluster */
};

/* Segments of a row that a warp takes, at most. */
static int turns_of(const struct ek_norm_policy *p, int64_t cols)
{
	int64_t units = quotient_up(segments_of(cols), p->unit_segments);
	return (int)quotient_up(units, p->row_warps * p->row_blocks) * p->unit_segments;
}

/* Clusters, so that few rows have all multiprocessors. */
static uint16_t staged_blocks(int64_t row_bytes, bool forward, const struct ek_gpu_limits *limits)
{
	int blocks = 1;
	/* 16 where 8 would keep less than half of a row between forward's passes. */
	if (limits->arch == 90 && forward && row_bytes > 2 * MOST_CLUSTER * (int64_t)limits->shared_bytes)
		return 2 * MOST_CLUSTER;
	while (limits->arch >= 90 && blocks < MOST_CLUSTER &&
	       row_bytes > (int64_t)blocks * STAGED_BLOCK_BYTES)
		blocks *= 2;
	return (uint16_t)blocks;
}

/* Of a row with several passes all segments, or as many as fit; of one with a single pass those on the way, in half of
 * the memory. */
static uint16_t tiles_of(const struct ek_norm_policy *p, const struct ek_norm_form *form, bool forward,
			 int shared_bytes)
{
	bool several = forward || !form->given || form->sums == 0;
	int turns = turns_of(p, form->cols), tensors = forward ? form->tensors : 2 + form->gate;
	int tiles = several ? turns : at_most(turns, STAGED_AHEAD);
	int room = several ? shared_bytes : shared_bytes / 2;
	while (tiles > 1 && staged_bytes(p, form, tensors, tiles) > room)
		tiles--;
	return (uint16_t)tiles;
}

/* Forward makes several passes over a row, backward usually one. */
static struct ek_norm_policy staged_policy(const struct ek_norm_form *form, bool forward,
					   const struct ek_gpu_limits *limits)
{
	int64_t segments = segments_of(form->cols);
	int tensors = forward ? form->tensors : 2 + form->gate;
	struct ek_norm_policy p = {.row_warps = 8,
				   .row_blocks = 1,
				   .warp_segments = 1,
				   .block_rows = 1,
				   .row_threads = 32,
				   .rows_at_once = 1,
				   .stages = 1,
				   .fold_blocks = 1,
				   .unit_segments = 1};
	p.row_blocks = staged_blocks(segments * TILE_BYTES_OF(quads_of(&p, form), 1), forward, limits);
	while (segments > (int64_t)p.unit_segments * STAGED_UNITS)
		p.unit_segments *= 2;
	/* Two blocks a multiprocessor, so that one computes while the other waits; a row that needs all of it has one block. */
	int room = limits->shared_bytes / 2;
	if (forward && staged_bytes(&p, form, tensors, turns_of(&p, form->cols)) > room) {
		room = limits->shared_bytes;
		p.row_warps = form->dtype == EK_F64 ? 8 : 16;
	}
	/* No warp without a segment, and for each one on the way beside the one in hand. */
	while (p.row_warps > 1 &&
	       (p.row_warps / 2 * p.row_blocks >= segments ||
		staged_bytes(&p, form, tensors, at_most(turns_of(&p, form->cols), 2)) > room))
		p.row_warps /= 2;
	if (segments <= p.row_warps && p.row_warps < 4) /* blocks of a warp or two are too many to start */
		p.block_rows = (uint16_t)(4 / p.row_warps);
	/* 128 registers a thread; 168 of binary64, and as many as there are where its rows are read byte by byte */
	int warps = form->dtype != EK_F64 ? 16 : form->access == ACCESS_QUADS ? 12 : 8;
	p.blocks = (uint16_t)(warps / (p.row_warps * p.block_rows));
	p.tiles = tiles_of(&p, form, forward, limits->shared_bytes);
	return p;
}

/* ---- rows in registers ---- */

/* A narrow row takes part of a warp, and a thread takes several such rows. */
static void share_warps(struct ek_norm_policy *p, const struct ek_norm_form *form)
{
	int64_t cols = form->cols;
	p->row_threads = 32;
	p->rows_at_once = cols <= 512 ? 2 : 1;
	while (p->row_threads > 1 && p->row_threads / 2 * per_quad(form) >= cols)
		p->row_threads /= 2;
}

/* Elements that the threads of a row have room for. */
static int64_t capacity_of(const struct ek_norm_form *form, int row_threads)
{
	int64_t step = (int64_t)row_threads * per_quad(form);
	return quotient_up(form->cols, step) * step;
}

/* Forward of rows that start at multiples of 16 bytes and take a warp or less: fewer threads a row where more of them would
 * have a quad outside of it (43690x384 bf16: .93, 32 threads .73; 26214x640: .92, .85), and as many rows at once as a
 * thread has registers for (65536x256: four .93, two .84; 131072x128 .92, .83; 262144x64 .89, .78). */
static void share_narrow_warps(struct ek_norm_policy *p, const struct ek_norm_form *form)
{
	enum {
		MOST_BYTES = 80
	}; /* of a thread: 16-bit rows of 896 columns on 16 threads have 112 and .88, on 32 .90 */
	bool plain = form->tensors == 1 && form->kept == 1 && !form->after && !form->flavoured;
	for (int threads = p->row_threads / 2; threads >= 4; threads /= 2) {
		int64_t capacity = capacity_of(form, threads);
		if (capacity < capacity_of(form, p->row_threads) &&
		    capacity / threads * element_bytes(form) <= MOST_BYTES)
			p->row_threads = (uint16_t)threads;
	}
	int64_t elements = capacity_of(form, p->row_threads) / p->row_threads;
	p->rows_at_once = elements <= 8 && plain ? 4 : elements <= 16 ? 2 : 1;
}

/* Whether all quads of all warps are in the row. */
static bool fills_warps(const struct choice *choice, int64_t cols)
{
	const struct ek_norm_policy *p = &choice->policy;
	return choice->cols > 0 && cols % ((int64_t)SEGMENT * p->warp_segments * p->row_blocks) == 0;
}

/* As many blocks as have so many registers a thread. A multiprocessor has four parts, each with a quarter of the registers and of
 * the warps. */
static void share_registers(struct ek_norm_policy *p, int registers)
{
	int warps = ek_policy_threads(p) / 32, most = REGISTERS / 4 / (32 * registers);
	p->registers = (uint16_t)registers;
	for (p->blocks = 1; quotient_up((p->blocks + 1) * warps, 4) <= most;)
		p->blocks++;
}

/* For operands and rows that take more of them. */
static void add_registers(struct ek_norm_policy *policy, int more)
{
	if (policy->registers)
		share_registers(policy, policy->registers + more);
}

int ek_policy_bound(const struct ek_norm_policy *policy)
{
	int threads = ek_policy_threads(policy);
	int bound =
		policy->registers ? REGISTERS / (policy->registers * policy->blocks) / 128 * 128 : threads;
	return bound < threads ? threads : at_most(bound, 1024);
}

static struct ek_norm_policy policy_of(const struct choice *choice, const struct ek_norm_form *form)
{
	struct ek_norm_policy p = choice->policy;
	if (p.row_warps == 0)
		p.row_warps = (uint16_t)quotient_up(segments_of(form->cols), p.warp_segments * p.row_blocks);
	if (choice->registers)
		share_registers(&p, choice->registers);
	share_warps(&p, form);
	return p;
}

static const struct choice *forward_table(const struct ek_norm_form *form)
{
	if (form->dtype == EK_F64)
		return forward_64bit;
	if (form->dtype == EK_F32 && form->access != ACCESS_QUADS)
		return forward_32bit_shifted;
	if (form->half_quads && choose(forward_half_quads, form->cols)->cols)
		return forward_half_quads;
	bool fused = form->tensors > 1 || form->kept > 1;
	if (form->dtype == EK_F32)
		return form->kept > 1 ||
				       (fused && !fills_warps(choose(forward_32bit, form->cols), form->cols))
			       ? forward_32bit_fused
			       : forward_32bit;
	if (form->access != ACCESS_QUADS)
		return forward_16bit_shifted;
	if (fused)
		return fills_warps(choose(forward_16bit_fused, form->cols), form->cols)
			       ? forward_16bit_fused
			       : forward_16bit_fused_uneven;
	if (fills_warps(choose(forward_16bit, form->cols), form->cols))
		return forward_16bit;
	return fills_warps(choose(forward_16bit_whole, form->cols), form->cols) ? forward_16bit_whole
										: forward_16bit_uneven;
}

/* Activations of 16-bit rows take a quad at a time, and few registers beside those of up to two segments a warp;
 * instructions are the limit. 8192x8192, tanh form of GELU: 64 registers .79, 96 .77; x times a gate .89, .76. */
static int activation_registers(const struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	bool made = (form->tensors > 1 || form->kept > 1) && !form->gate;
	bool gelu_gate = form->gate && form->activation == EK_GELU; /* takes the most */
	/* LayerNorm's pairs of sums, in a tree that is not full. 8192x6144, gated: 81 us, 64 registers 95 */
	bool odd_tree = form->norm == EK_LAYER_NORM && policy->warp_segments > 1 &&
			(policy->row_warps & (policy->row_warps - 1)) != 0;
	/* A warp's own row that ends inside of its segments. 8192x1536, tanh form of GELU: 20.2 us, 64 registers 24.1 */
	bool ends_inside =
		policy->row_warps == 1 && form->cols % ((int64_t)SEGMENT * policy->warp_segments) != 0;
	int more = (holds_gate(policy, form) || gelu_gate || odd_tree) + made + (form->groups > 1);
	return at_most(64 + 16 * more + 24 * ends_inside, 96);
}

static void add_forward_registers(struct ek_norm_policy *policy, const struct ek_norm_form *form)
{
	bool ends_inside = form->cols * element_bytes(form) % 16 != 0; /* a quad */
	bool activation = form->activation && element_bytes(form) == 2 && form->access == ACCESS_QUADS &&
			  policy->warp_segments <= 2;
	if (activation)
		share_registers(policy, activation_registers(policy, form));
	if (form->weight_dtype != form->dtype)
		add_registers(policy, 16);
	if (form->access == ACCESS_ELEMENTS)
		add_registers(policy, 16);
	if (form->access == ACCESS_QUADS && ends_inside && policy->warp_segments > 1)
		add_registers(policy, 16);
	if (form->flavoured || (form->activation && !activation))
		add_registers(policy, 16);
	if ((form->kept > 1 && !activation) ||
	    (form->dtype == EK_F32 && form->tensors > 1 && policy->warp_segments > 1))
		add_registers(policy, 16);
}

struct ek_norm_policy ek_forward_policy(const struct ek_norm_form *form, const struct ek_gpu_limits *limits)
{
	const struct choice *choice = choose(forward_table(form), form->cols);
	if (choice->cols == 0 || (choice->policy.row_blocks > 1 && limits->arch < 90))
		return staged_policy(form, true, limits);
	struct ek_norm_policy policy = policy_of(choice, form);
	if (form->access == ACCESS_QUADS && form->dtype != EK_F64 && form->cols <= SEGMENT)
		share_narrow_warps(&policy, form);
	add_forward_registers(&policy, form);
	bool fused = form->tensors > 1 || form->kept > 1;
	if ((fused && policy.registers * ek_policy_threads(&policy) > REGISTERS) ||
	    ek_forward_shared(&policy, form) > limits->shared_bytes)
		return staged_policy(form, true, limits);
	return policy;
}

bool ek_forward_few_policy(const struct ek_norm_form *form, struct ek_norm_policy *policy)
{
	if (element_bytes(form) != 2 || form->access != ACCESS_QUADS || form->tensors > 1 || form->kept > 1)
		return false;
	const struct choice *many = choose(forward_table(form), form->cols);
	const struct choice *few = choose(forward_16bit_few, form->cols);
	if (few->cols == 0 || many->policy.warp_segments < 2 || many->policy.row_warps == 1)
		return false;
	*policy = policy_of(few, form);
	add_forward_registers(policy, form);
	return true;
}

/* On a GPU with less shared memory: smaller weights, fewer rows ahead, then fewer slots a block. */
static bool take_less_shared(struct ek_norm_policy *p)
{
	if (p->keep_weight == KEEP_SHARED_WIDE)
		p->keep_weight = KEEP_SHARED;
	else if (p->stages > 2)
		p->stages--;
	else if (p->block_rows > 1)
		p->block_rows /= 2;
	else if (p->stages > 1)
		p->stages = 1;
	else
		return false;
	return true;
}

struct ek_norm_policy ek_backward_policy(const struct ek_norm_form *form, const struct ek_gpu_limits *limits)
{
	if (form->dtype == EK_F64) /* column sums of binary64 would take all registers */
		return staged_policy(form, false, limits);
	const struct choice *choice =
		choose(form->dtype == EK_F32 ? backward_32bit : backward_16bit, form->cols);
	if (choice->policy.row_blocks > 1 && limits->arch < 90)
		choice = choose(form->dtype == EK_F32 ? &none : backward_16bit_unclustered, form->cols);
	bool whole = form->cols < SEGMENT ? form->cols % (32 * per_quad(form)) == 0
					  : fills_warps(choice, form->cols);
	bool uneven = form->access != ACCESS_QUADS || !whole;
	bool more = form->kept > 1 || form->sums == 3; /* x_bias, or its gradient */
	bool wide = form->dtype == EK_F32;
	/* No registers for that; nor for three tensors that are read byte by byte, beside the pointers of a group; nor, where
	 * rows do not fill their warps, for a GELU of a gate, or of f32 beside three column sums, and for recomputed statistics
	 * of f32 with a bias of x or dh, or of a gate; nor for those of f32 x with a bias before an activation. */
	bool scarce_given = uneven && form->activation == EK_GELU && (form->gate || (wide && form->sums > 2));
	bool scarce_recomputed =
		(uneven && (form->gate || (wide && (form->kept > 1 || form->tensors > 2)))) ||
		(wide && more && form->activation);
	bool scarce = form->given ? scarce_given : scarce_recomputed;
	if (choice->cols == 0 || (choice->policy.warp_segments > 1 && (uneven || more || form->gate)) ||
	    (form->tensors > 2 && form->groups > 1 && form->access == ACCESS_ELEMENTS) || scarce)
		return staged_policy(form, false, limits);
	struct ek_norm_policy p = policy_of(choice, form);
	if (limits->arch < 90)
		p.fold_blocks = 1;
	if (p.rows_at_once > 1)
		p.stages = (uint16_t)at_most(p.stages, 2); /* 65536x512: .88, three stages .86 */
	if (element_bytes(form) == 2 && form->access == ACCESS_QUADS && form->given && form->tensors == 2 &&
	    form->cols > 128 && form->cols <= 256)
		p.rows_at_once =
			4; /* 65536x256: .83, two .67; up to 128 columns a warp has several rows anyway */
	if (form->access == ACCESS_ELEMENTS)
		p.keep = p.keep_weight = 0;
	if (!form->given) /* recomputed statistics take registers, too */
		p.keep = 0;
	if (form->half_quads && form->cols > 512 && form->cols < SEGMENT)
		p.keep =
			KEEP_NOTHING; /* 47936x700: .83, rows in registers .64; 9320x900: .75, .64; 13976x600: .77, .78 */
	/* No registers for weights: 40 to 52 bytes were spilled. A gate: at no cost; RMSNorm of f32, 8192x1536: 43.4 us, 46.5;
	 * LayerNorm 45.3, 43.6; with dh, 16-bit weights beside 8192x1024 of f32: 38.6, 37.8 */
	bool ends_inside =
		wide && uneven && form->access == ACCESS_QUADS && (!form->given || form->norm == EK_RMS_NORM);
	bool widens = wide && form->tensors > 2 && form->weight_dtype != EK_F32;
	if (more || form->gate || ends_inside || widens)
		p.keep_weight = KEEP_SHARED;
	/* 8192x8192 with dh: .92, three stages .91; and x_bias' gradient: .90, .82; 8192x1024 with x_bias: .72, .67 */
	if ((form->tensors > 2 && p.row_warps > 1) || form->kept > 1)
		p.stages = (uint16_t)at_most(p.stages, 2);
	if ((more && (uneven || wide)) || (form->gate && (uneven || p.row_blocks > 1)))
		p.keep = 0;
	/* 8192x1024, tanh form of GELU: 21.5 us, rows in registers and 16-bit weights 23.1; 8192x8192 149, 159; 8192x1536 42, 63 */
	if (form->activation && !form->gate && form->given && form->access == ACCESS_QUADS &&
	    form->sums < 3) {
		p.keep = KEEP_GRADIENT;
		p.keep_weight = KEEP_SHARED_WIDE;
	}
	/* The same for every set of operands, so that workspaces are, too. */
	struct ek_norm_form most = *form;
	most.weight_dtype = EK_F32;
	most.sums = form->tensors; /* of fused calls three of each */
	while (ek_backward_shared(&p, &most) > limits->shared_bytes)
		if (!take_less_shared(&p))
			return staged_policy(form, false, limits);
	return p;
}
