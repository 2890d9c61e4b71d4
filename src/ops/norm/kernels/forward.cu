/* Forward of a norm whose row fits the registers of its threads: read once, summed, written once. Follows
 * sums.cu; rows.cu explains the constants; HAS_WEIGHT and HAS_BIAS say which operands there
 * are. A block has BLOCK_ROWS rows in hand (each ROW_WARPS warps), or many narrow ones. The number of rows is
 * no constant. SPDX-License-Identifier: MIT */

/* The norm's input is not x as it lies in memory: the row is made where it is loaded. */
enum {
	IS_MADE = HAS_RESIDUAL || HAS_X_BIAS || GATE_IN || X_ELEMENT != ELEMENT,
	HAS_AFTER = HAS_RESIDUAL_AFTER || GATE_OUT,
	HOLDS_GATE = HOLDS_GATE_OF(GATE_OUT, ELEMENT_BYTES, WARP_SEGMENTS, ACCESS),
	INPUT_ELEMENT = HAS_RESIDUAL ? NEIGHBOUR_ELEMENT : X_ELEMENT
};

/* A row's strips of the residual after the norm, or of the gate. */
struct after {
	quad held[HOLDS_GATE ? QUADS : 1];
};

DEVICE quad after_quad(const struct after *from, const u8 *tray, int j)
{
	return HOLDS_GATE ? from->held[HOLDS_GATE ? j : 0] : HAS_AFTER ? load_fetched(tray + j * TRAY_STEP) : no_quad();
}

/* y with the residual after the norm, or times the gate. */
DEVICE void add_after(real *y, quad after)
{
	real add[PER_QUAD];
	widen_strip(strip_of_quad(after), NEIGHBOUR_ELEMENT, add);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real from = ROUND_EACH ? rounded(y[e], Y_ELEMENT) : y[e];
		y[e] = GATE_OUT ? from * gate_of(add[e]) : from + add[e];
	}
}

/* Weight and bias of a strip, as they are in memory. */
struct affine_weights {
	struct weights weight, bias;
};

DEVICE struct affine_weights load_affine(const struct forward_arguments *a, int c)
{
	struct affine_weights v;
	if (HAS_WEIGHT)
		v.weight = load_weights(a->weight, c);
	if (HAS_BIAS)
		v.bias = load_weights(a->bias, c);
	return v;
}

/* One strip of the result. */
DEVICE struct strip normalized(held v, struct statistics s, struct affine_weights by, quad after)
{
	real x[PER_QUAD], w[PER_QUAD], b[PER_QUAD];
	widen_held(v, x);
	if (HAS_WEIGHT)
		widen_weights(by.weight, w);
	if (HAS_BIAS)
		widen_weights(by.bias, b);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real xhat = xhat_of(x[e], s);
		x[e] = affine(ROUND_EACH ? rounded(xhat, INPUT_ELEMENT) : xhat, WEIGHT_OFFSET ? 1 + w[e] : w[e], b[e]);
	}
	UNROLL
	for (int e = 0; ACTIVATION && e < PER_QUAD; e++)
		x[e] = activated(x[e]);
	if (HAS_AFTER)
		add_after(x, after);
	return narrow_strip(x, Y_ELEMENT);
}

/* What a row is made of. */
struct parts {
	struct strip x[QUADS], residual[QUADS];
};

DEVICE void load_parts(struct parts *from, i64 row, const struct forward_arguments *a, struct position p)
{
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		int c = column(p.first, j);
		if (!HAS_QUAD(p.first, j))
			continue;
		from->x[j] = load_strip_as(a->x + row * a->x_stride, c, X_ELEMENT);
		if (HAS_RESIDUAL || GATE_IN)
			from->residual[j] = load_strip_as(NEIGHBOUR_ROW(a, residual, row), c, NEIGHBOUR_ELEMENT);
	}
}

#if HAS_H
/* h as it is in memory. */
DEVICE struct strip strip_of_h(quad v)
{
	real h[PER_QUAD];
	if (NEIGHBOUR_ELEMENT == ELEMENT)
		return strip_of_quad(v);
	widen(v, h);
	return narrow_strip(h, NEIGHBOUR_ELEMENT);
}
#endif

/* A row of h = (x + x_bias) + residual, or of x times the gate: all loads before the first of its stores. */
DEVICE void make_row(held *v, const struct parts *from, i64 row, const struct forward_arguments *a, struct position p)
{
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		real h[PER_QUAD], add[PER_QUAD];
		v[j] = held_zeros();
		if (!HAS_QUAD(p.first, j))
			continue;
		widen_strip(from->x[j], X_ELEMENT, h);
		if (HAS_X_BIAS) {
			widen_weights(load_weights(NEIGHBOUR(a, x_bias), column(p.first, j)), add);
			UNROLL
			for (int e = 0; e < PER_QUAD; e++)
				h[e] = h[e] + add[e];
		}
		if (HAS_RESIDUAL) {
			widen_strip(from->residual[j], NEIGHBOUR_ELEMENT, add);
			UNROLL
			for (int e = 0; e < PER_QUAD; e++)
				h[e] = NEIGHBOUR_ELEMENT == ELEMENT ? h[e] + add[e] : rounded(h[e] + add[e], NEIGHBOUR_ELEMENT);
		}
		if (GATE_IN) {
			widen_strip(from->residual[j], NEIGHBOUR_ELEMENT, add);
			UNROLL
			for (int e = 0; e < PER_QUAD; e++)
				h[e] = h[e] * gate_of(add[e]);
		}
		v[j] = hold(h);
	}
#if HAS_H
	UNROLL
	for (int j = 0; j < QUADS; j++)
		if (HAS_QUAD(p.first, j))
			store_strip_as(NEIGHBOUR_ROW(a, h, row), strip_of_h(v[j]), column(p.first, j), NEIGHBOUR_ELEMENT);
#endif
}

/* They come through shared memory, on their way while the row is summed, and take no registers; or into registers. */
DEVICE void fetch_after(struct after *to, u8 *tray, i64 row, const struct forward_arguments *a, struct position p)
{
	UNROLL
	for (int j = 0; j < QUADS; j++)
		if (HAS_QUAD(p.first, j))
#if HAS_GATE
			if (HOLDS_GATE)
				to->held[HOLDS_GATE ? j : 0] = quad_of_strip(load_strip_as(NEIGHBOUR_ROW(a, residual, row), column(p.first, j), NEIGHBOUR_ELEMENT));
			else
#endif
				fetch_strip(tray + j * TRAY_STEP, NEIGHBOUR_ROW(a, residual, row), column(p.first, j), NEIGHBOUR_ELEMENT);
}

/* The rows in hand, from the first on; zeros where there is none. */
DEVICE void load_rows(held (*v)[QUADS], struct after *after, u8 *trays, i64 first, const struct forward_arguments *a, struct position p)
{
#if ACCESS == ACCESS_SHIFTED
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++)
		if (first + u * SUB_ROWS < a->rows)
			fetch_shifted(trays + u * TRAYS_BYTES, a->x + (first + u * SUB_ROWS) * a->x_stride, a->x, p);
	fetch_close();
	FETCH_WAIT(0);
	sync_warp();
#endif
	struct parts parts[IS_MADE ? ROWS_AT_ONCE : 1];
	UNROLL
	for (int u = 0; IS_MADE && u < ROWS_AT_ONCE; u++)
		if (first + u * SUB_ROWS < a->rows)
			load_parts(&parts[IS_MADE ? u : 0], first + u * SUB_ROWS, a, p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		const u8 *x = a->x + (first + u * SUB_ROWS) * a->x_stride;
		if (first + u * SUB_ROWS >= a->rows) {
			UNROLL
			for (int j = 0; j < QUADS; j++)
				v[u][j] = held_zeros();
			continue;
		}
		if (IS_MADE)
			make_row(v[u], &parts[IS_MADE ? u : 0], first + u * SUB_ROWS, a, p);
#if HELD_ELEMENT == ELEMENT
		else if (ACCESS == ACCESS_SHIFTED)
			take_quads(v[u], QUADS, trays + u * TRAYS_BYTES, (int)((u64)x & 15));
		else
			load_row(v[u], x, p);
#endif
		if (HAS_AFTER)
			fetch_after(&after[u], trays + u * TRAYS_BYTES, first + u * SUB_ROWS, a, p);
	}
	if (HAS_AFTER)
		fetch_close();
}

/* Quads whose weights are loaded before the first of them is stored: a load does not pass a store, and one at a time
 * each would wait for its weights (1x4096 bf16: 2.23 us, four together 1.89; 1024x8192: 12.6, 10.8). As many as the
 * registers have room for; one where a quad may be outside the row (4096x3584: 17.6 us, four together 18.3), and of an
 * activation, whose intermediate numbers take them: 64 registers a thread, four together 95. */
enum {
	SAME_DTYPE = WEIGHT_ELEMENT == ELEMENT,
	SCARCE = BOUND_THREADS * BLOCKS >= 1024, /* 64 registers a thread: with h, a fourth would spill */
	WARP_A_ROW = ROW_WARPS == 1 && WARP_SEGMENTS > 1,
	TOGETHER = ACTIVATION ? 1 : WARP_A_ROW ? (ACCESS != ACCESS_QUADS || !SAME_DTYPE ? 1 : WARP_SEGMENTS == 2 ? 4 : 2)
		   : ACCESS == ACCESS_QUADS && CAPACITY != COLS ? 1 : SAME_DTYPE ? (HAS_H && SCARCE ? 3 : 4) : 2
};

/* Quad j of a result to memory, or into the tray. */
DEVICE void put_quad(struct strip s, u8 *tray, i64 row, int j, const struct forward_arguments *a, struct position p)
{
#if ACCESS == ACCESS_SHIFTED
	quad v;
	UNROLL
	for (int k = 0; k < 4; k++)
		v.w[k] = s.w[k];
	*(quad *)(tray + j * TRAY_STEP) = v;
#else
	store_strip_as(a->y + row * a->y_stride, s, column(p.first, j), Y_ELEMENT);
#endif
}

DEVICE void write_row(held *v, const struct after *after, u8 *tray, i64 row, struct statistics s, const struct forward_arguments *a, struct position p)
{
	UNROLL
	for (int start = 0; start < QUADS; start += TOGETHER) {
		if (TOGETHER == 1) { /* a branch less, and fewer registers */
			if (HAS_QUAD(p.first, start))
				put_quad(normalized(v[start], s, load_affine(a, column(p.first, start)), after_quad(after, tray, start)), tray, row, start, a, p);
			continue;
		}
		struct strip y[TOGETHER];
		UNROLL
		for (int j = start; j < start + TOGETHER && j < QUADS; j++)
			if (HAS_QUAD(p.first, j))
				y[j - start] = normalized(v[j], s, load_affine(a, column(p.first, j)), after_quad(after, tray, j));
		UNROLL
		for (int j = start; j < start + TOGETHER && j < QUADS; j++)
			if (HAS_QUAD(p.first, j))
				put_quad(y[j - start], tray, row, j, a, p);
	}
}

/* Several rows share what their weights cost: a load, and a widening, for all. Row u is `first` and u SUB_ROWS more. */
DEVICE void write_rows(held (*v)[QUADS], const struct after *after, u8 *trays, i64 first, const struct statistics *s, const struct forward_arguments *a,
		       struct position p)
{
	UNROLL
	for (int start = 0; start < QUADS; start += TOGETHER) {
		struct affine_weights by[TOGETHER];
		UNROLL
		for (int j = start; j < start + TOGETHER && j < QUADS; j++)
			if (HAS_QUAD(p.first, j))
				by[j - start] = load_affine(a, column(p.first, j));
		UNROLL
		for (int j = start; j < start + TOGETHER && j < QUADS; j++) {
			UNROLL
			for (int u = 0; u < ROWS_AT_ONCE; u++) {
				u8 *tray = trays + u * TRAYS_BYTES;
				i64 row = first + u * SUB_ROWS;
				if (row < a->rows && HAS_QUAD(p.first, j))
					put_quad(normalized(v[u][j], s[u], by[j - start], after_quad(&after[u], tray, j)), tray, row, j, a, p);
			}
		}
	}
}

DEVICE void store_statistics(const struct forward_arguments *a, i64 row, struct statistics s)
{
	if (a->mean)
		store_real(a->mean, STATISTIC_OF(row), s.mean);
	if (a->rstd)
		store_real(a->rstd, STATISTIC_OF(row), s.rstd);
	if (a->mean_lo)
		store_real(a->mean_lo, STATISTIC_OF(row), s.mean_lo);
}

/* Statistics and y of the rows in hand. */
DEVICE void finish_rows(held (*v)[QUADS], const struct after *after, u8 *trays, i64 first, struct board *board, const struct forward_arguments *a,
			struct position p)
{
	struct statistics s[ROWS_AT_ONCE], own[OWN_ROWS];
	row_statistics(v, s, own, (real)a->eps, board, p);
	if (ACCESS == ACCESS_SHIFTED)
		sync_warp(); /* all have taken theirs from the trays */
	if (HAS_AFTER)
		FETCH_WAIT(0);
	UNROLL
	for (int k = 0; k < OWN_ROWS; k++) {
		i64 row = first + (own_row(p.lane) + k) * SUB_ROWS;
		if (p.unit == 0 && p.lane < ROWS_AT_ONCE && row < a->rows)
			store_statistics(a, row, own[k]);
	}
	if (ROWS_AT_ONCE > 1)
		write_rows(v, after, trays, first, s, a, p);
	else if (first < a->rows)
		write_row(v[0], after, trays, first, s[0], a, p);
}

#if ROW_GROUPS > 1
DEVICE void select_group(struct forward_arguments *a)
{
	const int group = GROUP_OF_BLOCK(ROW_BLOCKS);
	TO_GROUP(a->x, group, BYTES_OF(X_ELEMENT));
	TO_GROUP(a->y, group, BYTES_OF(Y_ELEMENT));
	TO_GROUP(a->weight, group, WEIGHT_BYTES);
	TO_GROUP(a->bias, group, WEIGHT_BYTES);
	STATISTICS_TO_GROUP(a->mean, group);
	STATISTICS_TO_GROUP(a->rstd, group);
	STATISTICS_TO_GROUP(a->mean_lo, group);
#if HAS_NEIGHBOURS
	TO_GROUP(a->x_bias, group, WEIGHT_BYTES);
	TO_GROUP(a->residual, group, BYTES_OF(NEIGHBOUR_ELEMENT));
	TO_GROUP(a->h, group, BYTES_OF(NEIGHBOUR_ELEMENT));
#endif
}
#endif

GROUP_KERNEL(KERNEL_NAME, BOUND_THREADS, BLOCKS, forward_arguments)
{
	const int row_block = ROW_BLOCKS > 1 ? cluster_rank() : 0;
	const struct position p = position_of(thread_index(), row_block);
	const int sub = thread_index() % 32 / ROW_THREADS;
	const i64 first = (BLOCK_IN_GROUP(ROW_BLOCKS) / ROW_BLOCKS * BLOCK_ROWS + p.group) * ROWS_AT_ONCE * SUB_ROWS + sub;
	u8 *trays = tray_of(shared_memory() + BOARDS_BYTES, thread_index()); /* of ACCESS_SHIFTED, or of the residual after */
	held v[ROWS_AT_ONCE][QUADS];
	struct after after[ROWS_AT_ONCE];

	if (first - sub >= a.rows)
		return;
	struct board board = make_board(shared_memory() + p.group * BOARD_BYTES);
	wait_for_kernels_before();
	let_next_kernel_start();
	load_rows(v, after, trays, first, &a, p);
	finish_rows(v, after, trays, first, &board, &a, p);
	if (ACCESS != ACCESS_SHIFTED)
		return;
	sync_warp();
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		i64 row = first + u * SUB_ROWS;
		if (row < a.rows)
			store_shifted(a.y + row * a.y_stride, trays + u * TRAYS_BYTES, p);
	}
}
