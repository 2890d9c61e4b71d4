/* The column sums of backward (rule 6) on their way from the threads that walk slots to memory: chunks of a slot, then the tree
 * over slots as far as a warp, a block or a cluster has them. Placed between sums.cu and backward.cu, which explains
 * the constants. SPDX-License-Identifier: MIT */

enum {
	SUMS = HAS_DWEIGHT + HAS_DBIAS + HAS_DX_BIAS,
	DBIAS_SUM = HAS_DWEIGHT,
	DX_BIAS_SUM = HAS_DWEIGHT + HAS_DBIAS,
	BLOCK_ROW_THREADS = 32 * ROW_WARPS,            /* threads of a block that share a row */
	SUM_QUADS = QUADS * PER_QUAD / REALS, /* of one column sum and a thread */
	THREAD_SUMS_BYTES = THREAD_SUMS_BYTES_OF(SUMS, QUADS, ELEMENT_BYTES, (int)sizeof(real)),
	FOLD_BYTES = FOLD_BYTES_OF(BLOCK_ROWS, FOLD_BLOCKS, THREAD_SUMS_BYTES, ROW_WARPS)
};

/* Column sums of a thread: [those wanted of dweight, dbias, dx_bias][element]. */
enum { COLUMN_SUMS = SUMS > 0 ? SUMS : 1, ELEMENTS = QUADS * PER_QUAD };

/* Adds the sums of a chunk to those of its slot and sets them to zero; of several walkers the first adds those of all, in
 * order, and what the others add is not used. */
DEVICE void close_chunk(real *slot_sums, real (*sums)[ELEMENTS], int walkers)
{
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			real *slot_sum = slot_sums + (k * ELEMENTS + i) * THREADS;
			real sum = load_one(real, slot_sum) + sums[k][i];
			NO_UNROLL
			for (int other = 1; SUB_ROWS > 1 && other < walkers; other++)
				sum = sum + shuffle_xor(sums[k][i], other * ROW_THREADS);
			store_one(real, slot_sum, sum);
			sums[k][i] = 0;
		}
	}
}

/* ---- the tree over slots: of a warp, of a block, of a cluster ---- */

/* Narrow rows: a warp walks SUB_ROWS slots, or has several walkers for each of fewer. */
DEVICE void fold_warp(real (*sums)[ELEMENTS], int walkers)
{
	UNROLL
	for (int h = ROW_THREADS; h < 32; h *= 2) {
		if (h < walkers * ROW_THREADS)
			continue;
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

enum { FOLDED = BLOCK_ROWS * FOLD_BLOCKS, SLOT_BYTES = THREAD_SUMS_BYTES * BLOCK_ROW_THREADS };

/* Sums of all slots of the cluster at one place, folded by the tree. */
DEVICE quad fold_place(u8 *at, int row_block)
{
	real all[FOLDED][REALS];
	UNROLL
	for (int i = 0; i < FOLDED; i++) {
		u8 *slot = at + i % BLOCK_ROWS * SLOT_BYTES;
		sums_of_quad(FOLD_BLOCKS > 1 ? get_quad(slot, i / BLOCK_ROWS * ROW_BLOCKS + row_block) : load_fetched(slot), all[i]);
	}
	UNROLL
	for (int h = 1; h < FOLDED; h *= 2) {
		UNROLL
		for (int i = 0; i + h < FOLDED; i += 2 * h)
			add_reals(all[i], all[i + h]);
	}
	return quad_of_sums(all[0]);
}

/* All slots put their sums on shared memory; then each thread of each block folds a share of the columns. */
DEVICE void fold_slots(real (*sums)[ELEMENTS], u8 *work, real *partials, int rank, struct position p)
{
	const int row_block = rank % ROW_BLOCKS, share = rank / ROW_BLOCKS;
	sync_block();
	put_sums(work + p.group * SLOT_BYTES, sums, thread_index() % BLOCK_ROW_THREADS);
	if (FOLD_BLOCKS > 1)
		sync_cluster();
	else
		sync_block();
	for (int item = share * THREADS + thread_index(); item < SUMS * SUM_QUADS * BLOCK_ROW_THREADS;
	     item += FOLD_BLOCKS * THREADS) {
		int k = item / (SUM_QUADS * BLOCK_ROW_THREADS), q = item / BLOCK_ROW_THREADS % SUM_QUADS;
		int first = position_of(item % BLOCK_ROW_THREADS, row_block).first;
		int c = column(first, q * REALS / PER_QUAD) + q * REALS % PER_QUAD;
		int repeated = item % 32 >= ROW_THREADS; /* all threads of a narrow row's warp have the warp's sums */
		if (c < COLS && !repeated)
			store_kept(partials + (i64)k * PITCH + c, fold_place(work + item * 16, row_block));
	}
	if (FOLD_BLOCKS > 1)
		sync_cluster(); /* the others may still be reading ours */
}
