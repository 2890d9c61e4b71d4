/* Rotary position embedding without column sums: forward, and backward where no gradient of a bias or weight is wanted.
 * Follows norms.cu. Blocks of q come first, then those of k. A thread has its part of HEADS heads of a token: it loads all of them
 * before it computes the first, and cos and sin once for all. SPDX-License-Identifier: MIT */

/* Where a thread's heads are: they are `apart` heads from each other. */
struct place {
	i64 batch, seq;
	int group, t;
	i64 apart;
	int there[HEADS];
};

DEVICE void load_heads(const u8 *from, const long long *strides, const struct place *p, quad (*v)[UNITS])
{
	const u8 *at = from + bytes_to(strides, p->batch, p->seq, p->group);
	UNROLL
	for (int h = 0; h < HEADS; h++)
		load_head(v[h], at + h * p->apart * strides[ROPE_HEAD], p->t, p->there[h]);
}

/* What the norm or the turn takes: with the bias. */
DEVICE void widen_x(const struct rope_side *side, const struct place *p, const quad *raw, int h, real *x)
{
	widen_head(raw, x);
	add_bias(side, p->there[h] ? p->group + h * p->apart : 0, p->t, x);
}

/* Heads without a norm, one by one. */
DEVICE void turn_heads(const struct rope_side *side, const struct place *p, const struct turn *by, quad (*raw)[UNITS], u8 *y)
{
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		real x[HELD];
		if (FORWARD) {
			widen_x(side, p, raw[h], h, x);
			turn_head(x, by);
		} else {
			widen_head(raw[h], x);
			turn_back(x, by);
		}
		store_head(y + h * p->apart * side->y_strides[ROPE_HEAD], x, p->t, p->there[h]);
	}
}

/* The gradient of y becomes that of x. */
DEVICE void norm_heads_backward(const struct rope_arguments *a, const struct rope_side *side, const struct place *p,
				const struct turn *by, const real *weight, quad (*raw_x)[UNITS], quad (*raw_dy)[UNITS], real (*g)[HELD])
{
	real x[HEADS][HELD];
#if NORM == 2
	struct statistics s[HEADS];
	UNROLL
	for (int h = 0; h < HEADS; h++)
		widen_x(side, p, raw_x[h], h, x[h]);
	compute_turned(x, by, s, (real)a->eps, p->t);
	if (LATE)
		load_heads(side->dy, side->dy_strides, p, raw_dy);
	UNROLL
	for (int h = 0; h < HEADS; h++)
		widen_head(raw_dy[h], g[h]);
	norm_backward(g, x, s, p->t);
	UNROLL
	for (int h = 0; h < HEADS; h++)
		turn_back(g[h], by);
#else
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		widen_head(raw_dy[h], g[h]);
		turn_back(g[h], by);
	}
	if (LATE) {
		sync_warp();
		load_heads(side->x, side->x_strides, p, raw_x);
	}
	UNROLL
	for (int h = 0; h < HEADS; h++)
		widen_x(side, p, raw_x[h], h, x[h]);
	compute_norm_gradients(side, g, x, weight, (real)a->eps, p->t, (real *)0, p->there);
#endif
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, rope_arguments)
{
	const i64 left = a.tokens - a.first;
	const u32 count = left < a.launch_tokens ? (u32)left : a.launch_tokens;
	const u32 first_blocks = (count * a.sides[0].units + THREADS - 1) / THREADS;
	const int second = block_index() >= first_blocks;
	const struct rope_side side = second ? a.sides[1] : a.sides[0];
	const u32 unit = ((u32)block_index() - (second ? first_blocks : 0)) * THREADS + thread_index();
	const u32 in_launch = divide(unit, side.magic, side.shift), in_token = unit - in_launch * side.units;
	struct place p;
	struct turn by;
	quad x[HEADS][UNITS], dy[HEADS][UNITS];
	real v[HEADS][HELD], weight[HELD];

	wait_for_kernels_before();
	let_next_kernel_start();
	place_of_token(&a, a.first + in_launch, &p.batch, &p.seq);
	p.t = (int)(in_token % ROW_THREADS);
	p.group = (int)(in_token / ROW_THREADS);
	p.apart = side.groups;
	UNROLL
	for (int h = 0; h < HEADS; h++)
		p.there[h] = in_launch < count && p.group + h * side.groups < side.heads;
	u8 *const y = side.y + bytes_to(side.y_strides, p.batch, p.seq, p.group);
	if (FORWARD || NORM == 2 || (NORM && !LATE))
		load_heads(side.x, side.x_strides, &p, x);
	if (!FORWARD && !(NORM == 2 && LATE))
		load_heads(side.dy, side.dy_strides, &p, dy);
	load_turn(&a, p.batch, p.seq, p.t, in_launch < count, &by);
	if (!LATE)
		load_weights(&side, p.t, weight);
	if (!NORM) {
		turn_heads(&side, &p, &by, FORWARD ? x : dy, y);
		return;
	}
	if (FORWARD) {
		UNROLL
		for (int h = 0; h < HEADS; h++)
			widen_x(&side, &p, x[h], h, v[h]);
		compute_heads(&side, v, &by, weight, (real)a.eps, p.t);
	} else {
		norm_heads_backward(&a, &side, &p, &by, weight, x, dy, v);
	}
	UNROLL
	for (int h = 0; h < HEADS; h++)
		store_head(y + h * p.apart * side.y_strides[ROPE_HEAD], v[h], p.t, p.there[h]);
}
