/* Keys of the norm kernels, and their recipes: texts, constants, names. Called by norm.c, and by kernel.c when a
 * kernel is not in memory. SPDX-License-Identifier: MIT */
#include "norm_recipe.h"

#include <stdarg.h>
#include <stdio.h>

#include "text.h"

/* ---- keys: bit fields, lowest first ---- */

enum { COLS_BITS = 25, PART_BITS = 3, DTYPE_BITS = 2, ACCESS_BITS = 2, VARIANT_BITS = 10 };

struct packer {
	uint64_t bits;
	int at;
};

static void put(struct packer *p, uint64_t value, int bits)
{
	p->bits |= value << p->at;
	p->at += bits;
}

static uint64_t take(struct packer *p, int bits)
{
	uint64_t value = p->bits >> p->at & ((UINT64_C(1) << bits) - 1);
	p->at += bits;
	return value;
}

uint64_t ek_norm_key_pack(const struct ek_norm_key *key)
{
	struct packer p = {0, 0};
	put(&p, (uint64_t)key->cols, COLS_BITS);
	put(&p, (uint64_t)key->part, PART_BITS);
	put(&p, (uint64_t)key->dtype - 1, DTYPE_BITS);
	put(&p, (uint64_t)key->weight_dtype - 1, DTYPE_BITS);
	put(&p, (uint64_t)key->access, ACCESS_BITS);
	put(&p, key->norm == EK_LAYER_NORM, 1);
	put(&p, key->weight, 1);
	put(&p, key->bias, 1);
	put(&p, key->given, 1);
	put(&p, key->dx, 1);
	put(&p, key->dweight, 1);
	put(&p, key->dbias, 1);
	put(&p, key->weight_elements, 1);
	put(&p, key->bytes, 1);
	put(&p, key->few, 1);
	put(&p, ek_policy_tried ? ek_policy_tried->variant : 0, VARIANT_BITS);
	return p.bits;
}

static struct ek_norm_key unpack(uint64_t bits)
{
	struct packer p = {bits, 0};
	struct ek_norm_key key;
	key.cols = (int64_t)take(&p, COLS_BITS);
	key.part = (enum ek_norm_part)take(&p, PART_BITS);
	key.dtype = (ek_dtype)(take(&p, DTYPE_BITS) + 1);
	key.weight_dtype = (ek_dtype)(take(&p, DTYPE_BITS) + 1);
	key.access = (enum ek_access)take(&p, ACCESS_BITS);
	key.norm = take(&p, 1) ? EK_LAYER_NORM : EK_RMS_NORM;
	key.weight = take(&p, 1);
	key.bias = take(&p, 1);
	key.given = take(&p, 1);
	key.dx = take(&p, 1);
	key.dweight = take(&p, 1);
	key.dbias = take(&p, 1);
	key.weight_elements = take(&p, 1);
	key.bytes = take(&p, 1);
	key.few = take(&p, 1);
	return key;
}

/* ---- recipes ---- */

/* After what all have in common. */
static const char *const kernel_texts[][2] = {
	[EK_PART_FORWARD] = {ek_text_norm_forward},
	[EK_PART_BACKWARD] = {ek_text_norm_slots, ek_text_norm_backward},
	[EK_PART_WIDE_FORWARD] = {ek_text_norm_wide},
	[EK_PART_WIDE_ROWS] = {ek_text_norm_wide},
	[EK_PART_WIDE_COLUMNS] = {ek_text_norm_wide},
	[EK_PART_FOLD] = {ek_text_norm_columns},
	[EK_PART_FINAL] = {ek_text_norm_columns},
};

static const char *const part_names[] = {
	[EK_PART_FORWARD] = "forward",
	[EK_PART_BACKWARD] = "backward",
	[EK_PART_WIDE_FORWARD] = "forward_wide",
	[EK_PART_WIDE_ROWS] = "backward_wide_rows",
	[EK_PART_WIDE_COLUMNS] = "backward_wide_columns",
	[EK_PART_FOLD] = "backward_fold",
	[EK_PART_FINAL] = "backward_final",
};

__attribute__((format(printf, 2, 3))) static void option(struct ek_recipe *recipe, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	(void)vsnprintf(recipe->options[recipe->option_count++], sizeof recipe->options[0], format, values);
	va_end(values);
}

static void define(struct ek_recipe *recipe, const char *name, int value)
{
	option(recipe, "-D%s=%d", name, value);
}

static void define_policy(struct ek_recipe *recipe, const struct ek_policy *p, int64_t units)
{
	define(recipe, "ROW_WARPS", p->row_warps);
	define(recipe, "ROW_BLOCKS", p->row_blocks);
	define(recipe, "WARP_SEGMENTS", p->warp_segments);
	define(recipe, "BLOCK_ROWS", p->block_rows);
	define(recipe, "ROW_THREADS", p->row_threads);
	define(recipe, "ROWS_AT_ONCE", p->rows_at_once);
	define(recipe, "BLOCKS", p->blocks);
	define(recipe, "BOUND_THREADS", ek_policy_bound(p));
	define(recipe, "WIDE_UNITS", (int)units);
}

static void define_backward(struct ek_recipe *recipe, const struct ek_norm_key *key,
			    const struct ek_policy *p)
{
	define(recipe, "GIVEN", key->given);
	define(recipe, "WANT_DX", key->dx);
	define(recipe, "WANT_DWEIGHT", key->dweight);
	define(recipe, "WANT_DBIAS", key->dbias);
	define(recipe, "STAGES", p->stages);
	define(recipe, "KEEP", p->keep && key->given); /* statistics computed anew take registers, too */
	define(recipe, "KEEP_WEIGHT", p->keep_weight);
	define(recipe, "FOLD_BLOCKS", p->fold_blocks);
}

static bool is_forward(enum ek_norm_part part)
{
	return part == EK_PART_FORWARD || part == EK_PART_WIDE_FORWARD;
}

static bool is_wide(enum ek_norm_part part)
{
	return part == EK_PART_WIDE_FORWARD || part == EK_PART_WIDE_ROWS || part == EK_PART_WIDE_COLUMNS;
}

struct ek_policy ek_norm_policy(const struct ek_norm_key *key, struct ek_gpu_limits limits)
{
	if (is_wide(key->part))
		return ek_wide_policy(key->dtype, key->cols, is_forward(key->part), limits);
	if (!is_forward(key->part))
		return ek_backward_policy(key->dtype, key->cols, key->access, limits);
	struct ek_policy policy;
	if (!key->few || !ek_forward_few_policy(key->dtype, key->cols, key->access, &policy))
		policy = ek_forward_policy(key->dtype, key->cols, key->access, limits);
	if (key->weight_dtype != key->dtype)
		ek_policy_add_registers(&policy, 16);
	if (key->access == EK_ACCESS_ELEMENTS)
		ek_policy_add_registers(&policy, 16);
	bool ends_inside = key->cols * (int64_t)ek_dtype_size(key->dtype) % 16 != 0; /* a quad */
	if (key->access == EK_ACCESS_QUADS && ends_inside && policy.warp_segments > 1)
		ek_policy_add_registers(&policy, 16);
	return policy;
}

static struct ek_wide_form wide_form(const struct ek_norm_key *key)
{
	bool forward = key->part == EK_PART_WIDE_FORWARD, writes = !key->dweight && !key->dbias;
	return (struct ek_wide_form){.dtype = key->dtype,
				     .cols = key->cols,
				     .tensors = forward ? 1 : 2,
				     .again = forward || !key->given || writes};
}

int ek_norm_wide_shared(const struct ek_norm_key *key, const struct ek_policy *policy, int shared_limit)
{
	struct ek_wide_form form = wide_form(key);
	if (key->part == EK_PART_WIDE_COLUMNS)
		return ek_walk_shared(key->dtype);
	return ek_wide_shared(policy, &form, ek_wide_slots(policy, &form, shared_limit));
}

static void define_wide(struct ek_recipe *recipe, const struct ek_norm_key *key, const struct ek_policy *p,
			int shared_limit)
{
	struct ek_wide_form form = wide_form(key);
	define(recipe, "PART", (int)key->part - EK_PART_WIDE_FORWARD);
	define(recipe, "UNIT_SEGMENTS", p->unit_segments);
	define(recipe, "SLOTS", ek_wide_slots(p, &form, shared_limit));
	define(recipe, "WALK_WARPS", EK_WALK_WARPS);
	define(recipe, "WALK_AHEAD", EK_WALK_AHEAD);
	recipe->shared_bytes = ek_norm_wide_shared(key, p, shared_limit);
}

/* ELEMENT of kernels/norm_rows.cu. */
static int element_number(ek_dtype dtype)
{
	return (int)dtype - 1;
}

void ek_norm_write_recipe_for(uint64_t bits, struct ek_gpu_limits limits, struct ek_recipe *recipe)
{
	struct ek_norm_key key = unpack(bits);
	struct ek_policy p = ek_norm_policy(&key, limits);
	int64_t segments = (key.cols + 1023) / 1024;
	*recipe = (struct ek_recipe){.texts = {ek_text_words, ek_text_division, ek_text_norm_rows,
					       ek_text_norm_shift, ek_text_norm_sums,
					       kernel_texts[key.part][0], kernel_texts[key.part][1]}};
	(void)snprintf(recipe->name, sizeof recipe->name, "ek_%s_%s%s_%s_%d",
		       key.norm == EK_LAYER_NORM ? "layer_norm" : "rms_norm", part_names[key.part],
		       key.few ? "_few" : "", ek_dtype_name(key.dtype), (int)key.cols);
	option(recipe, "-DKERNEL_NAME=%s", recipe->name);
	define(recipe, "ELEMENT", element_number(key.dtype));
	define(recipe, "WEIGHT_ELEMENT", element_number(key.weight_dtype));
	define(recipe, "COLS", (int)key.cols);
	define(recipe, "CENTRED", key.norm == EK_LAYER_NORM);
	define(recipe, "ACCESS", (int)key.access);
	define(recipe, "WEIGHT_ACCESS", key.weight_elements);
	define(recipe, "BYTES", key.bytes);
	define(recipe, "HAS_WEIGHT", key.weight);
	define(recipe, "HAS_BIAS", key.bias);
	define_policy(recipe, &p, p.unit_segments ? (segments + p.unit_segments - 1) / p.unit_segments : 0);
	if (!is_forward(key.part))
		define_backward(recipe, &key, &p);
	recipe->large_cluster = ek_policy_cluster(&p) > 8;
	switch (key.part) {
	case EK_PART_FORWARD:
		recipe->shared_bytes = ek_forward_shared(&p, key.dtype, key.cols, key.access);
		break;
	case EK_PART_BACKWARD:
		recipe->shared_bytes = limits.shared_bytes; /* more rows may need more */
		break;
	case EK_PART_FOLD:
	case EK_PART_FINAL:
		define(recipe, "FINAL", key.part == EK_PART_FINAL);
		recipe->large_cluster = false;
		break;
	case EK_PART_WIDE_FORWARD:
	case EK_PART_WIDE_ROWS:
	case EK_PART_WIDE_COLUMNS:
		define_wide(recipe, &key, &p, limits.shared_bytes);
		break;
	default:
		break;
	}
}

void ek_norm_write_recipe(uint64_t key, const struct ek_gpu *gpu, struct ek_recipe *recipe)
{
	ek_norm_write_recipe_for(key, (struct ek_gpu_limits){gpu->arch, gpu->shared_limit}, recipe);
}
