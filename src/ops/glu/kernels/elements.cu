/* What the kernels of gated activations share: how a unit of a row comes from memory and goes back, and rule 14 of
 * docs/numerics.md. Placed after gpu/kernels/elements.cu, columns_layout.h and layout.h.
 *
 * Constants, given as -D, beside those of gpu/kernels/elements.cu:
 *   KERNEL_NAME     of the function
 *   KIND            of the kernel, and ACCESS: layout.h
 *   WHOLE           1: rows have whole units; a unit of columns is there or not
 *   BIAS_QUADS      1: biases start at multiples of 16 bytes
 *   PAIRS           1: the gate holds gate and value in turn, and so do its bias and its gradients
 *   LIMITED         1: with a limit, alpha or offset
 *   HAS_…           1: the call has that operand
 * SPDX-License-Identifier: MIT */

#ifndef HAS_DGATE
#define HAS_DGATE 0
#define HAS_DVALUE 0
#define HAS_DGATE_BIAS 0
#define HAS_DVALUE_BIAS 0
#endif

enum {
	UNIT = ACCESS == ACCESS_QUADS ? PER_QUAD : 1,   /* columns of a unit */
	GATE_EACH = PAIRS ? 2 : 1,                      /* elements of the gate for each of them */
	HAS_VALUES = PAIRS || HAS_VALUE,
	VALUE_SUMS = PAIRS || HAS_DVALUE_BIAS,
	GATE_SUMS = HAS_DGATE_BIAS,
	SUMS_EACH = PAIRS ? 2 : GATE_SUMS + VALUE_SUMS, /* column sums for each column */
	/* dgate of a sum alone is dy: nothing depends on the gate and its bias */
	READS_GATE = KIND == KIND_GLU_FORWARD || ACTIVATION != ACTIVATION_IDENTITY || HAS_VALUES || LIMITED
};

/* Elements of a tensor that go with a unit: `each` quads or elements, side by side. */
struct piece {
	quad q[2];
};

/* `count` columns are in the row, 0 to UNIT; of whole units all are read. */
DEVICE struct piece load_piece(const u8 *from, const int each, int count)
{
	struct piece p;
	p.q[0] = p.q[1] = no_quad();
	if (ACCESS == ACCESS_QUADS && (WHOLE || count == UNIT)) {
		p.q[0] = load_kept(from);
		if (each == 2)
			p.q[1] = load_kept(from + 16);
		return p;
	}
	UNROLL
	for (int e = 0; e < each * UNIT; e++)
		if (WHOLE || e < each * count)
			p.q[e / PER_QUAD] = put_bits(p.q[e / PER_QUAD], e % PER_QUAD, load_bits(from + e * ELEMENT_BYTES, ELEMENT_BYTES));
	return p;
}

DEVICE struct piece load_gate(const u8 *from, int count)
{
	struct piece none;
	none.q[0] = none.q[1] = no_quad();
	return READS_GATE ? load_piece(from, GATE_EACH, count) : none;
}

/* The numbers of a piece. */
DEVICE void widen_piece(struct piece p, const int each, real *x)
{
	real of_quads[2 * PER_QUAD];
	widen(p.q[0], of_quads);
	if (each * UNIT > PER_QUAD)
		widen(p.q[1], of_quads + PER_QUAD);
	UNROLL
	for (int e = 0; e < each * UNIT; e++)
		x[e] = of_quads[e];
}

DEVICE void store_piece(u8 *to, const int each, const real *x, int count)
{
	real of_quads[2 * PER_QUAD];
	quad q[2];
	UNROLL
	for (int e = 0; e < 2 * PER_QUAD; e++)
		of_quads[e] = e < each * UNIT ? x[e] : 0;
	q[0] = narrow(of_quads);
	q[1] = each * UNIT > PER_QUAD ? narrow(of_quads + PER_QUAD) : no_quad();
	if (ACCESS == ACCESS_QUADS && (WHOLE || count == UNIT)) {
		if (count == 0)
			return;
		store_kept(to, q[0]);
		if (each == 2)
			store_kept(to + 16, q[1]);
		return;
	}
	UNROLL
	for (int e = 0; e < each * UNIT; e++)
		if (e < each * count)
			store_bits(to + e * ELEMENT_BYTES, ELEMENT_BYTES, quad_bits(q[e / PER_QUAD], e % PER_QUAD));
}

DEVICE void widen_bias(quad v, real *b)
{
#if WEIGHT_ELEMENT == ELEMENT
	widen(v, b);
#else /* binary32 beside 16 bits */
	UNROLL
	for (int i = 0; i < 4; i++)
		b[i] = f32_of_bits(v.w[i]);
#endif
}

/* The numbers of a bias from column `col` on, in quads where they can be. */
DEVICE void load_bias(const u8 *bias, const int each, i64 col, int count, real *b)
{
	const u8 *from = bias + each * col * WEIGHT_BYTES;
	if (ACCESS == ACCESS_QUADS && BIAS_QUADS && (WHOLE || count == UNIT)) {
		UNROLL
		for (int i = 0; i < each * UNIT * WEIGHT_BYTES / 16; i++) {
			quad q = load_shared_by_all(from + 16 * i);
			widen_bias(q, b + i * (16 / WEIGHT_BYTES));
		}
		return;
	}
	UNROLL
	for (int e = 0; e < each * UNIT; e++)
		b[e] = WHOLE || e < each * count ? load_weight(from, e) : 0;
}

/* t and v of a unit before the limits. */
struct point {
	real t[UNIT], v[UNIT];
};

DEVICE struct point point_of(const struct glu_arguments *a, struct piece gate, struct piece value, i64 col, int count)
{
	struct point p;
	real of_gate[2 * UNIT], bias[2 * UNIT];
	widen_piece(gate, GATE_EACH, of_gate);
	if (HAS_GATE_BIAS && READS_GATE) {
		load_bias(a->gate_bias, GATE_EACH, col, count, bias);
		UNROLL
		for (int e = 0; e < GATE_EACH * UNIT; e++)
			of_gate[e] = of_gate[e] + bias[e];
	}
	if (HAS_VALUE)
		widen_piece(value, 1, p.v);
	if (HAS_VALUE_BIAS) {
		load_bias(a->value_bias, 1, col, count, bias);
		UNROLL
		for (int e = 0; e < UNIT; e++)
			p.v[e] = p.v[e] + bias[e];
	}
	UNROLL
	for (int e = 0; e < UNIT; e++) {
		p.t[e] = of_gate[GATE_EACH * e];
		if (PAIRS)
			p.v[e] = of_gate[2 * e + 1];
		if (!HAS_VALUES)
			p.v[e] = 1;
	}
	return p;
}

#define AT_LEAST M(at_least)
#define AT_MOST M(at_most)

/* Rule 14: what the activation and the product take. */
DEVICE void apply_limits(const struct glu_arguments *a, real *t, real *v)
{
	if (!LIMITED)
		return;
	*t = AT_MOST(*t, (real)a->limit) * (real)a->alpha;
	if (HAS_VALUES)
		*v = AT_LEAST(AT_MOST(*v, (real)a->value_limit), (real)-a->value_limit) + (real)a->value_offset;
}

DEVICE real y_of(const struct glu_arguments *a, real t, real v)
{
	apply_limits(a, &t, &v);
	real y = ACTIVATE(t);
	if (LIMITED)
		y = y * (real)a->inverse;
	return HAS_VALUES ? y * v : y;
}

DEVICE void gradients_of(const struct glu_arguments *a, real t, real v, real dy, real *dgate, real *dvalue)
{
	const real over = t, beyond = M(magnitude)(v);
	real slope;
	apply_limits(a, &t, &v);
	real y = ACTIVATE_AND_SLOPE(t, &slope);
	if (LIMITED)
		y = y * (real)a->inverse;
	*dvalue = dy * y;
	*dgate = (HAS_VALUES ? dy * v : dy) * slope;
	if (LIMITED) {
		*dvalue = M(if_less)((real)a->value_limit, beyond, 0, *dvalue);
		*dgate = M(if_less)((real)a->limit, over, 0, *dgate);
	}
}

/* Both gradients of a unit as memory has them: dgate, of pairs with dvalue between. */
DEVICE void store_gradients(u8 *to_dgate, u8 *to_dvalue, int count, const real *dgate, const real *dvalue)
{
	real pairs[2 * UNIT];
	UNROLL
	for (int e = 0; e < UNIT; e++) {
		pairs[GATE_EACH * e] = dgate[e];
		if (PAIRS)
			pairs[2 * e + 1] = dvalue[e];
	}
	if (HAS_DGATE)
		store_piece(to_dgate, GATE_EACH, pairs, count);
	if (HAS_DVALUE)
		store_piece(to_dvalue, 1, dvalue, count);
}
