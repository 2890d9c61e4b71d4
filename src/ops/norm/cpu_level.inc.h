/* What the norm kernels of one level share: included by cpu_level_DTYPE.c, which are compiled once per level, and which include
 * cpu_kernels.inc.h once per pair of dtypes. SPDX-License-Identifier: MIT */
#include "cpu/level.inc.h"
#include "cpu_kernels.h"
#include "math/activations.h"
#include "math/simd.h"

/* What a sweep over a row sums: x; d = x - m0 and its square; the square of x. */
enum sweep { SWEEP_SUM, SWEEP_MOMENTS, SWEEP_SQUARES };

/* What a write of y has beside the norm: nothing; a residual after; an x_bias, and a residual after or -0; an activation; a
 * gate and its activation. The last two are written apart from sums, a row at a time. */
enum beside { BESIDE_NONE, BESIDE_AFTER, BESIDE_X_BIAS, BESIDE_ACTIVATION, BESIDE_GATE };

/* Rule 11, of two registers: one activation a call, so the branch costs nothing. */
#define ACTIVATE_TWO(v, number, name)    \
	case number:                     \
		t[0] = v##_##name(t[0]); \
		t[1] = v##_##name(t[1]); \
		break;
#define ACTIVATE_VF(number, name) ACTIVATE_TWO(vf, number, name)
#define ACTIVATE_VD(number, name) ACTIVATE_TWO(vd, number, name)
INLINE void vf_activate(ek_activation activation, vf t[2])
{
	switch (activation) {
		EK_ACTIVATIONS(ACTIVATE_VF)
	default:
		break;
	}
}
INLINE void vd_activate(ek_activation activation, vd t[2])
{
	switch (activation) {
		EK_ACTIVATIONS(ACTIVATE_VD)
	default:
		break;
	}
}

/* The same at the end of a row, where a call costs little and code saved is saved often. */
OUTLINE void vf_activate_tail(ek_activation activation, vf t[2])
{
	vf_activate(activation, t);
}
OUTLINE void vd_activate_tail(ek_activation activation, vd t[2])
{
	vd_activate(activation, t);
}

/* Of two registers the activation, in place, and its derivative. */
#define BOTH_OF_TWO(v, number, name)                            \
	case number:                                            \
		t[0] = v##_##name##_and_slope(t[0], &slope[0]); \
		t[1] = v##_##name##_and_slope(t[1], &slope[1]); \
		break;
#define BOTH_VF(number, name) BOTH_OF_TWO(vf, number, name)
#define BOTH_VD(number, name) BOTH_OF_TWO(vd, number, name)
INLINE void vf_activate_and_slope(ek_activation activation, vf t[2], vf slope[2])
{
	switch (activation) {
		EK_ACTIVATIONS(BOTH_VF)
	default:
		slope[0] = slope[1] = vf_splat(0);
		break;
	}
}
INLINE void vd_activate_and_slope(ek_activation activation, vd t[2], vd slope[2])
{
	switch (activation) {
		EK_ACTIVATIONS(BOTH_VD)
	default:
		slope[0] = slope[1] = vd_splat(0);
		break;
	}
}

OUTLINE void vf_activate_and_slope_tail(ek_activation activation, vf t[2], vf slope[2])
{
	vf_activate_and_slope(activation, t, slope);
}
OUTLINE void vd_activate_and_slope_tail(ek_activation activation, vd t[2], vd slope[2])
{
	vd_activate_and_slope(activation, t, slope);
}

/* What backward has beside the norm, where dt is made ahead of the sums: an activation of the affine result; a gate that
 * multiplies it; a gate that multiplies x. */
enum dt_form { DT_OF_ACTIVATION, DT_OF_GATE, DT_OF_GATE_FIRST };

/* Rows that go through a kernel together: four narrow ones, so that the latency of one row's sums hides behind the
 * others'; two beyond pair_bytes (0: beyond the narrow ones), which share what weights cost; between them one. With the
 * row before and the weights one row of up to 4 KB fits the L1 and two do not (16384x768 f32 backward .80 of a copy, in
 * pairs .74); in forward one row at a time is as good up to 16 KB and better read in order. */
enum {
	MAX_TOGETHER = 4,
	NARROW_BYTES = 1 << 10,
	PAIR_FORWARD_BYTES = 16 << 10,
	PAIR_BACKWARD_BYTES = 4 << 10
};
INLINE int64_t rows_together(int64_t row_bytes, int64_t pair_bytes)
{
	if (row_bytes <= NARROW_BYTES)
		return MAX_TOGETHER;
	return row_bytes <= pair_bytes ? 1 : 2;
}

/* Bytes as they are. */
OUTLINE void copy_out(const void *from, int64_t bytes, void *to, bool nontemporal)
{
	const int64_t step = 2 * vf_WIDTH * (int64_t)sizeof(float);
	const char *p = from;
	char *q = to;
	int64_t i = head_of(to, 1, bytes, nontemporal);
	memcpy(q, p, (size_t)i);
	for (; nontemporal && i + step <= bytes; i += step) {
		vf v[2] = {vf_load((const void *)(p + i)), vf_load((const void *)(p + i + step / 2))};
		f32_store2_nontemporal((void *)(q + i), v);
	}
	memcpy(q + i, p + i, (size_t)(bytes - i));
}

#define LEVEL PASTE(ek_norm, ISA)
