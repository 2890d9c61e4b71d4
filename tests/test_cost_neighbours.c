/* What the cost model counts beside the norm (residuals, activations, gates), against numbers worked by hand. SPDX-License-Identifier: MIT */
#include <string.h>

#include "support_cost.h"

/* 2 x 3 rows of 8: 48 elements. What lies beside the norm, in turn with each variant's kernels. */
TEST(a_residual_is_the_count_by_hand)
{
	static const struct {
		ek_norm norm;
		ek_pass pass;
		ek_variant variant;
		int with;
		ek_dtype h_dtype;
		const char *kernels;
		int64_t flops, read, written;
	} counts[] = {
		/* 48 + 8 * 48 + 2 * 6; 192 + 3 * 96 + 3 * 12 + 2 * 16; 96 + 2 * 96 + 3 * 12 */
		{EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE, EK_WITH_RESIDUAL, 0,
		 "add_residual var_mean rsqrt normalize affine", 444, 548, 324},
		/* 48 + 12 * 48 + 18; 192 + 96 + 32; 96 + 96 + 48 */
		{EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH, EK_WITH_RESIDUAL, 0,
		 "vectorized_elementwise_kernel vectorized_layer_norm_kernel", 642, 320, 240},
		/* 11 * 48 + 12 * 6; x and residual 192, weights 32; y and h 192, statistics 72 */
		{EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL, EK_WITH_RESIDUAL, 0, "forward", 600, 224, 264},
		/* one addition more, a bias of 16 bytes */
		{EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL, EK_WITH_RESIDUAL | EK_WITH_X_BIAS, 0, "forward", 648,
		 240, 264},
		/* residual and h of 4 bytes: 96 + 192 + 32; 192 + 96 + 72 */
		{EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL, EK_WITH_RESIDUAL, EK_F32, "forward", 600, 320, 360},
		/* after the norm: as before it, without h */
		{EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL, EK_WITH_RESIDUAL_AFTER, 0, "forward", 600, 224, 168},
		/* 12 * 48 + 18 + 48; 96 + 32 + 192; 96 + 48 + 96 */
		{EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH, EK_WITH_RESIDUAL_AFTER, 0,
		 "vectorized_layer_norm_kernel vectorized_elementwise_kernel", 642, 320, 240},
		/* of 4 bytes: the sum has as many, its cast to y reads them: 128 + 96 + 192 + 192; 144 + 192 + 96 */
		{EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH, EK_WITH_RESIDUAL_AFTER, EK_F32,
		 "vectorized_layer_norm_kernel vectorized_elementwise_kernel vectorized_elementwise_kernel",
		 642, 608, 432},
		/* x_bias alone: no h */
		{EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL, EK_WITH_X_BIAS, 0, "forward", 600, 144, 168},
		/* (8 + 4 + 2) * 48 + 12, 5 * 48, 48; 192 + 48 + 16, 192 + 48, 192; 96, 32, 96 */
		{EK_LAYER_NORM, EK_BACKWARD, EK_PYTORCH, EK_WITH_RESIDUAL, 0,
		 "layer_norm_grad_input_kernel_vectorized GammaBetaBackwardCUDAKernelTemplate "
		 "vectorized_elementwise_kernel",
		 972, 688, 224},
	};
	for (int i = 0; i < COUNT_OF(counts); i++) {
		ek_cost_args args = args_of(counts[i].norm, counts[i].pass, counts[i].variant);
		args.batch_size = 2;
		args.seq_len = 3;
		args.hidden_size = 8;
		args.with = counts[i].with;
		args.h_dtype = counts[i].h_dtype;
		const ek_cost *cost = cost_of(&args);
		expect_kernels(cost, counts[i].kernels);
		expect_numbers(&cost->total, counts[i].flops, counts[i].read, counts[i].written);
	}
}

/* Where the dtypes agree dx is also dresidual; else there are two. */
TEST(backward_of_a_residual_reads_three_tensors_and_writes_one_or_two)
{
	ek_cost_args args = args_of(EK_RMS_NORM, EK_BACKWARD, EK_EVENKEEL);
	args.device = EK_CPU;
	args.with = EK_WITH_RESIDUAL;
	args.absent = EK_NO_BIAS;
	expect_formulas(&cost_of(&args)->total,
			"10*batch_size*seq_len*hidden_size + batch_size*seq_len + hidden_size*slots",
			"3*batch_size*seq_len*hidden_size*a_bytes + batch_size*seq_len*s_bytes + "
			"hidden_size*w_bytes",
			"batch_size*seq_len*hidden_size*a_bytes + hidden_size*w_bytes");
	args.h_dtype = EK_F32;
	args.y_dtype = EK_F32;
	args.gradient_dtype = EK_F32;
	args.weight_offset = 1;
	expect_formulas(&cost_of(&args)->total,
			"10*batch_size*seq_len*hidden_size + batch_size*seq_len + hidden_size*slots + "
			"hidden_size",
			"2*batch_size*seq_len*hidden_size*h_bytes + batch_size*seq_len*hidden_size*y_bytes + "
			"batch_size*seq_len*s_bytes + hidden_size*w_bytes",
			"batch_size*seq_len*hidden_size*a_bytes + batch_size*seq_len*hidden_size*h_bytes + "
			"hidden_size*g_bytes");
}

/* Bytes of the kernels one by one: read, written, in units of 48 elements of a byte; weights and statistics aside. */
static void expect_passes(const ek_cost *cost, const char *kernels, int count, const int (*passes)[2])
{
	if (!expect_kernels(cost, kernels))
		return;
	for (int i = 0; i < count && i < cost->kernel_count; i++) {
		const ek_cost_kernel *kernel = &cost->kernels[i];
		int64_t read = kernel->read_bytes / 48, written = kernel->write_bytes / 48;
		EXPECT(read == passes[i][0] && written == passes[i][1],
		       "%s (%d): %lld and %lld bytes an element, by hand %d and %d", kernel->name, i,
		       (long long)read, (long long)written, passes[i][0], passes[i][1]);
	}
}

#define PASSES(...)                                                 \
	COUNT_OF(((const int[][2]){__VA_ARGS__})), (const int[][2]) \
	{                                                           \
		__VA_ARGS__                                         \
	}

/* RMSNorm without weight and bias, whose statistics are less than an element's byte. */
static ek_cost_args gated(ek_pass pass, ek_variant variant, int gate_first, ek_dtype y_dtype)
{
	ek_cost_args args = args_of(EK_RMS_NORM, pass, variant);
	args.batch_size = 1;
	args.seq_len = 1;
	args.hidden_size = 48;
	args.with = EK_WITH_GATE;
	args.activation = EK_SILU;
	args.gate_first = gate_first;
	args.absent = EK_NO_WEIGHT | EK_NO_BIAS;
	args.y_dtype = y_dtype;
	return args;
}

/* The gate has x's two bytes, whatever y has. */
TEST(a_gate_is_read_at_its_own_width)
{
	ek_cost_args args = gated(EK_FORWARD, EK_REFERENCE, 0, EK_F32);
	expect_passes(cost_of(&args), "mean_square rsqrt normalize cast_out silu gate",
		      PASSES({2, 0}, {0, 0}, {2, 2}, {2, 4}, {2, 2}, {6, 4}));
	args = gated(EK_FORWARD, EK_PYTORCH, 0, EK_F32);
	expect_passes(cost_of(&args),
		      "vectorized_layer_norm_kernel vectorized_elementwise_kernel "
		      "vectorized_elementwise_kernel vectorized_elementwise_kernel",
		      PASSES({2, 2}, {2, 2}, {4, 2}, {2, 4}));
	args = gated(EK_BACKWARD, EK_REFERENCE, 0, EK_F32);
	expect_passes(cost_of(&args),
		      "gate_backward gate_backward silu_backward cast_in normalize row_means dx",
		      PASSES({8, 2}, {6, 4}, {4, 2}, {4, 2}, {2, 2}, {4, 0}, {4, 2}));
	args = gated(EK_BACKWARD, EK_PYTORCH, 0, EK_F32);
	expect_passes(cost_of(&args),
		      "vectorized_elementwise_kernel vectorized_elementwise_kernel "
		      "vectorized_elementwise_kernel vectorized_elementwise_kernel "
		      "layer_norm_grad_input_kernel_vectorized",
		      PASSES({4, 2}, {4, 2}, {4, 2}, {4, 2}, {4, 2}));
}

TEST(a_gate_before_the_norm_is_counted_before_it)
{
	ek_cost_args args = gated(EK_FORWARD, EK_REFERENCE, 1, EK_F32);
	expect_passes(cost_of(&args), "silu gate mean_square rsqrt normalize cast_out",
		      PASSES({2, 2}, {4, 2}, {2, 0}, {0, 0}, {2, 2}, {2, 4}));
	args = gated(EK_FORWARD, EK_PYTORCH, 1, (ek_dtype)0);
	expect_passes(
		cost_of(&args),
		"vectorized_elementwise_kernel vectorized_elementwise_kernel vectorized_layer_norm_kernel",
		PASSES({2, 2}, {4, 2}, {2, 2}));
	args = gated(EK_BACKWARD, EK_REFERENCE, 1, EK_F32);
	expect_passes(cost_of(&args),
		      "cast_in normalize row_means dx gate_backward gate_backward silu_backward",
		      PASSES({4, 2}, {2, 2}, {4, 0}, {4, 2}, {4, 2}, {4, 2}, {4, 2}));
	args = gated(EK_BACKWARD, EK_PYTORCH, 1, (ek_dtype)0);
	expect_passes(cost_of(&args),
		      "layer_norm_grad_input_kernel_vectorized vectorized_elementwise_kernel "
		      "vectorized_elementwise_kernel vectorized_elementwise_kernel",
		      PASSES({4, 2}, {4, 2}, {4, 2}, {4, 2}));
}

TEST(evenkeel_passes_a_gate_through_memory_once)
{
	for (int first = 0; first < 2; first++) {
		ek_cost_args args = gated(EK_FORWARD, EK_EVENKEEL, first, EK_F32);
		expect_passes(cost_of(&args), "forward", PASSES({4, 4}));
		args = gated(EK_BACKWARD, EK_EVENKEEL, first, EK_F32);
		expect_passes(cost_of(&args), "backward", PASSES({8, 4}));
	}
}

/* dy has the sum's four bytes, the norm's result two. */
TEST(the_gradient_of_a_sum_is_cast_to_the_norm_s)
{
	ek_cost_args args = gated(EK_BACKWARD, EK_PYTORCH, 0, EK_F32);
	args.with = EK_WITH_RESIDUAL_AFTER;
	args.activation = EK_NO_ACTIVATION;
	args.h_dtype = EK_F32;
	expect_passes(cost_of(&args), "vectorized_elementwise_kernel layer_norm_grad_input_kernel_vectorized",
		      PASSES({4, 2}, {4, 2}));
}
