/* What the norm kernels share, second part: rows that start anywhere (ACCESS_SHIFTED) go through shared memory. Placed
 * between rows.cu, which has the constants, and sums.cu. SPDX-License-Identifier: MIT
 *
 * A tray holds the quads of a row that the threads of a warp share, side by side, and one more. On the way in they
 * are quads of memory, and the row starts inside the first; on the way out they are quads of the row, and the first
 * whole quad of memory starts inside the first. Either way a thread takes the 16 bytes that start `shift` bytes into
 * its own quad. Threads of a warp meet between what one puts into a tray and another takes. */

enum {
	TRAY_BYTES = TRAY_QUADS_OF(QUADS, ROW_THREADS, ACCESS == ACCESS_SHIFTED) * 16,
	TRAY_STEP = ROW_THREADS * 16,                    /* from a quad of a thread to its next, in memory, too */
	TRAYS_BYTES = TRAYS_BYTES_OF(QUADS, THREADS, ROW_THREADS, ACCESS == ACCESS_SHIFTED)
};

/* A thread's first quad in its tray. */
DEVICE u8 *tray_of(u8 *trays, int thread)
{
	return trays + thread / ROW_THREADS * TRAY_BYTES + thread % ROW_THREADS * 16;
}

/* Starts the fetch of a row's quads of memory, zeros past its end. What lies before the row in its first quad comes
 * along, unless that is before the matrix. */
DEVICE void fetch_shifted(u8 *tray, const u8 *row, const u8 *matrix, struct position p)
{
	const int shift = (int)((u64)row & 15), first = p.first * ELEMENT_BYTES - shift;
	const u8 *from = row + first;
	UNROLL
	for (int j = 0; j <= QUADS; j++) {
		int left = ROW_BYTES - first - j * TRAY_STEP;
		if (j == QUADS && p.lane > 0)
			continue;
		if (j == 0 && from < matrix)
			*(quad *)tray = load_elements(row, first / ELEMENT_BYTES);
		else
			fetch_some(tray + j * TRAY_STEP, from + j * TRAY_STEP, left < 0 ? 0 : left < 16 ? left : 16);
	}
}

/* 16 bytes of low and high from word `words` (0 to 3, a constant) and `bits` (0 or 16) more. */
DEVICE quad shifted(quad low, quad high, int words, u32 bits)
{
	u32 w[8];
	quad v;
	UNROLL
	for (int i = 0; i < 4; i++) {
		w[i] = low.w[i];
		w[i + 4] = high.w[i];
	}
	UNROLL
	for (int i = 0; i < 4; i++)
		v.w[i] = ELEMENT_BYTES < 4 ? shift_right(w[i + words], w[i + words + 1], bits) : w[i + words];
	return v;
}

DEVICE void take_quads_by(quad *v, int n, const u8 *tray, int words, u32 bits)
{
	UNROLL
	for (int j = 0; j < n; j++)
		v[j] = shifted(load_fetched(tray + j * TRAY_STEP), load_fetched(tray + j * TRAY_STEP + 16), words, bits);
}

/* n quads of a thread, n a constant, `shift` bytes (0 to 15) past its own in the tray. */
DEVICE void take_quads(quad *v, int n, const u8 *tray, int shift)
{
	const u32 bits = (u32)(shift & 2) * 8;
	if (shift < 4)
		take_quads_by(v, n, tray, 0, bits);
	else if (shift < 8)
		take_quads_by(v, n, tray, 1, bits);
	else if (shift < 12)
		take_quads_by(v, n, tray, 2, bits);
	else
		take_quads_by(v, n, tray, 3, bits);
}

/* Under 16 bytes from shared memory, an element a thread. */
DEVICE void store_edge(u8 *to, const u8 *from, int bytes, int lane)
{
	UNROLL
	for (int e = 0; e < PER_QUAD; e += ROW_THREADS) {
		int at = (e + lane) * ELEMENT_BYTES;
		if (at < bytes)
			store_bits(to + at, ELEMENT_BYTES, load_bits(from + at, ELEMENT_BYTES));
	}
}

/* Writes a warp's part of a row, whose quads lie in the tray. The quads of memory at its edges belong to others,
 * too. */
DEVICE void store_shifted(u8 *row, const u8 *tray, struct position p)
{
	const int begin = p.first * ELEMENT_BYTES - p.lane * 16, left = ROW_BYTES - begin;
	const int bytes = left < QUADS * TRAY_STEP ? left : QUADS * TRAY_STEP;
	u8 *to = row + begin;
	const int shift = (int)(-(u64)to & 15);
	const int head = shift < bytes ? shift : bytes, whole = (bytes - head) / 16, tail = head + whole * 16;
	const u8 *start = tray - p.lane * 16;
	quad v[QUADS];
	take_quads(v, QUADS, tray, shift);
	UNROLL
	for (int j = 0; j < QUADS; j++)
		if (p.lane + j * ROW_THREADS < whole)
			store_once(to + head + p.lane * 16 + j * TRAY_STEP, v[j]);
	store_edge(to, start, head, p.lane);
	store_edge(to + tail, start + tail, bytes - tail, p.lane);
}
