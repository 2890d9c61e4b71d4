/* Row sums and statistics, rules 2 and 3 of docs/numerics.md, for the activations ACT, and what forward and backward
 * share. Included by cpu_kernels.inc.h.
 * Makes: N(stats), N(stats_from), N(xhat), N(affine), N(affine_of), N(add_first), N(add_moments), N(add_terms), and the constants
 * of the dtype, N(W) to N(FETCH_DX). SPDX-License-Identifier: MIT */

enum {
	N(W) = PASTE(ACT, WIDTH),
	N(STEP) = 2 * N(W), /* elements of two registers */
	N(BLOCK) = GROUP * N(W),
	N(BLOCKS) = PASTE(ACT, BLOCKS),
	N(LANE_REGS) = LANES / N(W), /* registers that hold a segment's lanes */
	/* Elements of 2 bytes are bound by instructions: forward takes their rows in pairs, which share the widening of
	 * weights. */
	N(HALF) = sizeof(T) == 2,
	/* Others are bound by memory: where a segment's lanes fit the registers, a row is summed as it lies in memory. */
	N(FUSED) = !N(HALF) && 2 * N(LANE_REGS) <= REGISTERS,
	/* A segment of the next rows is fetched in quarters, while as much is read of the rows at hand: by the first sum,
	 * by the moments, and by what writes; in backward by the sums and by what writes dx. */
	N(FETCH_FIRST) = N(HALF) || N(FUSED) ? 0 : 1,
	N(FETCH_SECOND) = 1,
	N(FETCH_WRITE) = 4 - N(FETCH_FIRST) - N(FETCH_SECOND),
	N(FETCH_SUMS) = 1,
	N(FETCH_DX) = 4 - N(FETCH_SUMS),
};

/* Statistics of a row, in the form that rule 4 uses: xhat = fma(x - mean, rstd, shift). RMSNorm has rstd; with a mean of 0 and
 * a shift of -0 the same formula gives its x * rstd, bit for bit. */
struct N(stats) {
	real mean, mean_lo, rstd, shift;
};

INLINE void N(set_shift)(struct N(stats) *stats)
{
	stats->shift = -(stats->mean_lo * stats->rstd);
}

/* Weight and bias; an absent one is two registers of ones or of -0, read again and again (mask 0). x_bias is read by
 * kernels for calls that have one. */
struct N(affine) {
	const TW *weight, *bias, *x_bias;
	int64_t weight_mask, bias_mask;
	ek_activation activation; /* of BESIDE_ACTIVATION */
};

INLINE struct N(affine) N(affine_of)(const void *weight, const void *bias)
{
	return (struct N(affine)){weight ? weight : PASTE(WEIGHT, ones), bias ? bias : PASTE(WEIGHT, minus_zeros), NULL,
				  weight ? -1 : 0, bias ? -1 : 0, EK_NO_ACTIVATION};
}

/* Rule 4. */
INLINE vec N(xhat)(vec x, const struct N(stats) *s, const bool centred)
{
	if (!centred)
		return V(mul)(x, V(splat)(s->rstd));
	return V(fma)(V(sub)(x, V(splat)(s->mean)), V(splat)(s->rstd), V(splat)(s->shift));
}

INLINE int64_t N(segment_length)(int64_t cols, int64_t start)
{
	return cols - start < SEGMENT ? cols - start : SEGMENT;
}

/* The first n (1 … STEP) elements of x + x_bias. */
INLINE void N(load_biased)(const T *x, const TW *x_bias, int n, vec d[2])
{
	vec b[2];
	if (n == N(STEP)) {
		A(load2)(x, d);
		C(load2)(x_bias, b);
	} else {
		A(load2_part)(x, n, d);
		b[0] = B(load_part)(x_bias, n < N(W) ? n : N(W));
		b[1] = n > N(W) ? B(load_part)(x_bias + N(W), n - N(W)) : V(splat)(0);
		A(in_order)(b);
	}
	UNROLL for (int k = 0; k < 2; k++)
		d[k] = V(add)(d[k], b[k]);
}

/* Adds the first n (1 … STEP) elements at x, or of x + x_bias, to two registers of lanes; a lane's first term starts it. */
INLINE void N(add_terms)(const enum sweep sweep, const bool biased, const T *x, const TW *x_bias, int n, vec m0,
			 const bool first, vec sum[2], vec squares[2])
{
	vec d[2];
	if (biased)
		N(load_biased)(x, x_bias, n, d);
	else if (n == N(STEP))
		A(load2)(x, d);
	else
		A(load2_part)(x, n, d);
	if (sweep == SWEEP_MOMENTS) {
		d[0] = V(sub)(d[0], m0);
		d[1] = V(sub)(d[1], m0);
		if (n != N(STEP))
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
INLINE void N(add_block)(const enum sweep sweep, const bool biased, const T *x, const TW *x_bias, int64_t n, vec m0,
			 struct fetch *ahead, vec sum[GROUP], vec squares[GROUP])
{
	const int quarters = sweep == SWEEP_SUM		? N(FETCH_FIRST)
			     : sweep == SWEEP_MOMENTS	? N(FETCH_SECOND)
							: N(FETCH_FIRST) + N(FETCH_SECOND);
	const int fetch = quarters * N(BLOCK) * (int)sizeof(T) / 4;
	int64_t at = 0;
	if (n >= N(BLOCK)) {
		fetch_ahead(ahead, fetch);
		UNROLL for (int v = 0; v < GROUP; v += 2)
			N(add_terms)(sweep, biased, x + v * N(W), x_bias + v * N(W), N(STEP), m0, true, sum + v, squares + v);
		at = LANES;
	} else {
		UNROLL for (int v = 0; v < GROUP; v++)
			sum[v] = squares[v] = V(splat)(0);
	}
	for (; at + N(BLOCK) <= n; at += LANES) {
		fetch_ahead(ahead, fetch);
		UNROLL for (int v = 0; v < GROUP; v += 2)
			N(add_terms)(sweep, biased, x + at + v * N(W), x_bias + at + v * N(W), N(STEP), m0, false, sum + v, squares + v);
	}
	UNROLL for (int v = 0; v < GROUP; v += 2) {
		int64_t left = n - at - v * N(W);
		if (left <= 0)
			break;
		if (left >= N(STEP))
			N(add_terms)(sweep, biased, x + at + v * N(W), x_bias + at + v * N(W), N(STEP), m0, false, sum + v, squares + v);
		else
			N(add_terms)(sweep, biased, x + at + v * N(W), x_bias + at + v * N(W), (int)left, m0, false, sum + v, squares + v);
	}
}

/* The segment of n elements at x, block by block of its lanes, GROUP registers wide; a lane's four terms lie LANES
 * elements apart. */
INLINE void N(add_segment)(const enum sweep sweep, const bool biased, const T *x, const TW *x_bias, int64_t n, real m0,
			   struct fetch ahead, struct V(tree) *sum, struct V(tree) *squares)
{
	vec s[N(BLOCKS)], q[N(BLOCKS)], m = V(splat)(m0);
	UNROLL_BLOCKS for (int block = 0; block < N(BLOCKS); block++) {
		int64_t at = (int64_t)block * N(BLOCK);
		vec lanes[GROUP], squared[GROUP];
		s[block] = q[block] = V(splat)(0);
		if (at >= n) /* a narrow row */
			continue;
		N(add_block)(sweep, biased, x + at, x_bias + at, n - at, m, &ahead, lanes, squared);
		if (sweep != SWEEP_SQUARES)
			s[block] = A(narrow)(lanes);
		if (sweep != SWEEP_SUM)
			q[block] = A(narrow)(squared);
	}
	if (sweep != SWEEP_SQUARES)
		V(tree_add)(sum, A(sum)(s));
	if (sweep != SWEEP_SUM)
		V(tree_add)(squares, A(sum)(q));
}

/* Absent: what x_bias is where it is not read. */
#define NO_X_BIAS PASTE(WEIGHT, minus_zeros)

OUTLINE void N(add_sum)(const T *x, int64_t n, struct fetch ahead, struct V(tree) *sum)
{
	N(add_segment)(SWEEP_SUM, false, x, NO_X_BIAS, n, 0, ahead, sum, NULL);
}

OUTLINE void N(add_sum_biased)(const T *x, const TW *x_bias, int64_t n, struct fetch ahead, struct V(tree) *sum)
{
	N(add_segment)(SWEEP_SUM, true, x, x_bias, n, 0, ahead, sum, NULL);
}

OUTLINE void N(add_squares)(const T *x, int64_t n, struct fetch ahead, struct V(tree) *squares)
{
	N(add_segment)(SWEEP_SQUARES, false, x, NO_X_BIAS, n, 0, ahead, NULL, squares);
}

OUTLINE void N(add_squares_biased)(const T *x, const TW *x_bias, int64_t n, struct fetch ahead, struct V(tree) *squares)
{
	N(add_segment)(SWEEP_SQUARES, true, x, x_bias, n, 0, ahead, NULL, squares);
}

OUTLINE void N(add_moments)(const T *x, int64_t n, real m0, struct fetch ahead, struct V(tree) *sum,
			    struct V(tree) *squares)
{
	N(add_segment)(SWEEP_MOMENTS, false, x, NO_X_BIAS, n, m0, ahead, sum, squares);
}

OUTLINE void N(add_moments_biased)(const T *x, const TW *x_bias, int64_t n, real m0, struct fetch ahead,
				   struct V(tree) *sum, struct V(tree) *squares)
{
	N(add_segment)(SWEEP_MOMENTS, true, x, x_bias, n, m0, ahead, sum, squares);
}
#undef NO_X_BIAS

/* The first sum of a segment, of x or for RMSNorm of its squares; x_bias: of its columns, or NULL; next: the same of the
 * row that is fetched meanwhile, or NULL. */
INLINE void N(add_first)(const T *x, const TW *x_bias, int64_t n, const T *next, struct V(tree) *sum, const bool centred)
{
	if (x_bias)
		(centred ? N(add_sum_biased) : N(add_squares_biased))(x, x_bias, n, fetch_from(next, x), sum);
	else
		(centred ? N(add_sum) : N(add_squares))(x, n, fetch_from(next, x), sum);
}

/* The end of rule 3: from m0 and the sums of d and d * d. */
INLINE void N(finish_moments)(struct N(stats) *stats, real m0, real s, real q, int64_t cols, real eps)
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
	stats->shift = -(real)0;
	stats->rstd = 1 / V(sqrt1)(q / (real)cols + eps);
}

/* All of rule 3 for a row whose first sum, of x or for RMSNorm of x * x, is known; x_bias: or NULL; next: the row that is
 * fetched meanwhile, or NULL. */
INLINE struct N(stats) N(stats_from)(const T *x, const TW *x_bias, int64_t cols, real eps, real first_sum, const T *next,
				     const bool centred)
{
	struct N(stats) stats = {0};
	if (!centred) {
		N(finish_rms)(&stats, first_sum, cols, eps);
		return stats;
	}
	real m0 = first_sum / (real)cols;
	struct V(tree) sum = {.count = 0}, squares = {.count = 0};
	for (int64_t start = 0; start < cols; start += SEGMENT) {
		int64_t n = N(segment_length)(cols, start), at = start + n * N(FETCH_FIRST) / 4;
		const struct fetch ahead = fetch_from(next ? next + at : NULL, x);
		if (x_bias)
			N(add_moments_biased)(x + start, x_bias + start, n, m0, ahead, &sum, &squares);
		else
			N(add_moments)(x + start, n, m0, ahead, &sum, &squares);
	}
	N(finish_moments)(&stats, m0, V(tree_sum)(&sum), V(tree_sum)(&squares), cols, eps);
	return stats;
}
