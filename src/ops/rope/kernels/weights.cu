/* Backward of heads with a norm and the gradients of its weights: rule 6 over the heads of all tokens. Follows rows.cu. The
 * threads of a head walk the rows of a chunk; `walkers` such groups take the chunks of a slot by turns, and the first of them adds their
 * sums in order. A block folds the sums of its slots, and writes one partial sum. SPDX-License-Identifier: MIT */

/* The sums of the rows first, first + 1, … up to end, at most `steps`: all threads of a warp take as many steps. */
DEVICE void walk_chunk(const struct rope_arguments *a, const struct rope_side *side, const real *weight, i64 first, i64 end,
		       int steps, int t, real *sums)
{
	const i64 token = first < end ? first / side->heads : 0, head = first < end ? first - token * side->heads : 0;
	struct walk now = walk_to(a, side, token, head), ahead = now;
	real g[1][HELD];
	int stage = 0;
	UNROLL
	for (int i = 0; i < HELD; i++)
		sums[i] = 0;
	UNROLL
	for (int i = 0; i < STAGES - 1; i++) {
		fetch_row(side, &ahead, t, first + i < end, i);
		walk_heads(a, side, &ahead);
	}
	NO_UNROLL
	for (int i = 0; i < steps; i++) {
		fetch_row(side, &ahead, t, first + i + STAGES - 1 < end && i + STAGES - 1 < steps,
			  (stage + STAGES - 1) % STAGES);
		walk_heads(a, side, &ahead);
		FETCH_WAIT(STAGES - 1);
		struct turn by;
		load_turn(a, now.batch, now.seq, t, first + i < end, &by);
		compute_row(a, side, &now, &by, weight, t, first + i < end, stage, g, sums);
		walk_heads(a, side, &now);
		stage = (stage + 1) % STAGES;
	}
	FETCH_WAIT(0);
}

/* A chunk's sums of all walkers, added to those of their slot, on the board of the first one. */
DEVICE void add_chunks(const real *sums, int walkers, int walker, int is_first)
{
	if (walker > 0) {
		UNROLL
		for (int i = 0; i < HELD; i++)
			*board_of(i) = sums[i];
	}
	sync_warp();
	if (walker == 0) {
		UNROLL
		for (int i = 0; i < HELD; i++) {
			real sum = is_first ? sums[i] : *board_of(i) + sums[i];
			NO_UNROLL
			for (int other = 1; other < walkers; other++)
				sum = sum + board_of(i)[other * ROW_THREADS];
			*board_of(i) = sum;
		}
	}
	sync_warp();
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, rope_arguments)
{
	const int second = block_index() >= a.sides[0].blocks;
	const struct rope_side side = second ? a.sides[1] : a.sides[0];
	const i64 block = block_index() - (second ? a.sides[0].blocks : 0), rows = a.tokens * side.heads;
	const int t = thread_index() % ROW_THREADS, group = thread_index() / ROW_THREADS, walkers = (int)side.walkers;
	const int slots = GROUPS / walkers, walker = group % walkers;
	const i64 slot = block * slots + group / walkers, from = slot * side.slot_rows;
	const i64 end = from + side.slot_rows < rows ? from + side.slot_rows : rows;
	const int steps = side.slot_rows < CHUNK_ROWS ? (int)side.slot_rows : CHUNK_ROWS;
	real weight[HELD], sums[HELD];

	wait_for_kernels_before();
	let_next_kernel_start();
	if (!LATE)
		load_weights(&side, t, weight);
	NO_UNROLL
	for (i64 first = 0; first < side.slot_rows; first += walkers * CHUNK_ROWS) {
		const i64 chunk = from + first + walker * CHUNK_ROWS;
		walk_chunk(&a, &side, weight, chunk, chunk + CHUNK_ROWS < end ? chunk + CHUNK_ROWS : end, steps, t, sums);
		add_chunks(sums, walkers, walker, first == 0);
	}
	/* The tree over the slots of the block. */
	const int apart = walkers * ROW_THREADS;
	for (int h = 1; h < slots; h *= 2) {
		const int pairs = slots / (2 * h);
		sync_block();
		for (int i = thread_index(); i < pairs * ROW_THREADS * HELD; i += THREADS) {
			const int pair = i / ROW_THREADS % pairs, number = i / ROW_THREADS / pairs;
			real *to = board_of(number) - thread_index() + i % ROW_THREADS + 2 * h * pair * apart;
			*to = *to + to[h * apart];
		}
	}
	sync_block();
	for (int i = thread_index(); side.partials && i < ROW_THREADS * HELD; i += THREADS) {
		const int of = i % ROW_THREADS, number = i / ROW_THREADS, j = number / UNIT;
		if (has_unit(of, j))
			store_one(real, (real *)side.partials + block * side.pitch + column_of(of, j) + number % UNIT,
				  *(board_of(number) - thread_index() + of));
	}
}
