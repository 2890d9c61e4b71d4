/* Norm cases: one struct says which call, over which buffers, with which values; it is run on the
 * reference once and on any number of contexts, and everything they wrote is compared by bits (NaN equals
 * NaN), gaps between rows and canaries around buffers included. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "../cli/mirror.h"
#include "support.h"

const struct dtype_pair dtype_pairs[DTYPE_PAIRS] = {
	{EK_F32, EK_F32}, {EK_F16, EK_F16}, {EK_BF16, EK_BF16},
	{EK_F64, EK_F64}, {EK_F16, EK_F32}, {EK_BF16, EK_F32},
};

struct operand case_inputs[OPERANDS], case_expected[OPERANDS], case_actual[OPERANDS];

struct norm_case case_of(bool backward, ek_norm norm, struct dtype_pair dtypes, int64_t rows, int64_t cols)
{
	struct norm_case c = {.backward = backward,
			      .norm = norm,
			      .dtype = dtypes.dtype,
			      .weight_dtype = dtypes.weight_dtype,
			      .rows = rows,
			      .cols = cols,
			      .form = backward ? FORM_BACKWARD : FORM_FORWARD,
			      .eps = 1e-5,
			      .seed = 1};
	case_normalise(&c);
	return c;
}

void case_normalise(struct norm_case *c)
{
	const unsigned backward_only =
		FORM_DX | FORM_DWEIGHT | FORM_DBIAS | FORM_ACCUMULATE | FORM_ARBITRARY | FORM_OVER_X;
	if (!c->backward) {
		c->form &= ~backward_only;
		if (c->norm == EK_RMS_NORM)
			c->form &= ~(unsigned)(FORM_MEAN | FORM_MEAN_LO);
		return;
	}
	c->form &= ~(unsigned)FORM_BIAS;
	if (!(c->form & (FORM_DX | FORM_DWEIGHT | FORM_DBIAS)))
		c->form |= FORM_DX;
	if (!(c->form & FORM_DX))
		c->form &= ~(unsigned)(FORM_IN_PLACE | FORM_OVER_X);
	if (c->form & FORM_IN_PLACE)
		c->form &= ~(unsigned)FORM_OVER_X;
	if (!(c->form & FORM_RSTD)) /* mean goes with rstd, mean_lo with both */
		c->form &= ~(unsigned)(FORM_STATS | FORM_ARBITRARY);
	else if (c->norm == EK_RMS_NORM)
		c->form &= ~(unsigned)(FORM_MEAN | FORM_MEAN_LO);
	else
		c->form |= FORM_MEAN;
}

const char *case_text(const struct norm_case *c)
{
	static const char *const names[] = {"weight",     "bias",      "mean",     "rstd",
					    "mean_lo",    "dx",        "dweight",  "dbias",
					    "accumulate", "arbitrary", "in_place", "over_x"};
	static const char *const fillings[] = {"normal",   "integers", "ones",  "offset",    "special",
					       "positive", "constant", "clamp", "underflow", "overflow"};
	static char text[512];
	int n = snprintf(text, sizeof(text), "%s %s %lldx%lld %s/%s eps %g %s",
			 c->norm == EK_LAYER_NORM ? "layer_norm" : "rms_norm",
			 c->backward ? "backward" : "forward", (long long)c->rows, (long long)c->cols,
			 ek_dtype_name(c->dtype), ek_dtype_name(c->weight_dtype), c->eps,
			 fillings[c->filling]);
	for (int i = 0; i < COUNT_OF(names); i++)
		if (c->form >> i & 1)
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %s", names[i]);
	for (int i = 0; i < OPERANDS; i++) {
		if (c->pad[i])
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %s_pad %lld", operand_names[i],
				      (long long)c->pad[i]);
		if (c->offset[i])
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %s_offset %d", operand_names[i],
				      c->offset[i]);
	}
	snprintf(text + n, sizeof(text) - (size_t)n, " seed %llu", (unsigned long long)c->seed);
	return text;
}

/* Describes the operands from first to last that the case has, and gives them memory. */
static void operands_reset(struct operand set[], const struct norm_case *c, enum operand_id first,
			   enum operand_id last)
{
	for (enum operand_id id = first; id <= last; id++) {
		struct operand *o = &set[id];
		o->present = is_present(c, id);
		if (!o->present)
			continue;
		o->dtype = operand_dtype(c, id);
		o->rows = is_matrix(id) ? c->rows : 1;
		o->cols = operand_cols(c, id);
		o->stride = o->cols + (is_matrix(id) ? c->pad[id] : 0);
		size_t elements = o->rows > 0 ? (size_t)((o->rows - 1) * o->stride + o->cols) : 0;
		buffer_reset(&o->buffer, elements * ek_dtype_size(o->dtype), c->placement, c->offset[id]);
	}
}

static void operand_fill(struct operand *o, enum filling filling, uint64_t seed)
{
	if (o->present)
		fill_rows(filling, o->dtype, o->buffer.data, o->rows, o->cols, o->stride, seed);
}

/* The statistics that backward is given: x's own, by the reference, or any values at all. */
static void fill_statistics(const struct norm_case *c)
{
	struct operand *in = case_inputs;
	enum filling any = c->filling == FILL_SPECIAL ? FILL_SPECIAL : FILL_NORMAL;
	if (c->form & FORM_ARBITRARY) {
		operand_fill(&in[MEAN], any, c->seed + 4);
		operand_fill(&in[RSTD], any == FILL_SPECIAL ? any : FILL_POSITIVE, c->seed + 5);
		operand_fill(&in[MEAN_LO], any, c->seed + 6);
		return;
	}
	struct norm_case forward = *c;
	forward.backward = false;
	forward.form &= FORM_STATS;
	static struct operand set[OPERANDS];
	if (case_call(reference(), &forward, set) != EK_OK) {
		test_fail("%s: statistics: %s", case_text(c), ek_error(reference()));
		return;
	}
	for (int i = 0; i < 3; i++)
		if (in[MEAN + i].present)
			memcpy(in[MEAN + i].buffer.data, set[Y_MEAN + i].buffer.data,
			       in[MEAN + i].buffer.bytes);
}

void case_fill(const struct norm_case *c)
{
	struct operand *in = case_inputs;
	operands_reset(in, c, X, MEAN_LO);
	bool underflow = c->filling == FILL_UNDERFLOW;
	bool in_x_alone = c->filling == FILL_OFFSET || c->filling == FILL_CONSTANT ||
			  c->filling == FILL_CLAMP || c->filling == FILL_OVERFLOW;
	enum filling rest = in_x_alone ? FILL_NORMAL : c->filling;
	operand_fill(&in[X], underflow ? (enum filling)FILL_TINY : c->filling, c->seed);
	operand_fill(&in[DY], rest, c->seed + 1);
	operand_fill(&in[WEIGHT], underflow ? FILL_ONES : rest, c->seed + 2);
	operand_fill(&in[BIAS], rest, c->seed + 3);
	if (c->backward && (c->form & FORM_STATS))
		fill_statistics(c);
}

void case_outputs(ek_context *ctx, const struct norm_case *c, struct operand set[OPERANDS])
{
	operands_reset(set, c, Y, DBIAS);
	if (c->form & FORM_ACCUMULATE) {
		operand_fill(&set[DWEIGHT], c->filling, c->seed + 7);
		operand_fill(&set[DBIAS], c->filling, c->seed + 8);
	}
	if (c->form & (FORM_IN_PLACE | FORM_OVER_X)) {
		struct operand *to = &set[c->backward ? DX : Y];
		struct operand *from = &case_inputs[c->backward && (c->form & FORM_IN_PLACE) ? DY : X];
		for (int64_t r = 0; r < c->rows; r++)
			memcpy(to->buffer.data + (size_t)(r * to->stride) * ek_dtype_size(c->dtype),
			       from->buffer.data + (size_t)(r * from->stride) * ek_dtype_size(c->dtype),
			       (size_t)c->cols * ek_dtype_size(c->dtype));
	}
	struct operand *work = &set[WORKSPACE];
	size_t bytes = 0;
	work->present = false;
	if (!c->backward)
		return;
	ek_norm_backward_args args = case_backward_args(c, set);
	if (ek_norm_backward_workspace(ctx, &args, &bytes) != EK_OK)
		test_fail("%s: workspace: %s", case_text(c), ek_error(ctx));
	work->present = bytes > 0;
	/* A multiple of 64 leaves it aligned whichever end stands beside a guard page. */
	buffer_reset(&work->buffer, (bytes + 63) / 64 * 64, c->placement, 0);
	work->buffer.bytes = bytes;
}

static void addresses_of(struct operand set[OPERANDS], void *at[OPERANDS])
{
	for (int id = 0; id < OPERANDS; id++) {
		struct operand *o = id < Y ? &case_inputs[id] : &set[id];
		at[id] = o->present ? o->buffer.data : NULL;
	}
}

ek_norm_forward_args case_forward_args(const struct norm_case *c, struct operand set[OPERANDS])
{
	void *at[OPERANDS];
	addresses_of(set, at);
	return case_forward_at(c, at);
}

ek_norm_backward_args case_backward_args(const struct norm_case *c, struct operand set[OPERANDS])
{
	void *at[OPERANDS];
	addresses_of(set, at);
	return case_backward_at(c, at, at[WORKSPACE] ? set[WORKSPACE].buffer.bytes : 0);
}

ek_status norm_forward(ek_context *ctx, const ek_norm_forward_args *args)
{
	return mirror_forward(ctx, args, 0);
}

ek_status norm_backward(ek_context *ctx, const ek_norm_backward_args *args)
{
	return mirror_backward(ctx, args, 0);
}

ek_status case_call(ek_context *ctx, const struct norm_case *c, struct operand set[OPERANDS])
{
	size_t margin = c->placement == PLACE_OFFSET ? BUFFER_MARGIN : 0;
	case_outputs(ctx, c, set);
	if (c->backward) {
		ek_norm_backward_args args = case_backward_args(c, set);
		return mirror_backward(ctx, &args, margin);
	}
	ek_norm_forward_args args = case_forward_args(c, set);
	return mirror_forward(ctx, &args, margin);
}
