/* Row sums and statistics, rules 2 and 3 of docs/numerics.md, for the activations ACT. A segment is taken
 * in blocks of neighbouring lanes, GROUP registers wide; a lane's four terms lie LANES elements apart.
 * Included by norm_kernels.inc.h. SPDX-License-Identifier: MIT */

enum { N(W) = PASTE(ACT, WIDTH), N(BLOCK) = GROUP * PASTE(ACT, WIDTH), N(BLOCKS) = PASTE(ACT, BLOCKS) };

/* Statistics of a row, in the form that rule 4 uses: xhat = fma(x - mean, rstd, shift); RMSNorm has rstd alone. */
struct N(stats) {
	real mean, mean_lo, rstd, shift;
};

INLINE void N(set_shift)(struct N(stats) *stats)
{
	stats->shift = -(stats->mean_lo * stats->rstd);
}

/* Adds the first n (1 … 2 W) elements at x to two registers of lanes; a lane's first term starts it. */
INLINE void N(add_terms)(const enum sweep sweep, const T *x, int n, vec m0, const bool first, vec sum[2],
			 vec squares[2])
{
	vec d[2];
	if (n == 2 * N(W))
		A(load2)(x, d);
	else
		A(load2_part)(x, n, d);
	if (sweep == SWEEP_MOMENTS) {
		d[0] = V(sub)(d[0], m0);
		d[1] = V(sub)(d[1], m0);
		if (n != 2 * N(W))
			A(first2)(d, n);
	}
	UNROLL for (int i = 0; i < 2; i++) {
		if (sweep != SWEEP_SQUARES)
			sum[i] = first ? d[i] : V(add)(sum[i], d[i]);
		if (sweep != SWEEP_SUM)
			squares[i] = first ? V(mul)(d[i], d[i]) : V(fma)(d[i], d[i], squares[i]);
	}
}

/* The block of lanes at x; n elements are left in the segment from there. */
INLINE void N(add_block)(const enum sweep sweep, const T *x, int64_t n, vec m0, struct fetch *ahead, vec sum[GROUP],
			 vec squares[GROUP])
{
	/* A quarter of what it reads in either sweep of LayerNorm, half in RMSNorm's one; the rest goes with the
	 * step that writes. */
	const int bytes = (sweep == SWEEP_SQUARES ? 2 : 1) * N(BLOCK) * (int)sizeof(T);
	const int lines_in_step = bytes / 4 / LINE;
	int64_t at = 0;
	if (lines_in_step == 0)
		fetch_ahead(ahead, bytes);
	if (n >= N(BLOCK)) {
		if (lines_in_step)
			fetch_ahead(ahead, lines_in_step * LINE);
		UNROLL for (int v = 0; v < GROUP; v += 2)
			N(add_terms)(sweep, x + v * N(W), 2 * N(W), m0, true, sum + v, squares + v);
		at = LANES;
	} else {
		UNROLL for (int v = 0; v < GROUP; v++)
			sum[v] = squares[v] = V(splat)(0);
	}
	for (; at + N(BLOCK) <= n; at += LANES) {
		if (lines_in_step)
			fetch_ahead(ahead, lines_in_step * LINE);
		UNROLL for (int v = 0; v < GROUP; v += 2)
			N(add_terms)(sweep, x + at + v * N(W), 2 * N(W), m0, false, sum + v, squares + v);
	}
	UNROLL for (int v = 0; v < GROUP; v += 2) {
		int64_t left = n - at - v * N(W);
		if (left <= 0)
			break;
		if (left >= 2 * N(W))
			N(add_terms)(sweep, x + at + v * N(W), 2 * N(W), m0, false, sum + v, squares + v);
		else
			N(add_terms)(sweep, x + at + v * N(W), (int)left, m0, false, sum + v, squares + v);
	}
}

/* The segment of n elements at x: its sum goes to *sum, that of squares to *squares. */
INLINE void N(add_segment)(const enum sweep sweep, const T *x, int64_t n, real m0, struct fetch *ahead, real *sum,
			   real *squares)
{
	vec s[N(BLOCKS)], q[N(BLOCKS)], m = V(splat)(m0);
	struct fetch fetch = *ahead;
	UNROLL_BLOCKS for (int block = 0; block < N(BLOCKS); block++) {
		int64_t at = (int64_t)block * N(BLOCK);
		vec lanes[GROUP], squared[GROUP];
		N(add_block)(sweep, x + at, n - at, m, &fetch, lanes, squared);
		if (sweep != SWEEP_SQUARES)
			s[block] = A(narrow)(lanes);
		if (sweep != SWEEP_SUM)
			q[block] = A(narrow)(squared);
	}
	if (sweep != SWEEP_SQUARES)
		*sum = A(sum)(s);
	if (sweep != SWEEP_SUM)
		*squares = A(sum)(q);
	*ahead = fetch;
}

#define SEGMENT_SWEEP(name, sweep)                                                                     \
	OUTLINE void N(name)(const T *x, int64_t n, real m0, struct fetch *ahead, real *sum, real *squares) \
	{                                                                                                  \
		N(add_segment)(sweep, x, n, m0, ahead, sum, squares);                                          \
	}
SEGMENT_SWEEP(segment_sum, SWEEP_SUM)
SEGMENT_SWEEP(segment_moments, SWEEP_MOMENTS)
SEGMENT_SWEEP(segment_squares, SWEEP_SQUARES)
#undef SEGMENT_SWEEP

INLINE int64_t N(segment_length)(int64_t cols, int64_t start)
{
	return cols - start < SEGMENT ? cols - start : SEGMENT;
}

/* The end of rule 3. */
INLINE void N(finish_stats)(struct N(stats) *stats, real m0, real s, real q, int64_t cols, real eps)
{
	real n = (real)cols, c = s / n;
	stats->mean = m0 + c;
	stats->mean_lo = (m0 - stats->mean) + c;
	real v = V(fma1)(-c, c, q / n);
	stats->rstd = 1 / V(sqrt1)((v < 0 ? 0 : v) + eps);
	N(set_shift)(stats);
}

INLINE void N(finish_rms)(struct N(stats) *stats, real q, int64_t cols, real eps)
{
	stats->mean = stats->mean_lo = 0;
	stats->rstd = 1 / V(sqrt1)(q / (real)cols + eps);
}

/* Sums over whole rows, `count` of them (1 or 2); the divisions come last, so that the rows' overlap. */
OUTLINE void N(row_sums)(const enum sweep sweep, const T *const x[2], int count, int64_t cols, const real m0[2],
			struct fetch *ahead, real sum[2], real squares[2])
{
	for (int k = 0; k < count; k++) {
		struct V(tree) s, q;
		s.count = q.count = 0;
		for (int64_t start = 0; start < cols; start += SEGMENT) {
			int64_t n = N(segment_length)(cols, start);
			real part_s = 0, part_q = 0;
			if (ahead->cold)
				fetch_lines(x[k] + start, n * (int64_t)sizeof(T));
			if (sweep == SWEEP_SUM)
				N(segment_sum)(x[k] + start, n, 0, ahead, &part_s, &part_q);
			else if (sweep == SWEEP_MOMENTS)
				N(segment_moments)(x[k] + start, n, m0[k], ahead, &part_s, &part_q);
			else
				N(segment_squares)(x[k] + start, n, 0, ahead, &part_s, &part_q);
			V(tree_add)(&s, part_s);
			V(tree_add)(&q, part_q);
		}
		sum[k] = V(tree_sum)(&s);
		squares[k] = V(tree_sum)(&q);
	}
}

/* What can be known of the statistics from x alone: m0, into mean; for RMSNorm all. */
INLINE void N(first_sweep)(const T *const x[2], int count, int64_t cols, real eps, struct fetch *ahead,
			   struct N(stats) *stats[2], const bool centred)
{
	real sum[2], squares[2];
	N(row_sums)(centred ? SWEEP_SUM : SWEEP_SQUARES, x, count, cols, NULL, ahead, sum, squares);
	for (int k = 0; k < count; k++)
		if (centred)
			stats[k]->mean = sum[k] / (real)cols;
		else
			N(finish_rms)(stats[k], squares[k], cols, eps);
}

/* The rest of LayerNorm's statistics, from m0 in mean. */
INLINE void N(second_sweep)(const T *const x[2], int count, int64_t cols, real eps, struct fetch *ahead,
			    struct N(stats) *stats[2])
{
	real m0[2] = {stats[0]->mean, stats[count - 1]->mean}, sum[2], squares[2];
	N(row_sums)(SWEEP_MOMENTS, x, count, cols, m0, ahead, sum, squares);
	for (int k = 0; k < count; k++)
		N(finish_stats)(stats[k], m0[k], sum[k], squares[k], cols, eps);
}

/* Weight and bias; an absent one is a register of ones or of -0, read again and again (mask 0). */
struct N(affine) {
	const TW *weight, *bias;
	int64_t weight_mask, bias_mask;
};

INLINE struct N(affine) N(affine_of)(const void *weight, const void *bias)
{
	return (struct N(affine)){weight ? weight : PASTE(WEIGHT, ones), bias ? bias : PASTE(WEIGHT, minus_zeros),
				  weight ? -1 : 0, bias ? -1 : 0};
}

/* Rule 4. */
INLINE vec N(xhat)(vec x, const struct N(stats) *s, const bool centred)
{
	if (!centred)
		return V(mul)(x, V(splat)(s->rstd));
	return V(fma)(V(sub)(x, V(splat)(s->mean)), V(splat)(s->rstd), V(splat)(s->shift));
}
