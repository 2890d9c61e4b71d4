/* The norm of a head, rules 3 to 5 of docs/numerics.md. Included by cpu_heads.inc.h with the words of cpu/rowsum.inc.h.
 * Makes: N(stats), N(statistics), N(normalize), N(norm_backward), N(multiply), N(set_weight). SPDX-License-Identifier: MIT */

/* As xhat uses them: fma(x - mean, rstd, shift). RMSNorm: a mean of 0 and a shift of -0, which change no bit of x * rstd. */
struct N(stats) {
	real mean, rstd, shift;
};

/* Rule 3, of a head of dim elements of a dtype. */
INLINE struct N(stats)
	N(statistics)(const int norm, const int dtype, const void *x, const int64_t dim, real eps)
{
	const real n = (real)dim;
	struct N(terms) terms = {dtype, dtype, x, x, V(splat)(0), dim};
	real q;
	if (norm == EK_RMS_NORM) {
		q = N(segment_sums)(N(OF_PRODUCT), &terms, NULL);
		return (struct N(stats)){0, 1 / V(sqrt1)(q / n + eps), -(real)0};
	}
	const real m0 = N(segment_sums)(N(OF_U), &terms, NULL) / n;
	terms.m = V(splat)(m0);
	const real s = N(segment_sums)(N(OF_MOMENTS), &terms, &q);
	const real correction = s / n, mean = m0 + correction, mean_lo = (m0 - mean) + correction;
	const real v = V(fma1)(-correction, correction, q / n), rstd = 1 / V(sqrt1)((v < 0 ? 0 : v) + eps);
	return (struct N(stats)){mean, rstd, -(mean_lo * rstd)};
}

/* Rule 4: y = xhat(x) * weight. x and y may be the same. */
INLINE void N(normalize)(const struct N(stats) * s, const real *x, const real *weight, real *y, int64_t count)
{
	const vec mean = V(splat)(s->mean), rstd = V(splat)(s->rstd), shift = V(splat)(s->shift);
	for (int64_t i = 0; i < count; i += N(W)) {
		const int n = (int)smaller(N(W), count - i);
		const vec xhat = V(fma)(V(sub)(N(load)(x + i, n), mean), rstd, shift);
		N(store)(y + i, V(mul)(xhat, N(load)(weight + i, n)), n);
	}
}

/* Means over a head that dx is made of: a of g * xhat, b of g. */
struct N(means) {
	real a, b;
};

/* order: the dtype in whose order the numbers are. */
INLINE struct N(means)
	N(means_of)(const int norm, const int order, const real *g, const real *xhat, const int64_t dim)
{
	const struct N(terms) terms = {PASTE(dtype, ACT), order, g, xhat, V(splat)(0), dim};
	const real a = N(segment_sums)(N(OF_PRODUCT), &terms, NULL) / (real)dim;
	if (norm == EK_RMS_NORM)
		return (struct N(means)){a, 0};
	return (struct N(means)){a, N(segment_sums)(N(OF_U), &terms, NULL) / (real)dim};
}

/* Rule 5: the gradient of x from g. */
INLINE vec N(dx_of)(const int norm, const struct N(means) * m, real rstd, vec g, vec xhat)
{
	const vec a = V(splat)(m->a);
	const vec d = norm == EK_RMS_NORM ? V(fnma)(xhat, a, g) : V(sub)(g, V(fma)(xhat, a, V(splat)(m->b)));
	return V(mul)(d, V(splat)(rstd));
}

/* The same of a head. g and dx may be the same. */
INLINE void N(norm_backward)(const struct ek_rope_call *c, const real *g, const real *xhat, real rstd,
			     real *dx)
{
	const struct N(means) means = N(means_of)(c->norm, PASTE(dtype, ACT), g, xhat, c->head_dim);
	for (int64_t i = 0; i < c->head_dim; i += N(W)) {
		const int n = (int)smaller(N(W), c->head_dim - i);
		N(store)(dx + i, N(dx_of)(c->norm, &means, rstd, N(load)(g + i, n), N(load)(xhat + i, n)), n);
	}
}

INLINE void N(multiply)(const real *a, const real *b, real *to, int64_t count)
{
	for (int64_t i = 0; i < count; i += N(W)) {
		const int n = (int)smaller(N(W), count - i);
		N(store)(to + i, V(mul)(N(load)(a + i, n), N(load)(b + i, n)), n);
	}
}

/* The weight, 1 + weight, or ones. */
static void N(set_weight)(const struct ek_rope_call *c, const void *weight, real *to)
{
	const struct N(tensor) from = N(tensor_at)(weight, c->weight_dtype, 0);
	for (int64_t i = 0; i < c->head_dim; i++)
		to[i] = weight && !c->weight_offset ? 0 : 1;
	if (weight && c->weight_offset)
		N(add)(&from, 0, c->head_dim, to);
	else if (weight)
		N(widen)(&from, 0, c->head_dim, to);
}
