/* What the kernels of rotary position embedding share: how heads lie in the registers of their threads, how they come from memory
 * and go back, and the turn of rule 12 of docs/numerics.md. Placed after gpu/kernels/elements.cu, folds.cu and layout.h.
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
		return load_kept(from);
	if (UNIT * ELEMENT_BYTES == 8 && !SINGLE) {
		u64 bits = load_kept_8(from);
		v.w[0] = (u32)bits;
		v.w[1] = (u32)(bits >> 32);
		return v;
	}
	return put_bits(v, 0, load_bits(from, ELEMENT_BYTES));
}

DEVICE void store_unit(u8 *to, quad v)
{
	if (UNIT * ELEMENT_BYTES == 16 && !SINGLE)
		store_kept(to, v);
	else if (UNIT * ELEMENT_BYTES == 8 && !SINGLE)
		store_kept_8(to, (u64)v.w[1] << 32 | v.w[0]);
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

/* Words of n neighbours as they lie in memory. */
#define WORDS_OF(element, n) ((BYTES_OF_ELEMENT(element) * (n) + 3) / 4)

/* In accesses as wide as they are where `aligned` says so. */
DEVICE void load_words(const u8 *from, const int element, const int n, const int aligned, u32 *w)
{
	const int bytes = BYTES_OF_ELEMENT(element);
	if (!aligned || (n * bytes) % 8 != 0) {
		UNROLL
		for (int i = 0; i < n; i++) {
			const u64 bits = load_bits(from + i * bytes, bytes);
			if (bytes == 2)
				w[i / 2] = i % 2 ? w[i / 2] | (u32)bits << 16 : (u32)bits;
			else
				w[i * bytes / 4] = (u32)bits;
			if (bytes == 8)
				w[2 * i + 1] = (u32)(bits >> 32);
		}
		return;
	}
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
}

DEVICE void widen_words(const u32 *w, const int element, const int n, real *x)
{
	const int bytes = BYTES_OF_ELEMENT(element);
	UNROLL
	for (int i = 0; i < n; i++)
		x[i] = number_of(bytes == 2   ? w[i / 2] >> 16 * (i % 2)
				 : bytes == 4 ? w[i]
					      : (u64)w[2 * i + 1] << 32 | w[2 * i],
				 element);
}

DEVICE void load_numbers(const u8 *from, const int element, const int n, const int aligned, real *x)
{
	u32 w[WORDS_OF(DTYPE_F64, PER_QUAD)];
	load_words(from, element, n, aligned, w);
	widen_words(w, element, n, x);
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

/* Where a pair of slice k is: the places of its two elements among those of the thread. */
#define WITHIN (INTERLEAVED && !SINGLE)
#define PAIR_A(k, i) (2 * (k) * UNIT + (WITHIN ? 2 * (i) : (i)))
#define PAIR_B(k, i) (WITHIN ? PAIR_A(k, i) + 1 : PAIR_A(k, i) + UNIT)

/* A slice's pairs are runs of columns of the tables, two where it has interleaved ones. */
enum {
	TURN_RUN = WITHIN ? UNIT / 2 : UNIT,
	TURN_RUNS = PAIRS / TURN_RUN,
	RUN_WORDS = WORDS_OF(TABLE_ELEMENT, TURN_RUN)
};

/* cos and sin of a thread's pairs, and as they lie in memory. */
struct turn {
	real cos[PAIRS], sin[PAIRS];
};
struct packed_turn {
	u32 cos[TURN_RUNS * RUN_WORDS], sin[TURN_RUNS * RUN_WORDS];
};

DEVICE void load_runs(const u8 *row, int t, u32 *w)
{
	UNROLL
	for (int i = 0; i < TURN_RUNS; i++) {
		const int slice = WITHIN ? i / 2 : i, in_pairs = t + slice * ROW_THREADS;
		const int first = in_pairs * TURN_RUN + (WITHIN && i % 2 ? HALF / 2 : 0);
		if (WHOLE || in_pairs < PAIR_UNITS)
			load_words(row + first * BYTES_OF_ELEMENT(TABLE_ELEMENT), TABLE_ELEMENT, TURN_RUN, TABLE_ALIGNED,
				   w + i * RUN_WORDS);
	}
}

/* Words of NaN. */
DEVICE u32 not_a_number(int word)
{
	return TABLE_ELEMENT == DTYPE_F64   ? (word % 2 ? 0x7ff80000u : 0)
	       : TABLE_ELEMENT == DTYPE_F32 ? 0x7fc00000u
	       : TABLE_ELEMENT == DTYPE_F16 ? 0x7e007e00u
					    : 0x7fc07fc0u;
}

/* The row of the tables for a token; that of a position in memory is NaN where there is no such row. */
DEVICE void load_packed_turn(const struct rope_arguments *a, i64 batch, i64 seq, int t, int there, struct packed_turn *by)
{
	i64 row = batch * a->table_step + a->offset + seq;
	int outside = 0;
	if (HAS_POSITIONS && there) {
		row = (i64)load_bits(a->positions + batch * a->positions_stride + seq * 8, 8);
		there = (u64)row < (u64)a->table_rows;
		outside = !there;
	}
	UNROLL
	for (int i = 0; i < TURN_RUNS * RUN_WORDS; i++)
		by->cos[i] = by->sin[i] = outside ? not_a_number(i) : 0;
	if (there) {
		load_runs(a->cos + row * a->cos_stride, t, by->cos);
		load_runs(a->sin + row * a->sin_stride, t, by->sin);
	}
}

DEVICE void unpack_runs(const u32 *w, real *x)
{
	UNROLL
	for (int i = 0; i < TURN_RUNS; i++)
		widen_words(w + i * RUN_WORDS, TABLE_ELEMENT, TURN_RUN, x + i * TURN_RUN);
}

DEVICE void unpack_turn(const struct packed_turn *packed, struct turn *by)
{
	unpack_runs(packed->cos, by->cos);
	unpack_runs(packed->sin, by->sin);
}

DEVICE void load_turn(const struct rope_arguments *a, i64 batch, i64 seq, int t, int there, struct turn *by)
{
	struct packed_turn packed;
	load_packed_turn(a, batch, seq, t, there, &packed);
	unpack_turn(&packed, by);
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
