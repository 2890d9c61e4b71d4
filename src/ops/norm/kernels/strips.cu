/* What the norm kernels share, third part: operands in a dtype of their own. A strip is the PER_QUAD neighbours that a
 * quad of the row has, 8 to 32 bytes of memory. The dtype is always a constant. Placed between shift.cu and sums.cu.
 * SPDX-License-Identifier: MIT */

enum { MOST_STRIP_WORDS = PER_QUAD * sizeof(real) / 4 };
struct strip {
	u32 w[MOST_STRIP_WORDS];
};

/* A strip of at most 16 bytes in the place of a quad. */
DEVICE quad quad_of_strip(struct strip s)
{
	quad v;
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = s.w[i];
	return v;
}

DEVICE struct strip strip_of_quad(quad v)
{
	struct strip s;
	UNROLL
	for (int i = 0; i < 4; i++)
		s.w[i] = v.w[i];
	return s;
}

#define BYTES_OF(dtype) ((dtype) == DTYPE_F64 ? 8 : (dtype) == DTYPE_F32 ? 4 : 2)
#define STRIP_WORDS(dtype) (PER_QUAD * BYTES_OF(dtype) / 4)

DEVICE void widen_strip(struct strip s, int dtype, real *x)
{
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
#if ELEMENT == DTYPE_F64
		x[e] = f64_of_bits(s.w[2 * e], s.w[2 * e + 1]);
#else
		u32 half = s.w[e / 2] >> 16 * (e % 2) & 0xffff;
		x[e] = dtype == DTYPE_F32    ? f32_of_bits(s.w[e])
		       : dtype == DTYPE_BF16 ? f32_of_bits(half << 16)
					     : f32_of_f16(half);
#endif
	}
}

/* With one rounding. */
DEVICE struct strip narrow_strip(const real *x, int dtype)
{
	struct strip s;
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
#if ELEMENT == DTYPE_F64
		s.w[2 * e] = low_bits_of_f64(x[e]);
		s.w[2 * e + 1] = high_bits_of_f64(x[e]);
#else
		if (dtype == DTYPE_F32)
			s.w[e] = bits_of_f32(x[e]);
		else if (e % 2 == 0)
			s.w[e / 2] = dtype == DTYPE_BF16 ? pack_bf16(x[e], x[(e + 1) % PER_QUAD]) : pack_f16(x[e], x[(e + 1) % PER_QUAD]);
#endif
	}
	return s;
}

/* A number as a dtype keeps it. */
DEVICE real rounded(real x, int dtype)
{
#if ELEMENT == DTYPE_F64
	return x;
#else
	return dtype == DTYPE_F32    ? x
	       : dtype == DTYPE_BF16 ? f32_of_bits((pack_bf16(x, 0) & 0xffff) << 16)
				     : f32_of_f16(pack_f16(x, 0) & 0xffff);
#endif
}

#define IS_WHOLE_STRIP(c) (ACCESS == ACCESS_QUADS && (TAIL_ELEMENTS == 0 || (c) + PER_QUAD <= COLS))

/* From column c of a row; zeros past its end. */
DEVICE struct strip load_strip_as(const u8 *row, int c, int dtype)
{
	struct strip s;
	const u8 *from = row + c * BYTES_OF(dtype);
	if (dtype == ELEMENT)
		return strip_of_quad(load_strip(row, c));
	if (IS_WHOLE_STRIP(c) && STRIP_WORDS(dtype) == 2) {
		u64 v = load_once_8(from);
		s.w[0] = (u32)v;
		s.w[1] = (u32)(v >> 32);
		return s;
	}
	UNROLL
	for (int i = 0; i < STRIP_WORDS(dtype); i += 4) {
		quad q = IS_WHOLE_STRIP(c) ? load_once(from + 4 * i) : no_quad();
		UNROLL
		for (int k = 0; k < 4 && i + k < STRIP_WORDS(dtype); k++)
			s.w[i + k] = q.w[k];
	}
	if (IS_WHOLE_STRIP(c))
		return s;
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		u64 bits = c + e < COLS ? load_bits(from + e * BYTES_OF(dtype), BYTES_OF(dtype)) : 0;
		s.w[e * BYTES_OF(dtype) / 4] |= (u32)(BYTES_OF(dtype) == 2 ? bits << 16 * (e % 2) : bits);
		if (BYTES_OF(dtype) == 8)
			s.w[2 * e + 1] = (u32)(bits >> 32);
	}
	return s;
}

DEVICE void store_strip_as(u8 *row, struct strip s, int c, int dtype)
{
	u8 *to = row + c * BYTES_OF(dtype);
	if (dtype == ELEMENT) {
		store_strip(row, quad_of_strip(s), c);
		return;
	}
	if (IS_WHOLE_STRIP(c) && STRIP_WORDS(dtype) == 2) {
		store_once_8(to, (u64)s.w[1] << 32 | s.w[0]);
		return;
	}
	UNROLL
	for (int i = 0; i < STRIP_WORDS(dtype) && IS_WHOLE_STRIP(c); i += 4) {
		quad q;
		UNROLL
		for (int k = 0; k < 4; k++)
			q.w[k] = s.w[(i + k) % MOST_STRIP_WORDS];
		store_once(to + 4 * i, q);
	}
	if (IS_WHOLE_STRIP(c))
		return;
	UNROLL
	for (int e = 0; e < PER_QUAD; e++) {
		u64 bits = BYTES_OF(dtype) == 8   ? (u64)s.w[(2 * e + 1) % MOST_STRIP_WORDS] << 32 | s.w[(2 * e) % MOST_STRIP_WORDS]
			   : BYTES_OF(dtype) == 4 ? s.w[e]
						  : s.w[e / 2] >> 16 * (e % 2) & 0xffff;
		if (c + e < COLS)
			store_bits(to + e * BYTES_OF(dtype), BYTES_OF(dtype), bits);
	}
}

/* A strip of the norm's input as the threads of forward.cu hold it: in binary32 where x_bias was added or a gate multiplied it, so that it does not
 * round. */
#if KIND == KIND_FORWARD && (HAS_X_BIAS || GATE_IN) && !HAS_RESIDUAL && ELEMENT != DTYPE_F64
#define HELD_ELEMENT DTYPE_F32
#else
#define HELD_ELEMENT ELEMENT
#endif
#if HELD_ELEMENT == ELEMENT
typedef quad held;
#define widen_held(v, x) widen(v, x)
#define hold(x) narrow(x)
#else
typedef struct strip held;
#define widen_held(v, x) widen_strip(v, HELD_ELEMENT, x)
#define hold(x) narrow_strip(x, HELD_ELEMENT)
#endif

DEVICE held held_zeros(void)
{
	real zeros[PER_QUAD];
	UNROLL
	for (int e = 0; e < PER_QUAD; e++)
		zeros[e] = 0;
	return hold(zeros);
}

/* Starts the fetch of one strip of a row, from column c, into the place of a quad; zeros past its end. */
DEVICE void fetch_strip(u8 *to, const u8 *row, int c, int dtype)
{
#if ACCESS == ACCESS_QUADS
	const int bytes = BYTES_OF(dtype), strip = PER_QUAD * bytes, left = (COLS - c) * bytes;
	if (TAIL_ELEMENTS != 0 && left < strip)
		strip == 16 ? fetch_some(to, row + c * bytes, left) : fetch_some_8(to, row + c * bytes, left);
	else if (strip == 16)
		fetch(to, row + c * bytes);
	else
		fetch_8(to, row + c * bytes);
#else
	*(quad *)to = quad_of_strip(load_strip_as(row, c, dtype));
#endif
}
