/* Sums over a row that is shared by neighbouring threads, in the order of rule 2 of docs/numerics.md, and what is made of them by
 * rules 3 to 5, for the kernels of every op. Placed after elements.cu and division.cu. Constants:
 *   ROW_THREADS    threads of a warp that share a row, a power of two
 *   SIDE_BY_SIDE   n sums are shared by no more than n / SIDE_BY_SIDE threads
 *   CENTRED        1 LayerNorm, 0 RMSNorm
 * SPDX-License-Identifier: MIT */

/* The tree over the threads of a row takes n sums at once, n a power of two. In a step two threads share what they have: one goes
 * on with the first half of the sums, the other, whose number has the step's bit, with the second. So n sums take few more
 * shuffles than one. */

/* Among how many threads n sums are shared: a power of two, and no more than a row has. */
DEVICE int shared_by(int n)
{
	const int most = n > SIDE_BY_SIDE ? n / SIDE_BY_SIDE : 1;
	return most < ROW_THREADS ? most : ROW_THREADS;
}

/* The step between threads whose numbers differ in bit h. */
DEVICE void fold_step(real *sums, int n, int h, int lane)
{
	const int second = (lane & h) != 0, shared = h < shared_by(n);
	const int held = shared ? n / (2 * h) : n / shared_by(n);
	UNROLL
	for (int k = 0; h < ROW_THREADS && k < held; k++) {
		real kept = shared && second ? sums[k + held] : sums[k];
		real given = shared && !second ? sums[k + held] : sums[k];
		sums[k] = kept + shuffle_xor(given, h);
	}
}

/* Leaves each thread with n / shared_by(n) sums. */
DEVICE void fold_threads(real *sums, int n, int lane)
{
	fold_step(sums, n, 1, lane);
	fold_step(sums, n, 2, lane);
	fold_step(sums, n, 4, lane);
	fold_step(sums, n, 8, lane);
	fold_step(sums, n, 16, lane);
}

/* The number of the first of them. */
DEVICE int first_held(int n, int lane)
{
	int number = 0;
	UNROLL
	for (int h = 1; h < shared_by(n); h *= 2)
		number += (lane & h) != 0 ? n / (2 * h) : 0;
	return number;
}

/* The way back. */
DEVICE void spread_step(real *sums, int n, int h, int lane)
{
	const int held = n / (2 * h), second = (lane & h) != 0;
	UNROLL
	for (int k = 0; h < shared_by(n) && k < held; k++) {
		real other = shuffle_xor(sums[k], h);
		sums[k + held] = second ? sums[k] : other;
		sums[k] = second ? other : sums[k];
	}
}

/* Every thread of the row gets all n. */
DEVICE void spread_sums(real *sums, int n, int lane)
{
	spread_step(sums, n, 16, lane);
	spread_step(sums, n, 8, lane);
	spread_step(sums, n, 4, lane);
	spread_step(sums, n, 2, lane);
	spread_step(sums, n, 1, lane);
}

/* Of n numbers that every thread has, a thread keeps those that fold_threads would leave it. */
DEVICE void keep_own(real *numbers, int n, int lane)
{
	UNROLL
	for (int h = 1; h < shared_by(n); h *= 2) {
		UNROLL
		for (int k = 0; k < n / (2 * h); k++)
			numbers[k] = (lane & h) != 0 ? numbers[k + n / (2 * h)] : numbers[k];
	}
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

/* From m0 and the means of squares and, of LayerNorm, of deviations from m0. */
DEVICE struct statistics statistics_of(real m0, const real *means, real eps)
{
	struct statistics s;
	s.mean = s.mean_lo = 0;
	real var = means[0];
	if (CENTRED) {
		real c = means[CENTRED];
		s.mean = m0 + c;
		s.mean_lo = (m0 - s.mean) + c;
		real v = fma_real(-c, c, var);
		var = v < 0 ? 0 : v;
	}
	s.rstd = 1 / sqrt_real(var + eps);
	finish_statistics(&s);
	return s;
}
