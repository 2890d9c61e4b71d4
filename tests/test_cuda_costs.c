/* The cost model of gated activations and of RoPE (ek_glu_cost, ek_rope_cost) against the bytes that calls move on the stand-in GPU,
 * launch by launch: as many different ones as the model says. SPDX-License-Identifier: MIT */
#include <string.h>

#include "support_traffic.h"

SETUP()
{
	standin_open();
}

static ek_cost_kernel kernels[EK_COST_KERNELS];

/* The sizes, dtypes and operands of a case. */
static ek_cost_args args_of_case(const struct call *call)
{
	const struct test_case *c = call->c;
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .pass = c->pass == BACKWARD ? EK_BACKWARD : EK_FORWARD,
			      .variant = EK_EVENKEEL,
			      .device = EK_CUDA,
			      .dtype = c->dtype,
			      .weight_dtype = c->weight_dtype,
			      .gradient_dtype = c->gradient_dtype,
			      .arch = call->model.arch,
			      .multiprocessors = call->model.multiprocessors};
}

static void compare(const struct call *call, const ek_cost_list *cost)
{
	struct standin_traffic all[EK_COST_KERNELS] = {0}, record;
	int launches = 0;
	for (int i = 0; standin.traffic_get(i, &record) && record.launch < EK_COST_KERNELS; i++) {
		struct standin_traffic *sum = &all[record.launch];
		memcpy(sum->kernel, record.kernel, sizeof sum->kernel);
		sum->read += record.read;
		sum->written += record.written;
		launches = record.launch + 1;
	}
	EXPECT(launches == cost->kernel_count, "%s: %d launches, %d in the model", case_text(call->c),
	       launches, cost->kernel_count);
	for (int i = 0; i < launches && i < cost->kernel_count; i++) {
		const ek_cost_kernel *model = &cost->kernels[i];
		EXPECT(strstr(all[i].kernel, model->name) && all[i].read == model->read_bytes &&
			       all[i].written == model->write_bytes,
		       "%s: %s reads %lld and writes %lld bytes; %s of the model %lld and %lld",
		       case_text(call->c), all[i].kernel, (long long)all[i].read, (long long)all[i].written,
		       model->name, (long long)model->read_bytes, (long long)model->write_bytes);
	}
}

static void check(const struct test_case *c, ek_cost_args (*args_for)(const struct call *call),
		  ek_status (*count)(const ek_cost_args *args, ek_cost_list *cost))
{
	struct call call = {.c = c, .model = h200};
	ek_cost_list cost = {.size = sizeof cost, .kernels = kernels, .most_kernels = EK_COST_KERNELS};
	if (call_run(&call)) {
		const ek_cost_args args = args_for(&call);
		EXPECT(count(&args, &cost) == EK_OK, "%s: %s", case_text(c), ek_error(NULL));
		compare(&call, &cost);
	}
	call_free(&call);
}

/* ---- gated activations ---- */

static ek_cost_args glu_args(const struct call *call)
{
	ek_cost_args args = args_of_case(call);
	args.batch_size = 1;
	args.seq_len = call->c->rows;
	args.ffn_size = call->c->cols;
	args.activation = (ek_activation)call->c->activation;
	args.with = (case_has(call->c, "value") ? EK_WITH_VALUE : 0) |
		    (case_has(call->c, "gate_bias") || case_has(call->c, "dgate_bias") ? EK_WITH_BIASES : 0);
	args.absent = case_has(call->c, "dgate") || call->c->pass == FORWARD ? 0 : EK_NO_DGATE;
	return args;
}

/* Rows of whole quads and others, one slot and many, a fold and none. */
TEST(gated_activations_move_what_the_model_says)
{
	static const struct {
		int64_t rows, cols;
	} shapes[] = {{1, 1}, {70, 8}, {33, 100}, {9, 4096}, {5, 1001}, {300, 768}, {2500, 16}};
	const int each = test_mode == TEST_SHORT ? 2 : 8;
	for (int turn = 0; turn < COUNT_OF(shapes) * each; turn++) {
		const int shape = turn / each;
		struct test_case c = case_make(
			&ek_ops[EK_NORM_OPS + turn % 2], turn / 2 % 2 ? BACKWARD : FORWARD,
			dtype_pairs[(turn + shape) % DTYPE_PAIRS], shapes[shape].rows, shapes[shape].cols);
		case_choose(&c, turn * 7 % case_choice_count(&c));
		if (c.interleaved) /* the same bytes, in one tensor: the model has two */
			continue;
		if (turn / 4 % 2)
			case_drop(&c, "gate_bias value_bias dgate_bias dvalue_bias");
		case_normalise(&c);
		check(&c, glu_args, ek_glu_cost);
	}
}

/* dgate is dy: the gate, which must be there, is not read. */
TEST(without_an_activation_backward_moves_dy_alone)
{
	static const char *const operands[] = {"dgate", "dgate dgate_bias", "dgate gate_bias dgate_bias",
					       "dgate_bias"};
	static const int64_t shapes[][2] = {{70, 8}, {33, 100}, {5, 1001}, {300, 768}};
	for (int i = 0; i < COUNT_OF(shapes) * COUNT_OF(operands); i++) {
		struct test_case c =
			case_make(&ek_ops[EK_NORM_OPS + 1], BACKWARD, dtype_pairs[i % DTYPE_PAIRS],
				  shapes[i / 4][0], shapes[i / 4][1]);
		c.activation = EK_IDENTITY;
		case_set(&c, operands[i % 4]);
		case_normalise(&c);
		check(&c, glu_args, ek_glu_cost);
	}
}

/* ---- RoPE ---- */

static ek_cost_args rope_args(const struct call *call)
{
	const struct test_case *c = call->c;
	ek_cost_args args = args_of_case(call);
	args.batch_size = c->batch;
	args.seq_len = c->seq;
	args.heads = c->heads;
	args.k_heads = c->k_heads;
	args.head_dim = c->head_dim;
	args.rotary_dim = c->rotary_dim;
	args.table_dtype = c->table_dtype ? c->table_dtype : c->dtype;
	args.norm = (ek_norm)c->norm;
	args.with = case_has(c, c->pass == BACKWARD ? "dq_bias" : "q_bias") ? EK_WITH_BIASES : 0;
	args.absent = case_has(c, "q_weight") ? 0 : EK_NO_WEIGHT;
	return args;
}

/* With biases and weights, without either, without both; heads of all columns that turn, and of a part; few tokens, and so many that
 * partial sums take two folds. */
TEST(rope_moves_what_the_model_says)
{
	static const struct head_sizes shapes[] = {{1, 3, 2, 2, 64, 64},  {2, 9, 4, 2, 128, 128},
						   {1, 70, 2, 1, 32, 32}, {2, 5, 3, 1, 80, 32},
						   {1, 4, 6, 3, 96, 96},  {1, 2500, 1, 1, 8, 8}};
	static const char *const without[] = {
		"", "q_bias k_bias dq_bias dk_bias", "q_weight k_weight dq_weight dk_weight",
		"q_bias k_bias dq_bias dk_bias q_weight k_weight dq_weight dk_weight"};
	const int each = test_mode == TEST_SHORT ? 2 : 8;
	for (int turn = 0; turn < COUNT_OF(shapes) * each; turn++) {
		const int shape = turn / each;
		struct test_case c =
			case_make_heads(&ek_ops[EK_ROW_NAMES + turn % 2], turn / 2 % 2 ? BACKWARD : FORWARD,
					dtype_pairs[(turn + shape) % DTYPE_PAIRS], shapes[shape]);
		c.table_dtype = turn % 3 ? (ek_dtype)0 : c.dtype == EK_F64 ? EK_F64 : EK_F32;
		c.norm = turn % 2 ? 1 + turn / 4 % 2 : 0;
		case_drop(&c, "positions");
		case_drop(&c, without[(turn / 4 + shape) % 4]);
		case_normalise(&c);
		check(&c, rope_args, ek_rope_cost);
	}
}
