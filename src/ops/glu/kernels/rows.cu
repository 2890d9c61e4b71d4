/* Gated activations element by element: forward, and backward without column sums. Follows elements.cu. A thread takes UNITS units, a
 * block apart; units are counted through all rows, so that every width fills the blocks. All loads of a thread go out before the
 * first result is computed. SPDX-License-Identifier: MIT */

enum {
	FORWARD = KIND == KIND_GLU_FORWARD,
	UNITS = ACCESS == ACCESS_QUADS ? (FORWARD && GATE_EACH + HAS_VALUE < 3 ? 2 : 1) : 4
};

/* Where a unit is. */
struct place {
	i64 row, col;
	int count; /* of its columns; 0: there is no such unit */
};

DEVICE struct place place_of(const struct glu_arguments *a, u32 unit, u32 all)
{
	struct place p;
	const u32 row = (u32)((u64)unit * a->magic >> a->shift);
	p.row = row;
	p.col = (i64)(unit - row * a->units) * UNIT;
	p.count = unit >= all ? 0 : a->cols - p.col < UNIT ? (int)(a->cols - p.col) : UNIT;
	return p;
}

KERNEL(KERNEL_NAME, GLU_THREADS, 1, glu_arguments)
{
	const u32 rows = a.rows < a.launch_rows ? (u32)a.rows : a.launch_rows, all = rows * a.units;
	const u32 first = (u32)block_index() * (GLU_THREADS * UNITS) + thread_index();
	struct place at[UNITS];
	struct piece gate[UNITS], value[UNITS], dy[UNITS];

	wait_for_kernels_before();
	let_next_kernel_start();
	UNROLL
	for (int k = 0; k < UNITS; k++) {
		at[k] = place_of(&a, first + k * GLU_THREADS, all);
		const i64 bytes = at[k].col * ELEMENT_BYTES;
		if (at[k].count == 0)
			continue;
		gate[k] = load_piece(a.gate + at[k].row * a.gate_stride + GATE_EACH * bytes, GATE_EACH, at[k].count);
		if (HAS_VALUE)
			value[k] = load_piece(a.value + at[k].row * a.value_stride + bytes, 1, at[k].count);
		if (!FORWARD)
			dy[k] = load_piece(a.dy + at[k].row * a.dy_stride + bytes, 1, at[k].count);
	}
	UNROLL
	for (int k = 0; k < UNITS; k++) {
		if (at[k].count == 0)
			continue;
		const struct point p = point_of(&a, gate[k], value[k], at[k].col, at[k].count);
		if (FORWARD) {
			real y[UNIT];
			UNROLL
			for (int e = 0; e < UNIT; e++)
				y[e] = y_of(&a, p.t[e], p.v[e]);
			store_piece(a.y + at[k].row * a.y_stride + at[k].col * ELEMENT_BYTES, 1, y, at[k].count);
		} else {
			real of_y[UNIT], dgate[UNIT], dvalue[UNIT];
			widen_piece(dy[k], 1, of_y);
			UNROLL
			for (int e = 0; e < UNIT; e++)
				gradients_of(&a, p.t[e], p.v[e], of_y[e], &dgate[e], &dvalue[e]);
			store_gradients(&a, at[k].row, at[k].col, at[k].count, dgate, dvalue);
		}
	}
}
