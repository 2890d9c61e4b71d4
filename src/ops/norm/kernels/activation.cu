/* What the norm kernels share, fourth part: the activation of a norm's result (rule 11), over src/math. ACTIVATION is its
 * number, 0 for none. Placed behind sums.cu. SPDX-License-Identifier: MIT */

#if ACTIVATION == ACTIVATION_SIGMOID
#define ACTIVATE M(sigmoid)
#define ACTIVATE_AND_SLOPE M(sigmoid_and_slope)
#elif ACTIVATION == ACTIVATION_SILU
#define ACTIVATE M(silu)
#define ACTIVATE_AND_SLOPE M(silu_and_slope)
#elif ACTIVATION == ACTIVATION_GELU
#define ACTIVATE M(gelu)
#define ACTIVATE_AND_SLOPE M(gelu_and_slope)
#elif ACTIVATION == ACTIVATION_GELU_TANH
#define ACTIVATE M(gelu_tanh)
#define ACTIVATE_AND_SLOPE M(gelu_tanh_and_slope)
#endif

/* y from the affine result; with several roundings that rounds to y first. */
DEVICE real activated(real t)
{
#if ACTIVATION
	return ACTIVATE(ROUND_EACH ? rounded(t, Y_ELEMENT) : t);
#else
	return t;
#endif
}

/* The gradient of the affine result, from that of y: backward computes xhat and what follows from it again. */
DEVICE real activated_gradient(real dy, real xhat, real weight, real bias)
{
#if ACTIVATION
	real slope;
	(void)ACTIVATE_AND_SLOPE(affine(xhat, weight, bias), &slope);
	return dy * slope;
#else
	return dy;
#endif
}
