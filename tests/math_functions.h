/* The functions of src/math: one list for C and, as a text, for CUDA. X(name, statement): the statement sets v from t; M makes
 * the names of functions, as in src/math/math.inc.h. SPDX-License-Identifier: MIT */
#define MATH_FUNCTIONS(X)                                                     \
	X(exp, v = M(exp)(t))                                                 \
	X(normal_density, v = M(normal_density)(t))                           \
	X(normal_cdf, v = M(normal_cdf)(t))                                   \
	X(sigmoid, v = M(sigmoid)(t))                                         \
	X(silu, v = M(silu)(t))                                               \
	X(gelu, v = M(gelu)(t))                                               \
	X(gelu_tanh, v = M(gelu_tanh)(t))                                     \
	X(sigmoid_slope, (void)M(sigmoid_and_slope)(t, &v))                   \
	X(silu_slope, (void)M(silu_and_slope)(t, &v))                         \
	X(gelu_slope, (void)M(gelu_and_slope)(t, &v))                         \
	X(gelu_tanh_slope, (void)M(gelu_tanh_and_slope)(t, &v))               \
	X(relu, v = M(relu)(t))                                               \
	X(relu_slope, (void)M(relu_and_slope)(t, &v))                         \
	X(relu_squared, v = M(relu_squared)(t))                               \
	X(relu_squared_slope, (void)M(relu_squared_and_slope)(t, &v))         \
	X(reciprocal, v = M(at_least)(M(magnitude)(t), M(splat)(MATH_LEAST)); \
	  v = M(reciprocal)(M(at_most)(v, M(splat)(MATH_MOST))))              \
	X(identity, v = M(identity)(t))                                       \
	X(identity_slope, (void)M(identity_and_slope)(t, &v))
/* Normal numbers, with reciprocals that are subnormal in binary32. */
#define MATH_LEAST 0x1p-126f
#define MATH_MOST 0x1.fp127f
