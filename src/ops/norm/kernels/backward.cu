/* Backward of a norm whose row fits the registers of its threads: x and dy are read once, dx is written once,
 * and the column sums of a slot of rows (rule 6) stay in registers while its threads walk its rows. Follows
 * slots.cu; rows.cu explains most constants. Further ones:
 *   HAS_RSTD                     given statistics (else they are recomputed)
 *   STAGES                       steps (of ROWS_AT_ONCE rows) that shared memory holds: the one in hand, and those fetched ahead
 *   KEEP                         1: x and dy stay in registers between the two passes over a row, 0: in shared memory
 *   KEEP_WEIGHT                  where weight stays from row to row: 0 nowhere, 1 in registers, 2 in shared memory
 *   FOLD_BLOCKS                  blocks of a cluster whose column sums are folded before they are written
 * A block has BLOCK_ROWS slots in hand, each walked by ROW_WARPS warps (of ROW_BLOCKS blocks); or, of narrow rows, several
 * a warp, each walked by ROW_THREADS threads.
 * columns.cu adds up what the clusters write. SPDX-License-Identifier: MIT */

enum {
	SHIFT_BYTES = ACCESS == ACCESS_SHIFTED ? TRAYS_BYTES : 0,
	RING_BYTES = RING_BYTES_OF(STAGES, ROWS_AT_ONCE, TRAYS_BYTES),
	WORK_BYTES = RING_BYTES > FOLD_BYTES ? RING_BYTES : FOLD_BYTES
	/* shared memory: boards, trays in which dx is shifted, weight, ring of trays (later the fold), sums of the
	 * chunks where a slot has several and there is room */
};

/* A row in the ring, and in memory. */
struct source {
	u8 *tray;
	const u8 *row, *matrix;
};

/* Starts the fetch of a thread's quads of a row. */
DEVICE void fetch_row(struct source s, struct position p)
{
#if ACCESS == ACCESS_QUADS
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		int c = column(p.first, j), left = (COLS - c) * ELEMENT_BYTES;
		u8 *to = s.tray + j * TRAY_STEP;
		const u8 *from = s.row + c * ELEMENT_BYTES;
		if (CAPACITY == COLS)
			fetch(to, from);
		else
			fetch_some(to, from, left >= 16 ? 16 : TAIL_ELEMENTS != 0 && left > 0 ? left : 0);
	}
#elif ACCESS == ACCESS_SHIFTED
	fetch_shifted(s.tray, s.row, s.matrix, p);
#else
	UNROLL
	for (int j = 0; j < QUADS; j++)
		*(quad *)(s.tray + j * TRAY_STEP) = load_elements(s.row, column(p.first, j));
#endif
}

/* n quads of a fetched row, from quad j on; zeros past its end. */
DEVICE void take_fetched(quad *v, int n, struct source s, int j)
{
	if (ACCESS == ACCESS_SHIFTED)
		take_quads(v, n, s.tray + j * TRAY_STEP, (int)((u64)s.row & 15));
	UNROLL
	for (int i = 0; ACCESS != ACCESS_SHIFTED && i < n; i++)
		v[i] = load_fetched(s.tray + (j + i) * TRAY_STEP);
}

enum { ENDS_INSIDE = ROWS_AT_ONCE * SUB_ROWS > 1 }; /* a step may have rows in hand past the end of its slot */

/* A step of a walk: rows from `row` on, in a stage of the ring. */
struct step {
	i64 row, end;
	int stage;
};

/* The step `steps` later, at most a round of the ring. */
DEVICE struct step step_after(struct step t, int steps)
{
	t.row += steps * ROWS_AT_ONCE;
	t.stage = t.stage + steps >= STAGES ? t.stage + steps - STAGES : t.stage + steps;
	return t;
}

DEVICE struct source source_of(u8 *ring, int tensor, int u, struct step t, const struct backward_arguments *a)
{
	const i64 row = t.row + u;
	struct source s;
	s.tray = ring + ((t.stage * 2 + tensor) * ROWS_AT_ONCE + u) * TRAYS_BYTES;
	s.matrix = tensor == 0 ? a->x : a->dy;
	s.row = s.matrix + row * (tensor == 0 ? a->x_stride : a->dy_stride);
	return s;
}

DEVICE void fetch_step(u8 *ring, struct step t, const struct backward_arguments *a, struct position p)
{
	if (ACCESS == ACCESS_SHIFTED)
		sync_warp(); /* all have taken what was there */
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		if (t.row + u >= t.end)
			continue;
		fetch_row(source_of(ring, 0, u, t, a), p);
		fetch_row(source_of(ring, 1, u, t, a), p);
	}
	fetch_close();
}

/* n quads of x or dy of row u of the step, out of the ring; zeros where there is no such row. */
DEVICE void take_step(quad *v, int n, u8 *ring, int tensor, int u, int j, struct step t, const struct backward_arguments *a)
{
	if (!ENDS_INSIDE || t.row + u < t.end) {
		take_fetched(v, n, source_of(ring, tensor, u, t, a), j);
		return;
	}
	UNROLL
	for (int i = 0; i < n; i++)
		v[i] = no_quad();
}

DEVICE quad step_quad(u8 *ring, int tensor, int u, int j, struct step t, const struct backward_arguments *a)
{
	quad v;
	take_step(&v, 1, ring, tensor, u, j, t, a);
	return v;
}

DEVICE void given_statistics(struct statistics *s, struct step t, const struct backward_arguments *a)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		int there = t.row + u < t.end;
		s[u].rstd = there ? load_real(a->rstd, t.row + u) : 0;
		s[u].mean = there && CENTRED ? load_real(a->mean, t.row + u) : 0;
		s[u].mean_lo = there && CENTRED && a->mean_lo ? load_real(a->mean_lo, t.row + u) : 0;
	}
}

/* A thread's weights, from row to row. */
enum {
	WEIGHT_QUADS = WEIGHT_WORDS / 4, /* of a quad of the row */
	KEPT_BYTES = KEPT_BYTES_OF(KEEP_WEIGHT, QUADS, ELEMENT_BYTES, WEIGHT_BYTES, THREADS)
};

struct kept {
	struct weights held[KEEP_WEIGHT == 1 ? QUADS : 1];
	u8 *shared; /* its own places there */
};

DEVICE u8 *kept_quad(const struct kept *kept, int j, int i)
{
	return kept->shared + (j * WEIGHT_QUADS + i) * THREADS * 16;
}

/* Zeros past the end of the row. */
DEVICE struct weights weights_or_none(const u8 *from, int first, int j)
{
	struct weights v = load_weights(from, HAS_QUAD(first, j) ? column(first, j) : 0);
	UNROLL
	for (int i = 0; i < WEIGHT_WORDS; i++)
		v.w[i] = HAS_QUAD(first, j) ? v.w[i] : 0;
	return v;
}

DEVICE void keep_weights(struct kept *kept, const u8 *from, u8 *shared, int first)
{
	kept->shared = shared;
	UNROLL
	for (int j = 0; KEEP_WEIGHT && j < QUADS; j++) {
		struct weights v = weights_or_none(from, first, j);
		if (KEEP_WEIGHT == 1)
			kept->held[j % (KEEP_WEIGHT == 1 ? QUADS : 1)] = v;
		UNROLL
		for (int i = 0; KEEP_WEIGHT == 2 && i < WEIGHT_QUADS; i++)
			*(quad *)kept_quad(kept, j, i) = *(const quad *)&v.w[4 * i];
	}
}

/* Those of quad j. */
DEVICE void kept_weights(real *w, const struct kept *kept, const u8 *from, int first, int j)
{
	struct weights v;
	if (KEEP_WEIGHT == 0)
		v = weights_or_none(from, first, j);
	if (KEEP_WEIGHT == 1)
		v = kept->held[j % (KEEP_WEIGHT == 1 ? QUADS : 1)];
	UNROLL
	for (int i = 0; KEEP_WEIGHT == 2 && i < WEIGHT_QUADS; i++)
		*(quad *)&v.w[4 * i] = load_fetched(kept_quad(kept, j, i));
	widen_weights(v, w);
}

/* Past the end of the row, where x is 0, xhat shall be 0. */
DEVICE struct statistics statistics_at(struct statistics s, int first, int j)
{
	s.mean = HAS_QUAD(first, j) ? s.mean : 0;
	s.rstd = HAS_QUAD(first, j) ? s.rstd : 0;
	s.shift = HAS_QUAD(first, j) ? s.shift : 0;
	return s;
}

/* The first pass over quad j of a row: the sums over it, and what it adds to its columns. */
DEVICE void add_quad(quad x, quad dy, int j, struct statistics s, const struct kept *kept,
		     const struct backward_arguments *a, int first, real (*lanes)[THREAD_LANES], real (*sums)[ELEMENTS])
{
	const int segment = j / SEGMENT_QUADS, in = j % SEGMENT_QUADS;
	real xs[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(x, xs);
	widen(dy, d);
	if (HAS_WEIGHT && HAS_DX)
		kept_weights(w, kept, a->weight, first, j);
	s = statistics_at(s, first, j);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int at = j * PER_QUAD + e;
		int ends_here = TAIL_ELEMENTS != 0 && j % SEGMENT_QUADS == TAIL_QUAD;
		real h = !ends_here || HAS_ELEMENT(first, j, e) ? xhat_of(xs[e], s) : 0;
		if (HAS_DX) {
			real g = HAS_WEIGHT ? d[e] * w[e] : d[e];
			ADD_PRODUCT(lanes[segment], in, e, g, h);
			if (CENTRED)
				ADD_TERM(lanes[segment + WARP_SEGMENTS], in, e, g);
		}
		if (HAS_DWEIGHT)
			sums[0][at] = fma_real(d[e], h, sums[0][at]);
		if (HAS_DBIAS)
			sums[SUMS - 1][at] = sums[SUMS - 1][at] + d[e];
	}
	if (HAS_DX && in == SEGMENT_QUADS - 1) {
		close_segment(lanes[segment]);
		if (CENTRED)
			close_segment(lanes[segment + WARP_SEGMENTS]);
	}
}

/* The second pass: dx. */
DEVICE quad gradient(quad x, quad dy, int j, struct statistics s, real mean_gx, real mean_g,
		     const struct kept *kept, const struct backward_arguments *a, int first)
{
	real xs[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(x, xs);
	widen(dy, d);
	if (HAS_WEIGHT)
		kept_weights(w, kept, a->weight, first, j);
	s = statistics_at(s, first, j); /* as the first pass did, so that xhat is at hand */
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		xs[e] = dx_of(xhat_of(xs[e], s), HAS_WEIGHT ? d[e] * w[e] : d[e], mean_gx, mean_g, s.rstd);
	return narrow(xs);
}

/* What a thread walks with. */
struct walk {
	struct position p;
	u8 *ring, *out; /* a thread's first quads */
	struct board board;
	struct statistics next[ROWS_AT_ONCE]; /* given ones, loaded a step ahead */
};

/* Quads of the rows in hand: in registers, or out of the ring again. */
#define X_QUAD(u, j) (KEEP ? x[u][j] : step_quad(w->ring, 0, u, j, t, a))
#define DY_QUAD(u, j) (KEEP ? dy[u][j] : step_quad(w->ring, 1, u, j, t, a))

enum { ROW_SUMS = CENTRED ? 2 : 1, STEP_SUMS = ROWS_AT_ONCE * ROW_SUMS };

/* Recomputed statistics; none of rows that are not there. */
DEVICE void recomputed_statistics(struct statistics *s, quad (*x)[QUADS], struct step t, const struct backward_arguments *a,
			    struct walk *w)
{
	row_statistics(x, s, (real)a->eps, &w->board, w->p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++)
		if (t.row + u >= t.end)
			s[u].mean = s[u].rstd = s[u].shift = 0;
}

/* dx of the rows of a step, from their sums of g * xhat and of g. */
DEVICE void write_step(quad (*x)[QUADS], quad (*dy)[QUADS], struct step t, const struct statistics *s,
		       const real *sums, const struct kept *kept, const struct backward_arguments *a, struct walk *w)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		real mean_gx = mean_of(sums[u * ROW_SUMS]);
		real mean_g = CENTRED ? mean_of(sums[u * ROW_SUMS + ROW_SUMS - 1]) : 0;
		u8 *dx = a->dx + (t.row + u) * a->dx_stride;
		int there = !ENDS_INSIDE || t.row + u < t.end;
		if (ACCESS == ACCESS_SHIFTED)
			sync_warp(); /* the row before is out */
		UNROLL
		for (int j = 0; there && j < QUADS; j++) {
			quad v = gradient(X_QUAD(u, j), DY_QUAD(u, j), j, s[u], mean_gx, mean_g, kept, a, w->p.first);
			if (ACCESS == ACCESS_SHIFTED)
				*(quad *)(w->out + j * TRAY_STEP) = v;
			else if (HAS_QUAD(w->p.first, j))
				store_strip(dx, v, column(w->p.first, j));
		}
		if (ACCESS == ACCESS_SHIFTED)
			sync_warp();
		if (ACCESS == ACCESS_SHIFTED && there)
			store_shifted(dx, w->out, w->p);
	}
}

/* One step: ROWS_AT_ONCE rows that have been fetched, and the fetch of later ones into their place. */
DEVICE void walk_step(real (*column_sums)[ELEMENTS], struct step t, const struct kept *kept,
		      const struct backward_arguments *a, struct walk *w)
{
	struct statistics s[ROWS_AT_ONCE];
	quad x[ROWS_AT_ONCE][QUADS], dy[ROWS_AT_ONCE][QUADS];
	real lanes[STEP_SUMS * WARP_SEGMENTS][THREAD_LANES], sums[STEP_SUMS];

	FETCH_WAIT(STAGES - 1);
	if (ACCESS == ACCESS_SHIFTED)
		sync_warp(); /* others' quads are there, too */
	UNROLL
	for (int u = 0; (KEEP || !HAS_RSTD) && u < ROWS_AT_ONCE; u++) {
		take_step(x[u], QUADS, w->ring, 0, u, 0, t, a);
		if (KEEP)
			take_step(dy[u], QUADS, w->ring, 1, u, 0, t, a);
	}
	if (KEEP)
		fetch_step(w->ring, step_after(t, STAGES), a, w->p);
	UNROLL
	for (int u = 0; HAS_RSTD && u < ROWS_AT_ONCE; u++) {
		s[u] = w->next[u];
		finish_statistics(&s[u]);
	}
	if (HAS_RSTD)
		given_statistics(w->next, step_after(t, 1), a);
	else
		recomputed_statistics(s, x, t, a, w);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		UNROLL
		for (int j = 0; j < QUADS; j++)
			add_quad(X_QUAD(u, j), DY_QUAD(u, j), j, s[u], kept, a, w->p.first,
				 lanes + u * ROW_SUMS * WARP_SEGMENTS, column_sums);
	}
	if (HAS_DX) {
		row_sums(lanes, sums, STEP_SUMS, &w->board, w->p);
		write_step(x, dy, t, s, sums, kept, a, w);
	}
	if (!KEEP)
		fetch_step(w->ring, step_after(t, STAGES), a, w->p);
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, backward_arguments)
{
	const int thread = thread_index(), sub = thread % 32 / ROW_THREADS;
	const int rank = ROW_BLOCKS * FOLD_BLOCKS > 1 ? cluster_rank() : 0;
	const int chunked = SUMS > 0 && a.slot_rows > CHUNK_ROWS;
	u8 *work = shared_memory() + BOARDS_BYTES + SHIFT_BYTES + KEPT_BYTES;
	real *slot_sums = a.slot_sums ? (real *)a.slot_sums + block_index() * SUMS * ELEMENTS * THREADS
				      : (real *)(work + WORK_BYTES);
	real *partials = (real *)a.partials + block_index() / (ROW_BLOCKS * FOLD_BLOCKS) * SUMS * PITCH;
	real sums[COLUMN_SUMS][ELEMENTS];
	struct kept kept;
	struct walk w;
	struct step t;

	w.p = position_of(thread, rank % ROW_BLOCKS);
	t.row = ((block_index() / ROW_BLOCKS * BLOCK_ROWS + w.p.group) * SUB_ROWS + sub) * a.slot_rows;
	t.end = t.row + a.slot_rows < a.rows ? t.row + a.slot_rows : a.rows;
	t.stage = 0;
	w.ring = tray_of(work, thread);
	w.out = tray_of(shared_memory() + BOARDS_BYTES, thread);
	slot_sums += thread;
	w.board = make_board(shared_memory() + w.p.group * BOARD_BYTES);
	wait_for_kernels_before();
	let_next_kernel_start();

	UNROLL
	for (int k = 0; k < STAGES; k++)
		fetch_step(w.ring, step_after(t, k), &a, w.p);
	if (HAS_WEIGHT && HAS_DX)
		keep_weights(&kept, a.weight, shared_memory() + BOARDS_BYTES + SHIFT_BYTES + thread * 16, w.p.first);
	UNROLL
	for (int k = 0; k < SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			sums[k][i] = 0;
			if (chunked)
				store_one(real, slot_sums + (k * ELEMENTS + i) * THREADS, 0);
		}
	}
	if (HAS_RSTD)
		given_statistics(w.next, t, &a);

	/* All threads of a warp go as far as its first slot, which is never the shorter one. */
	const i64 most = a.rows - (t.row - sub * a.slot_rows);
	const i64 steps = most < a.slot_rows ? most : a.slot_rows;
	for (i64 done = 0; done < steps; done += ROWS_AT_ONCE, t = step_after(t, 1)) {
		if (chunked && done > 0 && done % CHUNK_ROWS == 0)
			close_chunk(slot_sums, sums);
		walk_step(sums, t, &kept, &a, &w);
	}

	if (SUMS == 0)
		return;
	FETCH_WAIT(0);
	if (chunked) {
		close_chunk(slot_sums, sums);
		UNROLL
		for (int k = 0; k < SUMS; k++) {
			UNROLL
			for (int i = 0; i < ELEMENTS; i++)
				sums[k][i] = load_one(real, slot_sums + (k * ELEMENTS + i) * THREADS);
		}
	}
	fold_warp(sums);
	fold_block(sums, work, w.p.group, thread % BLOCK_ROW_THREADS);
	if (FOLD_BLOCKS > 1)
		fold_cluster(sums, work, partials, rank, w.p);
	else if (w.p.group == 0 && sub == 0)
		store_sums(partials, sums, w.p.first);
}
