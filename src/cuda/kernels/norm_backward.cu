/* Backward of a norm whose row fits the registers of its threads: x and dy are read once, dx is written once,
 * and the column sums of a slot of rows (rule 6) stay in registers while its threads walk its rows. Follows
 * norm_rows.cu and norm_sums.cu, which explains most constants. Further ones:
 *   HAS_WEIGHT, GIVEN            operands: weight; statistics (else they are computed anew)
 *   WANT_DX, WANT_DWEIGHT, WANT_DBIAS
 *   STAGES                       steps (of ROWS_AT_ONCE rows) that are fetched ahead into shared memory, at most
 *   KEEP                         1: x and dy stay in registers between the two looks at a row, 0: in shared memory
 *   KEEP_WEIGHT                  1: weight stays in registers
 *   FOLD_BLOCKS                  blocks of a cluster whose column sums are folded before they are written
 * A block has BLOCK_ROWS slots in hand, each walked by ROW_WARPS warps (of ROW_BLOCKS blocks); or, of narrow rows, several
 * a warp, each walked by ROW_THREADS threads.
 * norm_columns.cu adds up what the clusters write. SPDX-License-Identifier: MIT */

struct arguments {
	const u8 *x, *dy;
	u8 *dx;
	const u8 *weight;
	const void *mean, *rstd, *mean_lo; /* mean_lo may be NULL */
	real *partials;                    /* [cluster][dweight, dbias][PITCH] */
	i64 x_stride, dy_stride, dx_stride; /* in bytes */
	i64 rows, slot_rows;
	double eps;
	int stages; /* STAGES or 1 */
};

enum {
	WANT_SUMS = WANT_DWEIGHT + WANT_DBIAS,
	CHUNK_ROWS = 32,
	PITCH = (COLS + REALS - 1) / REALS * REALS,
	RING_QUADS = QUADS + (ACCESS == 1), /* of a row and a thread */
	STAGE_QUADS = 2 * ROWS_AT_ONCE * RING_QUADS,
	STAGE_BYTES = STAGE_QUADS * THREADS * 16,
	ROW_PART = 32 * ROW_WARPS, /* threads of a block that share a row */
	SUM_QUADS = QUADS * PER_QUAD / REALS,  /* of one column sum and a thread */
	FOLD_ROWS = BLOCK_ROWS > 1 ? BLOCK_ROWS / 2 : 1,
	FOLD_BYTES = (BLOCK_ROWS > 1 || FOLD_BLOCKS > 1 ? FOLD_ROWS : 0) * WANT_SUMS * SUM_QUADS * ROW_PART * 16,
	BOARD_BYTES = (BLOCK_ROWS * BOARD * (int)sizeof(real) + 127) / 128 * 128
	/* shared memory: boards, ring (later the fold), sums of the chunks where a slot has several */
};

/* Where a thread's quad lies in shared memory: threads are neighbours. */
DEVICE u8 *ring_quad(u8 *ring, int stage, int tensor, int u, int j)
{
	return ring + (i64)(((stage * 2 + tensor) * ROWS_AT_ONCE + u) * RING_QUADS + j) * THREADS * 16;
}

enum { QUAD_STEP = THREADS * 16 }; /* from a quad of a row to the next in the ring */

/* A row in the ring, and in memory. */
struct source {
	u8 *ring;
	const u8 *row;
	int outer; /* the first or the last row of its matrix: nothing beside it may be read */
};

/* Starts the fetch of a thread's quads of a row. */
DEVICE void fetch_row(struct source s, struct place p)
{
#if ACCESS == 0
	UNROLL
	for (int j = 0; j < QUADS; j++) {
		int c = column(p.first, j);
		int left = (COLS - c) * ELEMENT_BYTES;
		u8 *to = s.ring + j * QUAD_STEP;
		const u8 *from = s.row + c * ELEMENT_BYTES;
		if (TAIL_ELEMENTS != 0 && j % SEGMENT_QUADS == TAIL_QUAD) {
			if (left > 0)
				fetch_some(to, from, left < 16 ? left : 16);
		} else if (HAS_QUAD(p.first, j)) {
			fetch(to, from);
		}
	}
#elif ACCESS == 1
	const int shift = (int)((u64)s.row & 15);
	UNROLL
	for (int j = 0; j < RING_QUADS; j++) {
		int at = raw_offset(p.first, j) - shift;
		if (!wants_raw(p, j, shift))
			continue;
		if (!s.outer || is_whole(p, j, shift))
			fetch(s.ring + j * QUAD_STEP, s.row + at);
		else if (at >= 0)
			fetch_some(s.ring + j * QUAD_STEP, s.row + at, ROW_BYTES - at);
		else
			*(quad *)(s.ring + j * QUAD_STEP) = load_elements(s.row, at / ELEMENT_BYTES);
	}
#else
	UNROLL
	for (int j = 0; j < QUADS; j++)
		*(quad *)(s.ring + j * QUAD_STEP) = load_elements(s.row, column(p.first, j));
#endif
}

/* Quad j of a fetched row; zeros past its end. */
DEVICE quad take_quad(struct source s, int j, struct place p)
{
	quad v = load_fetched(s.ring + j * QUAD_STEP);
#if ACCESS == 1
	quad wrapped = p.lane == 0 ? load_fetched(s.ring + (j + 1) * QUAD_STEP) : v;
	v = shift_in(v, wrapped, p.lane, (int)((u64)s.row & 15));
#endif
	return clear_tail(v, p.first, j);
}

/* The rows that are walked: from the next on. */
struct step {
	i64 row, end;
};

DEVICE struct source source_of(u8 *ring, int stage, int tensor, int u, i64 row, const struct arguments *a)
{
	struct source s;
	s.ring = ring_quad(ring, stage, tensor, u, 0);
	s.row = tensor == 0 ? a->x + row * a->x_stride : a->dy + row * a->dy_stride;
	s.outer = row == 0 || row + 1 == a->rows;
	return s;
}

DEVICE void fetch_step(u8 *ring, int stage, struct step t, const struct arguments *a, struct place p)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		if (t.row + u >= t.end)
			continue;
		fetch_row(source_of(ring, stage, 0, u, t.row + u, a), p);
		fetch_row(source_of(ring, stage, 1, u, t.row + u, a), p);
	}
	fetch_close();
}

/* Quad j of x or dy of row u of the step, out of the ring; zeros where there is no such row. */
DEVICE quad step_quad(u8 *ring, int stage, int tensor, int u, int j, struct step t, const struct arguments *a,
		      struct place p)
{
	if (t.row + u >= t.end)
		return no_quad();
	return take_quad(source_of(ring, stage, tensor, u, t.row + u, a), j, p);
}

DEVICE void given_statistics(struct statistics *s, struct step t, const struct arguments *a)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		int there = t.row + u < t.end;
		s[u].rstd = there ? load_real(a->rstd, t.row + u) : 0;
		s[u].mean = there && CENTRED ? load_real(a->mean, t.row + u) : 0;
		s[u].mean_lo = there && CENTRED && a->mean_lo ? load_real(a->mean_lo, t.row + u) : 0;
	}
}

/* Column sums of a thread: [dweight, dbias][element]. */
enum { COLUMN_SUMS = WANT_SUMS > 0 ? WANT_SUMS : 1, ELEMENTS = QUADS * PER_QUAD };

/* The weights of quad j. */
DEVICE void weights_of(real *w, const struct weights *kept, const struct arguments *a, int first, int j)
{
	if (KEEP_WEIGHT)
		widen_weights(kept[j % (KEEP_WEIGHT ? QUADS : 1)], w);
	else
		widen_weights(load_weights(a->weight, HAS_QUAD(first, j) ? column(first, j) : 0), w);
}

/* The first look at quad j of a row: the sums over it, and what it adds to its columns. */
DEVICE void look(quad x, quad dy, int j, struct statistics s, const struct weights *kept,
		 const struct arguments *a, int first, real (*lanes)[LANES], real (*sums)[ELEMENTS])
{
	const int segment = j / SEGMENT_QUADS, in = j % SEGMENT_QUADS;
	real xs[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(x, xs);
	widen(dy, d);
	if (HAS_WEIGHT && WANT_DX)
		weights_of(w, kept, a, first, j);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		int at = j * PER_QUAD + e;
		int there = HAS_ELEMENT(first, j, e);
		real h = there ? xhat_of(xs[e], s) : 0;
		if (WANT_DX) {
			real g = HAS_WEIGHT && there ? d[e] * w[e] : d[e];
			ADD_PRODUCT(lanes[segment], in, e, g, h);
			if (CENTRED)
				ADD_TERM(lanes[segment + WARP_SEGMENTS], in, e, g);
		}
		if (WANT_DWEIGHT)
			sums[0][at] = fma_real(d[e], h, sums[0][at]);
		if (WANT_DBIAS)
			sums[WANT_SUMS - 1][at] = sums[WANT_SUMS - 1][at] + d[e];
	}
}

/* The second look: dx. */
DEVICE quad gradient(quad x, quad dy, int j, struct statistics s, real mean_gx, real mean_g,
		     const struct weights *kept, const struct arguments *a, int first)
{
	real xs[PER_QUAD], d[PER_QUAD], w[PER_QUAD];
	widen(x, xs);
	widen(dy, d);
	if (HAS_WEIGHT)
		weights_of(w, kept, a, first, j);
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		xs[e] = dx_of(xhat_of(xs[e], s), HAS_WEIGHT ? d[e] * w[e] : d[e], mean_gx, mean_g, s.rstd);
	return narrow(xs);
}

/* Adds the sums of a chunk to those of its slot, in shared memory, and starts anew. */
DEVICE void close_chunk(real *slot_sums, real (*sums)[ELEMENTS])
{
	UNROLL
	for (int k = 0; k < WANT_SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			slot_sums[(k * ELEMENTS + i) * THREADS] = slot_sums[(k * ELEMENTS + i) * THREADS] + sums[k][i];
			sums[k][i] = 0;
		}
	}
}

/* ---- the tree over slots: of a warp, of a block, of a cluster ---- */

/* Narrow rows: a warp walks SUB_ROWS slots. */
DEVICE void fold_warp(real (*sums)[ELEMENTS])
{
	UNROLL
	for (int h = ROW_THREADS; h < 32; h *= 2) {
		UNROLL
		for (int k = 0; k < WANT_SUMS; k++) {
			UNROLL
			for (int i = 0; i < ELEMENTS; i++)
				sums[k][i] = sums[k][i] + shuffle_xor(sums[k][i], h);
		}
	}
}

/* Puts a thread's column sums on shared memory, where quads of neighbouring threads are neighbours. */
DEVICE void put_sums(u8 *to, real (*sums)[ELEMENTS], int thread)
{
	UNROLL
	for (int k = 0; k < WANT_SUMS; k++) {
		UNROLL
		for (int q = 0; q < SUM_QUADS; q++)
			*(quad *)(to + ((k * SUM_QUADS + q) * ROW_PART + thread) * 16) =
				quad_of_sums(sums[k] + q * REALS);
	}
}

DEVICE void add_sums(real (*sums)[ELEMENTS], const u8 *from, int thread)
{
	UNROLL
	for (int k = 0; k < WANT_SUMS; k++) {
		UNROLL
		for (int q = 0; q < SUM_QUADS; q++) {
			real other[REALS];
			sums_of_quad(load_fetched(from + ((k * SUM_QUADS + q) * ROW_PART + thread) * 16), other);
			add_reals(sums[k] + q * REALS, other);
		}
	}
}

/* After it, the threads of the block's first slot hold the sums of all. */
DEVICE void fold_block(real (*sums)[ELEMENTS], u8 *work, int group, int thread)
{
	UNROLL
	for (int h = 1; h < BLOCK_ROWS; h *= 2) {
		u8 *place = work + group / (2 * h) * WANT_SUMS * SUM_QUADS * ROW_PART * 16;
		sync_block();
		if (group % (2 * h) == h)
			put_sums(place, sums, thread);
		sync_block();
		if (group % (2 * h) == 0)
			add_sums(sums, place, thread);
	}
}

/* A thread's column sums go where their columns are. */
DEVICE void store_sums(real *partials, real (*sums)[ELEMENTS], int first)
{
	UNROLL
	for (int k = 0; k < WANT_SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i += REALS) {
			int c = column(first, i / PER_QUAD) + i % PER_QUAD;
			if (c < COLS)
				store_kept(partials + (i64)k * PITCH + c, quad_of_sums(sums[k] + i));
		}
	}
}

/* Each block of the cluster folds a share of the columns, out of the shared memory of all. */
DEVICE void fold_cluster(real (*sums)[ELEMENTS], u8 *work, real *partials, int rank, struct place p)
{
	const int row_block = rank % ROW_BLOCKS, share = rank / ROW_BLOCKS;
	sync_block();
	if (p.group == 0)
		put_sums(work, sums, thread_index());
	sync_cluster();
	for (int item = share * THREADS + thread_index(); item < WANT_SUMS * SUM_QUADS * ROW_PART;
	     item += FOLD_BLOCKS * THREADS) {
		real all[FOLD_BLOCKS][REALS];
		UNROLL
		for (int f = 0; f < FOLD_BLOCKS; f++)
			sums_of_quad(get_quad(work + item * 16, f * ROW_BLOCKS + row_block), all[f]);
		UNROLL
		for (int h = 1; h < FOLD_BLOCKS; h *= 2) {
			UNROLL
			for (int f = 0; f + h < FOLD_BLOCKS; f += 2 * h)
				add_reals(all[f], all[f + h]);
		}
		int k = item / (SUM_QUADS * ROW_PART), q = item / ROW_PART % SUM_QUADS;
		int first = place_of(item % ROW_PART, row_block).first;
		int at = q * REALS;
		int c = column(first, at / PER_QUAD) + at % PER_QUAD;
		if (c < COLS)
			store_kept(partials + (i64)k * PITCH + c, quad_of_sums(all[0]));
	}
	sync_cluster(); /* the others may still be reading ours */
}

/* What a thread walks with. */
struct walk {
	struct place p;
	struct step t;
	u8 *ring;
	real *board;
	int stage, turn;
};

/* Quads of the rows in hand: in registers, or out of the ring again. */
#define X_QUAD(u, j) (KEEP ? x[u][j] : step_quad(w->ring, w->stage, 0, u, j, w->t, a, w->p))
#define DY_QUAD(u, j) (KEEP ? dy[u][j] : step_quad(w->ring, w->stage, 1, u, j, w->t, a, w->p))

enum { ROW_SUMS = CENTRED ? 2 : 1 };

/* Statistics computed anew; none of rows that are not there. */
DEVICE void statistics_anew(struct statistics *s, quad (*x)[HELD], const struct arguments *a, struct walk *w)
{
	row_statistics(x, s, (real)a->eps, w->board, &w->turn, w->p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++)
		if (w->t.row + u >= w->t.end)
			s[u].mean = s[u].rstd = s[u].shift = 0;
}

/* dx of the rows in hand, from their means of g * xhat and of g. */
DEVICE void write_step(quad (*x)[HELD], quad (*dy)[HELD], const struct statistics *s, const real *sums,
		       const struct weights *kept, const struct arguments *a, struct walk *w)
{
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		real mean_gx = mean_of(sums[u * ROW_SUMS]);
		real mean_g = CENTRED ? mean_of(sums[u * ROW_SUMS + ROW_SUMS - 1]) : 0;
		u8 *dx = a->dx + (w->t.row + u) * a->dx_stride;
		if (w->t.row + u >= w->t.end)
			continue;
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			x[u][j] = gradient(X_QUAD(u, j), DY_QUAD(u, j), j, s[u], mean_gx, mean_g, kept, a, w->p.first);
			if (ACCESS != 1 && HAS_QUAD(w->p.first, j))
				store_strip(dx, x[u][j], column(w->p.first, j));
		}
		if (ACCESS == 1)
			store_row(dx, x[u], w->p);
	}
}

/* One step: ROWS_AT_ONCE rows that have been fetched, and the fetch of later ones into their place. next: statistics
 * that were loaded a step ahead, where there are registers for it. */
DEVICE void walk_step(real (*sums)[ELEMENTS], struct statistics *next, const struct weights *kept,
		      const struct arguments *a, struct walk *w)
{
	struct statistics s[ROWS_AT_ONCE];
	quad x[ROWS_AT_ONCE][HELD], dy[ROWS_AT_ONCE][HELD];
	real lanes[ROWS_AT_ONCE * ROW_SUMS * WARP_SEGMENTS][LANES], row[ROWS_AT_ONCE * ROW_SUMS];
	struct step ahead = w->t, after = w->t;
	ahead.row += a->stages * ROWS_AT_ONCE;
	after.row += ROWS_AT_ONCE;

	if (GIVEN && !KEEP)
		given_statistics(s, w->t, a);
	if (a->stages == STAGES)
		FETCH_WAIT(STAGES - 1);
	else
		FETCH_WAIT(0);
	UNROLL
	for (int u = 0; (KEEP || !GIVEN) && u < ROWS_AT_ONCE; u++) {
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			x[u][j] = step_quad(w->ring, w->stage, 0, u, j, w->t, a, w->p);
			if (KEEP)
				dy[u][j] = step_quad(w->ring, w->stage, 1, u, j, w->t, a, w->p);
		}
	}
	if (KEEP)
		fetch_step(w->ring, w->stage, ahead, a, w->p);
	UNROLL
	for (int u = 0; GIVEN && u < ROWS_AT_ONCE; u++) {
		if (KEEP)
			s[u] = next[u];
		finish_statistics(&s[u]);
	}
	if (GIVEN && KEEP)
		given_statistics(next, after, a);
	if (!GIVEN)
		statistics_anew(s, x, a, w);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		UNROLL
		for (int j = 0; j < QUADS; j++)
			look(X_QUAD(u, j), DY_QUAD(u, j), j, s[u], kept, a, w->p.first,
			     lanes + u * ROW_SUMS * WARP_SEGMENTS, sums);
	}
	if (WANT_DX) {
		row_sums(lanes, row, ROWS_AT_ONCE * ROW_SUMS, w->board, &w->turn, w->p);
		write_step(x, dy, s, row, kept, a, w);
	}
	if (!KEEP)
		fetch_step(w->ring, w->stage, ahead, a, w->p);
	w->stage = w->stage + 1 == a->stages ? 0 : w->stage + 1;
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS)(const struct arguments a)
{
	const int thread = thread_index(), sub = thread % 32 / ROW_THREADS;
	const int rank = ROW_BLOCKS * FOLD_BLOCKS > 1 ? cluster_rank() : 0;
	const int work_bytes = a.stages * STAGE_BYTES > FOLD_BYTES ? a.stages * STAGE_BYTES : FOLD_BYTES;
	const int chunked = WANT_SUMS > 0 && a.slot_rows > CHUNK_ROWS;
	u8 *work = shared_memory() + BOARD_BYTES;
	real *slot_sums = (real *)(work + work_bytes) + thread;
	real *partials = a.partials + block_index() / (ROW_BLOCKS * FOLD_BLOCKS) * WANT_SUMS * PITCH;
	real sums[COLUMN_SUMS][ELEMENTS];
	struct weights kept[KEEP_WEIGHT ? QUADS : 1];
	struct statistics next[ROWS_AT_ONCE];
	struct walk w;

	w.p = place_of(thread, rank % ROW_BLOCKS);
	w.t.row = ((block_index() / ROW_BLOCKS * BLOCK_ROWS + w.p.group) * SUB_ROWS + sub) * a.slot_rows;
	w.t.end = w.t.row + a.slot_rows < a.rows ? w.t.row + a.slot_rows : a.rows;
	w.ring = work + thread * 16;
	w.board = (real *)shared_memory() + w.p.group * BOARD;
	w.stage = w.turn = 0;
	if (ROW_BLOCKS > 1)
		sync_cluster(); /* the others' shared memory is there from now on */
	wait_for_kernels_before();
	let_next_kernel_start();

	for (int k = 0; k < a.stages; k++) {
		struct step ahead = w.t;
		ahead.row += k * ROWS_AT_ONCE;
		fetch_step(w.ring, k, ahead, &a, w.p);
	}
	UNROLL
	for (int j = 0; HAS_WEIGHT && WANT_DX && KEEP_WEIGHT && j < QUADS; j++)
		kept[j] = load_weights(a.weight, HAS_QUAD(w.p.first, j) ? column(w.p.first, j) : 0);
	UNROLL
	for (int k = 0; k < WANT_SUMS; k++) {
		UNROLL
		for (int i = 0; i < ELEMENTS; i++) {
			sums[k][i] = 0;
			if (chunked)
				slot_sums[(k * ELEMENTS + i) * THREADS] = 0;
		}
	}
	if (GIVEN && KEEP)
		given_statistics(next, w.t, &a);

	/* All threads of a warp go as far as its first slot, which is never the shorter one. */
	const i64 most = a.rows - (w.t.row - sub * a.slot_rows);
	const i64 steps = most < a.slot_rows ? most : a.slot_rows;
	for (i64 done = 0; done < steps; done += ROWS_AT_ONCE, w.t.row += ROWS_AT_ONCE) {
		if (chunked && done > 0 && done % CHUNK_ROWS == 0)
			close_chunk(slot_sums, sums);
		walk_step(sums, next, kept, &a, &w);
	}

	if (WANT_SUMS == 0)
		return;
	FETCH_WAIT(0);
	if (chunked) {
		close_chunk(slot_sums, sums);
		UNROLL
		for (int k = 0; k < WANT_SUMS; k++) {
			UNROLL
			for (int i = 0; i < ELEMENTS; i++)
				sums[k][i] = slot_sums[(k * ELEMENTS + i) * THREADS];
		}
	}
	fold_warp(sums);
	fold_block(sums, work, w.p.group, thread % ROW_PART);
	if (FOLD_BLOCKS > 1)
		fold_cluster(sums, work, partials, rank, w.p);
	else if (w.p.group == 0 && sub == 0)
		store_sums(partials, sums, w.p.first);
}
