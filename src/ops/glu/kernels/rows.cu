/* Gated activations element by element: forward, and backward without column sums. Follows elements.cu. A thread takes UNITS units, a
 * block apart; units are counted through all rows, so that every width fills the blocks. All loads of a thread go out before the
 * first result is computed. Constants of its own: THREADS, UNITS, BLOCKS that shall fit a multiprocessor; ONE_ROW, 1: a launch has
 * one row. SPDX-License-Identifier: MIT */

enum { FORWARD = KIND == KIND_GLU_FORWARD };

/* Where a unit is. */
struct place {
	i64 row, col;
	int count; /* of its columns; 0: there is no such unit */
};

/* Past the last unit it is that one, which may be read. */
DEVICE struct place place_of(const struct glu_arguments *a, u32 unit, u32 all)
{
	struct place p;
	const u32 there = unit < all ? unit : all - 1;
	const u32 row = ONE_ROW ? 0 : (u32)((u64)there * a->magic >> a->shift);
	p.row = row;
	p.col = (i64)(there - row * a->units) * UNIT;
	p.count = unit >= all ? 0 : WHOLE || a->cols - p.col >= UNIT ? UNIT : (int)(a->cols - p.col);
	return p;
}

/* Where a tensor has the columns of a place, `each` elements for each. */
DEVICE i64 bytes_to(const struct place *p, i64 stride, const int each)
{
	return (ONE_ROW ? 0 : p->row * stride) + each * p->col * ELEMENT_BYTES;
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, glu_arguments)
{
	const u32 rows = a.rows < a.launch_rows ? (u32)a.rows : a.launch_rows, all = ONE_ROW ? a.units : rows * a.units;
	const u32 first = (u32)block_index() * (THREADS * UNITS) + thread_index();
	struct place at[UNITS];
	struct piece gate[UNITS], value[UNITS], dy[UNITS];

	wait_for_kernels_before();
	let_next_kernel_start();
	UNROLL
	for (int k = 0; k < UNITS; k++) {
		at[k] = place_of(&a, first + k * THREADS, all);
		gate[k] = load_gate(a.gate + bytes_to(&at[k], a.gate_stride, GATE_EACH), at[k].count);
		if (HAS_VALUE)
			value[k] = load_piece(a.value + bytes_to(&at[k], a.value_stride, 1), 1, at[k].count);
		if (!FORWARD)
			dy[k] = load_piece(a.dy + bytes_to(&at[k], a.dy_stride, 1), 1, at[k].count);
	}
	UNROLL
	for (int k = 0; k < UNITS; k++) {
		const struct point p = point_of(&a, gate[k], value[k], at[k].col, at[k].count);
		if (FORWARD) {
			real y[UNIT];
			UNROLL
			for (int e = 0; e < UNIT; e++)
				y[e] = y_of(&a, p.t[e], p.v[e]);
			store_piece(a.y + bytes_to(&at[k], a.y_stride, 1), 1, y, at[k].count);
		} else {
			real of_y[UNIT], dgate[UNIT], dvalue[UNIT];
			widen_piece(dy[k], 1, of_y);
			UNROLL
			for (int e = 0; e < UNIT; e++)
				gradients_of(&a, p.t[e], p.v[e], of_y[e], &dgate[e], &dvalue[e]);
			store_gradients(a.dgate + bytes_to(&at[k], a.dgate_stride, GATE_EACH),
					a.dvalue + bytes_to(&at[k], a.dvalue_stride, 1), at[k].count, dgate, dvalue);
		}
	}
}
