/* What rotary position embedding launches in each variant, with or without the norms of heads, as rows of text. docs/cost.md explains
 * the counts. Names: q and k are the elements of the tensors, q_turn and k_turn those that turn, q_rows and k_rows the heads of all
 * tokens, q_columns and k_columns the elements of a token; a, w, g, s and c the bytes of an element, of a bias or weight, of their
 * gradients, of a statistic or partial sum, of cos; tables, inputs, outputs and gradients the bytes of operands, by the op's table.
 * Called by src/cost. SPDX-License-Identifier: MIT */
#include "core/check_op.h"
#include "core/require.h"
#include "core/sizes.h"
#include "core/slots.h"
#include "cost/cost.h"
#include "gpu/kernels/columns_layout.h"
#include "op.h"
#include "ops/choices.h"
#include "plan.h"

#define END                  \
	{                    \
		.name = NULL \
	}

/* clang-format off */

/* ---- the steps of the formula, for q and for k ---- */

#define STEP(name, type, call, when, flops, read, written) {name, type, "=" call, when, {flops, read, written}}
#define ADD_BIAS(name, q) \
	STEP(name, "elementwise", "torch.add", "biases", q, q "*a + " q "_columns*w", q "*a")
#define SUM_BIAS(name, q) \
	STEP(name, "reduction", "torch.sum", "biases", q, q "*a", q "_columns*g")
/* x * cos + rotate_half(x) * sin; what does not turn is put behind it. */
#define TURN(COS, NEGATE, HALVES, SIN, ADD, REST, q)                                                                 \
	STEP(COS, "elementwise", "torch.mul", "1", q "_turn", q "_turn*a + tables", q "_turn*a"),               \
	STEP(NEGATE, "elementwise", "torch.neg", "1", "0", q "_pairs*a", q "_pairs*a"),                         \
	STEP(HALVES, "copy", "torch.cat", "1", "0", q "_turn*a", q "_turn*a"),                                  \
	STEP(SIN, "elementwise", "torch.mul", "1", q "_turn", q "_turn*a + tables", q "_turn*a"),               \
	STEP(ADD, "elementwise", "torch.add", "1", q "_turn", "2*" q "_turn*a", q "_turn*a"),                   \
	STEP(REST, "copy", "torch.cat", "partial", "0", q "*a", q "*a")

/* ---- reference: every step a kernel of its own ---- */

#define REFERENCE_NORM(q)                                                                                            \
	STEP("var_mean_" q, "reduction", "torch.var_mean", "norm*centred", "4*" q, q "*a", "2*" q "_rows*s"), \
	STEP("mean_square_" q, "reduction", "torch.mean", "norm*(1 - centred)", "2*" q, q "*a", q "_rows*s"), \
	STEP("rsqrt_" q, "elementwise", "torch.rsqrt", "norm", "2*" q "_rows", q "_rows*s", q "_rows*s"),  \
	STEP("normalize_" q, "elementwise", "torch.mul", "norm",                                           \
	     "(1 + centred)*" q, q "*a + (1 + centred)*" q "_rows*s", q "*a"),                                       \
	STEP("weight_" q, "elementwise", "torch.mul", "weights", q, q "*a + head*w", q "*a")
#define REFERENCE_DNORM(q)                                                                                           \
	STEP("normalize_" q, "elementwise", "torch.mul", "norm",                                           \
	     "(1 + centred)*" q, q "*a + (1 + centred)*" q "_rows*s", q "*a"),                                       \
	STEP("scale_" q, "elementwise", "torch.mul", "weights", q, q "*a + head*w", q "*a"),               \
	STEP("row_means_" q, "reduction", "torch.mean", "norm",                                            \
	     "(2 + centred)*" q, "2*" q "*a", "(1 + centred)*" q "_rows*s"),                                         \
	STEP("dx_" q, "elementwise", "torch.sub, torch.mul", "norm",                                       \
	     "(3 + centred)*" q, "2*" q "*a + (2 + centred)*" q "_rows*s", q "*a"),                                  \
	STEP("dweight_" q, "reduction", "torch.sum", "weights", "2*" q, "2*" q "*a", "head*g")
#define REFERENCE_TURN(q) TURN("cos_" q, "negate_" q, "halves_" q, "sin_" q, "add_" q, "rest_" q, q)

static const struct ek_cost_row reference_forward[] = {
	ADD_BIAS("bias_q", "q"), REFERENCE_NORM("q"), REFERENCE_TURN("q"),
	ADD_BIAS("bias_k", "k"), REFERENCE_NORM("k"), REFERENCE_TURN("k"),
	END,
};

static const struct ek_cost_row reference_backward[] = {
	REFERENCE_TURN("q"), REFERENCE_DNORM("q"), SUM_BIAS("dbias_q", "q"),
	REFERENCE_TURN("k"), REFERENCE_DNORM("k"), SUM_BIAS("dbias_k", "k"),
	END,
};

/* ---- pytorch: as of the norms (ops/norm/cost.c), for rows of whole groups of four elements ---- */

#define KERNEL "vectorized_elementwise_kernel"
#define PYTORCH_TURN(q) TURN(KERNEL, KERNEL, "CatArrayBatchedCopy", KERNEL, KERNEL, "CatArrayBatchedCopy", q)
#define PYTORCH_NORM(q)                                                                                              \
	STEP("vectorized_layer_norm_kernel", "fused", "torch.nn.functional.rms_norm or layer_norm", "norm", \
	     "(3 + 7*centred + weights)*" q " + 3*" q "_rows", q "*a + weights*head*w",                              \
	     q "*a + (1 + centred)*" q "_rows*s")
#define PYTORCH_DNORM(q)                                                                                             \
	STEP("layer_norm_grad_input_kernel_vectorized", "fused", "its backward", "norm",                   \
	     "(8 + 4*centred + 2*weights)*" q " + 2*" q "_rows",                                                     \
	     "2*" q "*a + (1 + centred)*" q "_rows*s + weights*head*w", q "*a"),                                     \
	STEP("GammaBetaBackwardCUDAKernelTemplate", "reduction", "its backward", "weights",                \
	     "(3 + centred)*" q, "2*" q "*a + (1 + centred)*" q "_rows*s", "head*g")

static const struct ek_cost_row pytorch_forward[] = {
	ADD_BIAS(KERNEL, "q"), PYTORCH_NORM("q"), PYTORCH_TURN("q"),
	ADD_BIAS(KERNEL, "k"), PYTORCH_NORM("k"), PYTORCH_TURN("k"),
	END,
};

static const struct ek_cost_row pytorch_backward[] = {
	PYTORCH_TURN("q"), PYTORCH_DNORM("q"), SUM_BIAS("reduce_kernel", "q"),
	PYTORCH_TURN("k"), PYTORCH_DNORM("k"), SUM_BIAS("reduce_kernel", "k"),
	END,
};

/* ---- evenkeel: rules 12 and 13 of docs/numerics.md ---- */

#define TURN_FLOPS     "3*(q_turn + k_turn)"
#define FORWARD_FLOPS  TURN_FLOPS " + biases*(q + k) + norm*((3 + 5*centred)*(q + k) + (4 + 8*centred)*(q_rows + k_rows))" \
	" + weights*(q + k)"
/* Statistics are computed again, from x and its bias. */
#define BACKWARD_FLOPS TURN_FLOPS " + norm*((8 + 7*centred + biases)*(q + k) + (5 + 9*centred)*(q_rows + k_rows))"        \
	" + weights*(q + k)"
#define COLUMN_SUMS    " + (biases + 2*weights)*(q + k)"
#define SLOT_SUMS      " + biases*(q_columns*q_slots + k_columns*k_slots) + weights*head*(q_head_slots + k_head_slots)"

static const struct ek_cost_row evenkeel_forward[] = {
	{"forward", "fused", "src/ops/rope/kernels/turn.cu", "1", {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

/* Partial sums of one kind, of q and of k, whose last folds are one launch. */
#define FOLD(when, columns, partials, folded)                                                                        \
	{"columns_fold", "reduction", "src/gpu/kernels/columns.cu", when,                                            \
	 {columns "*" partials, columns "*" partials "*s", columns "*" folded "*s"}}
#define FOLDS(kind, q, k)                                                                                            \
	FOLD(kind "*" kind "_q_folds", q, kind "_q_partials", kind "_q_last"),                                       \
	FOLD(kind "*" kind "_k_folds", k, kind "_k_partials", kind "_k_last"),                                       \
	{"columns_final", "reduction", "src/gpu/kernels/columns.cu", kind,                                           \
	 {q "*" kind "_q_last + " k "*" kind "_k_last", q "*" kind "_q_last*s + " k "*" kind "_k_last*s",            \
	  kind "_gradients"}}

/* Where both kinds of gradients are wanted, the kernel of the weights writes dq and dk. */
static const struct ek_cost_row evenkeel_backward[] = {
	{"backward", "fused", "src/ops/rope/kernels/turn.cu", "1 - any_sums", {BACKWARD_FLOPS, "inputs", "outputs"}},
	{"backward_biases", "fused", "src/ops/rope/kernels/biases.cu", "biases",
	 {BACKWARD_FLOPS " + q + k + q_columns*q_slots + k_columns*k_slots", "inputs",
	 "(1 - weights)*(outputs - gradients) + q_columns*biases_q_partials*s + k_columns*biases_k_partials*s"}},
	{"backward_weights", "fused", "src/ops/rope/kernels/weights.cu", "weights",
	 {BACKWARD_FLOPS " + 2*(q + k) + head*(q_head_slots + k_head_slots)", "inputs",
	 "outputs - gradients + head*weights_q_partials*s + head*weights_k_partials*s"}},
	FOLDS("biases", "q_padded", "k_padded"), FOLDS("weights", "head_padded", "head_padded"),
	END,
};

static const struct ek_cost_row evenkeel_forward_cpu[] = {
	{"forward", "fused", "src/ops/rope/cpu.c", "1", {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward_cpu[] = {
	{"backward", "fused", "src/ops/rope/cpu.c", "1",
	 {BACKWARD_FLOPS COLUMN_SUMS SLOT_SUMS, "inputs", "outputs"}},
	END,
};

/* clang-format on */

static const struct ek_cost_row *rows(const ek_cost_args *a)
{
	static const struct ek_cost_row *const tables[][2] = {
		{reference_forward, reference_backward},
		{pytorch_forward, pytorch_backward},
		{evenkeel_forward, evenkeel_backward},
		{evenkeel_forward_cpu, evenkeel_backward_cpu},
	};
	return ek_cost_table(tables, a->variant, a->pass, a->device);
}

/* ---- arguments ---- */

static ek_status check_heads(ek_cost_args *a)
{
	const long long heads = a->heads;
	if (a->k_heads == 0)
		a->k_heads = a->heads;
	PASS_ON(ek_cost_check_size("heads", a->heads, EK_MAX_COLS, "EK_MAX_COLS"));
	PASS_ON(ek_cost_check_size("k_heads", a->k_heads, a->heads, "heads"));
	REQUIRE(a->heads % a->k_heads == 0, EK_ERROR_ARGUMENT, "k_heads (%lld) does not divide heads (%lld)",
		(long long)a->k_heads, heads);
	PASS_ON(ek_cost_check_size("head_dim", a->head_dim, EK_MAX_HEAD_DIM, "EK_MAX_HEAD_DIM"));
	if (a->rotary_dim == 0)
		a->rotary_dim = a->head_dim;
	PASS_ON(ek_cost_check_size("rotary_dim", a->rotary_dim, a->head_dim, "head_dim"));
	REQUIRE(a->rotary_dim % 2 == 0, EK_ERROR_ARGUMENT,
		"rotary_dim (%lld) is odd; expected an even number, of pairs", (long long)a->rotary_dim);
	PASS_ON(ek_cost_check_size("heads * head_dim", a->heads * a->head_dim, EK_MAX_COLS, "EK_MAX_COLS"));
	return ek_cost_check_memory(a, "heads * head_dim", a->heads * a->head_dim);
}

static ek_status check(ek_cost_args *a)
{
	const int with = EK_WITH_BIASES | EK_WITH_POSITIONS;
	PASS_ON(ek_cost_check_op(a, EK_BACKWARD, EK_EVENKEEL));
	REQUIRE((unsigned)a->norm <= EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is not 0, EK_LAYER_NORM (%d) or EK_RMS_NORM (%d)", (int)a->norm,
		(int)EK_LAYER_NORM, (int)EK_RMS_NORM);
	PASS_ON(ek_check_dtype("dtype", &a->dtype, 0));
	PASS_ON(ek_check_follower("weight_dtype", &a->weight_dtype, "dtype", a->dtype));
	PASS_ON(ek_check_follower("gradient_dtype", &a->gradient_dtype, "weight_dtype", a->weight_dtype));
	if ((int)a->table_dtype == 0)
		a->table_dtype = ek_real_of(a->dtype);
	PASS_ON(ek_check_follower("table_dtype", &a->table_dtype, "dtype", a->dtype));
	REQUIRE((a->with & ~with) == 0, EK_ERROR_ARGUMENT,
		"with (%d) has bits beyond EK_WITH_BIASES (%d) and EK_WITH_POSITIONS (%d)", a->with,
		(int)EK_WITH_BIASES, (int)EK_WITH_POSITIONS);
	return check_heads(a);
}

/* ---- what the names mean ---- */

static bool has_weights(const ek_cost_args *a)
{
	return a->norm && !(a->absent & EK_NO_WEIGHT);
}

#define SYMBOLS(...)                                                             \
	COUNT(((const enum ek_symbol[]){__VA_ARGS__})), (const enum ek_symbol[]) \
	{                                                                        \
		__VA_ARGS__                                                      \
	}
#define COUNT(array) (int)(sizeof(array) / sizeof *(array))
#define TOKENS EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN

static void add_sizes(struct ek_facts *facts, const ek_cost_args *a)
{
	ek_facts_add(facts, "q", 1, SYMBOLS(TOKENS, EK_SYMBOL_HEADS, EK_SYMBOL_HEAD_DIM));
	ek_facts_add(facts, "k", 1, SYMBOLS(TOKENS, EK_SYMBOL_K_HEADS, EK_SYMBOL_HEAD_DIM));
	ek_facts_add(facts, "q_turn", 2, SYMBOLS(TOKENS, EK_SYMBOL_HEADS, EK_SYMBOL_PAIRS));
	ek_facts_add(facts, "k_turn", 2, SYMBOLS(TOKENS, EK_SYMBOL_K_HEADS, EK_SYMBOL_PAIRS));
	ek_facts_add(facts, "q_pairs", 1, SYMBOLS(TOKENS, EK_SYMBOL_HEADS, EK_SYMBOL_PAIRS));
	ek_facts_add(facts, "k_pairs", 1, SYMBOLS(TOKENS, EK_SYMBOL_K_HEADS, EK_SYMBOL_PAIRS));
	ek_facts_add(facts, "q_rows", 1, SYMBOLS(TOKENS, EK_SYMBOL_HEADS));
	ek_facts_add(facts, "k_rows", 1, SYMBOLS(TOKENS, EK_SYMBOL_K_HEADS));
	ek_facts_add(facts, "q_columns", 1, SYMBOLS(EK_SYMBOL_HEADS, EK_SYMBOL_HEAD_DIM));
	ek_facts_add(facts, "k_columns", 1, SYMBOLS(EK_SYMBOL_K_HEADS, EK_SYMBOL_HEAD_DIM));
	ek_facts_add(facts, "head", 1, SYMBOLS(EK_SYMBOL_HEAD_DIM));
	const int64_t values[][2] = {
		{EK_SYMBOL_BATCH_SIZE, a->batch_size}, {EK_SYMBOL_SEQ_LEN, a->seq_len},
		{EK_SYMBOL_HEADS, a->heads},           {EK_SYMBOL_K_HEADS, a->k_heads},
		{EK_SYMBOL_HEAD_DIM, a->head_dim},     {EK_SYMBOL_PAIRS, a->rotary_dim / 2}};
	for (int i = 0; i < COUNT(values); i++)
		facts->values[values[i][0]] = values[i][1];
}

static void add_widths(struct ek_facts *facts, const ek_cost_args *a)
{
	bool own = a->gradient_dtype != a->weight_dtype;
	ek_facts_add_symbol(facts, "a", EK_SYMBOL_A_BYTES, (int64_t)ek_dtype_size(a->dtype));
	ek_facts_add_symbol(facts, "w", EK_SYMBOL_W_BYTES, (int64_t)ek_dtype_size(a->weight_dtype));
	ek_facts_add_symbol(facts, "g", own ? EK_SYMBOL_G_BYTES : EK_SYMBOL_W_BYTES,
			    (int64_t)ek_dtype_size(a->gradient_dtype));
	ek_facts_add_symbol(facts, "c", EK_SYMBOL_C_BYTES, (int64_t)ek_dtype_size(a->table_dtype));
	ek_facts_add_symbol(facts, "s", EK_SYMBOL_S_BYTES, (int64_t)ek_dtype_size(ek_real_of(a->dtype)));
}

static void add_numbers(struct ek_facts *facts, const ek_cost_args *a)
{
	bool biases = a->with & EK_WITH_BIASES, weights = has_weights(a);
	const struct {
		const char *name;
		int number;
	} numbers[] = {{"norm", a->norm != 0},
		       {"centred", a->norm == EK_LAYER_NORM},
		       {"weights", weights},
		       {"biases", biases},
		       {"any_sums", biases || weights},
		       {"partial", a->rotary_dim < a->head_dim}};
	for (int i = 0; i < COUNT(numbers); i++)
		ek_facts_add_number(facts, numbers[i].name, numbers[i].number);
}

static enum ek_symbol dtype_symbol(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	if (operand->dtype == op->dtype)
		return EK_SYMBOL_A_BYTES;
	if (operand->dtype == op->choice[EK_CHOICE_TABLE_DTYPE])
		return EK_SYMBOL_C_BYTES;
	bool gradient = operand->dtype == op->choice[EK_CHOICE_GRADIENT_DTYPE];
	return gradient && ek_choice_of(op, EK_CHOICE_GRADIENT_DTYPE + 1, args) !=
				       ek_choice_of(op, EK_CHOICE_WEIGHT_DTYPE + 1, args)
		       ? EK_SYMBOL_G_BYTES
		       : EK_SYMBOL_W_BYTES;
}

/* Rows of the tables: one for each token of a sequence. */
static const struct ek_cost_symbols symbols = {.size_count = {[EK_ROPE_BATCH] = 1,
							      [EK_ROPE_SEQ] = 1,
							      [EK_ROPE_HEADS] = 1,
							      [EK_ROPE_K_HEADS] = 1,
							      [EK_ROPE_HEAD_DIM] = 1,
							      [EK_ROPE_ROTARY_DIM] = 1,
							      [EK_ROPE_TABLE_ROWS] = 1},
					       .size = {[EK_ROPE_BATCH] = {EK_SYMBOL_BATCH_SIZE},
							[EK_ROPE_SEQ] = {EK_SYMBOL_SEQ_LEN},
							[EK_ROPE_HEADS] = {EK_SYMBOL_HEADS},
							[EK_ROPE_K_HEADS] = {EK_SYMBOL_K_HEADS},
							[EK_ROPE_HEAD_DIM] = {EK_SYMBOL_HEAD_DIM},
							[EK_ROPE_ROTARY_DIM] = {EK_SYMBOL_PAIRS},
							[EK_ROPE_TABLE_ROWS] = {EK_SYMBOL_SEQ_LEN}},
					       .dtype = dtype_symbol};

#define BIT(number) (UINT32_C(1) << (number))

static void add_forward(struct ek_facts *facts, const ek_cost_args *a)
{
	static char tensor[1];
	void *bias = a->with & EK_WITH_BIASES ? tensor : NULL, *weight = has_weights(a) ? tensor : NULL;
	const ek_rope_forward_args call = {.dtype = a->dtype,
					   .weight_dtype = a->weight_dtype,
					   .q = tensor,
					   .k = tensor,
					   .cos = tensor,
					   .sin = tensor,
					   .positions = a->with & EK_WITH_POSITIONS ? tensor : NULL,
					   .q_bias = bias,
					   .k_bias = bias,
					   .q_weight = weight,
					   .k_weight = weight,
					   .q_out = tensor,
					   .k_out = tensor};
	ek_facts_add_operands(facts, &ek_rope_forward_op, &call, &symbols);
	ek_facts_add_bytes(facts, "tables", &ek_rope_forward_op, &call, BIT(EK_ROPE_FORWARD_COS), &symbols);
}

static void add_partials(struct ek_facts *facts, const ek_rope_backward_args *call)
{
	static const char *const names[2][2][3] = {
		{{"biases_q_partials", "biases_q_folds", "biases_q_last"},
		 {"biases_k_partials", "biases_k_folds", "biases_k_last"}},
		{{"weights_q_partials", "weights_q_folds", "weights_q_last"},
		 {"weights_k_partials", "weights_k_folds", "weights_k_last"}}};
	for (int kind = 0; kind < 2; kind++) {
		int64_t partials[2] = {0, 0};
		if (kind ? call->dq_weight : call->dq_bias)
			ek_rope_plan_partials(call, kind, partials);
		for (int i = 0; i < 2; i++) {
			bool folds = partials[i] > FOLD_TOGETHER;
			ek_facts_add_number(facts, names[kind][i][0], partials[i]);
			ek_facts_add_number(facts, names[kind][i][1], folds);
			ek_facts_add_number(facts, names[kind][i][2],
					    folds ? quotient_up(partials[i], FOLD_TOGETHER) : partials[i]);
		}
	}
}

static void add_backward(struct ek_facts *facts, const ek_cost_args *a)
{
	static char tensor[64] __attribute__((aligned(64)));
	void *dbias = a->with & EK_WITH_BIASES ? tensor : NULL, *dweight = has_weights(a) ? tensor : NULL,
	     *x = a->norm ? tensor : NULL, *bias = x ? dbias : NULL;
	const struct ek_op *op = &ek_rope_backward_op;
	const ek_rope_backward_args call = {.norm = (int)a->norm,
					    .batch = a->batch_size,
					    .seq = a->seq_len,
					    .heads = a->heads,
					    .k_heads = a->k_heads,
					    .head_dim = a->head_dim,
					    .rotary_dim = a->rotary_dim,
					    .table_rows = a->seq_len,
					    .table_dtype = a->table_dtype,
					    .dtype = a->dtype,
					    .weight_dtype = a->weight_dtype,
					    .gradient_dtype = a->gradient_dtype,
					    .dq_out = tensor,
					    .dk_out = tensor,
					    .q = x,
					    .k = x,
					    .cos = tensor,
					    .sin = tensor,
					    .positions = a->with & EK_WITH_POSITIONS ? tensor : NULL,
					    .q_bias = bias,
					    .k_bias = bias,
					    .q_weight = dweight,
					    .k_weight = dweight,
					    .dq = tensor,
					    .dk = tensor,
					    .dq_bias = dbias,
					    .dk_bias = dbias,
					    .dq_weight = dweight,
					    .dk_weight = dweight};
	ek_facts_add_operands(facts, op, &call, &symbols);
	ek_facts_add_bytes(facts, "tables", op, &call, BIT(EK_ROPE_BACKWARD_COS), &symbols);
	ek_facts_add_bytes(facts, "biases_gradients", op, &call,
			   BIT(EK_ROPE_BACKWARD_DQ_BIAS) | BIT(EK_ROPE_BACKWARD_DK_BIAS), &symbols);
	ek_facts_add_bytes(facts, "weights_gradients", op, &call,
			   BIT(EK_ROPE_BACKWARD_DQ_WEIGHT) | BIT(EK_ROPE_BACKWARD_DK_WEIGHT), &symbols);
	if (a->variant == EK_EVENKEEL)
		add_partials(facts, &call);
}

/* Columns of partial sums, up to a multiple of 16 bytes. */
static void add_padded(struct ek_facts *facts, const char *name, const ek_cost_args *a, int64_t heads,
		       enum ek_symbol symbol)
{
	const int64_t cols = heads * a->head_dim, padded = GROUP_PITCH_OF(cols, a->dtype == EK_F64 ? 8 : 4);
	const enum ek_symbol both[] = {EK_SYMBOL_HEAD_DIM, symbol};
	if (padded == cols)
		ek_facts_add(facts, name, 1, symbol == EK_SYMBOL_HEAD_DIM ? 1 : 2, both);
	else
		ek_facts_add_number(facts, name, padded);
}

/* Slots of the tokens for biases, and of the heads of all tokens for weights. */
static void add_cuts(struct ek_facts *facts, const ek_cost_args *a)
{
	const int64_t tokens = a->batch_size * a->seq_len;
	ek_facts_add_number(facts, "q_slots", ek_slot_count(tokens, a->heads * a->head_dim));
	ek_facts_add_number(facts, "k_slots", ek_slot_count(tokens, a->k_heads * a->head_dim));
	ek_facts_add_number(facts, "q_head_slots", ek_slot_count(tokens * a->heads, a->head_dim));
	ek_facts_add_number(facts, "k_head_slots", ek_slot_count(tokens * a->k_heads, a->head_dim));
	add_padded(facts, "q_padded", a, a->heads, EK_SYMBOL_HEADS);
	add_padded(facts, "k_padded", a, a->k_heads, EK_SYMBOL_K_HEADS);
	add_padded(facts, "head_padded", a, 1, EK_SYMBOL_HEAD_DIM);
}

static void add_facts(struct ek_facts *facts, const ek_cost_args *a)
{
	facts->count = 0;
	add_sizes(facts, a);
	add_widths(facts, a);
	add_numbers(facts, a);
	if (a->pass == EK_FORWARD)
		add_forward(facts, a);
	else
		add_backward(facts, a);
	add_cuts(facts, a);
}

static const char *path(const ek_cost_args *a)
{
	static const char *const paths[2][2] = {
		{"evenkeel.torch.rope -> ek_rope_forward", "evenkeel.torch.rope -> ek_rope_backward"},
		{"evenkeel.torch.qk_norm_rope -> ek_rope_forward",
		 "evenkeel.torch.qk_norm_rope -> ek_rope_backward"}};
	if (a->variant != EK_EVENKEEL)
		return "x * cos + rotate_half(x) * sin, of q and of k";
	return paths[a->norm != 0][a->pass == EK_BACKWARD];
}

const struct ek_cost_op ek_rope_cost_op = {check, rows, add_facts, path};
