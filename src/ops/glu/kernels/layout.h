/* What the host and the kernels of gated activations share, in one text that both compile. The host includes it in C11; recipes put
 * it in front of the kernels. SPDX-License-Identifier: MIT */
#ifndef EK_GLU_LAYOUT_H
#define EK_GLU_LAYOUT_H

/* KIND of a kernel. */
#define KIND_GLU_FORWARD 1  /* rows.cu */
#define KIND_GLU_BACKWARD 2 /* rows.cu: no gradient of a bias is wanted */
#define KIND_GLU_SUMS 3     /* sums.cu: with partial column sums */

/* ACCESS: a thread's unit is PER_QUAD neighbours in quads at multiples of 16 bytes, or one element. */
#define ACCESS_QUADS 0 /* as of the norms, here and below */
#define ACCESS_ELEMENTS 2

/* sums.cu: the warps of a block, a slot of 32 units each, or a chunk of one. */
enum { SUM_WARPS = 8 };

/* Strides in bytes; pointers of absent operands NULL. */
struct glu_arguments {
	const unsigned char *gate, *value, *gate_bias, *value_bias, *dy;
	unsigned char *y, *dgate, *dvalue;
	void *partials; /* [block of slots][sum][PITCH] */
	long long gate_stride, value_stride, dy_stride, y_stride, dgate_stride, dvalue_stride;
	long long cols, rows;
	double limit, value_limit, alpha, inverse, value_offset;
	long long slot_rows, pitch; /* sums.cu; pitch: numbers of a sum of all columns */
	unsigned slot_parts;        /* sums.cu: warps that share a slot, a chunk each; a power of two */
	unsigned units;             /* of a row */
	unsigned magic, shift;      /* unit / units == unit * magic >> shift, for units below 2^31 */
	unsigned launch_rows;       /* rows.cu: rows of this launch and of each that follows it, at most */
};

#endif
