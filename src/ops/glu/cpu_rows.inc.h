/* Gated activations in one arithmetic (rule 14 of docs/numerics.md), a segment of a row at a time: what the call reads becomes
 * real numbers, one loop computes, and the results are rounded. Included by cpu_level.c with the words of cpu/level.inc.h and
 * CONVERTED_DTYPES(X). Makes: LEVEL_ACT, a struct ek_glu_kernel. SPDX-License-Identifier: MIT */

enum { N(W) = PASTE(ACT, WIDTH), N(STEP) = 2 * N(W) };

#include "cpu/convert.inc.h"
#include "cpu/columns.inc.h"

/* ---- a segment ---- */

struct N(segment) {
	const real *gate, *value, *dy; /* value: ones where there is none */
	int64_t value_mask;            /* 0: the same register again and again */
	real *y;
	real *dgate, *dvalue;
	const struct ek_glu_numbers *numbers;
};

/* The numbers in registers; neutral where LIMITED is not. */
struct N(limits) {
	vec limit, value_most, value_least, alpha, inverse, offset;
};

INLINE struct N(limits) N(limits_of)(const struct ek_glu_numbers *n)
{
	return (struct N(limits)){V(splat)((real)n->limit),        V(splat)((real)n->value_limit),
				  V(splat)((real)-n->value_limit), V(splat)((real)n->alpha),
				  V(splat)((real)n->inverse),      V(splat)((real)n->value_offset)};
}

/* t and v of a register become what the activation and the product take. */
INLINE void N(apply_limits)(const struct N(limits) * l, vec *t, vec *v)
{
	*t = V(mul)(V(at_most)(*t, l->limit), l->alpha);
	*v = V(add)(V(at_least)(V(at_most)(*v, l->value_most), l->value_least), l->offset);
}

/* An activation, with numbers or without them: x is `limited`. The loops have a copy of the segment, which no store can change: its
 * pointers stay in registers. */
#define LOOPS(name, x, LIMITED)                                                                              \
	INLINE vec N(y_##name##_##x)(vec t, vec v, const struct N(limits) * l)                               \
	{                                                                                                    \
		if (LIMITED)                                                                                 \
			N(apply_limits)(l, &t, &v);                                                          \
		const vec a = V(name)(t);                                                                    \
		return V(mul)(LIMITED ? V(mul)(a, l->inverse) : a, v);                                       \
	}                                                                                                    \
	static void N(forward_##name##_##x)(const struct N(segment) * given, int64_t n)                      \
	{                                                                                                    \
		const struct N(segment) own = *given, *s = &own;                                             \
		const struct N(limits) l = N(limits_of)(s->numbers);                                         \
		int64_t i = 0;                                                                               \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                                     \
			vec y[2];                                                                            \
			UNROLL for (int k = 0; k < 2; k++) y[k] =                                            \
				N(y_##name##_##x)(V(load)(s->gate + i + k * N(W)),                           \
						  V(load)(s->value + ((i + k * N(W)) & s->value_mask)), &l); \
			V(store)(s->y + i, y[0]);                                                            \
			V(store)(s->y + i + N(W), y[1]);                                                     \
		}                                                                                            \
		for (; i < n; i += N(W)) {                                                                   \
			int left = (int)smaller(N(W), n - i);                                                \
			vec v = V(load_part)(s->value + (i & s->value_mask), left);                          \
			V(store_part)                                                                        \
			(s->y + i, N(y_##name##_##x)(V(load_part)(s->gate + i, left), v, &l), left);         \
		}                                                                                            \
	}                                                                                                    \
	INLINE void N(gradients_##name##_##x)(vec t, vec v, vec dy, const struct N(limits) * l, vec * dgate, \
					      vec * dvalue)                                                  \
	{                                                                                                    \
		const vec over = t, beyond = V(magnitude)(v), zero = V(splat)(0);                            \
		vec slope;                                                                                   \
		if (LIMITED)                                                                                 \
			N(apply_limits)(l, &t, &v);                                                          \
		const vec a = V(name##_and_slope)(t, &slope);                                                \
		*dvalue = V(mul)(dy, LIMITED ? V(mul)(a, l->inverse) : a);                                   \
		*dgate = V(mul)(V(mul)(dy, v), slope);                                                       \
		if (LIMITED) {                                                                               \
			*dvalue = V(if_less)(l->value_most, beyond, zero, *dvalue);                          \
			*dgate = V(if_less)(l->limit, over, zero, *dgate);                                   \
		}                                                                                            \
	}                                                                                                    \
	static void N(backward_##name##_##x)(const struct N(segment) * given, int64_t n)                     \
	{                                                                                                    \
		const struct N(segment) own = *given, *s = &own;                                             \
		const struct N(limits) l = N(limits_of)(s->numbers);                                         \
		for (int64_t i = 0; i < n; i += N(W)) {                                                      \
			vec dgate, dvalue;                                                                   \
			if (i + N(W) <= n) {                                                                 \
				N(gradients_##name##_##x)                                                    \
				(V(load)(s->gate + i), V(load)(s->value + (i & s->value_mask)),              \
				 V(load)(s->dy + i), &l, &dgate, &dvalue);                                   \
				V(store)(s->dgate + i, dgate);                                               \
				V(store)(s->dvalue + i, dvalue);                                             \
				continue;                                                                    \
			}                                                                                    \
			int left = (int)(n - i);                                                             \
			N(gradients_##name##_##x)                                                            \
			(V(load_part)(s->gate + i, left),                                                    \
			 V(load_part)(s->value + (i & s->value_mask), left), V(load_part)(s->dy + i, left),  \
			 &l, &dgate, &dvalue);                                                               \
			V(store_part)(s->dgate + i, dgate, left);                                            \
			V(store_part)(s->dvalue + i, dvalue, left);                                          \
		}                                                                                            \
	}
#define LOOPS_OF(number, name) LOOPS(name, plain, false) LOOPS(name, limited, true)
EK_GLU_ACTIVATIONS(LOOPS_OF)
#undef LOOPS_OF
#undef LOOPS

struct N(loops) {
	void (*forward)(const struct N(segment) * s, int64_t n);
	void (*backward)(const struct N(segment) * s, int64_t n);
};

#define ROW(number, name)                                                    \
	[number] = {{N(forward_##name##_plain), N(backward_##name##_plain)}, \
		    {N(forward_##name##_limited), N(backward_##name##_limited)}},
static const struct N(loops) N(loops_of)[EK_IDENTITY + 1][2] = {EK_GLU_ACTIVATIONS(ROW)};
#undef ROW

/* ---- a row without biases and limits, of gate and value: no buffers ---- */

struct N(direct) {
	const void *gate, *value, *dy;
	void *y, *dgate, *dvalue;
	bool nontemporal; /* then what is written starts at a line */
};

#define PUT(d)                                                                               \
	INLINE void N(put_##d)(PASTE(d, element) * to, vec a, vec b, bool nontemporal)        \
	{                                                                                    \
		vec v[2] = {a, b};                                                           \
		PASTE(d, in_order)(v);                                                       \
		if (nontemporal)                                                             \
			PASTE(d, store2_nontemporal)(to, v);                                 \
		else                                                                         \
			PASTE(d, store2)(to, v);                                             \
	}
CONVERTED_DTYPES(PUT)
#undef PUT

/* All of a step is read before it is written, in place. */
#define DIRECT(name, d)                                                                                    \
	static void N(forward_##name##_of_##d)(const struct N(direct) * given, int64_t n)                  \
	{                                                                                                  \
		const struct N(direct) s = *given;                                                         \
		const PASTE(d, element) *gate = s.gate, *value = s.value;                                  \
		PASTE(d, element) *to = s.y;                                                               \
		int64_t i = 0;                                                                             \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                                   \
			vec y[2];                                                                          \
			UNROLL for (int k = 0; k < 2; k++) y[k] = N(y_##name##_plain)(                     \
				PASTE(d, load)(gate + i + k * N(W)), PASTE(d, load)(value + i + k * N(W)), NULL); \
			N(put_##d)(to + i, y[0], y[1], s.nontemporal);                                     \
		}                                                                                          \
		for (; i < n; i += N(W)) {                                                                 \
			int left = (int)smaller(N(W), n - i);                                              \
			vec t = PASTE(d, load_part)(gate + i, left), v = PASTE(d, load_part)(value + i, left); \
			PASTE(d, store_part)(to + i, N(y_##name##_plain)(t, v, NULL), left);               \
		}                                                                                          \
	}                                                                                                  \
	static void N(backward_##name##_of_##d)(const struct N(direct) * given, int64_t n)                 \
	{                                                                                                  \
		const struct N(direct) s = *given;                                                         \
		const PASTE(d, element) *gate = s.gate, *value = s.value, *dy = s.dy;                      \
		PASTE(d, element) *dgate = s.dgate, *dvalue = s.dvalue;                                    \
		int64_t i = 0;                                                                             \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                                   \
			vec of_gate[2], of_value[2];                                                       \
			UNROLL for (int k = 0; k < 2; k++) N(gradients_##name##_plain)(                    \
				PASTE(d, load)(gate + i + k * N(W)), PASTE(d, load)(value + i + k * N(W)), \
				PASTE(d, load)(dy + i + k * N(W)), NULL, &of_gate[k], &of_value[k]);       \
			N(put_##d)(dgate + i, of_gate[0], of_gate[1], s.nontemporal);                      \
			N(put_##d)(dvalue + i, of_value[0], of_value[1], s.nontemporal);                   \
		}                                                                                          \
		for (; i < n; i += N(W)) {                                                                 \
			int left = (int)smaller(N(W), n - i);                                              \
			vec of_gate, of_value;                                                             \
			N(gradients_##name##_plain)                                                        \
			(PASTE(d, load_part)(gate + i, left), PASTE(d, load_part)(value + i, left),        \
			 PASTE(d, load_part)(dy + i, left), NULL, &of_gate, &of_value);                    \
			PASTE(d, store_part)(dgate + i, of_gate, left);                                    \
			PASTE(d, store_part)(dvalue + i, of_value, left);                                  \
		}                                                                                          \
	}
#define DIRECT_OF(number, name) DTYPES_OF(DIRECT, name)
EK_GLU_ACTIVATIONS(DIRECT_OF)
#undef DIRECT_OF
#undef DIRECT

struct N(direct_loops) {
	void (*forward)(const struct N(direct) * s, int64_t n);
	void (*backward)(const struct N(direct) * s, int64_t n);
};

#define DIRECT_ROW(name, d) [dtype_##d] = {N(forward_##name##_of_##d), N(backward_##name##_of_##d)},
#define ROW(number, name) [number] = {DTYPES_OF(DIRECT_ROW, name)},
static const struct N(direct_loops) N(direct_of)[EK_IDENTITY + 1][dtype_end] = {EK_GLU_ACTIVATIONS(ROW)};
#undef ROW
#undef DIRECT_ROW

/* Non-temporal stores are of whole lines. */
INLINE bool N(is_writable)(const struct N(tensor) * to, bool nontemporal)
{
	return to->at && (!nontemporal || (uintptr_t)to->at % 64 == 0);
}

/* ---- what a segment reads ---- */

/* The gate and the value of a call; buffers are of SEGMENT numbers, pairs of twice that. */
struct N(inputs) {
	struct N(tensor) gate, value, gate_bias, value_bias;
	bool interleaved;
	real *gate_buffer, *value_buffer, *pairs;
};

/* The elements of a tensor plus a bias: where they are if they are real numbers, and no bias is added. */
INLINE const real *N(numbers_at)(const struct N(tensor) * t, const struct N(tensor) * bias, int64_t start,
				 int64_t n, real *buffer)
{
	if (N(is_real)(t) && !bias->at)
		return N(from)(t, start);
	N(widen)(t, start, n, buffer);
	N(add)(bias, start, n, buffer);
	return buffer;
}

INLINE void N(read_inputs)(const struct N(inputs) * in, int64_t start, int64_t n, struct N(segment) * s)
{
	if (in->interleaved) {
		const real *pairs = N(numbers_at)(&in->gate, &in->gate_bias, 2 * start, 2 * n, in->pairs);
		for (int64_t i = 0; i < n; i++) {
			real pair[2]; /* which may lie at any address */
			memcpy(pair, pairs + 2 * i, sizeof pair);
			in->gate_buffer[i] = pair[0];
			in->value_buffer[i] = pair[1];
		}
		s->gate = in->gate_buffer;
		s->value = in->value_buffer;
		return;
	}
	s->gate = N(numbers_at)(&in->gate, &in->gate_bias, start, n, in->gate_buffer);
	if (in->value.at)
		s->value = N(numbers_at)(&in->value, &in->value_bias, start, n, in->value_buffer);
}

/* ---- forward ---- */

static void N(forward)(const ek_glu_forward_args *a, int64_t first, int64_t end, bool nontemporal)
{
	real gate[SEGMENT], value[SEGMENT], pairs[2 * SEGMENT], y[SEGMENT];
	const bool has_value = a->value || a->interleaved;
	const struct ek_glu_numbers numbers =
		ek_glu_numbers_of(a->dtype, has_value, a->limit, a->alpha, a->value_offset);
	const struct N(loops) *loops =
		&N(loops_of)[a->activation][ek_glu_is_limited(a->limit, a->alpha, a->value_offset)];
	struct N(segment)
		s = {.value = PASTE(ACT, ones), .value_mask = has_value ? -1 : 0, .numbers = &numbers};
	struct N(inputs) in = {.gate_bias = N(tensor_at)(a->gate_bias, a->weight_dtype, 0),
			       .value_bias = N(tensor_at)(a->value_bias, a->weight_dtype, 0),
			       .interleaved = a->interleaved,
			       .gate_buffer = gate,
			       .value_buffer = value,
			       .pairs = pairs};
	const bool plain = a->value && !a->gate_bias && !a->value_bias &&
			   !ek_glu_is_limited(a->limit, a->alpha, a->value_offset);
	for (int64_t row = first; row < end; row++) {
		const struct N(tensor) to = N(tensor_at)(a->y, a->dtype, row * a->y_stride);
		in.gate = N(tensor_at)(a->gate, a->dtype, row * a->gate_stride);
		in.value = N(tensor_at)(a->value, a->dtype, row * a->value_stride);
		if (plain && N(is_writable)(&to, nontemporal)) {
			const struct N(direct) all = {
				.gate = in.gate.at, .value = in.value.at, .y = to.at, .nontemporal = nontemporal};
			N(direct_of)[a->activation][a->dtype].forward(&all, a->cols);
			continue;
		}
		for (int64_t start = 0; start < a->cols; start += SEGMENT) {
			const int64_t n = smaller(SEGMENT, a->cols - start);
			const bool direct = N(is_real)(&to) && !nontemporal;
			N(read_inputs)(&in, start, n, &s);
			s.y = direct ? N(from)(&to, start) : y;
			loops->forward(&s, n);
			if (!direct)
				N(narrow)(y, &to, start, n, nontemporal);
		}
	}
	if (nontemporal)
		nontemporal_fence();
}

/* ---- backward ---- */

/* Rule 6: the terms of a segment, of sum number `sum`. */
INLINE void N(add_terms)(const struct N(columns) * c, int sum, int64_t start, const real *terms, int64_t n)
{
	const real *from = c->from + ((sum * c->cols + start) & c->mask);
	real *to = c->to + sum * c->cols + start;
	for (int64_t i = 0; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		V(store_part)
		(to + i, V(add)(V(load_part)(from + (i & c->mask), left), V(load_part)(terms + i, left)),
		 left);
	}
}

/* The gradients of a segment of interleaved tensors. */
INLINE void N(interleave)(const real *dgate, const real *dvalue, int64_t n, real *pairs)
{
	for (int64_t i = 0; i < n; i++) {
		pairs[2 * i] = dgate[i];
		pairs[2 * i + 1] = dvalue[i];
	}
}

static void N(backward)(const ek_glu_backward_args *a, int64_t first, int64_t end,
			const struct ek_column_task *task, bool nontemporal)
{
	real gate[SEGMENT], value[SEGMENT], pairs[2 * SEGMENT], dy[SEGMENT], dgate[SEGMENT], dvalue[SEGMENT];
	const bool has_value = a->value || a->interleaved;
	const struct ek_glu_numbers numbers =
		ek_glu_numbers_of(a->dtype, has_value, a->limit, a->alpha, a->value_offset);
	const struct N(loops) *loops =
		&N(loops_of)[a->activation][ek_glu_is_limited(a->limit, a->alpha, a->value_offset)];
	const struct N(tensor) absent = N(tensor_at)(NULL, a->dtype, 0);
	struct N(segment) s = {.value = PASTE(ACT, ones),
			       .value_mask = has_value ? -1 : 0,
			       .dgate = dgate,
			       .dvalue = dvalue,
			       .numbers = &numbers};
	struct N(inputs) in = {.gate_bias = N(tensor_at)(a->gate_bias, a->weight_dtype, 0),
			       .value_bias = N(tensor_at)(a->value_bias, a->weight_dtype, 0),
			       .interleaved = a->interleaved,
			       .gate_buffer = gate,
			       .value_buffer = value,
			       .pairs = pairs};
	struct N(column_sums) sums;
	const int sum_count = ek_glu_sums(a);
	const bool plain = !task && a->value && !a->gate_bias && !a->value_bias &&
			   !ek_glu_is_limited(a->limit, a->alpha, a->value_offset);
	N(open_sums)(&sums, task, end - first, a->cols, sum_count);
	for (int64_t row = first; row < end; row++) {
		const struct N(columns) columns = N(columns_for)(&sums, row);
		const struct N(tensor) dgate_to = N(tensor_at)(a->dgate, a->dtype, row * a->dgate_stride),
				       dvalue_to = N(tensor_at)(a->dvalue, a->dtype, row * a->dvalue_stride),
				       dy_from = N(tensor_at)(a->dy, a->dtype, row * a->dy_stride);
		in.gate = N(tensor_at)(a->gate, a->dtype, row * a->gate_stride);
		in.value = N(tensor_at)(a->value, a->dtype, row * a->value_stride);
		if (plain && N(is_writable)(&dgate_to, nontemporal) && N(is_writable)(&dvalue_to, nontemporal)) {
			const struct N(direct) all = {.gate = in.gate.at,
						      .value = in.value.at,
						      .dy = dy_from.at,
						      .dgate = dgate_to.at,
						      .dvalue = dvalue_to.at,
						      .nontemporal = nontemporal};
			N(direct_of)[a->activation][a->dtype].backward(&all, a->cols);
			continue;
		}
		for (int64_t start = 0; start < a->cols; start += SEGMENT) {
			const int64_t n = smaller(SEGMENT, a->cols - start);
			N(read_inputs)(&in, start, n, &s);
			s.dy = N(numbers_at)(&dy_from, &absent, start, n, dy);
			loops->backward(&s, n);
			if (task) {
				N(add_terms)(&columns, 0, start, dgate, n);
				if (sum_count == 2)
					N(add_terms)(&columns, 1, start, dvalue, n);
			}
			if (a->interleaved && a->dgate) {
				N(interleave)(dgate, dvalue, n, pairs);
				N(narrow)(pairs, &dgate_to, 2 * start, 2 * n, nontemporal);
				continue;
			}
			N(narrow)(dgate, &dgate_to, start, n, nontemporal);
			N(narrow)(dvalue, &dvalue_to, start, n, nontemporal);
		}
		if (task)
			N(rows_are_in)(&sums, row + 1);
	}
	if (task)
		N(finish_tree)(&sums.tree, task->result);
	if (nontemporal)
		nontemporal_fence();
}

INLINE void N(write_gradient)(const ek_glu_backward_args *a, void *gradient, real *total, int64_t start,
			      int64_t n)
{
	const struct N(tensor) to = N(tensor_at)(gradient, a->gradient_dtype, 0);
	if (a->accumulate)
		N(add)(&to, start, n, total);
	N(narrow)(total, &to, start, n, false);
}

static void N(finish_columns)(const ek_glu_backward_args *a, const void *results, int64_t count,
			      int64_t first, int64_t end)
{
	const real *sums = results;
	const int64_t stride = ek_glu_sums(a) * a->cols;
	real dgate[SEGMENT], dvalue[SEGMENT], pairs[2 * SEGMENT];
	for (int64_t start = first; start < end; start += SEGMENT) {
		const int64_t n = smaller(SEGMENT, end - start);
		N(finish_gradient)(sums + start, count, stride, 0, n, false, dgate);
		if (stride > a->cols)
			N(finish_gradient)(sums + a->cols + start, count, stride, 0, n, false, dvalue);
		if (a->interleaved) {
			N(interleave)(dgate, dvalue, n, pairs);
			N(write_gradient)(a, a->dgate_bias, pairs, 2 * start, 2 * n);
			continue;
		}
		N(write_gradient)(a, a->dgate_bias, dgate, start, n);
		N(write_gradient)(a, a->dvalue_bias, dvalue, start, n);
	}
}

extern const struct ek_glu_kernel PASTE(LEVEL, ACT);
const struct ek_glu_kernel PASTE(LEVEL, ACT) = {N(forward), N(backward), N(finish_columns)};
