/* The row sum of rule 2 of docs/numerics.md over one segment, in registers. Included by CPU kernels with the words of level.inc.h,
 * N(W), N(STEP) and those of steps.inc.h. Makes: N(term), N(segment_sums). SPDX-License-Identifier: MIT */

/* What is summed: u, u * v, or both u - m and (u - m)^2. */
enum N(term) { N(OF_U), N(OF_PRODUCT), N(OF_MOMENTS) };

/* What is summed of n terms, at most SEGMENT: elements of a dtype, which lie in the order of another dtype's load2. */
struct N(terms) {
	int dtype, order;
	const void *u, *v;
	vec m;
	int64_t n;
};

/* Adds the first n (1 … STEP) terms from `at` on to two registers of lanes; lanes beyond stay. fresh: lanes are at +0. */
INLINE void N(add_step)(const enum N(term) term, const struct N(terms) * t, int64_t at, int n,
			const bool fresh, vec sum[2], vec squares[2])
{
	vec a[2], b[2];
	N(load2)(t->dtype, t->u, at, n, a);
	if (term == N(OF_PRODUCT)) {
		N(load2)(t->dtype, t->v, at, n, b);
		UNROLL for (int k = 0; k < 2; k++) sum[k] =
			fresh ? V(mul)(a[k], b[k]) : V(fma)(a[k], b[k], sum[k]);
		return;
	}
	if (term == N(OF_MOMENTS)) {
		UNROLL for (int k = 0; k < 2; k++) a[k] = V(sub)(a[k], t->m);
		if (n != N(STEP))
			N(first2)(t->dtype, a, n);
		UNROLL for (int k = 0; k < 2; k++) squares[k] = V(fma)(a[k], a[k], squares[k]);
	}
	UNROLL for (int k = 0; k < 2; k++) sum[k] = fresh ? a[k] : V(add)(sum[k], a[k]);
}

/* The lanes of a block, GROUP registers wide, from `at` on; the terms of a lane lie LANES apart. */
INLINE void N(add_block)(const enum N(term) term, const struct N(terms) * t, int64_t at, vec sum[GROUP],
			 vec squares[GROUP])
{
	enum { BLOCK = GROUP * N(W) };
	UNROLL for (int k = 0; k < GROUP; k++) sum[k] = squares[k] = V(splat)(0);
	if ((t->n % BLOCK == 0 || at + BLOCK <= t->n) && t->n <= LANES) { /* most heads: a term each */
		UNROLL for (int k = 0; k < GROUP; k += 2)
			N(add_step)(term, t, at + k * N(W), N(STEP), true, sum + k, squares + k);
		return;
	}
	UNROLL for (int k = 0; k < GROUP; k += 2) for (int64_t i = at + k * N(W); i < t->n; i += LANES)
		N(add_step)(term, t, i, (int)smaller(N(STEP), t->n - i), false, sum + k, squares + k);
}

/* *of_squares with OF_MOMENTS alone. */
INLINE real N(segment_sums)(const enum N(term) term, const struct N(terms) * t, real *of_squares)
{
	enum { BLOCK = GROUP * N(W), BLOCKS = PASTE(ACT, BLOCKS) };
	vec sums[BLOCKS], square_sums[BLOCKS];
	UNROLL_BLOCKS for (int block = 0; block < BLOCKS; block++)
	{
		vec sum[GROUP], squares[GROUP];
		sums[block] = square_sums[block] = V(splat)(0);
		if (block * BLOCK >= t->n)
			continue;
		N(add_block)(term, t, block * BLOCK, sum, squares);
		sums[block] = N(fold)(t->order, sum);
		if (term == N(OF_MOMENTS))
			square_sums[block] = N(fold)(t->order, squares);
	}
	if (term == N(OF_MOMENTS))
		*of_squares = N(fold_blocks)(t->order, square_sums) + 0;
	return N(fold_blocks)(t->order, sums) + 0; /* -0 never leaves a sum */
}
