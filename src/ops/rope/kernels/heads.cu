/* What the kernels of rotary position embedding share: how heads lie in the registers of their threads, how they come from memory
 * and go back, and rule 12 of docs/numerics.md. Placed after gpu/kernels/elements.cu, folds.cu and layout.h.
 *
 * Constants, given as -D, beside those of gpu/kernels/elements.cu and folds.cu:
 *   KERNEL_NAME     of the function
 *   KIND            of the kernel: layout.h
 *   THREADS         of a block; BLOCKS that shall fit a multiprocessor
 *   HEAD_DIM, ROTARY_DIM, TRAILING, INTERLEAVED   of the call
 *   UNIT            neighbouring elements that a thread loads at once: as many as have 16 or 8 bytes, or 1
 *   ROW_THREADS     threads that share a head; a power of two where they sum over it
 *   HEADS           heads that a thread has in hand at once, a power of two
 *   NORM            0 none, 1 before the turn, 2 after it
 *   WEIGHT_OFFSET   1: 1 + weight is used for weight
 *   TABLE_ELEMENT   of cos and sin: DTYPE_…
 *   TABLE_ALIGNED   1: rows of cos and sin start at multiples of 16 bytes; VECTOR_ALIGNED: so do biases and weights
 *   HAS_…           1: the call has that operand, of q or of k
 *
 * A thread holds units of a head two by two: the first elements of pairs, and the second ones half of ROTARY_DIM behind them; then
 * those that do not turn. Interleaved pairs lie inside of units, which are held the same way. */

enum {
	FORWARD = KIND == KIND_ROPE_FORWARD,
	HALF = ROTARY_DIM / 2,
	SINGLE = UNIT == 1,
	PAIR_UNITS = HALF / UNIT, /* units with the first elements of pairs */
	PASS_UNITS = (HEAD_DIM - ROTARY_DIM) / UNIT,
	SLICES = (PAIR_UNITS + ROW_THREADS - 1) / ROW_THREADS, /* a slice: two units that belong together */
	PASSES = (PASS_UNITS + ROW_THREADS - 1) / ROW_THREADS,
	UNITS = 2 * SLICES + PASSES,
	HELD = UNITS * UNIT,   /* elements of a thread */
	PAIRS = SLICES * UNIT, /* its pairs */
	TURN_FIRST = TRAILING ? HEAD_DIM - ROTARY_DIM : 0,
	PASS_FIRST = TRAILING ? 0 : ROTARY_DIM,
	WHOLE = PAIR_UNITS % ROW_THREADS == 0 && PASS_UNITS % ROW_THREADS == 0, /* every thread has all of its units */
	GROUPS = THREADS / ROW_THREADS /* of threads that share a head; in turn.cu without a norm some are cut */
};

#define BYTES_OF_ELEMENT(element) ((element) == DTYPE_F64 ? 8 : (element) == DTYPE_F32 ? 4 : 2)

/* ---- units ---- */

/* Whether thread t of a head has unit j, and the first column of it. */
DEVICE int has_unit(int t, int j)
{
	if (WHOLE)
		return 1;
	return j < 2 * SLICES ? t + j / 2 * ROW_THREADS < PAIR_UNITS : t + (j - 2 * SLICES) * ROW_THREADS < PASS_UNITS;
}

DEVICE int column_of(int t, int j)
{
	const int in_pairs = t + j / 2 * ROW_THREADS, in_pass = t + (j - 2 * SLICES) * ROW_THREADS;
	if (j >= 2 * SLICES)
		return PASS_FIRST + in_pass * UNIT;
	if (INTERLEAVED && SINGLE)
		return TURN_FIRST + 2 * in_pairs + j % 2;
	return TURN_FIRST + j % 2 * HALF + in_pairs * UNIT;
}

DEVICE quad load_unit(const u8 *from)
{
	quad v = no_quad();
	if (UNIT * ELEMENT_BYTES == 16 && !SINGLE)
		return load_once(from);
	if (UNIT * ELEMENT_BYTES == 8 && !SINGLE) {
		u64 bits = load_once_8(from);
		v.w[0] = (u32)bits;
		v.w[1] = (u32)(bits >> 32);
		return v;
	}
	return put_bits(v, 0, load_bits(from, ELEMENT_BYTES));
}

DEVICE void store_unit(u8 *to, quad v)
{
	if (UNIT * ELEMENT_BYTES == 16 && !SINGLE)
		store_once(to, v);
	else if (UNIT * ELEMENT_BYTES == 8 && !SINGLE)
		store_once_8(to, (u64)v.w[1] << 32 | v.w[0]);
	else
		store_bits(to, ELEMENT_BYTES, quad_bits(v, 0));
}

/* Between the loads of many single elements: those that are on their way take registers. */
#define KEEP_IN_ORDER(j)       \
	if (NORM && (j) % 8 == 7) \
		sync_warp();

/* A head as its thread t holds it; zeros where there is none. */
DEVICE void load_head(quad *v, const u8 *head, int t, int there)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		v[j] = there && has_unit(t, j) ? load_unit(head + column_of(t, j) * ELEMENT_BYTES) : no_quad();
		KEEP_IN_ORDER(j)
	}
}

DEVICE void widen_head(const quad *v, real *x)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		real all[PER_QUAD];
		widen(v[j], all);
		UNROLL
		for (int e = 0; e < UNIT; e++)
			x[j * UNIT + e] = all[e];
	}
}

DEVICE void store_head(u8 *head, const real *x, int t, int there)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		real all[PER_QUAD];
		UNROLL
		for (int e = 0; e < PER_QUAD; e++)
			all[e] = e < UNIT ? x[j * UNIT + e] : 0;
		if (there && has_unit(t, j))
			store_unit(head + column_of(t, j) * ELEMENT_BYTES, narrow(all));
	}
}

/* ---- numbers that many threads read ---- */

DEVICE real number_of(u64 bits, const int element)
{
#if ELEMENT == DTYPE_F64
	return f64_of_bits((u32)bits, (u32)(bits >> 32));
#else
	return element == DTYPE_F32    ? f32_of_bits((u32)bits)
	       : element == DTYPE_F16 ? f32_of_f16((u32)bits & 0xffff)
				      : f32_of_bits((u32)bits << 16);
#endif
}

/* n neighbours, in accesses as wide as they are where `aligned` says so. */
DEVICE void load_numbers(const u8 *from, const int element, const int n, const int aligned, real *x)
{
	const int bytes = BYTES_OF_ELEMENT(element);
	if (!aligned || (n * bytes) % 8 != 0) {
		UNROLL
		for (int i = 0; i < n; i++)
			x[i] = number_of(load_bits(from + i * bytes, bytes), element);
		return;
	}
	u32 w[16 + 4];
	UNROLL
	for (int k = 0; k < n * bytes / 16; k++) {
		const quad q = load_shared_by_all(from + 16 * k);
		UNROLL
		for (int i = 0; i < 4; i++)
			w[4 * k + i] = q.w[i];
	}
	if (n * bytes % 16 != 0) {
		const u64 bits = load_shared_by_all_8(from + n * bytes / 16 * 16);
		w[n * bytes / 16 * 4] = (u32)bits;
		w[n * bytes / 16 * 4 + 1] = (u32)(bits >> 32);
	}
	UNROLL
	for (int i = 0; i < n; i++)
		x[i] = number_of(bytes == 2   ? w[i / 2] >> 16 * (i % 2)
				 : bytes == 4 ? w[i]
					      : (u64)w[2 * i + 1] << 32 | w[2 * i],
				 element);
}

/* A bias or the weights of a head; `missing` where there are none. */
DEVICE void load_vector(const u8 *from, int t, real missing, real *x)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		UNROLL
		for (int e = 0; e < UNIT; e++)
			x[j * UNIT + e] = missing;
		if (from && has_unit(t, j))
			load_numbers(from + column_of(t, j) * WEIGHT_BYTES, WEIGHT_ELEMENT, UNIT, VECTOR_ALIGNED, x + j * UNIT);
		KEEP_IN_ORDER(j)
	}
}

/* Adding -0 changes no bit. */
DEVICE void add_bias(const struct rope_side *side, i64 head, int t, real *x)
{
	real bias[HELD];
	if (!HAS_BIAS)
		return;
	load_vector(side->bias ? side->bias + head * HEAD_DIM * WEIGHT_BYTES : side->bias, t, (real)-0.0, bias);
	UNROLL
	for (int i = 0; i < HELD; i++)
		x[i] = x[i] + bias[i];
}

DEVICE void load_weights(const struct rope_side *side, int t, real *weight)
{
	if (!HAS_WEIGHT)
		return;
	load_vector(side->weight, t, WEIGHT_OFFSET ? 0 : 1, weight);
	UNROLL
	for (int i = 0; i < HELD; i++)
		weight[i] = WEIGHT_OFFSET ? 1 + weight[i] : weight[i];
}

/* ---- the turn ---- */

/* cos and sin of a thread's pairs. */
struct turn {
	real cos[PAIRS], sin[PAIRS];
};

/* Where a pair of slice k is: the places of its two elements among those of the thread. */
#define WITHIN (INTERLEAVED && !SINGLE)
#define PAIR_A(k, i) (2 * (k) * UNIT + (WITHIN ? 2 * (i) : (i)))
#define PAIR_B(k, i) (WITHIN ? PAIR_A(k, i) + 1 : PAIR_A(k, i) + UNIT)

DEVICE void load_columns(const u8 *row, int t, real *x)
{
	const int bytes = BYTES_OF_ELEMENT(TABLE_ELEMENT), run = WITHIN ? UNIT / 2 : UNIT;
	UNROLL
	for (int k = 0; k < SLICES; k++) {
		const int first = (t + k * ROW_THREADS) * run;
		if (!WHOLE && t + k * ROW_THREADS >= PAIR_UNITS)
			continue;
		load_numbers(row + first * bytes, TABLE_ELEMENT, run, TABLE_ALIGNED, x + k * UNIT);
		if (WITHIN) /* of the second unit */
			load_numbers(row + (HALF / 2 + first) * bytes, TABLE_ELEMENT, run, TABLE_ALIGNED, x + k * UNIT + run);
	}
}

/* The row of the tables for a token; that of a position in memory is NaN where there is no such row. */
DEVICE void load_turn(const struct rope_arguments *a, i64 batch, i64 seq, int t, int there, struct turn *by)
{
	i64 row = batch * a->table_step + a->offset + seq;
	real none = 0;
	if (HAS_POSITIONS && there) {
		row = (i64)load_bits(a->positions + batch * a->positions_stride + seq * 8, 8);
		there = (u64)row < (u64)a->table_rows;
		none = there ? none : (real)f32_of_bits(0x7fc00000u);
	}
	UNROLL
	for (int i = 0; i < PAIRS; i++)
		by->cos[i] = by->sin[i] = none;
	if (there) {
		load_columns(a->cos + row * a->cos_stride, t, by->cos);
		load_columns(a->sin + row * a->sin_stride, t, by->sin);
	}
}

DEVICE void turn_head(real *x, const struct turn *by)
{
	UNROLL
	for (int i = 0; i < PAIRS; i++) {
		const int first = PAIR_A(i / UNIT, i % UNIT), second = PAIR_B(i / UNIT, i % UNIT);
		const real a = x[first], b = x[second];
		x[first] = fma_real(a, by->cos[i], -(b * by->sin[i]));
		x[second] = fma_real(b, by->cos[i], a * by->sin[i]);
	}
}

DEVICE void turn_back(real *x, const struct turn *by)
{
	UNROLL
	for (int i = 0; i < PAIRS; i++) {
		const int first = PAIR_A(i / UNIT, i % UNIT), second = PAIR_B(i / UNIT, i % UNIT);
		const real a = x[first], b = x[second];
		x[first] = fma_real(a, by->cos[i], b * by->sin[i]);
		x[second] = fma_real(b, by->cos[i], -(a * by->sin[i]));
	}
}

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

/* Threads with many elements of a head load what they need where they use it. */
enum { LATE = HELD > 16 };
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

/* ---- tokens ---- */

/* n / what magic and shift are of, for n below 2^31. */
DEVICE u32 divide(u32 n, u32 magic, u32 shift)
{
	return (u32)((u64)(2 * n) * magic >> 32) >> shift;
}

DEVICE void place_of_token(const struct rope_arguments *a, i64 token, i64 *batch, i64 *seq)
{
	if (a->tokens < 0x80000000ll)
		*batch = divide((u32)token, a->seq_magic, a->seq_shift);
	else
		*batch = token / a->seq;
	*seq = token - *batch * a->seq;
}

/* Where a head of a token is in a tensor. */
DEVICE i64 bytes_to(const long long *strides, i64 batch, i64 seq, i64 head)
{
	return batch * strides[ROPE_BATCH] + seq * strides[ROPE_SEQ] + head * strides[ROPE_HEAD];
}

/* ---- rows of column sums ---- */

#if KIND == KIND_ROPE_WEIGHTS || KIND == KIND_ROPE_BIASES
/* Shared memory: the exchange, then the board, [number][thread], then the heads that are on their way, where they come in units of
 * 16 or 8 bytes and are not many. */
enum {
	EXCHANGES = NORM && !ROPE_BY_SHUFFLES(HEAD_DIM, ROTARY_DIM, UNIT, ROW_THREADS),
	BOARD_AT = EXCHANGES ? EXCHANGE_BYTES(HEAD_DIM, UNIT, GROUPS, 1, (int)sizeof(real)) : 0,
	FETCH_AT = BOARD_AT + HELD * THREADS * (int)sizeof(real),
	TENSORS = NORM ? 2 : 1,
	FETCHES = ROPE_FETCHES(UNIT, UNITS),
	STAGES = ROPE_STAGES(HEAD_DIM)
};

DEVICE real *board_of(int number)
{
	return (real *)(shared_memory() + BOARD_AT) + number * THREADS + thread_index();
}

DEVICE u8 *fetched_at(int stage, int tensor, int j)
{
	return shared_memory() + FETCH_AT + (((stage * TENSORS + tensor) * UNITS + j) * THREADS + thread_index()) * 16;
}

DEVICE void fetch_head(const u8 *head, int t, int stage, int tensor)
{
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		if (!has_unit(t, j))
			continue;
		if (UNIT * ELEMENT_BYTES == 16)
			fetch(fetched_at(stage, tensor, j), head + column_of(t, j) * ELEMENT_BYTES);
		else
			fetch_8(fetched_at(stage, tensor, j), head + column_of(t, j) * ELEMENT_BYTES);
	}
}

/* A head that was fetched, or that is loaded now. */
DEVICE void take_head(quad *v, const u8 *head, int t, int there, int stage, int tensor)
{
	if (!FETCHES) {
		load_head(v, head, t, there);
		return;
	}
	UNROLL
	for (int j = 0; j < UNITS; j++) {
		v[j] = no_quad();
		if (!there || !has_unit(t, j))
			continue;
		if (UNIT * ELEMENT_BYTES == 16) {
			v[j] = load_fetched(fetched_at(stage, tensor, j));
		} else {
			const u64 bits = load_one(u64, fetched_at(stage, tensor, j));
			v[j].w[0] = (u32)bits;
			v[j].w[1] = (u32)(bits >> 32);
		}
	}
}

/* A head of a token, and where it is in the tensors. */
struct walk {
	i64 batch, seq, head, x, dy, y;
};

DEVICE struct walk walk_to(const struct rope_arguments *a, const struct rope_side *side, i64 token, i64 head)
{
	struct walk w;
	place_of_token(a, token, &w.batch, &w.seq);
	w.head = head;
	w.x = bytes_to(side->x_strides, w.batch, w.seq, head);
	w.dy = bytes_to(side->dy_strides, w.batch, w.seq, head);
	w.y = bytes_to(side->y_strides, w.batch, w.seq, head);
	return w;
}

/* To the same head of the next token. */
DEVICE void walk_on(const struct rope_arguments *a, const struct rope_side *side, struct walk *w)
{
	if (w->seq + 1 < a->seq) {
		w->seq++;
		w->x += side->x_strides[ROPE_SEQ];
		w->dy += side->dy_strides[ROPE_SEQ];
		w->y += side->y_strides[ROPE_SEQ];
		return;
	}
	w->batch++;
	w->seq = 0;
	w->x = bytes_to(side->x_strides, w->batch, 0, w->head);
	w->dy = bytes_to(side->dy_strides, w->batch, 0, w->head);
	w->y = bytes_to(side->y_strides, w->batch, 0, w->head);
}

/* To the next head of the token, or the first of the next. */
DEVICE void walk_heads(const struct rope_arguments *a, const struct rope_side *side, struct walk *w)
{
	if (w->head + 1 < side->heads) {
		w->head++;
		w->x += side->x_strides[ROPE_HEAD];
		w->dy += side->dy_strides[ROPE_HEAD];
		w->y += side->y_strides[ROPE_HEAD];
		return;
	}
	w->head = 0;
	w->x = bytes_to(side->x_strides, w->batch, w->seq, 0);
	w->dy = bytes_to(side->dy_strides, w->batch, w->seq, 0);
	w->y = bytes_to(side->y_strides, w->batch, w->seq, 0);
	walk_on(a, side, w);
}

/* Starts the fetch of the heads at w; a group of fetches for each row, also where there is none. */
DEVICE void fetch_row(const struct rope_side *side, const struct walk *w, int t, int there, int stage)
{
	if (FETCHES && there) {
		fetch_head(side->dy + w->dy, t, stage, 0);
		if (NORM)
			fetch_head(side->x + w->x, t, stage, 1);
	}
	fetch_close();
}

DEVICE void take_x(const struct rope_side *side, const struct walk *w, int t, int there, int stage, real *x)
{
	quad raw[UNITS];
	take_head(raw, side->x + w->x, t, there, stage, 1);
	widen_head(raw, x);
	add_bias(side, w->head, t, x);
}

DEVICE void take_gradient(const struct rope_side *side, const struct walk *w, int t, int there, int stage, real *g)
{
	quad raw[UNITS];
	take_head(raw, side->dy + w->dy, t, there, stage, 0);
	widen_head(raw, g);
}

/* The gradient of a row that is there or not, in g; sums gets the terms of a weight's. */
DEVICE void compute_row(const struct rope_arguments *a, const struct rope_side *side, const struct walk *w, const real *weight,
			int t, int there, int stage, real (*g)[HELD], real *sums)
{
	real x[1][HELD];
	struct turn by;
	load_turn(a, w->batch, w->seq, t, there, &by);
#if NORM == 2
	struct statistics s[1];
	take_x(side, w, t, there, stage, x[0]);
	compute_turned(x, &by, s, (real)a->eps, t);
	take_gradient(side, w, t, there, stage, g[0]);
	norm_backward(g, x, s, t);
	turn_back(g[0], &by);
#else
	take_gradient(side, w, t, there, stage, g[0]);
	turn_back(g[0], &by);
	if (NORM) {
		if (LATE)
			sync_warp();
		take_x(side, w, t, there, stage, x[0]);
		compute_norm_gradients(side, g, x, weight, (real)a->eps, t, sums, &there);
	}
#endif
	store_head(side->y + w->y, g[0], t, there && side->y);
}
#endif
