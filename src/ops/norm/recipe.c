/* Recipes of the norm kernels: texts, constants, names. Called by kernel.c when a kernel is not in memory, and by warmup.
 * SPDX-License-Identifier: MIT */
#include "recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "gpu/text.h"
#include "kernels/text.h"
#include "op.h"

_Static_assert(sizeof(struct ek_norm_key) == 28 + sizeof(struct ek_norm_policy), "a key has padding");
_Static_assert(sizeof(struct ek_norm_key) <= sizeof(struct ek_kernel_key), "EK_KEY_WORDS is too small");

struct ek_kernel_key ek_norm_pack_key(const struct ek_norm_key *key)
{
	struct ek_kernel_key packed = {{0}};
	memcpy(&packed, key, sizeof *key);
	return packed;
}

/* ---- kinds of kernels ---- */

static const struct kind {
	const char *name;
	const char *texts[2]; /* after what all have in common */
	bool forward;
} kinds[] = {
	[KIND_FORWARD] = {"forward", {ek_text_norm_forward}, true},
	[KIND_BACKWARD] = {"backward", {ek_text_norm_slots, ek_text_norm_backward}, false},
	[KIND_STAGED_FORWARD] = {"forward_staged", {ek_text_norm_staged}, true},
	[KIND_STAGED_ROWS] = {"backward_staged_rows", {ek_text_norm_staged}, false},
	[KIND_STAGED_COLUMNS] = {"backward_staged_columns", {ek_text_norm_staged}, false},
};

static void add_texts(struct ek_recipe *recipe, const struct kind *kind, bool activation)
{
	const char *const math[] = {ek_text_math_constants, ek_text_math_words, ek_text_math};
	const char *const common[] = {ek_text_division,       ek_text_order,          ek_text_elements,
				      ek_text_columns_layout, ek_text_norm_layout,    ek_text_norm_rows,
				      ek_text_norm_shift,     ek_text_norm_strips,    ek_text_folds,
				      ek_text_norm_sums,      ek_text_norm_activation};
	ek_recipe_add_text(recipe, ek_text_words);
	for (size_t i = 0; activation && i < sizeof math / sizeof *math; i++)
		ek_recipe_add_text(recipe, math[i]);
	for (size_t i = 0; i < sizeof common / sizeof *common; i++)
		ek_recipe_add_text(recipe, common[i]);
	for (int i = 0; i < 2 && kind->texts[i]; i++)
		ek_recipe_add_text(recipe, kind->texts[i]);
}

/* HAS_WEIGHT and its like. */
static void define_operands(struct ek_recipe *recipe, const struct ek_op *op, uint32_t present)
{
	for (int i = 0; i < op->operand_count; i++) {
		char name[48] = "HAS_";
		const char *from = op->operands[i].name;
		if (!(op->operands[i].flags & EK_CONSTANT))
			continue;
		for (size_t at = 4; *from && at + 1 < sizeof name; at++)
			name[at] = (char)toupper((unsigned char)*from++);
		ek_recipe_define(recipe, name, present >> i & 1);
	}
}

static void define_policy(struct ek_recipe *recipe, const struct ek_norm_key *key)
{
	const struct ek_norm_policy *p = &key->policy;
	ek_recipe_define(recipe, "ROW_WARPS", p->row_warps);
	ek_recipe_define(recipe, "ROW_BLOCKS", p->row_blocks);
	ek_recipe_define(recipe, "WARP_SEGMENTS", p->warp_segments);
	ek_recipe_define(recipe, "BLOCK_ROWS", p->block_rows);
	ek_recipe_define(recipe, "ROW_THREADS", p->row_threads);
	ek_recipe_define(recipe, "ROWS_AT_ONCE", p->rows_at_once);
	ek_recipe_define(recipe, "BLOCKS", p->blocks);
	ek_recipe_define(recipe, "BOUND_THREADS", ek_policy_bound(p));
	ek_recipe_define(recipe, "STAGED_UNITS", ek_policy_units(p, key->cols));
	ek_recipe_define(recipe, "UNIT_SEGMENTS", p->unit_segments);
	ek_recipe_define(recipe, "TILES", p->tiles);
	ek_recipe_define(recipe, "STAGES", p->stages);
	ek_recipe_define(recipe, "KEEP", p->keep);
	ek_recipe_define(recipe, "KEEP_WEIGHT", p->keep_weight);
	ek_recipe_define(recipe, "FOLD_BLOCKS", p->fold_blocks);
}

/* Whether the argument structs have their fields. */
static bool has_neighbours(const struct ek_norm_key *key)
{
	const uint32_t forward = 1u << EK_FORWARD_X_BIAS | 1u << EK_FORWARD_RESIDUAL |
				 1u << EK_FORWARD_RESIDUAL_AFTER | 1u << EK_FORWARD_GATE,
		       backward = 1u << EK_BACKWARD_X_BIAS | 1u << EK_BACKWARD_DH |
				  1u << EK_BACKWARD_DRESIDUAL | 1u << EK_BACKWARD_BIAS |
				  1u << EK_BACKWARD_GATE;
	return key->operands & (kinds[key->kind].forward ? forward : backward);
}

/* Of dh and dresidual that of x as backward reads it, which is h. */
static int neighbour_dtype(const struct ek_norm_key *key)
{
	bool gate = key->operands >> EK_BACKWARD_GATE & 1;
	return kinds[key->kind].forward || gate ? key->dx_dtype : key->x_dtype;
}

static void define_form(struct ek_recipe *recipe, const struct ek_norm_key *key)
{
	ek_recipe_define(recipe, "KIND", key->kind);
	ek_recipe_define(recipe, "ELEMENT", key->dtype);
	ek_recipe_define(recipe, "WEIGHT_ELEMENT", key->weight_dtype);
	ek_recipe_define(recipe, "HAS_NEIGHBOURS", has_neighbours(key));
	ek_recipe_define(recipe, "X_ELEMENT", key->x_dtype);
	ek_recipe_define(recipe, "Y_ELEMENT", key->y_dtype);
	ek_recipe_define(recipe, "DX_ELEMENT", key->dx_dtype);
	ek_recipe_define(recipe, "NEIGHBOUR_ELEMENT", neighbour_dtype(key));
	ek_recipe_define(recipe, "WEIGHT_OFFSET", (key->flavour & FLAVOUR_WEIGHT_OFFSET) != 0);
	ek_recipe_define(recipe, "ROUND_EACH", (key->flavour & FLAVOUR_ROUND_EACH) != 0);
	ek_recipe_define(recipe, "ACTIVATION", ACTIVATION_OF(key->flavour));
	ek_recipe_define(recipe, "GATE_FIRST", GATE_FIRST_OF(key->flavour));
	if (ACTIVATION_OF(key->flavour))
		ek_recipe_define(recipe, "MATH_F64", key->dtype == EK_F64);
	ek_recipe_define(recipe, "COLS", (int)key->cols);
	ek_recipe_define(recipe, "ROW_GROUPS", (int)key->groups);
	ek_recipe_define(recipe, "CENTRED", key->norm == EK_LAYER_NORM);
	ek_recipe_define(recipe, "ACCESS", key->access);
	ek_recipe_define(recipe, "WEIGHT_ACCESS", key->weight_elements);
	ek_recipe_define(recipe, "BYTES", key->bytes);
}

static int shared_bytes(const struct ek_norm_key *key)
{
	const bool gate_first = GATE_FIRST_OF(key->flavour);
	const int backward_gate = key->operands >> EK_BACKWARD_GATE & 1;
	const struct ek_norm_form form = {.dtype = (ek_dtype)key->dtype,
					  .weight_dtype = (ek_dtype)key->weight_dtype,
					  .cols = key->cols,
					  .access = key->access,
					  .after = key->operands >> EK_FORWARD_RESIDUAL_AFTER & 1 ||
						   (key->operands >> EK_FORWARD_GATE & 1 && !gate_first),
					  .gate = key->operands >> EK_FORWARD_GATE & 1};
	switch (key->kind) {
	case KIND_FORWARD:
		return ek_forward_shared(&key->policy, &form);
	case KIND_STAGED_FORWARD:
		return ek_staged_shared(&key->policy, &form,
					1 + (key->operands >> EK_FORWARD_RESIDUAL & 1 || gate_first));
	case KIND_STAGED_ROWS:
		return ek_staged_shared(&key->policy, &form, 2 + backward_gate);
	case KIND_STAGED_COLUMNS:
		return ek_walk_shared(form.dtype, 2 + (key->operands >> EK_BACKWARD_DH & 1) + backward_gate);
	case KIND_BACKWARD:
		return EK_SHARED_MOST; /* more rows may need more */
	default:
		return 0;
	}
}

void ek_norm_write_recipe(const struct ek_kernel_key *packed, struct ek_recipe *recipe)
{
	struct ek_norm_key key;
	memcpy(&key, packed, sizeof key);
	const struct kind *kind = &kinds[key.kind];
	*recipe = (struct ek_recipe){.shared_bytes = shared_bytes(&key),
				     .large_cluster = ek_policy_cluster(&key.policy) > 8};
	add_texts(recipe, kind, ACTIVATION_OF(key.flavour) != 0);
	char groups[16] = "";
	if (key.groups > 1)
		(void)snprintf(groups, sizeof groups, "x%d", (int)key.groups);
	ek_recipe_name(recipe, "ek_%s_%s%s_%s_%d%s", key.norm == EK_LAYER_NORM ? "layer_norm" : "rms_norm",
		       kind->name, key.few ? "_few" : "", ek_dtype_name((ek_dtype)key.dtype), (int)key.cols,
		       groups);
	define_form(recipe, &key);
	define_operands(recipe, kind->forward ? &ek_norm_forward_op : &ek_norm_backward_op, key.operands);
	define_policy(recipe, &key);
}
