/* Rotary position embedding without column sums: forward, and backward where no gradient of a bias or weight is wanted.
 * Follows heads.cu. Blocks of q come first, then those of k. A thread has its part of HEADS heads of a token: it loads all of them
 * before it computes the first, and cos and sin once for all. SPDX-License-Identifier: MIT */

KERNEL(KERNEL_NAME, THREADS, BLOCKS, rope_arguments)
{
	const i64 left = a.tokens - a.first;
	const u32 count = left < a.launch_tokens ? (u32)left : a.launch_tokens;
	const u32 first_blocks = (count * a.sides[0].units + THREADS - 1) / THREADS;
	const int second = block_index() >= first_blocks;
	const struct rope_side side = second ? a.sides[1] : a.sides[0];
	const u32 unit = ((u32)block_index() - (second ? first_blocks : 0)) * THREADS + thread_index();
	const u32 in_launch = divide(unit, side.magic, side.shift), in_token = unit - in_launch * side.units;
	const int t = (int)(in_token % ROW_THREADS), group = (int)(in_token / ROW_THREADS), is_token = in_launch < count;
	i64 batch, seq;
	struct turn by;
	quad x[HEADS][UNITS], dy[HEADS][UNITS];
	real v[HEADS][HELD], g[HEADS][HELD], weight[HELD];
	int there[HEADS];

	wait_for_kernels_before();
	let_next_kernel_start();
	place_of_token(&a, a.first + in_launch, &batch, &seq);
	const i64 x_at = bytes_to(side.x_strides, batch, seq, group), dy_at = bytes_to(side.dy_strides, batch, seq, group),
		  y_at = bytes_to(side.y_strides, batch, seq, group);
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		const i64 apart = (i64)h * side.groups;
		there[h] = is_token && group + apart < side.heads;
		if (FORWARD || NORM)
			load_head(x[h], side.x + x_at + apart * side.x_strides[ROPE_HEAD], t, there[h]);
		if (!FORWARD)
			load_head(dy[h], side.dy + dy_at + apart * side.dy_strides[ROPE_HEAD], t, there[h]);
	}
	load_turn(&a, batch, seq, t, is_token, &by);
	load_weights(&side, t, weight);
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		if (FORWARD || NORM) {
			widen_head(x[h], v[h]);
			add_bias(&side, there[h] ? group + (i64)h * side.groups : 0, t, v[h]);
		}
		if (!FORWARD)
			widen_head(dy[h], g[h]);
	}
	if (FORWARD)
		compute_heads(v, &by, weight, (real)a.eps, t);
	else
		compute_gradients(g, v, &by, weight, (real)a.eps, t, (real *)0, there);
	UNROLL
	for (int h = 0; h < HEADS; h++)
		store_head(side.y + y_at + (i64)h * side.groups * side.y_strides[ROPE_HEAD], FORWARD ? v[h] : g[h], t, there[h]);
}
