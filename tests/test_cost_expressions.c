/* Expressions of references, good and bad. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support_cost.h"

static ek_status expand(const char *text, ek_cost *cost)
{
	ek_cost_args args = {
		.size = sizeof args, .batch_size = 2, .seq_len = 3, .hidden_size = 5, .dtype = EK_F32};
	cost->size = sizeof *cost;
	return ek_reference_cost(text, &args, cost);
}

#define LAYER_NORM "${torch.nn.functional.layer_norm}"
#define OWN_SIZES "(batch_size, seq_len, hidden_size)"

TEST(expressions_expand)
{
	static const struct {
		const char *text, *flops;
		int64_t number;
	} cases[] = {
		{LAYER_NORM OWN_SIZES, "8*batch_size*seq_len*hidden_size + 2*batch_size*seq_len", 252},
		{"2*" LAYER_NORM OWN_SIZES, "16*batch_size*seq_len*hidden_size + 4*batch_size*seq_len", 504},
		{LAYER_NORM OWN_SIZES " - ${torch.rsqrt}" OWN_SIZES, "8*batch_size*seq_len*hidden_size", 240},
		{LAYER_NORM "(batch_size,seq_len+1,4*hidden_size)",
		 "32*batch_size*seq_len*hidden_size + 2*batch_size*seq_len + 32*batch_size*hidden_size + "
		 "2*batch_size",
		 32 * 30 + 2 * 6 + 32 * 10 + 4},
		/* (1 + 1) * (rsqrt of one row: 2) rows, twice that */
		{"${torch.rsqrt}((1+1)*${torch.rsqrt}(1,1,1), 1, 1)", "8", 8},
		{"${torch.var_mean}(batch_size*batch_size, 1, 7)", "28*batch_size*batch_size", 112},
		{" ( 3 )\n\t* batch_size ", "3*batch_size", 6},
		{"-batch_size + 5", "-batch_size + 5", 3},
		{"batch_size - batch_size", "0", 0},
		{"batch_size + hidden_size*hidden_size", "hidden_size*hidden_size + batch_size", 27},
		{"${evenkeel.rms_norm}" OWN_SIZES, "4*batch_size*seq_len*hidden_size + 4*batch_size*seq_len",
		 144},
	};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		ek_status status = expand(cases[i].text, &cost);
		EXPECT(status == EK_OK, "%s: %s", cases[i].text, ek_error(NULL));
		EXPECT(strcmp(cost.total.symbols.flops, cases[i].flops) == 0 &&
			       cost.total.flops == cases[i].number,
		       "%s is %s = %lld, not %s = %lld", cases[i].text, cost.total.symbols.flops,
		       (long long)cost.total.flops, cases[i].flops, (long long)cases[i].number);
	}
}

TEST(a_reference_in_an_argument_is_of_the_same_metric)
{
	static ek_cost cost;
	/* rsqrt: 2 FLOP, 4 bytes read, 4 written for each row; batch_size is rsqrt of one row */
	EXPECT(expand("${torch.rsqrt}(${torch.rsqrt}(1, 1, 1), 1, 1)", &cost) == EK_OK, "%s", ek_error(NULL));
	expect_numbers(&cost.total, 4, 16, 16);
	EXPECT(strcmp(cost.total.symbols.read_bytes, "a_bytes*a_bytes") == 0, "%s",
	       cost.total.symbols.read_bytes);
	EXPECT(cost.kernel_count == 1 && strcmp(cost.kernels[0].name, "torch.rsqrt") == 0,
	       "%d references are listed", cost.kernel_count);
}

TEST(a_reference_to_what_is_not_launched_costs_nothing)
{
	static const int without[] = {EK_NO_WEIGHT | EK_NO_BIAS, EK_NO_BIAS, EK_NO_WEIGHT};
	static const char addcmul[] = "${torch.addcmul}" OWN_SIZES;
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(without); i++) {
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
		args.absent = without[i];
		cost.size = sizeof cost;
		EXPECT(ek_reference_cost(addcmul, &args, &cost) == EK_OK, "%s", ek_error(NULL));
		expect_numbers(&cost.total, 0, 0, 0);
		EXPECT(strcmp(cost.kernels[0].origin, "affine of layer_norm, variant reference, not launched "
						      "with these operands") == 0,
		       "it comes from %s", cost.kernels[0].origin);
	}
	EXPECT(expand(addcmul, &cost) == EK_OK && !strstr(cost.kernels[0].origin, "not launched"),
	       "it comes from %s", cost.kernels[0].origin);
	expect_numbers(&cost.total, 2 * 30, 30 * 4 + 2 * 5 * 4, 30 * 4);
}

TEST(symbols_of_references_are_listed_with_the_totals)
{
	static const char *const names[] = {"batch_size", "seq_len", "hidden_size", "a_bytes"};
	static ek_cost cost;
	EXPECT(expand("${torch.var_mean}(1, 1, 1) + hidden_size", &cost) == EK_OK, "%s", ek_error(NULL));
	EXPECT(cost.symbol_count == COUNT_OF(names), "%d symbols", cost.symbol_count);
	for (int i = 0; i < COUNT_OF(names) && i < cost.symbol_count; i++)
		EXPECT(strcmp(cost.symbols[i].name, names[i]) == 0, "symbol %d is %s, not %s", i,
		       cost.symbols[i].name, names[i]);
}

TEST(every_reference_is_known)
{
	static ek_cost cost;
	char text[200];
	int count = 0;
	for (; ek_reference_name(count); count++) {
		(void)snprintf(text, sizeof text, "${%s}" OWN_SIZES, ek_reference_name(count));
		EXPECT(expand(text, &cost) == EK_OK, "%s: %s", text, ek_error(NULL));
		EXPECT(cost.total.read_bytes > 0, "%s reads nothing", text);
	}
	EXPECT(count >= 10 && !ek_reference_name(-1), "%d references", count);
}

TEST(a_reference_to_an_op_costs_what_the_op_costs)
{
	static const struct {
		const char *name;
		ek_norm norm;
		ek_pass pass;
		ek_variant variant;
	} ops[] = {
		{"torch.nn.LayerNorm", EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.functional.layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.RMSNorm", EK_RMS_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.functional.rms_norm", EK_RMS_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.native_layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH},
		{"torch.native_layer_norm_backward", EK_LAYER_NORM, EK_BACKWARD, EK_PYTORCH},
		{"evenkeel.layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL},
		{"evenkeel.rms_norm", EK_RMS_NORM, EK_FORWARD, EK_EVENKEEL},
	};
	static const ek_dtype stats[] = {(ek_dtype)0, EK_F32, EK_F16, EK_F64};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(ops) * COUNT_OF(stats); i++) {
		int op = i / COUNT_OF(stats);
		char text[200];
		ek_cost_args args = args_of(ops[op].norm, ops[op].pass, ops[op].variant);
		args.hidden_size = 8; /* statistics are a good part of the bytes */
		args.stats_dtype = stats[i % COUNT_OF(stats)];
		args.absent = args.norm == EK_RMS_NORM ? EK_NO_BIAS : 0;
		const ek_cost_kernel *total = &cost_of(&args)->total;
		(void)snprintf(text, sizeof text, "${%s}" OWN_SIZES, ops[op].name);
		cost.size = sizeof cost;
		EXPECT(ek_reference_cost(text, &args, &cost) == EK_OK, "%s: %s", text, ek_error(NULL));
		expect_numbers(&cost.total, total->flops, total->read_bytes, total->write_bytes);
		expect_numbers(&cost.kernels[0], total->flops, total->read_bytes, total->write_bytes);
	}
}

TEST(bad_expressions_get_a_caret)
{
	static const struct {
		const char *text, *what;
		int place;
	} cases[] = {
		{"", "a number, a variable, a reference or a ( is missing", 0},
		{"2*", "a number, a variable, a reference or a ( is missing", 2},
		{"2*(3", "a ) is missing", 4},
		{"2)", "an operator (+, - or *) is missing", 1},
		{"2 3", "an operator (+, - or *) is missing", 2},
		{"2x", "a number must be whole, with an operator behind it", 1},
		{"1.5*batch_size", "a number must be whole, with an operator behind it", 1},
		{"99999999999999999999", "a number does not fit 64 bits", 0},
		{"3 + rows",
		 "unknown variable rows, must be batch_size, seq_len, hidden_size, a_bytes or w_bytes", 4},
		{"$torch.rsqrt(1,1,1)", "a { must follow the $ of a reference", 1},
		{"${}(1,1,1)", "a name is missing", 2},
		{"${torch.rsqrt(1,1,1)", "a } is missing", 13},
		{"${torch.exp}(1,1,1)", "unknown reference torch.exp, must be torch.nn.LayerNorm, ", 2},
		{"${torch.rsqrt}", "a reference must be followed by (batch_size, seq_len, hidden_size)", 14},
		{"${torch.rsqrt}(1,1)", "a reference has three arguments: a , is missing", 18},
		{"${torch.rsqrt}(1,1,1,1)", "a reference has three arguments: a ) is missing", 20},
		{"${torch.rsqrt}(1,,1)", "a number, a variable, a reference or a ( is missing", 17},
		{"${torch.rsqrt}(batch_size - 2,1,1)",
		 "the batch_size of this reference is 0, must be at least 1", 2},
		{"${torch.rsqrt}(${torch.Tensor.to}(1,1,1),1,1)",
		 "the batch_size of this reference is 0 where FLOPs are counted, must be at least 1", 2},
		/* An inner reference whose own argument is wrong, and one beside another. */
		{"${torch.rsqrt}(${torch.rsqrt}(1,1,0),1,1)",
		 "the hidden_size of this reference is 0, must be at least 1", 17},
		{"${torch.rsqrt}(${torch.rsqrt}(1,1,1),1,1)*${torch.rsqrt}(0,1,1)",
		 "the batch_size of this reference is 0, must be at least 1", 44},
		{"2 * \xc3\xa4", "a character is not plain ASCII", 4},
		{"1 + ${torch.rsqrt}(1,0,1)", "the seq_len of this reference is 0, must be at least 1", 6},
		{"9223372036854775807 + 1", "a factor does not fit 64 bits", 21},
		{"9223372036854775807*2", "a factor does not fit 64 bits", 20},
		{"((((((((((((((((1))))))))))))))))", "it is nested more than 16 deep", 16},
	};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		char expected[512];
		(void)snprintf(expected, sizeof expected, "\n  %s\n  %*s", cases[i].text, cases[i].place + 1,
			       "^");
		EXPECT(expand(cases[i].text, &cost) == EK_ERROR_ARGUMENT, "%s is taken", cases[i].text);
		const char *message = ek_error(NULL), *lines = strchr(message, '\n');
		EXPECT(strncmp(message, cases[i].what, strlen(cases[i].what)) == 0, "%s: %s, not %s",
		       cases[i].text, message, cases[i].what);
		EXPECT(lines && strcmp(lines, expected) == 0, "%s: the caret is elsewhere%s", cases[i].text,
		       lines ? lines : "");
	}
}

TEST(expressions_that_are_too_much_are_refused)
{
#define SUM "(batch_size+seq_len+hidden_size+a_bytes+w_bytes)"
	static char blanks[400];
	static const struct {
		const char *text, *says;
	} cases[] = {{blanks, "399 characters"},
		     {"2\x01+\xff", "a character is not plain ASCII\n  2?+\xff\n   ^"},
		     {NULL, "text is NULL"},
		     {"4611686018427387904*batch_size", "do not fit 64 bits"},
		     {"batch_size - 5", "the expression is below 0 at these sizes: its FLOPs are -3"},
		     /* FLOP, read, written: 12, 24, 24 of rsqrt; 120, 120, 48 of var_mean */
		     {"3*${torch.var_mean}" OWN_SIZES " - 10*${torch.rsqrt}" OWN_SIZES,
		      "its bytes written are -96"},
		     {SUM "*" SUM "*" SUM "*" SUM "*" SUM, "more than 64 terms"}}; /* from few characters */
	static ek_cost cost;
	memset(blanks, ' ', sizeof blanks - 1);
	for (int i = 0; i < COUNT_OF(cases); i++)
		EXPECT(expand(cases[i].text, &cost) == EK_ERROR_ARGUMENT &&
			       strstr(ek_error(NULL), cases[i].says),
		       "%s: %s", cases[i].says, ek_error(NULL));
}

/* Whatever the text: an answer, or a message whose caret is under the text. */
TEST(mutated_expressions_end_in_an_answer_or_a_caret)
{
	static const char letters[] = "${}()+-*,. 0123456789abchsz_";
	static const char seed_text[] =
		"2*${torch.rsqrt}(batch_size, (seq_len + 1)*3, ${torch.rsqrt}(1,1,1)) - 7";
	static ek_cost cost;
	uint64_t state = 1;
	int64_t answers = 0, carets = 0;
	for (int64_t i = 0; i < test_scaled(20000); i++) {
		char text[sizeof seed_text];
		memcpy(text, seed_text, sizeof text);
		for (int64_t k = random_below(&state, 4); k >= 0; k--)
			text[random_below(&state, (int64_t)strlen(text))] =
				letters[random_below(&state, (int64_t)strlen(letters))];
		if (random_below(&state, 4) == 0)
			text[random_below(&state, (int64_t)strlen(text))] = 0;
		if (expand(text, &cost) == EK_OK) {
			answers++;
			continue;
		}
		const char *caret = strrchr(ek_error(NULL), '\n');
		carets++;
		EXPECT(strstr(ek_error(NULL), "64 bits") || strstr(ek_error(NULL), "is below 0") ||
			       (caret && caret[strlen(caret) - 1] == '^' &&
				strlen(caret) <= strlen(text) + 4),
		       "%s: %s", text, ek_error(NULL));
	}
	EXPECT(answers > 0 && carets > 0, "%lld answers, %lld carets", (long long)answers, (long long)carets);
}

TEST(a_refused_cost_is_not_written)
{
	static ek_cost cost, before;
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	memset(&before, 0xA5, sizeof before);
	before.size = sizeof before;
	args.batch_size = INT64_MAX / 2048 / 4096 / 8; /* the first kernels fit 64 bits, the total does not */
	memcpy(&cost, &before, sizeof cost);
	EXPECT(ek_norm_cost(&args, &cost) == EK_ERROR_ARGUMENT && memcmp(&cost, &before, sizeof cost) == 0,
	       "a refused ek_norm_cost writes");
	EXPECT(expand("batch_size - 5", &cost) == EK_ERROR_ARGUMENT &&
		       memcmp(&cost, &before, sizeof cost) == 0,
	       "a refused ek_reference_cost writes");
}
