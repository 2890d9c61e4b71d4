/* What explain counts, from the program's options: arguments of the cost model, with an example's sizes where none are given. Called
 * by explain.c. SPDX-License-Identifier: MIT */
#include "choices.h"
#include "explain.h"
#include "ops/glu/op.h"
#include "ops/norm/op.h"
#include "ops/rope/op.h"

/* Shown where none are given; a block is another example. */
static const struct example {
	int64_t batch, seq, hidden, heads, head_dim, ffn;
} example = {8, 2048, 4096, 32, 128, 4096}, block_example = {4, 2048, 1024, 16, 0, 4096};

static enum explained kind_of(const struct options *options)
{
	if (options->expression)
		return EXPLAIN_EXPRESSION;
	if (options->block)
		return EXPLAIN_BLOCK;
	if (options->ops[0]->forward == &ek_glu_forward_op)
		return EXPLAIN_GLU;
	return options->ops[0]->forward == &ek_rope_forward_op ? EXPLAIN_ROPE : EXPLAIN_NORM;
}

static bool has(const struct options *options, const char *operand)
{
	return options->op_count && op_has(options->ops[0], operand);
}

static int with_of_norm(const struct options *options)
{
	return (has(options, "residual") ? EK_WITH_RESIDUAL : 0) |
	       (has(options, "residual_after") ? EK_WITH_RESIDUAL_AFTER : 0) |
	       (has(options, "gate") ? EK_WITH_GATE : 0) | (options->x_bias ? EK_WITH_X_BIAS : 0);
}

static ek_activation activation_of(const struct options *options)
{
	int chosen = options->choices[EK_CHOICE_ACTIVATION];
	return (ek_activation)(chosen || !options->op_count ? chosen
							    : options->ops[0]->usual[EK_CHOICE_ACTIVATION]);
}

/* evenkeel.torch's functions with a residual after the norm return the dtype of the sum. */
static ek_dtype result_dtype(const struct options *options)
{
	int with = with_of_norm(options), asked = options->choices[EK_CHOICE_Y_DTYPE];
	return (ek_dtype)(asked || !(with & EK_WITH_RESIDUAL_AFTER) ? asked
								    : options->choices[EK_CHOICE_H_DTYPE]);
}

/* What all have. */
static ek_cost_args arguments_of(const struct options *options, const struct example *shown)
{
	bool rows = options->rows > 0, both = options->pass[FORWARD] && options->pass[BACKWARD];
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .pass = both                      ? EK_STEP
				      : options->pass[BACKWARD] ? EK_BACKWARD
								: EK_FORWARD,
			      .batch_size = options->batch ? options->batch
					    : rows         ? options->rows
							   : shown->batch,
			      .seq_len = options->seq ? options->seq
					 : rows       ? 1
						      : shown->seq,
			      .dtype = options->dtype_count ? options->dtypes[0] : EK_F32,
			      .weight_dtype = options->weight_dtype,
			      .gradient_dtype = (ek_dtype)options->choices[EK_CHOICE_GRADIENT_DTYPE],
			      .activation = activation_of(options),
			      .absent = options->weight ? 0 : EK_NO_WEIGHT};
}

static int64_t width_of(const struct options *options, int64_t other)
{
	return options->hidden ? options->hidden : options->cols ? options->cols : other;
}

static void set_norm(ek_cost_args *a, const struct options *options)
{
	bool rms = options->op_count && options->ops[0]->kind == EK_RMS_NORM;
	bool bias = rms && !options->bias_given ? false : options->bias; /* PyTorch's RMSNorm has none */
	a->norm = options->op_count ? (ek_norm)options->ops[0]->kind : EK_LAYER_NORM;
	a->hidden_size = width_of(options, example.hidden);
	a->with = with_of_norm(options);
	a->h_dtype = (ek_dtype)options->choices[EK_CHOICE_H_DTYPE];
	a->y_dtype = result_dtype(options);
	a->weight_offset = options->choices[EK_CHOICE_WEIGHT_OFFSET];
	a->rounding = (ek_rounding)options->choices[EK_CHOICE_ROUNDING];
	a->gate_first = options->choices[EK_CHOICE_GATE_FIRST];
	a->group_cols = options->group_cols;
	a->compute_dtype = options->compute_dtype;
	a->stats_dtype = options->stats_dtype;
	a->intermediate_dtype = options->intermediate_dtype;
	a->absent |= (bias ? 0 : EK_NO_BIAS) | (options->statistics ? 0 : EK_NO_STATISTICS);
}

/* As in a block, with the biases of the products in front. */
static void set_glu(ek_cost_args *a, const struct options *options)
{
	a->ffn_size = options->ffn ? options->ffn : width_of(options, example.ffn);
	a->with = (has(options, "value") ? EK_WITH_VALUE : 0) | (options->bias ? EK_WITH_BIASES : 0);
	a->absent = 0;
}

static void set_heads(ek_cost_args *a, const struct options *options, const struct example *shown)
{
	a->heads = options->heads ? options->heads : shown->heads;
	a->k_heads = options->kv_heads;
	a->head_dim = options->head_dim ? options->head_dim : shown->head_dim;
	a->rotary_dim = options->rotary_dim;
	a->table_dtype = (ek_dtype)options->choices[EK_CHOICE_TABLE_DTYPE];
}

static void set_rope(ek_cost_args *a, const struct options *options)
{
	int usual = options->ops[0]->usual[EK_CHOICE_NORM], chosen = options->choices[EK_CHOICE_NORM];
	set_heads(a, options, &example);
	a->norm = (ek_norm)(chosen ? chosen : usual);
	a->with = options->bias ? EK_WITH_BIASES : 0;
}

static void set_block(ek_cost_args *a, const struct options *options)
{
	int norm = options->choices[EK_CHOICE_NORM], activation = options->choices[EK_CHOICE_ACTIVATION];
	set_heads(a, options, &block_example);
	a->norm = norm ? (ek_norm)norm : EK_LAYER_NORM;
	a->hidden_size = width_of(options, block_example.hidden);
	a->ffn_size = options->ffn ? options->ffn : block_example.ffn;
	a->order = options->order ? (ek_block_order)options->order : EK_REORDERED;
	a->causal = options->causal;
	a->activation = activation ? (ek_activation)activation : EK_SILU;
	a->with = (options->gated ? EK_WITH_VALUE : 0) | (options->bias ? EK_WITH_BIASES : 0) |
		  (options->qk_norm ? EK_WITH_QK_NORM : 0) | (options->packed ? EK_WITH_PACKED : 0);
	a->absent |= a->norm == EK_RMS_NORM ? EK_NO_BIAS : 0;
	if (!options->dtype_count)
		a->dtype = EK_BF16;
}

void explain_arguments(struct explanation *e, const struct options *options)
{
	e->kind = kind_of(options);
	e->expression = e->kind == EXPLAIN_EXPRESSION;
	e->subject = options->expression ? options->expression
		     : options->block    ? "block"
					 : options->ops[0]->name;
	e->sizes_given = options->batch || options->seq || options->hidden || options->rows ||
			 options->cols || options->heads || options->head_dim || options->ffn;
	e->args = arguments_of(options, e->kind == EXPLAIN_BLOCK ? &block_example : &example);
	switch (e->kind) {
	case EXPLAIN_GLU:
		set_glu(&e->args, options);
		break;
	case EXPLAIN_ROPE:
		set_rope(&e->args, options);
		break;
	case EXPLAIN_BLOCK:
		set_block(&e->args, options);
		break;
	default:
		set_norm(&e->args, options);
	}
}

int explain_sizes(const struct explanation *e, struct explained_size *sizes)
{
	const ek_cost_args *a = &e->args;
	bool heads = e->kind == EXPLAIN_ROPE || e->kind == EXPLAIN_BLOCK,
	     hidden = e->kind != EXPLAIN_ROPE && e->kind != EXPLAIN_GLU,
	     ffn = e->kind == EXPLAIN_GLU || e->kind == EXPLAIN_BLOCK;
	int64_t head_dim = a->head_dim ? a->head_dim : heads ? a->hidden_size / a->heads : 0;
	const struct explained_size all[] = {{"batch_size", a->batch_size},
					     {"seq_len", a->seq_len},
					     {"hidden_size", hidden ? a->hidden_size : 0},
					     {"ffn_size", ffn ? a->ffn_size : 0},
					     {"heads", a->heads},
					     {"k_heads", a->k_heads ? a->k_heads : a->heads},
					     {"head_dim", head_dim},
					     {"rotary_dim", a->rotary_dim ? a->rotary_dim : head_dim}};
	int count = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].value)
			sizes[count++] = all[i];
	return count;
}
