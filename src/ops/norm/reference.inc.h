/* The norm ops by the rules of docs/numerics.md, in the arithmetic `real`, slow and plain: this text is
 * what every kernel must equal bit for bit. Included by reference.c for binary32 and binary64.
 * Parameters: real, fma_real, sqrt_real, STATS_DTYPE, NAME(). Makes: NAME(forward), NAME(backward). SPDX-License-Identifier: MIT */

#include "ops/fold.inc.h"

/* What a row sum adds: rules 2, 3 and 5. */
enum NAME(term) {
	NAME(VALUE),          /* x */
	NAME(DEVIATION),      /* d = x - m0 */
	NAME(SQUARE),         /* d * d */
	NAME(GRADIENT),       /* g = dy * weight */
	NAME(GRADIENT_XHAT)   /* g * xhat */
};

/* A tensor of the call at the first element of a row; NULL: absent. */
struct NAME(operand) {
	const void *tensor;
	ek_dtype dtype;
	int64_t start;
};

struct NAME(row) {
	struct NAME(operand) x, x_bias, residual, residual_after, gate, dy, dh, weight, bias;
	ek_norm norm;
	ek_dtype h_dtype, xhat_dtype, affine_dtype; /* what xhat rounds to, and y before residual or activation; or 0 */
	ek_activation activation;
	int weight_offset, gate_first;
	int64_t cols;
	real m0, mean, mean_lo, rstd, mean_g_xhat, mean_g;
};

static real NAME(element)(const struct NAME(operand) *operand, int64_t i)
{
	return (real)ek_read_element(operand->tensor, operand->dtype, operand->start + i);
}

/* What is left of a value that is written in a dtype and read again. */
static real NAME(rounded)(ek_dtype dtype, real value)
{
	double stored = 0; /* room for any dtype */
	ek_write_element(&stored, dtype, 0, value);
	return (real)ek_read_element(&stored, dtype, 0);
}

/* Rule 11: the activation and its derivative. */
static real NAME(activation)(ek_activation activation, real t, real *slope)
{
	switch (activation) {
#define ACTIVATION(number, name)                     \
	case number:                                 \
		return NAME(name##_and_slope)(t, slope);
		EK_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
	default:
		*slope = 1;
		return t;
	}
}

static real NAME(gate)(const struct NAME(row) *r, int64_t i, real *slope)
{
	return NAME(activation)(r->activation, NAME(element)(&r->gate, i), slope);
}

/* Rule 8: h = (x + x_bias) + residual, rounded where there is a residual. Rule 11: or x * gate. */
static real NAME(h)(const struct NAME(row) *r, int64_t i)
{
	real h = NAME(element)(&r->x, i), slope;
	if (r->gate_first)
		return h * NAME(gate)(r, i, &slope);
	if (r->x_bias.tensor)
		h = h + NAME(element)(&r->x_bias, i);
	if (r->residual.tensor)
		h = NAME(rounded)(r->h_dtype, h + NAME(element)(&r->residual, i));
	return h;
}

/* Rule 4. */
static real NAME(xhat)(const struct NAME(row) *r, int64_t i)
{
	if (r->norm == EK_RMS_NORM)
		return NAME(h)(r, i) * r->rstd;
	return fma_real(NAME(h)(r, i) - r->mean, r->rstd, -(r->mean_lo * r->rstd));
}

/* Rule 10. */
static real NAME(rounded_xhat)(const struct NAME(row) *r, int64_t i)
{
	real xhat = NAME(xhat)(r, i);
	return r->xhat_dtype ? NAME(rounded)(r->xhat_dtype, xhat) : xhat;
}

static real NAME(weight)(const struct NAME(row) *r, int64_t i)
{
	real weight = NAME(element)(&r->weight, i);
	return r->weight_offset ? 1 + weight : weight;
}

/* Rule 4, from either xhat. */
static real NAME(affine)(const struct NAME(row) *r, int64_t i, real xhat)
{
	real weight = r->weight.tensor ? NAME(weight)(r, i) : 1;
	return r->bias.tensor ? fma_real(xhat, weight, NAME(element)(&r->bias, i)) : xhat * weight;
}

static real NAME(dy_of_y)(const struct NAME(row) *r, int64_t i)
{
	return r->dy.tensor ? NAME(element)(&r->dy, i) : 0;
}

/* Rule 11: the gradient of the affine result. */
static real NAME(dy)(const struct NAME(row) *r, int64_t i)
{
	real dy = NAME(dy_of_y)(r, i), slope;
	if (!r->activation || r->gate_first)
		return dy;
	if (r->gate.tensor)
		return dy * NAME(gate)(r, i, &slope);
	(void)NAME(activation)(r->activation, NAME(affine)(r, i, NAME(xhat)(r, i)), &slope);
	return dy * slope;
}

static real NAME(g)(const struct NAME(row) *r, int64_t i)
{
	real dy = NAME(dy)(r, i);
	return r->weight.tensor ? dy * NAME(weight)(r, i) : dy;
}

static real NAME(add_term)(const struct NAME(row) *r, enum NAME(term) term, int64_t i, real lane)
{
	real d;
	switch (term) {
	case NAME(VALUE):
		return lane + NAME(h)(r, i);
	case NAME(DEVIATION):
		return lane + (NAME(h)(r, i) - r->m0);
	case NAME(SQUARE):
		d = r->norm == EK_RMS_NORM ? NAME(h)(r, i) : NAME(h)(r, i) - r->m0;
		return fma_real(d, d, lane);
	case NAME(GRADIENT):
		return lane + NAME(g)(r, i);
	default:
		return fma_real(NAME(g)(r, i), NAME(xhat)(r, i), lane);
	}
}

/* Rule 2. */
static real NAME(rowsum)(const struct NAME(row) *r, enum NAME(term) term)
{
	real segments[EK_MAX_COLS / SEGMENT];
	int64_t count = 0;
	for (int64_t first = 0; first < r->cols; first += SEGMENT) {
		real lane[LANES] = {0};
		for (int64_t i = first; i < r->cols && i < first + SEGMENT; i++)
			lane[i % LANES] = NAME(add_term)(r, term, i, lane[i % LANES]);
		segments[count++] = NAME(fold)(lane, LANES, 1);
	}
	return NAME(fold)(segments, count, 1) + 0;
}

/* Rule 3. */
static void NAME(statistics)(struct NAME(row) *r, real eps)
{
	real n = (real)r->cols;
	if (r->norm == EK_RMS_NORM) {
		r->rstd = 1 / sqrt_real(NAME(rowsum)(r, NAME(SQUARE)) / n + eps);
		return;
	}
	r->m0 = NAME(rowsum)(r, NAME(VALUE)) / n;
	real s = NAME(rowsum)(r, NAME(DEVIATION));
	real q = NAME(rowsum)(r, NAME(SQUARE));
	real c = s / n;
	r->mean = r->m0 + c;
	r->mean_lo = (r->m0 - r->mean) + c;
	real v = fma_real(-c, c, q / n);
	real var = v < 0 ? 0 : v;
	r->rstd = 1 / sqrt_real(var + eps);
}

static void NAME(put_statistic)(void *tensor, int64_t row, real value)
{
	if (tensor)
		ek_write_element(tensor, STATS_DTYPE, row, value);
}

/* h is written before the row is read again: it may lie where x or the residual does. */
static void NAME(write_h)(const ek_norm_forward_args *a, int64_t row, int64_t first, struct NAME(row) *r)
{
	const struct NAME(operand) h = {a->h, a->h_dtype, row * a->h_stride + first}, absent = {0};
	for (int64_t i = 0; i < r->cols; i++)
		ek_write_element(a->h, a->h_dtype, h.start + i, NAME(h)(r, i));
	r->x = h;
	r->x_bias = r->residual = absent;
}

/* Of the group of columns that starts at `first`: rule 13. Without groups it is the row. */
static struct NAME(row) NAME(forward_row)(const ek_norm_forward_args *a, int64_t row, int64_t first)
{
	ek_dtype of_input = a->residual ? a->h_dtype : a->dtype;
	return (struct NAME(row)){.x = {a->x, a->dtype, row * a->x_stride + first},
				  .x_bias = {a->x_bias, a->weight_dtype, first},
				  .residual = {a->residual, a->h_dtype, row * a->residual_stride + first},
				  .residual_after = {a->residual_after, a->h_dtype, row * a->residual_after_stride + first},
				  .weight = {a->weight, a->weight_dtype, first},
				  .bias = {a->bias, a->weight_dtype, first},
				  .norm = a->norm,
				  .h_dtype = a->h_dtype,
				  .xhat_dtype = a->rounding == EK_ROUND_EACH ? of_input : (ek_dtype)0,
				  .affine_dtype = a->rounding == EK_ROUND_EACH ? a->y_dtype : (ek_dtype)0,
				  .activation = a->activation,
				  .gate = {a->gate, a->dtype, row * a->gate_stride + first},
				  .gate_first = a->gate_first,
				  .weight_offset = a->weight_offset,
				  .cols = ek_norm_group_cols(a->cols, a->group_cols)};
}

static real NAME(y)(const struct NAME(row) *r, int64_t i)
{
	real y = NAME(affine)(r, i, NAME(rounded_xhat)(r, i)), slope;
	if (r->gate_first || (!r->residual_after.tensor && !r->activation))
		return y;
	if (r->affine_dtype)
		y = NAME(rounded)(r->affine_dtype, y);
	if (r->gate.tensor)
		return y * NAME(gate)(r, i, &slope);
	return r->activation ? NAME(activation)(r->activation, y, &slope) : y + NAME(element)(&r->residual_after, i);
}

static void NAME(forward)(const ek_norm_forward_args *a)
{
	int64_t groups = ek_norm_groups(a->cols, a->group_cols);
	for (int64_t number = 0; number < a->rows * groups; number++) {
		int64_t row = number / groups, first = number % groups * a->group_cols;
		struct NAME(row) r = NAME(forward_row)(a, row, first);
		if (a->h)
			NAME(write_h)(a, row, first, &r);
		NAME(statistics)(&r, (real)a->eps);
		for (int64_t i = 0; i < r.cols; i++)
			ek_write_element(a->y, a->y_dtype, row * a->y_stride + first + i, NAME(y)(&r, i));
		NAME(put_statistic)(a->mean, number, r.mean);
		NAME(put_statistic)(a->rstd, number, r.rstd);
		NAME(put_statistic)(a->mean_lo, number, r.mean_lo);
	}
}

static struct NAME(row) NAME(backward_row)(const ek_norm_backward_args *a, int64_t row, int64_t first)
{
	return (struct NAME(row)){.x = {a->x, a->h_dtype, row * a->x_stride + first},
				  .x_bias = {a->x_bias, a->weight_dtype, first},
				  .dy = {a->dy, a->y_dtype, row * a->dy_stride + first},
				  .dh = {a->dh, a->h_dtype, row * a->dh_stride + first},
				  .weight = {a->weight, a->weight_dtype, first},
				  .bias = {a->bias, a->weight_dtype, first},
				  .norm = a->norm,
				  .activation = a->activation,
				  .gate = {a->gate, a->dtype, row * a->gate_stride + first},
				  .gate_first = a->gate_first,
				  .xhat_dtype = a->rounding == EK_ROUND_EACH ? a->h_dtype : (ek_dtype)0,
				  .weight_offset = a->weight_offset,
				  .cols = ek_norm_group_cols(a->cols, a->group_cols)};
}

static void NAME(backward_statistics)(const ek_norm_backward_args *a, int64_t number, struct NAME(row) *r)
{
	if (!a->rstd) {
		NAME(statistics)(r, (real)a->eps);
		return;
	}
	r->rstd = (real)ek_read_element(a->rstd, STATS_DTYPE, number);
	r->mean = a->mean ? (real)ek_read_element(a->mean, STATS_DTYPE, number) : 0;
	r->mean_lo = a->mean_lo ? (real)ek_read_element(a->mean_lo, STATS_DTYPE, number) : 0;
}

/* Rules 5 and 8. */
static void NAME(row_means)(struct NAME(row) *r)
{
	real n = (real)r->cols;
	r->mean_g_xhat = NAME(rowsum)(r, NAME(GRADIENT_XHAT)) / n;
	r->mean_g = r->norm == EK_RMS_NORM ? 0 : NAME(rowsum)(r, NAME(GRADIENT)) / n;
}

static real NAME(dx)(const struct NAME(row) *r, int64_t i)
{
	real g = NAME(g)(r, i), xhat = NAME(xhat)(r, i), dx;
	if (r->norm == EK_RMS_NORM)
		dx = fma_real(-xhat, r->mean_g_xhat, g) * r->rstd;
	else
		dx = (g - fma_real(xhat, r->mean_g_xhat, r->mean_g)) * r->rstd;
	return r->dh.tensor ? dx + NAME(element)(&r->dh, i) : dx;
}

/* Rule 11, of du where the gate comes first; *dx becomes what it is of x. */
static real NAME(dgate)(const struct NAME(row) *r, int64_t i, real *dx)
{
	real slope, s = NAME(gate)(r, i, &slope), du = *dx;
	if (!r->gate_first)
		return (NAME(dy_of_y)(r, i) * NAME(affine)(r, i, NAME(xhat)(r, i))) * slope;
	*dx = du * s;
	return (du * NAME(element)(&r->x, i)) * slope;
}

/* dx, dresidual and dgate may lie where dy, x, dh or the gate do: an element is written once it is read. */
static void NAME(write_dx)(const ek_norm_backward_args *a, int64_t row, int64_t first, const struct NAME(row) *r)
{
	for (int64_t i = 0; i < r->cols; i++) {
		real dx = NAME(dx)(r, i), dgate = a->gate ? NAME(dgate)(r, i, &dx) : 0;
		if (a->dgate)
			ek_write_element(a->dgate, a->dtype, row * a->dgate_stride + first + i, dgate);
		if (a->dx)
			ek_write_element(a->dx, a->dtype, row * a->dx_stride + first + i, dx);
		if (a->dresidual)
			ek_write_element(a->dresidual, a->h_dtype, row * a->dresidual_stride + first + i, dx);
	}
}

/* The sums over rows: of dy * xhat, of dy, of dx. */
enum NAME(sum) { NAME(OF_WEIGHT), NAME(OF_BIAS), NAME(OF_X_BIAS), NAME(SUMS) };

/* The numbers of a row, or of each of its groups, that are kept in the workspace. */
enum { NAME(KEPT) = 5 };

static void NAME(keep_row)(const struct NAME(row) *r, real *kept)
{
	const real numbers[NAME(KEPT)] = {r->mean, r->rstd, r->mean_lo, r->mean_g_xhat, r->mean_g};
	memcpy(kept, numbers, sizeof numbers);
}

static struct NAME(row) NAME(kept_row)(const ek_norm_backward_args *a, int64_t row, int64_t group, const real *all)
{
	const real *kept = all + NAME(KEPT) * (row * ek_norm_groups(a->cols, a->group_cols) + group);
	struct NAME(row) r = NAME(backward_row)(a, row, group * a->group_cols);
	r.mean = kept[0];
	r.rstd = kept[1];
	r.mean_lo = kept[2];
	r.mean_g_xhat = kept[3];
	r.mean_g = kept[4];
	return r;
}

/* Rule 6 for one column: the sum of one slot's rows in chunks. */
static real NAME(slot_sum)(const ek_norm_backward_args *a, const real *kept, int64_t first, int64_t end,
			   int64_t column, enum NAME(sum) sum)
{
	int64_t cols = ek_norm_group_cols(a->cols, a->group_cols), in_group = column % cols;
	real slot = 0;
	for (int64_t chunk = first; chunk < end; chunk += CHUNK_ROWS) {
		real acc = 0;
		for (int64_t row = chunk; row < end && row < chunk + CHUNK_ROWS; row++) {
			struct NAME(row) r = NAME(kept_row)(a, row, column / cols, kept);
			if (sum == NAME(OF_WEIGHT))
				acc = fma_real(NAME(dy)(&r, in_group), NAME(rounded_xhat)(&r, in_group), acc);
			else
				acc = acc + (sum == NAME(OF_BIAS) ? NAME(dy)(&r, in_group) : NAME(dx)(&r, in_group));
		}
		slot = slot + acc;
	}
	return slot;
}

/* Rule 6 for the columns first … end-1; slots has room for one strip of them. */
static void NAME(column_sums)(const ek_norm_backward_args *a, const real *kept, real *slots, int64_t first,
			      int64_t end, enum NAME(sum) sum, void *gradient)
{
	int64_t per_slot = ek_slot_rows(a->rows, a->cols), count = ek_slot_count(a->rows, a->cols);
	for (int64_t k = 0; k < count; k++) {
		int64_t row = k * per_slot;
		int64_t last = row + per_slot < a->rows ? row + per_slot : a->rows;
		for (int64_t i = first; i < end; i++)
			slots[k * EK_REFERENCE_STRIP + i - first] = NAME(slot_sum)(a, kept, row, last, i, sum);
	}
	for (int64_t i = first; i < end; i++) {
		real total = (count ? NAME(fold)(slots + i - first, count, EK_REFERENCE_STRIP) : 0) + 0;
		if (a->accumulate)
			total = (real)ek_read_element(gradient, a->gradient_dtype, i) + total;
		ek_write_element(gradient, a->gradient_dtype, i, total);
	}
}

static void NAME(backward)(const ek_norm_backward_args *a)
{
	void *const gradients[NAME(SUMS)] = {a->dweight, a->dbias, a->dx_bias};
	bool sums = a->dweight || a->dbias || a->dx_bias;
	int64_t groups = ek_norm_groups(a->cols, a->group_cols), count = a->rows * groups;
	real *kept = a->workspace, *slots = sums ? kept + NAME(KEPT) * count : NULL;
	for (int64_t number = 0; sums && number < count; number++) {
		struct NAME(row) r = NAME(backward_row)(a, number / groups, number % groups * a->group_cols);
		NAME(backward_statistics)(a, number, &r);
		if (a->dx_bias)
			NAME(row_means)(&r);
		NAME(keep_row)(&r, kept + NAME(KEPT) * number);
	}
	for (int64_t first = 0; sums && first < a->cols; first += EK_REFERENCE_STRIP)
		for (int sum = 0; sum < NAME(SUMS); sum++) {
			int64_t end = first + EK_REFERENCE_STRIP < a->cols ? first + EK_REFERENCE_STRIP : a->cols;
			if (gradients[sum])
				NAME(column_sums)(a, kept, slots, first, end, (enum NAME(sum))sum, gradients[sum]);
		}
	for (int64_t number = 0; (a->dx || a->dresidual || a->dgate) && number < count; number++) {
		int64_t row = number / groups, first = number % groups * a->group_cols;
		struct NAME(row) r = NAME(backward_row)(a, row, first);
		NAME(backward_statistics)(a, number, &r);
		NAME(row_means)(&r);
		NAME(write_dx)(a, row, first, &r);
	}
}
