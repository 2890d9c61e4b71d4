/* The order in which lanes, warps and blocks run. Where a kernel forgets to wait, one order or another shows it:
 * forward and backward let one warp run ahead as far as barriers allow, shuffled mixes.
 * SPDX-License-Identifier: MIT */
#include "order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify/random.h"

static enum { FORWARD, BACKWARD, SHUFFLED } order;
static uint64_t launches, state, first, stride;
static char text[32];

void order_begin(void)
{
	const char *wanted = getenv("EVENKEEL_STANDIN_ORDER");
	uint64_t seed = launches++;
	if (!wanted || !*wanted)
		order = seed % 3;
	else if (strcmp(wanted, "forward") == 0)
		order = FORWARD;
	else if (strcmp(wanted, "backward") == 0)
		order = BACKWARD;
	else
		order = SHUFFLED;
	if (wanted && strncmp(wanted, "shuffled:", 9) == 0)
		seed = strtoull(wanted + 9, NULL, 10);
	static const char *const names[] = {"forward", "backward", "shuffled:%llu"};
	(void)snprintf(text, sizeof(text), names[order], (unsigned long long)seed);
	state = seed;
	first = (uint64_t)random_below(&state, 1 << 30);
	stride = (uint64_t)random_below(&state, 1 << 30);
}

const char *order_text(void)
{
	return text;
}

static int nth_bit(uint64_t bits, int n)
{
	while (n-- > 0)
		bits &= bits - 1;
	return __builtin_ctzll(bits);
}

int order_lane(uint32_t ready)
{
	if (order == FORWARD)
		return __builtin_ctz(ready);
	if (order == BACKWARD)
		return 31 - __builtin_clz(ready);
	return nth_bit(ready, (int)random_below(&state, __builtin_popcount(ready)));
}

static int random_warp(const uint64_t *ready, int words)
{
	int count = 0;
	for (int i = 0; i < words; i++)
		count += __builtin_popcountll(ready[i]);
	if (count == 0)
		return -1;
	int n = (int)random_below(&state, count), i = 0;
	for (; n >= __builtin_popcountll(ready[i]); i++)
		n -= __builtin_popcountll(ready[i]);
	return i * 64 + nth_bit(ready[i], n);
}

int order_warp(const uint64_t *ready, int words)
{
	if (order == SHUFFLED)
		return random_warp(ready, words);
	for (int i = 0; i < words; i++) {
		int word = order == FORWARD ? i : words - 1 - i;
		if (ready[word])
			return word * 64 + (order == FORWARD ? __builtin_ctzll(ready[word])
							     : 63 - __builtin_clzll(ready[word]));
	}
	return -1;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

int64_t order_block(int64_t i, int64_t count)
{
	if (order == FORWARD)
		return i;
	if (order == BACKWARD)
		return count - 1 - i;
	/* Steps that share no divisor with the count come by every block once. */
	while (common_divisor(stride, (uint64_t)count) != 1)
		stride++;
	return (int64_t)((first + (uint64_t)i * stride) % (uint64_t)count);
}

bool order_whim(void)
{
	return order == SHUFFLED && random_below(&state, 8) == 0;
}
