/* The copy that speed is measured against (cli/gpu_kernels.c). Follows words.cu. Constants, given as -D:
 *   KERNEL_NAME   of the function
 *   THREADS       of a block
 *   QUADS         16-byte vectors that a thread has in hand at once
 *   HINTS         1: loads and stores say that nothing is used again; 0: as plain as they come
 * SPDX-License-Identifier: MIT */

struct arguments {
	u8 *to;
	const u8 *from;
	i64 quads;
};

#if HINTS
#define load_quad(from) load_once(from)
#define store_quad(to, v) store_once(to, v)
#else
#define load_quad(from) load_shared_by_all(from)
#define store_quad(to, v) store_kept(to, v)
#endif

KERNEL(KERNEL_NAME, THREADS, 1, arguments)
{
	const i64 first = block_index() * (THREADS * QUADS) + thread_index();
	quad held[QUADS];

	if (first + (QUADS - 1) * THREADS < a.quads) {
		UNROLL
		for (int i = 0; i < QUADS; i++)
			held[i] = load_quad(a.from + (first + i * THREADS) * 16);
		UNROLL
		for (int i = 0; i < QUADS; i++)
			store_quad(a.to + (first + i * THREADS) * 16, held[i]);
		return;
	}
	for (i64 at = first; at < a.quads; at += THREADS)
		store_quad(a.to + at * 16, load_quad(a.from + at * 16));
}
