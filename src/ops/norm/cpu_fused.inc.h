/* The norms with their neighbours and flavours (docs/numerics.md, rules 8 and 10): the norm's input is made in real numbers
 * from operands of any dtype, the sums of the plain kernels run on it, and results are rounded in the loop that computes
 * them. The input is made once where the row fits a buffer, and for every pass otherwise. Here: the operands and the
 * input. Included by cpu_kernels.inc.h for f32 and f64, with FUSED_DTYPES(X): the dtypes of their arithmetic,
 * FUSED_PAIRS(X): those of x or y and a residual, and FUSED_16_BIT if there are others than ACT.
 * Makes: N(fused), a struct ek_fused_kernel. SPDX-License-Identifier: MIT */

/* Numbers of a row that is kept: 32 KiB. */
enum { N(KEPT) = (32 << 10) / sizeof(real) };

#define CONVERTED_DTYPES FUSED_DTYPES
#include "cpu/convert.inc.h"
#undef CONVERTED_DTYPES

/* ---- activations (rule 11), of n numbers; n is at most SEGMENT ---- */

struct N(activation) {
	void (*apply)(real *t, int64_t n);
	void (*both)(const real *t, int64_t n, real *value, real *slope);
	void (*scale)(const real *t, int64_t n, const real *dy, real *to); /* to = dy * the derivative */
};

#define ACTIVATION(number, name)                                                                   \
	static void N(apply_##name)(real *t, int64_t n)                                            \
	{                                                                                          \
		int64_t i = 0;                                                                     \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                           \
			vec y[2] = {V(name)(V(load)(t + i)), V(name)(V(load)(t + i + N(W)))};      \
			V(store)(t + i, y[0]);                                                     \
			V(store)(t + i + N(W), y[1]);                                              \
		}                                                                                  \
		for (; i < n; i += N(W)) {                                                         \
			int left = (int)smaller(N(W), n - i);                                      \
			V(store_part)(t + i, V(name)(V(load_part)(t + i, left)), left);            \
		}                                                                                  \
	}                                                                                          \
	static void N(both_##name)(const real *t, int64_t n, real *value, real *slope)             \
	{                                                                                          \
		for (int64_t i = 0; i < n; i += N(W)) {                                            \
			int left = (int)smaller(N(W), n - i);                                      \
			vec d, v = V(name##_and_slope)(V(load_part)(t + i, left), &d);             \
			V(store_part)(value + i, v, left);                                         \
			V(store_part)(slope + i, d, left);                                         \
		}                                                                                  \
	}                                                                                          \
	static void N(scale_##name)(const real *t, int64_t n, const real *dy, real *to)            \
	{                                                                                          \
		int64_t i = 0;                                                                     \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                           \
			vec slope[2];                                                              \
			UNROLL for (int k = 0; k < 2; k++)                                         \
				(void)V(name##_and_slope)(V(load)(t + i + k * N(W)), &slope[k]);   \
			UNROLL for (int k = 0; k < 2; k++)                                         \
				V(store)(to + i + k * N(W), V(mul)(V(load)(dy + i + k * N(W)), slope[k])); \
		}                                                                                  \
		for (; i < n; i += N(W)) {                                                         \
			int left = (int)smaller(N(W), n - i);                                      \
			vec slope;                                                                 \
			(void)V(name##_and_slope)(V(load_part)(t + i, left), &slope);              \
			V(store_part)(to + i, V(mul)(V(load_part)(dy + i, left), slope), left);    \
		}                                                                                  \
	}
EK_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION

#define ROW(number, name) [number] = {N(apply_##name), N(both_##name), N(scale_##name)},
static const struct N(activation) N(activations)[] = {EK_ACTIVATIONS(ROW)};
#undef ROW

/* to = a * b; to may be either. */
static void N(multiply)(const real *a, const real *b, int64_t n, real *to)
{
	for (int64_t i = 0; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		V(store_part)(to + i, V(mul)(V(load_part)(a + i, left), V(load_part)(b + i, left)), left);
	}
}

/* ---- numbers of columns: weight, bias, x_bias ---- */

/* As real numbers: where they lie if they are such, else of all columns, made once for the rows of a task, or segment by
 * segment. */
struct N(wide) {
	struct N(tensor) tensor;
	int offset; /* 1: 1 is added to each number */
	bool direct, kept;
	real numbers[N(KEPT)];
};

INLINE void N(widen_columns)(struct N(wide) *w, int64_t start, int64_t n, int64_t at)
{
	N(widen)(&w->tensor, start, n, w->numbers + at);
	for (int64_t i = at; w->offset && i < at + n; i++)
		w->numbers[i] = 1 + w->numbers[i];
}

INLINE void N(open_wide)(struct N(wide) *w, const void *tensor, ek_dtype dtype, int offset, int64_t cols)
{
	w->tensor = N(tensor_at)(tensor, dtype, 0);
	w->offset = offset;
	w->direct = !tensor || (N(is_real)(&w->tensor) && !offset);
	w->kept = cols <= N(KEPT);
	for (int64_t start = 0; !w->direct && w->kept && start < cols; start += SEGMENT)
		N(widen_columns)(w, start, N(segment_length)(cols, start), start);
}

/* From column `start` on: n of them, a segment or a group of at most KEPT; where all are kept, those behind too. NULL:
 * absent. */
INLINE const real *N(wide_at)(struct N(wide) *w, int64_t start, int64_t n)
{
	if (w->direct)
		return N(from)(&w->tensor, start);
	if (!w->kept)
		N(widen_columns)(w, start, n, 0);
	return w->numbers + (w->kept ? start : 0);
}

/* ---- the norm's input: h = (x + x_bias) + residual ---- */

/* What a segment of it is made of. */
struct N(parts) {
	const void *x, *residual; /* residual: NULL if absent */
	const real *x_bias;
	int64_t x_bias_mask; /* 0: absent, and x_bias points to a register of -0 */
};

/* What y is made of, from the first column that is written on. */
struct N(result) {
	const real *x;
	struct N(stats) stats;
	struct N(affine) affine;
	const void *after; /* NULL: absent */
	void *y;
};

#define OUTER ACT
#define INNER ACT
#include "cpu_fused_pair.inc.h"
#ifdef FUSED_16_BIT
#define OUTER f32
#define INNER f16
#include "cpu_fused_pair.inc.h"
#define OUTER f32
#define INNER bf16
#include "cpu_fused_pair.inc.h"
#define OUTER f16
#define INNER f32
#include "cpu_fused_pair.inc.h"
#define OUTER f16
#define INNER f16
#include "cpu_fused_pair.inc.h"
#define OUTER bf16
#define INNER f32
#include "cpu_fused_pair.inc.h"
#define OUTER bf16
#define INNER bf16
#include "cpu_fused_pair.inc.h"
#endif

struct N(pair) {
	void (*make)(const struct N(parts) *parts, int64_t n, real *to, void *h, bool nontemporal);
	void (*write_centred)(const struct N(result) *result, int64_t n, bool nontemporal);
	void (*write_rms)(const struct N(result) *result, int64_t n, bool nontemporal);
};
#define PAIR(name, outer, inner) PASTE(name, PASTE(PASTE(ACT, outer), inner))
#define ROW(outer, inner) [dtype_##outer][dtype_##inner] = \
	{PAIR(make, outer, inner), PAIR(write_centred, outer, inner), PAIR(write_rms, outer, inner)},
static const struct N(pair) N(pairs)[dtype_end][dtype_end] = {FUSED_PAIRS(ROW)};
#undef ROW
#undef PAIR

#define OUTER ACT
#include "cpu_fused_gate_dtype.inc.h"
#ifdef FUSED_16_BIT
#define OUTER f16
#include "cpu_fused_gate_dtype.inc.h"
#define OUTER bf16
#include "cpu_fused_gate_dtype.inc.h"
#endif
#define ROW(d) [dtype_##d] = PASTE(widen_gated, PASTE(ACT, d)),
static void (*const N(gates)[dtype_end])(const void *x, const void *gate, int64_t n, real *to,
					 ek_activation activation) = {FUSED_DTYPES(ROW)};
#undef ROW

struct N(input) {
	struct N(tensor) x, residual, h; /* h: where it is written */
	struct N(tensor) gate;           /* that multiplies x (rule 11) */
	ek_activation activation;        /* of the gate */
	struct N(wide) *x_bias;
	int64_t first; /* column of its first element: where a group starts (rule 13) */
	bool kept, nontemporal, as_it_is; /* as_it_is: x alone, in real numbers */
	real *buffer; /* the row where it is kept, else a segment */
};

/* The segment at `start`, for the first time. */
INLINE const real *N(make_input)(const struct N(input) *input, int64_t start, int64_t n)
{
	real *h = input->buffer + (input->kept ? start : 0);
	if (input->as_it_is)
		return N(from)(&input->x, start);
	if (input->gate.at && input->gate.dtype == input->x.dtype) {
		N(gates)[input->x.dtype](N(from)(&input->x, start), N(from)(&input->gate, start), n, h, input->activation);
		return h;
	}
	if (input->gate.at) { /* in backward x may be wider than the gate */
		real gate[SEGMENT];
		N(widen)(&input->gate, start, n, gate);
		N(activations)[input->activation].apply(gate, n);
		N(widen)(&input->x, start, n, h);
		N(multiply)(h, gate, n, h);
		return h;
	}
	const real *x_bias = input->x_bias ? N(wide_at)(input->x_bias, input->first + start, n) : NULL;
	const struct N(parts) parts = {.x = N(from)(&input->x, start),
				       .residual = N(from)(&input->residual, start),
				       .x_bias = x_bias ? x_bias : PASTE(ACT, minus_zeros),
				       .x_bias_mask = x_bias ? -1 : 0};
	N(pairs)[input->x.dtype][input->residual.dtype].make(&parts, n, h, N(from)(&input->h, start), input->nontemporal);
	return h;
}

/* The same again. x and the residual may be overwritten by h. */
INLINE const real *N(input_at)(const struct N(input) *input, int64_t start, int64_t n)
{
	struct N(input) again = *input;
	if (input->as_it_is)
		return N(from)(&input->x, start);
	if (input->kept)
		return input->buffer + start;
	if (input->h.at) {
		again.x = input->h;
		again.x_bias = NULL;
		again.residual.at = again.h.at = NULL;
	}
	return N(make_input)(&again, start, n);
}

/* Rule 3, over the segments. */
INLINE struct N(stats) N(input_stats)(const struct N(input) *input, int64_t cols, real eps, const bool centred)
{
	struct V(tree) first = {.count = 0}, sum = {.count = 0}, squares = {.count = 0};
	struct N(stats) stats = {0};
	for (int64_t start = 0; start < cols; start += SEGMENT) {
		int64_t n = N(segment_length)(cols, start);
		N(add_first)(N(make_input)(input, start, n), NULL, n, NULL, &first, centred);
	}
	if (!centred) {
		N(finish_rms)(&stats, V(tree_sum)(&first), cols, eps);
		return stats;
	}
	real m0 = V(tree_sum)(&first) / (real)cols;
	for (int64_t start = 0; start < cols; start += SEGMENT) {
		int64_t n = N(segment_length)(cols, start);
		const real *h = N(input_at)(input, start, n);
		N(add_moments)(h, n, m0, fetch_from(NULL, h), &sum, &squares);
	}
	N(finish_moments)(&stats, m0, V(tree_sum)(&sum), V(tree_sum)(&squares), cols, eps);
	return stats;
}

#include "cpu_fused_forward.inc.h"
#include "cpu_fused_dt.inc.h"
#include "cpu_fused_backward.inc.h"

extern const struct ek_fused_kernel PASTE(LEVEL, PASTE(ACT, fused));
const struct ek_fused_kernel PASTE(LEVEL, PASTE(ACT, fused)) = {N(fused_forward), N(fused_backward), N(finish_fused_columns)};
