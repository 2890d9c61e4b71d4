/* The column sums of backward (rule 6) on their way from the threads that walk slots to memory: chunks of a slot, then the tree
 * over slots as far as a warp, a block or a cluster has them. Placed between sums.cu and backward.cu, which explains
 * the constants. SPDX-License-Identifier: MIT */

enum {
	SUMS = HAS_DWEIGHT + HAS_DBIAS,
	PITCH = (COLS + REALS - 1) / REALS * REALS,
	BLOCK_ROW_THREADS = 32 * ROW_WARPS,            /* threads of a block that share a row */
	SUM_QUADS = QUADS * PER_QUAD / REALS, /* of one column sum and a thread */
	THREAD_SUMS_BYTES = THREAD_SUMS_BYTES_OF(SUMS, QUADS, ELEMENT_BYTES, (int)sizeof(real)),
	FOLD_BYTES = FOLD_BYTES_OF(BLOCK_ROWS, FOLD_BLOCKS, THREAD_SUMS_BYTES, ROW_WARPS)
};

/* Column sums of a thread: [dweight, dbias][element]. */
enum { COLUMN_SUMS = SUMS > 0 ? SUMS : 1, ELEMENTS = QUADS * PER_QUAD };

/* Adds the sums of a chunk to those of its slot and sets them to zero. */
DEVICE void close_chunk(real *slot_sums, real (*sums)[ELEMENTS])
{
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			real *slot_sum = slot_sums + (k * ELEMENTS + i) * THREADS;
			store_one(real, slot_sum, load_one(real, slot_sum) + sums[k][i]);
			sums[k][i] = 0;
		}
	}
}

/* ---- the tree over slots: of a warp, of a block, of a cluster ---- */

/* Narrow rows: a warp walks SUB_ROWS slots. */
DEVICE void fold_warp(real (*sums)[ELEMENTS])
{
	UNROLL
	for (int h = ROW_THREADS; h < 32; h *= 2) {
		UNROLL
		for (int k = 0; k < SUMS; k++) {
			UNROLL
			for (int i = 0; i < ELEMENTS; i++)
				sums[k][i] = sums[k][i] + shuffle_xor(sums[k][i], h);
		}
	}
}

/* Puts a thread's column sums on shared memory, where quads of neighbouring threads are neighbours. */
DEVICE void put_sums(u8 *to, real (*sums)[ELEMENTS], int thread)
{
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int q = 0; q < SUM_QUADS; q++)
			*(quad *)(to + ((k * SUM_QUADS + q) * BLOCK_ROW_THREADS + thread) * 16) =
				quad_of_sums(sums[k] + q * REALS);
	}
}

DEVICE void add_sums(real (*sums)[ELEMENTS], const u8 *from, int thread)
{
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int q = 0; q < SUM_QUADS; q++) {
			real other[REALS];
			sums_of_quad(load_fetched(from + ((k * SUM_QUADS + q) * BLOCK_ROW_THREADS + thread) * 16), other);
			add_reals(sums[k] + q * REALS, other);
		}
	}
}

/* After it, the threads of the block's first slot hold the sums of all. */
DEVICE void fold_block(real (*sums)[ELEMENTS], u8 *work, int group, int thread)
{
	UNROLL
	for (int h = 1; h < BLOCK_ROWS; h *= 2) {
		u8 *at = work + group / (2 * h) * THREAD_SUMS_BYTES * BLOCK_ROW_THREADS;
		sync_block();
		if (group % (2 * h) == h)
			put_sums(at, sums, thread);
		sync_block();
		if (group % (2 * h) == 0)
			add_sums(sums, at, thread);
	}
}

/* A thread's column sums go where their columns are. */
DEVICE void store_sums(real *partials, real (*sums)[ELEMENTS], int first)
{
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i += REALS) {
			int c = column(first, i / PER_QUAD) + i % PER_QUAD;
			if (c < COLS)
				store_kept(partials + (i64)k * PITCH + c, quad_of_sums(sums[k] + i));
		}
	}
}

/* Each block of the cluster folds a share of the columns, out of the shared memory of all. */
DEVICE void fold_cluster(real (*sums)[ELEMENTS], u8 *work, real *partials, int rank, struct position p)
{
	const int row_block = rank % ROW_BLOCKS, share = rank / ROW_BLOCKS;
	sync_block();
	if (p.group == 0)
		put_sums(work, sums, thread_index());
	sync_cluster();
	for (int item = share * THREADS + thread_index(); item < SUMS * SUM_QUADS * BLOCK_ROW_THREADS;
	     item += FOLD_BLOCKS * THREADS) {
		real all[FOLD_BLOCKS][REALS];
		UNROLL
		for (int f = 0; f < FOLD_BLOCKS; f++)
			sums_of_quad(get_quad(work + item * 16, f * ROW_BLOCKS + row_block), all[f]);
		UNROLL
		for (int h = 1; h < FOLD_BLOCKS; h *= 2) {
			UNROLL
			for (int f = 0; f + h < FOLD_BLOCKS; f += 2 * h)
				add_reals(all[f], all[f + h]);
		}
		int k = item / (SUM_QUADS * BLOCK_ROW_THREADS), q = item / BLOCK_ROW_THREADS % SUM_QUADS;
		int first = position_of(item % BLOCK_ROW_THREADS, row_block).first;
		int at = q * REALS;
		int c = column(first, at / PER_QUAD) + at % PER_QUAD;
		if (c < COLS)
			store_kept(partials + (i64)k * PITCH + c, quad_of_sums(all[0]));
	}
	sync_cluster(); /* the others may still be reading ours */
}
