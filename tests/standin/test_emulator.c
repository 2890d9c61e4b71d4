/* The stand-in's emulator, tested before anything is tested with it: kernels that do what they should give the right
 * numbers in every order of threads, kernels that break a rule are caught (selftest.cu), and the bytes that they move
 * are counted. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fiber.h"
#include "core/half.h"
#include "selftest.h"
#include "support_files.h"

/* ---- orders of threads ---- */

static const char *const orders[] = {"forward", "backward", "shuffled", "shuffled:11", "shuffled:12"};

/* In how many of the orders the output is not what is wanted. */
static int wrong_orders(const char *name, struct shape shape, int stages, size_t bytes)
{
	CUfunction function = function_of(name);
	int wrong = 0;
	for (int i = 0; i < COUNT_OF(orders); i++) {
		set("EVENKEEL_STANDIN_ORDER", orders[i]);
		wrong += !gives_wanted(function, shape, stages, bytes);
	}
	set("EVENKEEL_STANDIN_ORDER", NULL);
	return wrong;
}

static void want_reversed_warps(size_t count)
{
	for (size_t thread = 0; thread < count / 4; thread++)
		memcpy(&wanted[4 * thread], &input[4 * (thread / 32 * 32 + 31 - thread % 32)], 16);
}

static const struct shape rings = {.blocks = 2, .threads = THREADS, .shared_bytes = 3 * BLOCK_BYTES};

SETUP()
{
	selftest_begin();
}

TEST(right_kernels_are_right_in_every_order)
{
	fill_input(MOST_NUMBERS);
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("block_sums", plain, 0, 4 * BLOCK_BYTES));
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS / 2);
	EXPECT_RESULT(0, wrong_orders("halves", plain, 0, 4 * BLOCK_BYTES));
	want_sums(12 * BLOCK_NUMBERS, 4 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("cluster_sums", clusters, 4, 12 * BLOCK_BYTES));
	want_reversed_warps(14 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("ring", rings, 7, 14 * BLOCK_BYTES));
	want_reversed_warps(2 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("ring", rings, 1, 2 * BLOCK_BYTES));
}

TEST(what_is_missing_shows_in_some_order)
{
	fill_input(MOST_NUMBERS);
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS);
	EXPECT(wrong_orders("without_barrier", plain, 0, 4 * BLOCK_BYTES) > 0, "a barrier is not missed");
	EXPECT_RESULT(COUNT_OF(orders), wrong_orders("wrong_neighbour", plain, 0, 4 * BLOCK_BYTES));
	want_sums(12 * BLOCK_NUMBERS, 4 * BLOCK_NUMBERS);
	EXPECT(wrong_orders("without_mbarrier_wait", clusters, 4, 12 * BLOCK_BYTES) > 0,
	       "mbarrier_wait is not missed");
	want_reversed_warps(14 * BLOCK_NUMBERS);
	EXPECT_RESULT(COUNT_OF(orders), wrong_orders("without_wait", rings, 7, 14 * BLOCK_BYTES));
	EXPECT(wrong_orders("without_sync_after_wait", rings, 7, 14 * BLOCK_BYTES) > 0,
	       "sync_warp after FETCH_WAIT is not missed");
	EXPECT(wrong_orders("without_sync_before_fetch", rings, 7, 14 * BLOCK_BYTES) > 0,
	       "sync_warp before a fetch is not missed");
}

/* Without a wish the order changes from launch to launch, so that all are seen soon. */
TEST(the_order_changes_by_itself)
{
	struct standin_launch last;
	char seen[3][32] = {{0}};
	fill_input(BLOCK_NUMBERS);
	for (int i = 0; i < 3; i++) {
		struct shape shape = plain;
		shape.blocks = 1;
		(void)gives_wanted(function_of("block_sums"), shape, 0, BLOCK_BYTES);
		EXPECT(standin.last_launch(&last), "no launch is remembered");
		memcpy(seen[i], last.order, sizeof(last.order));
	}
	EXPECT(strcmp(seen[0], seen[1]) != 0 && strcmp(seen[1], seen[2]) != 0 &&
		       strcmp(seen[0], seen[2]) != 0,
	       "%s, %s, %s", seen[0], seen[1], seen[2]);
}

/* ---- arithmetic ---- */

static uint32_t arithmetic(int word, const uint32_t v[4])
{
	float x = ek_float_of_bits(v[0]), y = ek_float_of_bits(v[1]), z = ek_float_of_bits(v[2]);
	uint64_t bits = (uint64_t)v[1] << 32 | v[0], low, high;
	double d, squared, root;
	memcpy(&d, &bits, sizeof(d));
	squared = fma(d, d, d);
	root = sqrt(d);
	memcpy(&low, &squared, sizeof(low));
	memcpy(&high, &root, sizeof(high));
	switch (word) {
	case 0:
		return ek_bits_of_float(fmaf(x, y, z)) ^ ek_bits_of_float(sqrtf(x));
	case 1:
		return ek_float_to_f16(x) | (uint32_t)ek_float_to_f16(ek_f16_to_float((uint16_t)v[3])) << 16;
	case 2:
		return ek_float_to_bf16(y) | (uint32_t)ek_float_to_bf16(z) << 16;
	default:
		return (uint32_t)((high >> 32 << 32 | (uint32_t)low) >> (v[3] & 31));
	}
}

TEST(arithmetic_is_exact)
{
	static uint32_t words[4 * BLOCK_NUMBERS], results[4 * BLOCK_NUMBERS];
	uint64_t state = 9;
	/* Positive numbers of every size, subnormals included; NaNs have no bits to compare. */
	for (int i = 0; i < COUNT_OF(words); i++) {
		words[i] = (uint32_t)random_bits(&state) & (i % 4 == 3 ? ~0u : 0x7f7fffffu);
		if (i % 4 == 3 && (words[i] & 0x7c00) == 0x7c00)
			words[i] ^= 0x4000;
		if (i % 4 == 0 && i % 3 == 0) /* the sizes of f16 */
			words[i] = 0x33000000u + words[i] % 0x15000000u;
	}
	for (int i = 0; i < COUNT_OF(words); i++)
		results[i] = arithmetic(i % 4, words + i / 4 * 4);
	memcpy(input, words, sizeof(words));
	memcpy(wanted, results, sizeof(results));
	struct shape shape = {.blocks = 4, .threads = THREADS};
	EXPECT_RESULT(true, gives_wanted(function_of("arithmetic"), shape, 0, sizeof(words)));
}

/* ---- rules that stop the process, in a child ---- */

struct broken {
	const char *kernel;
	const char *message;      /* a part of what it says */
	const char *asan_message; /* where AddressSanitizer comes first; NULL: the same */
	struct shape shape;
	int stages;
};

static int run_broken(const void *given)
{
	const struct broken *broken = given;
	(void)gives_wanted(function_of(broken->kernel), broken->shape, broken->stages,
			   broken->shape.blocks * (size_t)BLOCK_BYTES);
	return 0;
}

TEST(broken_rules_stop_the_process)
{
	enum { ONE = 4 * THREADS / 32 };
	static const struct shape one = {.blocks = 1, .threads = THREADS, .shared_bytes = ONE};
	static const struct shape overlapping = {
		.blocks = 1, .threads = THREADS, .shared_bytes = ONE, .overlaps = true};
	static const struct shape pair = {.blocks = 2, .threads = THREADS, .cluster = 2, .shared_bytes = ONE};
	static const struct shape ring = {.blocks = 1, .threads = THREADS, .shared_bytes = 3 * BLOCK_BYTES};
	const struct broken list[] = {
		{"divergent_shuffle", "waits elsewhere, at shuffle_xor_f32 in divergent_shuffle_kernel", NULL,
		 one, 0},
		{"shuffle_or_barrier", "waits elsewhere, at", NULL, one, 0},
		{"ended_lane", "block 0, warp 1", NULL, one, 0},
		{"no_such_lane", "lane 32 does not exist", NULL, one, 0},
		{"too_many_wanted", "deadlock", NULL, one, 0},
		{"too_many_wanted", "warps 0 to 3 wait at sync_some", NULL, one, 0},
		{"odd_address", "is not a multiple of 16", NULL, one, 0},
		{"load_past_end", "not in device memory: byte 4096 of an allocation of 4096", NULL, one, 0},
		{"fetch_past_end", "not in device memory", NULL, ring, 0},
		{"byte_past_end", "not in device memory: byte 4096 of an allocation of 4096", NULL, one, 0},
		{"odd_number", "is not a multiple of 4", NULL, one, 0},
		{"fetch_to_global", "is not in the block's 32 bytes of shared memory", NULL, one, 0},
		{"load_from_shared", "is in shared memory", NULL, one, 0},
		{"past_shared", "written past its 32 bytes", "heap-buffer-overflow", one, ONE},
		{"block_sums", "before wait_for_kernels_before", NULL, overlapping, 0},
		{"block_sums",
		 "of shared memory",
		 "heap-buffer-overflow",
		 {.blocks = 1, .threads = THREADS, .shared_bytes = ONE - 4},
		 0},
		{"remote_after_end", "block 1 of the cluster has ended", NULL, pair, 0},
	};
	char said[8192];
	set("EVENKEEL_STANDIN_ORDER", "backward");
	for (int i = 0; i < COUNT_OF(list); i++) {
		const char *message =
			FIBER_ASAN && list[i].asan_message ? list[i].asan_message : list[i].message;
		int status = end_of_child(run_broken, &list[i], said, sizeof(said));
		EXPECT(status != 0 && strstr(said, message), "%s ends with status 0x%x and says: %s",
		       list[i].kernel, status, said);
	}
	set("EVENKEEL_STANDIN_ORDER", NULL);
}

TEST(kernels_that_wait_may_overlap)
{
	struct shape shape = {.blocks = 3, .threads = THREADS, .overlaps = true};
	struct standin_launch last;
	for (int i = 0; i < 3 * BLOCK_NUMBERS; i++)
		wanted[i] = (float)(i / 128 % (THREADS / 32) * 32 + 7);
	EXPECT_RESULT(true, gives_wanted(function_of("waits_for_kernels_before"), shape, 0, 3 * BLOCK_BYTES));
	EXPECT(standin.last_launch(&last) && last.overlaps && last.blocks == 3 && last.threads == THREADS &&
		       last.cluster == 1 && last.shared_bytes == 0 && last.stream == NULL && !last.captured &&
		       strcmp(last.kernel, "waits_for_kernels_before") == 0,
	       "the last launch is %s, %lld blocks", last.kernel, (long long)last.blocks);
}

/* ---- bytes counted ---- */

/* Both buffers' record of launch `number`: from is read, to is written. */
static void expect_traffic(int number, const char *kernel, struct standin_traffic from,
			   struct standin_traffic to)
{
	struct standin_traffic is[2];
	EXPECT(standin.traffic_get(2 * number, &is[0]) && standin.traffic_get(2 * number + 1, &is[1]),
	       "launch %d is not counted", number);
	if (is[0].read_in_all == 0) { /* another order of threads */
		struct standin_traffic other = is[0];
		is[0] = is[1];
		is[1] = other;
	}
	for (int i = 0; i < 2; i++) {
		struct standin_traffic want = i == 0 ? from : to;
		EXPECT(is[i].launch == number && strcmp(is[i].kernel, kernel) == 0 &&
			       is[i].read == want.read && is[i].written == want.written &&
			       is[i].read_in_all == want.read_in_all &&
			       is[i].written_in_all == want.written_in_all,
		       "launch %d, %s: %lld bytes read, %lld in all, %lld written, %lld in all", is[i].launch,
		       is[i].kernel, (long long)is[i].read, (long long)is[i].read_in_all,
		       (long long)is[i].written, (long long)is[i].written_in_all);
	}
}

TEST(bytes_are_counted_where_asked_for)
{
	enum { ALL = 4 * THREADS };
	struct shape shape = {.blocks = 4, .threads = THREADS, .shared_bytes = BLOCK_BYTES};
	struct standin_traffic record;
	fill_input(4 * BLOCK_NUMBERS);
	(void)gives_wanted(function_of("block_sums"), shape, 0, 4 * BLOCK_BYTES);
	EXPECT(!standin.traffic_get(0, &record), "a launch is counted that was not to be");
	standin.traffic_count(true);
	(void)gives_wanted(function_of("block_sums"), shape, 0, 4 * BLOCK_BYTES);
	(void)gives_wanted(function_of("all_kinds_of_accesses"), shape, 0, 4 * BLOCK_BYTES);
	expect_traffic(0, "block_sums", (struct standin_traffic){.read = 16 * ALL, .read_in_all = 16 * ALL},
		       (struct standin_traffic){.written = 16 * ALL, .written_in_all = 16 * ALL});
	expect_traffic(1, "all_kinds_of_accesses",
		       (struct standin_traffic){.read = 12 * ALL + 4, .read_in_all = 28 * ALL},
		       (struct standin_traffic){.written = 2 * ALL, .written_in_all = 2 * ALL});
	EXPECT(!standin.traffic_get(4, &record), "there are more than two buffers of two launches");
	standin.traffic_count(false);
	(void)gives_wanted(function_of("block_sums"), shape, 0, 4 * BLOCK_BYTES);
	EXPECT(!standin.traffic_get(0, &record), "a launch is counted that was not to be");
}

/* ---- words.h ---- */

/* Every word of words.cu, a function after DEVICE or a macro, stands in words.h as well. */
TEST(all_words_are_there)
{
	char *cuda = source_of("src/gpu/kernels/words.cu"), *here = source_of("tests/standin/words.h"),
	     *rest = NULL;
	int words = 0;
	for (char *line = strtok_r(cuda, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		bool is_function = strncmp(line, "DEVICE ", 7) == 0;
		char *end = strchr(line, '(');
		if (!end || (!is_function && strncmp(line, "#define ", 8) != 0))
			continue;
		char *start = is_function ? end : line + 8;
		while (is_function && start[-1] != ' ' && start[-1] != '*')
			start--;
		char word[64];
		(void)snprintf(word, sizeof(word), "%.*s(", (int)(end - start), start);
		EXPECT(strchr(start, ' ') < end || strstr(here, word), "words.h has no %s", word);
		words++;
	}
	EXPECT(words > 30, "%d words are found in words.cu", words);
	free(cuda);
	free(here);
}

TEST(nothing_is_left)
{
	selftest_end();
}
