/* What the norm kernels share, second part: sums over a row in the order of the contract (docs/numerics.md, rule 2), and
 * what is made of them (rules 3 to 5). Placed between norm_rows.cu, which has the constants, and a kernel.
 * SPDX-License-Identifier: MIT */

/* ---- sums over a row ---- */

/* Adds the terms of quad j to the lanes; the first term of a lane is where it starts. */
#define LANE(j, e) ((j) % GROUPS_OF_LANES * PER_QUAD + (e))
#define ADD_TERM(lanes, j, e, term) \
	((lanes)[LANE(j, e)] = (j) < GROUPS_OF_LANES ? (term) : (lanes)[LANE(j, e)] + (term))
#define ADD_PRODUCT(lanes, j, e, a, b) \
	((lanes)[LANE(j, e)] = (j) < GROUPS_OF_LANES ? (a) * (b) : fma_real(a, b, (lanes)[LANE(j, e)]))

/* The tree over n neighbours, n a constant. */
DEVICE real fold_array(real *a, int n)
{
	UNROLL
	for (int h = 1; h < n; h *= 2) {
		UNROLL
		for (int i = 0; i + h < n; i += 2 * h)
			a[i] = a[i] + a[i + h];
	}
	return a[0];
}

/* n sums over the lanes of a segment, each from LANES numbers a thread; every thread gets them. */
DEVICE void fold_lanes(real (*lanes)[LANES], real *sums, int n, int lane)
{
	if (GROUPS == 2) {
		/* Even threads go on with the first group, odd ones with the second: the steps of one. */
		int odd = lane & 1;
		UNROLL
		for (int k = 0; k < n; k++) {
			real low = fold_array(lanes[k], PER_QUAD);
			real high = fold_array(lanes[k] + PER_QUAD % LANES, PER_QUAD);
			real given = shuffle_xor(odd ? low : high, 1);
			sums[k] = (odd ? high : low) + given;
		}
		UNROLL
		for (int h = 2; h < 32; h *= 2) {
			UNROLL
			for (int k = 0; k < n; k++)
				sums[k] = sums[k] + shuffle_xor(sums[k], h);
		}
		UNROLL
		for (int k = 0; k < n; k++)
			sums[k] = sums[k] + shuffle_xor(sums[k], 1);
		return;
	}
	real groups[GROUPS];
	UNROLL
	for (int k = 0; k < n; k++) {
		UNROLL
		for (int g = 0; g < GROUPS; g++) {
			groups[g] = fold_array(lanes[k] + g * PER_QUAD, PER_QUAD);
			UNROLL
			for (int h = 1; GROUPS > 1 && h < 32; h *= 2)
				groups[g] = groups[g] + shuffle_xor(groups[g], h);
		}
		sums[k] = fold_array(groups, GROUPS);
	}
	UNROLL
	for (int h = 1; GROUPS == 1 && h < ROW_THREADS; h *= 2) {
		UNROLL
		for (int k = 0; k < n; k++)
			sums[k] = sums[k] + shuffle_xor(sums[k], h);
	}
}

/* The tree over the units of a row, which lie on a board in shared memory. */
DEVICE real fold_board(const real *board, int lane)
{
	enum {
		FEW = UNITS <= 16,
		EACH = UNITS <= 32 ? 1 : UNITS <= 64 ? 2 : UNITS <= 128 ? 4 : UNITS <= 256 ? 8 : 16
	};
	real a[FEW ? UNITS : EACH];
	if (FEW) {
		UNROLL
		for (int i = 0; i < UNITS; i++)
			a[FEW ? i : 0] = board[i];
		return fold_array(a, UNITS);
	}
	UNROLL
	for (int i = 0; i < EACH; i++)
		a[i] = lane * EACH + i < UNITS ? board[lane * EACH + i] : 0;
	real sum = fold_array(a, EACH);
	UNROLL
	for (int h = 1; h < 32; h *= 2)
		sum = sum + shuffle_xor(sum, h);
	return sum;
}

enum { BOARD_SUMS = 2 * ROWS_AT_ONCE, BOARD = UNITS == 1 ? 0 : 2 * BOARD_SUMS * UNITS }; /* numbers a row needs in shared memory */

/* A unit's share of sum k goes on the board, of every block that shares the row. */
DEVICE void put_on_board(real *side, int k, int unit, real share, int lane)
{
	if (ROW_BLOCKS > 1 && lane < ROW_BLOCKS)
		put_real(side + k * UNITS + unit, lane, share);
	if (ROW_BLOCKS == 1 && lane == 0)
		side[k * UNITS + unit] = share;
}

/* All that share a row. */
DEVICE void meet(int group)
{
	if (ROW_BLOCKS > 1)
		sync_cluster();
	else if (BLOCK_ROWS > 1)
		sync_some(group + 1, 32 * ROW_WARPS);
	else
		sync_block();
}

/* n row sums from lanes[sum][segment][LANES]; every thread of the row gets them. The board has two sides, used
 * by turns: one meeting is enough before it is written again. */
DEVICE void row_sums(real (*lanes)[LANES], real *sums, int n, real *board, int *turn, struct place p)
{
	real parts[BOARD_SUMS * WARP_SEGMENTS];
	fold_lanes(lanes, parts, n * WARP_SEGMENTS, p.lane);
	UNROLL
	for (int k = 0; k < n; k++)
		sums[k] = fold_array(parts + k * WARP_SEGMENTS, WARP_SEGMENTS);
	if (UNITS > 1) {
		real *side = board + *turn * BOARD_SUMS * UNITS;
		*turn ^= 1;
		UNROLL
		for (int k = 0; k < n; k++)
			put_on_board(side, k, p.unit, sums[k], p.lane);
		meet(p.group);
		UNROLL
		for (int k = 0; k < n; k++)
			sums[k] = fold_board(side + k * UNITS, p.lane);
	}
	UNROLL
	for (int k = 0; k < n; k++)
		sums[k] = sums[k] + 0;
}

/* ---- statistics: rules 3 and 4 ---- */

struct statistics {
	real mean, mean_lo, rstd;
	real shift; /* -(mean_lo * rstd) */
};

DEVICE void finish_statistics(struct statistics *s)
{
	s->shift = -(s->mean_lo * s->rstd);
}

DEVICE real xhat_of(real x, struct statistics s)
{
	return CENTRED ? fma_real(x - s.mean, s.rstd, s.shift) : x * s.rstd;
}

/* Rule 5. */
DEVICE real dx_of(real xhat, real g, real mean_gx, real mean_g, real rstd)
{
	return CENTRED ? (g - fma_real(xhat, mean_gx, mean_g)) * rstd : fma_real(-xhat, mean_gx, g) * rstd;
}

/* The rest of rule 4; HAS_WEIGHT and HAS_BIAS say which operands there are. */
#ifdef HAS_BIAS
DEVICE real affine(real xhat, real weight, real bias)
{
	if (HAS_WEIGHT && HAS_BIAS)
		return fma_real(xhat, weight, bias);
	return HAS_WEIGHT ? xhat * weight : HAS_BIAS ? xhat + bias : xhat;
}
#endif

/* From m0 and the sums of squares and, of LayerNorm, of deviations from m0. */
DEVICE struct statistics statistics_of(real m0, const real *sums, real eps)
{
	struct statistics s;
	s.mean = s.mean_lo = 0;
	real var = mean_of(sums[0]);
	if (CENTRED) {
		real c = mean_of(sums[CENTRED]);
		s.mean = m0 + c;
		s.mean_lo = (m0 - s.mean) + c;
		real v = fma_real(-c, c, var);
		var = v < 0 ? 0 : v;
	}
	s.rstd = 1 / sqrt_real(var + eps);
	finish_statistics(&s);
	return s;
}

/* Of ROWS_AT_ONCE rows from their quads. */
DEVICE void row_statistics(quad (*v)[HELD], struct statistics *s, real eps, real *board, int *turn,
			   struct place p)
{
	real lanes[ROWS_AT_ONCE * (CENTRED ? 2 : 1) * WARP_SEGMENTS][LANES];
	real m0[ROWS_AT_ONCE], sums[ROWS_AT_ONCE * 2];
	real x[PER_QUAD];
	if (CENTRED) {
		UNROLL
		for (int u = 0; u < ROWS_AT_ONCE; u++) {
			UNROLL
			for (int j = 0; j < QUADS; j++) {
				widen(v[u][j], x);
				UNROLL
				for (int e = 0; e < PER_QUAD; e++)
					ADD_TERM(lanes[u * WARP_SEGMENTS + j / SEGMENT_QUADS],
						 j % SEGMENT_QUADS, e, x[e]);
			}
		}
		row_sums(lanes, m0, ROWS_AT_ONCE, board, turn, p);
		UNROLL
		for (int u = 0; u < ROWS_AT_ONCE; u++)
			m0[u] = mean_of(m0[u]);
	}
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++) {
		/* squares, then, of LayerNorm, deviations */
		real(*squares)[LANES] = lanes + u * (CENTRED ? 2 : 1) * WARP_SEGMENTS;
		UNROLL
		for (int j = 0; j < QUADS; j++) {
			int segment = j / SEGMENT_QUADS, in = j % SEGMENT_QUADS;
			widen(v[u][j], x);
			UNROLL
			for (int e = 0; e < PER_QUAD; e++) {
				real d = x[e];
				if (CENTRED) {
					d = HAS_ELEMENT(p.first, j, e) ? d - m0[u] : 0;
					ADD_TERM(squares[segment + WARP_SEGMENTS], in, e, d);
				}
				ADD_PRODUCT(squares[segment], in, e, d, d);
			}
		}
	}
	row_sums(lanes, sums, ROWS_AT_ONCE * (CENTRED ? 2 : 1), board, turn, p);
	UNROLL
	for (int u = 0; u < ROWS_AT_ONCE; u++)
		s[u] = statistics_of(m0[u], sums + u * (CENTRED ? 2 : 1), eps);
}
