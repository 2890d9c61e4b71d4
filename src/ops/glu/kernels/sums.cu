/* Backward of gated activations with the gradients of biases: rule 6. Follows elements.cu. A warp walks the rows of a slot, or of one
 * chunk of it where slots are few, in a strip of 32 units, a lane a unit. The SUM_WARPS warps of a block have neighbouring rows; it
 * folds their sums, and writes one partial sum. Rows are fetched into shared memory ahead; a thread reads there what it has fetched
 * itself, so no thread waits for another before the end. Constants of its own: THREADS, 32 SUM_WARPS; BLOCKS that shall fit a
 * multiprocessor; STAGES, rows that a thread has on their way or in hand. SPDX-License-Identifier: MIT */

enum {
	THREAD_SUMS = SUMS_EACH * UNIT,
	VALUE_PIECE = READS_GATE ? GATE_EACH : 0,
	DY_PIECE = VALUE_PIECE + HAS_VALUE,
	PIECES = DY_PIECE + 1, /* quads of a row that a thread fetches */
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

/* Where a thread's unit is in every tensor. */
struct walk {
	const u8 *gate, *value, *dy;
	u8 *dgate, *dvalue;
};

DEVICE struct walk walk_from(const struct glu_arguments *a, i64 row, i64 col)
{
	struct walk w;
	const i64 bytes = col * ELEMENT_BYTES;
	w.gate = a->gate + row * a->gate_stride + GATE_EACH * bytes;
	w.value = a->value + row * a->value_stride + bytes;
	w.dy = a->dy + row * a->dy_stride + bytes;
	w.dgate = a->dgate + row * a->dgate_stride + GATE_EACH * bytes;
	w.dvalue = a->dvalue + row * a->dvalue_stride + bytes;
	return w;
}

/* To the next row, in the tensors that are read, or in those that are written. */
DEVICE void read_on(struct walk *w, const struct glu_arguments *a)
{
	w->gate += a->gate_stride;
	w->value += a->value_stride;
	w->dy += a->dy_stride;
}

DEVICE void write_on(struct walk *w, const struct glu_arguments *a)
{
	w->dgate += a->dgate_stride;
	w->dvalue += a->dvalue_stride;
}

/* A unit of a row, from memory to the ring; bytes past the row's end are zeros. */
DEVICE void fetch_unit(u8 *to, const u8 *from, int bytes)
{
	if (WHOLE)
		fetch(to, from);
	else
		fetch_some(to, from, bytes < 0 ? 0 : bytes < 16 ? bytes : 16);
}

DEVICE void fetch_row(const struct walk *w, int count, int stage)
{
	const int bytes = count * ELEMENT_BYTES;
	UNROLL
	for (int i = 0; READS_GATE && i < GATE_EACH; i++) {
		const int left = GATE_EACH * bytes - 16 * i;
		fetch_unit(fetched_at(stage, i), w->gate + (WHOLE || left > 0 ? 16 * i : 0), left);
	}
	if (HAS_VALUE)
		fetch_unit(fetched_at(stage, VALUE_PIECE), w->value, bytes);
	fetch_unit(fetched_at(stage, DY_PIECE), w->dy, bytes);
}

struct row {
	struct piece gate, value, dy;
};

DEVICE struct row row_of(const struct walk *w, int count, int stage)
{
	struct row r;
	if (!FETCHES) {
		r.gate = load_gate(w->gate, count);
		if (HAS_VALUE)
			r.value = load_piece(w->value, 1, count);
		r.dy = load_piece(w->dy, 1, count);
		return r;
	}
	UNROLL
	for (int i = 0; i < GATE_EACH; i++)
		r.gate.q[i] = READS_GATE ? load_fetched(fetched_at(stage, i)) : no_quad();
	if (HAS_VALUE)
		r.value.q[0] = load_fetched(fetched_at(stage, VALUE_PIECE));
	r.dy.q[0] = load_fetched(fetched_at(stage, DY_PIECE));
	return r;
}

/* Adds a row's gradients to the sums of its chunk, in the order of the partial sums. */
DEVICE void add_row(const struct glu_arguments *a, const struct row *r, const struct walk *w, int col, int count, real *sums)
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
	store_gradients(w->dgate, w->dvalue, count, dgate, dvalue);
}

/* `rows` rows from `first` on; their sums are then on the board. */
DEVICE void walk_rows(const struct glu_arguments *a, i64 first, int rows, int col, int count)
{
	struct walk w = walk_from(a, first, col);
	real sums[THREAD_SUMS];
	UNROLL
	for (int i = 0; i < THREAD_SUMS; i++)
		sums[i] = 0;
	UNROLL
	for (int i = 0; FETCHES && i < STAGES - 1; i++) {
		if (i < rows)
			fetch_row(&w, count, i);
		read_on(&w, a);
		fetch_close();
	}
	int stage = 0;
	NO_UNROLL
	for (int i = 0; i < rows; i++) {
		if (FETCHES && i + STAGES - 1 < rows)
			fetch_row(&w, count, (stage + STAGES - 1) % STAGES);
		fetch_close();
		FETCH_WAIT(STAGES - 1);
		const struct row r = row_of(&w, count, stage);
		read_on(&w, a);
		stage = (stage + 1) % STAGES;
		if (i > 0 && i % CHUNK_ROWS == 0) {
			UNROLL
			for (int k = 0; k < THREAD_SUMS; k++) {
				*board_of(k) = i == CHUNK_ROWS ? sums[k] : *board_of(k) + sums[k];
				sums[k] = 0;
			}
		}
		add_row(a, &r, &w, col, count, sums);
		write_on(&w, a);
	}
	UNROLL
	for (int i = 0; i < THREAD_SUMS; i++)
		*board_of(i) = rows > CHUNK_ROWS ? *board_of(i) + sums[i] : sums[i];
}

KERNEL(KERNEL_NAME, THREADS, BLOCKS, glu_arguments)
{
	const i64 strips = (a.units + 31) / 32, strip = block_index() % strips, block = block_index() / strips;
	const int lane = thread_index() % 32, warp = thread_index() / 32, parts = (int)a.slot_parts;
	const i64 part = block * SUM_WARPS + warp, slot = part / parts;
	const i64 first = slot * a.slot_rows + part % parts * CHUNK_ROWS;
	const i64 end = (slot + 1) * a.slot_rows < a.rows ? (slot + 1) * a.slot_rows : a.rows;
	const int unit = (int)strip * 32 + lane, col = unit * UNIT;
	const i64 rows = parts > 1 && end - first > CHUNK_ROWS ? CHUNK_ROWS : end - first;
	const int count = unit >= (int)a.units ? 0 : WHOLE || a.cols - col >= UNIT ? UNIT : (int)(a.cols - col);

	wait_for_kernels_before();
	let_next_kernel_start();
	walk_rows(&a, first, count > 0 && rows > 0 ? (int)rows : 0, col, count);
	sync_block();
	/* The chunks of a slot in their order, then the tree over the slots of the block; one that has no rows is 0. A warp folds some of
	 * the numbers. */
	real *board = (real *)shared_memory();
	for (int i = warp; i < THREAD_SUMS; i += SUM_WARPS) {
		real of_slots[SUM_WARPS], sum = 0;
		UNROLL
		for (int k = 0; k < SUM_WARPS; k++) {
			const real own = load_one(real, board + i * THREADS + k * 32 + lane);
			sum = k % parts == 0 ? own : sum + own;
			of_slots[k] = (k + 1) % parts == 0 ? sum : 0;
		}
		const int of = PAIRS ? 0 : i / UNIT;
		const i64 at = PAIRS ? 2 * col + i : col + i % UNIT;
		real *to = (real *)a.partials + (block * (PAIRS ? 1 : SUMS_EACH) + of) * a.pitch + at;
		if (count > 0 && (WHOLE || (PAIRS ? i / 2 : i % UNIT) < count))
			store_one(real, to, fold_array(of_slots, SUM_WARPS));
	}
}
