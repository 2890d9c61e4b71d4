/* What each variant launches, forward and backward, LayerNorm and RMSNorm in one table each. docs/cost.md explains the
 * counts. Names: elements, rows and hidden are sizes; a, t, s and w the bytes of an activation, of what lies between casts, of
 * a statistic, of a weight; inputs, outputs, gradients and statistics_inputs the bytes of operands, by the op's table; the
 * others are 0 or 1, or small numbers. Below the rows: what the names mean for given arguments.
 * SPDX-License-Identifier: MIT */
#include "core/slots.h"
#include "cost/tables.h"
#include "op.h"
#include "plan.h"

#define END                  \
	{                    \
		.name = NULL \
	}

/* clang-format off */

/* ---- reference: every step of the formula a kernel of its own ---- */

static const struct ek_cost_row reference_forward[] = {
	{"cast_in", "cast", "torch.Tensor.to", "casts",
	 {"0", "elements*a", "elements*t"}},
	{"var_mean", "reduction", "torch.var_mean", "centred",
	 {"4*elements", "elements*t", "2*rows*s"}},
	{"mean_square", "reduction", "torch.mean", "1 - centred",
	 {"2*elements", "elements*t", "rows*s"}},
	{"rsqrt", "elementwise", "torch.rsqrt", "1",
	 {"2*rows", "rows*s", "rows*s"}},
	{"normalize", "elementwise", "torch.sub, torch.mul", "centred",
	 {"2*elements", "elements*t + 2*rows*s", "elements*t"}},
	{"normalize", "elementwise", "torch.mul", "1 - centred",
	 {"elements", "elements*t + rows*s", "elements*t"}},
	{"affine", "elementwise", "torch.addcmul", "weight*bias",
	 {"2*elements", "elements*t + 2*hidden*w", "elements*t"}},
	{"affine", "elementwise", "torch.mul", "weight - weight*bias",
	 {"elements", "elements*t + hidden*w", "elements*t"}},
	{"affine", "elementwise", "torch.add", "bias - weight*bias",
	 {"elements", "elements*t + hidden*w", "elements*t"}},
	{"cast_out", "cast", "torch.Tensor.to", "casts",
	 {"0", "elements*t", "elements*a"}},
	END,
};

static const struct ek_cost_row reference_backward[] = {
	{"cast_in", "cast", "torch.Tensor.to", "casts",
	 {"0", "2*elements*a", "2*elements*t"}},
	{"normalize", "elementwise", "torch.sub, torch.mul", "centred",
	 {"2*elements", "elements*t + 2*rows*s", "elements*t"}},
	{"normalize", "elementwise", "torch.mul", "1 - centred",
	 {"elements", "elements*t + rows*s", "elements*t"}},
	{"scale", "elementwise", "torch.mul", "weight",
	 {"elements", "elements*t + hidden*w", "elements*t"}},
	{"row_means", "reduction", "torch.mean", "1",
	 {"(2 + centred)*elements", "2*elements*t", "(1 + centred)*rows*s"}},
	{"dx", "elementwise", "torch.sub, torch.mul", "1",
	 {"(3 + centred)*elements", "2*elements*t + (2 + centred)*rows*s", "elements*t"}},
	{"dweight", "reduction", "torch.sum", "weight",
	 {"2*elements", "2*elements*t", "hidden*w"}},
	{"dbias", "reduction", "torch.sum", "bias",
	 {"elements", "elements*t", "hidden*w"}},
	{"cast_out", "cast", "torch.Tensor.to", "casts",
	 {"0", "elements*t", "elements*a"}},
	END,
};

/* ---- pytorch: what version 2.11 launches on a GPU ---- */

static const struct ek_cost_row pytorch_forward[] = {
	{"vectorized_layer_norm_kernel", "fused", NULL, "vectors",
	 {"(3 + 7*centred + weight + centred*bias)*elements + 3*rows",
	 "elements*a + (weight + centred*bias)*hidden*w", "elements*a + (1 + centred)*rows*s"}},
	{"RowwiseMomentsCUDAKernel", "reduction", NULL, "1 - vectors",
	 {"(2 + 5*centred)*elements + 3*rows", "elements*a", "(1 + centred)*rows*s"}},
	{"LayerNormForwardCUDAKernel", "elementwise", NULL, "1 - vectors",
	 {"(1 + centred + weight + centred*bias)*elements",
	 "elements*a + (1 + centred)*rows*s + (weight + centred*bias)*hidden*w", "elements*a"}},
	/* PyTorch's rms_norm has no bias: a user adds it. */
	{"vectorized_elementwise_kernel", "elementwise", "torch.add", "bias - centred*bias",
	 {"elements", "elements*a + hidden*w", "elements*a"}},
	END,
};

static const struct ek_cost_row pytorch_backward[] = {
	{"layer_norm_grad_input_kernel_vectorized", "fused", NULL, "vectors",
	 {"(8 + 4*centred + 2*weight)*elements + 2*rows",
	 "2*elements*a + (1 + centred)*rows*s + weight*hidden*w", "elements*a"}},
	{"layer_norm_grad_input_kernel", "fused", NULL, "1 - vectors",
	 {"(8 + 4*centred + 2*weight)*elements + 2*rows",
	 "2*elements*a + (1 + centred)*rows*s + weight*hidden*w", "elements*a"}},
	{"GammaBetaBackwardCUDAKernelTemplate", "reduction", NULL, "(weight + centred*bias)*(1 - row_sums)",
	 {"((3 + centred)*weight + centred*bias)*elements",
	 "(1 + weight)*elements*a + weight*(1 + centred)*rows*s", "(weight + centred*bias)*hidden*w"}},
	/* Many narrow rows: blocks of rows first, then torch.sum for each of the two. */
	{"GammaBetaBackwardCUDAKernelTemplate", "reduction", NULL, "(weight + centred*bias)*row_sums",
	 {"((3 + centred)*weight + centred*bias)*elements",
	 "(1 + weight)*elements*a + weight*(1 + centred)*rows*s", "(weight + centred*bias)*row_blocks*hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "weight*row_sums",
	 {"row_blocks*hidden", "row_blocks*hidden*w", "hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "centred*bias*row_sums",
	 {"row_blocks*hidden", "row_blocks*hidden*w", "hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "bias - centred*bias",
	 {"elements", "elements*a", "hidden*w"}},
	END,
};

/* ---- evenkeel: rules 3 to 6 of docs/numerics.md; an fma counts two, a sum one for every term ---- */

#define FORWARD_FLOPS "(3 + 5*centred + weight + bias)*elements + (4 + 8*centred)*rows"
#define RECOMPUTED    " + (1 - statistics)*((2 + 3*centred)*elements + (4 + 7*centred)*rows)"
#define COLUMN_SUMS   "(2*weight + bias)*elements + sums*slots*hidden"

static const struct ek_cost_row evenkeel_forward[] = {
	{"forward", "fused", "src/ops/norm/kernels/forward.cu", "1 - staged",
	 {FORWARD_FLOPS, "inputs", "outputs"}},
	{"forward_staged", "fused", "src/ops/norm/kernels/staged.cu", "staged",
	 {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward[] = {
	{"backward", "fused", "src/ops/norm/kernels/backward.cu", "1 - staged",
	 {"(6 + 4*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED " + " COLUMN_SUMS,
	 "inputs + chunk_bytes",
	 "outputs - gradients + sums*partials*padded*s + chunk_bytes"}},
	{"backward_staged_rows", "fused", "src/ops/norm/kernels/staged.cu", "staged",
	 {"(3 + 3*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED
	 " + (1 - any_sums)*(3 + centred)*elements",
	 "inputs", "any_sums*5*rows*s + (1 - any_sums)*outputs"}},
	{"backward_staged_columns", "fused", "src/ops/norm/kernels/staged.cu", "staged*any_sums",
	 {"(4 + 3*centred + weight)*elements + " COLUMN_SUMS,
	 "inputs - statistics_inputs + 8*rows*s",
	 "outputs - gradients + sums*partials*padded*s"}},
	{"backward_fold", "reduction", "src/ops/norm/kernels/columns.cu", "fold_1",
	 {"sums*partials*hidden", "sums*partials*padded*s", "sums*partials_2*padded*s"}},
	{"backward_fold", "reduction", "src/ops/norm/kernels/columns.cu", "fold_2",
	 {"sums*partials_2*hidden", "sums*partials_2*padded*s", "sums*partials_3*padded*s"}},
	{"backward_fold", "reduction", "src/ops/norm/kernels/columns.cu", "fold_3",
	 {"sums*partials_3*hidden", "sums*partials_3*padded*s", "sums*partials_4*padded*s"}},
	{"backward_final", "reduction", "src/ops/norm/kernels/columns.cu", "any_sums",
	 {"sums*last_partials*hidden", "sums*last_partials*padded*s", "gradients"}},
	END,
};

/* On the CPU a call is one sweep, and what it keeps in its workspace stays in the caches. */
static const struct ek_cost_row evenkeel_forward_cpu[] = {
	{"forward", "fused", "src/ops/norm/cpu.c", "1",
	 {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward_cpu[] = {
	{"backward", "fused", "src/ops/norm/cpu.c", "1",
	 {"(6 + 4*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED " + " COLUMN_SUMS,
	 "inputs", "outputs"}},
	END,
};

/* clang-format on */

const struct ek_cost_row *ek_cost_rows(ek_variant variant, ek_pass pass, ek_device device)
{
	static const struct ek_cost_row *const tables[][2] = {
		{reference_forward, reference_backward},
		{pytorch_forward, pytorch_backward},
		{evenkeel_forward, evenkeel_backward},
		{evenkeel_forward_cpu, evenkeel_backward_cpu},
	};
	int table = variant == EK_EVENKEEL && device == EK_CPU ? 3 : (int)variant - 1;
	return tables[table][pass - 1];
}

/* ---- names: sizes and operands ---- */

static void add_sizes(struct ek_facts *facts, const ek_cost_args *a)
{
	static const enum ek_symbol sizes[] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN,
					       EK_SYMBOL_HIDDEN_SIZE};
	ek_facts_add(facts, "elements", 1, 3, sizes);
	ek_facts_add(facts, "rows", 1, 2, sizes);
	ek_facts_add_symbol(facts, "hidden", EK_SYMBOL_HIDDEN_SIZE, a->hidden_size);
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

static void add_widths(struct ek_facts *facts, const ek_cost_args *a)
{
	bool reference = a->variant == EK_REFERENCE;
	ek_dtype real = a->dtype == EK_F64 ? EK_F64 : EK_F32;
	ek_facts_add_symbol(facts, "a", EK_SYMBOL_A_BYTES, (int64_t)ek_dtype_size(a->dtype));
	ek_facts_add_symbol(facts, "w", EK_SYMBOL_W_BYTES, (int64_t)ek_dtype_size(a->weight_dtype));
	add_width(facts, "s", EK_SYMBOL_S_BYTES, reference ? a->stats_dtype : real, a->dtype);
	add_width(facts, "t", EK_SYMBOL_T_BYTES, a->intermediate_dtype, a->dtype);
}

static void add_operands(struct ek_facts *facts, const ek_cost_args *a)
{
	int weight = !(a->absent & EK_NO_WEIGHT), bias = !(a->absent & EK_NO_BIAS);
	ek_facts_add_number(facts, "centred", a->norm == EK_LAYER_NORM);
	ek_facts_add_number(facts, "casts", a->compute_dtype != a->dtype);
	ek_facts_add_number(facts, "weight", weight);
	ek_facts_add_number(facts, "bias", bias);
	ek_facts_add_number(facts, "sums", weight + bias);
	ek_facts_add_number(facts, "any_sums", weight || bias);
	ek_facts_add_number(facts, "statistics", !(a->absent & EK_NO_STATISTICS));
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
	ek_facts_add_number(facts, "vectors", !exact || (a->dtype != EK_F64 && a->hidden_size % 4 == 0));
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

/* The operands that ek_cost_args speaks of; a call has them unless one of their flags is set. */
static const struct {
	int absent;
	uint32_t forward, backward;
} known_operands[] = {
	{0, 1u << EK_FORWARD_Y | 1u << EK_FORWARD_X,
	 1u << EK_BACKWARD_DX | 1u << EK_BACKWARD_DY | 1u << EK_BACKWARD_X},
	{EK_NO_WEIGHT, 1u << EK_FORWARD_WEIGHT, 1u << EK_BACKWARD_WEIGHT | 1u << EK_BACKWARD_DWEIGHT},
	{EK_NO_BIAS, 1u << EK_FORWARD_BIAS, 1u << EK_BACKWARD_DBIAS},
	{EK_NO_STATISTICS, 1u << EK_FORWARD_MEAN | 1u << EK_FORWARD_RSTD,
	 1u << EK_BACKWARD_MEAN | 1u << EK_BACKWARD_RSTD},
	{EK_NO_STATISTICS | EK_NO_MEAN_LO, 1u << EK_FORWARD_MEAN_LO, 1u << EK_BACKWARD_MEAN_LO},
};

static uint32_t present_operands(const ek_cost_args *a)
{
	uint32_t present = 0;
	for (size_t i = 0; i < sizeof known_operands / sizeof *known_operands; i++)
		if (!(a->absent & known_operands[i].absent))
			present |= a->pass == EK_FORWARD ? known_operands[i].forward
							 : known_operands[i].backward;
	return present;
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
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		if (present >> i & 1 && ek_operand_has_kind(operand, (int)a->norm))
			ek_operand_set(operand, &call.args, tensor);
		if (operand->dims[0].stride)
			*(int64_t *)ek_field(&call.args, operand->dims[0].stride) = a->hidden_size;
		if (operand->dtype)
			*(ek_dtype *)ek_field(&call.args, operand->dtype) =
				operand->dtype == op->dtype ? a->dtype : a->weight_dtype;
	}
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

static enum ek_symbol dtype_symbol(const struct ek_op *op, const struct ek_operand *operand)
{
	if (operand->dtype == 0)
		return EK_SYMBOL_S_BYTES;
	return operand->dtype == op->dtype ? EK_SYMBOL_A_BYTES : EK_SYMBOL_W_BYTES;
}

static void add_operand_bytes(struct ek_facts *facts, const struct call *call)
{
	static const struct ek_cost_symbols symbols = {
		.size_count = {[EK_NORM_ROWS] = 2, [EK_NORM_COLS] = 1},
		.size = {[EK_NORM_ROWS] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN},
			 [EK_NORM_COLS] = {EK_SYMBOL_HIDDEN_SIZE}},
		.dtype = dtype_symbol};
	enum { INPUTS, STATISTICS_INPUTS, OUTPUTS, GRADIENTS, GROUPS };
	static const char *const names[GROUPS] = {"inputs", "statistics_inputs", "outputs", "gradients"};
	uint32_t groups[GROUPS] = {0};
	for (int i = 0; i < call->op->operand_count; i++) {
		const struct ek_operand *operand = &call->op->operands[i];
		bool output = operand->flags & EK_OUTPUT, sum = operand->flags & EK_ACCUMULATES;
		bool statistic = operand->rank == 1 && operand->dims[0].size == EK_NORM_ROWS;
		groups[output ? OUTPUTS : INPUTS] |= 1u << i;
		groups[STATISTICS_INPUTS] |= (uint32_t)(!output && statistic) << i;
		groups[GRADIENTS] |= (uint32_t)(output && sum) << i;
	}
	for (int i = 0; i < GROUPS; i++)
		ek_facts_add_bytes(facts, names[i], call->op, &call->args, groups[i], &symbols);
}

static void add_partials(struct ek_facts *facts, const struct ek_norm_plan *plan)
{
	static const char *const names[] = {"partials", "partials_2", "partials_3", "partials_4"};
	static const char *const folds[] = {"fold_1", "fold_2", "fold_3"};
	enum { FOLDS = 3 }; /* more take over 2^40 rows */
	int last = 0;
	for (int i = 0; i <= FOLDS; i++) {
		ek_facts_add_symbol(facts, names[i], (enum ek_symbol)(EK_SYMBOL_PARTIALS + i),
				    plan->partials[i]);
		if (i > 0)
			ek_facts_add_number(facts, folds[i - 1], plan->partials[i] > 0);
		if (plan->partials[i] > 0)
			last = i;
	}
	ek_facts_add_symbol(facts, "last_partials", (enum ek_symbol)(EK_SYMBOL_PARTIALS + last),
			    plan->partials[last]);
}

static void add_evenkeel(struct ek_facts *facts, const ek_cost_args *a, bool exact)
{
	int64_t rows = exact ? a->batch_size * a->seq_len : 1, real = a->dtype == EK_F64 ? 8 : 4;
	int64_t padded = (a->hidden_size * real + 15) / 16 * 16 / real;
	const struct call call = call_of(a, rows);
	struct ek_norm_plan plan = {.staged = false};
	if (exact && a->device == EK_CUDA)
		plan_call(a, &call, &plan);
	add_operand_bytes(facts, &call);
	ek_facts_add_number(facts, "staged", plan.staged);
	ek_facts_add_symbol(facts, "slots", EK_SYMBOL_SLOTS, ek_slot_count(rows, a->hidden_size));
	add_partials(facts, &plan);
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
