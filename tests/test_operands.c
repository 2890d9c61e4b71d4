/* Operand tables of ops that are not norms: extents of four dimensions with strides, a dtype for each operand, results in
 * place of inputs of another width. The op is made up; its tables go through what every op's do (core/check_op.h,
 * core/operand.h). SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/check_op.h"
#include "core/require.h"
#include "support_runner.h"

/* out[b][s][h][d] of q; sums[h] of it, of each part of d. */
struct rotate_args {
	size_t size;
	int kind;
	ek_dtype dtype, out_dtype;
	int64_t batch, seq, heads, dim, part;
	int64_t q_batch, q_seq, q_head, out_batch, out_seq, out_head;
	const void *q, *table;
	void *out, *sums;
	void *stream;
};

enum { BATCH, SEQ, HEADS, DIM, PART, SIZES };
enum { OUT, SUMS, OUTPUTS, Q = OUTPUTS, TABLE, OPERANDS };

#define FIELD(field) offsetof(struct rotate_args, field)
#define SIZE(field)                                                     \
	{                                                               \
		.name = #field, .offset = FIELD(field), .most = 1 << 20 \
	}
#define STRIDED(number, field)                                                  \
	{                                                                       \
		.size = (number), .stride = FIELD(field), .stride_name = #field \
	}
#define DENSE(number)            \
	{                        \
		.size = (number) \
	}

static const struct ek_operand operands[OPERANDS] = {
	[OUT] = {.name = "out",
		 .pointer = FIELD(out),
		 .dtype = FIELD(out_dtype),
		 .flags = EK_OUTPUT,
		 .rank = 4,
		 .dims = {STRIDED(BATCH, out_batch), STRIDED(SEQ, out_seq), STRIDED(HEADS, out_head),
			  DENSE(DIM)},
		 .in_place = 1u << Q},
	[SUMS] = {.name = "sums",
		  .pointer = FIELD(sums),
		  .flags = EK_OUTPUT | EK_OPTIONAL,
		  .rank = 1,
		  .dims = {{HEADS, 0, NULL, .pieces = PART + 1}}},
	[Q] = {.name = "q",
	       .pointer = FIELD(q),
	       .dtype = FIELD(dtype),
	       .rank = 4,
	       .dims = {STRIDED(BATCH, q_batch), STRIDED(SEQ, q_seq), STRIDED(HEADS, q_head), DENSE(DIM)}},
	[TABLE] = {.name = "table",
		   .pointer = FIELD(table),
		   .flags = EK_OPTIONAL,
		   .rank = 2,
		   .dims = {DENSE(SEQ), DENSE(DIM)},
		   .needs = {.number = SUMS + 1}},
};

static const struct ek_op op = {.function = "ek_rotate",
				.args_size = sizeof(struct rotate_args),
				.first_args_size = FIELD(stream),
				.size_count = SIZES,
				.sizes = {SIZE(batch), SIZE(seq), SIZE(heads),
					  SIZE(dim), [PART] = {"part", FIELD(part), .cuts = DIM + 1}},
				.operands = operands,
				.operand_count = OPERANDS,
				.output_count = OUTPUTS,
				.kind = FIELD(kind),
				.dtype = FIELD(dtype),
				.stream = FIELD(stream)};

static float memory[4096];

/* Two sequences of 3 with 4 heads of 8. */
static struct rotate_args args_of(void)
{
	return (struct rotate_args){.size = sizeof(struct rotate_args),
				    .kind = 1,
				    .dtype = EK_F32,
				    .out_dtype = EK_F32,
				    .batch = 2,
				    .seq = 3,
				    .heads = 4,
				    .dim = 8,
				    .q = memory,
				    .out = memory + 1024};
}

static ek_status check(const struct rotate_args *args, struct rotate_args *resolved)
{
	const ek_context ctx = {.device = EK_CPU};
	PASS_ON(ek_check_struct(&op, &ctx, args, resolved));
	PASS_ON(ek_check_sizes(&op, resolved));
	PASS_ON(ek_check_strides(&op, resolved));
	PASS_ON(ek_check_presence(&op, resolved));
	return ek_check_memory(&op, resolved, 0);
}

static void expect(const char *what, const struct rotate_args *args, ek_status wanted, const char *says)
{
	struct rotate_args resolved;
	ek_status status = check(args, &resolved);
	EXPECT(status == wanted && (!says || strstr(ek_error(NULL), says)), "%s: %s: %s", what,
	       ek_status_name(status), ek_error(NULL));
}

TEST(dense_strides_are_filled_in)
{
	struct rotate_args args = args_of(), resolved;
	EXPECT(check(&args, &resolved) == EK_OK, "%s", ek_error(NULL));
	EXPECT(resolved.q_head == 8 && resolved.q_seq == 32 && resolved.q_batch == 96, "strides %d, %d, %d",
	       (int)resolved.q_head, (int)resolved.q_seq, (int)resolved.q_batch);
	EXPECT(ek_operand_elements(&op, &operands[Q], &resolved) == 192, "elements");
	EXPECT(ek_operand_bytes(&op, &operands[Q], &resolved) == 192 * 4, "bytes");
	EXPECT(ek_operand_bytes(&op, &operands[Q], &args) == 192 * 4,
	       "bytes before the strides are filled in");
}

/* [batch, heads, seq, dim], and one of three tensors side by side. */
TEST(strided_views_are_taken)
{
	struct rotate_args args = args_of(), resolved;
	args.out_seq = 8;
	args.out_head = 24;
	args.out_batch = 96;
	args.q_head = 8;
	args.q_seq = 3 * 32;
	EXPECT(check(&args, &resolved) == EK_OK, "%s", ek_error(NULL));
	EXPECT(resolved.q_batch == 3 * 96, "a dense batch of strided rows is %d apart",
	       (int)resolved.q_batch);
	EXPECT(ek_operand_bytes(&op, &operands[OUT], &resolved) == 192 * 4, "bytes of a transposed view");
	EXPECT(ek_operand_bytes(&op, &operands[Q], &resolved) == ((size_t)288 + 2 * 96 + 3 * 8 + 8) * 4,
	       "bytes of a view with gaps");
	args.q_seq = 7;
	expect("a stride that is too small", &args, EK_ERROR_ARGUMENT, "q_seq (7) is smaller than dim (8)");
	args.q_seq = INT64_MAX / 8;
	expect("a stride that is too large", &args, EK_ERROR_ARGUMENT, "q_seq");
}

TEST(results_go_in_place_of_what_they_may)
{
	struct rotate_args args = args_of();
	args.out = memory;
	expect("in place", &args, EK_OK, NULL);
	args.out_seq = 8;
	args.out_head = 24;
	args.out_batch = 96;
	expect("in place of another layout", &args, EK_ERROR_OVERLAP, "out [");
	args = args_of();
	args.out = memory;
	args.out_batch = 128;
	expect("in place of other sequences", &args, EK_ERROR_OVERLAP, "out [");
	args = args_of();
	args.out = memory;
	args.out_dtype = EK_F64;
	expect("in place of another dtype", &args, EK_ERROR_OVERLAP, "same address, stride and dtype");
	args = args_of();
	args.sums = memory;
	expect("sums over q", &args, EK_ERROR_OVERLAP, "sums [");
	args.sums = memory + 2048;
	args.table = args.sums;
	expect("sums over a table", &args, EK_ERROR_OVERLAP, "overlaps table [");
}

/* The heads of out between those of q. */
TEST(rows_may_interleave)
{
	struct rotate_args args = args_of();
	args.q_head = args.out_head = 16;
	args.out = memory + 8;
	expect("between the rows of q", &args, EK_OK, NULL);
	args.q_seq = args.out_seq =
		64 + 8; /* no multiple of the distance of heads: the next heads of out meet q's */
	expect("rows that are not at one distance", &args, EK_ERROR_OVERLAP, "out [");
}

TEST(each_operand_has_its_dtype)
{
	struct rotate_args args = args_of(), resolved;
	args.dtype = EK_BF16;
	args.out_dtype = EK_F64;
	args.sums = memory + 2048;
	EXPECT(check(&args, &resolved) == EK_OK, "%s", ek_error(NULL));
	EXPECT(ek_operand_bytes(&op, &operands[Q], &resolved) == 192 * 2 &&
		       ek_operand_bytes(&op, &operands[OUT], &resolved) == 192 * 8 &&
		       ek_operand_bytes(&op, &operands[SUMS], &resolved) == 4 * 4,
	       "bytes of bf16, f64 and the arithmetic's f32");
	args.out = (char *)memory + 192 * 2 - 1;
	expect("an output that starts in the last byte of q", &args, EK_ERROR_OVERLAP, "overlaps q");
}

TEST(rules_are_said_by_name)
{
	struct rotate_args args = args_of();
	args.q = NULL;
	expect("without q", &args, EK_ERROR_ARGUMENT, "q is NULL, with batch (2)");
	args.heads = 0;
	expect("without q and heads", &args, EK_OK, NULL);
	args = args_of();
	args.table = memory + 3072;
	expect("a table without sums", &args, EK_ERROR_ARGUMENT,
	       "is given but sums is NULL; table needs sums");
	args = args_of();
	args.seq = -1;
	expect("a negative size", &args, EK_ERROR_ARGUMENT, "seq (-1) must not be negative");
}

TEST(a_size_may_cut_another)
{
	static const int64_t wrong[] = {3, 16, -1, -8, INT64_MIN, INT64_MAX};
	struct rotate_args args = args_of(), resolved;
	args.sums = memory + 2048;
	args.part = 2;
	EXPECT(check(&args, &resolved) == EK_OK && resolved.part == 2, "%s", ek_error(NULL));
	EXPECT(ek_operand_elements(&op, &operands[SUMS], &resolved) == 16 &&
		       ek_operand_bytes(&op, &operands[SUMS], &resolved) == 16 * 4 &&
		       ek_operand_stride(&op, &operands[SUMS], 0, &resolved) == 4,
	       "sums of four heads in four parts each");
	args.table = memory + 2048 + 15;
	expect("sums whose last overlaps a table", &args, EK_ERROR_OVERLAP, "overlaps table [");
	args.table = memory + 2048 + 16;
	expect("sums before a table", &args, EK_OK, NULL);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		args.part = wrong[i];
		expect("a part that does not divide", &args, EK_ERROR_ARGUMENT,
		       "does not divide dim (8); expected a divisor");
	}
	args.part = 8;
	EXPECT(check(&args, &resolved) == EK_OK && resolved.part == 0, "one part is none");
}

TEST(structs_of_earlier_versions_are_prefixes)
{
	struct rotate_args args = args_of(), resolved;
	args.size = FIELD(stream);
	args.stream = memory; /* beyond what the caller has */
	EXPECT(check(&args, &resolved) == EK_OK && !resolved.stream,
	       "a field that the caller lacks is not zero");
	args.size = FIELD(stream) - 1;
	expect("a size below the first version's", &args, EK_ERROR_STRUCT_SIZE, "sizeof(ek_rotate_args)");
	args.size = sizeof args + 1;
	expect("a size of a later version", &args, EK_ERROR_STRUCT_SIZE, "sizeof(ek_rotate_args)");
}

TEST(operands_are_found_by_name)
{
	EXPECT(ek_operand_named(&op, "table") == TABLE && ek_operand_named(&op, "tab") == -1, "names");
}
