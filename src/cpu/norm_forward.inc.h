/* The forward kernel: rows in pairs, so that weight and bias are read once for two rows and the latency of
 * one row's sums hides behind the other's. The pair to come is fetched meanwhile, a few lines with each step.
 * Included by norm_kernels.inc.h. SPDX-License-Identifier: MIT */

struct N(row) {
	const T *x;
	T *y;
	struct N(stats) stats;
};

/* Columns from … to-1 of `count` rows, rule 4. With stream, y + from is aligned to a line. */
INLINE void N(normalize)(const int count, const struct N(row) *rows, const struct N(affine) *affine, int64_t from,
			 int64_t to, struct fetch *ahead, const bool centred, const bool stream)
{
	struct fetch fetch = *ahead;
	struct N(affine) f = *affine;
	struct N(row) r[2] = {rows[0], rows[count - 1]};
	int64_t i = from;
	for (; i + 2 * N(W) <= to; i += 2 * N(W)) {
		vec w0 = B(load)(f.weight + (i & f.weight_mask)), w1 = B(load)(f.weight + ((i + N(W)) & f.weight_mask));
		vec b0 = B(load)(f.bias + (i & f.bias_mask)), b1 = B(load)(f.bias + ((i + N(W)) & f.bias_mask));
		vec y[2][2];
		UNROLL for (int k = 0; k < count; k++) {
			y[k][0] = V(fma)(N(xhat)(A(load)(r[k].x + i), &r[k].stats, centred), w0, b0);
			y[k][1] = V(fma)(N(xhat)(A(load)(r[k].x + i + N(W)), &r[k].stats, centred), w1, b1);
		}
		ALL_LOADED;
		UNROLL for (int k = 0; k < count; k++) {
			if (stream)
				A(stream2)(r[k].y + i, y[k][0], y[k][1]);
			else
				A(store2)(r[k].y + i, y[k][0], y[k][1]);
		}
		fetch_ahead(&fetch, count * N(W) * (int)sizeof(T));
	}
	for (; i < to; i += N(W)) {
		int n = to - i < N(W) ? (int)(to - i) : N(W);
		vec w = B(load_part)(f.weight + (i & f.weight_mask), n), b = B(load_part)(f.bias + (i & f.bias_mask), n);
		for (int k = 0; k < count; k++) {
			vec x = A(load_part)(r[k].x + i, n);
			A(store_part)(r[k].y + i, V(fma)(N(xhat)(x, &r[k].stats, centred), w, b), n);
		}
	}
	*ahead = fetch;
}

#define NORMALIZE(name, centred)                                                                       \
	OUTLINE void N(name##_pair)(const struct N(row) *rows, const struct N(affine) *f, int64_t from, int64_t to, \
				   struct fetch *ahead, bool stream)                                                                    \
	{                                                                                                  \
		if (stream)                                                                                    \
			N(normalize)(2, rows, f, from, to, ahead, centred, true);                                         \
		else                                                                                           \
			N(normalize)(2, rows, f, from, to, ahead, centred, false);                                        \
	}                                                                                                  \
	OUTLINE void N(name##_one)(const struct N(row) *row, const struct N(affine) *f, int64_t from, int64_t to,   \
				  struct fetch *ahead, bool stream)                                                                     \
	{                                                                                                  \
		if (stream)                                                                                    \
			N(normalize)(1, row, f, from, to, ahead, centred, true);                                          \
		else                                                                                           \
			N(normalize)(1, row, f, from, to, ahead, centred, false);                                         \
	}
NORMALIZE(normalize_centred, true)
NORMALIZE(normalize_rms, false)

/* Writes segment `start` of the rows. */
OUTLINE void N(normalize_segment)(const struct N(row) *rows, int count, const struct N(affine) *f, int64_t start,
				 int64_t cols, struct fetch *ahead, bool centred, bool stream)
{
	struct span spans[2][2];
	if (write_spans(count, rows[0].y, rows[count - 1].y, sizeof(T), start, cols, stream, spans)) {
		struct span s = spans[0][1];
		(centred ? N(normalize_centred_pair) : N(normalize_rms_pair))(rows, f, s.from, s.to, ahead, stream);
		return;
	}
	for (int k = 0; k < count; k++)
		for (int part = 0; part < 2; part++) {
			struct span s = spans[k][part];
			if (s.from < s.to)
				(centred ? N(normalize_centred_one) : N(normalize_rms_one))(rows + k, f, s.from, s.to, ahead,
											    stream && part);
		}
}

INLINE void N(put_stats)(const ek_norm_forward_args *a, int64_t row, const struct N(stats) *stats)
{
	if (a->mean)
		memcpy((real *)a->mean + row, &stats->mean, sizeof(real));
	if (a->rstd)
		memcpy((real *)a->rstd + row, &stats->rstd, sizeof(real));
	if (a->mean_lo)
		memcpy((real *)a->mean_lo + row, &stats->mean_lo, sizeof(real));
}

struct N(pair) {
	struct N(row) rows[2];
	int count;
};

INLINE struct N(pair) N(pair_at)(const ek_norm_forward_args *a, int64_t row, int64_t end)
{
	struct N(pair) pair = {.count = end - row >= 2 ? 2 : 1};
	for (int k = 0; k < pair.count; k++) {
		pair.rows[k].x = (const T *)a->x + (row + k) * a->x_stride;
		pair.rows[k].y = (T *)a->y + (row + k) * a->y_stride;
	}
	return pair;
}

INLINE void N(sweep_pair)(const ek_norm_forward_args *a, struct N(pair) *pair, struct fetch *ahead, const bool second,
			  const bool centred)
{
	const T *const x[2] = {pair->rows[0].x, pair->rows[1].x};
	struct N(stats) *stats[2] = {&pair->rows[0].stats, &pair->rows[1].stats};
	if (second)
		N(second_sweep)(x, pair->count, a->cols, (real)a->eps, ahead, stats);
	else
		N(first_sweep)(x, pair->count, a->cols, (real)a->eps, ahead, stats, centred);
}

INLINE void N(forward_rows)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool stream,
			    const bool centred)
{
	struct N(affine) f = N(affine_of)(a->weight, a->bias);
	int64_t bytes = a->cols * (int64_t)sizeof(T), stride = a->x_stride * (int64_t)sizeof(T);
	struct fetch ahead = fetch_rows(a->x, first + 2, end, bytes, stride);
	for (int64_t row = first; row < end; row += 2) {
		struct N(pair) now = N(pair_at)(a, row, end);
		ahead.due += ahead.rows ? 2 * bytes : 0;
		for (int k = 0; stream && k < now.count; k++)
			fetch_edges(now.rows[k].y, bytes);
		N(sweep_pair)(a, &now, &ahead, false, centred);
		if (centred)
			N(sweep_pair)(a, &now, &ahead, true, centred);
		for (int k = 0; k < now.count; k++)
			N(put_stats)(a, row + k, &now.rows[k].stats);
		for (int64_t start = 0; start < a->cols; start += SEGMENT)
			N(normalize_segment)(now.rows, now.count, &f, start, a->cols, &ahead, centred, stream);
		fetch_rest(&ahead);
	}
	if (stream)
		stream_fence();
}

static void N(forward)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool stream)
{
	if (a->norm == EK_LAYER_NORM)
		N(forward_rows)(a, first, end, stream, true);
	else
		N(forward_rows)(a, first, end, stream, false);
}
