/* Backward with an activation or a gate (rule 11), of one dtype, in rows whose numbers can be kept: dt, the gradient of the
 * affine result, is made once, segment by segment before the sums, while the segment after it is fetched; dx of the rows
 * before is written meanwhile, as in cpu_backward.inc.h. Included by cpu_fused.inc.h.
 * Makes: N(can_make_dt), N(dt_backward). SPDX-License-Identifier: MIT */

/* Numbers that are kept of the rows at hand and of those before: 128 KiB. */
enum { N(DT_NUMBERS) = (128 << 10) / sizeof(real) };

/* A row: tensors from its first column on, and what is kept of it. */
struct N(dt_row) {
	enum dt_form kind;
	ek_activation activation;
	bool nontemporal; /* dgate goes past the caches */
	const void *x, *dy, *gate;
	void *dx, *dgate;
	real *input, *dt;     /* the norm's input, if it is not x as it is; the gradient of the affine result */
	real *value, *slope; /* of DT_OF_GATE_FIRST: the activation of the gate, and its derivative */
};

/* n (1 … W) numbers; W is a constant where it is given. */
INLINE vec N(take)(const real *from, int n)
{
	return n == N(W) ? V(load)(from) : V(load_part)(from, n);
}

INLINE void N(put)(real *to, vec v, int n)
{
	if (n == N(W))
		V(store)(to, v);
	else
		V(store_part)(to, v, n);
}

#define OUTER ACT
#include "cpu_fused_dt_dtype.inc.h"
#ifdef FUSED_16_BIT
#define OUTER f16
#include "cpu_fused_dt_dtype.inc.h"
#define OUTER bf16
#include "cpu_fused_dt_dtype.inc.h"
#endif

struct N(dt_loops) {
	void (*make_dt)(const struct N(dt_row) *s, const struct N(stats) *stats, const struct N(affine) *f,
			struct span span, const struct fetch ahead[3]);
	void (*write)(const struct N(dt_row) *s, const struct N(grad_row) *r, const struct N(affine) *f, struct span span,
		      bool centred, bool nontemporal);
};
#define ROW(d) [dtype_##d] = {PASTE(make_dt, PASTE(ACT, d)), PASTE(write_dt_row, PASTE(ACT, d))},
static const struct N(dt_loops) N(dt_loops_of)[dtype_end] = {FUSED_DTYPES(ROW)};
#undef ROW

INLINE enum dt_form N(dt_form_of)(const ek_norm_backward_args *a)
{
	return !a->gate ? DT_OF_ACTIVATION : a->gate_first ? DT_OF_GATE_FIRST : DT_OF_GATE;
}

/* Rows of numbers that are kept of one row. */
INLINE int64_t N(kept_rows)(const ek_norm_backward_args *a)
{
	enum dt_form kind = N(dt_form_of)(a);
	if (kind == DT_OF_ACTIVATION)
		return ek_bytes_of_dtype(a->dtype) == sizeof(real) ? 1 : 2;
	return kind == DT_OF_GATE ? 2 : 4;
}

/* Whether these kernels serve: one dtype, statistics that are given, dx and no other output of its size but dgate. */
INLINE bool N(can_make_dt)(const ek_norm_backward_args *a)
{
	return a->activation && a->h_dtype == a->dtype && a->y_dtype == a->dtype && !a->rounding && a->dy && a->dx &&
	       !a->dresidual && !a->dh && !a->x_bias && !a->dx_bias && !a->group_cols && a->rstd && a->cols <= N(KEPT) &&
	       2 * N(kept_rows)(a) * a->cols <= N(DT_NUMBERS);
}

/* Rows that go through the passes together. */
struct N(dt_rows) {
	struct N(grad_rows) grad;
	struct N(dt_row) row[MAX_TOGETHER];
};

/* Rows first … first+count-1, whose numbers are kept in the set `kept` of the buffer. */
INLINE void N(dt_rows_at)(const ek_norm_backward_args *a, int64_t first, int64_t count, real *kept, bool nontemporal,
			      struct N(dt_rows) *rows)
{
	const int64_t element = (int64_t)ek_bytes_of_dtype(a->dtype);
	const enum dt_form kind = N(dt_form_of)(a);
#define ROW_OF(tensor, stride) ((char *)(uintptr_t)(tensor) + row * (stride) * element)
	rows->grad.count = count;
	for (int64_t k = 0; k < count; k++) {
		int64_t row = first + k;
		real *dt = kept + k * N(kept_rows)(a) * a->cols;
		struct N(dt_row) s = {.kind = kind, .activation = a->activation, .nontemporal = nontemporal,
					.x = ROW_OF(a->x, a->x_stride), .dy = ROW_OF(a->dy, a->dy_stride),
					.gate = a->gate ? ROW_OF(a->gate, a->gate_stride) : ROW_OF(a->x, a->x_stride),
					.dx = ROW_OF(a->dx, a->dx_stride),
					.dgate = a->dgate ? ROW_OF(a->dgate, a->dgate_stride) : NULL,
					.dt = dt, .input = dt + a->cols, .value = dt + 2 * a->cols, .slope = dt + 3 * a->cols};
		struct N(grad_row) *r = &rows->grad.row[k];
		*r = (struct N(grad_row)){.x = N(kept_rows)(a) == 1 ? s.x : s.input, .dy = s.dt};
		r->stats = (struct N(stats)){N(given)(a->mean, row), N(given)(a->mean_lo, row), N(given)(a->rstd, row), 0};
		N(set_shift)(&r->stats);
		if (a->norm == EK_RMS_NORM)
			r->stats.shift = -(real)0; /* also where rstd is infinite */
		r->head = head_of(s.dx, element, a->cols, nontemporal);
		rows->row[k] = s;
		rows->grad.g_xhat[k].count = rows->grad.g[k].count = 0;
		if (nontemporal)
			fetch_edges(s.dx, a->cols * element);
	}
#undef ROW_OF
}

/* What of dx goes with segment `start`. */
INLINE void N(write_dt_segment)(const struct N(dt_loops) *to, const struct N(dt_row) *s, const struct N(grad_row) *r,
				      const struct N(affine) *f, int64_t start, int64_t cols, bool centred, bool nontemporal)
{
	if (start == 0 && r->head)
		to->write(s, r, f, (struct span){0, r->head}, centred, false);
	to->write(s, r, f, span_of(start, r->head, cols), centred, nontemporal);
}

/* dt of segment `start` of row k; meanwhile the next segment is fetched, or the first of the row that follows in its
 * place. */
INLINE void N(make_segment_of_dt)(const ek_norm_backward_args *a, int64_t first, int64_t end, struct N(dt_rows) *now,
				  int64_t k, const struct N(affine) *f, int64_t start)
{
	const struct N(dt_row) *s = &now->row[k];
	const int64_t element = (int64_t)ek_bytes_of_dtype(a->dtype), n = N(segment_length)(a->cols, start);
	const bool last = start + SEGMENT >= a->cols, there = !last || first + now->grad.count + k < end;
	const int64_t rows = last ? now->grad.count : 0, at = (last ? 0 : start + SEGMENT) * element;
#define AHEAD(tensor, stride) \
	fetch_from(there ? (const char *)s->tensor + rows * (stride) * element + at : NULL, s->tensor)
	const struct fetch ahead[3] = {AHEAD(x, a->x_stride), AHEAD(dy, a->dy_stride),
				       AHEAD(gate, a->gate ? a->gate_stride : a->x_stride)};
#undef AHEAD
	N(dt_loops_of)[a->dtype].make_dt(s, &now->grad.row[k].stats, f, (struct span){start, start + n}, ahead);
}

/* dx of `before`, then dt and the sums of `now`, which are rows first … of those up to `end`. */
INLINE void N(dt_pass)(const ek_norm_backward_args *a, int64_t first, int64_t end, struct N(dt_rows) *now,
			   const struct N(dt_rows) *before, const struct N(affine) *f, bool centred, bool nontemporal)
{
	struct fetch none[2][2];
	for (int64_t start = 0; start < a->cols; start += SEGMENT) {
		int64_t n = N(segment_length)(a->cols, start);
		for (int64_t k = 0; k < before->grad.count; k++)
			N(write_dt_segment)(&N(dt_loops_of)[a->dtype], &before->row[k], &before->grad.row[k], f, start, a->cols,
						  centred, nontemporal);
		for (int64_t k = 0; k < now->grad.count; k++)
			N(make_segment_of_dt)(a, first, end, now, k, f, start);
		for (int64_t k = 0; k < now->grad.count; k += 2) {
			int count = (int)smaller(2, now->grad.count - k);
			const struct N(grad_row) *r = &now->grad.row[k];
			none[0][0] = none[0][1] = none[1][0] = none[1][1] = fetch_from(NULL, r->dy);
			if (centred)
				N(add_grad_segment)(count, r, start, n, f, &now->grad.columns[k / 2], none, true,
						    &now->grad.g_xhat[k], &now->grad.g[k]);
			else
				N(add_grad_segment)(count, r, start, n, f, &now->grad.columns[k / 2], none, false,
						    &now->grad.g_xhat[k], &now->grad.g[k]);
		}
	}
}

/* Rows first … end-1; the column sums of task, if there is one. */
OUTLINE void N(dt_backward)(const ek_norm_backward_args *a, int64_t first, int64_t end,
				const struct ek_column_task *task, bool nontemporal)
{
	_Alignas(LINE) real kept[N(DT_NUMBERS)];
	struct N(wide) weight, bias;
	struct N(dt_rows) rows[2];
	struct N(column_sums) sums;
	int64_t together = smaller(rows_together(a->cols * (int64_t)sizeof(real), PAIR_BACKWARD_BYTES),
				   N(DT_NUMBERS) / (2 * N(kept_rows)(a) * a->cols));
	N(open_wide)(&weight, a->weight, a->weight_dtype, a->weight_offset, a->cols);
	N(open_wide)(&bias, a->bias, a->weight_dtype, 0, a->cols);
	const struct N(affine) f = N(affine_of)(N(wide_at)(&weight, 0, a->cols), N(wide_at)(&bias, 0, a->cols));
	N(open_sums)(&sums, task, end - first, a->cols, 2);
	rows[1].grad.count = 0;
	for (int64_t row = first, i = 0; row < end || rows[!i].grad.count; row += rows[i].grad.count, i = !i) {
		struct N(dt_rows) *now = &rows[i], *before = &rows[!i];
		struct N(grad_rows) *grad = &now->grad;
		int64_t count = N(rows_from)(&sums, row, end, together);
		N(dt_rows_at)(a, row, count, kept + i * (N(DT_NUMBERS) / 2), nontemporal, now);
		for (int64_t k = 0; k < count; k += 2)
			grad->columns[k / 2] = N(columns_for)(&sums, row + k);
		N(dt_pass)(a, row, end, now, before, &f, a->norm == EK_LAYER_NORM, nontemporal);
		N(rows_are_summed)(grad, &sums, row + count, a->cols);
	}
	N(close_sums)(&sums, nontemporal);
}
