/* Elements of tensors, the arithmetic and the activation of a kernel, for the kernels of every op. Placed after words.cu, and the
 * texts of src/math where there is an activation.
 * Constants, given as -D:
 *   ELEMENT           of the matrices as the kernel holds them: DTYPE_…; it decides on the arithmetic, `real`
 *   WEIGHT_ELEMENT    of the vectors: weights, biases and their gradients
 *   BYTES             1: some pointer is no multiple of its element size, and elements are read byte by byte
 * SPDX-License-Identifier: MIT */

/* The values of ek_dtype. */
#define DTYPE_F32 1
#define DTYPE_F16 2
#define DTYPE_BF16 3
#define DTYPE_F64 4

/* Of ek_activation. */
#define ACTIVATION_SIGMOID 1
#define ACTIVATION_SILU 2
#define ACTIVATION_GELU 3
#define ACTIVATION_GELU_TANH 4
#define ACTIVATION_RELU 5
#define ACTIVATION_RELU_SQUARED 6
#define ACTIVATION_IDENTITY 7

#if ELEMENT == DTYPE_F64
typedef double real;
enum { ELEMENT_BYTES = 8 };
#define fma_real fma_f64
#define MEAN_OF(sum, n) ((sum) / (n))
#define sqrt_real sqrt_f64
#define shuffle_xor shuffle_xor_f64
#define send_real send_f64
#else
typedef float real;
enum { ELEMENT_BYTES = ELEMENT == DTYPE_F32 ? 4 : 2 };
#define fma_real fma_f32
#define MEAN_OF(sum, n) divide_f32(sum, n)
#define sqrt_real sqrt_f32
#define shuffle_xor shuffle_xor_f32
#define send_real send_f32
#endif

enum {
	WEIGHT_BYTES = WEIGHT_ELEMENT == DTYPE_F64 ? 8 : WEIGHT_ELEMENT == DTYPE_F32 ? 4 : 2,
	PER_QUAD = 16 / ELEMENT_BYTES,
	REALS = 16 / sizeof(real)
};

DEVICE quad no_quad(void)
{
	quad v;
	v.w[0] = v.w[1] = v.w[2] = v.w[3] = 0;
	return v;
}

/* ---- elements ---- */

/* The numbers of a quad, and back with one rounding. */
DEVICE void widen(quad v, real *x)
{
#if ELEMENT == DTYPE_F32
	UNROLL
	for (int i = 0; i < 4; i++)
		x[i] = f32_of_bits(v.w[i]);
#elif ELEMENT == DTYPE_F16
	UNROLL
	for (int i = 0; i < 4; i++) {
		x[2 * i] = f32_of_f16(v.w[i] & 0xffff);
		x[2 * i + 1] = f32_of_f16(v.w[i] >> 16);
	}
#elif ELEMENT == DTYPE_BF16
	UNROLL
	for (int i = 0; i < 4; i++) {
		x[2 * i] = f32_of_bits(v.w[i] << 16);
		x[2 * i + 1] = f32_of_bits(v.w[i] & 0xffff0000u);
	}
#else
	UNROLL
	for (int i = 0; i < 2; i++)
		x[i] = f64_of_bits(v.w[2 * i], v.w[2 * i + 1]);
#endif
}

DEVICE quad narrow(const real *x)
{
	quad v;
#if ELEMENT == DTYPE_F32
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = bits_of_f32(x[i]);
#elif ELEMENT == DTYPE_F16
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = pack_f16(x[2 * i], x[2 * i + 1]);
#elif ELEMENT == DTYPE_BF16
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
#else
	UNROLL
	for (int i = 0; i < 2; i++) {
		v.w[2 * i] = low_bits_of_f64(x[i]);
		v.w[2 * i + 1] = high_bits_of_f64(x[i]);
	}
#endif
	return v;
}

/* The bits of one element of `bytes` bytes in memory, at any address where BYTES says so. */
DEVICE u64 load_bits(const u8 *from, int bytes)
{
#if BYTES
	u64 bits = 0;
	UNROLL
	for (int i = 0; i < bytes; i++)
		bits |= (u64)load_one(u8, from + i) << 8 * i;
	return bits;
#else
	return bytes == 2 ? load_one(u16, from) : bytes == 4 ? load_one(u32, from) : load_one(u64, from);
#endif
}

DEVICE void store_bits(u8 *to, int bytes, u64 bits)
{
#if BYTES
	UNROLL
	for (int i = 0; i < bytes; i++)
		store_one(u8, to + i, (u8)(bits >> 8 * i));
#else
	if (bytes == 2)
		store_one(u16, to, (u16)bits);
	else if (bytes == 4)
		store_one(u32, to, (u32)bits);
	else
		store_one(u64, to, bits);
#endif
}

/* Element e of a quad, as bits. */
DEVICE u64 quad_bits(quad v, int e)
{
	if (ELEMENT_BYTES == 2)
		return v.w[e / 2] >> 16 * (e % 2) & 0xffff;
	if (ELEMENT_BYTES == 4)
		return v.w[e];
	return (u64)v.w[2 * (e & 1) + 1] << 32 | v.w[2 * (e & 1)];
}

DEVICE quad put_bits(quad v, int e, u64 bits)
{
	if (ELEMENT_BYTES == 2)
		v.w[e / 2] |= (u32)bits << 16 * (e % 2);
	else if (ELEMENT_BYTES == 4)
		v.w[e] = (u32)bits;
	else {
		v.w[2 * (e & 1)] = (u32)bits;
		v.w[2 * (e & 1) + 1] = (u32)(bits >> 32);
	}
	return v;
}

/* A statistic in memory. */
DEVICE real load_real(const void *from, i64 i)
{
	u64 bits = load_bits((const u8 *)from + i * sizeof(real), sizeof(real));
#if ELEMENT == DTYPE_F64
	return f64_of_bits((u32)bits, (u32)(bits >> 32));
#else
	return f32_of_bits((u32)bits);
#endif
}

DEVICE void store_real(void *to, i64 i, real value)
{
#if ELEMENT == DTYPE_F64
	u64 bits = (u64)high_bits_of_f64(value) << 32 | low_bits_of_f64(value);
#else
	u64 bits = bits_of_f32(value);
#endif
	store_bits((u8 *)to + i * sizeof(real), sizeof(real), bits);
}

/* One element of weight, bias or their gradients. */
DEVICE real load_weight(const u8 *from, i64 i)
{
	u64 bits = load_bits(from + i * WEIGHT_BYTES, WEIGHT_BYTES);
#if WEIGHT_ELEMENT == DTYPE_F64
	return f64_of_bits((u32)bits, (u32)(bits >> 32));
#elif WEIGHT_ELEMENT == DTYPE_F32
	return f32_of_bits((u32)bits);
#elif WEIGHT_ELEMENT == DTYPE_F16
	return f32_of_f16((u32)bits);
#else
	return f32_of_bits((u32)bits << 16);
#endif
}

DEVICE void store_weight(u8 *to, i64 i, real value)
{
#if WEIGHT_ELEMENT == DTYPE_F64
	u64 bits = (u64)high_bits_of_f64(value) << 32 | low_bits_of_f64(value);
#elif WEIGHT_ELEMENT == DTYPE_F32
	u64 bits = bits_of_f32(value);
#elif WEIGHT_ELEMENT == DTYPE_F16
	u64 bits = pack_f16(value, 0) & 0xffff;
#else
	u64 bits = pack_bf16(value, 0) & 0xffff;
#endif
	store_bits(to + i * WEIGHT_BYTES, WEIGHT_BYTES, bits);
}

/* ---- numbers of the arithmetic in quads ---- */

DEVICE quad quad_of_sums(const real *sums)
{
	quad v;
#if ELEMENT == DTYPE_F64
	v.w[0] = low_bits_of_f64(sums[0]);
	v.w[1] = high_bits_of_f64(sums[0]);
	v.w[2] = low_bits_of_f64(sums[1]);
	v.w[3] = high_bits_of_f64(sums[1]);
#else
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = bits_of_f32(sums[i]);
#endif
	return v;
}

DEVICE void sums_of_quad(quad v, real *sums)
{
#if ELEMENT == DTYPE_F64
	sums[0] = f64_of_bits(v.w[0], v.w[1]);
	sums[1] = f64_of_bits(v.w[2], v.w[3]);
#else
	UNROLL
	for (int i = 0; i < 4; i++)
		sums[i] = f32_of_bits(v.w[i]);
#endif
}

DEVICE void add_reals(real *to, const real *other)
{
	UNROLL
	for (int i = 0; i < REALS; i++)
		to[i] = to[i] + other[i];
}

/* The tree of rule 2 over n neighbours, n a constant. */
DEVICE real fold_array(real *a, int n)
{
	UNROLL
	for (int h = 1; h < n; h *= 2) {
		UNROLL
		for (int i = 0; i + h < n; i += 2 * h)
			a[i] = a[i] + a[i + h];
	}
	return a[0];
}

/* ---- activations, over src/math: ACTIVATION is an ek_activation, or 0 for none ---- */

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
#elif ACTIVATION == ACTIVATION_RELU
#define ACTIVATE M(relu)
#define ACTIVATE_AND_SLOPE M(relu_and_slope)
#elif ACTIVATION == ACTIVATION_RELU_SQUARED
#define ACTIVATE M(relu_squared)
#define ACTIVATE_AND_SLOPE M(relu_squared_and_slope)
#elif ACTIVATION == ACTIVATION_IDENTITY
#define ACTIVATE M(identity)
#define ACTIVATE_AND_SLOPE M(identity_and_slope)
#endif
