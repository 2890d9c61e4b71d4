/* Division by a whole number that the compiler knows: the number of columns. The GPU has no instruction for it, and what
 * the compiler makes of `/` is a call, which costs a kernel its registers. Placed after words.cu.
 * SPDX-License-Identifier: MIT */

/* a / n as binary32, n from 1 to 2^24, rounded once as IEEE 754 has it. 1 / n is rounded once, and a quotient that errs by
 * less than a unit in the last place, mended by its rest, is then the nearest (Markstein); the first one may err by two, so it is mended
 * twice. That holds where the quotient is a normal number, as it is for a from 2^-100 on. */
DEVICE float divide_large(float a, int n)
{
	const float by = (float)n, inverse = (float)(1.0 / n);
	float quotient = a * inverse;
	quotient = fma_f32(fma_f32(-quotient, by, a), inverse, quotient);
	return fma_f32(fma_f32(-quotient, by, a), inverse, quotient);
}

/* Of smaller ones in binary64, mended once: it errs by less than 2^-52 of itself, and not at all where it has 53 bits or less;
 * and a quotient that is not halfway between two numbers of binary32 is at least 2^-49 of itself away from halfway. Where the
 * rest is 0, or no number as that of infinity, the first quotient is right, with its sign. */
DEVICE float divide_small(float a, int n)
{
	const double by = n, inverse = 1.0 / n;
	double quotient = (double)a * inverse, rest = fma_f64(-quotient, by, (double)a);
	return (float)(rest > 0 || rest < 0 ? fma_f64(rest, inverse, quotient) : quotient);
}

/* Both are computed: a branch would cost registers, too. */
DEVICE float divide_f32(float a, int n)
{
	const u32 size = bits_of_f32(a) & 0x7fffffff, least = 27u << 23, infinite = 255u << 23;
	if ((n & (n - 1)) == 0)
		return a * (float)(1.0 / n);
	float large = divide_large(a, n), small = divide_small(a, n);
	return size - least < infinite - least ? large : small;
}
