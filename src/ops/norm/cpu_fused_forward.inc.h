/* Forward of the fused norms, row by row: the input and its first sum, LayerNorm's moments, y. Included by cpu_fused.inc.h.
 * Makes: N(fused_forward). SPDX-License-Identifier: MIT */

/* What the rows of a task share. */
struct N(fused_columns) {
	struct N(wide) weight, bias, x_bias;
};

INLINE struct N(affine) N(affine_at)(struct N(fused_columns) *c, int64_t start, int64_t n)
{
	return N(affine_of)(N(wide_at)(&c->weight, start, n), N(wide_at)(&c->bias, start, n));
}

/* Rule 11: n numbers, at most SEGMENT; of the affine result, or of a gate that multiplies it. */
OUTLINE void N(activate)(real *numbers, int64_t n, ek_activation activation, const struct N(tensor) *gate, int64_t start)
{
	real factors[SEGMENT];
	if (!gate->at) {
		N(activations)[activation].apply(numbers, n);
		return;
	}
	N(widen)(gate, start, n, factors);
	N(activations)[activation].apply(factors, n);
	N(multiply)(numbers, factors, n, numbers);
}

OUTLINE void N(write_activated)(const struct N(result) *result, int64_t n, ek_activation activation,
			       const struct N(tensor) *gate, int64_t start, const struct N(tensor) *y, bool nontemporal,
			       const bool centred)
{
	_Alignas(LINE) real numbers[SEGMENT];
	struct N(result) r = *result;
	const struct N(pair) *in_real = &N(pairs)[PASTE(dtype, ACT)][PASTE(dtype, ACT)];
	r.y = numbers;
	(centred ? in_real->write_centred : in_real->write_rms)(&r, n, false);
	N(activate)(numbers, n, activation, gate, start);
	N(conversions)[y->dtype].narrow(numbers, n, result->y, nontemporal);
}

/* Rule 10, rounding each: n numbers, at most SEGMENT, whose xhat rounds to `dtype`. */
static void N(write_each)(const struct N(result) *result, int64_t n, ek_dtype dtype, ek_activation activation,
			  const struct N(tensor) *gate, int64_t start, const struct N(tensor) *y, const struct N(tensor) *after, bool nontemporal, const bool centred)
{
	real numbers[SEGMENT];
	struct N(result) r = *result;
	const struct N(affine) none = N(affine_of)(NULL, NULL);
	const struct N(pair) *pair = &N(pairs)[y->dtype][after->dtype];
	const struct N(pair) *in_real = &N(pairs)[PASTE(dtype, ACT)][PASTE(dtype, ACT)];
	r.affine = none;
	r.after = NULL;
	r.y = numbers;
	(centred ? in_real->write_centred : in_real->write_rms)(&r, n, false);
	N(conversions)[dtype].round(numbers, n);
	r = (struct N(result)){numbers, {.rstd = 1}, result->affine, NULL, result->y};
	if (after->at || activation) {
		r.y = numbers;
		in_real->write_rms(&r, n, false);
		N(conversions)[y->dtype].round(numbers, n);
		if (activation)
			N(activate)(numbers, n, activation, gate, start);
		r = (struct N(result)){numbers, {.rstd = 1}, none, result->after, result->y};
	}
	pair->write_rms(&r, n, nontemporal);
}

/* The group of a row that starts at column `first`, whose statistics are number `number`; without groups the row. */
INLINE void N(fused_row)(const ek_norm_forward_args *a, int64_t row, int64_t first, int64_t number,
			 struct N(fused_columns) *columns, bool nontemporal, const bool centred)
{
	real buffer[N(KEPT)];
	const int64_t cols = ek_norm_group_cols(a->cols, a->group_cols);
	const bool each = a->rounding == EK_ROUND_EACH;
	const ek_activation activation = a->gate_first ? EK_NO_ACTIVATION : a->activation; /* of what is written */
	const struct N(tensor) gate = N(tensor_at)(a->gate, a->dtype, row * a->gate_stride + first), no_gate = {.at = NULL};
	const struct N(tensor) y = N(tensor_at)(a->y, a->y_dtype, row * a->y_stride + first);
	const struct N(tensor) after = N(tensor_at)(a->residual_after, a->h_dtype, row * a->residual_after_stride + first);
	const struct N(pair) *pair = &N(pairs)[a->y_dtype][a->h_dtype];
	const struct N(input) input = {.x = N(tensor_at)(a->x, a->dtype, row * a->x_stride + first),
				       .x_bias = &columns->x_bias,
				       .residual = N(tensor_at)(a->residual, a->h_dtype, row * a->residual_stride + first),
				       .h = N(tensor_at)(a->h, a->h_dtype, row * a->h_stride + first),
				       .gate = a->gate_first ? gate : no_gate,
				       .activation = a->activation,
				       .first = first,
				       .kept = cols <= N(KEPT),
				       .nontemporal = nontemporal,
				       .buffer = buffer};
	struct N(result) r = {.stats = N(input_stats)(&input, cols, (real)a->eps, centred)};
	N(put_stats)(a, number, &r.stats);
	int64_t step = input.kept && !each && !activation ? cols : SEGMENT;
	for (int64_t start = 0; start < cols; start += step) {
		int64_t n = smaller(step, cols - start);
		r.x = N(input_at)(&input, start, n);
		r.affine = N(affine_at)(columns, first + start, n);
		r.after = N(from)(&after, start);
		r.y = N(from)(&y, start);
		if (each)
			N(write_each)(&r, n, a->residual ? a->h_dtype : a->dtype, activation, &gate, start, &y, &after,
				      nontemporal, centred);
		else if (activation)
			N(write_activated)(&r, n, activation, &gate, start, &y, nontemporal, centred);
		else
			(centred ? pair->write_centred : pair->write_rms)(&r, n, nontemporal);
	}
}

static void N(fused_forward)(const ek_norm_forward_args *a, int64_t first, int64_t end, bool nontemporal)
{
	struct N(fused_columns) columns;
	N(open_wide)(&columns.weight, a->weight, a->weight_dtype, a->weight_offset, a->cols);
	N(open_wide)(&columns.bias, a->bias, a->weight_dtype, 0, a->cols);
	N(open_wide)(&columns.x_bias, a->x_bias, a->weight_dtype, 0, a->cols);
	const int64_t groups = ek_norm_groups(a->cols, a->group_cols);
	for (int64_t row = first; row < end; row++)
		for (int64_t group = 0; group < groups; group++) {
			int64_t at = group * a->group_cols, number = row * groups + group;
			if (a->norm == EK_LAYER_NORM)
				N(fused_row)(a, row, at, number, &columns, nontemporal, true);
			else
				N(fused_row)(a, row, at, number, &columns, nontemporal, false);
		}
	if (nontemporal)
		nontemporal_fence();
}
