/* What weights.cu and biases.cu share: the rows of column sums, one head each, from memory to the gradient of its input. Follows
 * norms.cu. SPDX-License-Identifier: MIT */

/* Shared memory: the exchange, then the board, [number][thread], then the heads that are on their way, where they come in units of
 * 16 or 8 bytes and are not many. */
enum {
	EXCHANGES = NORM && !ROPE_BY_SHUFFLES(HEAD_DIM, ROTARY_DIM, UNIT, ROW_THREADS),
	BOARD_AT = EXCHANGES ? EXCHANGE_BYTES(HEAD_DIM, UNIT, GROUPS, 1, (int)sizeof(real)) : 0,
	FETCH_AT = BOARD_AT + HELD * THREADS * (int)sizeof(real),
	TENSORS = NORM ? 2 : 1,
	FETCHES = ROPE_FETCHES(UNIT, UNITS),
	STAGES = ROPE_STAGES(HEAD_DIM)
};

DEVICE real *board_of(int number)
{
	return (real *)(shared_memory() + BOARD_AT) + number * THREADS + thread_index();
}

DEVICE u8 *fetched_at(int stage, int tensor, int j)
{
	return shared_memory() + FETCH_AT + (((stage * TENSORS + tensor) * UNITS + j) * THREADS + thread_index()) * 16;
}

DEVICE void fetch_head(const u8 *head, int t, int stage, int tensor)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		if (!has_unit(t, j))
			continue;
		if (UNIT * ELEMENT_BYTES == 16)
			fetch(fetched_at(stage, tensor, j), head + column_of(t, j) * ELEMENT_BYTES);
		else
			fetch_8(fetched_at(stage, tensor, j), head + column_of(t, j) * ELEMENT_BYTES);
	}
}

/* A head that was fetched, or that is loaded now. */
DEVICE void take_head(quad *v, const u8 *head, int t, int there, int stage, int tensor)
{
	if (!FETCHES) {
		load_head(v, head, t, there);
		return;
	}
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		v[j] = no_quad();
		if (!there || !has_unit(t, j))
			continue;
		if (UNIT * ELEMENT_BYTES == 16) {
			v[j] = load_fetched(fetched_at(stage, tensor, j));
		} else {
			const u64 bits = load_one(u64, fetched_at(stage, tensor, j));
			v[j].w[0] = (u32)bits;
			v[j].w[1] = (u32)(bits >> 32);
		}
	}
}

/* A head of a token, and where it is in the tensors. */
struct walk {
	i64 batch, seq, head, x, dy, y;
};

DEVICE struct walk walk_to(const struct rope_arguments *a, const struct rope_side *side, i64 token, i64 head)
{
	struct walk w;
	place_of_token(a, token, &w.batch, &w.seq);
	w.head = head;
	w.x = bytes_to(side->x_strides, w.batch, w.seq, head);
	w.dy = bytes_to(side->dy_strides, w.batch, w.seq, head);
	w.y = bytes_to(side->y_strides, w.batch, w.seq, head);
	return w;
}

/* To the same head of the next token. */
DEVICE void walk_on(const struct rope_arguments *a, const struct rope_side *side, struct walk *w)
{
	if (w->seq + 1 < a->seq) {
		w->seq++;
		w->x += side->x_strides[ROPE_SEQ];
		w->dy += side->dy_strides[ROPE_SEQ];
		w->y += side->y_strides[ROPE_SEQ];
		return;
	}
	w->batch++;
	w->seq = 0;
	w->x = bytes_to(side->x_strides, w->batch, 0, w->head);
	w->dy = bytes_to(side->dy_strides, w->batch, 0, w->head);
	w->y = bytes_to(side->y_strides, w->batch, 0, w->head);
}

/* To the next head of the token, or the first of the next. */
DEVICE void walk_heads(const struct rope_arguments *a, const struct rope_side *side, struct walk *w)
{
	if (w->head + 1 < side->heads) {
		w->head++;
		w->x += side->x_strides[ROPE_HEAD];
		w->dy += side->dy_strides[ROPE_HEAD];
		w->y += side->y_strides[ROPE_HEAD];
		return;
	}
	w->head = 0;
	w->x = bytes_to(side->x_strides, w->batch, w->seq, 0);
	w->dy = bytes_to(side->dy_strides, w->batch, w->seq, 0);
	w->y = bytes_to(side->y_strides, w->batch, w->seq, 0);
	walk_on(a, side, w);
}

/* Starts the fetch of the heads at w; a group of fetches for each row, also where there is none. */
DEVICE void fetch_row(const struct rope_side *side, const struct walk *w, int t, int there, int stage)
{
	if (FETCHES && there) {
		fetch_head(side->dy + w->dy, t, stage, 0);
		if (NORM)
			fetch_head(side->x + w->x, t, stage, 1);
	}
	fetch_close();
}

DEVICE void take_x(const struct rope_side *side, const struct walk *w, int t, int there, int stage, real *x)
{
	quad raw[UNITS];
	take_head(raw, side->x + w->x, t, there, stage, 1);
	widen_head(raw, x);
	add_bias(side, w->head, t, x);
}

DEVICE void take_gradient(const struct rope_side *side, const struct walk *w, int t, int there, int stage, real *g)
{
	quad raw[UNITS];
	take_head(raw, side->dy + w->dy, t, there, stage, 0);
	widen_head(raw, g);
}

/* The gradient of a row that is there or not, in g; sums gets the terms of a weight's. */
DEVICE void compute_row(const struct rope_arguments *a, const struct rope_side *side, const struct walk *w, const struct turn *by,
			const real *weight, int t, int there, int stage, real (*g)[HELD], real *sums)
{
	real x[1][HELD];
#if NORM == 2
	struct statistics s[1];
	take_x(side, w, t, there, stage, x[0]);
	compute_turned(x, by, s, (real)a->eps, t);
	take_gradient(side, w, t, there, stage, g[0]);
	norm_backward(g, x, s, t);
	turn_back(g[0], by);
#else
	take_gradient(side, w, t, there, stage, g[0]);
	turn_back(g[0], by);
	if (NORM) {
		if (LATE)
			sync_warp();
		take_x(side, w, t, there, stage, x[0]);
		compute_norm_gradients(side, g, x, weight, (real)a->eps, t, sums, &there);
	}
#endif
	store_head(side->y + w->y, g[0], t, there && side->y);
}
