/* The CUDA backend's bits against the reference's on the stand-in GPU, where kernels take a form of their own: rows that stay in
 * registers with an activation, a gate or x_bias, 16-bit rows at multiples of 8 bytes, groups of columns.
 * SPDX-License-Identifier: MIT */
#include "core/order.h"
#include "support_models.h"

/* Rows that fill their warps keep more between the passes of backward: g of an activation or a gate, xhat beside x_bias. */
TEST(backward_of_rows_that_stay_in_registers)
{
	static const char *const forms[] = {"", "gate dgate", "x_bias dx_bias", "gate dgate", "x_bias"};
	static const int64_t widths[] = {64, 512, 1024, 2048, 4096, 8192};
	static const struct dtype_pair dtypes[] = {{EK_BF16, EK_BF16}, {EK_F32, EK_F32}, {EK_F16, EK_F32}};
	enum { FORMS = COUNT_OF(forms) };
	for (int i = 0; i < FORMS * COUNT_OF(widths); i += test_mode == TEST_SHORT ? 2 : 1) {
		const int form = i % FORMS, turn = i / FORMS + form;
		struct test_case c = case_make(&open_ops[turn % 2], BACKWARD, dtypes[turn % COUNT_OF(dtypes)],
					       5, widths[i / FORMS]);
		c.activation = form == 2 || form == 4 ? EK_NO_ACTIVATION : 1 + turn % EK_GELU_TANH;
		case_set(&c, forms[form]);
		case_add(&c, "weight dy dx dweight dbias");
		case_add(&c, turn % 4 == 3 ? "" : STATISTICS);
		case_add(&c, c.activation ? "bias" : "");
		c.gate_first = form == 3;
		case_normalise(&c);
		case_expect(&c);
		(void)same_on(h200, &c);
	}
}

/* 16-bit rows that kernels for rows of binary32 read, 8 bytes at a time. */
TEST(rows_at_multiples_of_8_bytes)
{
	static const char *const forms[] = {"weight bias dy dx dweight dbias",
					    "weight bias residual h dy dh dx dresidual dweight dbias",
					    "weight bias residual h x_bias dy dh dx dx_bias all_in_place",
					    "weight bias residual_after x_bias dy dx dweight dbias dx_bias",
					    "weight bias gate dy dx dgate dweight dbias"};
	static const int64_t widths[] = {4, 12, 60, 100, 252, 500, 700, 1020, 1500, 2052, 4100, 8196, 33796};
	enum { FORMS = COUNT_OF(forms) };
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int k = 0; k < 2 * PASS_COUNT * FORMS; k++) {
			const int form = k / 4, turn = k + w + k / 4;
			const enum pass pass = k & 1 ? BACKWARD : FORWARD;
			static const struct dtype_pair dtypes[] = {
				{EK_BF16, EK_BF16}, {EK_F16, EK_F16}, {EK_BF16, EK_F32}, {EK_F16, EK_F32}};
			if (test_mode == TEST_SHORT ? (k * 7 + w) % 10 > 0
						    : test_mode != TEST_LONG && (k + w) % 3 > 0)
				continue;
			struct test_case c = case_make(&open_ops[k / 2 % 2], pass, dtypes[turn % 4],
						       rows_for(widths[w]), widths[w]);
			c.activation = form == 4 || (form < 3 && turn % 5 == 4) ? 1 + turn % EK_GELU_TANH
										: EK_NO_ACTIVATION;
			c.rounding = turn % 3 == 1 ? EK_ROUND_EACH : EK_ROUND_ONCE;
			case_set(&c, forms[form]);
			case_add(&c, turn % 4 == 3 ? "" : STATISTICS);
			c.gate_first = form == 4 && turn % 2;
			case_normalise(&c);
			case_lay_out(&c, ACCESS_HALF_QUADS, turn % 4);
			check_on(models[turn % MODELS], &c);
		}
}

/* Narrow groups of which a warp has several rows, odd ones that start anywhere, several warps and clusters a group, groups
 * that no registers hold; ops and their choices in turn. */
TEST(groups_of_columns)
{
	static const struct {
		int64_t rows, cols, group_cols;
		bool is_long;
	} groups[] = {{70, 12, 1, false},        {33, 96, 32, false},      {70, 40, 5, false},
		      {5, 1024, 128, false},     {3, 2100, 700, false},    {5, 3001 * 3, 3001, false},
		      {2, 16384, 8192, false},   {1030, 24, 8, false},     {3, 80000, 40000, true},
		      {2, 400000, 200000, true}, {2, 263 * 5, 263, false}, {40000, 4, 2, true}};
	static const char *const forms[] = {"all", "all all_in_place",
					    "dweight dbias dx_bias weight bias arbitrary",
					    "dx residual h dresidual rstd"};
	int turn = 0;
	for (int g = 0; g < COUNT_OF(groups); g++)
		for (int k = 0; k < OPS + OPEN_OPS * PASS_COUNT; k++) {
			struct test_case c = op_case(k % OPS, groups[g].rows, groups[g].cols);
			if (k >= OPS) {
				c = case_make(&open_ops[k % OPEN_OPS],
					      k / OPEN_OPS % PASS_COUNT ? BACKWARD : FORWARD,
					      dtype_pairs[(g + k) % DTYPE_PAIRS], groups[g].rows,
					      groups[g].cols);
				case_choose(&c, (int)(random_mixed((uint64_t)(g * 100 + k)) %
						      (uint64_t)case_choice_count(&c)));
				case_set(&c, forms[(g + k / 2) % COUNT_OF(forms)]);
			}
			c.group_cols = groups[g].group_cols;
			for (int i = 0; i < case_op(&c)->operand_count; i++) {
				c.pad[i] = (g + k) % 4 == 1 ? 16 : 0;
				c.offset[i] = (g + k) % 7 == 3 ? (int)ek_dtype_size(operand_dtype(&c, i)) : 0;
			}
			if (groups[g].is_long && (test_mode == TEST_SHORT || k % 8 != g % 8))
				continue;
			if (test_mode == TEST_LONG || (k * 5 + g) % (test_mode == TEST_SHORT ? 23 : 3) == 0)
				check_on(models[turn++ % MODELS], &c);
		}
}
