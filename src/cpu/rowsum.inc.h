/* The row sum of rule 2 of docs/numerics.md over one segment of real numbers, in registers. Included by CPU kernels with the words of
 * level.inc.h and N(W). Makes: N(term), N(segment_sum). SPDX-License-Identifier: MIT */

/* What is summed: u, u - m, (u - m)^2, u * v. */
enum N(term) { N(OF_U), N(OF_DEVIATION), N(OF_SQUARE), N(OF_PRODUCT) };

/* Adds the first n (1 … W) terms at u to the lanes; lanes beyond stay. */
INLINE vec N(add_term)(const enum N(term) term, const real *u, const real *v, vec m, int n, vec lane)
{
	vec a = n == N(W) ? V(load)(u) : V(load_part)(u, n);
	if (term == N(OF_DEVIATION) || term == N(OF_SQUARE)) {
		a = V(sub)(a, m);
		if (n != N(W))
			a = V(first)(a, n);
	}
	if (term == N(OF_PRODUCT))
		return V(fma)(a, n == N(W) ? V(load)(v) : V(load_part)(v, n), lane);
	return term == N(OF_SQUARE) ? V(fma)(a, a, lane) : V(add)(lane, a);
}

/* Of n numbers, at most SEGMENT. A block of lanes is GROUP registers wide; the terms of a lane lie LANES apart. */
INLINE real N(segment_sum)(const enum N(term) term, const real *u, const real *v, real mean, int64_t n)
{
	enum { BLOCK = GROUP * N(W), BLOCKS = PASTE(ACT, BLOCKS) };
	const vec m = V(splat)(mean);
	vec blocks[BLOCKS];
	UNROLL_BLOCKS for (int block = 0; block < BLOCKS; block++) {
		vec lanes[GROUP];
		blocks[block] = V(splat)(0);
		if (block * BLOCK >= n)
			continue;
		UNROLL for (int k = 0; k < GROUP; k++) {
			lanes[k] = V(splat)(0);
			for (int64_t i = block * BLOCK + k * N(W); i < n; i += LANES)
				lanes[k] = N(add_term)(term, u + i, v + i, m, (int)smaller(N(W), n - i), lanes[k]);
		}
		blocks[block] = V(narrow)(lanes);
	}
	return V(sum)(blocks) + 0; /* -0 never leaves a sum */
}
