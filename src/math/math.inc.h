/* exp, the normal distribution and the activations over them: rules 7 and 11 of docs/numerics.md, written once for the
 * reference, every CPU level and the CUDA kernels. Results are the same bits everywhere, because every step below is an
 * operation of IEEE 754 or a shift of bits. Operators stand for one rounded operation each.
 *
 * Parameters:
 *   MATH      what functions are declared as
 *   REAL      f32 or f64; MATH_F64: whether it is f64, 0 or 1
 *   M(word)   makes names unique, and has the words that the text is written in:
 *     num                    one number, or a register of numbers; splat(c) makes one of a constant
 *     fma(a, b, c)           a b + c, rounded once
 *     magnitude(a)           a with the sign bit cleared
 *     at_least(a, c)         a < c ? c : a        NaN stays
 *     at_most(a, c)          a > c ? c : a
 *     if_less(a, b, x, y)    a < b ? x : y
 *     reciprocal(a)          1 / a of a normal number above 0, correctly rounded; +0 where that is subnormal
 *     power(m)               2^k, where m = ROUND + k: the bits of m shifted left by those of the significand; k from -127
 *                            (-1023), which gives +0, to 127 (1023)
 * Makes: M(exp), M(normal_density), M(normal_cdf) and, each with its derivative, M(NAME) and M(NAME_and_slope) for sigmoid,
 * silu, gelu, gelu_tanh, relu, relu_squared and identity. SPDX-License-Identifier: MIT */

#define MATH_JOIN(a, b) a##_##b
#define MATH_NAME(a, b) MATH_JOIN(a, b)
#define K(name) M(splat)(MATH_NAME(REAL, name)) /* a constant of constants.h */
#define HORNER_FIRST(c) M(num) h = M(splat)(c);
#define HORNER_NEXT(c) h = M(fma)(h, x, M(splat)(c));
#define SERIES(name, list)                                           \
	MATH M(num) M(name)(M(num) x)                                \
	{                                                            \
		MATH_NAME(REAL, list)(HORNER_FIRST, HORNER_NEXT)     \
		return h;                                            \
	}

SERIES(exp_series, EXP_SERIES)
SERIES(exp2_series, EXP2_SERIES)
SERIES(tanh_series, TANH_SERIES)

/* exp(x) = 2^n (1 + p), p = exp(r) - 1, r = x - n ln(2) = high + low. 2^n is a product of two powers, so that results may be
 * subnormal. */
MATH M(num) M(exp)(M(num) x)
{
	const M(num) bounded = M(at_most)(M(at_least)(x, K(EXP_LEAST)), K(EXP_MOST));
	const M(num) n = M(fma)(bounded, K(LOG2E), K(ROUND)) - K(ROUND);
	const M(num) high = M(fma)(-n, K(LN2_HIGH), bounded), low = -n * K(LN2_LOW), r = high + low;
	const M(num) p = high + M(fma)(r * r, M(exp_series)(r), low);
	const M(num) half = M(fma)(n, K(HALF), K(ROUND)), rest = n - (half - K(ROUND)) + K(ROUND);
	const M(num) first = M(power)(half);
	return M(fma)(p, first, first) * M(power)(rest);
}

/* sigmoid(x) and, without cancellation, 1 - sigmoid(x), from exp(-x) = p power. */
MATH M(num) M(sigmoid_of)(M(num) p, M(num) power, M(num) *rest)
{
	const M(num) s = M(reciprocal)(M(fma)(p, power, K(ONE)));
	*rest = p * power * s;
	return s;
}

/* The same of x in SIGMOID_LEAST … SIGMOID_MOST: exp(-x) = exp(r) 2^n. */
MATH M(num) M(sigmoid_parts)(M(num) x, M(num) *rest)
{
	const M(num) m = M(fma)(-x, K(LOG2E), K(ROUND)), n = m - K(ROUND);
	const M(num) r = M(fma)(-n, K(LN2_LOW), M(fma)(-n, K(LN2_HIGH), -x));
	const M(num) p = M(fma)(M(fma)(M(exp_series)(r), r, K(ONE)), r, K(ONE));
	return M(sigmoid_of)(p, M(power)(m), rest);
}

MATH M(num) M(sigmoid_and_slope)(M(num) t, M(num) *slope)
{
	M(num) rest;
	const M(num) s = M(sigmoid_parts)(M(at_most)(M(at_least)(t, K(SIGMOID_LEAST)), K(SIGMOID_MOST)), &rest);
	*slope = s * rest;
	return s;
}

MATH M(num) M(silu_and_slope)(M(num) t, M(num) *slope)
{
	const M(num) above = M(at_least)(t, K(SIGMOID_LEAST)), x = M(at_most)(above, K(SIGMOID_MOST));
	M(num) rest;
	const M(num) s = M(sigmoid_parts)(x, &rest);
	*slope = s * M(fma)(x, rest, K(ONE));
	return above * s;
}

/* t sigmoid(2 u), u = sqrt(2/pi) (t + 0.044715 t^3): what 0.5 t (1 + tanh(u)) is, without cancellation. */
MATH M(num) M(gelu_tanh_and_slope)(M(num) t, M(num) *slope)
{
	const M(num) above = M(at_least)(t, K(TANH_LEAST)), x = M(at_most)(above, K(TANH_MOST));
	const M(num) square = x * x, w = M(fma)(square, K(TANH_B), K(TANH_A));
	const M(num) m = M(fma)(-x, w, K(ROUND)), n = m - K(ROUND), f = M(fma)(-x, w, -n);
	const M(num) p = M(fma)(M(tanh_series)(f), f, K(ONE));
	M(num) rest;
	const M(num) s = M(sigmoid_of)(p, M(power)(m), &rest);
	*slope = s * M(fma)(x * rest, M(fma)(square, K(TANH_SLOPE_B), K(TANH_SLOPE_A)), K(ONE));
	return above * s;
}

/* (1 - Phi(a)) exp(a^2 / 2), Mills's ratio; square is a a. */
#if MATH_F64
SERIES(mills_series, MILLS_SERIES)

MATH M(num) M(mills)(M(num) a, M(num) square)
{
	const M(num) under = a + K(MILLS_POLE), low = a - (under - K(MILLS_POLE)), r = M(reciprocal)(under);
	const M(num) correction = M(fma)(-low, r, M(fma)(-under, r, K(ONE))); /* of r, relative */
	const M(num) x = (a - K(MILLS_ZERO)) * r;
	const M(num) mills = M(mills_series)(M(fma)(x, correction, x)) * r;
	(void)square;
	return M(fma)(mills, correction, mills);
}
#else
SERIES(over_even, MILLS_OVER_EVEN)
SERIES(over_odd, MILLS_OVER_ODD)
SERIES(under_even, MILLS_UNDER_EVEN)
SERIES(under_odd, MILLS_UNDER_ODD)

/* Polynomials in a; terms of even and of odd powers apart, which rounds less often in a row than Horner's rule. */
MATH M(num) M(mills)(M(num) a, M(num) square)
{
	const M(num) over = M(fma)(M(fma)(M(over_even)(square), a, M(over_odd)(square)), a, K(HALF));
	const M(num) under = M(fma)(M(fma)(M(under_even)(square), a, M(under_odd)(square)), a, K(ONE));
	return over * M(reciprocal)(under);
}
#endif

/* exp(-a^2 / 2) = power (1 + p), a in 0 … NORMAL_MOST; a^2 is a sum of two numbers, square and low. */
MATH M(num) M(bell)(M(num) a, M(num) square, M(num) *power)
{
	const M(num) low = M(fma)(a, a, -square), c = K(MINUS_HALF_LOG2E);
	const M(num) m = M(fma)(square, c, K(ROUND)), n = m - K(ROUND);
	const M(num) f = M(fma)(low, c, M(fma)(square, c, -n));
	*power = M(power)(m);
	return M(exp2_series)(f) * f;
}

/* exp(-t^2 / 2) / sqrt(2 pi) */
MATH M(num) M(normal_density)(M(num) t)
{
	M(num) power;
	const M(num) a = M(at_most)(M(magnitude)(t), K(NORMAL_MOST)), square = a * a;
	const M(num) p = M(bell)(a, square, &power);
	const M(num) mended = M(fma)(square * K(HALF_LOG2E_ERROR), K(ONE) + p, p); /* mills() allows for the error */
	return M(fma)(mended, K(DENSITY), K(DENSITY)) * power;
}

/* Phi(t): the tail is 1 - Phi(|t|) = Phi(-|t|). */
MATH M(num) M(normal_cdf)(M(num) t)
{
	const M(num) a = M(at_most)(M(magnitude)(t), K(NORMAL_MOST)), square = a * a;
	const M(num) mills = M(mills)(a, square);
	M(num) power;
	const M(num) p = M(bell)(a, square, &power), tail = M(fma)(p, mills, mills) * power;
	return M(if_less)(t, K(ZERO), tail, K(ONE) - tail);
}

/* t Phi(t) = max(t, 0) - |t| tail. Its derivative is Phi(t) + t phi(t): for t < 0 it is tail - |t| phi(t), for others 1 less
 * that. */
MATH M(num) M(gelu_and_slope)(M(num) t, M(num) *slope)
{
	const M(num) a = M(at_most)(M(magnitude)(t), K(NORMAL_MOST)), square = a * a;
	const M(num) mills = M(mills)(a, square);
	M(num) power;
	const M(num) p = M(bell)(a, square, &power), tail = M(fma)(p, mills, mills) * power;
	const M(num) w = M(fma)(a, K(MINUS_DENSITY), mills), below = M(fma)(p, w, w) * power;
	*slope = M(if_less)(t, K(ZERO), below, K(ONE) - below);
	return M(fma)(-a, tail, M(at_least)(t, K(MINUS_ZERO)));
}

/* max(t, 0); the derivative at 0 is 0. */
MATH M(num) M(relu_and_slope)(M(num) t, M(num) *slope)
{
	*slope = M(if_less)(t, K(LEAST), K(ZERO), K(ONE));
	return M(at_least)(t, K(MINUS_ZERO)) + K(ZERO);
}

MATH M(num) M(relu_squared_and_slope)(M(num) t, M(num) *slope)
{
	const M(num) r = M(at_least)(t, K(MINUS_ZERO)) + K(ZERO);
	*slope = r + r;
	return r * r;
}

MATH M(num) M(identity_and_slope)(M(num) t, M(num) *slope)
{
	*slope = K(ONE);
	return t;
}

#define ACTIVATION_ALONE(name)                           \
	MATH M(num) M(name)(M(num) t)                    \
	{                                                \
		M(num) slope;                            \
		return M(name##_and_slope)(t, &slope);   \
	}
ACTIVATION_ALONE(sigmoid)
ACTIVATION_ALONE(silu)
ACTIVATION_ALONE(gelu)
ACTIVATION_ALONE(gelu_tanh)
ACTIVATION_ALONE(relu)
ACTIVATION_ALONE(relu_squared)
ACTIVATION_ALONE(identity)

#undef ACTIVATION_ALONE
#undef SERIES
#undef HORNER_FIRST
#undef HORNER_NEXT
#undef K
#undef MATH_NAME
#undef MATH_JOIN
