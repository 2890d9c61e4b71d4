/* Heads of a token from tensors' elements to others' in registers, without buffers of widened numbers: heads that turn, and heads of
 * the usual sizes that turn after an RMSNorm. Angles, weights and column sums are in the order that the dtype's load2 has.
 * Included by cpu_heads.inc.h. Makes: N(direct), N(direct_heads), N(direct_heads_of), N(direct_of), N(natural_order).
 * SPDX-License-Identifier: MIT */

/* The sizes of heads that have loops of their own, with a norm: all of a head turns. With the size known, a head's numbers stay in
 * registers (f32 and bf16, in cache, 28 -> 24 and 21 -> 16 ns a head of 128). */
#define NORMED_SIZES(X, d) X(d, 64) X(d, 128) X(d, 256)
/* Registers of a head that are worth it; scalar code has its loops over buffers. */
enum { N(MOST_REGISTERS) = 32 };

/* The first of some neighbouring heads in a tensor, and the bytes from each to the next. */
struct N(place) {
	char *at;
	int64_t stride;
};

INLINE struct N(place) N(place_of)(const struct ek_rope_call *c, const void *tensor, const int64_t strides[3],
				   int64_t token, int64_t head)
{
	const struct N(heads) h = N(heads_of)(c, tensor, strides, token, head, NULL, false);
	return (struct N(place)){h.tensor.at, h.stride * (int64_t)h.tensor.element};
}

/* Neighbouring heads of a token, and what is done to them. x: dy in backward without a norm. */
struct N(direct_heads) {
	const struct ek_rope_call *call;
	const struct N(angles) * angles;
	const real *weight;
	struct N(place) x, dy, y, bias;
	int64_t count;
	bool nontemporal;
};

INLINE struct N(direct_heads)
	N(direct_heads_of)(const struct ek_rope_heads *h, int64_t token, int64_t head, int64_t count,
			   const struct N(angles) * angles, const real *weight)
{
	const struct ek_rope_call *c = h->call;
	const struct ek_rope_side *s = h->side;
	const struct N(tensor) bias = N(tensor_at)(s->bias, c->weight_dtype, head * c->head_dim);
	const struct N(place) dy = N(place_of)(c, s->dy, s->dy_strides, token, head);
	return (struct N(direct_heads)){.call = c,
					.angles = angles,
					.weight = weight,
					.x = s->x ? N(place_of)(c, s->x, s->x_strides, token, head) : dy,
					.dy = dy,
					.y = N(place_of)(c, s->y, s->y_strides, token, head),
					.bias = {bias.at, c->head_dim * (int64_t)bias.element},
					.count = count,
					.nontemporal = h->nontemporal};
}

/* Steps of the first elements of pairs from the i-th pair on, and of the second. */
INLINE void N(turn_step)(const struct N(angles) * t, int64_t half, int64_t i, vec a[2], vec b[2])
{
	UNROLL for (int k = 0; k < 2; k++)
	{
		const int64_t at = i + k * N(W);
		const vec cos = V(load)(t->cos + at), first = a[k];
		a[k] = V(fma)(first, cos, V(mul)(b[k], V(load)(t->sin + at)));
		b[k] = V(fma)(b[k], cos, V(mul)(first, V(load)(t->sin + half + at)));
	}
}

/* ---- without a norm ---- */

/* No bias, real numbers, or elements of the tensors' dtype. */
enum N(bias_form) { N(NO_BIAS), N(REAL_BIAS), N(SAME_BIAS) };

/* A step of v, from the i-th element on. */
INLINE void N(read_step)(const int dtype, const enum N(bias_form) form, const void *x, const void *bias,
			 int64_t i, vec v[2])
{
	vec b[2];
	N(load2)(dtype, x, i, N(STEP), v);
	if (form == N(NO_BIAS))
		return;
	N(load2)(form == N(SAME_BIAS) ? dtype : PASTE(dtype, ACT), bias, i, N(STEP), b);
	if (form == N(REAL_BIAS))
		N(in_order)(dtype, b);
	UNROLL for (int k = 0; k < 2; k++) v[k] = V(add)(v[k], b[k]);
}

INLINE void N(turn_heads)(const int dtype, const enum N(bias_form) form, const bool nontemporal,
			  const struct N(direct_heads) * given)
{
	const struct N(direct_heads) own = *given, *h = &own; /* no store can change its pointers */
	const int64_t half = h->call->rotary_dim / 2, first = N(turn_start)(h->call), second = first + half;
	const int64_t rest = first ? 0 : h->call->rotary_dim, rest_end = first ? first : h->call->head_dim;
	for (int64_t head = 0; head < h->count; head++) {
		const char *x = h->x.at + head * h->x.stride;
		const char *bias = form == N(NO_BIAS) ? NULL : h->bias.at + head * h->bias.stride;
		char *y = h->y.at + head * h->y.stride;
		for (int64_t i = 0; i < half; i += N(STEP)) {
			vec a[2], b[2];
			N(read_step)(dtype, form, x, bias, first + i, a);
			N(read_step)(dtype, form, x, bias, second + i, b);
			N(turn_step)(h->angles, half, i, a, b);
			N(store2)(dtype, nontemporal, y, first + i, a);
			N(store2)(dtype, nontemporal, y, second + i, b);
		}
		for (int64_t i = rest; i < rest_end; i += N(STEP)) {
			vec v[2];
			N(read_step)(dtype, form, x, bias, i, v);
			N(store2)(dtype, nontemporal, y, i, v);
		}
	}
}

/* ---- after an RMSNorm: all of a head of `dim` elements, a constant ---- */

/* A step of xhat, from the i-th element on. */
INLINE void N(xhat_step)(const int dtype, const void *x, const struct N(stats) * s, int64_t i, vec v[2])
{
	N(load2)(dtype, x, i, N(STEP), v);
	UNROLL for (int k = 0; k < 2; k++) v[k] = V(mul)(v[k], V(splat)(s->rstd));
}

INLINE void N(weigh_step)(const real *weight, int64_t i, vec v[2])
{
	UNROLL for (int k = 0; k < 2; k++) v[k] = V(mul)(v[k], V(load)(weight + i + k * N(W)));
}

/* The head that comes `count` heads later is fetched while one is written: all statistics come first, and in the meantime nothing
 * would be read from memory (f32 and bf16, 2048 x 32 x 128: .78 -> .90 and .78 -> .87 of a copy). */
INLINE void N(fetch_later)(const int dtype, const struct N(place) * p, int64_t head, int64_t count,
			   int64_t dim)
{
	fetch_lines(p->at + (head + count) * p->stride, dim * (int64_t)ek_bytes_of_dtype((ek_dtype)dtype));
}

INLINE void N(statistics_of_heads)(const int dtype, const int64_t dim, const struct N(direct_heads) * h,
				   struct N(stats) * stats)
{
	const real eps = (real)h->call->eps;
	for (int64_t head = 0; head < h->count; head++)
		stats[head] = N(statistics)(EK_RMS_NORM, dtype, h->x.at + head * h->x.stride, dim, eps);
}

INLINE void N(normed_forward)(const int dtype, const int64_t dim, const bool nontemporal,
			      const struct N(direct_heads) * given)
{
	const struct N(direct_heads) own = *given, *h = &own;
	const int64_t half = dim / 2;
	struct N(stats) stats[N(MOST_TOGETHER)];
	N(statistics_of_heads)(dtype, dim, h, stats);
	for (int64_t head = 0; head < h->count; head++) {
		const char *x = h->x.at + head * h->x.stride;
		char *y = h->y.at + head * h->y.stride;
		N(fetch_later)(dtype, &h->x, head, h->count, dim);
		UNROLL for (int64_t i = 0; i < half; i += N(STEP))
		{
			vec a[2], b[2];
			N(xhat_step)(dtype, x, &stats[head], i, a);
			N(xhat_step)(dtype, x, &stats[head], half + i, b);
			N(weigh_step)(h->weight, i, a);
			N(weigh_step)(h->weight, half + i, b);
			N(turn_step)(h->angles, half, i, a, b);
			N(store2)(dtype, nontemporal, y, i, a);
			N(store2)(dtype, nontemporal, y, half + i, b);
		}
	}
}

/* A step from the i-th element on, with d and x, which is xhat: its terms of the weight's gradient, and g. */
INLINE void N(put_step)(const enum columns kind, const real *weight, vec d[2], const vec x[2], int64_t i,
			vec *g, vec *xhat, vec *sum)
{
	UNROLL for (int k = 0; k < 2; k++)
	{
		const int64_t at = i / N(W) + k;
		sum[at] = N(plus_product)(kind, d[k], x[k], sum[at]);
		xhat[at] = x[k];
		g[at] = V(mul)(d[k], V(load)(weight + at * N(W)));
	}
}

/* sums: where the weight's gradient goes, if it is wanted. y is written where `writes` is true. */
INLINE void N(normed_backward)(const int dtype, const int64_t dim, const struct N(columns) * sums,
			       bool writes, const bool nontemporal, const struct N(direct_heads) * given)
{
	const struct N(direct_heads) own = *given, *h = &own;
	const enum columns kind = sums->kind;
	const int64_t half = dim / 2;
	struct N(stats) stats[N(MOST_TOGETHER)];
	vec sum[N(MOST_REGISTERS)];
	N(statistics_of_heads)(dtype, dim, h, stats);
	UNROLL_LANES for (int64_t i = 0; i < dim; i += N(W)) sum[i / N(W)] =
		V(load)(sums->from + (i & sums->mask));
	for (int64_t head = 0; head < h->count; head++) {
		const char *x = h->x.at + head * h->x.stride, *dy = h->dy.at + head * h->dy.stride;
		char *y = h->y.at + head * h->y.stride;
		vec g[N(MOST_REGISTERS)], xhat[N(MOST_REGISTERS)];
		N(fetch_later)(dtype, &h->x, head, h->count, dim);
		N(fetch_later)(dtype, &h->dy, head, h->count, dim);
		UNROLL for (int64_t i = 0; i < half; i += N(STEP))
		{
			vec x1[2], x2[2], d1[2], d2[2];
			N(load2)(dtype, dy, i, N(STEP), d1);
			N(load2)(dtype, dy, half + i, N(STEP), d2);
			N(turn_step)(h->angles, half, i, d1, d2);
			N(xhat_step)(dtype, x, &stats[head], i, x1);
			N(xhat_step)(dtype, x, &stats[head], half + i, x2);
			N(put_step)(kind, h->weight, d1, x1, i, g, xhat, sum);
			N(put_step)(kind, h->weight, d2, x2, half + i, g, xhat, sum);
		}
		if (!writes)
			continue;
		const struct N(means) means =
			N(means_of)(EK_RMS_NORM, dtype, (const real *)g, (const real *)xhat, dim);
		UNROLL for (int64_t i = 0; i < dim; i += N(STEP))
		{
			vec dx[2];
			UNROLL for (int k = 0; k < 2; k++) dx[k] = N(dx_of)(
				EK_RMS_NORM, &means, stats[head].rstd, g[i / N(W) + k], xhat[i / N(W) + k]);
			N(store2)(dtype, nontemporal, y, i, dx);
		}
	}
	if (kind == COLUMNS_NONE)
		return;
	UNROLL_LANES for (int64_t i = 0; i < dim; i += N(W)) V(store)(sums->to + i, sum[i / N(W)]);
}

/* ---- for each dtype ---- */

struct N(direct) {
	int64_t size; /* of heads with a norm; 0: heads without */
	/* To the order of load2, n a multiple of STEP. */
	void (*order)(real *numbers, int64_t n);
	void (*forward)(const struct N(direct_heads) * h);
	void (*backward)(const struct N(direct_heads) * h, const struct N(columns) * sums, bool writes);
};

/* f with true or false for h's stores. */
#define STORED(f, ...) (h->nontemporal ? f(__VA_ARGS__, true, h) : f(__VA_ARGS__, false, h))

#define NORMED(d, dim)                                                                   \
	static void N(forward_##d##_##dim)(const struct N(direct_heads) * h)             \
	{                                                                                \
		if ((dim) / N(W) <= N(MOST_REGISTERS))                                   \
			STORED(N(normed_forward), dtype_##d, dim);                       \
	}                                                                                \
	static void N(backward_##d##_##dim)(const struct N(direct_heads) * h,            \
					    const struct N(columns) * sums, bool writes) \
	{                                                                                \
		if ((dim) / N(W) <= N(MOST_REGISTERS))                                   \
			STORED(N(normed_backward), dtype_##d, dim, sums, writes);        \
	}
#define DIRECT(d)                                                                                      \
	static void N(order_##d)(real * numbers, int64_t n)                                            \
	{                                                                                              \
		for (int64_t i = 0; i < n; i += N(STEP)) {                                             \
			vec v[2] = {V(load)(numbers + i), V(load)(numbers + i + N(W))};                \
			PASTE(d, in_order)(v);                                                         \
			V(store)(numbers + i, v[0]);                                                   \
			V(store)(numbers + i + N(W), v[1]);                                            \
		}                                                                                      \
	}                                                                                              \
	static void N(turn_##d)(const struct N(direct_heads) * h)                                      \
	{                                                                                              \
		if (!h->bias.at)                                                                       \
			STORED(N(turn_heads), dtype_##d, N(NO_BIAS));                                  \
		else if (ek_bytes_of_dtype(h->call->weight_dtype) == sizeof(real))                     \
			STORED(N(turn_heads), dtype_##d, N(REAL_BIAS));                                \
		else                                                                                   \
			STORED(N(turn_heads), dtype_##d, N(SAME_BIAS));                                \
	}                                                                                              \
	static void N(turn_back_##d)(const struct N(direct_heads) * h, const struct N(columns) * sums, \
				     bool writes)                                                      \
	{                                                                                              \
		(void)sums;                                                                            \
		(void)writes;                                                                          \
		STORED(N(turn_heads), dtype_##d, N(NO_BIAS));                                          \
	}                                                                                              \
	NORMED_SIZES(NORMED, d)
CONVERTED_DTYPES(DIRECT)
#undef DIRECT
#undef NORMED
#undef STORED

#define ONE(d, dim) +1
enum { N(SIZES) = 1 NORMED_SIZES(ONE, ) };
#undef ONE
#define NORMED_ROW(d, dim) {dim, N(order_##d), N(forward_##d##_##dim), N(backward_##d##_##dim)},
#define ROW(d) [dtype_##d] = {{0, N(order_##d), N(turn_##d), N(turn_back_##d)}, NORMED_SIZES(NORMED_ROW, d)},
static const struct N(direct) N(directs)[dtype_end][N(SIZES)] = {CONVERTED_DTYPES(ROW)};
#undef ROW
#undef NORMED_ROW

/* Stores past the caches are of whole lines. */
INLINE bool N(is_in_lines)(const struct ek_rope_heads *h)
{
	const int64_t element = (int64_t)ek_bytes_of_dtype(h->call->dtype), *strides = h->side->y_strides;
	bool in_lines = (uintptr_t)h->side->y % LINE == 0 && N(turn_start)(h->call) * element % LINE == 0;
	for (int i = 0; i < 3; i++)
		in_lines = in_lines && strides[i] * element % LINE == 0;
	return in_lines;
}

/* For heads of a call; NULL: they become real numbers in buffers. */
INLINE const struct N(direct) * N(direct_of)(const struct ek_rope_heads *h, enum ek_rope_sum sum)
{
	const struct ek_rope_call *c = h->call;
	const int64_t half = c->rotary_dim / 2, dim = c->head_dim;
	if (c->interleaved || half % N(STEP) || dim % N(STEP) || sum == EK_ROPE_OF_BIAS ||
	    (h->nontemporal && !N(is_in_lines)(h)))
		return NULL;
	if (!c->norm)
		return &N(directs)[c->dtype][0];
	if (c->norm != EK_RMS_NORM || c->norm_last || h->side->bias || 2 * half != dim ||
	    dim > N(MOST_REGISTERS) * N(W))
		return NULL;
	for (int i = 1; i < N(SIZES); i++)
		if (N(directs)[c->dtype][i].size == dim)
			return &N(directs)[c->dtype][i];
	return NULL;
}

/* Numbers in the order of load2 back in their own: their indices show where each is. */
static void N(natural_order)(const struct N(direct) * direct, real *numbers, int64_t n)
{
	real index[N(STEP)], ordered[N(STEP)];
	for (int i = 0; i < N(STEP); i++)
		index[i] = (real)i;
	direct->order(index, N(STEP));
	for (int64_t start = 0; start < n; start += N(STEP)) {
		memcpy(ordered, numbers + start, sizeof ordered);
		for (int i = 0; i < N(STEP); i++)
			numbers[start + (int)index[i]] = ordered[i];
	}
}
