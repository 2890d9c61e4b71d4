/* The kernels that the cost model counts for a plain norm, against numbers worked by hand. SPDX-License-Identifier: MIT */
#include <string.h>

#include "support_cost.h"

/* ---- the decomposition ---- */

TEST(reference_is_the_count_by_hand)
{
	static const struct {
		int64_t batch, seq, hidden;
		ek_dtype dtype, weight_dtype;
		int64_t flops, read, written;
	} shapes[] = {
		/* 30 elements, 6 rows: 240 + 12; 360 + 72 + 40; 240 + 72 */
		{2, 3, 5, EK_F32, EK_F32, 252, 472, 312},
		/* the same: 180 + 36 + 40; 120 + 36 */
		{2, 3, 5, EK_BF16, EK_F32, 252, 256, 156},
		/* 2^21 elements, 2048 rows */
		{4, 512, 1024, EK_F32, EK_F32, 16781312, 25198592, 16801792},
		/* 2^26 elements, 16384 rows */
		{8, 2048, 4096, EK_BF16, EK_BF16, 536903680, 402767872, 268533760},
	};
	for (int i = 0; i < COUNT_OF(shapes); i++) {
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
		args.batch_size = shapes[i].batch;
		args.seq_len = shapes[i].seq;
		args.hidden_size = shapes[i].hidden;
		args.dtype = shapes[i].dtype;
		args.weight_dtype = shapes[i].weight_dtype;
		expect_numbers(&cost_of(&args)->total, shapes[i].flops, shapes[i].read, shapes[i].written);
	}
}

TEST(casts_appear_when_dtypes_differ)
{
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	args.compute_dtype = EK_F32;
	const ek_cost *cost = cost_of(&args);
	expect_kernels(cost, "cast_in var_mean rsqrt normalize affine cast_out");
	expect_formulas(&cost->total, "8*batch_size*seq_len*hidden_size + 2*batch_size*seq_len",
			"5*batch_size*seq_len*hidden_size*a_bytes + 3*batch_size*seq_len*a_bytes + "
			"2*hidden_size*w_bytes",
			"4*batch_size*seq_len*hidden_size*a_bytes + 3*batch_size*seq_len*a_bytes");
	args.intermediate_dtype = EK_F32;
	expect_formulas(&cost_of(&args)->total, "8*batch_size*seq_len*hidden_size + 2*batch_size*seq_len",
			"batch_size*seq_len*hidden_size*a_bytes + 4*batch_size*seq_len*hidden_size*t_bytes + "
			"3*batch_size*seq_len*a_bytes + 2*hidden_size*w_bytes",
			"batch_size*seq_len*hidden_size*a_bytes + 3*batch_size*seq_len*hidden_size*t_bytes + "
			"3*batch_size*seq_len*a_bytes");
	args.compute_dtype = EK_BF16;
	EXPECT(cost_of(&args)->kernel_count == 4, "casts to the same dtype are counted");
}

TEST(absent_operands_cost_nothing)
{
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	args.absent = EK_NO_BIAS;
	expect_formulas(&cost_of(&args)->kernels[3], "batch_size*seq_len*hidden_size",
			"batch_size*seq_len*hidden_size*a_bytes + hidden_size*w_bytes",
			"batch_size*seq_len*hidden_size*a_bytes");
	args.absent = EK_NO_WEIGHT | EK_NO_BIAS;
	expect_kernels(cost_of(&args), "var_mean rsqrt normalize");
	args.variant = EK_EVENKEEL;
	expect_formulas(&cost_of(&args)->total, "8*batch_size*seq_len*hidden_size + 12*batch_size*seq_len",
			"batch_size*seq_len*hidden_size*a_bytes",
			"batch_size*seq_len*hidden_size*a_bytes + 3*batch_size*seq_len*s_bytes");
	args.absent |= EK_NO_STATISTICS;
	EXPECT(strcmp(cost_of(&args)->total.symbols.write_bytes, "batch_size*seq_len*hidden_size*a_bytes") ==
		       0,
	       "statistics that nobody asked for are written");
}

TEST(affine_is_the_torch_op_of_its_operands)
{
	static const struct {
		ek_norm norm;
		int absent;
		const char *call;
		int64_t flops, vectors; /* for an element; read beside x */
	} cases[] = {
		{EK_LAYER_NORM, 0, "torch.addcmul", 2, 2},
		{EK_LAYER_NORM, EK_NO_BIAS, "torch.mul", 1, 1},
		{EK_LAYER_NORM, EK_NO_WEIGHT, "torch.add", 1, 1},
		{EK_RMS_NORM, 0, "torch.addcmul", 2, 2},
		{EK_RMS_NORM, EK_NO_BIAS, "torch.mul", 1, 1},
	};
	for (int i = 0; i < COUNT_OF(cases); i++) {
		ek_cost_args args = args_of(cases[i].norm, EK_FORWARD, EK_REFERENCE);
		args.absent = cases[i].absent;
		const ek_cost_kernel *affine = &cost_of(&args)->kernels[3];
		const char *call = strrchr(affine->origin, ' ') + 1;
		EXPECT(strcmp(affine->name, "affine") == 0 && strcmp(call, cases[i].call) == 0,
		       "case %d: %s is %s, not %s", i, affine->name, call, cases[i].call);
		expect_numbers(affine, cases[i].flops << 26, (1 << 27) + cases[i].vectors * 8192, 1 << 27);
	}
}

TEST(stats_dtype_is_the_references_alone)
{
	for (int variant = EK_REFERENCE; variant <= EK_EVENKEEL; variant++) {
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, (ek_variant)variant);
		int64_t before = cost_of(&args)->total.write_bytes;
		args.stats_dtype = EK_F32;
		/* three statistics of 16384 rows, two bytes more each */
		int64_t more = variant == EK_REFERENCE ? 3 * 16384 * 2 : 0;
		EXPECT(cost_of(&args)->total.write_bytes == before + more, "variant %d", variant);
	}
}

TEST(rms_norm_and_backward_are_counted_too)
{
	ek_cost_args args = args_of(EK_RMS_NORM, EK_FORWARD, EK_REFERENCE);
	args.absent = EK_NO_BIAS;
	const ek_cost *cost = cost_of(&args);
	expect_kernels(cost, "mean_square rsqrt normalize affine");
	expect_formulas(&cost->total, "4*batch_size*seq_len*hidden_size + 2*batch_size*seq_len",
			"3*batch_size*seq_len*hidden_size*a_bytes + 2*batch_size*seq_len*a_bytes + "
			"hidden_size*w_bytes",
			"2*batch_size*seq_len*hidden_size*a_bytes + 2*batch_size*seq_len*a_bytes");
	args = args_of(EK_LAYER_NORM, EK_BACKWARD, EK_REFERENCE);
	cost = cost_of(&args);
	expect_kernels(cost, "normalize scale row_means dx dweight dbias");
	expect_formulas(&cost->total, "13*batch_size*seq_len*hidden_size",
			"9*batch_size*seq_len*hidden_size*a_bytes + 5*batch_size*seq_len*a_bytes + "
			"hidden_size*w_bytes",
			"3*batch_size*seq_len*hidden_size*a_bytes + 2*batch_size*seq_len*a_bytes + "
			"2*hidden_size*w_bytes");
}

/* ---- PyTorch ---- */

TEST(pytorch_launches_one_kernel_and_two_for_odd_shapes)
{
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH);
	const ek_cost *cost = cost_of(&args);
	expect_kernels(cost, "vectorized_layer_norm_kernel");
	/* 2^27 + 2 * 8192 read; 2^27 + 2 * 65536 written */
	expect_numbers(&cost->total, 12 * (INT64_C(1) << 26) + 3 * 16384, 134234112, 134348800);
	args.hidden_size = 4095;
	cost = cost_of(&args);
	expect_kernels(cost, "RowwiseMomentsCUDAKernel LayerNormForwardCUDAKernel");
	EXPECT(cost->total.read_bytes == INT64_C(2) * 16384 * 4095 * 2 + 2 * 16384 * 4 + 2 * 4095 * 2,
	       "%lld bytes read", (long long)cost->total.read_bytes);
	args.hidden_size = 4098;
	EXPECT(cost_of(&args)->kernel_count == 2, "rows of 4098 are no whole groups of four");
	args.hidden_size = 4100;
	EXPECT(cost_of(&args)->kernel_count == 1, "rows of 4100 are whole groups of four");
	args.dtype = EK_F64;
	EXPECT(cost_of(&args)->kernel_count == 2, "f64 is not vectorised");
	args = args_of(EK_RMS_NORM, EK_FORWARD, EK_PYTORCH);
	expect_kernels(cost_of(&args), "vectorized_layer_norm_kernel vectorized_elementwise_kernel");
	args.absent = EK_NO_BIAS;
	expect_kernels(cost_of(&args), "vectorized_layer_norm_kernel");
}

TEST(pytorch_reads_x_and_dy_twice_in_backward)
{
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_BACKWARD, EK_PYTORCH);
	const ek_cost *cost = cost_of(&args);
	expect_kernels(cost, "layer_norm_grad_input_kernel_vectorized GammaBetaBackwardCUDAKernelTemplate");
	/* 4 * 2^27 + 4 * 65536 + 8192; 2^27 + 2 * 8192 */
	expect_numbers(&cost->total, 19 * (INT64_C(1) << 26) + 2 * 16384, 537141248, 134234112);
	args.hidden_size = 4095;
	expect_kernels(cost_of(&args), "layer_norm_grad_input_kernel GammaBetaBackwardCUDAKernelTemplate");
	args.batch_size = 70000;
	args.seq_len = 1;
	args.hidden_size = 64;
	cost = cost_of(&args);
	expect_kernels(
		cost,
		"layer_norm_grad_input_kernel_vectorized GammaBetaBackwardCUDAKernelTemplate reduce_kernel "
		"reduce_kernel");
	/* 2188 blocks of 32 rows */
	EXPECT(cost->kernels[1].write_bytes == INT64_C(2) * 2188 * 64 * 2, "%lld bytes of partial sums",
	       (long long)cost->kernels[1].write_bytes);
}

/* ---- evenkeel ---- */

TEST(evenkeel_reads_once_and_writes_once)
{
	static const struct {
		ek_norm norm;
		ek_pass pass;
		const char *kernels;
		int64_t flops, read, written;
	} cases[] = {
		/* 10 * 2^26 + 12 rows; 2^27 + 2 weights; 2^27 + 3 statistics */
		{EK_LAYER_NORM, EK_FORWARD, "forward", 671285248, 134234112, 134414336},
		{EK_RMS_NORM, EK_FORWARD, "forward", 268500992, 134225920, 134283264},
		/* slots of 64 rows are 256, two a block are 128 partial sums of 2 * 4096 * 4 bytes, written and read */
		{EK_LAYER_NORM, EK_BACKWARD, "backward columns_final", 942718976,
		 2 * 134217728 + 3 * 65536 + 8192 + 4194304, 134217728 + 4194304 + 2 * 8192},
		{EK_RMS_NORM, EK_BACKWARD, "backward columns_final", 605569024,
		 2 * 134217728 + 65536 + 8192 + 2097152, 134217728 + 2097152 + 8192},
	};
	for (int i = 0; i < COUNT_OF(cases); i++) {
		ek_cost_args args = args_of(cases[i].norm, cases[i].pass, EK_EVENKEEL);
		args.absent = cases[i].norm == EK_RMS_NORM ? EK_NO_BIAS : 0;
		const ek_cost *cost = cost_of(&args);
		expect_kernels(cost, cases[i].kernels);
		expect_numbers(&cost->total, cases[i].flops, cases[i].read, cases[i].written);
	}
}

TEST(evenkeel_has_other_kernels_for_other_shapes)
{
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_BACKWARD, EK_EVENKEEL);
	args.hidden_size = 33; /* sums are padded to 36 */
	EXPECT(strstr(cost_of(&args)->total.symbols.write_bytes, "2*partials*padded_size*s_bytes"), "%s",
	       cost_of(&args)->total.symbols.write_bytes);
	args.hidden_size = 4096;
	args.dtype = EK_F64;
	const ek_cost *cost = cost_of(&args);
	expect_kernels(cost, "backward_staged_rows backward_staged_columns columns_final");
	/* five of eight numbers of a row are written, all are fetched */
	EXPECT(strcmp(cost->kernels[0].symbols.write_bytes, "5*batch_size*seq_len*s_bytes") == 0, "%s",
	       cost->kernels[0].symbols.write_bytes);
	EXPECT(strstr(cost->kernels[1].symbols.read_bytes, "8*batch_size*seq_len*s_bytes"), "%s",
	       cost->kernels[1].symbols.read_bytes);
	args.dtype = EK_BF16;
	args.batch_size = 1 << 22;
	args.seq_len = 1;
	args.hidden_size = 16384;
	cost = cost_of(&args); /* slots of at most 2048 rows are 2048; folded once they are 8 */
	expect_kernels(cost, "backward columns_fold columns_final");
	EXPECT(cost->kernels[1].write_bytes == 2 * 8 * 16384 * 4, "%lld bytes of folded sums",
	       (long long)cost->kernels[1].write_bytes);
	args.absent = EK_NO_WEIGHT | EK_NO_BIAS;
	expect_kernels(cost_of(&args), "backward");
	args.absent = 0;
	args.device = EK_CPU;
	expect_kernels(cost_of(&args), "backward");
}
