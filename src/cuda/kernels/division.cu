/* Division by a whole number that the compiler knows: the number of columns. The GPU has no instruction for it, and what
 * the compiler makes of `/` is a call, which costs a kernel its registers. Placed after words.cu.
 * SPDX-License-Identifier: MIT */

/* a / n as binary32, n from 1 to 2^24, rounded once as IEEE 754 has it. In binary64 the quotient, mended once by its rest,
 * errs by less than 2^-52 of itself, and not at all where it has 53 bits or less. Rounding that to binary32 is rounding a / n,
 * because a quotient that is not halfway between two numbers of binary32 is at least 2^-49 of itself away from halfway.
 * Where the rest is 0, or no number as that of infinity, the first quotient is right, with its sign. */
DEVICE float divide_f32(float a, int n)
{
	const double by = n, inverse = 1.0 / n;
	if ((n & (n - 1)) == 0)
		return a * (float)inverse;
	double quotient = (double)a * inverse;
	double rest = fma_f64(-quotient, by, (double)a);
	return (float)(rest > 0 || rest < 0 ? fma_f64(rest, inverse, quotient) : quotient);
}
