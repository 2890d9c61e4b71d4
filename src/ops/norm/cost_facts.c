/* What the names in the rows of kernels (cost.c) mean for given arguments: sizes, widths, operands that are there, how PyTorch
 * and evenkeel cut the work. Called by src/cost. SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/slots.h"
#include "cost/tables.h"
#include "op.h"
#include "plan.h"

/* ---- names: sizes and operands ---- */

static void add_sizes(struct ek_facts *facts, const ek_cost_args *a)
{
	static const enum ek_symbol sizes[] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN,
					       EK_SYMBOL_HIDDEN_SIZE};
	ek_facts_add(facts, "elements", 1, 3, sizes);
	/* With statistics of their own: each group. */
	ek_facts_add(facts, "rows", ek_norm_groups(a->hidden_size, a->group_cols), 2, sizes);
	ek_facts_add_symbol(facts, "hidden", EK_SYMBOL_HIDDEN_SIZE, a->hidden_size);
	ek_facts_add_symbol(facts, "columns", EK_SYMBOL_HIDDEN_SIZE, a->hidden_size);
	facts->values[EK_SYMBOL_BATCH_SIZE] = a->batch_size;
	facts->values[EK_SYMBOL_SEQ_LEN] = a->seq_len;
}

/* A width that is not asked for is the activation's, and so is its symbol. */
static void add_width(struct ek_facts *facts, const char *name, enum ek_symbol symbol, ek_dtype asked,
		      ek_dtype dtype)
{
	enum ek_symbol used = (int)asked == 0 ? EK_SYMBOL_A_BYTES : symbol;
	ek_facts_add_symbol(facts, name, used, (int64_t)ek_dtype_size((int)asked == 0 ? dtype : asked));
}

/* A dtype that follows another has a symbol of its own where it differs. */
static enum ek_symbol symbol_of(enum ek_symbol own, ek_dtype dtype, enum ek_symbol followed, ek_dtype of)
{
	return dtype == of ? followed : own;
}

/* Of what the norm reads; and of its result with a residual behind it, which has the wider dtype of the two. */
static ek_dtype norm_dtype(const ek_cost_args *a)
{
	return a->with & EK_WITH_RESIDUAL ? a->h_dtype : a->dtype;
}

static ek_dtype sum_dtype(const ek_cost_args *a)
{
	return a->with & EK_WITH_RESIDUAL_AFTER ? a->h_dtype : norm_dtype(a);
}

static void add_widths(struct ek_facts *facts, const ek_cost_args *a)
{
	bool reference = a->variant == EK_REFERENCE;
	ek_dtype real = a->dtype == EK_F64 ? EK_F64 : EK_F32, n = norm_dtype(a), p = sum_dtype(a),
		 v = a->with & EK_WITH_GATE ? a->dtype : a->y_dtype;
	const struct {
		const char *name;
		enum ek_symbol symbol;
		ek_dtype dtype;
	} widths[] = {
		{"a", EK_SYMBOL_A_BYTES, a->dtype},
		{"w", EK_SYMBOL_W_BYTES, a->weight_dtype},
		{"h", symbol_of(EK_SYMBOL_H_BYTES, a->h_dtype, EK_SYMBOL_A_BYTES, a->dtype), a->h_dtype},
		{"n", symbol_of(EK_SYMBOL_H_BYTES, n, EK_SYMBOL_A_BYTES, a->dtype), n},
		{"p", symbol_of(EK_SYMBOL_H_BYTES, p, EK_SYMBOL_A_BYTES, a->dtype), p},
		{"y", symbol_of(EK_SYMBOL_Y_BYTES, a->y_dtype, EK_SYMBOL_A_BYTES, a->dtype), a->y_dtype},
		{"v", symbol_of(EK_SYMBOL_Y_BYTES, v, EK_SYMBOL_A_BYTES, a->dtype), v},
		{"g", symbol_of(EK_SYMBOL_G_BYTES, a->gradient_dtype, EK_SYMBOL_W_BYTES, a->weight_dtype),
		 a->gradient_dtype},
	};
	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
		ek_facts_add_symbol(facts, widths[i].name, widths[i].symbol,
				    (int64_t)ek_dtype_size(widths[i].dtype));
	add_width(facts, "s", EK_SYMBOL_S_BYTES, reference ? a->stats_dtype : real, a->dtype);
	add_width(facts, "t", EK_SYMBOL_T_BYTES, a->intermediate_dtype, a->dtype);
}

/* Operations of src/math/math.inc.h in binary32, for a value and for a derivative alone: an fma counts two, a reciprocal
 * one, comparisons and shifts none. */
static const struct {
	int value, slope;
} activation_flops[] = {[EK_NO_ACTIVATION] = {0, 0},
			[EK_SIGMOID] = {22, 25},
			[EK_SILU] = {23, 27},
			[EK_GELU] = {46, 47},
			[EK_GELU_TANH] = {22, 29}};

static void add_operands(struct ek_facts *facts, const ek_cost_args *a)
{
	bool weight = !(a->absent & EK_NO_WEIGHT), bias = !(a->absent & EK_NO_BIAS);
	bool residual = a->with & EK_WITH_RESIDUAL, x_bias = a->with & EK_WITH_X_BIAS,
	     gate = a->with & EK_WITH_GATE;
	ek_dtype n = norm_dtype(a), p = sum_dtype(a);
	const struct {
		const char *name;
		int number;
	} numbers[] = {{"centred", a->norm == EK_LAYER_NORM},
		       {"cast_in", a->compute_dtype != n},
		       {"cast_out", a->compute_dtype != a->y_dtype},
		       {"recast", a->y_dtype != p},
		       {"widened", p != n},
		       {"narrow", n != a->dtype},
		       {"weight", weight},
		       {"bias", bias},
		       {"residual", residual},
		       {"residual_after", (a->with & EK_WITH_RESIDUAL_AFTER) != 0},
		       {"x_bias", x_bias},
		       {"biased_x", x_bias && !residual},
		       {"offset", weight && a->weight_offset},
		       {"sums", weight + bias + x_bias},
		       {"any_sums", weight || bias || x_bias},
		       {"statistics", !(a->absent & EK_NO_STATISTICS)},
		       {"activation", a->activation != EK_NO_ACTIVATION && !gate},
		       {"gate", gate},
		       {"gate_in", gate && a->gate_first},
		       {"gate_out", gate && !a->gate_first},
		       {"sigmoid", a->activation == EK_SIGMOID},
		       {"silu", a->activation == EK_SILU},
		       {"gelu", a->activation == EK_GELU || a->activation == EK_GELU_TANH},
		       {"value_flops", activation_flops[a->activation].value},
		       {"slope_flops", activation_flops[a->activation].slope}};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		ek_facts_add_number(facts, numbers[i].name, numbers[i].number);
}

/* ---- how PyTorch cuts ---- */

/* Its vectorised kernel takes rows of whole groups of four, of every dtype but f64. Column sums of over 65536 rows are cut
 * into blocks of rows where the columns alone would leave half of the GPU idle. */
static void add_pytorch(struct ek_facts *facts, const ek_cost_args *a, bool exact)
{
	enum { ROWS_PER_BLOCK = 32, MANY_ROWS = 65536 };
	int64_t rows = exact ? a->batch_size * a->seq_len : 1;
	bool cut = rows > MANY_ROWS && a->hidden_size / 32 < a->multiprocessors / 2;
	int64_t blocks = rows / ROWS_PER_BLOCK + (rows % ROWS_PER_BLOCK != 0);
	ek_facts_add_number(
		facts, "vectors",
		!exact || (a->dtype != EK_F64 && ek_norm_group_cols(a->hidden_size, a->group_cols) % 4 == 0));
	ek_facts_add_number(facts, "row_sums", cut);
	ek_facts_add_symbol(facts, "row_blocks", EK_SYMBOL_ROW_BLOCKS, blocks);
}

/* ---- evenkeel: a call whose tensors are not there but lie as a framework's would, aligned and dense ---- */

struct call {
	const struct ek_op *op;
	union {
		ek_norm_forward_args forward;
		ek_norm_backward_args backward;
	} args;
};

/* The operands that ek_cost_args speaks of: a call has those without flags, those without one of their absent flags, and
 * those with one that is asked for. */
static const struct {
	int absent, with;
	uint32_t forward, backward;
} known_operands[] = {
	{0, 0, 1u << EK_FORWARD_Y | 1u << EK_FORWARD_X,
	 1u << EK_BACKWARD_DX | 1u << EK_BACKWARD_DY | 1u << EK_BACKWARD_X},
	{EK_NO_WEIGHT, 0, 1u << EK_FORWARD_WEIGHT, 1u << EK_BACKWARD_WEIGHT | 1u << EK_BACKWARD_DWEIGHT},
	{EK_NO_BIAS, 0, 1u << EK_FORWARD_BIAS, 1u << EK_BACKWARD_DBIAS},
	{EK_NO_STATISTICS, 0, 1u << EK_FORWARD_MEAN | 1u << EK_FORWARD_RSTD,
	 1u << EK_BACKWARD_MEAN | 1u << EK_BACKWARD_RSTD},
	{EK_NO_STATISTICS | EK_NO_MEAN_LO, 0, 1u << EK_FORWARD_MEAN_LO, 1u << EK_BACKWARD_MEAN_LO},
	{0, EK_WITH_RESIDUAL, 1u << EK_FORWARD_RESIDUAL | 1u << EK_FORWARD_H,
	 1u << EK_BACKWARD_DH | 1u << EK_BACKWARD_DRESIDUAL},
	{0, EK_WITH_RESIDUAL_AFTER, 1u << EK_FORWARD_RESIDUAL_AFTER, 0},
	{0, EK_WITH_GATE, 1u << EK_FORWARD_GATE, 1u << EK_BACKWARD_GATE | 1u << EK_BACKWARD_DGATE},
	{0, EK_WITH_X_BIAS, 1u << EK_FORWARD_X_BIAS, 1u << EK_BACKWARD_X_BIAS | 1u << EK_BACKWARD_DX_BIAS},
};

static uint32_t present_operands(const ek_cost_args *a)
{
	uint32_t present = 0;
	bool forward = a->pass == EK_FORWARD;
	for (size_t i = 0; i < sizeof known_operands / sizeof *known_operands; i++)
		if (!(a->absent & known_operands[i].absent) &&
		    (known_operands[i].with == 0 || a->with & known_operands[i].with))
			present |= forward ? known_operands[i].forward : known_operands[i].backward;
	if (!forward && a->h_dtype == a->dtype) /* dx is both */
		present &= ~(1u << EK_BACKWARD_DRESIDUAL);
	if (!forward && a->activation && !a->gate_first && !(a->absent & EK_NO_BIAS))
		present |= 1u << EK_BACKWARD_BIAS;
	if (!forward && a->with & EK_WITH_RESIDUAL) /* x is forward's h */
		present &= ~(1u << EK_BACKWARD_X_BIAS);
	return present;
}

static void put_choices(const struct ek_op *op, const ek_cost_args *a, void *args)
{
	/* Backward knows no residual after the norm. */
	bool has_h = op == &ek_norm_forward_op || a->with & EK_WITH_RESIDUAL;
	const int choices[EK_CHOICES] = {[EK_CHOICE_WEIGHT_DTYPE] = (int)a->weight_dtype,
					 [EK_CHOICE_H_DTYPE] = (int)(has_h ? a->h_dtype : a->dtype),
					 [EK_CHOICE_Y_DTYPE] = (int)a->y_dtype,
					 [EK_CHOICE_GRADIENT_DTYPE] = (int)a->gradient_dtype,
					 [EK_CHOICE_WEIGHT_OFFSET] = a->weight_offset,
					 [EK_CHOICE_ROUNDING] = (int)a->rounding,
					 [EK_CHOICE_ACTIVATION] = (int)a->activation,
					 [EK_CHOICE_GATE_FIRST] = a->gate_first};
	for (int i = 0; i < EK_CHOICES; i++)
		if (op->choice[i])
			memcpy(ek_field(args, op->choice[i]), &choices[i], sizeof choices[i]);
}

static struct call call_of(const ek_cost_args *a, int64_t rows)
{
	static char tensor[64] __attribute__((aligned(64)));
	const uint32_t present = present_operands(a);
	struct call call = {.op = a->pass == EK_FORWARD ? &ek_norm_forward_op : &ek_norm_backward_op};
	const struct ek_op *op = call.op;
	*(ek_norm *)ek_field(&call.args, op->kind) = a->norm;
	*(int64_t *)ek_field(&call.args, op->sizes[EK_NORM_ROWS].offset) = rows;
	*(int64_t *)ek_field(&call.args, op->sizes[EK_NORM_COLS].offset) = a->hidden_size;
	*(int64_t *)ek_field(&call.args, op->sizes[EK_NORM_GROUP_COLS].offset) = a->group_cols;
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		if (present >> i & 1 && ek_operand_has_kind(operand, (int)a->norm))
			ek_operand_set(operand, &call.args, tensor);
		if (operand->dims[0].stride)
			*(int64_t *)ek_field(&call.args, operand->dims[0].stride) = a->hidden_size;
	}
	*(ek_dtype *)ek_field(&call.args, op->dtype) = a->dtype;
	put_choices(op, a, &call.args);
	return call;
}

static void plan_call(const ek_cost_args *a, const struct call *call, struct ek_norm_plan *plan)
{
	const struct ek_gpu_limits limits = ek_limits_of(a->arch, a->multiprocessors);
	if (a->pass == EK_FORWARD)
		ek_norm_plan_forward(&call->args.forward, &limits, plan);
	else
		ek_norm_plan_backward(&call->args.backward, &limits, false, plan);
}

/* Of the choice that the operand's dtype is; of one that is the same as what it follows, the symbol of that. */
static enum ek_symbol dtype_symbol(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	static const enum ek_symbol symbols[EK_CHOICES] = {[EK_CHOICE_WEIGHT_DTYPE] = EK_SYMBOL_W_BYTES,
							   [EK_CHOICE_H_DTYPE] = EK_SYMBOL_H_BYTES,
							   [EK_CHOICE_Y_DTYPE] = EK_SYMBOL_Y_BYTES,
							   [EK_CHOICE_GRADIENT_DTYPE] = EK_SYMBOL_G_BYTES};
	int number = 0;
	if (operand->dtype == 0)
		return EK_SYMBOL_S_BYTES;
	while (number < EK_CHOICES && op->choice[number] != operand->dtype)
		number++;
	if (number == EK_CHOICES)
		return EK_SYMBOL_A_BYTES;
	if (number == EK_CHOICE_WEIGHT_DTYPE)
		return EK_SYMBOL_W_BYTES;
	int follows = op->choices[number].follows;
	ek_dtype of = *(const ek_dtype *)ek_field(args, follows ? op->choice[follows - 1] : op->dtype);
	return symbol_of(symbols[number], ek_operand_dtype(op, operand, args),
			 follows ? symbols[follows - 1] : EK_SYMBOL_A_BYTES, of);
}

static void add_operand_bytes(struct ek_facts *facts, const struct call *call)
{
	static const struct ek_cost_symbols symbols = {
		.size_count = {[EK_NORM_ROWS] = 2, [EK_NORM_COLS] = 1},
		.size = {[EK_NORM_ROWS] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN},
			 [EK_NORM_COLS] = {EK_SYMBOL_HIDDEN_SIZE}},
		.dtype = dtype_symbol};
	enum { INPUTS, STATISTICS_INPUTS, DH_INPUTS, OUTPUTS, GRADIENTS, GROUPS };
	static const char *const names[GROUPS] = {"inputs", "statistics_inputs", "dh_inputs", "outputs",
						  "gradients"};
	uint32_t groups[GROUPS] = {0};
	for (int i = 0; i < call->op->operand_count; i++) {
		const struct ek_operand *operand = &call->op->operands[i];
		bool output = operand->flags & EK_OUTPUT, sum = operand->flags & EK_ACCUMULATES;
		bool statistic = operand->rank == 1 && operand->dims[0].size == EK_NORM_ROWS;
		groups[output ? OUTPUTS : INPUTS] |= 1u << i;
		groups[STATISTICS_INPUTS] |= (uint32_t)(!output && statistic) << i;
		groups[DH_INPUTS] |= (uint32_t)(call->op == &ek_norm_backward_op && i == EK_BACKWARD_DH) << i;
		groups[GRADIENTS] |= (uint32_t)(output && sum) << i;
	}
	for (int i = 0; i < GROUPS; i++)
		ek_facts_add_bytes(facts, names[i], call->op, &call->args, groups[i], &symbols);
}

static void add_evenkeel(struct ek_facts *facts, const ek_cost_args *a, bool exact)
{
	int64_t rows = exact ? a->batch_size * a->seq_len : 1, real = a->dtype == EK_F64 ? 8 : 4;
	int64_t cols = ek_norm_group_cols(a->hidden_size, a->group_cols);
	int64_t padded = a->hidden_size / cols * GROUP_PITCH_OF(cols, real);
	const struct call call = call_of(a, rows);
	struct ek_norm_plan plan = {.staged = false};
	if (exact && a->device == EK_CUDA)
		plan_call(a, &call, &plan);
	add_operand_bytes(facts, &call);
	ek_facts_add_number(facts, "staged", plan.staged);
	ek_facts_add_symbol(facts, "slots", EK_SYMBOL_SLOTS, ek_slot_count(rows, a->hidden_size));
	ek_facts_add_partials(facts, plan.partials);
	ek_facts_add_symbol(facts, "padded",
			    padded == a->hidden_size ? EK_SYMBOL_HIDDEN_SIZE : EK_SYMBOL_PADDED_SIZE, padded);
	if (plan.chunk_bytes > 0)
		ek_facts_add_symbol(facts, "chunk_bytes", EK_SYMBOL_CHUNK_BYTES, plan.chunk_bytes);
	else
		ek_facts_add_number(facts, "chunk_bytes", 0);
}

void ek_norm_facts(struct ek_facts *facts, const ek_cost_args *args, bool exact)
{
	facts->count = 0;
	add_sizes(facts, args);
	add_widths(facts, args);
	add_operands(facts, args);
	add_pytorch(facts, args, exact);
	add_evenkeel(facts, args, exact);
}
