/* Backward of the fused norms, row by row: the sums, then dx. Included by cpu_fused.inc.h.
 * Makes: N(fused_backward), N(finish_fused_columns). SPDX-License-Identifier: MIT */

/* A row of backward, and where its tensors are. */
struct N(fused_grad) {
	struct N(input) input;
	struct N(tensor) dy, dh, dx, dresidual, gate, dgate;
	ek_activation activation;
	bool gate_first;
	struct N(grad_row) row;
	const struct N(conversion) *xhat_as; /* what xhat rounds to for dweight, or NULL */
	real *dy_buffer;
};

INLINE const real *N(dy_at)(const struct N(fused_grad) *g, int64_t start, int64_t n, bool again)
{
	real *dy = g->dy_buffer + (g->input.kept ? start : 0);
	if (g->dy.at && N(is_real)(&g->dy))
		return N(from)(&g->dy, start);
	if (again && g->input.kept)
		return dy;
	if (g->dy.at)
		N(widen)(&g->dy, start, n, dy);
	else
		memset(dy, 0, (size_t)n * sizeof *dy);
	return dy;
}

/* The affine result of a segment, from the row's x. */
INLINE void N(affine_again)(const struct N(fused_grad) *g, const struct N(affine) *f, int64_t n, real *to, const bool centred)
{
	const struct N(pair) *in_real = &N(pairs)[PASTE(dtype, ACT)][PASTE(dtype, ACT)];
	const struct N(result) r = {.x = g->row.x, .stats = g->row.stats, .affine = *f, .y = to};
	(centred ? in_real->write_centred : in_real->write_rms)(&r, n, false);
}

/* Rule 11: the gradient of the affine result: dy times the derivative there, or times the gate. */
OUTLINE const real *N(activated_dy)(const struct N(fused_grad) *g, const struct N(affine) *f, int64_t start, int64_t n,
				   const bool centred)
{
	real t[SEGMENT], *to = g->dy_buffer + (g->input.kept ? start : 0);
	const real *dy = N(dy_at)(g, start, n, false);
	if (g->gate.at) {
		N(widen)(&g->gate, start, n, t);
		N(activations)[g->activation].apply(t, n);
		N(multiply)(dy, t, n, to);
	} else {
		N(affine_again)(g, f, n, t, centred);
		N(activations)[g->activation].scale(t, n, dy, to);
	}
	return to;
}

/* Rule 11: dgate of a segment; dx becomes what it is of x where the gate comes first. */
OUTLINE void N(write_dgate)(const struct N(fused_grad) *g, const struct N(affine) *f, int64_t start, int64_t n, real *dx,
			   bool nontemporal, const bool centred)
{
	real gate[SEGMENT], value[SEGMENT], slope[SEGMENT], factor[SEGMENT], dy[SEGMENT];
	N(widen)(&g->gate, start, n, gate);
	N(activations)[g->activation].both(gate, n, value, slope);
	if (g->gate_first) {
		N(widen)(&g->input.x, start, n, factor);
		N(multiply)(dx, factor, n, factor);
		N(multiply)(dx, value, n, dx);
	} else {
		if (g->dy.at)
			N(widen)(&g->dy, start, n, dy);
		else
			memset(dy, 0, (size_t)n * sizeof *dy);
		N(affine_again)(g, f, n, factor, centred);
		N(multiply)(dy, factor, n, factor);
	}
	N(multiply)(factor, slope, n, factor);
	N(narrow)(factor, &g->dgate, start, n, nontemporal);
}

/* Rule 6: a row's terms of dweight and dbias, of a rounded xhat. */
INLINE void N(add_rounded_columns)(const struct N(fused_grad) *g, const struct N(columns) *c, int64_t n, const bool centred)
{
	real xhat[SEGMENT];
	const struct N(affine) none = N(affine_of)(NULL, NULL);
	struct N(row) r = {.x = g->row.x, .y = xhat, .stats = g->row.stats};
	const struct fetch ahead = fetch_from(NULL, r.x);
	(centred ? N(normalize_centred) : N(normalize_rms))(&r, &none, (struct span){0, n}, &ahead, false);
	g->xhat_as->round(xhat, n);
	for (int64_t i = 0; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		const real *from = c->from + (i & c->mask), *from_db = from + (c->cols & c->mask);
		vec dy = V(load_part)(g->row.dy + i, left), x = V(load_part)(xhat + i, left), dw = V(load_part)(from, left);
		dw = c->kind == COLUMNS_SLOTS ? V(add)(dw, V(mul)(dy, x)) : V(fma)(dy, x, dw);
		V(store_part)(c->to + i, dw, left);
		V(store_part)(c->to + c->cols + i, V(add)(V(load_part)(from_db, left), dy), left);
	}
}

/* The same of dx, behind those of dweight and dbias. */
INLINE void N(add_dx_columns)(const real *dx, const struct N(columns) *c, int64_t n)
{
	const real *from = c->from + 2 * (c->cols & c->mask);
	real *to = c->to + 2 * c->cols;
	for (int64_t i = 0; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		V(store_part)(to + i, V(add)(V(load_part)(from + (i & c->mask), left), V(load_part)(dx + i, left)), left);
	}
}

/* From column `start` on. */
INLINE struct N(columns) N(columns_from)(const struct N(columns) *c, int64_t start)
{
	return (struct N(columns)){c->kind, c->from + (start & c->mask), c->to + start, c->mask, c->cols};
}

/* As of fused_row. */
INLINE void N(fused_grad_row)(const ek_norm_backward_args *a, int64_t row, int64_t first, int64_t number,
			      struct N(fused_columns) *wide, const struct N(columns) *columns, bool nontemporal,
			      const bool centred)
{
	const int64_t cols = ek_norm_group_cols(a->cols, a->group_cols);
	real buffer[N(KEPT)], dy_buffer[N(KEPT)], dx[SEGMENT];
	struct fetch none[2][2];
	const struct N(columns) no_columns = {COLUMNS_NONE, NULL, NULL, 0, 0};
	struct V(tree) g_xhat = {.count = 0}, sum_g = {.count = 0};
	struct N(fused_grad) g = {.input = {.x = N(tensor_at)(a->x, a->h_dtype, row * a->x_stride + first),
					    .residual = N(tensor_at)(NULL, a->h_dtype, 0),
					    .x_bias = &wide->x_bias,
					    .first = first,
					    .kept = cols <= N(KEPT),
					    .buffer = buffer},
				  .dy = N(tensor_at)(a->dy, a->y_dtype, row * a->dy_stride + first),
				  .dh = N(tensor_at)(a->dh, a->h_dtype, row * a->dh_stride + first),
				  .dx = N(tensor_at)(a->dx, a->dtype, row * a->dx_stride + first),
				  .dresidual = N(tensor_at)(a->dresidual, a->h_dtype, row * a->dresidual_stride + first),
				  .gate = N(tensor_at)(a->gate, a->dtype, row * a->gate_stride + first),
				  .dgate = N(tensor_at)(a->dgate, a->dtype, row * a->dgate_stride + first),
				  .activation = a->activation,
				  .gate_first = a->gate_first,
				  .dy_buffer = dy_buffer};
	if (a->rounding == EK_ROUND_EACH)
		g.xhat_as = &N(conversions)[a->h_dtype];
	const bool activated = a->activation && !a->gate_first; /* so dy is not the gradient of the affine result */
	if (a->gate_first) {
		g.input.gate = g.gate;
		g.input.activation = a->activation;
	}
	g.input.as_it_is = !a->x_bias && !a->gate_first && N(is_real)(&g.input.x);
	if (a->rstd) {
		g.row.stats = (struct N(stats)){N(given)(a->mean, number), N(given)(a->mean_lo, number), N(given)(a->rstd, number), 0};
		N(set_shift)(&g.row.stats);
	} else {
		g.row.stats = N(input_stats)(&g.input, cols, (real)a->eps, centred);
	}
	for (int64_t start = 0; start < cols; start += SEGMENT) {
		int64_t n = N(segment_length)(cols, start);
		struct N(affine) f = N(affine_at)(wide, first + start, n);
		g.row.x = a->rstd ? N(make_input)(&g.input, start, n) : N(input_at)(&g.input, start, n);
		g.row.dy = activated ? N(activated_dy)(&g, &f, start, n, centred) : N(dy_at)(&g, start, n, false);
		none[0][0] = none[0][1] = fetch_from(NULL, g.row.x);
		struct N(columns) c = columns->kind == COLUMNS_NONE ? no_columns : N(columns_from)(columns, first + start);
		N(add_grad_segment)(1, &g.row, 0, n, &f, g.xhat_as ? &no_columns : &c, none, centred, &g_xhat, &sum_g);
		if (g.xhat_as && columns->kind != COLUMNS_NONE)
			N(add_rounded_columns)(&g, &c, n, centred);
	}
	g.row.mean_g_xhat = V(tree_sum)(&g_xhat) / (real)cols;
	g.row.mean_g = V(tree_sum)(&sum_g) / (real)cols;
	g.row.dx = dx;
	for (int64_t start = 0; start < cols; start += SEGMENT) {
		int64_t n = N(segment_length)(cols, start);
		struct N(affine) f = N(affine_at)(wide, first + start, n);
		g.row.x = N(input_at)(&g.input, start, n);
		if (!activated)
			g.row.dy = N(dy_at)(&g, start, n, true);
		else if (g.input.kept)
			g.row.dy = dy_buffer + start;
		else
			g.row.dy = N(activated_dy)(&g, &f, start, n, centred);
		none[0][0] = none[0][1] = fetch_from(NULL, g.row.x);
		(centred ? N(write_dx_centred) : N(write_dx_rms))(&g.row, &f, (struct span){0, n}, none[0], false);
		N(add)(&g.dh, start, n, dx);
		if (a->gate)
			N(write_dgate)(&g, &f, start, n, dx, nontemporal, centred);
		if (a->dx_bias) {
			const struct N(columns) c = N(columns_from)(columns, first + start);
			N(add_dx_columns)(dx, &c, n);
		}
		N(narrow)(dx, &g.dx, start, n, nontemporal);
		N(narrow)(dx, &g.dresidual, start, n, nontemporal);
	}
}

/* Rows first … end-1; the column sums of task, if there is one. */
OUTLINE void N(fused_grad_rows)(const ek_norm_backward_args *a, int64_t first, int64_t end,
			      const struct ek_column_task *task, bool nontemporal)
{
	struct N(column_sums) sums;
	struct N(fused_columns) wide;
	const int64_t groups = ek_norm_groups(a->cols, a->group_cols);
	N(open_wide)(&wide.weight, a->weight, a->weight_dtype, a->weight_offset, a->cols);
	N(open_wide)(&wide.bias, a->bias, a->weight_dtype, 0, a->cols);
	N(open_wide)(&wide.x_bias, a->x_bias, a->weight_dtype, 0, a->cols);
	N(open_sums)(&sums, task, end - first, a->cols, a->dx_bias ? 3 : 2);
	for (int64_t row = first; row < end; row++) {
		struct N(columns) columns = N(columns_for)(&sums, row);
		for (int64_t group = 0; group < groups; group++) {
			int64_t at = group * a->group_cols, number = row * groups + group;
			if (a->norm == EK_LAYER_NORM)
				N(fused_grad_row)(a, row, at, number, &wide, &columns, nontemporal, true);
			else
				N(fused_grad_row)(a, row, at, number, &wide, &columns, nontemporal, false);
		}
		if (task)
			N(rows_are_in)(&sums, row + 1);
	}
	N(close_sums)(&sums, nontemporal);
}

static void N(fused_backward)(const ek_norm_backward_args *a, int64_t first, int64_t end,
			      const struct ek_column_task *task, bool nontemporal)
{
	(N(can_make_dt)(a) ? N(dt_backward) : N(fused_grad_rows))(a, first, end, task, nontemporal);
}

/* The gradients of columns first … end-1 from the results of count tasks: [count][2 or 3][cols]. */
static void N(finish_fused_columns)(const ek_norm_backward_args *a, const void *results, int64_t count, int64_t first,
				    int64_t end)
{
	void *const gradients[] = {a->dweight, a->dbias, a->dx_bias};
	int64_t stride = (a->dx_bias ? 3 : 2) * a->cols;
	for (int sum = 0; sum < 3; sum++) {
		const struct N(tensor) gradient = N(tensor_at)(gradients[sum], a->gradient_dtype, 0);
		const real *from = (const real *)results + sum * a->cols;
		for (int64_t start = first; gradient.at && start < end; start += SEGMENT) {
			real total[SEGMENT];
			int64_t n = smaller(SEGMENT, end - start);
			N(finish_gradient)(from + start, count, stride, 0, n, false, total);
			if (a->accumulate)
				N(add)(&gradient, start, n, total);
			N(narrow)(total, &gradient, start, n, false);
		}
	}
}

