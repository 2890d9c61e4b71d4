/* Backward of gated activations with the gradients of biases: rule 6. Follows elements.cu. A warp walks the rows of a slot in a
 * strip of 32 units, a lane a unit. The SUM_WARPS warps of a block walk neighbouring slots; it folds their sums, and writes one
 * partial sum. Rows are fetched into shared memory ahead; a thread reads there what it has fetched itself, so no
 * thread waits for another before the end. SPDX-License-Identifier: MIT */

enum {
	THREADS = 32 * SUM_WARPS,
	THREAD_SUMS = SUMS_EACH * UNIT,
	PIECES = GATE_EACH + HAS_VALUE + 1, /* quads of a row that a thread fetches */
	VALUE_PIECE = GATE_EACH,
	DY_PIECE = GATE_EACH + HAS_VALUE,
	FETCHES = ACCESS == ACCESS_QUADS /* else rows are loaded where they are used */
};

/* Shared memory: the board, [number][thread], which keeps the slot's sums while chunks are added, then what was fetched. */
DEVICE real *board_of(int number)
{
	return (real *)shared_memory() + number * THREADS + thread_index();
}

DEVICE u8 *fetched_at(int stage, int piece)
{
	u8 *ring = shared_memory() + THREAD_SUMS * THREADS * sizeof(real);
	return ring + ((stage * PIECES + piece) * THREADS + thread_index()) * 16;
}

/* A unit of a row, from memory to the ring; bytes past the row's end are zeros. */
DEVICE void fetch_row(const struct glu_arguments *a, i64 row, int col, int count, int stage)
{
	const int bytes = col * ELEMENT_BYTES;
	UNROLL
	for (int i = 0; i < GATE_EACH; i++) {
		const int left = GATE_EACH * count * ELEMENT_BYTES - 16 * i;
		fetch_some(fetched_at(stage, i), a->gate + row * a->gate_stride + GATE_EACH * bytes + (left > 0 ? 16 * i : 0),
			   left < 0 ? 0 : left < 16 ? left : 16);
	}
	if (HAS_VALUE)
		fetch_some(fetched_at(stage, VALUE_PIECE), a->value + row * a->value_stride + bytes, count * ELEMENT_BYTES);
	fetch_some(fetched_at(stage, DY_PIECE), a->dy + row * a->dy_stride + bytes, count * ELEMENT_BYTES);
}

struct row {
	struct piece gate, value, dy;
};

DEVICE struct row row_of(const struct glu_arguments *a, i64 row, int col, int count, int stage)
{
	struct row r;
	const int bytes = col * ELEMENT_BYTES;
	if (!FETCHES) {
		r.gate = load_piece(a->gate + row * a->gate_stride + GATE_EACH * bytes, GATE_EACH, count);
		if (HAS_VALUE)
			r.value = load_piece(a->value + row * a->value_stride + bytes, 1, count);
		r.dy = load_piece(a->dy + row * a->dy_stride + bytes, 1, count);
		return r;
	}
	UNROLL
	for (int i = 0; i < GATE_EACH; i++)
		r.gate.q[i] = load_fetched(fetched_at(stage, i));
	if (HAS_VALUE)
		r.value.q[0] = load_fetched(fetched_at(stage, VALUE_PIECE));
	r.dy.q[0] = load_fetched(fetched_at(stage, DY_PIECE));
	return r;
}

/* Adds a row's gradients to the sums of its chunk, in the order of the partial sums. */
DEVICE void add_row(const struct glu_arguments *a, const struct row *r, i64 row, int col, int count, real *sums)
{
	const struct point p = point_of(a, r->gate, r->value, col, count);
	real dy[UNIT], dgate[UNIT], dvalue[UNIT];
	widen_piece(r->dy, 1, dy);
	UNROLL
	for (int e = 0; e < UNIT; e++) {
		gradients_of(a, p.t[e], p.v[e], dy[e], &dgate[e], &dvalue[e]);
		if (PAIRS) {
			sums[2 * e] = sums[2 * e] + dgate[e];
			sums[2 * e + 1] = sums[2 * e + 1] + dvalue[e];
		} else {
			if (GATE_SUMS)
				sums[e] = sums[e] + dgate[e];
			if (VALUE_SUMS)
				sums[GATE_SUMS * UNIT + e] = sums[GATE_SUMS * UNIT + e] + dvalue[e];
		}
	}
	store_gradients(a, row, col, count, dgate, dvalue);
}

/* `rows` rows of a slot, from `first` on; their sums are then on the board. */
DEVICE void walk_slot(const struct glu_arguments *a, i64 first, int rows, int col, int count)
{
	real sums[THREAD_SUMS];
	UNROLL
	for (int i = 0; i < THREAD_SUMS; i++)
		sums[i] = 0;
	UNROLL
	for (int i = 0; i < SUM_STAGES - 1; i++) {
		if (FETCHES && i < rows)
			fetch_row(a, first + i, col, count, i);
		fetch_close();
	}
	int stage = 0;
	NO_UNROLL
	for (int i = 0; i < rows; i++) {
		if (FETCHES && i + SUM_STAGES - 1 < rows)
			fetch_row(a, first + i + SUM_STAGES - 1, col, count, (stage + SUM_STAGES - 1) % SUM_STAGES);
		fetch_close();
		FETCH_WAIT(SUM_STAGES - 1);
		const struct row r = row_of(a, first + i, col, count, stage);
		stage = (stage + 1) % SUM_STAGES;
		if (i > 0 && i % CHUNK_ROWS == 0) {
			UNROLL
			for (int k = 0; k < THREAD_SUMS; k++) {
				*board_of(k) = i == CHUNK_ROWS ? sums[k] : *board_of(k) + sums[k];
				sums[k] = 0;
			}
		}
		add_row(a, &r, first + i, col, count, sums);
	}
	UNROLL
	for (int i = 0; i < THREAD_SUMS; i++)
		*board_of(i) = rows > CHUNK_ROWS ? *board_of(i) + sums[i] : sums[i];
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, glu_arguments)
{
	const i64 strips = (a.units + 31) / 32, strip = block_index() % strips, block = block_index() / strips;
	const int lane = thread_index() % 32, warp = thread_index() / 32;
	const i64 first = (block * SUM_WARPS + warp) * a.slot_rows;
	const int unit = (int)strip * 32 + lane, col = unit * UNIT;
	const i64 left = a.rows - first, rows = left < a.slot_rows ? left : a.slot_rows;
	const int count = unit >= (int)a.units ? 0 : a.cols - col < UNIT ? (int)(a.cols - col) : UNIT;

	wait_for_kernels_before();
	let_next_kernel_start();
	walk_slot(&a, first, count > 0 && rows > 0 ? (int)rows : 0, col, count);
	sync_block();
	/* The tree over the slots of the block; one that has no rows is 0. A warp folds some of the numbers. */
	real *board = (real *)shared_memory();
	for (int i = warp; i < THREAD_SUMS; i += SUM_WARPS) {
		real of_slots[SUM_WARPS];
		UNROLL
		for (int k = 0; k < SUM_WARPS; k++)
			of_slots[k] = load_one(real, board + i * THREADS + k * 32 + lane);
		const int sum = PAIRS ? 0 : i / UNIT;
		const i64 at = PAIRS ? 2 * col + i : col + i % UNIT;
		real *to = (real *)a.partials + (block * (PAIRS ? 1 : SUMS_EACH) + sum) * a.pitch + at;
		if (count > 0 && (PAIRS ? i / 2 : i % UNIT) < count)
			store_one(real, to, fold_array(of_slots, SUM_WARPS));
	}
}
