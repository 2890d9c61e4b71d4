/* The norms of rows that no registers hold, and of what backward.cu has no room for. Follows sums.cu;
 * rows.cu explains most constants (WARP_SEGMENTS is 1, ACCESS is not ACCESS_SHIFTED, STAGED_UNITS over 0). Further ones:
 *   KIND            KIND_STAGED_… (layout.h)
 *   UNIT_SEGMENTS   neighbouring segments that are summed up before they go on the board: a power of two up to 32
 *   TILES           segments that a warp has in shared memory at once
 * All of x and dy comes through shared memory, by asynchronous copies of which every thread reads its own alone.
 * SPDX-License-Identifier: MIT */

/* Of ROW_NUMBERS, which are whole quads. */
enum { MEAN, RSTD, SHIFT, MEAN_GX, MEAN_G };

#if KIND == KIND_STAGED_FORWARD
#define HAS_DX 1 /* the result */
#define HAS_DY 0
#define HAS_DH 0
#define HAS_DRESIDUAL 0
#define HAS_DX_BIAS 0
#define HAS_DGATE 0
#define HAS_DWEIGHT 0
#define HAS_DBIAS 0
#endif
enum {
	NEEDS_DX = HAS_DX || HAS_DRESIDUAL || HAS_DX_BIAS || HAS_DGATE,
	RESULT_ELEMENT = KIND == KIND_STAGED_FORWARD ? Y_ELEMENT : DX_ELEMENT
};

/* The numbers of x as the norm takes it, of a strip that was fetched: with bias and residual, or times the gate. */
DEVICE void make_input(real *x, quad fetched, quad second, struct weights bias)
{
	real add[PER_QUAD];
	widen_strip(strip_of_quad(fetched), X_ELEMENT, x);
	if (HAS_X_BIAS) {
		widen_weights(bias, add);
		UNROLL
		for (int e = 0; e < PER_QUAD; e++)
			x[e] = x[e] + add[e];
	}
	if (HAS_RESIDUAL) {
		widen_strip(strip_of_quad(second), NEIGHBOUR_ELEMENT, add);
		UNROLL
		for (int e = 0; e < PER_QUAD; e++)
			x[e] = rounded(x[e] + add[e], NEIGHBOUR_ELEMENT);
	}
	if (GATE_IN) {
		widen_gate(second, add);
		UNROLL
		for (int e = 0; e < PER_QUAD; e++)
			x[e] = x[e] * gate_of(add[e]);
	}
}

/* 1 + weight for weight. */
DEVICE void weights_of(real *w, struct weights v)
{
	widen_weights(v, w);
	UNROLL
	for (int e = 0; WEIGHT_OFFSET && e < PER_QUAD; e++)
		w[e] = 1 + w[e];
}

enum {
	GROUP_STRIPS = (COLS + WARP_ELEMENTS - 1) / WARP_ELEMENTS, /* of columns, a quad a thread */
	STRIPS = ROW_GROUPS * GROUP_STRIPS
};

/* The strip of columns of a warp of KIND_STAGED_COLUMNS: what KIND_STAGED_ROWS read last is the likeliest in the L2. */
DEVICE int strip_of_warp(i64 warp)
{
	return STRIPS - 1 - (int)(warp % STRIPS);
}

/* The group of a block or, where warps have strips, of a warp. */
DEVICE int staged_group(void)
{
	return KIND == KIND_STAGED_COLUMNS ? strip_of_warp(block_index() * WALK_WARPS + thread_index() / 32) / GROUP_STRIPS
					   : GROUP_OF_BLOCK(ROW_BLOCKS);
}

#if ROW_GROUPS > 1
DEVICE void select_group(struct staged_arguments *a)
{
	const int group = staged_group();
	TO_GROUP(a->x, group, BYTES_OF(X_ELEMENT));
	TO_GROUP(a->dy, group, BYTES_OF(Y_ELEMENT));
	TO_GROUP(a->y, group, BYTES_OF(RESULT_ELEMENT));
	TO_GROUP(a->weight, group, WEIGHT_BYTES);
	TO_GROUP(a->bias, group, WEIGHT_BYTES);
	STATISTICS_TO_GROUP(a->mean, group);
	STATISTICS_TO_GROUP(a->rstd, group);
	STATISTICS_TO_GROUP(a->mean_lo, group);
	a->numbers = (real *)a->numbers + group * ROW_NUMBERS;
	a->partials = (real *)a->partials + group * GROUP_PITCH;
#if HAS_NEIGHBOURS
	TO_GROUP(a->x_bias, group, WEIGHT_BYTES);
	TO_GROUP(a->residual, group, BYTES_OF(NEIGHBOUR_ELEMENT));
	TO_GROUP(a->h, group, BYTES_OF(NEIGHBOUR_ELEMENT));
#endif
}
#endif

#if KIND != KIND_STAGED_COLUMNS

enum {
	FORWARD = KIND == KIND_STAGED_FORWARD,
	MADE_OF_TWO = HAS_RESIDUAL || GATE_IN, /* the norm's input */
	TENSORS = FORWARD ? 1 + MADE_OF_TWO : 2 + HAS_GATE,
	SECOND = TENSORS > 1, /* the tile of the residual, of dy, or of forward's gate */
	SECOND_ELEMENT = FORWARD ? NEIGHBOUR_ELEMENT : Y_ELEMENT,
	GATE = FORWARD ? SECOND : TENSORS - 1, /* the gate's tile */
	SEGMENTS = (COLS + SEGMENT - 1) / SEGMENT,
	TEAM = ROW_WARPS * ROW_BLOCKS,
	MOST_TURNS = (UNITS + TEAM - 1) / TEAM * UNIT_SEGMENTS,
	AHEAD = TILES < 3 ? TILES : 3, /* segments that a warp has on the way, in tiles of their own */
	KEPT = TILES - AHEAD,
	TILE_BYTES = TILE_BYTES_OF(QUADS, 1),
	BATCH = 4 /* quads of which all is loaded before the first is used */
	/* shared memory: boards, then [warp][tile][x, dy][quad][lane] */
};

/* ---- turns: the segments of a row that are a warp's, which it walks to and fro ---- */

struct walk {
	const u8 *x, *dy, *gate; /* the row; dy: the residual or the gate in forward */
	u8 *tiles;        /* this thread's part of the first */
	struct board board;
	int lane, group;
	int unit;  /* its first; TEAM further on is the next */
	int turns; /* segments of all its units */
};

/* How a pass finds a tensor: not at all, for the first time, or as the pass before left it. */
enum reading { NOT, FIRST, AGAIN };

/* A pass back starts with what the pass forth has read last, which is still in its tiles; so does the next forth. */
struct pass {
	int back;
	enum reading x, dy;
};

DEVICE struct pass pass_of(int number, enum reading dy)
{
	struct pass pass;
	pass.back = number % 2;
	pass.x = number == 0 ? FIRST : AGAIN;
	pass.dy = FORWARD && MADE_OF_TWO ? pass.x : dy;
	return pass;
}

/* Neighbouring units are of different blocks, which have the same to do then. */
DEVICE struct walk walk_of(struct position p, int row_block)
{
	const int warp = thread_index() / 32;
	struct walk w;
	w.x = w.dy = 0;
	w.tiles = shared_memory() + BOARDS_BYTES + warp * TILES * TENSORS * TILE_BYTES + p.lane * 16;
	w.lane = p.lane;
	w.group = p.group;
	w.unit = warp % ROW_WARPS * ROW_BLOCKS + row_block;
	const int units = w.unit < UNITS ? (UNITS - 1 - w.unit) / TEAM + 1 : 0;
	const int has_last = units > 0 && (UNITS - 1 - w.unit) % TEAM == 0;
	w.turns = units * UNIT_SEGMENTS - (has_last ? UNITS * UNIT_SEGMENTS - SEGMENTS : 0);
	return w;
}

DEVICE int turn_at(const struct walk *w, struct pass pass, int step)
{
	return pass.back ? w->turns - 1 - step : step;
}

DEVICE int unit_of(const struct walk *w, int turn)
{
	return w->unit + turn / UNIT_SEGMENTS * TEAM;
}

/* Column of this thread's first quad. */
DEVICE int first_of(const struct walk *w, int turn)
{
	return (unit_of(w, turn) * UNIT_SEGMENTS + turn % UNIT_SEGMENTS) * SEGMENT + w->lane * PER_QUAD;
}

/* The first turns stay where they are from the first pass on, the others take turns in AHEAD tiles. */
DEVICE u8 *tile_of(const struct walk *w, int turn, int tensor)
{
	int tile = turn < KEPT || MOST_TURNS <= TILES ? turn : KEPT + (turn - KEPT) % AHEAD;
	return w->tiles + (tile * TENSORS + tensor) * TILE_BYTES;
}

/* Whether the tile does not contain it yet. */
DEVICE int is_away(const struct walk *w, struct pass pass, enum reading reading, int turn)
{
	if (reading != AGAIN)
		return reading == FIRST;
	if (MOST_TURNS <= TILES)
		return 0;
	return pass.back ? turn >= KEPT && turn < w->turns - AHEAD : turn >= TILES;
}

DEVICE void fetch_segment(u8 *to, const u8 *row, int first, int dtype)
{
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		if (HAS_QUAD(first, j))
			fetch_strip(to + j * 32 * 16, row, column(first, j), dtype);
		if (ACCESS != ACCESS_QUADS && j % BATCH == BATCH - 1)
			sync_warp(); /* no loads beyond it: they would take all registers */
	}
}

/* One group of fetches for every step, an empty one too: steps are what is waited for. */
DEVICE void fetch_step(const struct walk *w, struct pass pass, int step)
{
	const int turn = turn_at(w, pass, step);
	if (step < w->turns && is_away(w, pass, pass.x, turn))
		fetch_segment(tile_of(w, turn, 0), w->x, first_of(w, turn), X_ELEMENT);
	if (step < w->turns && (FORWARD ? MADE_OF_TWO : HAS_DY) && is_away(w, pass, pass.dy, turn))
		fetch_segment(tile_of(w, turn, SECOND), w->dy, first_of(w, turn), SECOND_ELEMENT);
	if (step < w->turns && !FORWARD && HAS_GATE && is_away(w, pass, GATE_IN ? pass.x : pass.dy, turn))
		fetch_segment(tile_of(w, turn, GATE), w->gate, first_of(w, turn), GATE_ELEMENT);
	fetch_close();
}

DEVICE void start_pass(const struct walk *w, struct pass pass)
{
	UNROLL
	for (int step = 0; step < AHEAD; step++)
		fetch_step(w, pass, step);
}

DEVICE quad take_quad(const u8 *tile, int first, int j)
{
	return HAS_QUAD(first, j) ? load_fetched(tile + j * 32 * 16) : no_quad();
}

DEVICE void take_dy(real *d, const u8 *tile, int first, int j)
{
	widen_strip(strip_of_quad(HAS_DY ? take_quad(tile, first, j) : no_quad()), Y_ELEMENT, d);
}

/* Weight or bias of quads j, j + 1, … of a batch. */
DEVICE void load_batch(struct weights *to, const u8 *from, int first, int j)
{
	UNROLL
	for (int i = 0; i < BATCH && j + i < QUADS; i++)
		to[i] = load_weights(from, HAS_QUAD(first, j + i) ? column(first, j + i) : 0);
}

/* ---- sums over the row ---- */

struct row {
	struct statistics s;
	real m0;
};

enum term { VALUES, SQUARES, GRADIENTS };

/* The terms of one quad; d, weights and bias of GRADIENTS alone. */
DEVICE void add_quad(real (*lanes)[THREAD_LANES], int term, struct row r, const real *x, const real *d,
		     struct weights weights, struct weights bias, quad gate, int first, int j)
{
	real w[PER_QUAD], b[PER_QUAD], factors[PER_QUAD];
	if (term == GRADIENTS && HAS_WEIGHT)
		weights_of(w, weights);
	if (term == GRADIENTS && ACTIVATION && HAS_BIAS)
		widen_weights(bias, b);
	if (term == GRADIENTS && GATE_OUT)
		widen_gate(gate, factors);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int there = HAS_ELEMENT(first, j, e);
		if (term == VALUES) {
			ADD_TERM(lanes[0], j, e, !HAS_X_BIAS || there ? x[e] : 0);
		} else if (term == SQUARES) {
			real t = there ? CENTRED ? x[e] - r.m0 : x[e] : 0;
			ADD_PRODUCT(lanes[0], j, e, t, t);
			if (CENTRED)
				ADD_TERM(lanes[CENTRED], j, e, t);
		} else {
			real dgate, h = there ? xhat_of(x[e], r.s) : 0;
			real t = activated_gradient(d[e], h, w[e], b[e], factors[e], &dgate);
			real g = there ? HAS_WEIGHT ? t * w[e] : t : 0;
			ADD_PRODUCT(lanes[0], j, e, g, h);
			if (CENTRED)
				ADD_TERM(lanes[CENTRED], j, e, g);
		}
	}
}

DEVICE void add_segment(real (*lanes)[THREAD_LANES], int term, struct row r, const struct staged_arguments *a,
			const struct walk *w, int turn)
{
	const int first = first_of(w, turn);
	const u8 *first_tile = tile_of(w, turn, 0), *second = tile_of(w, turn, SECOND), *gate = tile_of(w, turn, GATE);
	struct weights weights[BATCH], bias[BATCH], x_bias[BATCH];
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		real x[PER_QUAD], d[PER_QUAD];
		if (term == GRADIENTS && HAS_WEIGHT && j % BATCH == 0)
			load_batch(weights, a->weight, first, j);
		if (term == GRADIENTS && ACTIVATION && HAS_BIAS && j % BATCH == 0)
			load_batch(bias, a->bias, first, j);
		if (HAS_X_BIAS && j % BATCH == 0)
			load_batch(x_bias, NEIGHBOUR(a, x_bias), first, j);
		make_input(x, take_quad(first_tile, first, j), MADE_OF_TWO ? take_quad(FORWARD ? second : gate, first, j) : no_quad(),
			   x_bias[j % BATCH]);
		if (term == GRADIENTS)
			take_dy(d, second, first, j);
		add_quad(lanes, term, r, x, d, weights[j % BATCH], bias[j % BATCH],
			 term == GRADIENTS && GATE_OUT ? take_quad(gate, first, j) : no_quad(), first, j);
	}
}

/* n sums over the row; every thread of it gets them. */
DEVICE void staged_sums(real *sums, int n, int term, struct pass pass, struct row r, const struct staged_arguments *a,
		      struct walk *w)
{
	real shares[2] = {0, 0}; /* of a unit: each segment's in the lanes of its number */
	if (UNITS > 1)
		open_round(&w->board, n);
	start_pass(w, pass);
	for (int step = 0; step < w->turns; step++) {
		const int turn = turn_at(w, pass, step), in_unit = turn % UNIT_SEGMENTS;
		const int ends_unit = in_unit == (pass.back ? 0 : UNIT_SEGMENTS - 1) || step + 1 == w->turns;
		real lanes[2][THREAD_LANES], segment[2];
		FETCH_WAIT(AHEAD - 1);
		add_segment(lanes, term, r, a, w, turn);
		fetch_step(w, pass, step + AHEAD);
		UNROLL
		for (int k = 0; k < n; k++)
			close_segment(lanes[k]);
		fold_lanes(lanes, segment, n, 1, w->lane);
		spread_sums(segment, n, w->lane);
		UNROLL
		for (int k = 0; k < n; k++)
			shares[k] = w->lane % UNIT_SEGMENTS == in_unit ? segment[k] : shares[k];
		if (UNITS == 1 || !ends_unit)
			continue;
		UNROLL
		for (int k = 0; k < n; k++) {
			UNROLL
			for (int h = 1; h < UNIT_SEGMENTS; h *= 2)
				shares[k] = shares[k] + shuffle_xor(shares[k], h);
			put_share(&w->board, k, unit_of(w, turn), shares[k], w->lane);
			shares[k] = 0;
		}
	}
	if (UNITS > 1)
		take_sums(&w->board, sums, n, w->group, w->lane);
	UNROLL
	for (int k = 0; UNITS == 1 && k < n; k++)
		sums[k] = shares[k] + 0;
}

enum { STATISTICS_PASSES = CENTRED ? 2 : 1 };

DEVICE struct statistics staged_statistics(const struct staged_arguments *a, struct walk *w)
{
	struct row r;
	real sums[2];
	r.m0 = 0;
	if (CENTRED) {
		staged_sums(sums, 1, VALUES, pass_of(0, NOT), r, a, w);
		r.m0 = mean_of(sums[0]);
	}
	staged_sums(sums, CENTRED ? 2 : 1, SQUARES, pass_of(STATISTICS_PASSES - 1, NOT), r, a, w);
	sums[0] = mean_of(sums[0]);
	if (CENTRED)
		sums[CENTRED] = mean_of(sums[CENTRED]);
	return statistics_of(r.m0, sums, (real)a->eps);
}

/* ---- the row that is written ---- */

/* The numbers of one quad of y or dx, from those of x and dy; those of dgate to `factors`, which are the gate's, from x as
 * it was fetched. */
DEVICE void make_result(real *x, const real *d, struct statistics s, real mean_gx, real mean_g, struct weights weight,
			struct weights bias, real *factors, const real *fetched)
{
	real w[PER_QUAD], b[PER_QUAD];
	if (HAS_WEIGHT)
		weights_of(w, weight);
	if (HAS_BIAS)
		widen_weights(bias, b);
#if KIND == KIND_STAGED_FORWARD
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real xhat = xhat_of(x[e], s);
		x[e] = affine(ROUND_EACH ? rounded(xhat, HAS_RESIDUAL ? NEIGHBOUR_ELEMENT : X_ELEMENT) : xhat, w[e], b[e]);
		x[e] = activated(x[e]);
	}
#else
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real dgate, h = xhat_of(x[e], s), t = activated_gradient(d[e], h, w[e], b[e], factors[e], &dgate);
		x[e] = dx_of(h, HAS_WEIGHT ? t * w[e] : t, mean_gx, mean_g, s.rstd);
		if (HAS_GATE)
			factors[e] = GATE_IN ? gate_gradient(&x[e], fetched[e], factors[e]) : dgate;
	}
#endif
}

/* Adds to dx what reaches x past the norm, or to y the residual after it, or multiplies y by the gate, from column c of a
 * row. */
DEVICE void add_beside(real *result, const struct staged_arguments *a, i64 row, int c)
{
	real add[PER_QUAD];
	widen_strip(load_strip_as(NEIGHBOUR_ROW(a, residual, row), c, NEIGHBOUR_ELEMENT), NEIGHBOUR_ELEMENT, add);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real from = FORWARD && ROUND_EACH ? rounded(result[e], RESULT_ELEMENT) : result[e];
		result[e] = GATE_OUT ? from * gate_of(add[e]) : from + add[e];
	}
}

/* Of row `row`: y, and h where it is wanted; or dx and dresidual. */
DEVICE void write_segment(i64 row, struct statistics s, real mean_gx, real mean_g, const struct staged_arguments *a,
			  const struct walk *w, int turn)
{
	const int first = first_of(w, turn);
	const u8 *first_tile = tile_of(w, turn, 0), *second = tile_of(w, turn, SECOND), *gate = tile_of(w, turn, GATE);
	struct weights weight[BATCH], bias[BATCH], x_bias[BATCH];
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		if (HAS_WEIGHT && j % BATCH == 0)
			load_batch(weight, a->weight, first, j);
		if (HAS_BIAS && j % BATCH == 0)
			load_batch(bias, a->bias, first, j);
		if (HAS_X_BIAS && j % BATCH == 0)
			load_batch(x_bias, NEIGHBOUR(a, x_bias), first, j);
		if (!HAS_QUAD(first, j))
			continue;
		const int c = column(first, j);
		real x[PER_QUAD], d[PER_QUAD], fetched[PER_QUAD], factors[PER_QUAD];
		make_input(x, take_quad(first_tile, first, j), MADE_OF_TWO ? take_quad(FORWARD ? second : gate, first, j) : no_quad(),
			   x_bias[j % BATCH]);
		if (HAS_H)
			store_strip_as(NEIGHBOUR_ROW(a, h, row), narrow_strip(x, NEIGHBOUR_ELEMENT), c, NEIGHBOUR_ELEMENT);
		if (!FORWARD)
			take_dy(d, second, first, j);
		if (!FORWARD && HAS_GATE) {
			widen_gate(take_quad(gate, first, j), factors);
			widen_strip(strip_of_quad(take_quad(first_tile, first, j)), X_ELEMENT, fetched);
		}
		make_result(x, d, s, mean_gx, mean_g, weight[j % BATCH], bias[j % BATCH], factors, fetched);
		if (HAS_DH || HAS_RESIDUAL_AFTER || (FORWARD && GATE_OUT))
			add_beside(x, a, row, c);
		if (HAS_DX)
			store_strip_as(a->y + row * a->y_stride, narrow_strip(x, RESULT_ELEMENT), c, RESULT_ELEMENT);
		if (HAS_DRESIDUAL)
			store_strip_as(NEIGHBOUR_ROW(a, h, row), narrow_strip(x, X_ELEMENT), c, X_ELEMENT);
		if (HAS_DGATE)
			store_strip_as(NEIGHBOUR_ROW(a, h, row), narrow_strip(factors, GATE_ELEMENT), c, GATE_ELEMENT);
	}
}

/* A thread writes what it alone reads, and has read: x, dy, the residual and dh may be written over. */
DEVICE void write_row(i64 row, struct pass pass, struct statistics s, real mean_gx, real mean_g,
		      const struct staged_arguments *a, const struct walk *w)
{
	start_pass(w, pass);
	for (int step = 0; step < w->turns; step++) {
		FETCH_WAIT(AHEAD - 1);
		write_segment(row, s, mean_gx, mean_g, a, w, turn_at(w, pass, step));
		fetch_step(w, pass, step + AHEAD);
	}
}

GROUP_KERNEL(KERNEL_NAME, THREADS, BLOCKS, staged_arguments)
{
	const int row_block = ROW_BLOCKS > 1 ? cluster_rank() : 0;
	const struct position p = position_of(thread_index(), row_block);
	const i64 number = BLOCK_IN_GROUP(ROW_BLOCKS) / ROW_BLOCKS * BLOCK_ROWS + p.group;
	const int speaks = p.unit == 0 && p.lane == 0;
	struct walk w = walk_of(p, row_block);

	if (BLOCK_ROWS > 1 && number >= a.rows)
		return;
	w.board = make_board(shared_memory() + p.group * BOARD_BYTES);
	wait_for_kernels_before();
	let_next_kernel_start();
	w.x = a.x + number * a.x_stride;
#if KIND == KIND_STAGED_FORWARD
	if (MADE_OF_TWO)
		w.dy = NEIGHBOUR_ROW(&a, residual, number);
	struct statistics s = staged_statistics(&a, &w);
	if (speaks) {
		if (a.mean)
			store_real(a.mean, STATISTIC_OF(number), s.mean);
		if (a.rstd)
			store_real(a.rstd, STATISTIC_OF(number), s.rstd);
		if (a.mean_lo)
			store_real(a.mean_lo, STATISTIC_OF(number), s.mean_lo);
	}
	write_row(number, pass_of(STATISTICS_PASSES, NOT), s, 0, 0, &a, &w);
#else
	enum { PASSES = HAS_RSTD ? 0 : STATISTICS_PASSES };
	struct row r;
	real sums[2] = {0, 0};
	w.dy = a.dy + number * a.dy_stride;
	if (HAS_GATE)
		w.gate = NEIGHBOUR_ROW(&a, residual, number);
	r.m0 = 0;
	if (HAS_RSTD) {
		r.s.rstd = load_real(a.rstd, STATISTIC_OF(number));
		r.s.mean = CENTRED ? load_real(a.mean, STATISTIC_OF(number)) : 0;
		r.s.mean_lo = CENTRED && a.mean_lo ? load_real(a.mean_lo, STATISTIC_OF(number)) : 0;
		finish_statistics(&r.s);
	} else {
		r.s = staged_statistics(&a, &w);
	}
	if (NEEDS_DX)
		staged_sums(sums, CENTRED ? 2 : 1, GRADIENTS, pass_of(PASSES, FIRST), r, &a, &w);
	const real mean_gx = mean_of(sums[0]), mean_g = mean_of(sums[CENTRED]);
	if (HAS_DWEIGHT + HAS_DBIAS + HAS_DX_BIAS == 0) {
		write_row(number, pass_of(PASSES + 1, AGAIN), r.s, mean_gx, mean_g, &a, &w);
	} else if (speaks) {
		real *to = (real *)a.numbers + STATISTIC_OF(number) * ROW_NUMBERS;
		store_one(real, to + MEAN, r.s.mean);
		store_one(real, to + RSTD, r.s.rstd);
		store_one(real, to + SHIFT, r.s.shift);
		store_one(real, to + MEAN_GX, mean_gx);
		store_one(real, to + MEAN_G, mean_g);
	}
#endif
}

#else

enum {
	SUMS = HAS_DWEIGHT + HAS_DBIAS + HAS_DX_BIAS,
	WALK_TENSORS = 2 + HAS_DH + HAS_GATE,
	NUMBER_QUADS = ROW_NUMBERS / REALS,
	WALK_ROW_BYTES = WALK_ROW_BYTES_OF(WALK_TENSORS, (int)sizeof(real)),
	WALK_LEVELS = 2                          /* of the tree over the slots of a walk */
	/* shared memory: [warp][WALK_AHEAD][row] */
};

/* Column sums of a thread's quad. */
enum { DWEIGHT, DBIAS, DX_BIAS, MOST_OF_A_QUAD };
struct sums {
	real of[MOST_OF_A_QUAD][PER_QUAD];
};

DEVICE struct sums no_sums(void)
{
	struct sums s;
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		s.of[DWEIGHT][e] = s.of[DBIAS][e] = s.of[DX_BIAS][e] = 0;
	return s;
}

DEVICE struct sums both(struct sums a, struct sums b)
{
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		UNROLL
		for (int k = 0; k < MOST_OF_A_QUAD; k++)
			a.of[k][e] = a.of[k][e] + b.of[k][e];
	}
	return a;
}

/* Where a warp walks: rows row … end-1, the columns of a strip. */
struct walk {
	u8 *ring;
	i64 row, end;
	int stage; /* of the ring: the row's */
	int lane, c;
};

/* The numbers are fetched by some lanes for all. */
DEVICE void fetch_row(const struct walk *w, i64 row, int stage, const struct staged_arguments *a)
{
	u8 *to = w->ring + stage * WALK_ROW_BYTES + w->lane * 16;
	if (row < w->end) {
		if (w->c < COLS) {
			fetch_strip(to, a->x + row * a->x_stride, w->c, X_ELEMENT);
			if (HAS_DY)
				fetch_strip(to + 32 * 16, a->dy + row * a->dy_stride, w->c, Y_ELEMENT);
			if (HAS_DH || HAS_GATE)
				fetch_strip(to + 2 * 32 * 16, NEIGHBOUR_ROW(a, residual, row), w->c, NEIGHBOUR_ELEMENT);
		}
		if (w->lane < NUMBER_QUADS)
			fetch(to + WALK_TENSORS * 32 * 16, (const real *)a->numbers + STATISTIC_OF(row) * ROW_NUMBERS + w->lane * REALS);
	}
	fetch_close();
}

/* The operands of a warp's columns. */
struct walk_columns {
	struct weights weight, bias, x_bias;
};

/* dx of the next row, and what it adds to the column sums. */
DEVICE void walk_row(struct sums *sums, const struct walk_columns *columns, struct walk *w, const struct staged_arguments *a)
{
	const u8 *from = w->ring + w->stage * WALK_ROW_BYTES;
	real x[PER_QUAD], d[PER_QUAD], dh[PER_QUAD], weight[PER_QUAD], bias[PER_QUAD], numbers[ROW_NUMBERS];
	real fetched[PER_QUAD], factors[PER_QUAD]; /* x without the gate, and the gate */
	struct statistics s;
	FETCH_WAIT(WALK_AHEAD - 1);
	sync_warp(); /* the numbers are there for all lanes */
	const quad third = HAS_DH || HAS_GATE ? load_fetched(from + (2 * 32 + w->lane) * 16) : no_quad();
	make_input(x, load_fetched(from + w->lane * 16), third, columns->x_bias);
	if (HAS_GATE) {
		widen_gate(third, factors);
		widen_strip(strip_of_quad(load_fetched(from + w->lane * 16)), X_ELEMENT, fetched);
	}
	widen_strip(strip_of_quad(HAS_DY ? load_fetched(from + (32 + w->lane) * 16) : no_quad()), Y_ELEMENT, d);
	if (HAS_DH)
		widen_strip(strip_of_quad(third), X_ELEMENT, dh);
	UNROLL
	for (int i = 0; i < NUMBER_QUADS; i++)
		sums_of_quad(load_fetched(from + (WALK_TENSORS * 32 + i) * 16), numbers + i * REALS);
	sync_warp(); /* all lanes have read them */
	fetch_row(w, w->row + WALK_AHEAD, w->stage, a);
	if (HAS_WEIGHT && (NEEDS_DX || ACTIVATION))
		weights_of(weight, columns->weight);
	if (HAS_BIAS)
		widen_weights(columns->bias, bias);
	s.mean = numbers[MEAN];
	s.rstd = numbers[RSTD];
	s.shift = numbers[SHIFT];
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		real dgate, h = xhat_of(x[e], s);
		d[e] = activated_gradient(d[e], h, weight[e], bias[e], factors[e], &dgate);
		real g = HAS_WEIGHT && NEEDS_DX ? d[e] * weight[e] : d[e];
		x[e] = dx_of(h, g, numbers[MEAN_GX], numbers[MEAN_G], s.rstd);
		if (HAS_DH)
			x[e] = x[e] + dh[e];
		if (HAS_GATE)
			factors[e] = GATE_IN ? gate_gradient(&x[e], fetched[e], factors[e]) : dgate;
		sums->of[DWEIGHT][e] = fma_real(d[e], ROUND_EACH ? rounded(h, X_ELEMENT) : h, sums->of[DWEIGHT][e]);
		sums->of[DBIAS][e] = sums->of[DBIAS][e] + d[e];
		sums->of[DX_BIAS][e] = HAS_DX_BIAS ? sums->of[DX_BIAS][e] + x[e] : 0;
	}
	if (HAS_DX && w->c < COLS)
		store_strip_as(a->y + w->row * a->y_stride, narrow_strip(x, DX_ELEMENT), w->c, DX_ELEMENT);
	if (HAS_DRESIDUAL && w->c < COLS)
		store_strip_as(NEIGHBOUR_ROW(a, h, w->row), narrow_strip(x, X_ELEMENT), w->c, X_ELEMENT);
	if (HAS_DGATE && w->c < COLS)
		store_strip_as(NEIGHBOUR_ROW(a, h, w->row), narrow_strip(factors, GATE_ELEMENT), w->c, GATE_ELEMENT);
	w->row++;
	w->stage = w->stage + 1 == WALK_AHEAD ? 0 : w->stage + 1;
}

/* The next slot, in chunks. */
DEVICE struct sums walk_slot(const struct walk_columns *columns, struct walk *w, const struct staged_arguments *a)
{
	const i64 end = w->row + a->slot_rows < w->end ? w->row + a->slot_rows : w->end;
	struct sums total = no_sums();
	while (w->row < end) {
		const i64 chunk_end = w->row + CHUNK_ROWS < end ? w->row + CHUNK_ROWS : end;
		struct sums chunk = no_sums();
		while (w->row < chunk_end)
			walk_row(&chunk, columns, w, a);
		total = both(total, chunk);
	}
	return total;
}

/* A warp walks the rows of walk_slots slots in one strip of columns, and folds them. */
GROUP_KERNEL(KERNEL_NAME, 32 * WALK_WARPS, SUMS > 2 || GATE_IN || (HAS_GATE && ACTIVATION == ACTIVATION_GELU) ? 2 : 3, staged_arguments)
{
	const int warp_in_block = thread_index() / 32;
	const i64 warp = block_index() * WALK_WARPS + warp_in_block, number = warp / STRIPS;
	const int strip = strip_of_warp(warp);
	const i64 walk_rows = a.walk_slots * a.slot_rows;
	struct sums sums = no_sums(), left[WALK_LEVELS];
	struct walk_columns columns;
	struct walk w;

	w.row = number * walk_rows;
	w.end = w.row + walk_rows < a.rows ? w.row + walk_rows : a.rows;
	w.ring = shared_memory() + warp_in_block * WALK_AHEAD * WALK_ROW_BYTES;
	w.stage = 0;
	w.lane = thread_index() % 32;
	w.c = (ROW_GROUPS > 1 ? strip % GROUP_STRIPS : strip) * WARP_ELEMENTS + w.lane * PER_QUAD;
	wait_for_kernels_before();
	let_next_kernel_start();
	if (w.row >= a.rows)
		return;
	for (int i = 0; i < WALK_AHEAD; i++)
		fetch_row(&w, w.row + i, i, &a);
	if (HAS_WEIGHT && (NEEDS_DX || ACTIVATION))
		columns.weight = load_weights(a.weight, w.c < COLS ? w.c : 0);
	if (HAS_BIAS)
		columns.bias = load_weights(a.bias, w.c < COLS ? w.c : 0);
	if (HAS_X_BIAS)
		columns.x_bias = load_weights(NEIGHBOUR(&a, x_bias), w.c < COLS ? w.c : 0);
	for (int slot = 0; slot < a.walk_slots; slot++) { /* those that are not there add +0 */
		sums = walk_slot(&columns, &w, &a);
		UNROLL
		for (int level = 0; level < WALK_LEVELS; level++) {
			if ((slot + 1) % (1 << level) != 0)
				continue;
			if (slot >> level & 1)
				sums = both(left[level], sums);
			else
				left[level] = sums;
		}
	}
	real *to = (real *)a.partials + number * SUMS * PITCH + w.c;
	UNROLL
	for (int e = 0; e < PER_QUAD; e += REALS) {
		if (w.c + e >= COLS)
			continue;
		if (HAS_DWEIGHT)
			store_kept(to + e, quad_of_sums(sums.of[DWEIGHT] + e));
		if (HAS_DBIAS)
			store_kept(to + (i64)HAS_DWEIGHT * PITCH + e, quad_of_sums(sums.of[DBIAS] + e));
		if (HAS_DX_BIAS)
			store_kept(to + (i64)(SUMS - 1) * PITCH + e, quad_of_sums(sums.of[DX_BIAS] + e));
	}
}

#endif
