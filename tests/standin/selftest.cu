/* Kernels for the stand-in's own tests (selftest.h), written in the words as those of the library are: some do
 * what they should, the others break one rule each. Each block has 16 bytes of `from` and of `to` per thread.
 * SPDX-License-Identifier: MIT */

struct arguments {
	u8 *to;
	const u8 *from;
	i64 bytes; /* of each */
	int stages;
};

enum { BLOCK_THREADS = 256, WARPS = BLOCK_THREADS / 32 };

/* The running thread's place in a tensor of 16 bytes per thread. */
DEVICE i64 own_bytes(void)
{
	return (block_index() * BLOCK_THREADS + thread_index()) * 16;
}

DEVICE quad four_times(float value)
{
	quad v;
	for (int i = 0; i < 4; i++)
		v.w[i] = bits_of_f32(value);
	return v;
}

DEVICE float sum_of(quad v)
{
	return f32_of_bits(v.w[0]) + f32_of_bits(v.w[1]) + f32_of_bits(v.w[2]) + f32_of_bits(v.w[3]);
}

DEVICE float warp_sum(float value)
{
	for (int mask = 16; mask > 0; mask /= 2)
		value += shuffle_xor_f32(value, mask);
	return value;
}

/* ---- every thread of a block gets the sum of its numbers ---- */

DEVICE float block_sum(float value, int with_barrier)
{
	float *partial = (float *)shared_memory();
	value = warp_sum(value);
	if (thread_index() % 32 == 0)
		partial[thread_index() / 32] = value;
	if (with_barrier)
		sync_block();
	float sum = 0;
	for (int i = 0; i < WARPS; i++)
		sum += partial[i];
	return sum;
}

KERNEL(block_sums, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), four_times(block_sum(sum_of(load_once(a.from + own_bytes())), 1)));
}

KERNEL(without_barrier, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), four_times(block_sum(sum_of(load_once(a.from + own_bytes())), 0)));
}

KERNEL(wrong_neighbour, BLOCK_THREADS, 1, arguments)
{
	float value = sum_of(load_once(a.from + own_bytes()));
	for (int mask = 8; mask > 0; mask /= 2)
		value += shuffle_xor_f32(value, mask);
	value += shuffle_xor_f32(value, 8); /* 16 is meant */
	float *partial = (float *)shared_memory();
	partial[thread_index() / 32] = value;
	sync_block();
	float sum = 0;
	for (int i = 0; i < WARPS; i++)
		sum += partial[i];
	store_once(a.to + own_bytes(), four_times(sum));
}

/* ---- a ring of asynchronous copies; each thread writes what another of its warp has fetched ---- */

enum { STAGES = 3 };

DEVICE void copy_by_ring(const struct arguments a, int with_wait, int with_sync, int with_free)
{
	u8 *ring = shared_memory();
	const int warp = thread_index() / 32 * 32, reversed = warp + 31 - thread_index() % 32;
	const i64 step = block_count() * BLOCK_THREADS * 16;
	const i64 first = own_bytes(), last = first + step * (a.stages - 1);
	for (int s = 0; s < STAGES - 1; s++) {
		const int there = first + step * s <= last;
		fetch_some(ring + (s * BLOCK_THREADS + thread_index()) * 16, a.from + (there ? first + step * s : 0),
			   there ? 16 : 0);
		fetch_close();
	}
	int stage = 0;
	for (i64 at = first; at <= last; at += step) {
		const int next = (stage + STAGES - 1) % STAGES;
		if (at + step * (STAGES - 1) <= last)
			fetch(ring + (next * BLOCK_THREADS + thread_index()) * 16, a.from + at + step * (STAGES - 1));
		fetch_close();
		if (with_wait)
			FETCH_WAIT(STAGES - 1);
		if (with_sync)
			sync_warp();
		store_once(a.to + at, *(quad *)(ring + (stage * BLOCK_THREADS + reversed) * 16));
		stage = (stage + 1) % STAGES;
		if (with_free)
			sync_warp();
	}
}

KERNEL(ring, BLOCK_THREADS, 1, arguments)
{
	copy_by_ring(a, 1, 1, 1);
}

KERNEL(without_wait, BLOCK_THREADS, 1, arguments)
{
	copy_by_ring(a, 0, 1, 1);
}

KERNEL(without_sync_after_wait, BLOCK_THREADS, 1, arguments)
{
	copy_by_ring(a, 1, 0, 1);
}

KERNEL(without_sync_before_fetch, BLOCK_THREADS, 1, arguments)
{
	copy_by_ring(a, 1, 1, 0);
}

/* ---- every thread of a cluster gets the sum of its blocks' numbers ---- */

DEVICE void cluster_sum(const struct arguments a, int blocks, int with_wait)
{
	float *partial = (float *)(shared_memory() + WARPS * 4);
	u64 *box = (u64 *)(shared_memory() + WARPS * 4 + 64); /* past partial sums of 16 blocks */
	if (thread_index() == 0)
		mbarrier_make(box);
	sync_cluster();
	const float sum = block_sum(sum_of(load_once(a.from + own_bytes())), 1);
	if (thread_index() == 0)
		mbarrier_expect(box, blocks * 4);
	if (thread_index() < blocks)
		send_f32(partial + cluster_rank(), thread_index(), sum, box);
	if (with_wait)
		mbarrier_wait(box, 0);
	float all = 0;
	for (int i = 0; i < blocks; i++)
		all += partial[i];
	const quad there = get_quad(shared_memory(), (cluster_rank() + 1) % blocks);
	const quad here = *(quad *)shared_memory();
	sync_cluster(); /* a block's memory is there as long as others read it */
	if (there.w[0] == 0 && here.w[0] == 0)
		all = -1;
	store_once(a.to + own_bytes(), four_times(all));
}

KERNEL(cluster_sums, BLOCK_THREADS, 1, arguments)
{
	cluster_sum(a, a.stages, 1);
}

KERNEL(without_mbarrier_wait, BLOCK_THREADS, 1, arguments)
{
	cluster_sum(a, a.stages, 0);
}

/* ---- the halves of a block meet at barriers of their own, as often as they like ---- */

KERNEL(halves, BLOCK_THREADS, 1, arguments)
{
	float *partial = (float *)shared_memory();
	const int half = thread_index() / 128, warp = thread_index() / 32;
	const float value = warp_sum(sum_of(load_once(a.from + own_bytes())));
	float sum = 0;
	for (int turn = 0; turn < 3 + 2 * half; turn++) {
		if (thread_index() % 32 == 0)
			partial[warp] = value;
		sync_some(1 + half, 128);
		sum = 0;
		for (int i = 0; i < 4; i++)
			sum += partial[4 * half + i];
		sync_some(1 + half, 128);
		if (thread_index() % 32 == 0)
			partial[warp] = -1;
	}
	store_once(a.to + own_bytes(), four_times(sum));
}

/* ---- arithmetic: one case per thread ---- */

KERNEL(arithmetic, BLOCK_THREADS, 1, arguments)
{
	const quad v = load_shared_by_all(a.from + own_bytes());
	const float x = f32_of_bits(v.w[0]), y = f32_of_bits(v.w[1]), z = f32_of_bits(v.w[2]);
	const double d = f64_of_bits(v.w[0], v.w[1]);
	quad r;
	r.w[0] = bits_of_f32(fma_f32(x, y, z)) ^ bits_of_f32(sqrt_f32(x));
	r.w[1] = pack_f16(x, f32_of_f16(v.w[3] & 0xffff));
	r.w[2] = pack_bf16(y, z);
	r.w[3] = shift_right(low_bits_of_f64(fma_f64(d, d, d)), high_bits_of_f64(sqrt_f64(d)), v.w[3] & 31);
	store_kept(a.to + own_bytes(), r);
}

KERNEL(waits_for_kernels_before, BLOCK_THREADS, 1, arguments)
{
	wait_for_kernels_before();
	let_next_kernel_start();
	const double value = shuffle_xor_f64(thread_index() / 32 * 32 + 7, 1); /* number 7 of each warp */
	store_once(a.to + own_bytes(), four_times((float)value));
}

/* ---- accesses to be counted: of a thread's 16 bytes, 8 are fetched, 4 read as a number and 2 written; all threads read
 * the first 16 ---- */

KERNEL(all_kinds_of_accesses, BLOCK_THREADS, 1, arguments)
{
	u8 *shared = shared_memory() + thread_index() * 16;
	fetch_some(shared, a.from + own_bytes(), 8);
	fetch_close();
	FETCH_WAIT(0);
	store_one(u16, shared + 8, load_one(u16, shared));
	const u32 number = load_one(u32, a.from + own_bytes() + 12) + load_once(a.from).w[0];
	store_one(u16, a.to + own_bytes(), (u16)(number + load_one(u16, shared + 8)));
}

/* ---- rules broken so that the emulator stops ---- */

KERNEL(divergent_shuffle, BLOCK_THREADS, 1, arguments)
{
	float value = (float)a.bytes;
	if (thread_index() % 32 < 7)
		value = shuffle_xor_f32(value, 1);
	else
		value = shuffle_xor_f32(value, 2);
	store_once(a.to + own_bytes(), four_times(value));
}

KERNEL(shuffle_or_barrier, BLOCK_THREADS, 1, arguments)
{
	if (thread_index() == 40)
		sync_block();
	store_once(a.to + own_bytes(), four_times(warp_sum((float)a.bytes)));
}

KERNEL(ended_lane, BLOCK_THREADS, 1, arguments)
{
	if (thread_index() == 63)
		return;
	store_once(a.to + own_bytes(), four_times(warp_sum((float)a.bytes)));
}

KERNEL(no_such_lane, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), four_times(shuffle_xor_f32((float)a.bytes, thread_index() % 32 ^ 32)));
}

KERNEL(too_many_wanted, BLOCK_THREADS, 1, arguments)
{
	if (thread_index() < 128)
		sync_some(3, 192);
	sync_block();
}

KERNEL(odd_address, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), load_once(a.from + own_bytes() + 4));
}

KERNEL(load_past_end, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), load_once(a.from + own_bytes() + 16));
}

KERNEL(fetch_past_end, BLOCK_THREADS, 1, arguments)
{
	fetch_some(shared_memory() + thread_index() * 16, a.from + a.bytes, 4);
}

KERNEL(odd_number, BLOCK_THREADS, 1, arguments)
{
	store_one(u32, a.to + own_bytes() + 2, load_one(u32, a.from));
}

KERNEL(byte_past_end, BLOCK_THREADS, 1, arguments)
{
	if (thread_index() == 0)
		store_one(u8, a.to, load_one(u8, a.from + a.bytes));
}

KERNEL(past_shared, BLOCK_THREADS, 1, arguments)
{
	if (thread_index() == 0)
		shared_memory()[a.stages] = (u8)a.bytes;
}

KERNEL(fetch_to_global, BLOCK_THREADS, 1, arguments)
{
	fetch(a.to + own_bytes(), a.from + own_bytes());
}

KERNEL(load_from_shared, BLOCK_THREADS, 1, arguments)
{
	store_once(a.to + own_bytes(), load_once(shared_memory()));
}

KERNEL(remote_after_end, BLOCK_THREADS, 1, arguments)
{
	if (cluster_rank() == 0)
		store_once(a.to + own_bytes(), get_quad(shared_memory(), 1));
}
