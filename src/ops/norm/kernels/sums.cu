/* What the norm kernels share, third part: sums over a row in the order of the contract (docs/numerics.md, rule 2), and
 * what is made of them (rules 3 to 5). Placed between folds.cu and a kernel; rows.cu has the constants.
 * SPDX-License-Identifier: MIT */

/* ---- sums over a row ---- */

/* Adds the terms of quad j to the lanes; the first term of a lane is where it starts. */
#define LANE(j, e) ((j) % MOST_LANE_RUNS * PER_QUAD + (e))
#define ADD_TERM(lanes, j, e, term) \
	((lanes)[LANE(j, e)] = (j) < MOST_LANE_RUNS ? (term) : (lanes)[LANE(j, e)] + (term))
#define ADD_PRODUCT(lanes, j, e, a, b) \
	((lanes)[LANE(j, e)] = (j) < MOST_LANE_RUNS ? (a) * (b) : fma_real(a, b, (lanes)[LANE(j, e)]))

/* Folds a thread's own lanes of a segment as soon as they are complete, which frees their registers: each group into its first. */
DEVICE void close_segment(real *lanes)
{
	UNROLL
	for (int g = 0; g < LANE_RUNS; g++)
		lanes[g * PER_QUAD] = fold_array(lanes + g * PER_QUAD, PER_QUAD);
}

/* LANE_RUNS, up to a power of two. */
enum { LANE_RUNS_UP = LANE_RUNS <= 1 ? 1 : LANE_RUNS <= 2 ? 2 : LANE_RUNS <= 4 ? 4 : LANE_RUNS <= 8 ? 8 : LANE_RUNS <= 16 ? 16 : 32 };

/* n sums over `segments` closed segments, from lanes[sum][segment][THREAD_LANES], which are left as fold_threads leaves them. Groups of
 * lanes and segments have sums of their own until the threads are folded. */
DEVICE void fold_lanes(real (*lanes)[THREAD_LANES], real *sums, int n, int segments, int lane)
{
	real parts[2 * ROWS_AT_ONCE * WARP_SEGMENTS * LANE_RUNS_UP];
	const int each = segments * LANE_RUNS_UP, all = n * each;
	UNROLL
	for (int i = 0; i < all; i++)
		parts[i] = i % LANE_RUNS_UP < LANE_RUNS ? lanes[i / LANE_RUNS_UP][i % LANE_RUNS_UP * PER_QUAD] : 0;
	fold_threads(parts, all, lane);
	/* Parts of a sum that a thread has left are neighbours; then those of its neighbours in the tree. */
	const int held = all / shared_by(all), own = held < each ? held : each;
	UNROLL
	for (int k = 0; k < held / own; k++)
		sums[k] = fold_array(parts + k * own, own);
	UNROLL
	for (int h = shared_by(all) / 2; h >= n && own < each; h /= 2)
		sums[0] = sums[0] + shuffle_xor(sums[0], h);
}

/* Where the warps that share a row put their shares of sums over it: in shared memory, of every block of a cluster. It has two
 * sides, used by turns: who puts a share there has taken the sums of the round before, so all have taken those of the round
 * before that, which were on the same side. Blocks of a cluster send their shares; an mbarrier for each side counts them. */
enum {
	BOARD_SUMS = 2 * ROWS_AT_ONCE,
	FEW_UNITS = UNITS <= 16, /* every thread folds them; else a lane folds EACH neighbours, and shuffles the rest */
	EACH = UNITS <= 32 ? 1 : UNITS <= 64 ? 2 : UNITS <= 128 ? 4 : UNITS <= 256 ? 8 : 16,
	PLACES = PLACES_OF(UNITS), /* of a sum */
	BOARD = BOARD_NUMBERS_OF(UNITS, ROWS_AT_ONCE), /* numbers */
	BOARD_BYTES = BOARD_BYTES_OF(UNITS, ROWS_AT_ONCE, ROW_BLOCKS, (int)sizeof(real)),
	BOARDS_BYTES = BOARDS_BYTES_OF(BLOCK_ROWS, BOARD_BYTES) /* of a block */
};

struct board {
	real *numbers;
	int round; /* the next */
};

DEVICE real *side_of(const struct board *b, int round)
{
	return b->numbers + (round & 1) * BOARD_SUMS * PLACES;
}

DEVICE u64 *mbarrier_of(const struct board *b, int round)
{
	return (u64 *)(b->numbers + BOARD) + (round & 1);
}

/* Before the first round, by all threads. The blocks of a cluster wait for each other: their shared memory is there then. */
DEVICE struct board make_board(u8 *at)
{
	struct board b;
	b.numbers = (real *)at;
	b.round = 0;
	if (ROW_BLOCKS > 1) {
		if (thread_index() == 0) {
			mbarrier_make(mbarrier_of(&b, 0));
			mbarrier_make(mbarrier_of(&b, 1));
		}
		sync_cluster();
	}
	return b;
}

/* Opens a round of n sums. */
DEVICE void open_round(const struct board *b, int n)
{
	if (ROW_BLOCKS > 1 && thread_index() == 0)
		mbarrier_expect(mbarrier_of(b, b->round), n * UNITS * (int)sizeof(real));
}

/* A unit's share of sum k, by as many threads as there are blocks, each with its number. */
DEVICE void put_share(const struct board *b, int k, int unit, real share, int number)
{
	/* lanes read side by side */
	const int place = FEW_UNITS ? unit : unit % EACH * 32 + unit / EACH;
	real *to = side_of(b, b->round) + k * PLACES + place;
	if (ROW_BLOCKS > 1 && number < ROW_BLOCKS)
		send_real(to, number, share, mbarrier_of(b, b->round));
	if (ROW_BLOCKS == 1 && number == 0)
		*to = share;
}

/* The tree over the units' shares of a sum. */
DEVICE real fold_shares(const real *shares, int lane)
{
	real a[FEW_UNITS ? UNITS : EACH];
	UNROLL
	for (int i = 0; FEW_UNITS && i < UNITS; i++)
		a[FEW_UNITS ? i : 0] = shares[i];
	if (FEW_UNITS)
		return fold_array(a, UNITS);
	UNROLL
	for (int i = 0; i < EACH; i++)
		a[FEW_UNITS ? 0 : i] = lane * EACH + i < UNITS ? shares[i * 32 + lane] : 0;
	real sum = fold_array(a, EACH);
	UNROLL
	for (int h = 1; h < 32; h *= 2)
		sum = sum + shuffle_xor(sum, h);
	return sum;
}

/* The n sums of the round that was opened last, when all shares are there. */
DEVICE void take_sums(struct board *b, real *sums, int n, int group, int lane)
{
	if (ROW_BLOCKS > 1)
		mbarrier_wait(mbarrier_of(b, b->round), b->round >> 1);
	else if (BLOCK_ROWS > 1)
		sync_some(group + 1, 32 * ROW_WARPS);
	else
		sync_block();
	UNROLL
	for (int k = 0; k < n; k++)
		sums[k] = fold_shares(side_of(b, b->round) + k * PLACES, lane) + 0;
	b->round++;
}

/* n row sums over COLS, from lanes[sum][segment of the warp][THREAD_LANES], all closed; every thread of the row gets them.
 * own: those that fold_threads leaves to a thread, which divides no others. */
DEVICE void row_means(real (*lanes)[THREAD_LANES], real *means, real *own, int n, struct board *b, struct position p)
{
	fold_lanes(lanes, own, n, WARP_SEGMENTS, p.lane);
	if (UNITS > 1) {
		open_round(b, n);
		UNROLL
		for (int k = 0; k < n / shared_by(n); k++)
			put_share(b, first_held(n, p.lane) + k, p.unit, own[k], p.lane / shared_by(n));
		take_sums(b, means, n, p.group, p.lane);
		UNROLL
		for (int k = 0; k < n; k++)
			means[k] = own[k] = mean_of(means[k]);
		keep_own(own, n, p.lane);
		return;
	}
	UNROLL
	for (int k = 0; k < n / shared_by(n); k++)
		means[k] = own[k] = mean_of(own[k] + 0);
	spread_sums(means, n, p.lane);
}

/* ---- statistics: rules 3 and 4 ---- */

/* The rest of rule 4; HAS_WEIGHT and HAS_BIAS say which operands there are. */
#ifdef HAS_BIAS
DEVICE real affine(real xhat, real weight, real bias)
{
	if (HAS_WEIGHT && HAS_BIAS)
		return fma_real(xhat, weight, bias);
	return HAS_WEIGHT ? xhat * weight : HAS_BIAS ? xhat + bias : xhat;
}
#endif

/* Of several rows at once, a thread computes the statistics of OWN_ROWS, from the row on that own_row says. */
enum { OWN_ROWS = ROWS_AT_ONCE > ROW_THREADS ? ROWS_AT_ONCE / ROW_THREADS : 1 };

DEVICE int own_row(int lane)
{
	return first_held(ROWS_AT_ONCE, lane);
}

/* The means of squares and deviations of a thread's row k, from those that row_means left it. */
DEVICE void own_means(real *pair, const real *own, int k, int lane)
{
	const int apart = shared_by(ROWS_AT_ONCE * (1 + CENTRED)) > shared_by(ROWS_AT_ONCE);
	pair[0] = own[apart ? 0 : k * (1 + CENTRED)];
	if (CENTRED)
		pair[CENTRED] = own[apart ? 0 : 2 * k + 1];
	if (CENTRED && apart) { /* the thread with the other one */
		const int second = (lane & ROWS_AT_ONCE) != 0;
		real other = shuffle_xor(own[0], ROWS_AT_ONCE);
		pair[0] = second ? other : own[0];
		pair[CENTRED] = second ? own[0] : other;
	}
}

/* Every thread gets mean, rstd and shift of all rows. */
DEVICE void spread_statistics(struct statistics *s, const struct statistics *own, int lane)
{
	real mean[ROWS_AT_ONCE], rstd[ROWS_AT_ONCE], shift[ROWS_AT_ONCE];
	UNROLL
	for (int k = 0; k < OWN_ROWS; k++) {
		mean[k] = own[k].mean;
		rstd[k] = own[k].rstd;
		shift[k] = own[k].shift;
	}
	if (CENTRED)
		spread_sums(mean, ROWS_AT_ONCE, lane);
	spread_sums(rstd, ROWS_AT_ONCE, lane);
	if (CENTRED)
		spread_sums(shift, ROWS_AT_ONCE, lane);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		s[u].mean = CENTRED ? mean[u] : 0;
		s[u].rstd = rstd[u];
		s[u].shift = CENTRED ? shift[u] : 0;
	}
}

/* Of ROWS_AT_ONCE rows from their strips. own: of a thread's own rows, whole. */
DEVICE void row_statistics(held (*v)[QUADS], struct statistics *s, struct statistics *own, real eps, struct board *board,
			   struct position p)
{
	real lanes[ROWS_AT_ONCE * (1 + CENTRED) * WARP_SEGMENTS][THREAD_LANES];
	real m0[ROWS_AT_ONCE], own_m0[ROWS_AT_ONCE], means[BOARD_SUMS], own_of_row[BOARD_SUMS];
	real x[PER_QUAD];
	if (CENTRED) {
		UNROLL
		for (int u = 0; u < ROWS_AT_ONCE; u++) {
			UNROLL
			for (int j = 0; j < QUADS; j++) {
				real *terms = lanes[u * WARP_SEGMENTS + j / SEGMENT_QUADS];
				widen_held(v[u][j], x);
				UNROLL
				for (int e = 0; e < PER_QUAD; e++)
					ADD_TERM(terms, j % SEGMENT_QUADS, e, x[e]);
				if (j % SEGMENT_QUADS == SEGMENT_QUADS - 1)
					close_segment(terms);
			}
		}
		row_means(lanes, m0, own_m0, ROWS_AT_ONCE, board, p);
	}
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			const int in = j % SEGMENT_QUADS;
			/* of the squares, then, of LayerNorm, of the deviations */
			real *squares = lanes[u * (1 + CENTRED) * WARP_SEGMENTS + j / SEGMENT_QUADS];
			real *deviations = squares + CENTRED * WARP_SEGMENTS * THREAD_LANES;
			const int ends_here = TAIL_ELEMENTS != 0 && in == TAIL_QUAD;
			const real from = HAS_QUAD(p.first, j) ? m0[u] : 0; /* past the end of the row all is 0 */
			widen_held(v[u][j], x);
			UNROLL
			for (int e = 0; e < PER_QUAD; e++) {
				real d = x[e];
				if (CENTRED) {
					d = !ends_here || HAS_ELEMENT(p.first, j, e) ? d - from : 0;
					ADD_TERM(deviations, in, e, d);
				}
				ADD_PRODUCT(squares, in, e, d, d);
			}
			if (in == SEGMENT_QUADS - 1)
				close_segment(squares);
			if (CENTRED && in == SEGMENT_QUADS - 1)
				close_segment(deviations);
		}
	}
	row_means(lanes, means, own_of_row, ROWS_AT_ONCE * (1 + CENTRED), board, p);
	if (ROWS_AT_ONCE == 1) {
		s[0] = own[0] = statistics_of(m0[0], means, eps);
		return;
	}
	UNROLL
	for (int k = 0; k < OWN_ROWS; k++) {
		real pair[2];
		own_means(pair, own_of_row, k, p.lane);
		own[k] = statistics_of(own_m0[k], pair, eps);
	}
	spread_statistics(s, own, p.lane);
}
