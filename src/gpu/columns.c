/* Plans and recipes of the kernels that fold column sums; columns.h says what. SPDX-License-Identifier: MIT */
#include "columns.h"

#include <string.h>

#include "core/dtype.h"
#include "core/sizes.h"
#include "ops/registry.h"
#include "text.h"

/* Compared as bytes: no padding. */
struct columns_key {
	uint8_t owner; /* EK_KEY_COLUMNS */
	uint8_t kind;  /* KIND_FOLD or KIND_FINAL */
	uint8_t dtype, gradient_dtype, bytes, sums;
	uint8_t unused[2];
	uint32_t cols, groups;
};

static void write_recipe(const struct ek_kernel_key *packed, struct ek_recipe *recipe)
{
	struct columns_key key;
	memcpy(&key, packed, sizeof key);
	*recipe = (struct ek_recipe){.shared_bytes = 0};
	const char *const texts[] = {ek_text_words, ek_text_division, ek_text_elements,
				     ek_text_columns_layout, ek_text_columns};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ek_recipe_add_text(recipe, texts[i]);
	ek_recipe_name(recipe, "ek_columns_%s_%s_%lld", key.kind == KIND_FOLD ? "fold" : "final",
		       ek_dtype_name((ek_dtype)key.dtype), (long long)key.cols * key.groups);
	ek_recipe_define(recipe, "KIND", key.kind);
	ek_recipe_define(recipe, "ELEMENT", key.dtype);
	ek_recipe_define(recipe, "WEIGHT_ELEMENT", key.gradient_dtype);
	ek_recipe_define(recipe, "BYTES", key.bytes);
	ek_recipe_define(recipe, "COLS", (int)key.cols);
	ek_recipe_define(recipe, "ROW_GROUPS", (int)key.groups);
	ek_recipe_define(recipe, "SUMS", key.sums);
}

static struct ek_kernel_key key_of(const struct ek_columns *columns, int kind, bool bytes)
{
	const struct columns_key key = {.owner = EK_KEY_COLUMNS,
					.kind = (uint8_t)kind,
					.dtype = (uint8_t)columns->dtype,
					.gradient_dtype = (uint8_t)columns->gradient_dtype,
					.bytes = bytes,
					.sums = (uint8_t)columns->sums,
					.cols = (uint32_t)columns->cols,
					.groups = (uint32_t)columns->groups};
	struct ek_kernel_key packed = {{0}};
	memcpy(&packed, &key, sizeof key);
	return packed;
}

size_t ek_partial_bytes(const struct ek_columns *columns)
{
	int64_t real = (int64_t)ek_bytes_of_dtype(columns->dtype);
	return (size_t)(columns->sums * columns->groups * GROUP_PITCH_OF(columns->cols, real) * real);
}

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

size_t ek_partials_bytes(const struct ek_columns *columns, int64_t partials)
{
	int64_t folded = partials > FOLD_TOGETHER ? quotient_up(partials, FOLD_TOGETHER) : 0;
	size_t bytes = ek_partial_bytes(columns);
	return aligned((size_t)partials * bytes) + aligned((size_t)folded * bytes);
}

/* One step of the tree over the partial sums. */
static void add_fold(struct ek_plan *plan, const struct ek_columns *columns, const struct ek_kernel_key *key,
		     struct columns_arguments c)
{
	int real = (int)ek_bytes_of_dtype(columns->dtype);
	for (c.each = 1; c.each * COLUMN_WARPS < c.count && c.each * COLUMN_WARPS < FOLD_TOGETHER;)
		c.each *= 2;
	int64_t folds = c.count > FOLD_TOGETHER ? quotient_up(c.count, FOLD_TOGETHER) : 1;
	int taken = c.count <= FOLD_BY_THREAD ? 32 * COLUMN_WARPS : 32; /* columns of a block */
	struct ek_launch launch = {.blocks = quotient_up((int64_t)ek_partial_bytes(columns) / real, taken) *
					     folds,
				   .threads = 32 * COLUMN_WARPS,
				   .cluster = 1,
				   .shared_bytes = COLUMN_WARPS * 33 * real};
	(void)ek_plan_add(plan, write_recipe, key, launch, &c, sizeof c);
}

void ek_plan_add_folds(struct ek_plan *plan, const struct ek_columns *columns, void *partials, int64_t count,
		       void *const gradients[MOST_SUMS], bool accumulate, bool bytes, bool any_rows,
		       int64_t folded[EK_MOST_FOLDS + 1])
{
	const struct ek_kernel_key fold = key_of(columns, KIND_FOLD, bytes),
				   final = key_of(columns, KIND_FINAL, bytes);
	char *from = partials, *to = from ? from + aligned((size_t)count * ek_partial_bytes(columns)) : NULL;
	struct columns_arguments last = {.accumulate = accumulate};
	if (folded)
		folded[0] = count;
	for (int i = 1; count > FOLD_TOGETHER; i++) {
		add_fold(plan, columns, &fold,
			 (struct columns_arguments){.partials = from, .folded = to, .count = count});
		char *result = to;
		to = from;
		from = result;
		count = quotient_up(count, FOLD_TOGETHER);
		if (folded)
			folded[i] = count;
	}
	if (any_rows)
		(void)ek_plan_add(plan, write_recipe, &fold, (struct ek_launch){.blocks = 0}, NULL, 0);
	for (int i = 0; i < columns->sums; i++)
		last.gradients[i] = gradients[i];
	last.partials = from;
	last.count = count;
	add_fold(plan, columns, &final, last);
}
