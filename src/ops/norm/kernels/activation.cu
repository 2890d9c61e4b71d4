/* What the norm kernels share, fourth part: the activation of a norm's result (rule 11), over src/math. ACTIVATION is its
 * number, 0 for none (gpu/kernels/elements.cu). Placed behind sums.cu. SPDX-License-Identifier: MIT */

/* y from the affine result; with several roundings that rounds to y first. */
DEVICE real activated(real t)
{
#if ACTIVATION && !HAS_GATE
	return ACTIVATE(ROUND_EACH ? rounded(t, Y_ELEMENT) : t);
#else
	return t;
#endif
}

/* What a gate multiplies by, and its derivative. */
DEVICE real gate_and_slope(real gate, real *slope)
{
#if ACTIVATION
	return ACTIVATE_AND_SLOPE(gate, slope);
#else
	*slope = 0;
	return gate;
#endif
}

DEVICE real gate_of(real gate)
{
	real slope;
	return gate_and_slope(gate, &slope);
}

/* The gradient of the affine result, from that of y, and dgate of a gate of that result: backward computes xhat and what
 * follows from it again. */
DEVICE real activated_gradient(real dy, real xhat, real weight, real bias, real gate, real *dgate)
{
	real slope;
#if GATE_OUT
	const real factor = gate_and_slope(gate, &slope);
	*dgate = dy * affine(xhat, weight, bias) * slope;
	return dy * factor;
#elif ACTIVATION && !HAS_GATE
	(void)ACTIVATE_AND_SLOPE(affine(xhat, weight, bias), &slope);
	return dy * slope;
#else
	return dy;
#endif
}

/* dgate of a gate that multiplied x; *dx, of the norm's input, becomes that of x. */
DEVICE real gate_gradient(real *dx, real x, real gate)
{
	real slope, s = gate_and_slope(gate, &slope), du = *dx;
	*dx = du * s;
	return du * x * slope;
}

/* The numbers of a strip of the gate that was fetched. */
DEVICE void widen_gate(quad fetched, real *gate)
{
	widen_strip(strip_of_quad(fetched), GATE_ELEMENT, gate);
}
