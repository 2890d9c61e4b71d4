/* Rotary position embedding and the norms of heads: every level's bits against the reference's, over heads, tokens, operands,
 * choices, layouts, threads and guard pages. SPDX-License-Identifier: MIT */
#include <string.h>

#include "support_rope.h"

TEST(all_head_dims_to_300_and_beyond)
{
	static const int64_t wide[] = {320, 384, 400, 511, 512, 513, 640, 768, 1000, 1022, 1023, 1024};
	for (int64_t i = 2; i <= 300 + COUNT_OF(wide); i++)
		for (int k = 0; k < ROPE_CASES; k++) {
			int64_t head_dim = i <= 300 ? i : wide[i - 301];
			if ((i + k) % 6 || (i > 70 && !test_sampled(2)))
				continue;
			uint64_t turn = random_mixed((uint64_t)(i * 100 + k));
			struct test_case c =
				rope_case(k, (struct head_sizes){1, 1 + i % 3, 2 * (1 + k % 2), 1 + k % 2,
								 head_dim, rotary_of(head_dim, turn)});
			case_check_levels(&c);
			case_check(&c,
				   (struct setting){level_name((int)i % level_count()), 1, STREAM_ALWAYS});
		}
}

/* Slots of one row and of several, chunks, one token and none. */
TEST(tokens_and_threads)
{
	static const struct head_sizes shapes[] = {
		{0, 5, 2, 1, 8, 8},      {3, 0, 2, 1, 8, 4},     {1, 1, 1, 1, 2, 2},
		{2, 17, 4, 2, 16, 16},   {1, 70, 6, 3, 20, 12},  {5, 205, 2, 2, 6, 4},
		{2, 1025, 1, 1, 4, 2},   {3, 700, 3, 1, 3, 2},   {1, 33, 16, 4, 64, 64},
		{2, 300, 8, 8, 128, 96}, {1, 2, 64, 8, 128, 128}};
	static const int threads[] = {1, 2, 3, 7};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < ROPE_CASES; k++) {
			if ((s + k) % 3 || (s > 7 && !test_sampled(3)) || !test_in_slice())
				continue;
			struct test_case c = rope_case(k, shapes[s]);
			case_expect(&c);
			for (int i = 0; i < level_count(); i++)
				for (int t = 0; t < COUNT_OF(threads); t++)
					case_check(&c, (struct setting){level_name(i), threads[t],
									t == 2 ? STREAM_ALWAYS : PLAIN});
		}
}

/* Heads that kernels keep in registers: no biases, every choice; slots of one row and of several, groups of heads that cross chunks. */
TEST(heads_without_biases)
{
	static const struct head_sizes shapes[] = {{1, 5, 6, 2, 64, 64},
						   {1, 9, 5, 1, 128, 128},
						   {2, 3, 3, 1, 256, 256},
						   {1, 150, 33, 3, 64, 64},
						   {1, 110, 20, 4, 128, 128}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < ROPE_CASES; k++) {
			struct test_case c = rope_case(k, shapes[s]);
			for (int choice = 0; choice < case_choice_count(&c); choice++) {
				struct test_case chosen = c;
				if (choice && !test_sampled(s > 2 ? 60 : 12))
					continue;
				case_choose(&chosen, choice);
				case_drop(&chosen, "q_bias");
				case_drop(&chosen, "k_bias");
				case_check_levels(&chosen);
			}
		}
}

/* Every set of optional operands, in place and not, accumulating and not. */
TEST(operands_and_places)
{
	for (int k = 0; k < ROPE_CASES; k++) {
		const int64_t head_dim = 10 + 27 * (k % 3);
		struct test_case c =
			rope_case(k, (struct head_sizes){2, 3, 4, 2, head_dim, head_dim / 2 * 2});
		uint32_t optional = case_optional(&c), absent = optional;
		c.present = ~UINT32_C(0);
		do {
			for (int form = 0; case_set_over(&c, form / 2); form++) {
				struct test_case allowed = c;
				if (!test_sampled(c.pass == BACKWARD ? 400 : 8))
					continue;
				allowed.present &= ~absent;
				allowed.accumulate = form % 2;
				case_normalise(&allowed);
				case_check_levels(&allowed);
			}
			memset(c.over, 0, sizeof c.over);
			absent = (absent - 1) & optional;
		} while (absent != optional);
	}
}

TEST(strides_offsets_and_fillings)
{
	static const int64_t pads[] = {0, 1, 3, 8, 64};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_EXTREME, FILL_NOT_FINITE,
						FILL_INTEGERS};
	for (int k = 0; k < ROPE_CASES; k++)
		for (int turn = 0; turn < 60; turn++) {
			uint64_t drawn = random_mixed((uint64_t)(k * 100 + turn));
			const int64_t head_dim = 2 + (k * 7 + turn * 31) % 150;
			struct test_case c =
				rope_case(k, (struct head_sizes){2, 3, 6, 2, head_dim,
								 rotary_of(head_dim, drawn >> 8)});
			if (!test_sampled(3))
				continue;
			c.filling = fillings[turn % COUNT_OF(fillings)];
			for (int i = 0; i < case_op(&c)->operand_count; i++) {
				c.pad[i] = pads[(drawn >> i) % COUNT_OF(pads)];
				c.offset[i] = turn % 2 ? (int)((drawn >> 2 * i) % 64) : 0;
			}
			case_check_levels(&c);
		}
}

/* Nothing beyond a tensor's last element, or before its first, is read or written. */
TEST(guard_pages)
{
	for (int k = 0; k < ROPE_CASES; k++)
		for (int turn = 0; turn < 8; turn++) {
			const int64_t head_dim = 2 + (k * 13 + turn * 71) % 300;
			struct test_case c =
				rope_case(k, (struct head_sizes){1 + turn % 2, 1 + turn % 3, 4, 2, head_dim,
								 rotary_of(head_dim, (uint64_t)turn)});
			c.placement = turn % 2 ? PLACE_GUARD_AFTER : PLACE_GUARD_BEFORE;
			case_check_levels(&c);
		}
}

/* A sequence alone has the bits that it has in a batch. */
TEST(sequences_do_not_depend_on_the_batch)
{
	static struct operands view, alone;
	for (int k = 0; k < ROPE_CASES; k++) {
		struct test_case c = rope_case(k, (struct head_sizes){3, 5, 4, 2, 48, 48}), one;
		case_set(&c, c.pass == FORWARD ? "k k_out q_bias k_bias q_weight" : "dq dk q_weight");
		c.first_row = c.table_step = 0;
		one = c;
		one.batch = 1;
		case_fill(&c);
		ek_context *ctx = context_of((struct setting){level_best(), 3, PLAIN});
		case_run(ctx, &c, &case_actual);
		for (int64_t b = 0; b < c.batch; b++) {
			struct difference difference;
			operands_row(&one, &case_inputs, b, &view);
			EXPECT(outputs_compute(ctx, &one, &view, &alone) == EK_OK, "%s: %s", case_text(&one),
			       ek_error(ctx));
			operands_row(&one, &case_actual, b, &view);
			EXPECT(outputs_equal(&view, &alone, &difference), "%s, sequence %lld: %s",
			       case_text(&c), (long long)b, difference_text(&difference));
		}
	}
}
