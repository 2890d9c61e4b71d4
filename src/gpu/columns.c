/* Plans and recipes of the kernels that fold column sums; columns.h says what. SPDX-License-Identifier: MIT */
#include "columns.h"

#include <stdio.h>
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
	uint8_t jobs;
	uint8_t unused;
	uint32_t cols, groups; /* cols: 0 of kernels for any number of columns */
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
	const char *kind = key.kind == KIND_FOLD ? "fold" : key.jobs == 2 ? "final_pair" : "final";
	char cols[24] = "any";
	if (key.cols)
		(void)snprintf(cols, sizeof cols, "%lld", (long long)key.cols * key.groups);
	ek_recipe_name(recipe, "ek_columns_%s_%s_%s", kind, ek_dtype_name((ek_dtype)key.dtype), cols);
	ek_recipe_define(recipe, "KIND", key.kind);
	ek_recipe_define(recipe, "ELEMENT", key.dtype);
	ek_recipe_define(recipe, "WEIGHT_ELEMENT", key.gradient_dtype);
	ek_recipe_define(recipe, "BYTES", key.bytes);
	ek_recipe_define(recipe, "COLS", (int)key.cols);
	ek_recipe_define(recipe, "ROW_GROUPS", (int)key.groups);
	ek_recipe_define(recipe, "SUMS", key.sums);
	ek_recipe_define(recipe, "JOBS", key.jobs);
}

/* any_cols: for any number of columns, and so many tensors. */
static struct ek_kernel_key key_of(const struct ek_columns *columns, int kind, bool bytes, bool any_cols,
				   int jobs)
{
	const struct columns_key key = {.owner = EK_KEY_COLUMNS,
					.kind = (uint8_t)kind,
					.dtype = (uint8_t)columns->dtype,
					.gradient_dtype = (uint8_t)columns->gradient_dtype,
					.bytes = bytes,
					.sums = (uint8_t)columns->sums,
					.jobs = (uint8_t)jobs,
					.cols = any_cols ? 0 : (uint32_t)columns->cols,
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

static void add_launch(struct ek_plan *plan, const struct ek_columns *columns,
		       const struct ek_kernel_key *key, const struct columns_arguments *c)
{
	int real = (int)ek_bytes_of_dtype(columns->dtype);
	struct ek_launch launch = {.blocks = c->jobs[0].blocks + c->jobs[1].blocks,
				   .threads = 32 * COLUMN_WARPS,
				   .cluster = 1,
				   .shared_bytes = COLUMN_WARPS * 33 * real};
	(void)ek_plan_add(plan, write_recipe, key, launch, c, sizeof *c);
}

/* Blocks of a job, and what a thread of them loads. */
static void cut(struct columns_job *job, const struct ek_columns *columns)
{
	int real = (int)ek_bytes_of_dtype(columns->dtype);
	for (job->each = 1;
	     job->each * COLUMN_WARPS < job->count && job->each * COLUMN_WARPS < FOLD_TOGETHER;)
		job->each *= 2;
	int64_t folds = job->count > FOLD_TOGETHER ? quotient_up(job->count, FOLD_TOGETHER) : 1;
	int taken = job->count <= FOLD_BY_THREAD ? 32 * COLUMN_WARPS : 32; /* columns of a block */
	job->blocks = quotient_up((int64_t)ek_partial_bytes(columns) / real, taken) * folds;
}

/* Adds the folds of `count` partial sums at `from` into no more than the last launch takes, which the job then has. */
static struct columns_job add_folds_before(struct ek_plan *plan, const struct ek_columns *columns,
					   const struct ek_kernel_key *key, void *partials, int64_t count,
					   int64_t folded[EK_MOST_FOLDS + 1])
{
	char *from = partials, *to = from ? from + aligned((size_t)count * ek_partial_bytes(columns)) : NULL;
	struct columns_job last = {.cols = columns->cols};
	if (folded)
		folded[0] = count;
	for (int i = 1; count > FOLD_TOGETHER; i++) {
		struct columns_arguments c = {
			.jobs = {{.partials = from, .folded = to, .count = count, .cols = columns->cols}}};
		cut(&c.jobs[0], columns);
		add_launch(plan, columns, key, &c);
		char *result = to;
		to = from;
		from = result;
		count = quotient_up(count, FOLD_TOGETHER);
		if (folded)
			folded[i] = count;
	}
	last.partials = from;
	last.count = count;
	cut(&last, columns);
	return last;
}

static void add_for_any_rows(struct ek_plan *plan, const struct ek_kernel_key *fold)
{
	(void)ek_plan_add(plan, write_recipe, fold, (struct ek_launch){.blocks = 0}, NULL, 0);
}

void ek_plan_add_folds(struct ek_plan *plan, const struct ek_columns *columns, void *partials, int64_t count,
		       void *const gradients[MOST_SUMS], bool accumulate, bool bytes, bool any_rows,
		       int64_t folded[EK_MOST_FOLDS + 1])
{
	const struct ek_kernel_key fold = key_of(columns, KIND_FOLD, bytes, false, 1),
				   final = key_of(columns, KIND_FINAL, bytes, false, 1);
	struct columns_arguments last = {.accumulate = accumulate};
	last.jobs[0] = add_folds_before(plan, columns, &fold, partials, count, folded);
	for (int i = 0; i < columns->sums; i++)
		last.jobs[0].gradients[i] = gradients[i];
	if (any_rows)
		add_for_any_rows(plan, &fold);
	add_launch(plan, columns, &final, &last);
}

void ek_plan_add_fold_pair(struct ek_plan *plan, ek_dtype dtype, ek_dtype gradient_dtype,
			   const struct ek_fold folds[2], int folds_count, bool accumulate, bool bytes,
			   bool any_rows)
{
	struct ek_columns columns = {
		.dtype = dtype, .gradient_dtype = gradient_dtype, .groups = 1, .sums = 1};
	const struct ek_kernel_key fold = key_of(&columns, KIND_FOLD, bytes, true, 1),
				   final = key_of(&columns, KIND_FINAL, bytes, true, folds_count);
	struct columns_arguments last = {.accumulate = accumulate};
	for (int i = 0; i < folds_count; i++) {
		columns.cols = folds[i].cols;
		last.jobs[i] =
			add_folds_before(plan, &columns, &fold, folds[i].partials, folds[i].count, NULL);
		last.jobs[i].gradients[0] = folds[i].gradient;
	}
	if (any_rows)
		add_for_any_rows(plan, &fold);
	add_launch(plan, &columns, &final, &last);
}
