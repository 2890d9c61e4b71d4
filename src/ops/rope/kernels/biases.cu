/* Backward with the gradients of biases: rule 6 over tokens. Follows rows.cu. A warp walks the tokens of a slot, or of two
 * that are short, in a strip of the heads that its threads take; the warps of a block walk neighbouring slots, whose sums it folds
 * into one partial sum. SPDX-License-Identifier: MIT */

enum { STRIP_HEADS = 32 / ROW_THREADS };

/* cos and sin come from the L2: those of the next token are loaded before this one is computed; beside a norm there are no
 * registers for that. */
enum { TURN_AHEAD = !NORM };

/* Of the token after that of w, or, without a branch, once more of that one where none is left. */
DEVICE void load_next_turn(const struct rope_arguments *a, const struct walk *w, int t, int is_left, struct packed_turn *by)
{
	const int wraps = w->seq + 1 == a->seq;
	const i64 batch = is_left && wraps ? w->batch + 1 : w->batch, seq = !is_left ? w->seq : wraps ? 0 : w->seq + 1;
	load_packed_turn(a, batch, seq, t, 1, by);
}

/* `rows` rows; the sums of their chunks, or of two slots, are then on the board, added in order. All threads of a warp take the same
 * steps. */
DEVICE void walk_slot(const struct rope_arguments *a, const struct rope_side *side, i64 first, int rows, i64 head, int t)
{
	const int there = head < side->heads;
	struct walk now = walk_to(a, side, rows > 0 ? first : 0, there ? head : 0), ahead = now;
	real weight[HELD], sums[HELD], g[1][HELD];
	struct packed_turn next;
	struct turn by;
	u32 stage = 0, in_chunk = 0;
	if (!LATE)
		load_weights(side, t, weight);
	UNROLL
	for (int i = 0; i < HELD; i++)
		sums[i] = 0;
	UNROLL
	for (int i = 0; i < STAGES - 1; i++) {
		fetch_row(side, &ahead, t, there && i < rows, i);
		walk_on(a, side, &ahead);
	}
	if (TURN_AHEAD)
		load_packed_turn(a, now.batch, now.seq, t, rows > 0, &next);
	NO_UNROLL
	for (int row = 0; row < rows; row++) {
		fetch_row(side, &ahead, t, there && row + STAGES - 1 < rows, (stage + STAGES - 1) % STAGES);
		walk_on(a, side, &ahead);
		FETCH_WAIT(STAGES - 1);
		if (in_chunk == side->chunk_rows) {
			UNROLL
			for (int i = 0; i < HELD; i++) {
				*board_of(i) = row == (int)side->chunk_rows ? sums[i] : *board_of(i) + sums[i];
				sums[i] = 0;
			}
			in_chunk = 0;
		}
		in_chunk++;
		if (!TURN_AHEAD)
			load_packed_turn(a, now.batch, now.seq, t, there, &next);
		unpack_turn(&next, &by);
		if (TURN_AHEAD)
			load_next_turn(a, &now, t, row + 1 < rows, &next);
		compute_row(a, side, &now, &by, weight, t, there, stage, g, (real *)0);
		UNROLL
		for (int i = 0; i < HELD; i++)
			sums[i] = sums[i] + g[0][i];
		walk_on(a, side, &now);
		stage = (stage + 1) % STAGES;
	}
	UNROLL
	for (int i = 0; i < HELD; i++)
		*board_of(i) = rows > (int)side->chunk_rows ? *board_of(i) + sums[i] : sums[i];
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
	const i64 left = a.tokens - first, rows = left < side.slot_rows ? left : side.slot_rows;

	wait_for_kernels_before();
	let_next_kernel_start();
	walk_slot(&a, &side, first, rows > 0 ? (int)rows : 0, head, t);
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
