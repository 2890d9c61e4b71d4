/* Bad arguments of every op: each is refused with its status and a message that names the argument and its value, by the
 * call and by what prepares it, and not one byte is written; forms that look bad but are allowed are allowed. What is required
 * or needed is written here by hand: the tables are what is tested. Overlaps are in test_overlaps.c. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_arguments.h"
#include "support_fpenv.h"

static ek_context *ctx;

SETUP()
{
	ctx = arguments_open();
}

TEST(good_arguments_are_taken)
{
	for (int n = 0; n < ALL_CALLS; n++) {
		struct call call = call_of(n);
		const struct ek_op *op = call.op;
		allowed("all operands", &call);
		put_strides(&call, STRIDE);
		put_eps(&call, 0);
		put(&call, op->accumulate, 1, sizeof(int));
		args_set_workspace(op, &call.args, arena.workspace, call.workspace + 64);
		allowed("strides, eps 0, accumulate", &call);
		drop(&call, "dweight dbias dx_bias");
		args_set_workspace(op, &call.args, NULL, 0);
		allowed("no column sums", &call);
		for (int i = op->output_count; i < op->operand_count; i++)
			if (ek_operand_pointer(&op->operands[i], &call.args))
				ek_operand_set(&op->operands[i], &call.args, arena.of[op->output_count]);
		allowed("all inputs at one place", &call);
	}
}

TEST(missing_structs)
{
	static const char no_ctx[] = "ctx is NULL: make one with ek_open";
	for (int i = 0; i < 2 * ALL_CALLS; i++) {
		struct call call = call_of(i / 2);
		const struct ek_op *op = call.op;
		ek_status (*function)(ek_context *, const void *) = i % 2 ? op->call : op->prepare;
		char no_args[80];
		size_t bytes = 77;
		(void)snprintf(no_args, sizeof no_args, "args is NULL: give the address of an %s_args",
			       op->function);
		expect_answer("no args", function(ctx, NULL), EK_ERROR_ARGUMENT, SAYS(no_args));
		expect_answer("no ctx", function(NULL, &call.args), EK_ERROR_ARGUMENT, SAYS(no_ctx));
		if (!op->workspace_bytes)
			continue;
		expect_answer("workspace without ctx", op->workspace_bytes(NULL, &call.args, &bytes),
			      EK_ERROR_ARGUMENT, SAYS(no_ctx));
		expect_answer("workspace without args", op->workspace_bytes(ctx, NULL, &bytes),
			      EK_ERROR_ARGUMENT, SAYS(no_args));
		expect_answer("workspace without bytes", op->workspace_bytes(ctx, &call.args, NULL),
			      EK_ERROR_ARGUMENT, SAYS("bytes is NULL: give the address"));
		EXPECT(bytes == 77, "a refused %s_workspace wrote %zu", op->function, bytes);
	}
}

/* With this value in the field, the call is refused by name and value; a field at 0 is one that the op does not have. */
static void refused_value(int number, uint16_t offset, size_t bytes, const char *name, int64_t value)
{
	struct call call = call_of(number);
	char says[64];
	(void)snprintf(says, sizeof says, "%s (%" PRId64 ")", name, value);
	put_strides(&call, 0);
	put(&call, offset, value, bytes);
	if (offset)
		refused(&call, strstr(name, "dtype") ? EK_ERROR_DTYPE : EK_ERROR_ARGUMENT, SAYS(says));
}

TEST(sizes_and_strides_out_of_range)
{
	static const int64_t sizes[] = {-1, -3, INT64_MIN, INT64_MAX},
			     strides[] = {COLS - 1,      1,        -1, INT64_MIN, INT64_MAX / 20,
					  INT64_MAX / 5, INT64_MAX};
	for (int n = 0; n < ALL_CALLS; n++) {
		const struct ek_op *op = call_of(n).op;
		for (int i = 0; i < op->size_count * COUNT_OF(sizes); i++)
			refused_value(n, op->sizes[i % op->size_count].offset, sizeof(int64_t),
				      op->sizes[i % op->size_count].name, sizes[i / op->size_count]);
		refused_value(n, op->sizes[EK_NORM_ROWS].offset, sizeof(int64_t), "rows", INT64_MAX / 100);
		refused_value(n, op->sizes[EK_NORM_COLS].offset, sizeof(int64_t), "cols", 0);
		refused_value(n, op->sizes[EK_NORM_COLS].offset, sizeof(int64_t), "cols", 16777217);
		for (int i = 0; i < op->operand_count * COUNT_OF(strides); i++) {
			const struct ek_dim *dim = &op->operands[i % op->operand_count].dims[0];
			refused_value(n, dim->stride, sizeof(int64_t), dim->stride_name,
				      strides[i / op->operand_count]);
		}
	}
}

/* Groups that do not fill a row, and more of them than there can be statistics. */
TEST(groups_of_columns_out_of_range)
{
	static const int64_t sizes[] = {COLS - 1, COLS + 1, 2 * COLS, -COLS};
	for (int n = 0; n < ALL_CALLS; n++) {
		const struct ek_op *op = call_of(n).op;
		const uint16_t group_cols = op->sizes[EK_NORM_GROUP_COLS].offset;
		struct call call = call_of(n), many = call;
		for (int i = 0; i < COUNT_OF(sizes); i++) {
			char says[96];
			(void)snprintf(says, sizeof says,
				       "group_cols (%" PRId64 ") does not divide cols (%d)", sizes[i], COLS);
			put(&call, group_cols, sizes[i], sizeof(int64_t));
			refused(&call, EK_ERROR_ARGUMENT, SAYS(says, "expected a divisor of it, or 0"));
		}
		put_strides(&many, 0);
		put(&many, op->sizes[EK_NORM_ROWS].offset, INT64_MAX / 32 / COLS + 1, sizeof(int64_t));
		put(&many, group_cols, 1, sizeof(int64_t));
		refused(&many, EK_ERROR_ARGUMENT, SAYS("of group_cols (1), are more than memory can hold"));
	}
}

TEST(unknown_kinds_dtypes_and_switches)
{
	for (int n = 0; n < ALL_CALLS; n++) {
		struct call call = call_of(n);
		const struct ek_op *op = call.op;
		for (int i = 0; i < 2; i++) {
			refused_value(n, op->kind, sizeof(int), "norm", i ? 7 : 0);
			refused_value(n, op->accumulate, sizeof(int), "accumulate", i ? 2 : -1);
			refused_value(n, op->dtype, sizeof(int), "dtype", i ? 9 : 0);
			for (int k = 0; k < op->choice_count; k++) {
				const struct ek_choice *choice = &op->choices[k];
				int first = choice->is_dtype ? 5 : choice->most + 1;
				refused_value(n, op->choice[k], sizeof(int), choice->name, i ? first : -1);
			}
		}
		args_set_stream(op, &call.args, &arena);
		refused(&call, EK_ERROR_ARGUMENT, SAYS("stream (0x", "must be NULL on the CPU"));
	}
}

TEST(bad_eps)
{
	const struct {
		double eps;
		const char *says;
	} cases[] = {{(double)NAN, "eps (nan)"},
		     {copysign((double)NAN, -1), "eps (nan)"},
		     {-1e-5, "eps (-1e-05)"},
		     {(double)INFINITY, "eps (inf)"},
		     {-(double)INFINITY, "eps (-inf)"}};
	for (int i = 0; i < 2 * ALL_CALLS * COUNT_OF(cases); i++) {
		struct call call = call_of(i / 2 % ALL_CALLS);
		put_dtypes(&call, i % 2 ? EK_F64 : EK_F32, (ek_dtype)0);
		put_eps(&call, cases[i / 2 / ALL_CALLS].eps);
		refused(&call, EK_ERROR_ARGUMENT, SAYS(cases[i / 2 / ALL_CALLS].says));
	}
}

static struct call call_of_eps(int number, ek_dtype dtype, double eps)
{
	struct call call = call_of(number);
	put_dtypes(&call, dtype, dtype);
	put_eps(&call, eps);
	return call;
}

/* Whether an eps is finite in binary32 is decided by rounding to nearest, whatever the caller's rounding mode is. */
TEST(eps_must_be_finite_in_the_arithmetic_of_its_dtype)
{
	static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16};
	const double rounds_to_infinity = 0x1.ffffffp127, rounds_to_the_largest = 0x1.fffffefffffffp127;
	const uint64_t fpenv = fpenv_get();
	for (int m = -1; m < FPENV_MODES; m++) {
		fpenv_set(m < 0 ? fpenv : fpenv_modes[m]);
		for (int i = 0; i < ALL_CALLS * COUNT_OF(dtypes); i++) {
			ek_dtype dtype = dtypes[i / ALL_CALLS];
			struct call call = call_of_eps(i % ALL_CALLS, dtype, 1e300);
			refused(&call, EK_ERROR_ARGUMENT,
				SAYS("eps (1e+300)", "binary32", ek_dtype_name(dtype), "3.40282e+38"));
			call = call_of_eps(i % ALL_CALLS, dtype, rounds_to_infinity);
			refused(&call, EK_ERROR_ARGUMENT, SAYS("eps"));
			call = call_of_eps(i % ALL_CALLS, dtype, rounds_to_the_largest);
			allowed("the largest eps", &call);
			call = call_of_eps(i % ALL_CALLS, dtype, 1e-300);
			allowed("an eps that is 0 in binary32", &call);
			call = call_of_eps(i % ALL_CALLS, EK_F64, 1e300);
			allowed("an eps that is finite in binary64", &call);
		}
	}
	fpenv_set(fpenv);
}

/* By hand: of a dtype, those that may follow it; 0 is the same. */
static bool may_follow(const char *name, ek_dtype of, ek_dtype dtype)
{
	bool short_of = of == EK_F16 || of == EK_BF16, is_short = dtype == EK_F16 || dtype == EK_BF16;
	bool narrows = strcmp(name, "y_dtype") == 0 && of == EK_F32 && is_short;
	return (int)dtype == 0 || dtype == of || (short_of && dtype == EK_F32) || narrows;
}

/* Each dtype that a call chooses, beside each dtype of the op; gradients beside each of the weights. */
TEST(dtypes_that_do_not_go_together)
{
	static const char *const names[] = {"weight_dtype", "h_dtype", "y_dtype", "gradient_dtype"};
	for (int i = 0; i < ALL_CALLS * 4 * 5 * COUNT_OF(names); i++) {
		int number = i / ALL_CALLS / 20;
		ek_dtype of = (ek_dtype)(1 + i / ALL_CALLS % 4), dtype = (ek_dtype)(i / ALL_CALLS / 4 % 5);
		struct call call = call_of(i % ALL_CALLS);
		EXPECT(strcmp(call.op->choices[number].name, names[number]) == 0, "choice %d is %s", number,
		       call.op->choices[number].name);
		put_dtypes(&call, of, (ek_dtype)0);
		put(&call, call.op->choice[number], (int64_t)dtype, sizeof dtype);
		(void)args_workspace(call.op, ctx, &call.args, &call.workspace);
		args_set_workspace(call.op, &call.args, arena.workspace, call.workspace);
		if (!call.op->choice[number])
			continue;
		if (may_follow(names[number], of, dtype))
			allowed(names[number], &call);
		else
			refused(&call, EK_ERROR_DTYPE,
				SAYS(names[number], ek_dtype_name(of), ek_dtype_name(dtype)));
	}
	struct call call = call_of(BACKWARD);
	put_dtypes(&call, EK_BF16, EK_F32);
	put(&call, call.op->choice[EK_CHOICE_GRADIENT_DTYPE], EK_BF16, sizeof(int));
	refused(&call, EK_ERROR_DTYPE, SAYS("gradient_dtype bf16 does not go with weight_dtype f32"));
}

TEST(struct_sizes)
{
	for (int n = 0; n < ALL_CALLS; n++) {
		struct call call = call_of(n);
		const size_t sizes[] = {0, 5, call.op->stream, call.op->args_size + (size_t)8};
		for (int i = 0; i < COUNT_OF(sizes); i++) {
			char says[160];
			(void)snprintf(says, sizeof says, "size (%zu) is not sizeof(%s_args)", sizes[i],
				       call.op->function);
			call.args.size = sizes[i];
			refused(&call, EK_ERROR_STRUCT_SIZE,
				SAYS(says, "set .size = sizeof(", "evenkeel.h", EK_VERSION_STRING));
		}
	}
	expect_answer("no description", ek_describe(ctx, NULL), EK_ERROR_ARGUMENT,
		      SAYS("description is NULL: give the address of an ek_description"));
	expect_answer("description without ctx",
		      ek_describe(NULL, &(ek_description){.size = sizeof(ek_description)}), EK_ERROR_ARGUMENT,
		      SAYS("ctx is NULL: make one with ek_open"));
}

/* A caller of 0.1 has the fields of a plain norm alone; what lies behind them in its memory is not read. */
TEST(structs_of_0_1_are_taken)
{
	for (int n = 0; n < CALLS; n++) {
		static struct arena wanted;
		struct call plain = call_of(n), first = call_of(n);
		const struct ek_op *op = plain.op;
		drop(&plain, "x_bias residual h dh dresidual dx_bias");
		EXPECT(op->call(ctx, &plain.args) == EK_OK, "%s", ek_error(ctx));
		wanted = arena;
		arena = before;
		memcpy(&first.args, &plain.args, op->first_args_size);
		memset(first.args.bytes + op->first_args_size, 0x5a,
		       op->args_size - (size_t)op->first_args_size);
		first.args.size = op->first_args_size;
		EXPECT(op->prepare(ctx, &first.args) == EK_OK && op->call(ctx, &first.args) == EK_OK,
		       "%s: %s", op->function, ek_error(ctx));
		EXPECT(memcmp(&arena, &wanted, sizeof arena) == 0, "%s: a struct of 0.1 has another result",
		       op->function);
		arena = before;
	}
}

/* Operands, ! those that are required, and what they need or may share memory with. */
TEST(the_tables_have_the_rules_of_the_header)
{
	static const char *const rules[CALLS] = {
		"y! mean rstd mean_lo h x! weight bias x_bias residual residual_after gate",
		"dx dweight dbias dresidual dx_bias dgate dy x! weight mean rstd mean_lo x_bias dh bias gate",
		"y! rstd h x! weight bias x_bias residual residual_after gate",
		"dx dweight dbias dresidual dx_bias dgate dy x! weight rstd x_bias dh bias gate"};
	for (int n = 0; n < CALLS; n++) {
		struct call call = call_of(n);
		char text[128] = "";
		for (int i = 0; i < call.op->operand_count; i++)
			if (ek_operand_has_kind(&call.op->operands[i], call.entry->kind))
				(void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s",
					       i ? " " : "", call.op->operands[i].name,
					       call.op->operands[i].flags & EK_OPTIONAL ? "" : "!");
		EXPECT(strcmp(text, rules[n]) == 0, "%s: %s, not %s", call.op->function, text, rules[n]);
	}
}

/* Each operand that is required, that another needs, or that this kind of the op does not have. */
TEST(operands_that_must_or_must_not_be_there)
{
	static const struct {
		enum pass pass;
		const char *operand, *needed;
	} needs[] = {{BACKWARD, "mean", "rstd"},
		     {BACKWARD, "rstd", "mean"},
		     {BACKWARD, "mean_lo", "mean"},
		     {FORWARD, "h", "residual"}};
	for (int n = 0; n < CALLS; n++)
		for (int i = 0; i < call_of(n).op->operand_count; i++) {
			struct call call = call_of(n);
			const struct ek_operand *operand = &call.op->operands[i];
			char says[64];
			const bool has = ek_operand_has_kind(operand, call.entry->kind);
			(void)snprintf(says, sizeof says, has ? "%s is NULL, with rows (6)" : "has no %s",
				       operand->name);
			ek_operand_set(operand, &call.args, has ? NULL : arena.of[i]);
			if (!has || !(operand->flags & EK_OPTIONAL))
				refused(&call, EK_ERROR_ARGUMENT, SAYS(operand->name, says));
		}
	for (int i = 0; i < COUNT_OF(needs); i++) {
		struct call call = call_of((int)needs[i].pass);
		char says[64];
		(void)snprintf(says, sizeof says, "%s is NULL; %s needs %s", needs[i].needed,
			       needs[i].operand, needs[i].needed);
		drop(&call, "mean rstd mean_lo residual");
		int number = operand_number(call.op, needs[i].operand);
		ek_operand_set(&call.op->operands[number], &call.args, arena.of[number]);
		refused(&call, EK_ERROR_ARGUMENT, SAYS(says));
	}
	for (int n = 0; n < CALLS; n++)
		for (int i = 0; i < call_of(n).op->operand_count; i++) {
			struct call call = call_of(n);
			if (call.op->operands[i].excludes == 0)
				continue;
			if (call.op->operands[i].with_choice)
				*(int *)ek_field(&call.args, call.op->choice[EK_CHOICE_ACTIVATION]) = EK_SILU;
			ek_operand_set(&call.op->operands[i], &call.args, arena.of[i]);
			refused(&call, EK_ERROR_ARGUMENT,
				SAYS(call.op->operands[i].name, "does not go with"));
		}
	for (int n = 0; n < CALLS; n++)
		for (int i = 0; i < call_of(n).op->operand_count; i++) {
			struct call call = call_of(n);
			const struct ek_operand *operand = &call.op->operands[i];
			if (!operand->with_choice && !operand->without_choice)
				continue;
			int *activation = ek_field(&call.args, call.op->choice[EK_CHOICE_ACTIVATION]);
			drop(&call, "residual h x_bias dx_bias dh dresidual dgate");
			ek_operand_set(operand, &call.args, arena.of[i]);
			*activation = operand->with_choice ? EK_NO_ACTIVATION : EK_GELU;
			refused(&call, EK_ERROR_ARGUMENT, SAYS(operand->name, "activation", "expected NULL"));
			*activation = operand->with_choice ? EK_GELU : EK_NO_ACTIVATION;
			allowed(operand->name, &call);
			*activation = EK_GELU_TANH + 1;
			refused(&call, EK_ERROR_ARGUMENT,
				SAYS("activation (5) is not in", "EK_GELU_TANH (4)"));
			*activation = -1;
			refused(&call, EK_ERROR_ARGUMENT, SAYS("activation (-1) is not in"));
		}
	for (int n = 0; n < CALLS; n++) {
		struct call call = call_of(n);
		drop(&call, "mean_lo");
		allowed("no mean_lo", &call);
		drop(&call, STATISTICS);
		allowed("no statistics", &call);
		drop(&call, "dx dweight dbias dresidual dx_bias");
		if (call.op == call.entry->backward)
			refused(&call, EK_ERROR_ARGUMENT,
				SAYS("dx, dweight, dbias, dresidual, dx_bias and dgate are all NULL"));
	}
}

/* Values that there are not, and the order of a gate that there is not. */
TEST(flavours_and_the_order_of_a_gate_are_checked)
{
	static const struct {
		int choice, value;
		const char *says;
	} wrong[] = {
		{EK_CHOICE_WEIGHT_OFFSET, 2, "weight_offset (2) must be 0 or 1"},
		{EK_CHOICE_WEIGHT_OFFSET, -1, "weight_offset (-1) must be 0 or 1"},
		{EK_CHOICE_ROUNDING, 2, "rounding (2) is neither EK_ROUND_ONCE (0) nor EK_ROUND_EACH (1)"},
		{EK_CHOICE_GATE_FIRST, 1, "gate_first (1) must be 0: gate is NULL"},
		{EK_CHOICE_GATE_FIRST, 2, "gate_first (2) must be 0: gate is NULL"}};
	for (int n = 0; n < CALLS; n++)
		for (int i = 0; i < COUNT_OF(wrong); i++) {
			struct call call = call_of(n);
			int *value = ek_field(&call.args, call.op->choice[wrong[i].choice]);
			*value = wrong[i].value;
			refused(&call, EK_ERROR_ARGUMENT, SAYS(wrong[i].says));
		}
}

/* A gradient of y or of h must be there; a residual without h, dresidual without dh, each output alone may be. */
TEST(operands_that_may_come_alone)
{
	static const char *const gone[] = {"dy",
					   "dh",
					   "h",
					   "dh dx",
					   "dx dweight dbias dx_bias",
					   "x_bias",
					   "residual h",
					   "dx dweight dbias dresidual",
					   "weight dweight"};
	for (int n = 0; n < CALLS; n++) {
		for (int i = 0; i < COUNT_OF(gone); i++) {
			struct call call = call_of(n);
			drop(&call, gone[i]);
			allowed(gone[i], &call);
		}
		struct call call = call_of(n);
		drop(&call, "dy dh");
		if (call.op == call.entry->backward)
			refused(&call, EK_ERROR_ARGUMENT, SAYS("dy is NULL, with rows (6)"));
	}
}

TEST(bad_workspaces)
{
	for (int n = 0; n < ALL_CALLS; n++) {
		struct call call = call_of(n);
		const size_t size = call.workspace;
		char asked[32];
		if (!call.op->workspace_bytes)
			continue;
		const struct {
			void *at;
			size_t size;
			const char *says;
		} cases[] = {{NULL, size, "workspace is NULL"},
			     {arena.workspace, size - 1, asked},
			     {arena.workspace, 0, "workspace_size (0)"},
			     {arena.workspace + 32, size, "workspace (0x"},
			     {arena.workspace + 1, size, "1 bytes past a multiple of 64"}};
		(void)snprintf(asked, sizeof asked, "asks for (%zu)", size);
		for (int i = 0; i < COUNT_OF(cases); i++) {
			args_set_workspace(call.op, &call.args, cases[i].at, cases[i].size);
			refused(&call, EK_ERROR_WORKSPACE, SAYS(cases[i].says));
		}
		size_t bytes = 1;
		/* "ignores the other pointers" */
		drop(&call, "dy x weight mean rstd mean_lo dx dh x_bias dresidual dgate");
		EXPECT(call.op->workspace_bytes(ctx, &call.args, &bytes) == EK_OK && bytes == size,
		       "%zu bytes, and %zu without pointers: %s", size, bytes, ek_error(ctx));
		drop(&call, "dweight dbias dx_bias");
		EXPECT(call.op->workspace_bytes(ctx, &call.args, &bytes) == EK_OK && bytes == 0,
		       "without dweight and dbias: %zu bytes", bytes);
		put(&call, call.op->sizes[EK_NORM_COLS].offset, 0, sizeof(int64_t));
		expect_answer("workspace of no columns", call.op->workspace_bytes(ctx, &call.args, &bytes),
			      EK_ERROR_ARGUMENT, SAYS("cols (0)"));
	}
}

/* ---- no rows ---- */

/* Column sums of nothing are +0, or what was there. */
static void check_zero_rows(ek_context *level, const struct call *call, bool accumulate)
{
	static const char *const sums[] = {"dweight", "dbias", "dx_bias"};
	struct arena wanted = before;
	for (int i = 0; i < COUNT_OF(sums); i++) {
		int number = ek_operand_named(call->op, sums[i]);
		if (!accumulate && number >= 0 &&
		    ek_operand_pointer(&call->op->operands[number], &call->args))
			memset(wanted.of[number], 0, sizeof(float) * COLS);
	}
	EXPECT(call->op->call(level, &call->args) == EK_OK, "%s of zero rows: %s", call->op->function,
	       ek_error(level));
	EXPECT(memcmp(arena.of, wanted.of, sizeof arena.of) == 0,
	       "%s of zero rows, accumulate %d: not the sums of nothing", call->op->function, accumulate);
	arena = before;
}

TEST(zero_rows)
{
	for (int l = -1; l < level_count(); l++)
		for (int i = 0; i < 2 * ALL_CALLS; i++) {
			ek_context *level =
				context_of((struct setting){l < 0 ? "reference" : level_name(l), 1, PLAIN});
			struct call call = call_of(i / 2);
			put(&call, call.op->sizes[EK_NORM_ROWS].offset, 0, sizeof(int64_t));
			put(&call, call.op->accumulate, i % 2, sizeof(int));
			args_set_workspace(call.op, &call.args, arena.workspace, sizeof arena.workspace);
			check_zero_rows(level, &call, i % 2);
			drop(&call, "x y dy dx dh dresidual residual h residual_after dgate");
			check_zero_rows(level, &call, i % 2);
		}
}
