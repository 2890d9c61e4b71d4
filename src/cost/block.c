/* ek_block_cost: validates its arguments, and adds the kernels of the block's steps (block_steps.c), of ops by their own rows.
 * SPDX-License-Identifier: MIT */
#include "block.h"

#include <string.h>

#include "core/check_op.h"
#include "core/require.h"
#include "cost.h"

/* ---- arguments ---- */

static ek_status check_order(const ek_cost_args *a)
{
	const int with = EK_WITH_VALUE | EK_WITH_BIASES | EK_WITH_QK_NORM | EK_WITH_PACKED;
	REQUIRE(a->norm == EK_LAYER_NORM || a->norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)a->norm,
		(int)EK_LAYER_NORM, (int)EK_RMS_NORM);
	REQUIRE(a->order == EK_REORDERED || a->order == EK_PRE_NORM, EK_ERROR_ARGUMENT,
		"order (%d) is neither EK_REORDERED (%d) nor EK_PRE_NORM (%d)", (int)a->order,
		(int)EK_REORDERED, (int)EK_PRE_NORM);
	REQUIRE(a->causal == 0 || a->causal == 1, EK_ERROR_ARGUMENT, "causal (%d) must be 0 or 1", a->causal);
	REQUIRE((a->with & ~with) == 0, EK_ERROR_ARGUMENT,
		"with (%d) has bits beyond EK_WITH_VALUE, EK_WITH_BIASES, EK_WITH_QK_NORM and EK_WITH_PACKED (%d)",
		a->with, with);
	return EK_OK;
}

/* Copies of the arguments for the block's norms, RoPE and gated activation. */
static ek_cost_args norm_args(const ek_cost_args *a, int with)
{
	ek_cost_args args = *a;
	args.with = a->with & EK_WITH_BIASES ? with : with & ~EK_WITH_X_BIAS;
	args.activation = EK_NO_ACTIVATION;
	return args;
}

static ek_cost_args rope_args(const ek_cost_args *a)
{
	ek_cost_args args = *a;
	args.norm = a->with & EK_WITH_QK_NORM ? EK_RMS_NORM : (ek_norm)0;
	args.with = a->variant == EK_PYTORCH ? 0 : a->with & EK_WITH_BIASES;
	return args;
}

static ek_cost_args glu_args(const ek_cost_args *a)
{
	ek_cost_args args = *a;
	args.with &= a->variant == EK_PYTORCH ? EK_WITH_VALUE : EK_WITH_VALUE | EK_WITH_BIASES;
	return args;
}

/* The ops check what is theirs; their variant and pass are one of their own. */
static ek_status check_ops(ek_cost_args *a)
{
	ek_cost_args rope = rope_args(a), glu = glu_args(a), norm = norm_args(a, 0);
	rope.variant = glu.variant = norm.variant = EK_EVENKEEL;
	rope.pass = glu.pass = norm.pass = EK_FORWARD;
	PASS_ON(ek_cost_check(&norm));
	PASS_ON(ek_rope_cost_op.check(&rope));
	PASS_ON(ek_glu_cost_op.check(&glu));
	a->dtype = norm.dtype;
	a->weight_dtype = norm.weight_dtype;
	a->gradient_dtype = norm.gradient_dtype;
	a->h_dtype = norm.h_dtype;
	a->y_dtype = norm.y_dtype;
	a->k_heads = rope.k_heads;
	a->rotary_dim = rope.rotary_dim;
	a->table_dtype = rope.table_dtype;
	return EK_OK;
}

static ek_status check(ek_cost_args *a)
{
	PASS_ON(check_order(a));
	PASS_ON(ek_cost_check_op(a, EK_STEP, EK_COMPILED));
	REQUIRE(a->heads >= 1, EK_ERROR_ARGUMENT, "heads (%lld) must be at least 1", (long long)a->heads);
	REQUIRE(a->head_dim || a->hidden_size % a->heads == 0, EK_ERROR_ARGUMENT,
		"heads (%lld) does not divide hidden_size (%lld); give head_dim", (long long)a->heads,
		(long long)a->hidden_size);
	if (a->head_dim == 0)
		a->head_dim = a->hidden_size / a->heads;
	return check_ops(a);
}

/* ---- what the names of the block's own rows mean ---- */

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))
#define FACT(name, factor, ...)                                                           \
	ek_facts_add(facts, name, factor, COUNT(((const enum ek_symbol[]){__VA_ARGS__})), \
		     (const enum ek_symbol[]){__VA_ARGS__})
#define TOKENS EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN
#define Q EK_SYMBOL_HEADS, EK_SYMBOL_HEAD_DIM
#define KV EK_SYMBOL_K_HEADS, EK_SYMBOL_HEAD_DIM

static void add_sizes(struct ek_facts *facts)
{
	FACT("tokens", 1, TOKENS);
	FACT("model", 1, EK_SYMBOL_HIDDEN_SIZE);
	FACT("q", 1, Q);
	FACT("kv", 1, KV);
	FACT("ffn", 1, EK_SYMBOL_FFN_SIZE);
	FACT("head", 1, EK_SYMBOL_HEAD_DIM);
	FACT("elements", 1, TOKENS, EK_SYMBOL_HIDDEN_SIZE);
	FACT("q_elements", 1, TOKENS, Q);
	FACT("kv_elements", 1, TOKENS, KV);
	FACT("ffn_elements", 1, TOKENS, EK_SYMBOL_FFN_SIZE);
	FACT("q_rows", 1, TOKENS, EK_SYMBOL_HEADS);
	FACT("k_rows", 1, TOKENS, EK_SYMBOL_K_HEADS);
	FACT("q_turning", 2, TOKENS, EK_SYMBOL_HEADS, EK_SYMBOL_PAIRS);
	FACT("k_turning", 2, TOKENS, EK_SYMBOL_K_HEADS, EK_SYMBOL_PAIRS);
	FACT("squares", 1, TOKENS, EK_SYMBOL_SEQ_LEN, Q);
	FACT("tables", 1, EK_SYMBOL_SEQ_LEN, EK_SYMBOL_PAIRS, EK_SYMBOL_C_BYTES);
}

static void add_widths(struct ek_facts *facts, const ek_cost_args *a)
{
	bool own = a->gradient_dtype != a->weight_dtype;
	ek_facts_add_symbol(facts, "a", EK_SYMBOL_A_BYTES, (int64_t)ek_dtype_size(a->dtype));
	ek_facts_add_symbol(facts, "w", EK_SYMBOL_W_BYTES, (int64_t)ek_dtype_size(a->weight_dtype));
	ek_facts_add_symbol(facts, "g", own ? EK_SYMBOL_G_BYTES : EK_SYMBOL_W_BYTES,
			    (int64_t)ek_dtype_size(a->gradient_dtype));
	ek_facts_add_symbol(facts, "s", EK_SYMBOL_S_BYTES, (int64_t)ek_dtype_size(ek_real_of(a->dtype)));
}

static void add_numbers(struct ek_facts *facts, const ek_cost_args *a)
{
	bool weight = !(a->absent & EK_NO_WEIGHT), bias = !(a->absent & EK_NO_BIAS);
	struct ek_activation_flops flops = ek_glu_flops(a->activation);
	const struct {
		const char *name;
		int number;
	} numbers[] = {{"biases", (a->with & EK_WITH_BIASES) != 0},
		       {"gated", (a->with & EK_WITH_VALUE) != 0},
		       {"qk_norm", (a->with & EK_WITH_QK_NORM) != 0},
		       {"packed", (a->with & EK_WITH_PACKED) != 0},
		       {"causal", a->causal},
		       {"centred", a->norm == EK_LAYER_NORM},
		       {"weight", weight},
		       {"bias", bias},
		       {"any_sums", weight || bias},
		       {"value_flops", flops.value},
		       {"slope_flops", flops.slope}};
	for (int i = 0; i < COUNT(numbers); i++)
		ek_facts_add_number(facts, numbers[i].name, numbers[i].number);
}

static void add_facts(struct ek_facts *facts, const ek_cost_args *a)
{
	const int64_t values[][2] = {{EK_SYMBOL_BATCH_SIZE, a->batch_size},
				     {EK_SYMBOL_SEQ_LEN, a->seq_len},
				     {EK_SYMBOL_HIDDEN_SIZE, a->hidden_size},
				     {EK_SYMBOL_FFN_SIZE, a->ffn_size},
				     {EK_SYMBOL_HEADS, a->heads},
				     {EK_SYMBOL_K_HEADS, a->k_heads},
				     {EK_SYMBOL_HEAD_DIM, a->head_dim},
				     {EK_SYMBOL_PAIRS, a->rotary_dim / 2},
				     {EK_SYMBOL_C_BYTES, (int64_t)ek_dtype_size(a->table_dtype)}};
	*facts = (struct ek_facts){.count = 0};
	add_sizes(facts);
	add_widths(facts, a);
	add_numbers(facts, a);
	for (int i = 0; i < COUNT(values); i++)
		facts->values[values[i][0]] = values[i][1];
}

/* ---- steps ---- */

static ek_status add_op(struct ek_cost_making *making, const struct ek_cost_op *op, const ek_cost_args *args)
{
	struct ek_facts facts = {.count = 0};
	op->facts(&facts, args);
	return ek_cost_add_rows(making, op->rows(args), &facts, op->path(args));
}

static ek_status add_norm(struct ek_cost_making *making, const ek_cost_args *a)
{
	struct ek_facts facts = {.count = 0};
	ek_norm_facts(&facts, a, true);
	return ek_cost_add_rows(making, ek_cost_rows(a->variant, a->pass, a->device), &facts,
				ek_norm_cost_path(a));
}

static ek_status add_step(struct ek_cost_making *making, const struct ek_block_step *step,
			  const ek_cost_args *a, const struct ek_facts *facts)
{
	ek_cost_args args = *a;
	making->role = step->role;
	switch (step->op) {
	case EK_BLOCK_ROWS:
		return ek_cost_add_rows(making, step->rows, facts, "");
	case EK_BLOCK_NORM:
		args = norm_args(a, step->with);
		return add_norm(making, &args);
	case EK_BLOCK_ROPE:
		args = rope_args(a);
		return add_op(making, &ek_rope_cost_op, &args);
	default:
		args = glu_args(a);
		return add_op(making, &ek_glu_cost_op, &args);
	}
}

static ek_status add_pass(struct ek_cost_making *making, const ek_cost_args *a, ek_pass pass,
			  const struct ek_facts *facts)
{
	ek_cost_args args = *a;
	args.pass = pass;
	const struct ek_block_step *step = ek_block_steps(a->variant, a->order, pass);
	for (; step->op != EK_BLOCK_ROWS || step->rows; step++)
		PASS_ON(add_step(making, step, &args, facts));
	return EK_OK;
}

ek_status ek_block_cost(const ek_cost_args *args, ek_cost_list *cost)
{
	static const char *const paths[] = {[EK_REORDERED] = "evenkeel.torch.ReorderedNormBlock",
					    [EK_PRE_NORM] = "evenkeel.torch.PreNormBlock"};
	ek_cost_args a = {.size = 0};
	struct ek_facts facts;
	struct ek_cost_making making = {.numbered = false};
	PASS_ON(ek_cost_start(&making, cost));
	PASS_ON(ek_cost_take(args, &a));
	PASS_ON(check(&a));
	making.numbered = true;
	add_facts(&facts, &a);
	if (a.pass != EK_BACKWARD)
		PASS_ON(add_pass(&making, &a, EK_FORWARD, &facts));
	if (a.pass != EK_FORWARD)
		PASS_ON(add_pass(&making, &a, EK_BACKWARD, &facts));
	return ek_cost_finish(&making, paths[a.order], facts.values, cost);
}
