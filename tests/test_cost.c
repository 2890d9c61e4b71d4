/* The cost model (include/evenkeel/cost.h) against numbers worked by hand, and its expressions, good and
 * bad. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "support.h"

static ek_cost_args args_of(ek_norm norm, ek_pass pass, ek_variant variant)
{
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .norm = norm,
			      .pass = pass,
			      .variant = variant,
			      .device = EK_CUDA,
			      .batch_size = 8,
			      .seq_len = 2048,
			      .hidden_size = 4096,
			      .dtype = EK_BF16};
}

/* Static: it is large. */
static const ek_cost *cost_of(const ek_cost_args *args)
{
	static ek_cost cost;
	cost.size = sizeof cost;
	ek_status status = ek_norm_cost(args, &cost);
	EXPECT(status == EK_OK, "%s: %s", ek_status_name(status), ek_error(NULL));
	return &cost;
}

static void expect_numbers(const ek_cost_kernel *kernel, int64_t flops, int64_t read, int64_t written)
{
	EXPECT(kernel->flops == flops && kernel->read_bytes == read && kernel->write_bytes == written,
	       "%s: %lld FLOP, %lld read, %lld written, by hand %lld, %lld, %lld", kernel->name,
	       (long long)kernel->flops, (long long)kernel->read_bytes, (long long)kernel->write_bytes,
	       (long long)flops, (long long)read, (long long)written);
}

static void expect_formulas(const ek_cost_kernel *kernel, const char *flops, const char *read,
			    const char *written)
{
	EXPECT(strcmp(kernel->symbols.flops, flops) == 0, "%s: FLOP are %s, not %s", kernel->name,
	       kernel->symbols.flops, flops);
	EXPECT(strcmp(kernel->symbols.read_bytes, read) == 0, "%s: read are %s, not %s", kernel->name,
	       kernel->symbols.read_bytes, read);
	EXPECT(strcmp(kernel->symbols.write_bytes, written) == 0, "%s: written are %s, not %s", kernel->name,
	       kernel->symbols.write_bytes, written);
}

/* Names with spaces between. */
static void expect_kernels(const ek_cost *cost, const char *names)
{
	char text[512] = "";
	for (int i = 0; i < cost->kernel_count; i++) {
		strncat(text, i ? " " : "", sizeof text - strlen(text) - 1);
		strncat(text, cost->kernels[i].name, sizeof text - strlen(text) - 1);
	}
	EXPECT(strcmp(text, names) == 0, "the kernels are %s, not %s", text, names);
}

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
		{EK_LAYER_NORM, EK_BACKWARD, "backward backward_final", 942718976,
		 2 * 134217728 + 3 * 65536 + 8192 + 4194304, 134217728 + 4194304 + 2 * 8192},
		{EK_RMS_NORM, EK_BACKWARD, "backward backward_final", 605569024,
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
	expect_kernels(cost, "backward_staged_rows backward_staged_columns backward_final");
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
	expect_kernels(cost, "backward backward_fold backward_final");
	EXPECT(cost->kernels[1].write_bytes == 2 * 8 * 16384 * 4, "%lld bytes of folded sums",
	       (long long)cost->kernels[1].write_bytes);
	args.absent = EK_NO_WEIGHT | EK_NO_BIAS;
	expect_kernels(cost_of(&args), "backward");
	args.absent = 0;
	args.device = EK_CPU;
	expect_kernels(cost_of(&args), "backward");
}

/* ---- formulas and numbers ---- */

static int64_t value_of_symbol(const ek_cost *cost, const char *name, size_t length)
{
	for (int i = 0; i < cost->symbol_count; i++)
		if (strlen(cost->symbols[i].name) == length &&
		    memcmp(cost->symbols[i].name, name, length) == 0)
			return cost->symbols[i].value;
	test_fail("%.*s has no value", (int)length, name);
	return 0;
}

/* A reader of formulas that is not the library's. */
static int64_t value_of_formula(const ek_cost *cost, const char *formula)
{
	int64_t sum = 0, product = 1;
	for (const char *at = formula;;) {
		size_t length = strcspn(at, "* ");
		product *=
			*at >= '0' && *at <= '9' ? strtoll(at, NULL, 10) : value_of_symbol(cost, at, length);
		at += length;
		if (*at == '*') {
			at++;
			continue;
		}
		sum += product;
		if (!*at)
			return sum;
		EXPECT(strncmp(at, " + ", 3) == 0, "%s is no sum of products", formula);
		product = 1;
		at += 3;
	}
}

static void expect_formulas_give_numbers(const ek_cost *cost)
{
	int64_t flops = 0, read = 0, written = 0;
	for (int i = 0; i <= cost->kernel_count; i++) {
		const ek_cost_kernel *kernel = i < cost->kernel_count ? &cost->kernels[i] : &cost->total;
		expect_numbers(kernel, value_of_formula(cost, kernel->symbols.flops),
			       value_of_formula(cost, kernel->symbols.read_bytes),
			       value_of_formula(cost, kernel->symbols.write_bytes));
		EXPECT(*kernel->origin && *kernel->type, "%s has no origin or type", kernel->name);
		if (i < cost->kernel_count) {
			flops += kernel->flops;
			read += kernel->read_bytes;
			written += kernel->write_bytes;
		}
	}
	expect_numbers(&cost->total, flops, read, written);
}

/* A choice of so many, of a number that stands for several. */
static int take(int *number, int count)
{
	int choice = *number % count;
	*number /= count;
	return choice;
}

TEST(formulas_give_the_numbers_and_kernels_the_total)
{
	static const int64_t widths[] = {1, 33, 128, 1000, 4096, 16384, 100000, 1 << 20};
	static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16, EK_F64};
	for (int i = 0; i < 2 * 2 * 3 * 2 * COUNT_OF(dtypes) * COUNT_OF(widths) * 16; i++) {
		int at = i;
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
		args.norm = take(&at, 2) ? EK_RMS_NORM : EK_LAYER_NORM;
		args.pass = take(&at, 2) ? EK_BACKWARD : EK_FORWARD;
		args.variant = (ek_variant)(EK_REFERENCE + take(&at, 3));
		args.device = take(&at, 2) ? EK_CUDA : EK_CPU;
		args.dtype = dtypes[take(&at, COUNT_OF(dtypes))];
		args.hidden_size = widths[take(&at, COUNT_OF(widths))];
		args.absent = at;
		args.with = (const int[]){0, 1, 2, 3, 4, 6}[i / 5 % 6];
		args.h_dtype = i % 3 ? (ek_dtype)0 : args.dtype == EK_F64 ? EK_F64 : EK_F32;
		args.y_dtype = i % 7 ? (ek_dtype)0 : args.dtype == EK_F64 ? EK_F64 : EK_F32;
		args.gradient_dtype = i % 5 ? (ek_dtype)0 : args.h_dtype;
		args.weight_offset = i / 11 % 2;
		args.compute_dtype = EK_F32;
		args.batch_size = 1 + i % 7;
		expect_formulas_give_numbers(cost_of(&args));
	}
}

/* ---- beside the norm ---- */

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

/* What 0.1 has of the struct is a plain norm, whatever lies behind it. */
TEST(arguments_of_0_1_are_a_plain_norm)
{
	ek_cost_args plain = args_of(EK_LAYER_NORM, EK_BACKWARD, EK_EVENKEEL), first = plain;
	const ek_cost_kernel total = cost_of(&plain)->total;
	first.size = offsetof(ek_cost_args, with);
	first.with = first.weight_offset = 0x5a5a;
	EXPECT(memcmp(&cost_of(&first)->total.symbols, &total.symbols, sizeof total.symbols) == 0,
	       "fields behind the struct are read");
}

/* ---- bad arguments ---- */

static void expect_refused(const ek_cost_args *args, ek_status status, const char *words)
{
	ek_cost cost = {.size = sizeof cost};
	ek_status got = ek_norm_cost(args, &cost);
	EXPECT(got == status && strstr(ek_error(NULL), words), "%s: %s, not %s: %s", ek_status_name(got),
	       ek_error(NULL), ek_status_name(status), words);
}

TEST(bad_arguments_are_refused_by_name)
{
	const ek_cost_args good = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	ek_cost_args args;
	ek_cost cost = {.size = sizeof cost};
#define REFUSED(field, value, status, words)          \
	do {                                          \
		args = good;                          \
		args.field = (value);                 \
		expect_refused(&args, status, words); \
	} while (0)
	REFUSED(size, 3, EK_ERROR_STRUCT_SIZE, "size (3) is not sizeof(ek_cost_args)");
	REFUSED(norm, (ek_norm)7, EK_ERROR_ARGUMENT, "norm (7)");
	REFUSED(pass, (ek_pass)0, EK_ERROR_ARGUMENT, "pass (0)");
	REFUSED(variant, (ek_variant)4, EK_ERROR_ARGUMENT, "variant (4)");
	REFUSED(device, (ek_device)2, EK_ERROR_ARGUMENT, "device (2)");
	REFUSED(batch_size, 0, EK_ERROR_ARGUMENT, "batch_size (0) must be at least 1");
	REFUSED(seq_len, -1, EK_ERROR_ARGUMENT, "seq_len (-1) must be at least 1");
	REFUSED(hidden_size, 0, EK_ERROR_ARGUMENT, "hidden_size (0) is not in 1 to");
	REFUSED(hidden_size, EK_MAX_COLS + 1, EK_ERROR_ARGUMENT, "hidden_size (16777217)");
	REFUSED(batch_size, INT64_MAX, EK_ERROR_ARGUMENT, "is more than memory can hold");
	REFUSED(batch_size, INT64_MAX / 2048 / 4096 / 8 + 1, EK_ERROR_ARGUMENT,
		"is more than memory can hold");
	/* A tensor that fits, but the reference reads three of them. */
	REFUSED(batch_size, INT64_MAX / 2048 / 4096 / 8, EK_ERROR_ARGUMENT, "do not fit 64 bits");
	/* Rows whose statistics would not fit, however narrow. */
	args = good;
	args.batch_size = INT64_C(1) << 57;
	args.seq_len = args.hidden_size = 1;
	expect_refused(&args, EK_ERROR_ARGUMENT, "is more than memory can hold");
	REFUSED(dtype, (ek_dtype)0, EK_ERROR_DTYPE, "dtype (0)");
	REFUSED(weight_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "weight_dtype (9)");
	REFUSED(compute_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "compute_dtype (9)");
	REFUSED(stats_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "stats_dtype (9)");
	REFUSED(intermediate_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "intermediate_dtype (9)");
	REFUSED(absent, 16, EK_ERROR_ARGUMENT, "absent (16)");
	REFUSED(with, 16, EK_ERROR_ARGUMENT, "with (16) has bits beyond");
	REFUSED(with, EK_WITH_GATE, EK_ERROR_ARGUMENT, "with (8) has EK_WITH_GATE, activation is 0");
	REFUSED(gate_first, 1, EK_ERROR_ARGUMENT, "gate_first (1) must be 0");
	REFUSED(with, 5, EK_ERROR_ARGUMENT, "with (5) has both EK_WITH_RESIDUAL and EK_WITH_RESIDUAL_AFTER");
	REFUSED(h_dtype, EK_F16, EK_ERROR_DTYPE, "h_dtype f16 does not go with dtype bf16");
	REFUSED(y_dtype, EK_F64, EK_ERROR_DTYPE, "y_dtype f64 does not go with dtype bf16");
	REFUSED(gradient_dtype, EK_F16, EK_ERROR_DTYPE,
		"gradient_dtype f16 does not go with weight_dtype bf16");
	REFUSED(weight_offset, 2, EK_ERROR_ARGUMENT, "weight_offset (2) must be 0 or 1");
	REFUSED(rounding, (ek_rounding)2, EK_ERROR_ARGUMENT, "rounding (2)");
	REFUSED(group_cols, -1, EK_ERROR_ARGUMENT, "group_cols (-1) does not divide hidden_size (4096)");
	REFUSED(group_cols, 5, EK_ERROR_ARGUMENT, "group_cols (5) does not divide hidden_size (4096)");
	REFUSED(arch, -1, EK_ERROR_ARGUMENT, "arch (-1)");
	REFUSED(multiprocessors, -1, EK_ERROR_ARGUMENT, "multiprocessors (-1)");
	expect_refused(NULL, EK_ERROR_ARGUMENT, "args is NULL");
	EXPECT(ek_norm_cost(&good, NULL) == EK_ERROR_ARGUMENT, "cost NULL is taken");
	cost.size = 1;
	EXPECT(ek_norm_cost(&good, &cost) == EK_ERROR_STRUCT_SIZE, "a cost of another size is taken");
}

TEST(evenkeel_has_no_cost_for_dtypes_that_it_does_not_take)
{
	static const char refusal[] = "weight_dtype f64 does not go with dtype bf16 (allowed: bf16, f32)";
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL);
	static ek_cost cost;
	args.weight_dtype = EK_F64;
	expect_refused(&args, EK_ERROR_DTYPE, refusal);
	cost.size = sizeof cost;
	EXPECT(ek_reference_cost("1 + ${evenkeel.layer_norm}(1, 1, 1)", &args, &cost) == EK_ERROR_ARGUMENT &&
		       strstr(ek_error(NULL), refusal) == ek_error(NULL) &&
		       strstr(ek_error(NULL), "\n        ^"),
	       "%s", ek_error(NULL));
	args.variant = EK_REFERENCE;
	EXPECT(cost_of(&args)->symbols[4].value == 8, "w_bytes of f64 are %lld",
	       (long long)cost_of(&args)->symbols[4].value);
	EXPECT(ek_reference_cost("${torch.nn.LayerNorm}(1, 1, 1)", &args, &cost) == EK_OK, "%s",
	       ek_error(NULL));
}

/* ---- expressions ---- */

static ek_status expand(const char *text, ek_cost *cost)
{
	ek_cost_args args = {
		.size = sizeof args, .batch_size = 2, .seq_len = 3, .hidden_size = 5, .dtype = EK_F32};
	cost->size = sizeof *cost;
	return ek_reference_cost(text, &args, cost);
}

#define LAYER_NORM "${torch.nn.functional.layer_norm}"
#define OWN_SIZES "(batch_size, seq_len, hidden_size)"

TEST(expressions_expand)
{
	static const struct {
		const char *text, *flops;
		int64_t number;
	} cases[] = {
		{LAYER_NORM OWN_SIZES, "8*batch_size*seq_len*hidden_size + 2*batch_size*seq_len", 252},
		{"2*" LAYER_NORM OWN_SIZES, "16*batch_size*seq_len*hidden_size + 4*batch_size*seq_len", 504},
		{LAYER_NORM OWN_SIZES " - ${torch.rsqrt}" OWN_SIZES, "8*batch_size*seq_len*hidden_size", 240},
		{LAYER_NORM "(batch_size,seq_len+1,4*hidden_size)",
		 "32*batch_size*seq_len*hidden_size + 2*batch_size*seq_len + 32*batch_size*hidden_size + "
		 "2*batch_size",
		 32 * 30 + 2 * 6 + 32 * 10 + 4},
		/* (1 + 1) * (rsqrt of one row: 2) rows, twice that */
		{"${torch.rsqrt}((1+1)*${torch.rsqrt}(1,1,1), 1, 1)", "8", 8},
		{"${torch.var_mean}(batch_size*batch_size, 1, 7)", "28*batch_size*batch_size", 112},
		{" ( 3 )\n\t* batch_size ", "3*batch_size", 6},
		{"-batch_size + 5", "-batch_size + 5", 3},
		{"batch_size - batch_size", "0", 0},
		{"batch_size + hidden_size*hidden_size", "hidden_size*hidden_size + batch_size", 27},
		{"${evenkeel.rms_norm}" OWN_SIZES, "4*batch_size*seq_len*hidden_size + 4*batch_size*seq_len",
		 144},
	};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		ek_status status = expand(cases[i].text, &cost);
		EXPECT(status == EK_OK, "%s: %s", cases[i].text, ek_error(NULL));
		EXPECT(strcmp(cost.total.symbols.flops, cases[i].flops) == 0 &&
			       cost.total.flops == cases[i].number,
		       "%s is %s = %lld, not %s = %lld", cases[i].text, cost.total.symbols.flops,
		       (long long)cost.total.flops, cases[i].flops, (long long)cases[i].number);
	}
}

TEST(a_reference_in_an_argument_is_of_the_same_metric)
{
	static ek_cost cost;
	/* rsqrt: 2 FLOP, 4 bytes read, 4 written for each row; batch_size is rsqrt of one row */
	EXPECT(expand("${torch.rsqrt}(${torch.rsqrt}(1, 1, 1), 1, 1)", &cost) == EK_OK, "%s", ek_error(NULL));
	expect_numbers(&cost.total, 4, 16, 16);
	EXPECT(strcmp(cost.total.symbols.read_bytes, "a_bytes*a_bytes") == 0, "%s",
	       cost.total.symbols.read_bytes);
	EXPECT(cost.kernel_count == 1 && strcmp(cost.kernels[0].name, "torch.rsqrt") == 0,
	       "%d references are listed", cost.kernel_count);
}

TEST(a_reference_to_what_is_not_launched_costs_nothing)
{
	static const int without[] = {EK_NO_WEIGHT | EK_NO_BIAS, EK_NO_BIAS, EK_NO_WEIGHT};
	static const char addcmul[] = "${torch.addcmul}" OWN_SIZES;
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(without); i++) {
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
		args.absent = without[i];
		cost.size = sizeof cost;
		EXPECT(ek_reference_cost(addcmul, &args, &cost) == EK_OK, "%s", ek_error(NULL));
		expect_numbers(&cost.total, 0, 0, 0);
		EXPECT(strcmp(cost.kernels[0].origin, "affine of layer_norm, variant reference, not launched "
						      "with these operands") == 0,
		       "it comes from %s", cost.kernels[0].origin);
	}
	EXPECT(expand(addcmul, &cost) == EK_OK && !strstr(cost.kernels[0].origin, "not launched"),
	       "it comes from %s", cost.kernels[0].origin);
	expect_numbers(&cost.total, 2 * 30, 30 * 4 + 2 * 5 * 4, 30 * 4);
}

TEST(symbols_of_references_are_listed_with_the_totals)
{
	static const char *const names[] = {"batch_size", "seq_len", "hidden_size", "a_bytes"};
	static ek_cost cost;
	EXPECT(expand("${torch.var_mean}(1, 1, 1) + hidden_size", &cost) == EK_OK, "%s", ek_error(NULL));
	EXPECT(cost.symbol_count == COUNT_OF(names), "%d symbols", cost.symbol_count);
	for (int i = 0; i < COUNT_OF(names) && i < cost.symbol_count; i++)
		EXPECT(strcmp(cost.symbols[i].name, names[i]) == 0, "symbol %d is %s, not %s", i,
		       cost.symbols[i].name, names[i]);
}

TEST(every_reference_is_known)
{
	static ek_cost cost;
	char text[200];
	int count = 0;
	for (; ek_reference_name(count); count++) {
		(void)snprintf(text, sizeof text, "${%s}" OWN_SIZES, ek_reference_name(count));
		EXPECT(expand(text, &cost) == EK_OK, "%s: %s", text, ek_error(NULL));
		EXPECT(cost.total.read_bytes > 0, "%s reads nothing", text);
	}
	EXPECT(count >= 10 && !ek_reference_name(-1), "%d references", count);
}

TEST(a_reference_to_an_op_costs_what_the_op_costs)
{
	static const struct {
		const char *name;
		ek_norm norm;
		ek_pass pass;
		ek_variant variant;
	} ops[] = {
		{"torch.nn.LayerNorm", EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.functional.layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.RMSNorm", EK_RMS_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.nn.functional.rms_norm", EK_RMS_NORM, EK_FORWARD, EK_REFERENCE},
		{"torch.native_layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_PYTORCH},
		{"torch.native_layer_norm_backward", EK_LAYER_NORM, EK_BACKWARD, EK_PYTORCH},
		{"evenkeel.layer_norm", EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL},
		{"evenkeel.rms_norm", EK_RMS_NORM, EK_FORWARD, EK_EVENKEEL},
	};
	static const ek_dtype stats[] = {(ek_dtype)0, EK_F32, EK_F16, EK_F64};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(ops) * COUNT_OF(stats); i++) {
		int op = i / COUNT_OF(stats);
		char text[200];
		ek_cost_args args = args_of(ops[op].norm, ops[op].pass, ops[op].variant);
		args.hidden_size = 8; /* statistics are a good part of the bytes */
		args.stats_dtype = stats[i % COUNT_OF(stats)];
		args.absent = args.norm == EK_RMS_NORM ? EK_NO_BIAS : 0;
		const ek_cost_kernel *total = &cost_of(&args)->total;
		(void)snprintf(text, sizeof text, "${%s}" OWN_SIZES, ops[op].name);
		cost.size = sizeof cost;
		EXPECT(ek_reference_cost(text, &args, &cost) == EK_OK, "%s: %s", text, ek_error(NULL));
		expect_numbers(&cost.total, total->flops, total->read_bytes, total->write_bytes);
		expect_numbers(&cost.kernels[0], total->flops, total->read_bytes, total->write_bytes);
	}
}

TEST(bad_expressions_get_a_caret)
{
	static const struct {
		const char *text, *what;
		int place;
	} cases[] = {
		{"", "a number, a variable, a reference or a ( is missing", 0},
		{"2*", "a number, a variable, a reference or a ( is missing", 2},
		{"2*(3", "a ) is missing", 4},
		{"2)", "an operator (+, - or *) is missing", 1},
		{"2 3", "an operator (+, - or *) is missing", 2},
		{"2x", "a number must be whole, with an operator behind it", 1},
		{"1.5*batch_size", "a number must be whole, with an operator behind it", 1},
		{"99999999999999999999", "a number does not fit 64 bits", 0},
		{"3 + rows",
		 "unknown variable rows, must be batch_size, seq_len, hidden_size, a_bytes or w_bytes", 4},
		{"$torch.rsqrt(1,1,1)", "a { must follow the $ of a reference", 1},
		{"${}(1,1,1)", "a name is missing", 2},
		{"${torch.rsqrt(1,1,1)", "a } is missing", 13},
		{"${torch.exp}(1,1,1)", "unknown reference torch.exp, must be torch.nn.LayerNorm, ", 2},
		{"${torch.rsqrt}", "a reference must be followed by (batch_size, seq_len, hidden_size)", 14},
		{"${torch.rsqrt}(1,1)", "a reference has three arguments: a , is missing", 18},
		{"${torch.rsqrt}(1,1,1,1)", "a reference has three arguments: a ) is missing", 20},
		{"${torch.rsqrt}(1,,1)", "a number, a variable, a reference or a ( is missing", 17},
		{"${torch.rsqrt}(batch_size - 2,1,1)",
		 "the batch_size of this reference is 0, must be at least 1", 2},
		{"${torch.rsqrt}(${torch.Tensor.to}(1,1,1),1,1)",
		 "the batch_size of this reference is 0 where FLOPs are counted, must be at least 1", 2},
		/* An inner reference whose own argument is wrong, and one beside another. */
		{"${torch.rsqrt}(${torch.rsqrt}(1,1,0),1,1)",
		 "the hidden_size of this reference is 0, must be at least 1", 17},
		{"${torch.rsqrt}(${torch.rsqrt}(1,1,1),1,1)*${torch.rsqrt}(0,1,1)",
		 "the batch_size of this reference is 0, must be at least 1", 44},
		{"2 * \xc3\xa4", "a character is not plain ASCII", 4},
		{"1 + ${torch.rsqrt}(1,0,1)", "the seq_len of this reference is 0, must be at least 1", 6},
		{"9223372036854775807 + 1", "a factor does not fit 64 bits", 21},
		{"9223372036854775807*2", "a factor does not fit 64 bits", 20},
		{"((((((((((((((((1))))))))))))))))", "it is nested more than 16 deep", 16},
	};
	static ek_cost cost;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		char expected[512];
		(void)snprintf(expected, sizeof expected, "\n  %s\n  %*s", cases[i].text, cases[i].place + 1,
			       "^");
		EXPECT(expand(cases[i].text, &cost) == EK_ERROR_ARGUMENT, "%s is taken", cases[i].text);
		const char *message = ek_error(NULL), *lines = strchr(message, '\n');
		EXPECT(strncmp(message, cases[i].what, strlen(cases[i].what)) == 0, "%s: %s, not %s",
		       cases[i].text, message, cases[i].what);
		EXPECT(lines && strcmp(lines, expected) == 0, "%s: the caret is elsewhere%s", cases[i].text,
		       lines ? lines : "");
	}
}

TEST(expressions_that_are_too_much_are_refused)
{
#define SUM "(batch_size+seq_len+hidden_size+a_bytes+w_bytes)"
	static char blanks[400];
	static const struct {
		const char *text, *says;
	} cases[] = {{blanks, "399 characters"},
		     {"2\x01+\xff", "a character is not plain ASCII\n  2?+\xff\n   ^"},
		     {NULL, "text is NULL"},
		     {"4611686018427387904*batch_size", "do not fit 64 bits"},
		     {"batch_size - 5", "the expression is below 0 at these sizes: its FLOPs are -3"},
		     /* FLOP, read, written: 12, 24, 24 of rsqrt; 120, 120, 48 of var_mean */
		     {"3*${torch.var_mean}" OWN_SIZES " - 10*${torch.rsqrt}" OWN_SIZES,
		      "its bytes written are -96"},
		     {SUM "*" SUM "*" SUM "*" SUM "*" SUM, "more than 64 terms"}}; /* from few characters */
	static ek_cost cost;
	memset(blanks, ' ', sizeof blanks - 1);
	for (int i = 0; i < COUNT_OF(cases); i++)
		EXPECT(expand(cases[i].text, &cost) == EK_ERROR_ARGUMENT &&
			       strstr(ek_error(NULL), cases[i].says),
		       "%s: %s", cases[i].says, ek_error(NULL));
}

/* Whatever the text: an answer, or a message whose caret is under the text. */
TEST(mutated_expressions_end_in_an_answer_or_a_caret)
{
	static const char letters[] = "${}()+-*,. 0123456789abchsz_";
	static const char seed_text[] =
		"2*${torch.rsqrt}(batch_size, (seq_len + 1)*3, ${torch.rsqrt}(1,1,1)) - 7";
	static ek_cost cost;
	uint64_t state = 1;
	int64_t answers = 0, carets = 0;
	for (int64_t i = 0; i < test_scaled(20000); i++) {
		char text[sizeof seed_text];
		memcpy(text, seed_text, sizeof text);
		for (int64_t k = random_below(&state, 4); k >= 0; k--)
			text[random_below(&state, (int64_t)strlen(text))] =
				letters[random_below(&state, (int64_t)strlen(letters))];
		if (random_below(&state, 4) == 0)
			text[random_below(&state, (int64_t)strlen(text))] = 0;
		if (expand(text, &cost) == EK_OK) {
			answers++;
			continue;
		}
		const char *caret = strrchr(ek_error(NULL), '\n');
		carets++;
		EXPECT(strstr(ek_error(NULL), "64 bits") || strstr(ek_error(NULL), "is below 0") ||
			       (caret && caret[strlen(caret) - 1] == '^' &&
				strlen(caret) <= strlen(text) + 4),
		       "%s: %s", text, ek_error(NULL));
	}
	EXPECT(answers > 0 && carets > 0, "%lld answers, %lld carets", (long long)answers, (long long)carets);
}

TEST(a_refused_cost_is_not_written)
{
	static ek_cost cost, before;
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	memset(&before, 0xA5, sizeof before);
	before.size = sizeof before;
	args.batch_size = INT64_MAX / 2048 / 4096 / 8; /* the first kernels fit 64 bits, the total does not */
	memcpy(&cost, &before, sizeof cost);
	EXPECT(ek_norm_cost(&args, &cost) == EK_ERROR_ARGUMENT && memcmp(&cost, &before, sizeof cost) == 0,
	       "a refused ek_norm_cost writes");
	EXPECT(expand("batch_size - 5", &cost) == EK_ERROR_ARGUMENT &&
		       memcmp(&cost, &before, sizeof cost) == 0,
	       "a refused ek_reference_cost writes");
}

/* ---- limits ---- */

TEST(kernels_fill_the_array_and_no_more)
{
	static ek_cost cost;
	for (int i = 0; i < EK_COST_KERNELS; i++)
		EXPECT(ek_cost_add_kernel(&cost) == &cost.kernels[i], "kernel %d is another", i);
	EXPECT(!ek_cost_add_kernel(&cost) && cost.kernel_count == EK_COST_KERNELS, "%d kernels",
	       cost.kernel_count);
}

TEST(facts_beyond_the_array_are_refused)
{
	struct ek_facts facts = {.count = EK_MOST_FACTS + 1};
	struct ek_polynomial p;
	const char *wrong = ek_facts_read(&facts, "rows", &p);
	EXPECT(wrong && strstr(wrong, "EK_MOST_FACTS"), "%s", wrong ? wrong : "taken");
}

/* ---- polynomials ---- */

TEST(polynomials_say_what_is_too_large)
{
	struct ek_polynomial p, q;
	const struct ek_polynomial *by[EK_SYMBOL_COUNT] = {NULL};
	int64_t values[EK_SYMBOL_COUNT] = {0}, value;
	char text[8];
	ek_polynomial_symbol(&p, EK_SYMBOL_BATCH_SIZE);
	for (int i = 0; i < 7; i++)
		EXPECT(!ek_polynomial_multiply(&p, &p, &p), "power %d", 2 << i);
	EXPECT(ek_polynomial_multiply(&q, &p, &p), "a power of 256 is taken");
	values[EK_SYMBOL_BATCH_SIZE] = 2;
	EXPECT(!ek_polynomial_evaluate(&p, values, &value), "2^128 fits 64 bits");
	values[EK_SYMBOL_BATCH_SIZE] = 1;
	EXPECT(ek_polynomial_evaluate(&p, values, &value) && value == 1, "1^128 is %lld", (long long)value);
	EXPECT(!ek_polynomial_print(&p, text, sizeof text), "128 names fit 8 characters");
	ek_polynomial_number(&q, 3);
	by[EK_SYMBOL_BATCH_SIZE] = &q;
	EXPECT(ek_polynomial_substitute(&p, &p, by), "3^128 fits 64 bits");
	ek_polynomial_number(&p, 0);
	EXPECT(ek_polynomial_print(&p, text, sizeof text) && strcmp(text, "0") == 0, "zero is %s", text);
	EXPECT(!ek_polynomial_print(&p, text, 0), "zero fits nothing");
}
