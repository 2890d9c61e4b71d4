/* What each variant launches, forward and backward, LayerNorm and RMSNorm in one table each. docs/cost.md explains the
 * counts. Names (cost_facts.c says what they are for given arguments): elements, rows and hidden are sizes; a, t, s and w the
 * bytes of an activation, of what lies between casts, of a statistic, of a weight; h of a residual, n of what the norm
 * reads, p of its result with a residual behind it, y of the result, v of what an activation is applied to, g of a
 * weight's gradient; inputs, outputs, gradients, statistics_inputs and dh_inputs the bytes of
 * operands, by the op's table; the others are 0 or 1, or small numbers. SPDX-License-Identifier: MIT */
#include "cost/tables.h"

#define END                  \
	{                    \
		.name = NULL \
	}

/* clang-format off */

/* The kernel of the activation that there is, by its name in a variant. */
#define ACTIVATION(sigmoid, silu, gelu, when, flops, read, written)                                        \
	{sigmoid, "elementwise", "=torch.sigmoid", "(" when ")*sigmoid", {flops, read, written}},          \
	{silu, "elementwise", "=torch.nn.functional.silu", "(" when ")*silu", {flops, read, written}},     \
	{gelu, "elementwise", "=torch.nn.functional.gelu", "(" when ")*gelu", {flops, read, written}}
#define VALUE(sigmoid, silu, gelu, when, width) \
	ACTIVATION(sigmoid, silu, gelu, when, "value_flops*elements", "elements*" width, "elements*" width)
#define SLOPE(sigmoid, silu, gelu, when, width) \
	ACTIVATION(sigmoid, silu, gelu, when, "(1 + slope_flops)*elements", "2*elements*" width, "elements*" width)

/* ---- reference: every step of the formula a kernel of its own ---- */

#define STEP_VALUE(when) VALUE("sigmoid", "silu", "gelu", when, "v")
#define STEP_SLOPE(when) SLOPE("sigmoid_backward", "silu_backward", "gelu_backward", when, "v")

static const struct ek_cost_row reference_forward[] = {
	STEP_VALUE("gate_in"),
	{"gate", "elementwise", "=torch.mul", "gate_in",
	 {"elements", "2*elements*a", "elements*a"}},
	{"add_bias", "elementwise", "=torch.add", "x_bias",
	 {"elements", "elements*a + hidden*w", "elements*a"}},
	{"add_residual", "elementwise", "=torch.add", "residual",
	 {"elements", "elements*a + elements*h", "elements*h"}},
	{"offset", "elementwise", "=torch.add", "offset",
	 {"hidden", "hidden*w", "hidden*w"}},
	{"cast_in", "cast", "torch.Tensor.to", "cast_in",
	 {"0", "elements*n", "elements*t"}},
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
	{"cast_out", "cast", "torch.Tensor.to", "cast_out",
	 {"0", "elements*t", "elements*y"}},
	{"add_residual", "elementwise", "=torch.add", "residual_after",
	 {"elements", "elements*y + elements*h", "elements*y"}},
	STEP_VALUE("1 - gate_in"),
	{"gate", "elementwise", "=torch.mul", "gate_out",
	 {"elements", "elements*y + elements*a", "elements*y"}},
	END,
};

static const struct ek_cost_row reference_backward[] = {
	/* Of the gate's activation, of the norm's result. */
	{"gate_backward", "elementwise", "=torch.mul", "gate_out",
	 {"elements", "2*elements*y", "elements*a"}},
	{"gate_backward", "elementwise", "=torch.mul", "gate_out",
	 {"elements", "elements*y + elements*a", "elements*y"}},
	STEP_SLOPE("1 - gate_in"),
	{"cast_in", "cast", "torch.Tensor.to", "cast_in + cast_out",
	 {"0", "cast_in*elements*n + cast_out*elements*y", "(cast_in + cast_out)*elements*t"}},
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
	 {"2*elements", "2*elements*t", "hidden*g"}},
	{"dbias", "reduction", "torch.sum", "bias",
	 {"elements", "elements*t", "hidden*g"}},
	{"cast_out", "cast", "torch.Tensor.to", "cast_in",
	 {"0", "elements*t", "elements*n"}},
	/* Of the gate's activation, of x. */
	{"gate_backward", "elementwise", "=torch.mul", "gate_in",
	 {"elements", "2*elements*a", "elements*a"}},
	{"gate_backward", "elementwise", "=torch.mul", "gate_in",
	 {"elements", "2*elements*a", "elements*a"}},
	STEP_SLOPE("gate_in"),
	{"add_gradient", "elementwise", "=torch.add", "residual",
	 {"elements", "2*elements*h", "elements*h"}},
	{"cast_dx", "cast", "=torch.Tensor.to", "narrow",
	 {"0", "elements*h", "elements*a"}},
	{"dx_bias", "reduction", "=torch.sum", "x_bias",
	 {"elements", "elements*a", "hidden*g"}},
	END,
};

/* ---- pytorch: what version 2.11 launches on a GPU; where y has another dtype, the cast to it is the last step ---- */

#define KERNEL "vectorized_elementwise_kernel"
#define GATE_VALUE(when) \
	{KERNEL, "elementwise", "=torch.mul", when, {"elements", "2*elements*n", "elements*n"}}
#define GATE_SLOPES(when) GATE_VALUE(when), GATE_VALUE(when)

static const struct ek_cost_row pytorch_forward[] = {
	VALUE(KERNEL, KERNEL, KERNEL, "gate_in", "n"),
	GATE_VALUE("gate_in"),
	{KERNEL, "elementwise", "=torch.add", "x_bias",
	 {"elements", "elements*a + hidden*w", "elements*a"}},
	{KERNEL, "elementwise", "=torch.add", "residual",
	 {"elements", "elements*a + elements*h", "elements*h"}},
	{KERNEL, "elementwise", "=torch.add", "offset",
	 {"hidden", "hidden*w", "hidden*w"}},
	{"vectorized_layer_norm_kernel", "fused", NULL, "vectors",
	 {"(3 + 7*centred + weight + centred*bias)*elements + 3*rows",
	 "elements*n + (weight + centred*bias)*hidden*w", "elements*n + (1 + centred)*rows*s"}},
	{"RowwiseMomentsCUDAKernel", "reduction", NULL, "1 - vectors",
	 {"(2 + 5*centred)*elements + 3*rows", "elements*n", "(1 + centred)*rows*s"}},
	{"LayerNormForwardCUDAKernel", "elementwise", NULL, "1 - vectors",
	 {"(1 + centred + weight + centred*bias)*elements",
	 "elements*n + (1 + centred)*rows*s + (weight + centred*bias)*hidden*w", "elements*n"}},
	/* PyTorch's rms_norm has no bias: a user adds it. */
	{KERNEL, "elementwise", "torch.add", "bias - centred*bias",
	 {"elements", "elements*n + hidden*w", "elements*n"}},
	{KERNEL, "elementwise", "=torch.add", "residual_after",
	 {"elements", "elements*n + elements*h", "elements*p"}},
	VALUE(KERNEL, KERNEL, KERNEL, "1 - gate_in", "n"),
	GATE_VALUE("gate_out"),
	{KERNEL, "cast", "=torch.Tensor.to", "recast",
	 {"0", "elements*p", "elements*y"}},
	END,
};

static const struct ek_cost_row pytorch_backward[] = {
	{KERNEL, "cast", "=torch.Tensor.to", "recast",
	 {"0", "elements*y", "elements*p"}},
	/* To the norm's result of its sum with a wider residual. */
	{KERNEL, "cast", "=torch.Tensor.to", "widened",
	 {"0", "elements*p", "elements*n"}},
	GATE_SLOPES("gate_out"),
	SLOPE(KERNEL, KERNEL, KERNEL, "1 - gate_in", "n"),
	{"layer_norm_grad_input_kernel_vectorized", "fused", NULL, "vectors",
	 {"(8 + 4*centred + 2*weight)*elements + 2*rows",
	 "2*elements*n + (1 + centred)*rows*s + weight*hidden*w", "elements*n"}},
	{"layer_norm_grad_input_kernel", "fused", NULL, "1 - vectors",
	 {"(8 + 4*centred + 2*weight)*elements + 2*rows",
	 "2*elements*n + (1 + centred)*rows*s + weight*hidden*w", "elements*n"}},
	{"GammaBetaBackwardCUDAKernelTemplate", "reduction", NULL, "(weight + centred*bias)*(1 - row_sums)",
	 {"((3 + centred)*weight + centred*bias)*elements",
	 "(1 + weight)*elements*n + weight*(1 + centred)*rows*s", "(weight + centred*bias)*hidden*w"}},
	/* Many narrow rows: blocks of rows first, then torch.sum for each of the two. */
	{"GammaBetaBackwardCUDAKernelTemplate", "reduction", NULL, "(weight + centred*bias)*row_sums",
	 {"((3 + centred)*weight + centred*bias)*elements",
	 "(1 + weight)*elements*n + weight*(1 + centred)*rows*s", "(weight + centred*bias)*row_blocks*hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "weight*row_sums",
	 {"row_blocks*hidden", "row_blocks*hidden*w", "hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "centred*bias*row_sums",
	 {"row_blocks*hidden", "row_blocks*hidden*w", "hidden*w"}},
	{"reduce_kernel", "reduction", "torch.sum", "bias - centred*bias",
	 {"elements", "elements*n", "hidden*w"}},
	/* What autograd adds behind the norm's backward. */
	GATE_SLOPES("gate_in"),
	SLOPE(KERNEL, KERNEL, KERNEL, "gate_in", "n"),
	{KERNEL, "elementwise", "=torch.add", "residual",
	 {"elements", "2*elements*h", "elements*h"}},
	{KERNEL, "cast", "=torch.Tensor.to", "narrow",
	 {"0", "elements*h", "elements*a"}},
	{"reduce_kernel", "reduction", "=torch.sum", "x_bias",
	 {"elements", "elements*a", "hidden*w"}},
	END,
};

/* ---- evenkeel: rules 3 to 6 of docs/numerics.md; an fma counts two, a sum one for every term ---- */

#define FORWARD_FLOPS                                                                         \
	"(3 + 5*centred + weight + bias + residual + residual_after + x_bias)*elements + (4 + 8*centred)*rows" \
	" + offset*hidden + (value_flops + gate)*elements"
#define RECOMPUTED    " + (1 - statistics)*((2 + 3*centred)*elements + (4 + 7*centred)*rows)"
#define COLUMN_SUMS   "(2*weight + bias + x_bias)*elements + sums*slots*hidden"
/* dx + dh, and x + x_bias where no sum of them was kept. */
#define BESIDE        " + (residual + biased_x)*elements + offset*hidden"
/* What the activation was applied to, and dy times its derivative there. */
#define ACTIVATED     " + (slope_flops + activation*(1 + weight + bias) + gate*4 + gate_in + gate_out*(weight + bias))*elements"

static const struct ek_cost_row evenkeel_forward[] = {
	{"forward", "fused", "src/ops/norm/kernels/forward.cu", "1 - staged",
	 {FORWARD_FLOPS, "inputs", "outputs"}},
	{"forward_staged", "fused", "src/ops/norm/kernels/staged.cu", "staged",
	 {FORWARD_FLOPS, "inputs", "outputs"}},
	END,
};

static const struct ek_cost_row evenkeel_backward[] = {
	{"backward", "fused", "src/ops/norm/kernels/backward.cu", "1 - staged",
	 {"(6 + 4*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED BESIDE ACTIVATED " + " COLUMN_SUMS,
	 "inputs + chunk_bytes",
	 "outputs - gradients + sums*partials*padded*s + chunk_bytes"}},
	{"backward_staged_rows", "fused", "src/ops/norm/kernels/staged.cu", "staged",
	 {"(3 + 3*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED ACTIVATED
	 " + biased_x*elements + offset*hidden + (1 - any_sums)*(3 + centred + residual)*elements",
	 "inputs - any_sums*dh_inputs", "any_sums*5*rows*s + (1 - any_sums)*outputs"}},
	{"backward_staged_columns", "fused", "src/ops/norm/kernels/staged.cu", "staged*any_sums",
	 {"(4 + 3*centred + weight)*elements" BESIDE ACTIVATED " + " COLUMN_SUMS,
	 "inputs - statistics_inputs + 8*rows*s",
	 "outputs - gradients + sums*partials*padded*s"}},
	EK_FOLDS,
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
	 {"(6 + 4*centred + weight)*elements + (1 + 2*centred)*rows" RECOMPUTED BESIDE ACTIVATED " + " COLUMN_SUMS,
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
	return ek_cost_table(tables, variant, pass, device);
}
