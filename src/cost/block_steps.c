/* A transformer block as lists of steps: products and attention as rows of text, the ops between them by their own rows. docs/cost.md
 * explains the counts. Names (block.c says what they are for given arguments): tokens; model, q, kv and ffn are columns; elements
 * those of tokens x model, q_elements of tokens x q; a, w, g, s and c the bytes of an activation, of a weight, of its gradient, of
 * a statistic, of cos; the others are 0 or 1, or small numbers. Called by block.c. SPDX-License-Identifier: MIT */
#include "block.h"

/* ---- rows ---- */

#define END                  \
	{                    \
		.name = NULL \
	}

/* clang-format off */

#define LINEAR "=torch.nn.functional.linear"
#define PRODUCT(name, when, in, out, bias)                                                                            \
	{name, "product", LINEAR, when,                                                                               \
	 {"2*tokens*" in "*" out " + " bias "*tokens*" out, "tokens*" in "*a + " in "*" out "*w + " bias "*" out "*w",  \
	  "tokens*" out "*a"}}
#define GRADIENTS(name, when, in, out) GRADIENTS_ONTO(name, when, in, out, "", "")
/* dx is added to another gradient: so many FLOP and bytes more. */
#define GRADIENTS_ONTO(name, when, in, out, flops, read)                                                              \
	{name "/dx", "product", LINEAR ", backward", when,                                                            \
	 {"2*tokens*" in "*" out flops, "tokens*" out "*a + " in "*" out "*w" read, "tokens*" in "*a"}},              \
	{name "/dweight", "product", LINEAR ", backward", when,                                                       \
	 {"2*tokens*" in "*" out, "tokens*" in "*a + tokens*" out "*a", in "*" out "*g"}}
#define BIAS_SUM(name, when, out)                                                                                     \
	{name "/dbias", "reduction", "=torch.sum", when, {"tokens*" out, "tokens*" out "*a", out "*g"}}
#define ADD(name, when, count)                                                                                        \
	{name, "elementwise", "=torch.add", when,                                                                     \
	 {count "*elements", "2*" count "*elements*a", count "*elements*a"}}

/* q, k and v, and gate and value, as products of their own, or packed. */
#define QKV(q_bias, v_bias)                                                                                           \
	PRODUCT("q_proj", "1 - packed", "model", "q", q_bias),                                                        \
	PRODUCT("k_proj", "1 - packed", "model", "kv", q_bias),                                                       \
	PRODUCT("v_proj", "1 - packed", "model", "kv", v_bias),                                                       \
	PRODUCT("qkv_proj", "packed", "model", "(q + 2*kv)", v_bias)
#define QKV_GRADIENTS QKV_GRADIENTS_ONTO("", "")
#define QKV_GRADIENTS_ONTO(flops, read)                                                                               \
	GRADIENTS_ONTO("q_proj", "1 - packed", "model", "q", flops, read),                                            \
	GRADIENTS("k_proj", "1 - packed", "model", "kv"),                                                             \
	GRADIENTS("v_proj", "1 - packed", "model", "kv"),                                                             \
	GRADIENTS_ONTO("qkv_proj", "packed", "model", "(q + 2*kv)", flops, read)
#define UP(bias)                                                                                                      \
	PRODUCT("gate_proj", "gated - packed*gated", "model", "ffn", bias),                                           \
	PRODUCT("value_proj", "gated - packed*gated", "model", "ffn", bias),                                          \
	PRODUCT("up_proj", "packed*gated", "model", "2*ffn", bias),                                                   \
	PRODUCT("up_proj", "1 - gated", "model", "ffn", bias)
#define UP_GRADIENTS UP_GRADIENTS_ONTO("", "")
#define UP_GRADIENTS_ONTO(flops, read)                                                                                \
	GRADIENTS_ONTO("gate_proj", "gated - packed*gated", "model", "ffn", flops, read),                             \
	GRADIENTS("value_proj", "gated - packed*gated", "model", "ffn"),                                              \
	GRADIENTS_ONTO("up_proj", "packed*gated", "model", "2*ffn", flops, read),                                     \
	GRADIENTS_ONTO("up_proj", "1 - gated", "model", "ffn", flops, read)

/* A product of scores: 2 * head_dim for each pair of tokens. */
#define SCORES "((2 - causal)*squares + causal*q_elements)"
#define SDPA   "=torch.nn.functional.scaled_dot_product_attention"
#define ATTENTION                                                                                                     \
	{"attention", "attention", SDPA, "1",                                                                         \
	 {"2*" SCORES, "q_elements*a + 2*kv_elements*a", "q_elements*a + q_rows*s"}}
/* The scores again, and four products of gradients. */
#define ATTENTION_BACKWARD                                                                                            \
	{"attention/backward", "attention", SDPA ", backward", "1",                                                   \
	 {"5*" SCORES, "3*q_elements*a + 2*kv_elements*a + q_rows*s", "q_elements*a + 2*kv_elements*a"}}

/* ---- evenkeel, and products and attention of eager PyTorch ---- */

/* v's bias, which no kernel behind takes, is the product's own; the others go to the kernels behind. */
static const struct ek_cost_row qkv[] = {QKV("0", "biases"), END};
static const struct ek_cost_row qkv_eager[] = {QKV("biases", "biases"), END};
static const struct ek_cost_row attention_out[] = {ATTENTION, PRODUCT("out_proj", "1", "q", "model", "0"), END};
static const struct ek_cost_row attention_out_eager[] = {ATTENTION, PRODUCT("out_proj", "1", "q", "model", "biases"), END};
static const struct ek_cost_row up[] = {UP("0"), END};
static const struct ek_cost_row up_eager[] = {UP("biases"), END};
static const struct ek_cost_row down[] = {PRODUCT("down_proj", "1", "ffn", "model", "0"), END};
static const struct ek_cost_row down_eager[] = {PRODUCT("down_proj", "1", "ffn", "model", "biases"), END};
static const struct ek_cost_row down_add[] = {
	PRODUCT("down_proj", "1", "ffn", "model", "biases"), ADD("residual_add", "1", "1"), END};

static const struct ek_cost_row down_back[] = {GRADIENTS("down_proj", "1", "ffn", "model"), END};
static const struct ek_cost_row down_bias_back[] = {
	GRADIENTS("down_proj", "1", "ffn", "model"), BIAS_SUM("down_proj", "biases", "model"), END};
/* What autograd adds up: gradients of the input of two products, of three, and of what went past the sublayer. */
static const struct ek_cost_row up_back[] = {UP_GRADIENTS, ADD("add_gradients", "gated - packed*gated", "1"), END};
/* Where norms are reordered, products add what went past the sublayer (beta = 1). */
static const struct ek_cost_row up_back_onto[] = {UP_GRADIENTS_ONTO(" + elements", " + elements*a"), ADD("add_gradients", "gated - packed*gated", "1"), END};
static const struct ek_cost_row up_back_eager[] = {
	UP_GRADIENTS, BIAS_SUM("gate_proj", "biases*gated*(1 - packed)", "ffn"),
	BIAS_SUM("value_proj", "biases*gated*(1 - packed)", "ffn"), BIAS_SUM("up_proj", "biases*gated*packed", "2*ffn"),
	BIAS_SUM("up_proj", "biases*(1 - gated)", "ffn"),
	ADD("add_gradients", "gated - packed*gated", "1"), END};
static const struct ek_cost_row attention_back[] = {GRADIENTS("out_proj", "1", "q", "model"), ATTENTION_BACKWARD, END};
static const struct ek_cost_row attention_back_eager[] = {
	GRADIENTS("out_proj", "1", "q", "model"), BIAS_SUM("out_proj", "biases", "model"), ATTENTION_BACKWARD, END};
static const struct ek_cost_row qkv_back[] = {
	QKV_GRADIENTS, BIAS_SUM("v_proj", "biases*(1 - packed)", "kv"), ADD("add_gradients", "1 - packed", "1"),
	ADD("add_gradients", "1 - packed", "1"), END};
static const struct ek_cost_row qkv_back_onto[] = {
	QKV_GRADIENTS_ONTO(" + elements", " + elements*a"), BIAS_SUM("v_proj", "biases*(1 - packed)", "kv"), ADD("add_gradients", "1 - packed", "1"),
	ADD("add_gradients", "1 - packed", "1"), END};
static const struct ek_cost_row qkv_back_eager[] = {
	QKV_GRADIENTS, BIAS_SUM("q_proj", "biases*(1 - packed)", "q"), BIAS_SUM("k_proj", "biases*(1 - packed)", "kv"),
	BIAS_SUM("v_proj", "biases*(1 - packed)", "kv"), BIAS_SUM("qkv_proj", "biases*packed", "(q + 2*kv)"), ADD("add_gradients", "1 - packed", "1"),
	ADD("add_gradients", "1 - packed", "1"), END};
/* What evenkeel sums by a kernel, the gradient of v copied into the packed one meanwhile; partial sums, a few kB, are not counted. */
#define OWN_SUM(name, when, out, copied)                                                                              \
	{name, "fused", "=src/ops/glu/kernels/sums.cu", when,                                                         \
	 {"tokens*" out, "tokens*" out "*a", copied "*tokens*" out "*a"}},                                            \
	{name "/fold", "fused", "=src/gpu/kernels/columns.cu", when, {"0", "0", out "*g"}}
static const struct ek_cost_row v_back[] = {
	OWN_SUM("v_proj/dbias", "biases*packed", "kv", "1"),
	{"v_gradient", "fused", "=src/ops/glu/kernels/rows.cu", "packed - biases*packed", {"0", "tokens*kv*a", "tokens*kv*a"}},
	END};
static const struct ek_cost_row down_bias_own[] = {OWN_SUM("down_proj/dbias", "biases", "model", "0"), END};
static const struct ek_cost_row residual_back[] = {ADD("add_residual_gradient", "1", "1"), END};

/* ---- torch.compile: an estimate by the rules of inductor's fusion. Pointwise operations join the reduction or the pointwise kernel
 * next to them; biases join what follows their product, but for v's; sums over tokens take two kernels each. ---- */

#define POINTWISE(name, when, flops, read, written) {name, "fused", "=triton_poi_fused", when, {flops, read, written}}
#define REDUCTION(name, when, flops, read, written) {name, "fused", "=triton_red_fused", when, {flops, read, written}}
/* Sums of `sums` columns over tokens, 64 partial sums of each. */
#define COLUMN_SUMS(name, when, sums, out, read)                                                                      \
	{name "/sums", "reduction", "=triton_red_fused", when,                                                        \
	 {sums "*tokens*" out, read, "64*" sums "*" out "*s"}},                                                       \
	{name "/sums", "reduction", "=triton_per_fused", when,                                                        \
	 {"64*" sums "*" out, "64*" sums "*" out "*s", sums "*" out "*g"}}

#define COMPILED_ROPE                                                                                                 \
	POINTWISE("rope", "1 - qk_norm", "3*(q_turning + k_turning) + biases*(q_elements + kv_elements)",                             \
		  "q_elements*a + kv_elements*a + 2*tables + biases*(q + kv)*w", "q_elements*a + kv_elements*a"),     \
	REDUCTION("q_norm_rope", "qk_norm", "3*q_turning + (4 + biases)*q_elements",                                  \
		  "q_elements*a + 2*tables + biases*q*w + head*w", "q_elements*a + q_rows*s"),                        \
	REDUCTION("k_norm_rope", "qk_norm", "3*k_turning + (4 + biases)*kv_elements",                                 \
		  "kv_elements*a + 2*tables + biases*kv*w + head*w", "kv_elements*a + k_rows*s")
#define COMPILED_ROPE_BACKWARD                                                                                        \
	POINTWISE("rope/backward", "1 - qk_norm", "3*(q_turning + k_turning)",                                                        \
		  "q_elements*a + kv_elements*a + 2*tables", "q_elements*a + kv_elements*a"),                         \
	REDUCTION("q_norm_rope/backward", "qk_norm", "3*q_turning + 9*q_elements",                                    \
		  "2*q_elements*a + q_rows*s + 2*tables + biases*q*w + head*w", "q_elements*a"),                      \
	REDUCTION("k_norm_rope/backward", "qk_norm", "3*k_turning + 9*kv_elements",                                   \
		  "2*kv_elements*a + k_rows*s + 2*tables + biases*kv*w + head*w", "kv_elements*a"),                   \
	COLUMN_SUMS("q_norm", "qk_norm", "1", "head", "2*q_elements*a + q_rows*s + 2*tables"),                        \
	COLUMN_SUMS("k_norm", "qk_norm", "1", "head", "2*kv_elements*a + k_rows*s + 2*tables"),                       \
	COLUMN_SUMS("q_proj", "biases", "1", "q", "q_elements*a"),                                                    \
	COLUMN_SUMS("k_proj", "biases", "1", "kv", "kv_elements*a"),                                                  \
	COLUMN_SUMS("v_proj", "biases", "1", "kv", "kv_elements*a")
#define COMPILED_GLU                                                                                                  \
	POINTWISE("activation", "1", "(value_flops + gated)*ffn_elements + biases*(1 + gated)*ffn_elements",          \
		  "(1 + gated)*ffn_elements*a + biases*(1 + gated)*ffn*w", "ffn_elements*a")
#define COMPILED_GLU_BACKWARD                                                                                         \
	POINTWISE("activation/backward", "1",                                                                         \
		  "(1 + slope_flops + 2*gated)*ffn_elements + biases*(1 + gated)*ffn_elements",                       \
		  "(2 + gated)*ffn_elements*a + biases*(1 + gated)*ffn*w", "(1 + gated)*ffn_elements*a"),             \
	COLUMN_SUMS("gate_proj", "biases", "1", "ffn", "ffn_elements*a"),                                             \
	COLUMN_SUMS("value_proj", "biases*gated", "1", "ffn", "ffn_elements*a")
#define NORM_FLOPS "(3 + 5*centred + weight + bias)*elements"
/* h: written for what comes later; more: tensors of elements that are added on the way. */
#define COMPILED_NORM(name, added, x_bias, h)                                                                         \
	REDUCTION(name, "1", NORM_FLOPS " + (" added " + " x_bias ")*elements",                                       \
		  "(1 + " added ")*elements*a + (weight + bias + " x_bias ")*model*w",                                \
		  "(1 + " h ")*elements*a + (1 + centred)*tokens*s")
/* added: gradients of the norm's result that are summed first, beside the one that there is always; past: those of what went past
 * the norm, which dx takes up; kept: the sum of the first is written. */
#define COMPILED_NORM_BACKWARD(name, added, past, kept, x_bias)                                                       \
	REDUCTION(name "/backward", "1", "(6 + 4*centred + weight + " added " + " past ")*elements",                  \
		  "(2 + " added " + " past ")*elements*a + (1 + centred)*tokens*s + (weight + " x_bias ")*model*w",   \
		  "(1 + " kept ")*elements*a"),                                                                       \
	COLUMN_SUMS(name, "any_sums", "(weight + bias)", "model", "2*elements*a + (1 + centred)*tokens*s"),           \
	COLUMN_SUMS(name "/x_bias", x_bias, "1", "model", "elements*a")
#define SEPARATE "(1 - packed)"

static const struct ek_cost_row compiled_reordered[] = {
	QKV("0", "biases"), COMPILED_ROPE, ATTENTION, PRODUCT("out_proj", "1", "q", "model", "0"),
	COMPILED_NORM("attention_norm", "1", "biases", "0"), UP("0"), COMPILED_GLU,
	PRODUCT("down_proj", "1", "ffn", "model", "0"), COMPILED_NORM("ffn_norm", "1", "biases", "0"),
	END};

static const struct ek_cost_row compiled_pre_norm[] = {
	COMPILED_NORM("attention_norm", "0", "0", "0"), QKV("0", "biases"), COMPILED_ROPE, ATTENTION,
	PRODUCT("out_proj", "1", "q", "model", "0"), COMPILED_NORM("ffn_norm", "1", "biases", "1"), UP("0"), COMPILED_GLU,
	PRODUCT("down_proj", "1", "ffn", "model", "0"),
	POINTWISE("residual_add", "1", "(1 + biases)*elements", "2*elements*a + biases*model*w", "elements*a"),
	END};

static const struct ek_cost_row compiled_reordered_back[] = {
	COMPILED_NORM_BACKWARD("ffn_norm", "0", "0", "0", "biases"), GRADIENTS("down_proj", "1", "ffn", "model"),
	COMPILED_GLU_BACKWARD, UP_GRADIENTS,
	COMPILED_NORM_BACKWARD("attention_norm", "(1 + gated*" SEPARATE ")", "0", "1", "biases"),
	GRADIENTS("out_proj", "1", "q", "model"), ATTENTION_BACKWARD, COMPILED_ROPE_BACKWARD, QKV_GRADIENTS,
	POINTWISE("add_gradients", "1", "(1 + 2*" SEPARATE ")*elements", "(2 + 2*" SEPARATE ")*elements*a", "elements*a"),
	END};

static const struct ek_cost_row compiled_pre_norm_back[] = {
	GRADIENTS("down_proj", "1", "ffn", "model"), COLUMN_SUMS("down_proj", "biases", "1", "model", "elements*a"),
	COMPILED_GLU_BACKWARD, UP_GRADIENTS,
	COMPILED_NORM_BACKWARD("ffn_norm", "gated*" SEPARATE, "1", "0", "biases"),
	GRADIENTS("out_proj", "1", "q", "model"), ATTENTION_BACKWARD, COMPILED_ROPE_BACKWARD, QKV_GRADIENTS,
	COMPILED_NORM_BACKWARD("attention_norm", "2*" SEPARATE, "1", "0", "0"),
	END};

/* ---- steps ---- */

#define STEP(rows) {EK_BLOCK_ROWS, rows, NULL, 0}
#define OP(op, role, with) {op, NULL, role, with}
#define AFTER (EK_WITH_RESIDUAL_AFTER | EK_WITH_X_BIAS)
#define BEFORE (EK_WITH_RESIDUAL | EK_WITH_X_BIAS)
#define LAST {EK_BLOCK_ROWS, NULL, NULL, 0}

static const struct ek_block_step reordered[] = {
	STEP(qkv), OP(EK_BLOCK_ROPE, "rope", 0), STEP(attention_out), OP(EK_BLOCK_NORM, "attention_norm", AFTER),
	STEP(up), OP(EK_BLOCK_GLU, "activation", 0), STEP(down), OP(EK_BLOCK_NORM, "ffn_norm", AFTER), LAST};

static const struct ek_block_step pre_norm[] = {
	OP(EK_BLOCK_NORM, "attention_norm", 0), STEP(qkv), OP(EK_BLOCK_ROPE, "rope", 0), STEP(attention_out), OP(EK_BLOCK_NORM, "ffn_norm", BEFORE),
	STEP(up), OP(EK_BLOCK_GLU, "activation", 0), STEP(down_add), LAST};

static const struct ek_block_step reordered_back[] = {
	OP(EK_BLOCK_NORM, "ffn_norm", AFTER), STEP(down_back), OP(EK_BLOCK_GLU, "activation", 0), STEP(up_back_onto),
	OP(EK_BLOCK_NORM, "attention_norm", AFTER), STEP(attention_back), OP(EK_BLOCK_ROPE, "rope", 0), STEP(v_back), STEP(qkv_back_onto), LAST};

/* The norms add the gradient of what went past them. */
static const struct ek_block_step pre_norm_back[] = {
	STEP(down_bias_own), STEP(down_back), OP(EK_BLOCK_GLU, "activation", 0), STEP(up_back), OP(EK_BLOCK_NORM, "ffn_norm", BEFORE),
	STEP(attention_back), OP(EK_BLOCK_ROPE, "rope", 0), STEP(v_back), STEP(qkv_back), OP(EK_BLOCK_NORM, "attention_norm", EK_WITH_RESIDUAL), LAST};

/* In eager PyTorch products have their biases; the residual of a norm is a kernel of its own. */
static const struct ek_block_step reordered_eager[] = {
	STEP(qkv_eager), OP(EK_BLOCK_ROPE, "rope", 0), STEP(attention_out_eager), OP(EK_BLOCK_NORM, "attention_norm", EK_WITH_RESIDUAL_AFTER),
	STEP(up_eager), OP(EK_BLOCK_GLU, "activation", 0), STEP(down_eager), OP(EK_BLOCK_NORM, "ffn_norm", EK_WITH_RESIDUAL_AFTER), LAST};

static const struct ek_block_step pre_norm_eager[] = {
	OP(EK_BLOCK_NORM, "attention_norm", 0), STEP(qkv_eager), OP(EK_BLOCK_ROPE, "rope", 0), STEP(attention_out_eager),
	OP(EK_BLOCK_NORM, "ffn_norm", EK_WITH_RESIDUAL), STEP(up_eager), OP(EK_BLOCK_GLU, "activation", 0), STEP(down_add), LAST};

static const struct ek_block_step reordered_eager_back[] = {
	OP(EK_BLOCK_NORM, "ffn_norm", EK_WITH_RESIDUAL_AFTER), STEP(down_bias_back), OP(EK_BLOCK_GLU, "activation", 0), STEP(up_back_eager),
	STEP(residual_back), OP(EK_BLOCK_NORM, "attention_norm", EK_WITH_RESIDUAL_AFTER), STEP(attention_back_eager),
	OP(EK_BLOCK_ROPE, "rope", 0), STEP(qkv_back_eager), STEP(residual_back), LAST};

static const struct ek_block_step pre_norm_eager_back[] = {
	STEP(down_bias_back), OP(EK_BLOCK_GLU, "activation", 0), STEP(up_back_eager), OP(EK_BLOCK_NORM, "ffn_norm", EK_WITH_RESIDUAL),
	STEP(attention_back_eager), OP(EK_BLOCK_ROPE, "rope", 0), STEP(qkv_back_eager), OP(EK_BLOCK_NORM, "attention_norm", EK_WITH_RESIDUAL),
	LAST};

static const struct ek_block_step compiled[] = {STEP(compiled_reordered), LAST}, compiled_back[] = {STEP(compiled_reordered_back), LAST},
			 compiled_pre[] = {STEP(compiled_pre_norm), LAST},
			 compiled_pre_back[] = {STEP(compiled_pre_norm_back), LAST};

/* clang-format on */

const struct ek_block_step *ek_block_steps(ek_variant variant, ek_block_order order, ek_pass pass)
{
	static const struct ek_block_step *const steps[][2][2] = {
		[EK_PYTORCH] = {{reordered_eager, reordered_eager_back},
				{pre_norm_eager, pre_norm_eager_back}},
		[EK_EVENKEEL] = {{reordered, reordered_back}, {pre_norm, pre_norm_back}},
		[EK_COMPILED] = {{compiled, compiled_back}, {compiled_pre, compiled_pre_back}}};
	return steps[variant][order - 1][pass - 1];
}
