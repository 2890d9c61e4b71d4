/* What gated activations launch in each variant, forward and backward, as rows of text. docs/cost.md explains the counts. Names:
 * elements are those of y, columns those of a row; a, w, g and s the bytes of an activation, of a bias, of its gradient and of a
 * partial sum; inputs, outputs and gradients those of operands, by the op's table; the others are 0 or 1, or small numbers.
 * Called by src/cost. SPDX-License-Identifier: MIT */
#include "core/check_op.h"
#include "core/require.h"
#include "core/sizes.h"
#include "core/slots.h"
#include "cost/cost.h"
#include "gpu/kernels/columns_layout.h"
#include "kernels/layout.h"
#include "op.h"
#include "ops/choices.h"
#include "plan.h"

#define END                  \
	{                    \
		.name = NULL \
	}

/* clang-format off */

/* ---- the steps of the formula; PyTorch launches a kernel for each of them, under other names ---- */

#define STEP(name, type, call, when, flops, read, written) {name, type, "=" call, when, {flops, read, written}}
#define FORWARD_STEPS(GATE_BIAS, VALUE_BIAS, ACTIVATION, SQUARE, VALUE)                                              \
	STEP(GATE_BIAS, "elementwise", "torch.add", "gate_bias",                                                     \
	     "elements", "elements*a + columns*w", "elements*a"),                                                    \
	STEP(VALUE_BIAS, "elementwise", "torch.add", "value_bias",                                                   \
	     "elements", "elements*a + columns*w", "elements*a"),                                                    \
	STEP(ACTIVATION, "elementwise", "torch.nn.functional.silu or its like", "activated",                         \
	     "(value_flops - squared)*elements", "elements*a", "elements*a"),                                        \
	STEP(SQUARE, "elementwise", "torch.square", "squared",                                                       \
	     "elements", "elements*a", "elements*a"),                                                                \
	STEP(VALUE, "elementwise", "torch.mul", "value",                                                             \
	     "elements", "2*elements*a", "elements*a")
/* From what forward kept: the sums with the biases, and the activation's result. */
#define BACKWARD_STEPS(DVALUE, DACTIVATION, DSQUARE, SQUARE_FLOPS, DGATE, DGATE_BIAS, DVALUE_BIAS)                   \
	STEP(DVALUE, "elementwise", "torch.mul", "value",                                                            \
	     "elements", "2*elements*a", "elements*a"),                                                              \
	STEP(DACTIVATION, "elementwise", "torch.mul", "value",                                                       \
	     "elements", "2*elements*a", "elements*a"),                                                              \
	STEP(DSQUARE, "elementwise", "torch.mul", "squared",                                                         \
	     SQUARE_FLOPS, "2*elements*a", "elements*a"),                                                            \
	STEP(DGATE, "elementwise", "torch.ops.aten.silu_backward or its like", "activated",                          \
	     "(1 + slope_flops - 2*squared)*elements", "2*elements*a", "elements*a"),                                \
	STEP(DGATE_BIAS, "reduction", "torch.sum", "gate_bias",                                                      \
	     "elements", "elements*a", "columns*g"),                                                                 \
	STEP(DVALUE_BIAS, "reduction", "torch.sum", "value_bias",                                                    \
	     "elements", "elements*a", "columns*g")

static const struct ek_cost_row reference_forward[] = {
	FORWARD_STEPS("add_gate_bias", "add_value_bias", "activation", "square", "multiply"),
	END,
};

static const struct ek_cost_row reference_backward[] = {
	BACKWARD_STEPS("dvalue", "dactivation", "dsquare", "2*elements", "dgate", "dgate_bias", "dvalue_bias"),
	END,
};

#define KERNEL "vectorized_elementwise_kernel"

static const struct ek_cost_row pytorch_forward[] = {
	FORWARD_STEPS(KERNEL, KERNEL, KERNEL, KERNEL, KERNEL),
	END,
};

static const struct ek_cost_row pytorch_backward[] = {
	/* The derivative of a square: a power of one, times two, times the gradient. */
	STEP(KERNEL, "elementwise", "torch.pow", "squared", "0", "elements*a", "elements*a"),
	STEP(KERNEL, "elementwise", "torch.mul", "squared", "elements", "elements*a", "elements*a"),
	BACKWARD_STEPS(KERNEL, KERNEL, KERNEL, "elements", KERNEL, "reduce_kernel", "reduce_kernel"),
	END,
};

/* ---- evenkeel: rule 11 of docs/numerics.md ---- */

#define FORWARD_FLOPS  "(value_flops + value + gate_bias + value_bias)*elements"
/* The sums with the biases again; dy * v * slope and dy * activation. */
#define BACKWARD_FLOPS "(1 + slope_flops + 2*value + gate_bias + value_bias)*elements"
#define COLUMN_SUMS    " + sums*elements + sums*columns*slots"

static const struct ek_cost_row evenkeel_forward[] = {
	{"forward", "fused", "src/ops/glu/kernels/rows.cu", "1", {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward[] = {
	{"backward", "fused", "src/ops/glu/kernels/rows.cu", "1 - any_sums", {BACKWARD_FLOPS, "inputs", "outputs"}},
	{"backward_sums", "fused", "src/ops/glu/kernels/sums.cu", "any_sums",
	 {BACKWARD_FLOPS COLUMN_SUMS, "inputs", "outputs - gradients + sums*partials*columns*s"}},
	EK_FOLDS,
	END,
};

static const struct ek_cost_row evenkeel_forward_cpu[] = {
	{"forward", "fused", "src/ops/glu/cpu.c", "1", {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward_cpu[] = {
	{"backward", "fused", "src/ops/glu/cpu.c", "1", {BACKWARD_FLOPS COLUMN_SUMS, "inputs", "outputs"}},
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

static ek_status check(ek_cost_args *a)
{
	const int with = EK_WITH_VALUE | EK_WITH_BIASES;
	PASS_ON(ek_cost_check_op(a, EK_BACKWARD, EK_EVENKEEL));
	PASS_ON(ek_check_dtype("dtype", &a->dtype, 0));
	PASS_ON(ek_check_follower("weight_dtype", &a->weight_dtype, "dtype", a->dtype));
	PASS_ON(ek_check_follower("gradient_dtype", &a->gradient_dtype, "weight_dtype", a->weight_dtype));
	REQUIRE((a->with & ~with) == 0, EK_ERROR_ARGUMENT,
		"with (%d) has bits beyond EK_WITH_VALUE (%d) and EK_WITH_BIASES (%d)", a->with,
		(int)EK_WITH_VALUE, (int)EK_WITH_BIASES);
	REQUIRE((unsigned)a->activation - 1 < EK_IDENTITY, EK_ERROR_ARGUMENT,
		"activation (%d) is not in EK_SIGMOID (%d) to EK_IDENTITY (%d)", (int)a->activation,
		(int)EK_SIGMOID, (int)EK_IDENTITY);
	PASS_ON(ek_cost_check_size("ffn_size", a->ffn_size, EK_MAX_COLS, "EK_MAX_COLS"));
	return ek_cost_check_memory(a, "ffn_size", a->ffn_size);
}

/* ---- what the names mean ---- */

/* Of a value, and of it and its derivative: exp, tanh, erf, a division one each, comparisons none. evenkeel computes silu
 * in 23 operations and its derivative in 27, gelu in 46 and 47 (src/ops/norm/cost_facts.c): no bound changes. */
struct ek_activation_flops ek_glu_flops(ek_activation activation)
{
	static const struct ek_activation_flops flops[] = {
		[EK_SIGMOID] = {3, 5},    [EK_SILU] = {4, 8}, [EK_GELU] = {5, 11},
		[EK_GELU_TANH] = {9, 17}, [EK_RELU] = {0, 0}, [EK_RELU_SQUARED] = {1, 2},
		[EK_IDENTITY] = {0, 0}};
	return flops[activation];
}

static void add_numbers(struct ek_facts *facts, const ek_cost_args *a)
{
	bool value = a->with & EK_WITH_VALUE, biases = a->with & EK_WITH_BIASES;
	const struct {
		const char *name;
		int number;
	} numbers[] = {{"value", value},
		       {"gate_bias", biases},
		       {"value_bias", value && biases},
		       {"sums", biases + (value && biases)},
		       {"any_sums", biases},
		       {"activated", a->activation != EK_IDENTITY},
		       {"squared", a->activation == EK_RELU_SQUARED},
		       {"value_flops", ek_glu_flops(a->activation).value},
		       {"slope_flops", ek_glu_flops(a->activation).slope}};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		ek_facts_add_number(facts, numbers[i].name, numbers[i].number);
}

static void add_sizes(struct ek_facts *facts, const ek_cost_args *a)
{
	static const enum ek_symbol sizes[] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN, EK_SYMBOL_FFN_SIZE};
	bool own = a->gradient_dtype != a->weight_dtype;
	ek_facts_add(facts, "elements", 1, 3, sizes);
	facts->values[EK_SYMBOL_BATCH_SIZE] = a->batch_size;
	facts->values[EK_SYMBOL_SEQ_LEN] = a->seq_len;
	ek_facts_add_symbol(facts, "columns", EK_SYMBOL_FFN_SIZE, a->ffn_size);
	ek_facts_add_symbol(facts, "a", EK_SYMBOL_A_BYTES, (int64_t)ek_dtype_size(a->dtype));
	ek_facts_add_symbol(facts, "w", EK_SYMBOL_W_BYTES, (int64_t)ek_dtype_size(a->weight_dtype));
	ek_facts_add_symbol(facts, "g", own ? EK_SYMBOL_G_BYTES : EK_SYMBOL_W_BYTES,
			    (int64_t)ek_dtype_size(a->gradient_dtype));
	ek_facts_add_symbol(facts, "s", EK_SYMBOL_S_BYTES, a->dtype == EK_F64 ? 8 : 4);
}

static enum ek_symbol dtype_symbol(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	if (operand->dtype == op->dtype)
		return EK_SYMBOL_A_BYTES;
	bool gradient = operand->dtype == op->choice[EK_CHOICE_GRADIENT_DTYPE];
	return gradient && ek_choice_of(op, EK_CHOICE_GRADIENT_DTYPE + 1, args) !=
				       ek_choice_of(op, EK_CHOICE_WEIGHT_DTYPE + 1, args)
		       ? EK_SYMBOL_G_BYTES
		       : EK_SYMBOL_W_BYTES;
}

/* Without an activation dgate is dy times the value: a GPU's kernels leave out what has no influence, as READS_GATE of
 * kernels/elements.cu says. */
static bool reads_gate(const ek_cost_args *a)
{
	return a->activation != EK_IDENTITY || a->with & EK_WITH_VALUE || a->device != EK_CUDA ||
	       a->variant != EK_EVENKEEL;
}

static void add_operands(struct ek_facts *facts, const ek_cost_args *a)
{
	static const struct ek_cost_symbols symbols = {
		.size_count = {[EK_GLU_ROWS] = 2, [EK_GLU_COLS] = 1},
		.size = {[EK_GLU_ROWS] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN},
			 [EK_GLU_COLS] = {EK_SYMBOL_FFN_SIZE}},
		.dtype = dtype_symbol};
	static char tensor[1];
	void *value = a->with & EK_WITH_VALUE ? tensor : NULL,
	     *bias = a->with & EK_WITH_BIASES ? tensor : NULL;
	void *value_bias = value ? bias : NULL;
	const ek_glu_forward_args forward = {.dtype = a->dtype,
					     .weight_dtype = a->weight_dtype,
					     .gate = tensor,
					     .value = value,
					     .gate_bias = bias,
					     .value_bias = value_bias,
					     .y = tensor};
	const ek_glu_backward_args backward = {.dtype = a->dtype,
					       .weight_dtype = a->weight_dtype,
					       .gradient_dtype = a->gradient_dtype,
					       .dy = tensor,
					       .gate = reads_gate(a) ? tensor : NULL,
					       .value = value,
					       .gate_bias = reads_gate(a) ? bias : NULL,
					       .value_bias = value_bias,
					       .dgate = a->absent & EK_NO_DGATE ? NULL : tensor,
					       .dvalue = value,
					       .dgate_bias = bias,
					       .dvalue_bias = value_bias};
	if (a->pass == EK_FORWARD)
		ek_facts_add_operands(facts, &ek_glu_forward_op, &forward, &symbols);
	else
		ek_facts_add_operands(facts, &ek_glu_backward_op, &backward, &symbols);
}

static void add_cuts(struct ek_facts *facts, const ek_cost_args *a)
{
	int64_t rows = a->batch_size * a->seq_len, slots = ek_slot_count(rows, a->ffn_size),
		padded = GROUP_PITCH_OF(a->ffn_size, a->dtype == EK_F64 ? 8 : 4);
	ek_facts_add_symbol(facts, "slots", EK_SYMBOL_SLOTS, slots);
	ek_facts_add_folds(facts, ek_glu_partials(a->dtype, rows, a->ffn_size));
	ek_facts_add_symbol(facts, "padded",
			    padded == a->ffn_size ? EK_SYMBOL_FFN_SIZE : EK_SYMBOL_PADDED_SIZE, padded);
}

static void add_facts(struct ek_facts *facts, const ek_cost_args *a)
{
	facts->count = 0;
	add_sizes(facts, a);
	add_numbers(facts, a);
	add_operands(facts, a);
	add_cuts(facts, a);
}

static const char *path(const ek_cost_args *a)
{
	bool forward = a->pass == EK_FORWARD, value = a->with & EK_WITH_VALUE;
	if (a->variant != EK_EVENKEEL)
		return value ? "activation(gate) * value" : "activation(gate)";
	if (value)
		return forward ? "evenkeel.torch.glu -> ek_glu_forward"
			       : "evenkeel.torch.glu -> ek_glu_backward";
	return forward ? "evenkeel.torch.bias_act -> ek_glu_forward"
		       : "evenkeel.torch.bias_act -> ek_glu_backward";
}

const struct ek_cost_op ek_glu_cost_op = {check, rows, add_facts, path};
