/* Sums over a head (rule 2), its norm, and rule 12 of docs/numerics.md. Follows heads.cu. SPDX-License-Identifier: MIT */

/* ---- sums over a head ---- */

#if NORM
/* Of numbers up to 256. */
#define POWER_UP(n) \
	((n) <= 1 ? 1 : (n) <= 2 ? 2 : (n) <= 4 ? 4 : (n) <= 8 ? 8 : (n) <= 16 ? 16 : (n) <= 32 ? 32 : (n) <= 64 ? 64 : (n) <= 128 ? 128 : 256)

/* The threads of a head fold their units by shuffles where the units of a slice are half of the head apart and each half is a
 * power of two of them. Otherwise what the tree starts from, a unit's sum or, where lanes have several terms, an element,
 * goes through shared memory, from where a thread takes neighbours. */
enum {
	BY_SHUFFLES = ROPE_BY_SHUFFLES(HEAD_DIM, ROTARY_DIM, UNIT, ROW_THREADS),
	GRAIN = HEAD_DIM <= LANES ? UNIT : 1,
	GRAINS = HEAD_DIM / GRAIN,
	LANE_GRAINS = HEAD_DIM <= LANES ? GRAINS : LANES,
	LANE_GRAINS_UP = POWER_UP(LANE_GRAINS),
	RUN = LANE_GRAINS_UP < ROW_THREADS ? 1 : LANE_GRAINS_UP / ROW_THREADS, /* of a thread */
	PARTS = BY_SHUFFLES ? 2 : 1, /* of a sum in a thread, when the threads fold */
	OWN = (HEADS) / (HEADS < ROW_THREADS ? HEADS : ROW_THREADS)
};

/* A head's exchange: its numbers and, of a sum of products over more elements than lanes, the other factors. */
DEVICE real *exchange_of(int head)
{
	const int group = thread_index() / ROW_THREADS;
	return (real *)shared_memory() + (group * HEADS + head) * EXCHANGE_NUMBERS(HEAD_DIM, UNIT);
}

DEVICE void put_terms(const real *u, const real *v, const real *minus, const int product, int head, int t)
{
	real *to = exchange_of(head);
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		real terms[UNIT];
		if (!has_unit(t, j))
			continue;
		UNROLL
		for (int e = 0; e < UNIT; e++) {
			const real a = minus ? u[j * UNIT + e] - *minus : u[j * UNIT + e], b = minus ? a : v[j * UNIT + e];
			terms[e] = product ? a * b : a;
			if (HEAD_DIM > LANES) {
				to[column_of(t, j) + e] = a;
				to[HEAD_DIM + column_of(t, j) + e] = product ? b : 0;
			}
		}
		if (HEAD_DIM <= LANES)
			to[column_of(t, j) / UNIT] = fold_array(terms, UNIT);
	}
}

/* The run of a thread, folded. */
DEVICE real take_run(const int product, int head, int t)
{
	const real *from = exchange_of(head);
	real run[RUN];
	UNROLL
	for (int i = 0; i < RUN; i++) {
		const int lane = t * RUN + i;
		run[i] = lane < LANE_GRAINS ? from[lane] : 0;
		if (HEAD_DIM > LANES) {
			run[i] = product ? from[lane] * from[HEAD_DIM + lane] : from[lane];
			UNROLL
			for (int at = LANES; at < HEAD_DIM; at += LANES)
				if (at + lane < HEAD_DIM)
					run[i] = product ? fma_real(from[at + lane], from[HEAD_DIM + at + lane], run[i])
							 : run[i] + from[at + lane];
		}
	}
	return fold_array(run, RUN);
}

/* The means over HEADS heads of u, or of u * v; with minus those of u - minus, or of its square. A thread gets those that
 * fold_threads leaves it. */
DEVICE void sum_heads(real (*u)[HELD], real (*v)[HELD], const real *minus, const int product, real *own, int t)
{
	real parts[2 * HEADS];
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		if (!BY_SHUFFLES)
			put_terms(u[h], v[h], minus ? minus + h : minus, product, h, t);
		UNROLL
		for (int j = 0; BY_SHUFFLES && j < 2; j++) {
			real terms[UNIT];
			UNROLL
			for (int e = 0; e < UNIT; e++) {
				const int i = j * UNIT % HELD + e;
				const real a = minus ? u[h][i] - minus[h] : u[h][i], b = minus ? a : v[h][i];
				terms[e] = product ? a * b : a;
			}
			parts[h * PARTS + j] = fold_array(terms, UNIT);
		}
	}
	if (!BY_SHUFFLES) {
		sync_warp();
		UNROLL
		for (int h = 0; h < HEADS; h++)
			parts[h] = take_run(product, h, t);
		sync_warp();
	}
	fold_threads(parts, HEADS * PARTS, t);
	/* Parts of a sum that a thread has left are neighbours; then those of its neighbours in the tree. */
	const int all = HEADS * PARTS, held = all / shared_by(all), each = held < PARTS ? held : PARTS;
	UNROLL
	for (int k = 0; k < held / each; k++)
		own[k] = fold_array(parts + k * each, each);
	UNROLL
	for (int h = shared_by(all) / 2; h >= HEADS && each < PARTS; h /= 2)
		own[0] = own[0] + shuffle_xor(own[0], h);
	UNROLL
	for (int k = 0; k < OWN; k++)
		own[k] = MEAN_OF(own[k] + 0, HEAD_DIM);
}

/* The same means, of all heads, in every thread. */
DEVICE void head_means(real (*u)[HELD], real (*v)[HELD], const int product, real *means, int t)
{
	sum_heads(u, v, (const real *)0, product, means, t);
	spread_sums(means, HEADS, t);
}

/* Rule 3; a thread computes those of its own heads. */
DEVICE void head_statistics(real (*x)[HELD], struct statistics *s, real eps, int t)
{
	real m0[HEADS], own_m0[HEADS], squares[HEADS], apart[HEADS];
	real mean[HEADS], rstd[HEADS], shift[HEADS];
	if (CENTRED) {
		sum_heads(x, x, (const real *)0, 0, own_m0, t);
		UNROLL
		for (int k = 0; k < OWN; k++)
			m0[k] = own_m0[k];
		spread_sums(m0, HEADS, t);
		sum_heads(x, x, m0, 1, squares, t);
		sum_heads(x, x, m0, 0, apart, t);
	} else {
		sum_heads(x, x, (const real *)0, 1, squares, t);
	}
	UNROLL
	for (int k = 0; k < OWN; k++) {
		const real means[2] = {squares[k], CENTRED ? apart[k] : 0};
		const struct statistics own = statistics_of(CENTRED ? own_m0[k] : 0, means, eps);
		mean[k] = own.mean;
		rstd[k] = own.rstd;
		shift[k] = own.shift;
	}
	if (CENTRED) {
		spread_sums(mean, HEADS, t);
		spread_sums(shift, HEADS, t);
	}
	spread_sums(rstd, HEADS, t);
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		s[h].mean = CENTRED ? mean[h] : 0;
		s[h].mean_lo = 0;
		s[h].shift = CENTRED ? shift[h] : 0;
		s[h].rstd = rstd[h];
	}
}

/* xhat in place of x. */
DEVICE void normalize_heads(real (*x)[HELD], struct statistics *s, real eps, int t)
{
	head_statistics(x, s, eps, t);
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		UNROLL
		for (int i = 0; i < HELD; i++)
			x[h][i] = xhat_of(x[h][i], s[h]);
	}
}

/* Rule 5: dx in place of g. */
DEVICE void norm_backward(real (*g)[HELD], real (*xhat)[HELD], const struct statistics *s, int t)
{
	real mean_gx[HEADS], mean_g[HEADS];
	head_means(g, xhat, 1, mean_gx, t);
	if (CENTRED)
		head_means(g, g, 0, mean_g, t);
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		UNROLL
		for (int i = 0; i < HELD; i++)
			g[h][i] = dx_of(xhat[h][i], g[h][i], mean_gx[h], CENTRED ? mean_g[h] : 0, s[h].rstd);
	}
}
#endif

/* ---- rule 12 ---- */

/* Where registers are short, threads load what they need where they use it. */
enum { LATE = HELD > 16 || FORWARD || KIND == KIND_ROPE_BIASES || !WHOLE };
#define WEIGHTS_OF_USE(side, weight, t)      \
	real of_use[HELD];                   \
	const real *w = weight;              \
	if (LATE) {                  \
		load_weights(side, t, of_use); \
		w = of_use;                  \
	}

/* What is behind the bias: x becomes y. */
DEVICE void compute_heads(const struct rope_side *side, real (*x)[HELD], const struct turn *by, const real *weight, real eps, int t)
{
#if NORM
	struct statistics s[HEADS];
#endif
#if NORM == 1
	normalize_heads(x, s, eps, t);
	WEIGHTS_OF_USE(side, weight, t)
	UNROLL
	for (int h = 0; HAS_WEIGHT && h < HEADS; h++) {
		UNROLL
		for (int i = 0; i < HELD; i++)
			x[h][i] = x[h][i] * w[i];
	}
#endif
	UNROLL
	for (int h = 0; h < HEADS; h++)
		turn_head(x[h], by);
#if NORM == 2
	normalize_heads(x, s, eps, t);
#endif
}

/* Of a norm after the turn: x, with its bias, becomes xhat. */
DEVICE void compute_turned(real (*x)[HELD], const struct turn *by, struct statistics *s, real eps, int t)
{
#if NORM == 2
	UNROLL
	for (int h = 0; h < HEADS; h++)
		turn_head(x[h], by);
	normalize_heads(x, s, eps, t);
#endif
}

/* Of a norm before the turn: from x, with its bias, and the gradient g of the norm's result that of its input. sums, if not NULL, gets
 * the terms of the gradient of weights, of those heads that are there. */
DEVICE void compute_norm_gradients(const struct rope_side *side, real (*g)[HELD], real (*x)[HELD], const real *weight, real eps,
				   int t, real *sums, const int *there)
{
#if NORM == 1
	struct statistics s[HEADS];
	normalize_heads(x, s, eps, t);
	WEIGHTS_OF_USE(side, weight, t)
	UNROLL
	for (int h = 0; h < HEADS; h++) {
		UNROLL
		for (int i = 0; i < HELD; i++) {
			if (sums)
				sums[i] = there[h] ? fma_real(g[h][i], x[h][i], sums[i]) : sums[i];
			if (HAS_WEIGHT)
				g[h][i] = g[h][i] * w[i];
		}
	}
	norm_backward(g, x, s, t);
#endif
}
