/* The row sum of rule 2 of docs/numerics.md over one segment of real numbers, in registers. Included by CPU kernels with the words of
 * level.inc.h and N(W). Makes: N(term), N(segment_sums). SPDX-License-Identifier: MIT */

/* What is summed: u, u * v, or both u - m and (u - m)^2. */
enum N(term) { N(OF_U), N(OF_PRODUCT), N(OF_MOMENTS) };

/* Adds the first n (1 … W) terms at u to the lanes; lanes beyond stay. */
INLINE void N(add_term)(const enum N(term) term, const real *u, const real *v, vec m, int n, vec *sum,
			vec *squares)
{
	vec a = n == N(W) ? V(load)(u) : V(load_part)(u, n);
	if (term == N(OF_PRODUCT)) {
		*sum = V(fma)(a, n == N(W) ? V(load)(v) : V(load_part)(v, n), *sum);
		return;
	}
	if (term == N(OF_MOMENTS)) {
		a = V(sub)(a, m);
		if (n != N(W))
			a = V(first)(a, n);
		*squares = V(fma)(a, a, *squares);
	}
	*sum = V(add)(*sum, a);
}

/* The lanes of a block, GROUP registers wide, of n numbers from `at` on; the terms of a lane lie LANES apart. */
INLINE void N(add_block)(const enum N(term) term, const real *u, const real *v, vec m, int64_t at, int64_t n,
			 vec sum[GROUP], vec squares[GROUP])
{
	UNROLL for (int k = 0; k < GROUP; k++) sum[k] = squares[k] = V(splat)(0);
	if (at + GROUP * N(W) <= n && n <= LANES) { /* most heads: a term each */
		UNROLL for (int k = 0; k < GROUP; k++) N(add_term)(term, u + at + k * N(W), v + at + k * N(W),
								   m, N(W), &sum[k], &squares[k]);
		return;
	}
	UNROLL for (int k = 0; k < GROUP; k++) for (int64_t i = at + k * N(W); i < n; i += LANES)
		N(add_term)(term, u + i, v + i, m, (int)smaller(N(W), n - i), &sum[k], &squares[k]);
}

/* Of n numbers, at most SEGMENT; *of_squares with OF_MOMENTS alone. */
INLINE real N(segment_sums)(const enum N(term) term, const real *u, const real *v, real mean, int64_t n,
			    real *of_squares)
{
	enum { BLOCK = GROUP * N(W), BLOCKS = PASTE(ACT, BLOCKS) };
	const vec m = V(splat)(mean);
	vec sums[BLOCKS], square_sums[BLOCKS];
	UNROLL_BLOCKS for (int block = 0; block < BLOCKS; block++)
	{
		vec sum[GROUP], squares[GROUP];
		sums[block] = square_sums[block] = V(splat)(0);
		if (block * BLOCK >= n)
			continue;
		N(add_block)(term, u, v, m, block * BLOCK, n, sum, squares);
		sums[block] = V(narrow)(sum);
		if (term == N(OF_MOMENTS))
			square_sums[block] = V(narrow)(squares);
	}
	if (term == N(OF_MOMENTS))
		*of_squares = V(sum)(square_sums) + 0;
	return V(sum)(sums) + 0; /* -0 never leaves a sum */
}
