/* The activations of the ops by number (ek_activation) and by their names in math.inc.h.
 * SPDX-License-Identifier: MIT */
#ifndef EK_MATH_ACTIVATIONS_H
#define EK_MATH_ACTIVATIONS_H

/* X(number, name) */
#define EK_ACTIVATIONS(X)      \
	X(EK_SIGMOID, sigmoid) \
	X(EK_SILU, silu)       \
	X(EK_GELU, gelu)       \
	X(EK_GELU_TANH, gelu_tanh)

/* Those of a gated feed-forward; the norms have the first ones alone. */
#define EK_GLU_ACTIVATIONS(X)            \
	EK_ACTIVATIONS(X)                \
	X(EK_RELU, relu)                 \
	X(EK_RELU_SQUARED, relu_squared) \
	X(EK_IDENTITY, identity)

#endif
