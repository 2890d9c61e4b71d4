/* The norm ops by the rules of docs/numerics.md, in the arithmetic `real`, slow and plain: this text is
 * what every kernel must equal bit for bit. Included by reference.c for binary32 and binary64.
 * Parameters: real, fma_real, sqrt_real, STATS_DTYPE, NAME(). Makes: NAME(forward), NAME(backward). SPDX-License-Identifier: MIT */

/* Folds n numbers by the tree of rule 2, neighbours first. */
static real NAME(fold)(real *a, int64_t n, int64_t stride)
{
	for (int64_t h = 1; h < n; h *= 2)
		for (int64_t i = 0; i + h < n; i += 2 * h)
			a[i * stride] = a[i * stride] + a[(i + h) * stride];
	return a[0];
}

/* What a row sum adds: rules 2, 3 and 5. */
enum NAME(term) {
	NAME(VALUE),          /* x */
	NAME(DEVIATION),      /* d = x - m0 */
	NAME(SQUARE),         /* d * d */
	NAME(GRADIENT),       /* g = dy * weight */
	NAME(GRADIENT_XHAT)   /* g * xhat */
};

struct NAME(row) {
	const void *x, *dy, *weight;
	ek_dtype dtype, weight_dtype;
	ek_norm norm;
	int64_t start_x, start_dy, cols;
	real m0, mean, mean_lo, rstd;
};

static real NAME(x)(const struct NAME(row) *r, int64_t i)
{
	return (real)read_element(r->x, r->dtype, r->start_x + i);
}

/* Rule 4. */
static real NAME(xhat)(const struct NAME(row) *r, int64_t i)
{
	if (r->norm == EK_RMS_NORM)
		return NAME(x)(r, i) * r->rstd;
	return fma_real(NAME(x)(r, i) - r->mean, r->rstd, -(r->mean_lo * r->rstd));
}

static real NAME(dy)(const struct NAME(row) *r, int64_t i)
{
	return (real)read_element(r->dy, r->dtype, r->start_dy + i);
}

static real NAME(g)(const struct NAME(row) *r, int64_t i)
{
	real dy = NAME(dy)(r, i);
	return r->weight ? dy * (real)read_element(r->weight, r->weight_dtype, i) : dy;
}

static real NAME(add_term)(const struct NAME(row) *r, enum NAME(term) term, int64_t i, real lane)
{
	real d;
	switch (term) {
	case NAME(VALUE):
		return lane + NAME(x)(r, i);
	case NAME(DEVIATION):
		return lane + (NAME(x)(r, i) - r->m0);
	case NAME(SQUARE):
		d = r->norm == EK_RMS_NORM ? NAME(x)(r, i) : NAME(x)(r, i) - r->m0;
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
		write_element(tensor, STATS_DTYPE, row, value);
}

static void NAME(forward)(const ek_norm_forward_args *a)
{
	struct NAME(row) r = {.x = a->x, .dtype = a->dtype, .norm = a->norm, .cols = a->cols};
	for (int64_t row = 0; row < a->rows; row++) {
		r.start_x = row * a->x_stride;
		NAME(statistics)(&r, (real)a->eps);
		for (int64_t i = 0; i < a->cols; i++) {
			real y = NAME(xhat)(&r, i);
			real weight = a->weight ? (real)read_element(a->weight, a->weight_dtype, i) : 1;
			if (a->bias)
				y = fma_real(y, weight, (real)read_element(a->bias, a->weight_dtype, i));
			else
				y = y * weight;
			write_element(a->y, a->dtype, row * a->y_stride + i, y);
		}
		NAME(put_statistic)(a->mean, row, r.mean);
		NAME(put_statistic)(a->rstd, row, r.rstd);
		NAME(put_statistic)(a->mean_lo, row, r.mean_lo);
	}
}

static struct NAME(row) NAME(backward_row)(const ek_norm_backward_args *a, int64_t row)
{
	return (struct NAME(row)){.x = a->x,
				  .dy = a->dy,
				  .weight = a->weight,
				  .dtype = a->dtype,
				  .weight_dtype = a->weight_dtype,
				  .norm = a->norm,
				  .start_x = row * a->x_stride,
				  .start_dy = row * a->dy_stride,
				  .cols = a->cols};
}

static void NAME(backward_statistics)(const ek_norm_backward_args *a, int64_t row, struct NAME(row) *r)
{
	if (!a->rstd) {
		NAME(statistics)(r, (real)a->eps);
		return;
	}
	r->rstd = (real)read_element(a->rstd, STATS_DTYPE, row);
	r->mean = a->mean ? (real)read_element(a->mean, STATS_DTYPE, row) : 0;
	r->mean_lo = a->mean_lo ? (real)read_element(a->mean_lo, STATS_DTYPE, row) : 0;
}

/* Rule 5. */
static void NAME(backward_dx)(const ek_norm_backward_args *a, int64_t row, const struct NAME(row) *r)
{
	real n = (real)r->cols;
	real mean_g_xhat = NAME(rowsum)(r, NAME(GRADIENT_XHAT)) / n;
	real mean_g = r->norm == EK_RMS_NORM ? 0 : NAME(rowsum)(r, NAME(GRADIENT)) / n;
	for (int64_t i = 0; i < r->cols; i++) {
		real g = NAME(g)(r, i), xhat = NAME(xhat)(r, i), dx;
		if (r->norm == EK_RMS_NORM)
			dx = fma_real(-xhat, mean_g_xhat, g) * r->rstd;
		else
			dx = (g - fma_real(xhat, mean_g_xhat, mean_g)) * r->rstd;
		write_element(a->dx, a->dtype, row * a->dx_stride + i, dx);
	}
}

/* Rule 6 for one column: the sum of one slot's rows in chunks, of dy * xhat or of dy. */
static real NAME(slot_sum)(const ek_norm_backward_args *a, const real *stats, int64_t first, int64_t end,
			   int64_t column, int of_weight)
{
	real slot = 0;
	for (int64_t chunk = first; chunk < end; chunk += CHUNK_ROWS) {
		real acc = 0;
		for (int64_t row = chunk; row < end && row < chunk + CHUNK_ROWS; row++) {
			struct NAME(row) r = NAME(backward_row)(a, row);
			r.mean = stats[3 * row];
			r.rstd = stats[3 * row + 1];
			r.mean_lo = stats[3 * row + 2];
			if (of_weight)
				acc = fma_real(NAME(dy)(&r, column), NAME(xhat)(&r, column), acc);
			else
				acc = acc + NAME(dy)(&r, column);
		}
		slot = slot + acc;
	}
	return slot;
}

/* Rule 6 for the columns first … end-1; slots has room for one strip of them. */
static void NAME(column_sums)(const ek_norm_backward_args *a, const real *stats, real *slots, int64_t first,
			      int64_t end, int of_weight)
{
	void *gradient = of_weight ? a->dweight : a->dbias;
	int64_t per_slot = ek_slot_rows(a->rows, a->cols), count = ek_slot_count(a->rows, a->cols);
	for (int64_t k = 0; k < count; k++) {
		int64_t row = k * per_slot;
		int64_t last = row + per_slot < a->rows ? row + per_slot : a->rows;
		for (int64_t i = first; i < end; i++)
			slots[k * STRIP + i - first] = NAME(slot_sum)(a, stats, row, last, i, of_weight);
	}
	for (int64_t i = first; i < end; i++) {
		real sum = (count ? NAME(fold)(slots + i - first, count, STRIP) : 0) + 0;
		if (a->accumulate)
			sum = (real)read_element(gradient, a->weight_dtype, i) + sum;
		write_element(gradient, a->weight_dtype, i, sum);
	}
}

static void NAME(backward)(const ek_norm_backward_args *a)
{
	int sums = a->dweight || a->dbias;
	real *stats = a->workspace, *slots = sums ? stats + 3 * a->rows : NULL;
	for (int64_t row = 0; sums && row < a->rows; row++) {
		struct NAME(row) r = NAME(backward_row)(a, row);
		NAME(backward_statistics)(a, row, &r);
		stats[3 * row] = r.mean;
		stats[3 * row + 1] = r.rstd;
		stats[3 * row + 2] = r.mean_lo;
	}
	for (int64_t first = 0; sums && first < a->cols; first += STRIP) {
		int64_t end = first + STRIP < a->cols ? first + STRIP : a->cols;
		if (a->dweight)
			NAME(column_sums)(a, stats, slots, first, end, 1);
		if (a->dbias)
			NAME(column_sums)(a, stats, slots, first, end, 0);
	}
	for (int64_t row = 0; a->dx && row < a->rows; row++) {
		struct NAME(row) r = NAME(backward_row)(a, row);
		NAME(backward_statistics)(a, row, &r);
		NAME(backward_dx)(a, row, &r);
	}
}
