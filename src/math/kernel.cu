/* The words of math.inc.h for CUDA kernels, as far as words.cu lacks them. A recipe has the texts words.cu, constants.h,
 * this one and math.inc.h, and defines MATH_F64, 0 or 1; the kernel then calls M(gelu)(t) and the like.
 * SPDX-License-Identifier: MIT */
#define MATH DEVICE
#if MATH_F64
#define REAL f64
#define M(word) word##_f64
typedef double num_f64;

DEVICE double at_least_f64(double a, double c)
{
	return a < c ? c : a;
}

DEVICE double at_most_f64(double a, double c)
{
	return a > c ? c : a;
}

DEVICE double power_f64(double m)
{
	return f64_of_bits(0, low_bits_of_f64(m) << 20);
}
#else
#define REAL f32
#define M(word) word##_f32
typedef float num_f32;

DEVICE float power_f32(float m)
{
	return f32_of_bits(bits_of_f32(m) << 23);
}
#endif
#define splat_f32(c) (c)
#define splat_f64(c) (c)

DEVICE M(num) M(if_less)(M(num) a, M(num) b, M(num) x, M(num) y)
{
	return a < b ? x : y;
}
