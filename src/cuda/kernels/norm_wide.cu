/* The norms of rows that no registers hold, and of what norm_backward.cu has no room for: rows are read again
 * for every sum. Follows norm_sums.cu; norm_rows.cu explains most constants (WARP_SEGMENTS is 1, ACCESS
 * 0 or 2, WIDE_UNITS over 0). Further ones:
 *   PART            0 forward; 1 the rows of backward: statistics and sums over rows (and dx, where no column sums
 *                   are wanted); 2 its columns: dx and slots
 *   UNIT_SEGMENTS   segments that a warp sums up before they go on the board: a power of two up to 32
 *   HAS_WEIGHT, HAS_BIAS, GIVEN, WANT_DX, WANT_DWEIGHT, WANT_DBIAS as in norm_forward.cu and norm_backward.cu
 * SPDX-License-Identifier: MIT */

struct arguments {
	const u8 *x, *dy;
	u8 *y; /* dx in backward */
	const u8 *weight, *bias;
	void *mean, *rstd, *mean_lo;
	real *numbers;  /* [rows][ROW_NUMBERS]: from PART 1 to PART 2 */
	real *partials; /* [slot][dweight, dbias][PITCH] */
	i64 x_stride, dy_stride, y_stride; /* in bytes */
	i64 rows, slot_rows;
	double eps;
};

enum {
	ROW_NUMBERS = 5, /* mean, mean_lo, rstd and the two means of gradients */
	TEAM = ROW_WARPS * ROW_BLOCKS
};

#if PART < 2

struct row {
	const u8 *x, *dy;
	struct statistics s;
	real m0;
};

enum term { VALUES, SQUARES, GRADIENTS };

/* The terms of one quad. */
DEVICE void add_quad(real (*lanes)[LANES], int term, struct row r, const struct arguments *a, quad v, quad dy,
		     int first, int j)
{
	real x[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(v, x);
	if (term == GRADIENTS) {
		widen(dy, d);
		if (HAS_WEIGHT)
			widen_weights(load_weights(a->weight, HAS_QUAD(first, j) ? column(first, j) : 0), w);
	}
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int there = HAS_ELEMENT(first, j, e);
		if (term == VALUES) {
			ADD_TERM(lanes[0], j, e, x[e]);
		} else if (term == SQUARES) {
			real t = there ? CENTRED ? x[e] - r.m0 : x[e] : 0;
			ADD_PRODUCT(lanes[0], j, e, t, t);
			if (CENTRED)
				ADD_TERM(lanes[CENTRED], j, e, t);
		} else {
			real h = there ? xhat_of(x[e], r.s) : 0;
			real g = there ? HAS_WEIGHT ? d[e] * w[e] : d[e] : 0;
			ADD_PRODUCT(lanes[0], j, e, g, h);
			if (CENTRED)
				ADD_TERM(lanes[CENTRED], j, e, g);
		}
	}
}

/* n sums over the row; every thread of it gets them. */
DEVICE void wide_sums(real *sums, int n, int term, struct row r, const struct arguments *a,
		      struct board *board, struct place p)
{
	open_round(board, n);
	for (int unit = p.unit; unit < UNITS; unit += TEAM) {
		real kept[BOARD_SUMS] = {0, 0};
		for (int i = 0; i < UNIT_SEGMENTS; i++) {
			struct place q = p;
			int start = (unit * UNIT_SEGMENTS + i) * SEGMENT;
			if (start >= COLS)
				break;
			q.first = start + p.lane * PER_QUAD;
			real lanes[BOARD_SUMS][LANES], segment[BOARD_SUMS];
			quad v[QUADS], dy[QUADS];
			load_row(v, r.x, q);
			if (term == GRADIENTS)
				load_row(dy, r.dy, q);
			UNROLL
			for (int j = 0; j < QUADS; j++)
				add_quad(lanes, term, r, a, v[j], term == GRADIENTS ? dy[j] : v[j], q.first, j);
			fold_lanes(lanes, segment, n, p.lane);
			UNROLL
			for (int k = 0; k < n; k++)
				if (p.lane == i)
					kept[k] = segment[k];
		}
		UNROLL
		for (int k = 0; k < n; k++) {
			UNROLL
			for (int h = 1; h < UNIT_SEGMENTS; h *= 2)
				kept[k] = kept[k] + shuffle_xor(kept[k], h);
			put_share(board, k, unit, kept[k], p.lane);
		}
	}
	take_sums(board, sums, n, p);
}

DEVICE struct statistics wide_statistics(struct row r, const struct arguments *a, struct board *board,
					 struct place p)
{
	real sums[BOARD_SUMS];
	if (CENTRED) {
		wide_sums(sums, 1, VALUES, r, a, board, p);
		r.m0 = mean_of(sums[0]);
	}
	wide_sums(sums, CENTRED ? 2 : 1, SQUARES, r, a, board, p);
	return statistics_of(r.m0, sums, (real)a->eps);
}

/* One quad of y or dx, from column c. */
DEVICE quad result_of(quad v, quad dy, struct row r, real mean_gx, real mean_g, const struct arguments *a, int c)
{
	real x[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(v, x);
	widen(dy, d);
	if (HAS_WEIGHT)
		widen_weights(load_weights(a->weight, c), w);
#if PART == 0
	real b[PER_QUAD];
	if (HAS_BIAS)
		widen_weights(load_weights(a->bias, c), b);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		x[e] = affine(xhat_of(x[e], r.s), w[e], b[e]);
#else
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		x[e] = dx_of(xhat_of(x[e], r.s), HAS_WEIGHT ? d[e] * w[e] : d[e], mean_gx, mean_g, r.s.rstd);
#endif
	return narrow(x);
}

DEVICE void write_row(struct row r, real mean_gx, real mean_g, const struct arguments *a, u8 *to, struct place p)
{
	for (int start = p.unit * SEGMENT; start < COLS; start += TEAM * SEGMENT) {
		int first = start + p.lane * PER_QUAD;
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			int c = column(first, j);
			if (!HAS_QUAD(first, j))
				continue;
			quad x = load_strip(r.x, c);
			quad dy = PART == 0 ? x : load_strip(r.dy, c);
			store_strip(to, result_of(x, dy, r, mean_gx, mean_g, a, c), c);
		}
	}
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS)(const struct arguments a)
{
	const int row_block = ROW_BLOCKS > 1 ? cluster_rank() : 0;
	const struct place p = place_of(thread_index(), row_block);
	const i64 number = block_index() / ROW_BLOCKS;
	struct board board = make_board(shared_memory());
	struct row r;

	wait_for_kernels_before();
	let_next_kernel_start();
	r.x = a.x + number * a.x_stride;
	r.dy = a.dy + number * a.dy_stride;
	r.m0 = 0;
#if PART == 0
	r.s = wide_statistics(r, &a, &board, p);
	if (p.unit == 0 && p.lane == 0) {
		if (a.mean)
			store_real(a.mean, number, r.s.mean);
		if (a.rstd)
			store_real(a.rstd, number, r.s.rstd);
		if (a.mean_lo)
			store_real(a.mean_lo, number, r.s.mean_lo);
	}
	write_row(r, 0, 0, &a, a.y + number * a.y_stride, p);
#else
	real sums[BOARD_SUMS] = {0, 0};
	if (GIVEN) {
		r.s.rstd = load_real(a.rstd, number);
		r.s.mean = CENTRED ? load_real(a.mean, number) : 0;
		r.s.mean_lo = CENTRED && a.mean_lo ? load_real(a.mean_lo, number) : 0;
		finish_statistics(&r.s);
	} else {
		r.s = wide_statistics(r, &a, &board, p);
	}
	if (WANT_DX)
		wide_sums(sums, CENTRED ? 2 : 1, GRADIENTS, r, &a, &board, p);
	real mean_gx = mean_of(sums[0]), mean_g = mean_of(sums[CENTRED]);
	if (WANT_DWEIGHT + WANT_DBIAS == 0) {
		write_row(r, mean_gx, mean_g, &a, a.y + number * a.y_stride, p);
	} else if (p.unit == 0 && p.lane == 0) {
		real *to = a.numbers + number * ROW_NUMBERS;
		to[0] = r.s.mean;
		to[1] = r.s.mean_lo;
		to[2] = r.s.rstd;
		to[3] = mean_gx;
		to[4] = mean_g;
	}
#endif
}

#else

enum {
	WANT_SUMS = WANT_DWEIGHT + WANT_DBIAS,
	CHUNK_ROWS = 32,
	PITCH = (COLS + REALS - 1) / REALS * REALS,
	STRIPS = (COLS + WARP_ELEMENTS - 1) / WARP_ELEMENTS /* of columns, a quad a thread */
};

/* A warp walks the rows of one slot in one strip of columns. */
KERNEL(KERNEL_NAME, THREADS, BLOCKS)(const struct arguments a)
{
	const i64 warp = block_index() * (THREADS / 32) + thread_index() / 32;
	const i64 slot = warp / STRIPS;
	const int c = (int)(warp % STRIPS) * WARP_ELEMENTS + thread_index() % 32 * PER_QUAD;
	const i64 begin = slot * a.slot_rows;
	const i64 end = begin + a.slot_rows < a.rows ? begin + a.slot_rows : a.rows;
	real w[PER_QUAD], chunk[2][PER_QUAD], total[2][PER_QUAD];

	wait_for_kernels_before();
	let_next_kernel_start();
	if (begin >= a.rows || c >= COLS)
		return;
	if (HAS_WEIGHT && WANT_DX)
		widen_weights(load_weights(a.weight, c), w);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		chunk[0][e] = chunk[1][e] = total[0][e] = total[1][e] = 0;
	for (i64 row = begin; row < end; row++) {
		const real *numbers = a.numbers + row * ROW_NUMBERS;
		struct statistics s;
		real x[PER_QUAD], d[PER_QUAD];
		s.mean = numbers[0];
		s.mean_lo = numbers[1];
		s.rstd = numbers[2];
		finish_statistics(&s);
		widen(load_strip(a.x + row * a.x_stride, c), x);
		widen(load_strip(a.dy + row * a.dy_stride, c), d);
		UNROLL
		for (int e = 0; e < PER_QUAD; e++) {
			real h = xhat_of(x[e], s), g = HAS_WEIGHT && WANT_DX ? d[e] * w[e] : d[e];
			x[e] = dx_of(h, g, numbers[3], numbers[4], s.rstd);
			chunk[0][e] = fma_real(d[e], h, chunk[0][e]);
			chunk[1][e] = chunk[1][e] + d[e];
		}
		if (WANT_DX)
			store_strip(a.y + row * a.y_stride, narrow(x), c);
		if ((row + 1 - begin) % CHUNK_ROWS == 0 || row + 1 == end) {
			UNROLL
			for (int e = 0; e < PER_QUAD; e++) {
				total[0][e] = total[0][e] + chunk[0][e];
				total[1][e] = total[1][e] + chunk[1][e];
				chunk[0][e] = chunk[1][e] = 0;
			}
		}
	}
	real *to = a.partials + slot * WANT_SUMS * PITCH;
	UNROLL
	for (int e = 0; WANT_SUMS > 0 && e < PER_QUAD; e++) {
		if (c + e >= COLS)
			continue;
		if (WANT_DWEIGHT)
			to[c + e] = total[0][e];
		if (WANT_DBIAS)
			to[(i64)(WANT_SUMS - 1) * PITCH + c + e] = total[1][e];
	}
}

#endif
