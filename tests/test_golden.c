/* Digests of a list of cases, kept in tests/golden/numerics-v1.txt: bits that changed since they were
 * written down are found even where reference and kernels changed together.
 * `test_golden [FILE]` checks every level against the file, `test_golden --update [FILE]` writes it from
 * the reference. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#ifndef EK_GOLDEN_FILE
#define EK_GOLDEN_FILE "tests/golden/numerics-v1.txt"
#endif

struct golden {
	struct test_case c;
	uint64_t digest;
};

static const char *path = EK_GOLDEN_FILE;

/* The list: shapes that meet each rule's corners, in turn with forms and fillings. Inputs depend on the
 * case alone; statistics are arbitrary or recomputed, never the result of another call. */
static int golden_cases(struct golden *cases, int room)
{
	static const int64_t shapes[][2] = {{1, 1},    {3, 2},    {2, 17},   {5, 64},   {4, 100},
					    {3, 255},  {3, 256},  {3, 257},  {33, 300}, {2, 1000},
					    {2, 1024}, {2, 1025}, {3, 2049}, {2, 4096}, {1, 10007},
					    {1025, 3}, {2050, 5}, {33000, 2}};
	/* every step of R with the width; large, so one pair of dtypes each */
	static const int64_t wide[][2] = {{300, 5000}, {130, 8200}, {40, 16400}, {20, 33000}, {16, 66000}};
	static const char *const forms[] = {("weight bias dx dweight dbias arbitrary " STATISTICS),
					    "weight bias dx dweight dbias",
					    "rstd arbitrary dx dweight accumulate bias"};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_NORMAL, FILL_SPECIAL, FILL_OFFSET,
						FILL_INTEGERS};
	int count = 0;
	for (int s = 0; s < COUNT_OF(shapes) + COUNT_OF(wide); s++)
		for (int k = 0; k < 4 * DTYPE_PAIRS && count < room; k++) {
			bool is_wide = s >= COUNT_OF(shapes);
			const int64_t *shape = is_wide ? wide[s - COUNT_OF(shapes)] : shapes[s];
			if (is_wide && k / 4 != s % DTYPE_PAIRS)
				continue;
			struct test_case c = case_of(k & 1, k & 2 ? EK_RMS_NORM : EK_LAYER_NORM,
						     dtype_pairs[k / 4], shape[0], shape[1]);
			c.filling = fillings[(s * 3 + k) % COUNT_OF(fillings)];
			c.seed = (uint64_t)count;
			case_set(&c, forms[(s + k / 4) % COUNT_OF(forms)]);
			cases[count++].c = c;
		}
	return count;
}

/* Operands beside the norm and choices of dtypes and options, appended: what is above keeps its digests. Ops, forms and choices
 * are named and not counted, so that the list stays as it is when there are more of them. */
static int fused_cases(struct golden *cases, int count, int room, const char *const *ops, int op_count)
{
	static const int64_t shapes[][2] = {{1, 1},    {3, 17},   {2, 64},    {4, 100},  {3, 257}, {33, 300},
					    {2, 1025}, {3, 2049}, {1, 10007}, {1025, 3}, {2050, 5}};
	static const char *const forms[] = {
		("weight bias h x_bias dh dx dresidual dweight dbias dx_bias dgate arbitrary " STATISTICS),
		"weight h dh dx dweight",
		"weight bias x_bias dx dresidual dweight dbias dx_bias rstd arbitrary accumulate",
		"bias h dh dx dresidual dx_bias dgate"};
	static const struct {
		ek_dtype h_dtype, y_dtype, gradient_dtype; /* left out where they do not go with the dtype */
		int weight_offset, rounding;
	} choices[] = {{0, 0, 0, 0, 0},
		       {EK_F32, 0, 0, 0, 0},
		       {0, EK_F32, EK_F32, 1, 0},
		       {EK_F32, EK_BF16, 0, 0, 1},
		       {0, EK_F16, 0, 1, 1},
		       {EK_F32, EK_F32, EK_F32, 0, 1},
		       {0, 0, 0, 1, 1}};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_OFFSET, FILL_INTEGERS,
						FILL_NORMAL};
	const struct ek_op_entry *op = ek_ops;
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < PASS_COUNT * op_count && count < room; k++) {
			for (op = ek_ops; strcmp(op->name, ops[k / 2]) != 0;)
				op++;
			struct test_case c = case_make(op, k % 2 ? BACKWARD : FORWARD,
						       dtype_pairs[(s + k * 5 / 2) % DTYPE_PAIRS],
						       shapes[s][0], shapes[s][1]);
			int chosen = (s * 3 + k) % COUNT_OF(choices);
			bool residual = op->in_forward.needs && (c.pass == FORWARD || case_has(&c, "dh"));
			c.h_dtype = residual ? choices[chosen].h_dtype : (ek_dtype)0;
			c.y_dtype = choices[chosen].y_dtype;
			c.gradient_dtype = choices[chosen].gradient_dtype;
			c.weight_offset = choices[chosen].weight_offset;
			c.rounding = choices[chosen].rounding;
			c.activation = op->usual[EK_CHOICE_ACTIVATION] ? 1 + (s + k) % EK_GELU_TANH : 0;
			c.gate_first = (s + k / 2) % 2;
			c.filling = fillings[(s + k) % COUNT_OF(fillings)];
			c.seed = (uint64_t)count;
			case_set(&c, forms[(s + k / 2) % COUNT_OF(forms)]);
			cases[count++].c = c;
		}
	return count;
}

/* Groups of columns, of all ops; appended. */
static int group_cases(struct golden *cases, int count, int room)
{
	static const int64_t shapes[][3] = {{3, 6, 1},       {5, 40, 8},       {4, 90, 30},
					    {3, 514, 257},   {2, 3072, 1024},  {1030, 12, 4},
					    {2, 4100, 2050}, {1, 36000, 12000}};
	static const char *const ops[] = {
		"layer_norm",          "rms_norm",          "add_layer_norm", "add_rms_norm",
		"layer_norm_residual", "rms_norm_residual", "layer_norm_act", "rms_norm_act",
		"layer_norm_gated",    "rms_norm_gated"};
	static const char *const forms[] = {
		("weight bias h x_bias dh dx dresidual dweight dbias dx_bias dgate arbitrary " STATISTICS),
		"weight bias x_bias dx dweight dbias dx_bias dgate"};
	const struct ek_op_entry *op = ek_ops;
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < PASS_COUNT * COUNT_OF(ops) && count < room; k++) {
			for (op = ek_ops; strcmp(op->name, ops[k / 2]) != 0;)
				op++;
			struct test_case c = case_make(op, k % 2 ? BACKWARD : FORWARD,
						       dtype_pairs[(s + k * 5 / 2) % DTYPE_PAIRS],
						       shapes[s][0], shapes[s][1]);
			c.group_cols = shapes[s][2];
			c.activation = op->usual[EK_CHOICE_ACTIVATION] ? 1 + (s + k) % EK_GELU_TANH : 0;
			c.gate_first = (s + k / 2) % 2;
			c.weight_offset = (s + k) % 5 == 0;
			c.filling = (s + k) % 4 == 3 ? FILL_OFFSET : FILL_NORMAL;
			c.seed = (uint64_t)count;
			case_set(&c, forms[(s + k / 2) % COUNT_OF(forms)]);
			cases[count++].c = c;
		}
	return count;
}

/* A residual before the norm and an activation of its result, which no op of the registry has together; appended. */
static int added_cases(struct golden *cases, int count, int room)
{
	static const int64_t shapes[][2] = {{3, 17}, {4, 100}, {2, 257}, {33, 300}, {2, 1025}, {1025, 3}};
	static const char *const forms[] = {
		("weight bias residual h x_bias dy dh dx dresidual dweight dbias dx_bias arbitrary " STATISTICS),
		"weight residual dy dx dresidual dweight", "bias residual h x_bias dy dh dx dbias dx_bias"};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < PASS_COUNT * OPEN_OPS && count < room; k++) {
			struct test_case c = case_make(&open_ops[k / 2], k % 2 ? BACKWARD : FORWARD,
						       dtype_pairs[(s + k * 5 / 2) % DTYPE_PAIRS],
						       shapes[s][0], shapes[s][1]);
			c.activation = 1 + (s + k) % EK_GELU_TANH;
			c.h_dtype = s % 2 ? EK_F32
					  : (ek_dtype)0; /* left out where they do not go with the dtype */
			c.y_dtype = s % 3 ? (ek_dtype)0 : EK_F32;
			c.rounding = (s + k / 2) % 2;
			c.filling = (s + k) % 4 == 3 ? FILL_OFFSET : FILL_NORMAL;
			c.seed = (uint64_t)count;
			case_set(&c, forms[(s + k / 2) % COUNT_OF(forms)]);
			case_drop(&c, k % 2 ? "x_bias" : ""); /* backward's x is h */
			cases[count++].c = c;
		}
	return count;
}

/* RoPE and the norms of heads; appended. Seeds are the cases' own. */
static int rope_cases(struct golden *cases, int count, int room)
{
	static const struct head_sizes shapes[] = {
		{1, 1, 1, 1, 2, 2},      {2, 3, 4, 2, 10, 6},   {1, 5, 2, 1, 17, 16}, {2, 2, 3, 3, 64, 64},
		{1, 33, 4, 1, 40, 20},   {2, 3, 2, 1, 128, 96}, {1, 2, 8, 2, 80, 80}, {1, 3, 2, 1, 257, 64},
		{1, 2, 1, 1, 1024, 512}, {1, 1030, 1, 1, 6, 4}, {2, 700, 3, 1, 4, 4}};
	static const char *const ops[] = {"rope", "qk_norm_rope"};
	static const char *const forms[] = {
		"k k_out q_bias k_bias q_weight k_weight dq dk dq_bias dk_bias dq_weight dk_weight",
		"k k_out q_weight positions dq dk dq_weight dk_weight", "q_bias dq dq_bias positions",
		"k k_out k_bias k_weight dk dk_bias dk_weight accumulate"};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_INTEGERS, FILL_OFFSET};
	const struct ek_op_entry *op = ek_ops;
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < 3 * PASS_COUNT * COUNT_OF(ops) && count < room; k++) {
			int turn = s * 7 + k * 5;
			for (op = ek_ops; strcmp(op->name, ops[k / PASS_COUNT % COUNT_OF(ops)]) != 0;)
				op++;
			struct test_case c = case_make_heads(op, k % PASS_COUNT ? BACKWARD : FORWARD,
							     dtype_pairs[turn % DTYPE_PAIRS], shapes[s]);
			c.interleaved = turn / 2 % 2;
			c.trailing = turn / 3 % 2;
			c.norm = turn % 2 ? EK_LAYER_NORM : EK_RMS_NORM;
			c.norm_last = turn / 5 % 3 == 0;
			c.weight_offset = turn / 4 % 2;
			c.table_dtype = turn / 7 % 2 ? EK_F32 : (ek_dtype)0;
			c.gradient_dtype = turn / 6 % 2 ? EK_F32 : (ek_dtype)0;
			c.first_row = turn % 3;
			c.table_step = turn / 2 % 2 * c.seq;
			c.table_rows = c.first_row + c.seq + (c.batch - 1) * c.table_step;
			c.filling = fillings[(s + k) % COUNT_OF(fillings)];
			c.seed = (uint64_t)(s * 100 + k);
			case_set(&c, forms[(s + k / 2) % COUNT_OF(forms)]);
			cases[count++].c = c;
		}
	return count;
}

/* Gated activations; appended. Seeds are the cases' own. */
static int glu_cases(struct golden *cases, int count, int room)
{
	static const int64_t shapes[][2] = {{1, 1},     {3, 2},    {2, 17},   {5, 64},
					    {4, 100},   {3, 257},  {33, 300}, {2, 1025},
					    {1, 10007}, {1025, 3}, {2050, 5}, {300, 5000}};
	static const char *const ops[] = {"glu", "swiglu", "geglu", "bias_act"};
	static const char *const forms[] = {"gate_bias value_bias dgate dvalue dgate_bias dvalue_bias",
					    "dgate dvalue", "gate_bias dgate dgate_bias accumulate",
					    "value_bias dvalue dgate_bias dvalue_bias"};
	static const enum filling fillings[] = {FILL_NORMAL, FILL_SPECIAL, FILL_OFFSET, FILL_NORMAL,
						FILL_INTEGERS};
	const struct ek_op_entry *op = ek_ops;
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < 2 * PASS_COUNT * COUNT_OF(ops) && count < room; k++) {
			const int turn = s * 7 + k * 5, limits = turn % 3;
			for (op = ek_ops; strcmp(op->name, ops[k / PASS_COUNT % COUNT_OF(ops)]) != 0;)
				op++;
			struct test_case c =
				case_make(op, k % PASS_COUNT ? BACKWARD : FORWARD,
					  dtype_pairs[turn % DTYPE_PAIRS], shapes[s][0], shapes[s][1]);
			c.activation = 1 + (turn / 2 + s) % EK_RELU_SQUARED;
			c.interleaved = turn / 3 % 4 == 0;
			c.gradient_dtype = turn / 5 % 2 ? EK_F32 : (ek_dtype)0;
			c.limit = limits ? 0.75 * limits : 0;
			c.alpha = limits == 1 ? 1.702 : 0;
			c.value_offset = limits == 2 ? 1 : 0;
			c.filling = fillings[(s + k) % COUNT_OF(fillings)];
			c.seed = (uint64_t)(s * 100 + k);
			case_set(&c, forms[(s + k / PASS_COUNT) % COUNT_OF(forms)]);
			cases[count++].c = c;
		}
	return count;
}

/* Every third of these with the identity; appended. */
static int identity_cases(struct golden *cases, int first, int count, int room)
{
	const int end = count;
	for (int i = first; i < end && count < room; i++) {
		struct test_case c = cases[i].c;
		if (i % 3 || !(c.op->activations >> EK_IDENTITY & 1))
			continue;
		c.activation = EK_IDENTITY;
		c.alpha = 0;
		cases[count++].c = c;
	}
	return count;
}

static uint64_t digest_case(const struct test_case *c, const char *level)
{
	ek_context *ctx = context_of((struct setting){level, strcmp(level, "reference") == 0 ? 1 : 2, PLAIN});
	uint64_t digest = DIGEST_START;
	case_fill(c);
	ek_status status = case_call(ctx, c, &case_actual);
	EXPECT(status == EK_OK, "%s, level %s: %s", case_text(c), level, ek_error(ctx));
	for (int i = 0; i < case_op(c)->output_count; i++) {
		struct operand *o = &case_actual.of[i];
		if (o->present)
			digest = operand_digest(digest, o);
	}
	return digest;
}

static struct golden cases[2048];
static int count;

static void write_file(void)
{
	FILE *file = fopen(path, "w");
	if (!file) {
		perror(path);
		exit(1);
	}
	fprintf(file,
		"# Digests of the reference's results, numerics version %d: what the case is, then 64-bit FNV-1a of all\n"
		"# outputs, in the order of the op's table (little-endian; NaN as 0x7ff8).\n"
		"# `make golden` writes this file; it changes only with EK_NUMERICS_VERSION.\n",
		ek_numerics_version());
	for (int i = 0; i < count; i++)
		fprintf(file, "%016llx  %s\n", (unsigned long long)digest_case(&cases[i].c, "reference"),
			case_text(&cases[i].c));
	(void)fclose(file);
	printf("%d digests written to %s\n", count, path);
}

SETUP()
{
	if (test_argument)
		path = test_argument;
	static const char *const before[] = {"add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"};
	static const char *const after[] = {"layer_norm_residual", "rms_norm_residual"};
	static const char *const activated[] = {"layer_norm_act", "rms_norm_act"};
	static const char *const gated[] = {"layer_norm_gated", "rms_norm_gated"};
	count = golden_cases(cases, COUNT_OF(cases));
	count = fused_cases(cases, count, COUNT_OF(cases), before, COUNT_OF(before));
	count = fused_cases(cases, count, COUNT_OF(cases), after, COUNT_OF(after));
	count = fused_cases(cases, count, COUNT_OF(cases), activated, COUNT_OF(activated));
	count = fused_cases(cases, count, COUNT_OF(cases), gated, COUNT_OF(gated));
	count = group_cases(cases, count, COUNT_OF(cases));
	count = added_cases(cases, count, COUNT_OF(cases));
	count = rope_cases(cases, count, COUNT_OF(cases));
	const int gated_activations = count;
	count = glu_cases(cases, count, COUNT_OF(cases));
	count = identity_cases(cases, gated_activations, count, COUNT_OF(cases));
	if (test_update)
		write_file();
}

/* Reads the digests and sees that the file lists the cases of this program, in order. */
TEST(the_file_lists_these_cases)
{
	FILE *file = fopen(path, "r");
	char line[1024];
	int found = 0;
	if (!file) {
		test_fail("%s cannot be read", path);
		return;
	}
	while (fgets(line, sizeof(line), file)) {
		unsigned long long digest;
		int text = 0;
		line[strcspn(line, "\n")] = 0;
		if (line[0] == '#')
			continue;
		if (sscanf(line, "%16llx  %n", &digest, &text) != 1 || found == count ||
		    strcmp(line + text, case_text(&cases[found].c)) != 0) {
			test_fail("%s: case %d is \"%s\", expected \"%s\"", path, found, line,
				  found < count ? case_text(&cases[found].c) : "no more");
			break;
		}
		cases[found++].digest = digest;
	}
	EXPECT(found == count, "%s has %d cases, the list has %d", path, found, count);
	fclose(file);
}

static void check_level(const char *level)
{
	for (int i = 0; i < count; i += test_mode == TEST_SHORT ? 5 : 1) {
		if (!test_in_slice())
			continue;
		uint64_t digest = digest_case(&cases[i].c, level);
		EXPECT(digest == cases[i].digest, "%s, level %s: digest %016llx, the file has %016llx",
		       case_text(&cases[i].c), level, (unsigned long long)digest,
		       (unsigned long long)cases[i].digest);
	}
}

TEST(the_reference_has_the_golden_bits)
{
	check_level("reference");
}

TEST(every_level_has_the_golden_bits)
{
	for (int i = 0; i < level_count(); i++)
		check_level(level_name(i));
}
