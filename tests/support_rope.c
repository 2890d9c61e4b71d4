/* Cases of RoPE and the norms of heads; support_rope.h says what. SPDX-License-Identifier: MIT */
#include "support_rope.h"

struct test_case rope_case(int k, struct head_sizes sizes)
{
	uint64_t seed = (uint64_t)(k + 31 * sizes.batch * sizes.seq + 1009 * sizes.heads +
				   7919 * sizes.head_dim + sizes.rotary_dim);
	uint64_t turn = random_mixed(seed);
	struct test_case c = case_make_heads(&ek_ops[FIRST_ROPE_OP + k % ROPE_OPS],
					     k / ROPE_OPS % PASS_COUNT ? BACKWARD : FORWARD,
					     dtype_pairs[k / ROPE_OPS / PASS_COUNT % DTYPE_PAIRS], sizes);
	case_choose(&c, (int)((turn >> 32) % (uint64_t)case_choice_count(&c)));
	c.first_row = (int64_t)(turn % 5);
	c.table_step = turn / 5 % 2 ? sizes.seq : 0;
	c.table_rows = c.first_row + sizes.seq + c.table_step * (sizes.batch ? sizes.batch - 1 : 0) +
		       (int64_t)(turn / 10 % 2);
	c.heads_first = (uint32_t)(turn >> 20);
	c.seed = seed;
	if (turn / 20 % 2)
		case_drop(&c, "positions");
	case_normalise(&c);
	return c;
}

int64_t rotary_of(int64_t head_dim, uint64_t turn)
{
	int64_t pairs = head_dim / 2;
	return 2 * (turn % 2 ? pairs : 1 + (int64_t)(turn / 2 % (uint64_t)pairs));
}
