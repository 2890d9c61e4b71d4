/* Rotary position embedding in one arithmetic (rule 12 of docs/numerics.md), some heads of a token at a time: what the call reads
 * becomes real numbers, each head is computed, and the results are rounded. Included by cpu_level.c with the words of
 * cpu/level.inc.h and CONVERTED_DTYPES(X). Makes: LEVEL_ACT, a struct ek_rope_kernel. SPDX-License-Identifier: MIT */

enum { N(W) = PASTE(ACT, WIDTH), N(STEP) = 2 * N(W) };

#include "cpu/convert.inc.h"
#include "cpu/columns.inc.h"
#include "cpu/steps.inc.h"
#include "cpu/rowsum.inc.h"

/* The first n (1 … W) numbers at p. */
INLINE vec N(load)(const real *p, int n)
{
	return n == N(W) ? V(load)(p) : V(load_part)(p, n);
}

INLINE void N(store)(real *p, vec a, int n)
{
	if (n == N(W))
		V(store)(p, a);
	else
		V(store_part)(p, a, n);
}

#include "cpu_turn.inc.h"
#include "cpu_norm.inc.h"

/* ---- heads between tensors and real numbers ---- */

/* Neighbouring heads of a token in a tensor. A head is read and written where it is, if it has real numbers and nothing is to be
 * added to them or stored past the caches; otherwise it is in the buffer, head after head. */
struct N(heads) {
	struct N(tensor) tensor;
	int64_t stride, head_dim;
	real *buffer;
	bool direct;
};

INLINE struct N(heads) N(heads_of)(const struct ek_rope_call *c, const void *tensor, const int64_t strides[3],
				   int64_t token, int64_t head, real *buffer, bool direct)
{
	const int64_t at = token / c->seq * strides[0] + token % c->seq * strides[1] + head * strides[2];
	const struct N(tensor) t = N(tensor_at)(tensor, c->dtype, at);
	return (struct N(heads)){t, strides[2], c->head_dim, buffer, direct && N(is_real)(&t)};
}

/* Head i's elements, and its numbers. */
INLINE void *N(element)(const struct N(heads) * h, int64_t i)
{
	return N(from)(&h->tensor, i * h->stride);
}

INLINE real *N(head)(const struct N(heads) * h, int64_t i)
{
	return h->direct ? N(element)(h, i) : h->buffer + i * h->head_dim;
}

INLINE void N(read_heads)(const struct N(heads) * h, int64_t count)
{
	if (h->direct)
		return;
	if (h->stride == h->head_dim) {
		N(widen)(&h->tensor, 0, count * h->head_dim, h->buffer);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		N(widen)(&h->tensor, i * h->stride, h->head_dim, h->buffer + i * h->head_dim);
}

INLINE void N(write_heads)(const struct N(heads) * h, int64_t count, bool nontemporal)
{
	if (h->direct)
		return;
	if (h->stride == h->head_dim) {
		N(narrow)(h->buffer, &h->tensor, 0, count * h->head_dim, nontemporal);
		return;
	}
	for (int64_t i = 0; i < count; i++)
		N(narrow)(h->buffer + i * h->head_dim, &h->tensor, i * h->stride, h->head_dim, nontemporal);
}

/* v: x, and the bias of these heads. */
INLINE struct N(heads) N(read_biased)(const struct ek_rope_call *c, const struct ek_rope_side *side,
				      int64_t token, int64_t head, int64_t count, real *buffer)
{
	const struct N(tensor) bias = N(tensor_at)(side->bias, c->weight_dtype, 0);
	const struct N(heads) x = N(heads_of)(c, side->x, side->x_strides, token, head, buffer, !side->bias);
	N(read_heads)(&x, count);
	N(add)(&bias, head * c->head_dim, count * c->head_dim, buffer);
	return x;
}

/* Statistics of so many heads are computed before they are used: each is a long chain, and the chains overlap. */
enum { N(MOST_TOGETHER) = 32 };

/* Heads from `row` on that go together: of one token, as many as a buffer has room for. */
INLINE int64_t N(heads_together)(const struct ek_rope_heads *h, int64_t row)
{
	const int64_t heads = h->side->heads;
	return smaller(smaller(heads - row % heads, h->end - row),
		       smaller(N(MOST_TOGETHER), larger(1, SEGMENT / h->call->head_dim)));
}

#include "cpu_direct.inc.h"

/* ---- forward ---- */

/* Heads of a token, of which x is v. */
INLINE void N(forward_heads)(const struct ek_rope_call *c, const struct N(angles) * angles,
			     const real *weight, const struct N(heads) * x, const struct N(heads) * y,
			     int64_t count)
{
	struct N(stats) stats[N(MOST_TOGETHER)];
	for (int64_t i = 0; i < count && (!c->norm || c->norm_last); i++)
		N(turn)(c, angles, N(head)(x, i), N(head)(y, i));
	for (int64_t i = 0; i < count && c->norm; i++)
		stats[i] = N(statistics)(c->norm, PASTE(dtype, ACT), N(head)(c->norm_last ? y : x, i),
					 c->head_dim, (real)c->eps);
	for (int64_t i = 0; i < count && c->norm; i++) {
		N(normalize)(&stats[i], N(head)(c->norm_last ? y : x, i), weight, N(head)(y, i), c->head_dim);
		if (!c->norm_last)
			N(turn)(c, angles, N(head)(y, i), N(head)(y, i));
	}
}

/* What a token's heads are turned by; direct: or NULL. */
INLINE void N(set_angles_for)(const struct ek_rope_call *c, int64_t token, bool back,
			      const struct N(direct) * direct, struct N(angles) * angles)
{
	N(set_angles)(c, token, back, angles);
	if (direct) {
		direct->order(angles->cos, c->rotary_dim / 2);
		direct->order(angles->sin, c->rotary_dim);
	}
}

INLINE void N(set_weight_for)(const struct ek_rope_call *c, const void *weight,
			      const struct N(direct) * direct, real *to)
{
	N(set_weight)(c, weight, to);
	if (direct)
		direct->order(to, c->head_dim);
}

static void N(forward)(const struct ek_rope_heads *h)
{
	const struct ek_rope_call *c = h->call;
	const struct ek_rope_side *side = h->side;
	const struct N(direct) *direct = N(direct_of)(h, EK_ROPE_NO_SUM);
	struct N(angles) angles;
	real weight[EK_MAX_HEAD_DIM], from[SEGMENT], to[SEGMENT];
	N(set_weight_for)(c, side->weight, direct, weight);
	for (int64_t row = h->first, count; row < h->end; row += count) {
		const int64_t token = row / side->heads, head = row % side->heads;
		count = N(heads_together)(h, row);
		if (head == 0 || row == h->first)
			N(set_angles_for)(c, token, false, direct, &angles);
		if (direct) {
			const struct N(direct_heads) these =
				N(direct_heads_of)(h, token, head, count, &angles, weight);
			direct->forward(&these);
			continue;
		}
		const struct N(heads) x = N(read_biased)(c, side, token, head, count, from);
		const struct N(heads) y =
			N(heads_of)(c, side->y, side->y_strides, token, head, to, !h->nontemporal);
		N(forward_heads)(c, &angles, weight, &x, &y, count);
		N(write_heads)(&y, count, h->nontemporal);
	}
	if (h->nontemporal)
		nontemporal_fence();
}

/* ---- backward ---- */

/* What a head's gradient is computed with; d: the gradient that is turned back, before the norm's. */
struct N(backward_work) {
	struct N(angles) angles, back;
	real weight[EK_MAX_HEAD_DIM], ones[EK_MAX_HEAD_DIM], d[EK_MAX_HEAD_DIM], xhat[EK_MAX_HEAD_DIM];
};

/* dv of a head whose gradient is dy; x: v, where there is a norm. */
INLINE void N(backward_head)(const struct ek_rope_call *c, struct N(backward_work) * w, const real *x,
			     const real *dy, real *dv)
{
	struct N(stats) s;
	if (!c->norm) {
		N(turn)(c, &w->back, dy, dv);
		return;
	}
	if (c->norm_last) {
		N(turn)(c, &w->angles, x, w->d);
		s = N(statistics)(c->norm, PASTE(dtype, ACT), w->d, c->head_dim, (real)c->eps);
		N(normalize)(&s, w->d, w->ones, w->xhat, c->head_dim);
		N(norm_backward)(c, dy, w->xhat, s.rstd, w->d);
		N(turn)(c, &w->back, w->d, dv);
		return;
	}
	s = N(statistics)(c->norm, PASTE(dtype, ACT), x, c->head_dim, (real)c->eps);
	N(normalize)(&s, x, w->ones, w->xhat, c->head_dim);
	N(turn)(c, &w->back, dy, w->d);
	N(multiply)(w->d, w->weight, dv, c->head_dim);
	N(norm_backward)(c, dv, w->xhat, s.rstd, dv);
}

/* Rule 6: the columns from `start` on get a row's terms. */
INLINE void N(add_terms)(const struct N(columns) * c, int64_t start, const real *terms, int64_t count)
{
	for (int64_t i = 0; i < count; i += N(W)) {
		const int n = (int)smaller(N(W), count - i);
		const vec sum = N(load)(c->from + ((start + i) & c->mask), n);
		N(store)(c->to + start + i, V(add)(sum, N(load)(terms + i, n)), n);
	}
}

/* The same of products. */
INLINE void N(add_products)(const struct N(columns) * c, const real *a, const real *b, int64_t count)
{
	for (int64_t i = 0; i < count; i += N(W)) {
		const int n = (int)smaller(N(W), count - i);
		const vec sum = N(load)(c->from + (i & c->mask), n), x = N(load)(a + i, n),
			  y = N(load)(b + i, n);
		N(store)(c->to + i, N(plus_product)(c->kind, x, y, sum), n);
	}
}

/* Heads from `row` on, in buffers. */
INLINE void N(backward_heads)(const struct ek_rope_heads *h, struct N(backward_work) * w,
			      enum ek_rope_sum sum, struct N(column_sums) * sums, int64_t row, int64_t count,
			      bool writes)
{
	const struct ek_rope_call *c = h->call;
	const struct ek_rope_side *side = h->side;
	const int64_t token = row / side->heads, head = row % side->heads;
	real from[SEGMENT], dy_from[SEGMENT], to[SEGMENT];
	struct N(heads) x = {.direct = false};
	if (c->norm)
		x = N(read_biased)(c, side, token, head, count, from);
	const struct N(heads) dy = N(heads_of)(c, side->dy, side->dy_strides, token, head, dy_from, true);
	const struct N(heads) dx =
		N(heads_of)(c, side->y, side->y_strides, token, head, to, writes && !h->nontemporal);
	N(read_heads)(&dy, count);
	for (int64_t i = 0; i < count; i++) {
		real *dv = N(head)(&dx, i);
		N(backward_head)(c, w, c->norm ? N(head)(&x, i) : NULL, N(head)(&dy, i), dv);
		if (sum == EK_ROPE_NO_SUM)
			continue;
		const struct N(columns) columns =
			N(columns_for)(sums, sum == EK_ROPE_OF_BIAS ? token : row + i);
		if (sum == EK_ROPE_OF_BIAS) {
			N(add_terms)(&columns, (head + i) * c->head_dim, dv, c->head_dim);
		} else {
			N(add_products)(&columns, w->d, w->xhat, c->head_dim);
			N(rows_are_in)(sums, row + i + 1);
		}
	}
	if (sum == EK_ROPE_OF_BIAS && head + count == side->heads)
		N(rows_are_in)(sums, token + 1);
	if (writes)
		N(write_heads)(&dx, count, h->nontemporal);
}

static void N(backward)(const struct ek_rope_heads *h, enum ek_rope_sum sum,
			const struct ek_column_task *task, bool writes)
{
	const struct ek_rope_call *c = h->call;
	const int64_t heads = h->side->heads, dim = c->head_dim, rows = h->end - h->first;
	const struct N(direct) *direct = N(direct_of)(h, sum);
	struct N(backward_work) w;
	struct N(column_sums) sums;
	N(open_sums)
	(&sums, task, sum == EK_ROPE_OF_BIAS ? rows / heads : rows,
	 sum == EK_ROPE_OF_BIAS ? heads * dim : dim, 1);
	N(set_weight_for)(c, h->side->weight, direct, w.weight);
	N(set_weight)(c, NULL, w.ones);
	for (int64_t row = h->first, count; row < h->end; row += count) {
		const int64_t token = row / heads, head = row % heads;
		count = N(heads_together)(h, row);
		if (head == 0 || row == h->first) {
			N(set_angles_for)(c, token, true, direct, &w.back);
			if (c->norm_last)
				N(set_angles)(c, token, false, &w.angles);
		}
		if (!direct) {
			N(backward_heads)(h, &w, sum, &sums, row, count, writes);
			continue;
		}
		const struct N(columns) columns = N(columns_for)(&sums, row);
		if (task)
			count = smaller(count, N(rows_in_chunk)(&sums, row));
		const struct N(direct_heads) these =
			N(direct_heads_of)(h, token, head, count, &w.back, w.weight);
		direct->backward(&these, &columns, writes);
		if (task)
			N(rows_are_in)(&sums, row + count);
	}
	if (task) {
		N(finish_tree)(&sums.tree, task->result);
		if (direct)
			N(natural_order)(direct, task->result, dim);
	}
	if (h->nontemporal)
		nontemporal_fence();
}

static void N(finish_columns)(const struct ek_rope_call *c, void *gradient, const void *results,
			      int64_t count, int64_t cols, int64_t first, int64_t end)
{
	const struct N(tensor) to = N(tensor_at)(gradient, c->gradient_dtype, 0);
	real total[SEGMENT];
	for (int64_t start = first; start < end; start += SEGMENT) {
		const int64_t n = smaller(SEGMENT, end - start);
		N(finish_gradient)((const real *)results + start, count, cols, 0, n, false, total);
		if (c->accumulate)
			N(add)(&to, start, n, total);
		N(narrow)(total, &to, start, n, false);
	}
}

extern const struct ek_rope_kernel PASTE(LEVEL, ACT);
const struct ek_rope_kernel PASTE(LEVEL, ACT) = {N(forward), N(backward), N(finish_columns)};
