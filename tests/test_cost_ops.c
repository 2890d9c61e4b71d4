/* What gated activations, RoPE and transformer blocks cost, against numbers worked by hand. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support_cost.h"

static ek_cost_kernel kernels[EK_BLOCK_KERNELS];

typedef ek_status count_function(const ek_cost_args *args, ek_cost_list *cost);

/* Valid until the next call. */
static const ek_cost_list *list_of(count_function *count, const ek_cost_args *args)
{
	static ek_cost_list list;
	list = (ek_cost_list){.size = sizeof list, .kernels = kernels, .most_kernels = EK_BLOCK_KERNELS};
	ek_status status = count(args, &list);
	EXPECT(status == EK_OK, "%s: %s", ek_status_name(status), ek_error(NULL));
	return &list;
}

static double intensity(const ek_cost_kernel *kernel)
{
	return (double)kernel->flops / (double)(kernel->read_bytes + kernel->write_bytes);
}

/* ---- gated activations ---- */

static ek_cost_args swiglu(ek_pass pass, ek_variant variant, int with)
{
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .pass = pass,
			      .variant = variant,
			      .device = EK_CUDA,
			      .batch_size = 2,
			      .seq_len = 3,
			      .ffn_size = 8,
			      .dtype = EK_BF16,
			      .activation = EK_SILU,
			      .with = with};
}

/* 2 x 3 rows of 8: 48 elements of two bytes, 96 bytes a tensor, 16 a bias. */
TEST(gated_activations_are_the_count_by_hand)
{
	const int value = EK_WITH_VALUE, both = EK_WITH_VALUE | EK_WITH_BIASES;
	const struct {
		ek_pass pass;
		ek_variant variant;
		int with, kernels;
		int64_t flops, read, written;
	} counts[] = {
		/* silu 4, product 1 */
		{EK_FORWARD, EK_REFERENCE, value, 2, 5 * 48, 3 * 96, 2 * 96},
		{EK_FORWARD, EK_PYTORCH, value, 2, 5 * 48, 3 * 96, 2 * 96},
		{EK_FORWARD, EK_EVENKEEL, value, 1, 5 * 48, 2 * 96, 96},
		/* two additions more, each a tensor in and out and a bias */
		{EK_FORWARD, EK_REFERENCE, both, 4, 7 * 48, 5 * 96 + 2 * 16, 4 * 96},
		{EK_FORWARD, EK_EVENKEEL, both, 1, 7 * 48, 2 * 96 + 2 * 16, 96},
		{EK_FORWARD, EK_EVENKEEL, EK_WITH_BIASES, 1, 5 * 48, 96 + 16, 96},
		/* two products; the derivative with its value 8, and one more */
		{EK_BACKWARD, EK_REFERENCE, value, 3, (1 + 1 + 9) * 48, 6 * 96, 3 * 96},
		{EK_BACKWARD, EK_EVENKEEL, value, 1, (8 + 3) * 48, 3 * 96, 2 * 96},
		/* sums of two tensors */
		{EK_BACKWARD, EK_PYTORCH, both, 5, (1 + 1 + 9 + 2) * 48, 8 * 96, 3 * 96 + 2 * 16},
		/* 6 slots of a row, 8 to a partial sum of 8 columns of 4 bytes for each of two biases */
		{EK_BACKWARD, EK_EVENKEEL, both, 2, (11 + 2 + 2) * 48 + 2 * 8 * 6 + 2 * 8,
		 3 * 96 + 2 * 16 + 2 * 32, 2 * 96 + 2 * 32 + 2 * 16},
	};
	for (int i = 0; i < COUNT_OF(counts); i++) {
		const ek_cost_args args = swiglu(counts[i].pass, counts[i].variant, counts[i].with);
		const ek_cost_list *list = list_of(ek_glu_cost, &args);
		EXPECT(list->kernel_count == counts[i].kernels, "row %d: %d kernels, by hand %d", i,
		       list->kernel_count, counts[i].kernels);
		expect_numbers(&list->total, counts[i].flops, counts[i].read, counts[i].written);
	}
}

TEST(the_cpu_passes_gated_activations_through_memory_once)
{
	ek_cost_args args = swiglu(EK_BACKWARD, EK_EVENKEEL, EK_WITH_VALUE | EK_WITH_BIASES);
	args.device = EK_CPU;
	args.gradient_dtype = EK_F32;
	const ek_cost_list *list = list_of(ek_glu_cost, &args);
	EXPECT(list->kernel_count == 1, "%d kernels", list->kernel_count);
	expect_formulas(&list->total, "15*batch_size*seq_len*ffn_size + 2*ffn_size*slots",
			"3*batch_size*seq_len*ffn_size*a_bytes + 2*ffn_size*w_bytes",
			"2*batch_size*seq_len*ffn_size*a_bytes + 2*ffn_size*g_bytes");
}

/* The square of a ReLU: its derivative is a power of one, times two, times the gradient. */
TEST(pytorch_takes_three_kernels_for_the_derivative_of_a_square)
{
	ek_cost_args args = swiglu(EK_BACKWARD, EK_PYTORCH, 0);
	int squared;
	args.activation = EK_RELU_SQUARED;
	squared = list_of(ek_glu_cost, &args)->kernel_count;
	args.activation = EK_RELU;
	EXPECT(squared == list_of(ek_glu_cost, &args)->kernel_count + 3, "%d kernels", squared);
}

TEST(pytorch_launches_nothing_for_no_activation)
{
	static const ek_pass passes[] = {EK_FORWARD, EK_BACKWARD};
	for (int i = 0; i < COUNT_OF(passes); i++) {
		ek_cost_args args = swiglu(passes[i], EK_PYTORCH, 0);
		int activated = list_of(ek_glu_cost, &args)->kernel_count;
		args.activation = EK_IDENTITY;
		EXPECT(activated == list_of(ek_glu_cost, &args)->kernel_count + 1, "%d kernels", activated);
	}
}

/* ---- RoPE ---- */

static ek_cost_args rope(ek_pass pass, ek_variant variant, int with, ek_norm norm)
{
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .pass = pass,
			      .variant = variant,
			      .device = EK_CUDA,
			      .batch_size = 2,
			      .seq_len = 3,
			      .heads = 4,
			      .k_heads = 2,
			      .head_dim = 8,
			      .dtype = EK_BF16,
			      .with = with,
			      .norm = norm};
}

/* 6 tokens of 4 and 2 heads of 8: 192 and 96 elements, 576 bytes; tables 3 x 4 of 4 bytes, two of them; biases 96 bytes. */
TEST(rope_is_the_count_by_hand)
{
	enum { ELEMENTS = 288, BYTES = 576, TABLES = 96, BIASES = 96, WEIGHTS = 32 };
	const struct {
		ek_pass pass;
		ek_variant variant;
		int with;
		ek_norm norm;
		int kernels;
		int64_t flops, read, written;
	} counts[] = {
		/* two products and a sum for an element */
		{EK_FORWARD, EK_EVENKEEL, 0, 0, 1, 3 * ELEMENTS, BYTES + TABLES, BYTES},
		{EK_FORWARD, EK_EVENKEEL, EK_WITH_BIASES, 0, 1, 4 * ELEMENTS, BYTES + TABLES + BIASES, BYTES},
		{EK_BACKWARD, EK_EVENKEEL, 0, 0, 1, 3 * ELEMENTS, BYTES + TABLES, BYTES},
		/* position ids: 6 of 8 bytes */
		{EK_FORWARD, EK_EVENKEEL, EK_WITH_POSITIONS, 0, 1, 3 * ELEMENTS, BYTES + TABLES + 48, BYTES},
		/* cos, half negated, halves, sin, sum: of q and of k, both with their halves of the tables */
		{EK_FORWARD, EK_PYTORCH, 0, 0, 10, 3 * ELEMENTS,
		 BYTES + BYTES / 2 + BYTES + BYTES + 2 * BYTES + 2 * TABLES, 4 * BYTES + BYTES / 2},
		{EK_FORWARD, EK_REFERENCE, EK_WITH_BIASES, 0, 12, 4 * ELEMENTS,
		 6 * BYTES + BYTES / 2 + 2 * TABLES + BIASES, 5 * BYTES + BYTES / 2},
		/* RMSNorm: sum of squares 2, xhat 1, weight 1; 4 for each of 36 heads; weights of 8 elements */
		{EK_FORWARD, EK_EVENKEEL, 0, EK_RMS_NORM, 1, 7 * ELEMENTS + 4 * 36, BYTES + TABLES + WEIGHTS,
		 BYTES},
		/* PyTorch's norm: 4 for an element with a weight, 3 a head, whose statistic has 4 bytes */
		{EK_FORWARD, EK_PYTORCH, 0, EK_RMS_NORM, 12, 7 * ELEMENTS + 3 * 36,
		 6 * BYTES + BYTES / 2 + 2 * TABLES + WEIGHTS, 5 * BYTES + BYTES / 2 + 4 * 36},
	};
	for (int i = 0; i < COUNT_OF(counts); i++) {
		const ek_cost_args args =
			rope(counts[i].pass, counts[i].variant, counts[i].with, counts[i].norm);
		const ek_cost_list *list = list_of(ek_rope_cost, &args);
		EXPECT(list->kernel_count == counts[i].kernels, "row %d: %d kernels, by hand %d", i,
		       list->kernel_count, counts[i].kernels);
		expect_numbers(&list->total, counts[i].flops, counts[i].read, counts[i].written);
	}
}

TEST(columns_that_do_not_turn_are_copied_by_pytorch_alone)
{
	ek_cost_args args = rope(EK_FORWARD, EK_PYTORCH, 0, (ek_norm)0);
	args.rotary_dim = 4;
	EXPECT(list_of(ek_rope_cost, &args)->kernel_count == 12, "no copies");
	args.variant = EK_EVENKEEL;
	/* as many bytes, half of the turn, half of the tables */
	expect_numbers(&list_of(ek_rope_cost, &args)->total, 3 * 144, 576 + 48, 576);
}

/* ---- blocks ---- */

static ek_cost_args block(ek_block_order order, ek_pass pass, ek_variant variant)
{
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .norm = EK_LAYER_NORM,
			      .pass = pass,
			      .variant = variant,
			      .device = EK_CUDA,
			      .batch_size = 4,
			      .seq_len = 2048,
			      .hidden_size = 1024,
			      .heads = 16,
			      .ffn_size = 4096,
			      .dtype = EK_BF16,
			      .activation = EK_SILU,
			      .with = EK_WITH_VALUE | EK_WITH_BIASES,
			      .order = order,
			      .causal = 1};
}

static int count_type(const ek_cost_list *list, const char *type)
{
	int count = 0;
	for (int i = 0; i < list->kernel_count; i++)
		count += strcmp(kernels[i].type, type) == 0;
	return count;
}

/* One for each product: q, k, v, out, gate, value, down. */
TEST(a_block_has_12_launches_reordered_and_13_with_norms_first)
{
	for (int order = EK_REORDERED; order <= EK_PRE_NORM; order++)
		for (int variant = EK_EVENKEEL; variant <= EK_COMPILED; variant++) {
			const ek_cost_args args =
				block((ek_block_order)order, EK_FORWARD, (ek_variant)variant);
			const ek_cost_list *list = list_of(ek_block_cost, &args);
			EXPECT(list->kernel_count == (order == EK_REORDERED ? 12 : 13),
			       "order %d: %d launches", order, list->kernel_count);
			EXPECT(count_type(list, "product") == 7 && count_type(list, "attention") == 1,
			       "%d products", count_type(list, "product"));
		}
}

/* 4 x 2048 tokens of 1024, 16 heads of 64, 4096 in the feed-forward: each product by hand. */
TEST(products_of_a_block_are_the_count_by_hand)
{
	static const struct {
		const char *name;
		int64_t in, out;
		int bias;
	} products[] = {{"q_proj", 1024, 1024, 0},    {"k_proj", 1024, 512, 0},
			{"v_proj", 1024, 512, 1},     {"out_proj", 1024, 1024, 0},
			{"gate_proj", 1024, 4096, 0}, {"value_proj", 1024, 4096, 0},
			{"down_proj", 4096, 1024, 0}};
	ek_cost_args args = block(EK_REORDERED, EK_FORWARD, EK_EVENKEEL);
	const int64_t tokens = 8192;
	int found = 0;
	args.k_heads = 8;
	const ek_cost_list *list = list_of(ek_block_cost, &args);
	for (int i = 0; i < list->kernel_count; i++) {
		if (strcmp(kernels[i].type, "product") != 0)
			continue;
		int64_t in = products[found].in, out = products[found].out, bias = products[found].bias * out;
		EXPECT(strcmp(kernels[i].name, products[found++].name) == 0, "%s", kernels[i].name);
		expect_numbers(&kernels[i], 2 * tokens * in * out + tokens * bias,
			       2 * (tokens * in + in * out + bias), 2 * tokens * out);
	}
	EXPECT(found == COUNT_OF(products), "%d products", found);
}

/* 8192 tokens of 1024: the product reads the gradient of x past it, and no kernel adds that. */
TEST(products_of_a_reordered_backward_add_the_gradient_of_what_went_past_them)
{
	static const struct {
		const char *name;
		int64_t columns;
	} products[] = {{"up_proj/dx", 8192}, {"qkv_proj/dx", 3072}};
	ek_cost_args args = block(EK_REORDERED, EK_BACKWARD, EK_EVENKEEL);
	const int64_t tokens = 8192, x = tokens * 1024;
	size_t found = 0;
	args.with |= EK_WITH_PACKED;
	const ek_cost_list *list = list_of(ek_block_cost, &args);
	for (int i = 0; i < list->kernel_count; i++) {
		EXPECT(strncmp(kernels[i].name, "add_", 4) != 0, "%s", kernels[i].name);
		if (found == COUNT_OF(products) || strcmp(kernels[i].name, products[found].name) != 0)
			continue;
		int64_t columns = products[found++].columns;
		expect_numbers(&kernels[i], 2 * x * columns + x, 2 * (tokens * columns + 1024 * columns + x),
			       2 * x);
	}
	EXPECT(found == COUNT_OF(products), "%zu products", found);
}

/* Of pairs of tokens with the earlier of them, and of all: a pair is 2 * 64 FLOP in each of two products. */
TEST(attention_counts_the_pairs_of_tokens)
{
	for (int causal = 0; causal < 2; causal++) {
		ek_cost_args args = block(EK_REORDERED, EK_FORWARD, EK_EVENKEEL);
		const int64_t pairs = causal ? 2048 * 2049 / 2 : 2048 * 2048, tensor = 2 * 8192 * 1024;
		args.causal = causal;
		(void)list_of(ek_block_cost, &args);
		EXPECT(strcmp(kernels[4].name, "attention") == 0, "%s", kernels[4].name);
		expect_numbers(&kernels[4], 2 * 2 * 64 * 4 * 16 * pairs, 3 * tensor, tensor + 4 * 8192 * 16);
		args.pass = EK_BACKWARD;
		const ek_cost_list *list = list_of(ek_block_cost, &args);
		for (int i = 0; i < list->kernel_count; i++)
			if (strcmp(kernels[i].type, "attention") == 0)
				expect_numbers(&kernels[i], 5 * 2 * 64 * 4 * 16 * pairs,
					       5 * tensor + 4 * 8192 * 16, 3 * tensor);
	}
}

/* The mistakes that analyses of such blocks have made: these two are far below the ridge of 15 FLOP/byte. */
TEST(rope_and_swiglu_of_a_block_are_bound_by_memory)
{
	const ek_cost_args args = block(EK_REORDERED, EK_FORWARD, EK_EVENKEEL);
	const ek_cost_list *list = list_of(ek_block_cost, &args);
	int seen = 0;
	for (int i = 0; i < list->kernel_count; i++) {
		bool is = strcmp(kernels[i].name, "rope/forward") == 0 ||
			  strcmp(kernels[i].name, "activation/forward") == 0;
		seen += is;
		EXPECT(!is || (intensity(&kernels[i]) > 0.985 && intensity(&kernels[i]) < 1.3),
		       "%s: %.3f FLOP/byte", kernels[i].name, intensity(&kernels[i]));
	}
	EXPECT(seen == 2, "%d kernels", seen);
}

/* Its norms, RoPE and activations are those of the ops alone. */
TEST(a_block_contains_its_ops)
{
	ek_cost_args args = block(EK_PRE_NORM, EK_BACKWARD, EK_EVENKEEL), of = args;
	static ek_cost_kernel own[EK_BLOCK_KERNELS];
	(void)list_of(ek_block_cost, &args);
	memcpy(own, kernels, sizeof own);
	of.head_dim = 64;
	of.with = EK_WITH_VALUE | EK_WITH_BIASES;
	const ek_cost_list *glu = list_of(ek_glu_cost, &of);
	EXPECT(strcmp(own[4].name, "activation/backward_sums") == 0, "%s", own[4].name);
	for (int i = 0; i < glu->kernel_count; i++)
		expect_numbers(&own[4 + i], kernels[i].flops, kernels[i].read_bytes, kernels[i].write_bytes);
	of.with = EK_WITH_RESIDUAL;
	of.activation = EK_NO_ACTIVATION;
	const ek_cost *norm = cost_of(&of);
	int last = list_of(ek_block_cost, &args)->kernel_count - norm->kernel_count;
	for (int i = 0; i < norm->kernel_count; i++)
		expect_numbers(&own[last + i], norm->kernels[i].flops, norm->kernels[i].read_bytes,
			       norm->kernels[i].write_bytes);
}

TEST(a_packed_block_copies_the_gradient_of_v)
{
	static const int64_t elements = 8192 * 1024;
	for (int biases = 0; biases < 2; biases++) {
		ek_cost_args args = block(EK_REORDERED, EK_BACKWARD, EK_EVENKEEL);
		const char *name = biases ? "v_proj/dbias" : "v_gradient";
		int found = 0;
		args.with = EK_WITH_PACKED | (biases ? EK_WITH_BIASES : 0);
		const ek_cost_list *list = list_of(ek_block_cost, &args);
		for (int i = 0; i < list->kernel_count; i++)
			if (strcmp(kernels[i].name, name) == 0) {
				expect_numbers(&kernels[i], biases * elements, 2 * elements, 2 * elements);
				found++;
			}
		EXPECT(found == 1, "%d kernels %s", found, name);
	}
}

TEST(a_step_is_forward_and_backward)
{
	for (int variant = EK_PYTORCH; variant <= EK_COMPILED; variant++)
		for (int order = EK_REORDERED; order <= EK_PRE_NORM; order++) {
			int64_t flops = 0, bytes = 0;
			int count = 0;
			for (int pass = EK_FORWARD; pass <= EK_STEP; pass++) {
				const ek_cost_args args =
					block((ek_block_order)order, (ek_pass)pass, (ek_variant)variant);
				const ek_cost_list *list = list_of(ek_block_cost, &args);
				int sign = pass == EK_STEP ? -1 : 1;
				flops += sign * list->total.flops;
				bytes += sign * (list->total.read_bytes + list->total.write_bytes);
				count += sign * list->kernel_count;
			}
			EXPECT(flops == 0 && bytes == 0 && count == 0, "variant %d, order %d", variant,
			       order);
		}
}

/* Fewer launches: those of two products more, whose bytes of x are read once; nothing to add up behind them. */
TEST(packed_products_are_three_launches_fewer)
{
	ek_cost_args args = block(EK_REORDERED, EK_FORWARD, EK_EVENKEEL);
	int64_t separate = list_of(ek_block_cost, &args)->total.read_bytes;
	args.with |= EK_WITH_PACKED;
	const ek_cost_list *list = list_of(ek_block_cost, &args);
	EXPECT(list->kernel_count == 9, "%d launches", list->kernel_count);
	/* x of q, k and v, and of gate and value; v's bias is counted with q's and k's */
	EXPECT(separate - list->total.read_bytes == 3 * 2 * 8192 * 1024 - 2 * 2 * 1024, "%lld bytes",
	       (long long)(separate - list->total.read_bytes));
}

/* ---- what is refused ---- */

static void expect_refused(count_function *count, const ek_cost_args *args, const char *words)
{
	ek_cost_list list = {.size = sizeof list, .kernels = kernels, .most_kernels = EK_BLOCK_KERNELS};
	ek_status status = count(args, &list);
	EXPECT(status == EK_ERROR_ARGUMENT && strstr(ek_error(NULL), words), "%s: %s, not %s",
	       ek_status_name(status), ek_error(NULL), words);
}

TEST(bad_arguments_of_ops_are_refused_by_name)
{
	const ek_cost_args glu = swiglu(EK_FORWARD, EK_EVENKEEL, 0),
			   turn = rope(EK_FORWARD, EK_EVENKEEL, 0, 0),
			   whole = block(EK_REORDERED, EK_STEP, EK_EVENKEEL);
	ek_cost_args args;
#define REFUSED(count, good, field, value, words)    \
	do {                                         \
		args = good;                         \
		args.field = (value);                \
		expect_refused(count, &args, words); \
	} while (0)
	REFUSED(ek_glu_cost, glu, activation, EK_NO_ACTIVATION, "activation (0) is not in");
	REFUSED(ek_glu_cost, glu, ffn_size, 0, "ffn_size (0) is not in 1 to EK_MAX_COLS");
	REFUSED(ek_glu_cost, glu, with, EK_WITH_RESIDUAL, "with (1) has bits beyond");
	REFUSED(ek_glu_cost, glu, pass, EK_STEP, "pass (3) is neither");
	REFUSED(ek_glu_cost, glu, variant, EK_COMPILED, "variant (4) is not");
	REFUSED(ek_rope_cost, turn, heads, 0, "heads (0) is not in 1 to EK_MAX_COLS");
	REFUSED(ek_rope_cost, turn, k_heads, 3, "k_heads (3) does not divide heads (4)");
	REFUSED(ek_rope_cost, turn, rotary_dim, 5, "rotary_dim (5) is odd");
	REFUSED(ek_rope_cost, turn, rotary_dim, 10, "rotary_dim (10) is not in 1 to head_dim (8)");
	REFUSED(ek_rope_cost, turn, norm, (ek_norm)9, "norm (9) is not 0");
	REFUSED(ek_block_cost, whole, order, (ek_block_order)0, "order (0) is neither");
	REFUSED(ek_block_cost, whole, variant, EK_REFERENCE, "variant (1) is not");
	REFUSED(ek_block_cost, whole, pass, (ek_pass)4, "pass (4) is not");
	REFUSED(ek_block_cost, whole, causal, 2, "causal (2) must be 0 or 1");
	REFUSED(ek_block_cost, whole, heads, 3, "heads (3) does not divide hidden_size (1024)");
	REFUSED(ek_block_cost, whole, ffn_size, 0, "ffn_size (0) is not in 1 to EK_MAX_COLS");
	expect_refused(ek_rope_cost, NULL, "args is NULL");
	EXPECT(ek_block_cost(&whole, NULL) == EK_ERROR_ARGUMENT, "cost NULL is taken");
}
