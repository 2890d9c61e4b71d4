/* Gated activations by rule 14 of docs/numerics.md, in the arithmetic `real`, slow and plain: this text is what every kernel
 * must equal bit for bit. Included by reference.c for binary32 and binary64.
 * Parameters: real, NAME(). Makes: NAME(forward), NAME(backward). SPDX-License-Identifier: MIT */

#include "ops/fold.inc.h"

/* What an element of the call has: its column, and its places in the matrices. */
struct NAME(call) {
	const void *gate, *value, *gate_bias, *value_bias;
	int64_t gate_stride, value_stride;
	ek_dtype dtype, weight_dtype;
	ek_activation activation;
	bool interleaved, clamped;
	real limit, alpha, value_offset;
};

/* t, and v with what it was before the clamp; without a value v is 1. */
struct NAME(point) {
	real t, v, v_before;
};

static struct NAME(point) NAME(point_at)(const struct NAME(call) * c, int64_t row, int64_t col)
{
	int64_t each = c->interleaved ? 2 : 1;
	bool has_value = c->value || c->interleaved;
	struct NAME(point) p = {.v = 1};
	p.t = (real)ek_read_element(c->gate, c->dtype, row * c->gate_stride + each * col);
	if (c->gate_bias)
		p.t = p.t + (real)ek_read_element(c->gate_bias, c->weight_dtype, each * col);
	if (!has_value)
		return p;
	p.v = c->interleaved ? (real)ek_read_element(c->gate, c->dtype, row * c->gate_stride + 2 * col + 1)
			     : (real)ek_read_element(c->value, c->dtype, row * c->value_stride + col);
	if (c->interleaved && c->gate_bias)
		p.v = p.v + (real)ek_read_element(c->gate_bias, c->weight_dtype, 2 * col + 1);
	if (c->value_bias)
		p.v = p.v + (real)ek_read_element(c->value_bias, c->weight_dtype, col);
	p.v_before = p.v;
	if (c->clamped)
		p.v = p.v > c->limit ? c->limit : p.v < -c->limit ? -c->limit : p.v;
	if (c->value_offset != 0)
		p.v = p.v + c->value_offset;
	return p;
}

static real NAME(activation)(const struct NAME(call) * c, real t, real *slope)
{
	if (c->clamped)
		t = t > c->limit ? c->limit : t;
	if (c->alpha != 1)
		return NAME(silu_and_slope)(c->alpha * t, slope) * (1 / c->alpha);
	switch (c->activation) {
#define ACTIVATION(number, name) \
	case number:             \
		return NAME(name##_and_slope)(t, slope);
		EK_GLU_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
	default:
		*slope = 0;
		return 0;
	}
}

static void NAME(forward)(const ek_glu_forward_args *a)
{
	const struct NAME(call) c = CALL_OF(a);
	for (int64_t row = 0; row < a->rows; row++)
		for (int64_t col = 0; col < a->cols; col++) {
			real slope;
			const struct NAME(point) p = NAME(point_at)(&c, row, col);
			ek_write_element(a->y, a->dtype, row * a->y_stride + col,
					 NAME(activation)(&c, p.t, &slope) * p.v);
		}
}

/* The gradients of an element, not rounded. */
static void NAME(gradients)(const ek_glu_backward_args *a, const struct NAME(call) * c, int64_t row,
			    int64_t col, real *dgate, real *dvalue)
{
	real slope, dy = (real)ek_read_element(a->dy, a->dtype, row * a->dy_stride + col);
	const struct NAME(point) p = NAME(point_at)(c, row, col);
	const real activation = NAME(activation)(c, p.t, &slope);
	*dgate = c->clamped && p.t > c->limit ? 0 : (dy * p.v) * slope;
	*dvalue = c->clamped && (p.v_before > c->limit || p.v_before < -c->limit) ? 0 : dy * activation;
}

/* Rule 6 for one column: the sum of one slot's rows in chunks. */
static real NAME(slot_sum)(const ek_glu_backward_args *a, const struct NAME(call) * c, int64_t first,
			   int64_t end, int64_t col, bool of_value)
{
	real slot = 0;
	for (int64_t chunk = first; chunk < end; chunk += CHUNK_ROWS) {
		real acc = 0;
		for (int64_t row = chunk; row < end && row < chunk + CHUNK_ROWS; row++) {
			real dgate, dvalue;
			NAME(gradients)(a, c, row, col, &dgate, &dvalue);
			acc = acc + (of_value ? dvalue : dgate);
		}
		slot = slot + acc;
	}
	return slot;
}

/* Rule 6 for one column of a gradient, at element `at` of it. */
static void NAME(column_sum)(const ek_glu_backward_args *a, const struct NAME(call) * c, int64_t col,
			     bool of_value, void *gradient, int64_t at)
{
	int64_t per_slot = ek_slot_rows(a->rows, a->cols), count = ek_slot_count(a->rows, a->cols);
	real *slots = a->workspace;
	for (int64_t k = 0; k < count; k++) {
		int64_t first = k * per_slot, end = first + per_slot < a->rows ? first + per_slot : a->rows;
		slots[k] = NAME(slot_sum)(a, c, first, end, col, of_value);
	}
	real total = (count ? NAME(fold)(slots, count, 1) : 0) + 0;
	if (a->accumulate)
		total = (real)ek_read_element(gradient, a->gradient_dtype, at) + total;
	ek_write_element(gradient, a->gradient_dtype, at, total);
}

/* The sums come first: dgate and dvalue may lie where dy, gate or value do, and an element is written once it is read. */
static void NAME(backward)(const ek_glu_backward_args *a)
{
	const struct NAME(call) c = CALL_OF(a);
	int64_t each = a->interleaved ? 2 : 1;
	for (int64_t col = 0; col < a->cols; col++) {
		if (a->dgate_bias)
			NAME(column_sum)(a, &c, col, false, a->dgate_bias, each * col);
		if (a->dgate_bias && a->interleaved)
			NAME(column_sum)(a, &c, col, true, a->dgate_bias, 2 * col + 1);
		if (a->dvalue_bias)
			NAME(column_sum)(a, &c, col, true, a->dvalue_bias, col);
	}
	for (int64_t row = 0; row < a->rows; row++)
		for (int64_t col = 0; col < a->cols; col++) {
			real dgate, dvalue;
			NAME(gradients)(a, &c, row, col, &dgate, &dvalue);
			if (a->dgate)
				ek_write_element(a->dgate, a->dtype, row * a->dgate_stride + each * col,
						 dgate);
			if (a->dgate && a->interleaved)
				ek_write_element(a->dgate, a->dtype, row * a->dgate_stride + 2 * col + 1,
						 dvalue);
			if (a->dvalue)
				ek_write_element(a->dvalue, a->dtype, row * a->dvalue_stride + col, dvalue);
		}
}
