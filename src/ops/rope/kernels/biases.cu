/* Backward with the gradients of biases: rule 6 over tokens. Follows rows.cu. A warp walks the tokens of a slot in a strip of
 * the heads that its threads take; the warps of a block walk neighbouring slots, whose sums it folds into one
 * partial sum. SPDX-License-Identifier: MIT */

enum { STRIP_HEADS = 32 / ROW_THREADS };

/* The rows of a slot; its sums are then on the board. All threads of a warp take the same steps. */
DEVICE void walk_slot(const struct rope_arguments *a, const struct rope_side *side, i64 first, i64 end, i64 head, int t)
{
	const int there = head < side->heads;
	struct walk now = walk_to(a, side, first < end ? first : 0, there ? head : 0), ahead = now;
	real weight[HELD], sums[HELD], g[1][HELD];
	int stage = 0;
	if (!LATE)
		load_weights(side, t, weight);
	UNROLL
	for (int i = 0; i < HELD; i++)
		sums[i] = 0;
	UNROLL
	for (int i = 0; i < STAGES - 1; i++) {
		fetch_row(side, &ahead, t, there && first + i < end, i);
		walk_on(a, side, &ahead);
	}
	NO_UNROLL
	for (i64 row = first; row < end; row++) {
		const int in_slot = (int)(row - first);
		fetch_row(side, &ahead, t, there && row + STAGES - 1 < end, (stage + STAGES - 1) % STAGES);
		walk_on(a, side, &ahead);
		FETCH_WAIT(STAGES - 1);
		if (in_slot > 0 && in_slot % CHUNK_ROWS == 0) {
			UNROLL
			for (int i = 0; i < HELD; i++) {
				*board_of(i) = in_slot == CHUNK_ROWS ? sums[i] : *board_of(i) + sums[i];
				sums[i] = 0;
			}
		}
		compute_row(a, side, &now, weight, t, there, stage, g, (real *)0);
		UNROLL
		for (int i = 0; i < HELD; i++)
			sums[i] = sums[i] + g[0][i];
		walk_on(a, side, &now);
		stage = (stage + 1) % STAGES;
	}
	UNROLL
	for (int i = 0; i < HELD; i++)
		*board_of(i) = end - first > CHUNK_ROWS ? *board_of(i) + sums[i] : sums[i];
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, rope_arguments)
{
	const int second = block_index() >= a.sides[0].blocks;
	const struct rope_side side = second ? a.sides[1] : a.sides[0];
	const u32 index = (u32)(block_index() - (second ? a.sides[0].blocks : 0));
	const u32 strips = (side.heads + STRIP_HEADS - 1) / STRIP_HEADS, strip = index % strips, block = index / strips;
	const int lane = thread_index() % 32, warp = thread_index() / 32, t = lane % ROW_THREADS;
	const i64 head = (i64)strip * STRIP_HEADS + lane / ROW_THREADS;
	const i64 first = ((i64)block * (THREADS / 32) + warp) * side.slot_rows;
	const i64 end = first + side.slot_rows < a.tokens ? first + side.slot_rows : a.tokens;

	wait_for_kernels_before();
	let_next_kernel_start();
	walk_slot(&a, &side, first, end, head, t);
	sync_block();
	/* The tree over the slots of the block; one that has no rows is 0. A warp folds some of the numbers. */
	for (int i = warp; i < HELD; i += THREADS / 32) {
		real of_slots[THREADS / 32];
		UNROLL
		for (int k = 0; k < THREADS / 32; k++)
			of_slots[k] = *(board_of(i) - thread_index() + k * 32 + lane);
		const real sum = fold_array(of_slots, THREADS / 32);
		if (side.partials && head < side.heads && has_unit(t, i / UNIT))
			store_one(real,
				  (real *)side.partials + block * side.pitch + head * HEAD_DIM + column_of(t, i / UNIT) + i % UNIT,
				  sum);
	}
}
