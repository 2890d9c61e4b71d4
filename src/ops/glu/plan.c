/* From arguments to plans: which kernel, how it is launched, with what; and the kernels' recipes. plan.h says what. Called by
 * cuda.c and warmup. SPDX-License-Identifier: MIT */
#include "plan.h"

#include <ctype.h>

#include "core/dtype.h"
#include "core/sizes.h"
#include "core/slots.h"
#include "gpu/columns.h"
#include "gpu/text.h"
#include "kernels/layout.h"
#include "kernels/text.h"
#include "math/activations.h"
#include "ops/choices.h"
#include "ops/registry.h"

/* ---- a kernel ---- */

/* Compared as bytes: no padding. */
struct glu_key {
	uint8_t owner; /* EK_KEY_GLU */
	uint8_t kind;  /* KIND_GLU_… of kernels/layout.h */
	uint8_t dtype, weight_dtype, activation;
	uint8_t access, bytes, bias_quads, pairs, limited;
	uint8_t whole, one_row, few;
	uint8_t unused[3];
	uint32_t operands; /* the EK_CONSTANT operands that are there, a bit each by number */
};

_Static_assert(sizeof(struct glu_arguments) <= EK_MOST_ARGUMENTS, "a step has room for the arguments");

static int real_bytes(ek_dtype dtype)
{
	return (int)ek_bytes_of_dtype(ek_real_of(dtype));
}

/* HAS_VALUE and its like. */
static void define_operands(struct ek_recipe *recipe, const struct ek_op *op, uint32_t present)
{
	for (int i = 0; i < op->operand_count; i++) {
		char name[32] = "HAS_";
		const char *from = op->operands[i].name;
		if (!(op->operands[i].flags & EK_CONSTANT))
			continue;
		for (size_t at = 4; *from && at + 1 < sizeof name; at++)
			name[at] = (char)toupper((unsigned char)*from++);
		ek_recipe_define(recipe, name, present >> i & 1);
	}
}

/* Elements of 16 bytes. */
static int quad_of(ek_dtype dtype)
{
	return 16 / (int)ek_bytes_of_dtype(dtype);
}

static int unit_of(const struct glu_key *key)
{
	return key->access == ACCESS_QUADS ? quad_of((ek_dtype)key->dtype) : 1;
}

static int64_t strips_of(int64_t cols, int unit)
{
	return quotient_up(cols, (int64_t)32 * unit);
}

/* Whether a warp for each slot and strip leaves a quarter of an H200 idle, and more: narrow rows, and widths far from a power of two. */
static bool are_few(int64_t strips, int64_t cols)
{
	return strips * quotient_up(ek_slot_target(cols), SUM_WARPS) < 384;
}

/* Of the gradients of biases, those in turn of pairs counted twice. */
static int sums_of(const struct glu_key *key)
{
	return key->pairs ? 2
			  : (int)(key->operands >> EK_GLU_BACKWARD_DGATE_BIAS & 1) +
				    (int)(key->operands >> EK_GLU_BACKWARD_DVALUE_BIAS & 1);
}

/* How a kernel is cut. */
struct cut {
	int threads, blocks; /* of a block; that shall fit a multiprocessor */
	int units;           /* rows.cu: of a thread */
	int stages;          /* sums.cu: rows that a thread has on their way or in hand */
};

/* Quads of a row that a thread of sums.cu fetches. Without an activation the gate is not read. */
static int pieces_of(const struct glu_key *key)
{
	bool value = key->pairs || key->operands >> EK_GLU_BACKWARD_VALUE & 1;
	return key->activation == EK_IDENTITY && !value && !key->limited ? 1 : 2 + value;
}

/* Slots (rule 6) are so many that an H200 has 512 blocks of common shapes: four a multiprocessor are one wave, three would be 1.3 of
 * them; where they are few, the other way round. Wide biases, limits and GELU of 16 bits take more than the 64 registers of four blocks. */
static struct cut cut_of_sums(const struct glu_key *key)
{
	bool wide = key->weight_dtype != key->dtype || key->limited ||
		    (ek_bytes_of_dtype((ek_dtype)key->dtype) == 2 && key->activation == EK_GELU);
	/* 8192x8192 with biases: two stages .92; three .88, and the ring takes the L1 that the biases want. */
	return (struct cut){.threads = 32 * SUM_WARPS,
			    .blocks = key->dtype == EK_F64 ? 2
				      : wide || key->few   ? 3
							   : 4,
			    .stages = pieces_of(key) == 1 ? 4 : 2};
}

/* 16 bytes of each tensor that is read, 32 where forward reads one, and many warps: 40 registers forward, where the activation leaves it at
 * that. SwiGLU 4096x4096: forward 1.07 of the copy, two units of 256 threads 1.03; with biases 1.02 and .95. */
static struct cut cut_of_rows(const struct glu_key *key)
{
	bool forward = key->kind == KIND_GLU_FORWARD;
	uint32_t value = 1u << (forward ? (int)EK_GLU_FORWARD_VALUE : (int)EK_GLU_BACKWARD_VALUE);
	bool one = forward && !key->pairs && !(key->operands & value);
	bool short_of = key->limited || key->weight_dtype != key->dtype || key->activation == EK_GELU;
	return (struct cut){.threads = 128,
			    .blocks = key->dtype == EK_F64   ? 4
				      : forward && !short_of ? 12
							     : 8,
			    .units = key->access == ACCESS_QUADS ? (one ? 2 : 1) : 4};
}

static struct cut cut_of(const struct glu_key *key)
{
	return key->kind == KIND_GLU_SUMS ? cut_of_sums(key) : cut_of_rows(key);
}

/* Of sums.cu: the board, and the rows that are on their way. */
static int sums_shared(const struct glu_key *key)
{
	const struct cut cut = cut_of_sums(key);
	int ring = key->access == ACCESS_QUADS ? cut.stages * pieces_of(key) * cut.threads * 16 : 0;
	return sums_of(key) * unit_of(key) * cut.threads * real_bytes((ek_dtype)key->dtype) + ring;
}

#define NAME_ROW(number, name) [number] = #name,
static const char *const activation_names[] = {EK_GLU_ACTIVATIONS(NAME_ROW)};

static void write_recipe(const struct ek_kernel_key *packed, struct ek_recipe *recipe)
{
	static const char *const kinds[] = {[KIND_GLU_FORWARD] = "forward",
					    [KIND_GLU_BACKWARD] = "backward",
					    [KIND_GLU_SUMS] = "backward_sums"};
	struct glu_key key;
	memcpy(&key, packed, sizeof key);
	const struct cut cut = cut_of(&key);
	const char *const texts[] = {
		ek_text_words,        ek_text_math_constants,
		ek_text_math_words,   ek_text_math,
		ek_text_division,     ek_text_order,
		ek_text_elements,     ek_text_glu_layout,
		ek_text_glu_elements, key.kind == KIND_GLU_SUMS ? ek_text_glu_sums : ek_text_glu_rows};
	*recipe = (struct ek_recipe){.shared_bytes = key.kind == KIND_GLU_SUMS ? sums_shared(&key) : 0};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ek_recipe_add_text(recipe, texts[i]);
	ek_recipe_name(recipe, "ek_glu_%s_%s_%s", kinds[key.kind], activation_names[key.activation],
		       ek_dtype_name((ek_dtype)key.dtype));
	ek_recipe_define(recipe, "KIND", key.kind);
	ek_recipe_define(recipe, "ELEMENT", key.dtype);
	ek_recipe_define(recipe, "WEIGHT_ELEMENT", key.weight_dtype);
	ek_recipe_define(recipe, "MATH_F64", key.dtype == EK_F64);
	ek_recipe_define(recipe, "ACTIVATION", key.activation);
	ek_recipe_define(recipe, "ACCESS", key.access);
	ek_recipe_define(recipe, "BYTES", key.bytes);
	ek_recipe_define(recipe, "BIAS_QUADS", key.bias_quads);
	ek_recipe_define(recipe, "PAIRS", key.pairs);
	ek_recipe_define(recipe, "LIMITED", key.limited);
	ek_recipe_define(recipe, "WHOLE", key.whole);
	ek_recipe_define(recipe, "ONE_ROW", key.one_row);
	ek_recipe_define(recipe, "THREADS", cut.threads);
	ek_recipe_define(recipe, "BLOCKS", cut.blocks);
	ek_recipe_define(recipe, "UNITS", cut.units);
	ek_recipe_define(recipe, "STAGES", cut.stages);
	define_operands(recipe, key.kind == KIND_GLU_FORWARD ? &ek_glu_forward_op : &ek_glu_backward_op,
			key.operands);
}

static struct ek_kernel_key pack_key(const struct glu_key *key)
{
	_Static_assert(sizeof *key == 20 && sizeof *key <= sizeof(struct ek_kernel_key), "a key has padding");
	struct ek_kernel_key packed = {{0}};
	memcpy(&packed, key, sizeof *key);
	return packed;
}

/* Whether no row is apart from the next and no column differs from another. */
static bool is_dense(const struct ek_op *op, const void *args)
{
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		if (!ek_operand_pointer(operand, args))
			continue;
		if (operand->rank == 1 ||
		    ek_operand_stride(op, operand, 0, args) != ek_dim_of(op, &operand->dims[1], args))
			return false;
	}
	return true;
}

/* The lowest bits of all addresses and strides tell the access; strides of dense tensors do not count. */
static struct glu_key key_of(const struct ek_op *op, const void *args, int kind, int64_t cols, bool limited)
{
	const bool dense = is_dense(op, args);
	uintptr_t matrices = 0, biases = 0;
	struct glu_key key = {.owner = EK_KEY_GLU,
			      .kind = (uint8_t)kind,
			      .dtype = (uint8_t) * (const ek_dtype *)ek_field(args, op->dtype),
			      .weight_dtype = (uint8_t)ek_choice_of(op, EK_CHOICE_WEIGHT_DTYPE + 1, args),
			      .activation = (uint8_t)ek_choice_of(op, EK_CHOICE_ACTIVATION + 1, args),
			      .pairs = (uint8_t)ek_choice_of(op, EK_CHOICE_INTERLEAVED + 1, args),
			      .limited = limited};
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		size_t element = ek_bytes_of_dtype(ek_operand_dtype(op, operand, args));
		uintptr_t bits = (uintptr_t)ek_operand_pointer(operand, args);
		if (!bits && operand->flags & EK_OPTIONAL)
			continue;
		if (operand->flags & EK_CONSTANT)
			key.operands |= 1u << i;
		if (operand->rank > 1 && !dense)
			bits |= (uintptr_t)ek_operand_stride(op, operand, 0, args) * element;
		key.bytes |= bits % element != 0;
		*(operand->rank > 1 ? &matrices : &biases) |=
			operand->flags & EK_OUTPUT && operand->rank == 1 ? 0 : bits;
	}
	key.access = matrices % 16 ? ACCESS_ELEMENTS : ACCESS_QUADS;
	key.bias_quads = biases % 16 == 0;
	key.one_row = dense && kind != KIND_GLU_SUMS;
	key.whole = cols % unit_of(&key) == 0;
	key.few = kind == KIND_GLU_SUMS && are_few(strips_of(cols, unit_of(&key)), cols);
	return key;
}

/* ---- arguments ---- */

/* Units that a launch counts in 32 bits, and of a row of dense tensors: a multiple of every unit. */
enum { MOST_UNITS = 0x7fffffff, DENSE_COLS = 1 << 30 };

/* The division of a unit's number by `units`, by a multiplication. */
static void set_units(struct glu_arguments *a, int unit)
{
	unsigned shift = 0;
	a->units = (unsigned)quotient_up(a->cols, unit);
	while ((uint64_t)1 << shift < a->units)
		shift++;
	/* 2^(31 + shift) / units, rounded up: below 2^32, and exact for units below 2^31 */
	a->magic = (unsigned)((((uint64_t)1 << (31 + shift)) + a->units - 1) / a->units);
	a->shift = 31 + shift;
	a->launch_rows = (unsigned)(MOST_UNITS / a->units);
}

static void advance(void *arguments, int64_t rows, int64_t unused)
{
	struct glu_arguments *a = arguments;
	(void)unused;
	a->gate += rows * a->gate_stride;
	a->value += a->value ? rows * a->value_stride : 0;
	a->dy += a->dy ? rows * a->dy_stride : 0;
	a->y += a->y ? rows * a->y_stride : 0;
	a->dgate += a->dgate ? rows * a->dgate_stride : 0;
	a->dvalue += a->dvalue ? rows * a->dvalue_stride : 0;
	a->rows -= rows;
}

/* The step of rows.cu; UNITS is its own. */
static void add_rows(struct ek_plan *plan, const struct glu_key *key, struct glu_arguments a)
{
	const struct cut cut = cut_of(key);
	set_units(&a, unit_of(key));
	a.launch_rows = key->one_row ? 1 : a.launch_rows;
	int64_t block_units = (int64_t)cut.threads * cut.units, launch_rows = a.launch_rows,
		full = a.rows / launch_rows, rest = a.rows % launch_rows,
		launch_blocks = quotient_up(launch_rows * a.units, block_units);
	struct ek_kernel_key packed = pack_key(key);
	struct ek_launch launch = {.blocks = full * launch_blocks + quotient_up(rest * a.units, block_units),
				   .threads = cut.threads,
				   .cluster = 1};
	struct ek_step *step = ek_plan_add(plan, write_recipe, &packed, launch, &a, sizeof a);
	step->advance = advance;
	step->launch_blocks = launch_blocks;
	step->launch_rows = launch_rows;
	step->statistic_bytes = 0;
}

/* Dense tensors without biases are long rows, so that those of any width are read in quads: as many of DENSE_COLS columns as
 * there are, and one of the rest. */
static void add_dense(struct ek_plan *plan, const struct glu_key *key, struct glu_arguments a)
{
	const int64_t bytes = (int64_t)ek_bytes_of_dtype((ek_dtype)key->dtype) * DENSE_COLS,
		      all = a.rows * a.cols;
	a.gate_stride = a.dgate_stride = key->pairs ? 2 * bytes : bytes;
	a.value_stride = a.dy_stride = a.y_stride = a.dvalue_stride = bytes;
	a.cols = DENSE_COLS;
	a.rows = all / DENSE_COLS;
	if (a.rows > 0)
		add_rows(plan, key, a);
	advance(&a, a.rows, 0);
	a.cols = all % DENSE_COLS;
	a.rows = 1;
	if (a.cols > 0 || plan->count == 0) { /* without rows a kernel is made and not launched */
		a.rows = a.cols > 0;
		a.cols = larger(1, a.cols);
		add_rows(plan, key, a);
	}
}

static void set_numbers(struct glu_arguments *to, const struct ek_glu_numbers *n)
{
	to->limit = n->limit;
	to->value_limit = n->value_limit;
	to->alpha = n->alpha;
	to->inverse = n->inverse;
	to->value_offset = n->value_offset;
}

static void start_plan(struct ek_plan *plan)
{
	plan->count = 0;
	plan->workspace_bytes = 0;
}

/* ---- forward ---- */

void ek_glu_plan_forward(const ek_glu_forward_args *args, struct ek_plan *plan)
{
	const ek_glu_forward_args *a = args;
	const int64_t bytes = (int64_t)ek_bytes_of_dtype(a->dtype);
	const bool limited = ek_glu_is_limited(a->limit, a->alpha, a->value_offset);
	const struct ek_glu_numbers numbers =
		ek_glu_numbers_of(a->dtype, a->value || a->interleaved, a->limit, a->alpha, a->value_offset);
	struct glu_arguments arguments = {.gate = a->gate,
					  .value = a->value,
					  .gate_bias = a->gate_bias,
					  .value_bias = a->value_bias,
					  .y = a->y,
					  .gate_stride = a->gate_stride * bytes,
					  .value_stride = a->value_stride * bytes,
					  .y_stride = a->y_stride * bytes,
					  .cols = a->cols,
					  .rows = a->rows};
	set_numbers(&arguments, &numbers);
	const struct glu_key key = key_of(&ek_glu_forward_op, args, KIND_GLU_FORWARD, a->cols, limited);
	start_plan(plan);
	(is_dense(&ek_glu_forward_op, args) ? add_dense : add_rows)(plan, &key, arguments);
}

/* ---- backward ---- */

static struct ek_columns columns_of(const ek_glu_backward_args *a)
{
	return (struct ek_columns){.dtype = ek_real_of(a->dtype),
				   .gradient_dtype = a->gradient_dtype,
				   .cols = a->interleaved ? 2 * a->cols : a->cols,
				   .groups = 1,
				   .sums = (a->dgate_bias != NULL) + (a->dvalue_bias != NULL)};
}

/* Warps that share a slot, a chunk each: as many as chunks, where that leaves no more than a quarter of them without one. */
static int64_t parts_of(int64_t rows, int64_t cols, int unit)
{
	const int64_t chunks = quotient_up(ek_slot_rows(rows, cols), CHUNK_ROWS);
	int64_t parts = 1;
	while (parts < chunks)
		parts *= 2;
	return are_few(strips_of(cols, unit), cols) && parts <= SUM_WARPS && 4 * chunks >= 3 * parts ? parts
												     : 1;
}

static int64_t partials_of(int64_t rows, int64_t cols, int64_t parts)
{
	return quotient_up(ek_slot_count(rows, cols) * parts, SUM_WARPS);
}

int64_t ek_glu_partials(ek_dtype dtype, int64_t rows, int64_t cols)
{
	return partials_of(rows, cols, parts_of(rows, cols, quad_of(dtype)));
}

size_t ek_glu_plan_workspace(const ek_glu_backward_args *args)
{
	const struct ek_columns columns = columns_of(args);
	if (columns.sums == 0)
		return 0;
	int64_t slots = larger(1, ek_most_slots(args->rows, args->cols));
	bool few = are_few(strips_of(args->cols, quad_of(args->dtype)), args->cols);
	return ek_partials_bytes(&columns, few ? slots : quotient_up(slots, SUM_WARPS));
}

/* Slots whose sums have partial sums, and their folds. */
static void add_sums(struct ek_plan *plan, struct glu_key key, struct glu_arguments *a,
		     const ek_glu_backward_args *args, bool any_rows)
{
	const struct ek_columns columns = columns_of(args);
	struct ek_columns one = columns;
	void *const gradients[MOST_SUMS] = {args->dgate_bias ? args->dgate_bias : args->dvalue_bias,
					    args->dgate_bias ? args->dvalue_bias : NULL};
	one.sums = 1;
	set_units(a, unit_of(&key));
	a->slot_rows = ek_slot_rows(args->rows, args->cols);
	a->slot_parts = (unsigned)parts_of(args->rows, args->cols, unit_of(&key));
	const int64_t partials = partials_of(args->rows, args->cols, a->slot_parts);
	a->partials = args->workspace;
	a->pitch = (int64_t)ek_partial_bytes(&one) / real_bytes(args->dtype);
	struct ek_kernel_key packed = pack_key(&key);
	struct ek_launch launch = {.blocks = strips_of(args->cols, unit_of(&key)) * partials,
				   .threads = cut_of(&key).threads,
				   .cluster = 1,
				   .shared_bytes = sums_shared(&key)};
	(void)ek_plan_add(plan, write_recipe, &packed, launch, a, sizeof *a);
	ek_plan_add_folds(plan, &columns, args->workspace, partials, gradients, args->accumulate, key.bytes,
			  any_rows, NULL);
}

void ek_glu_plan_backward(const ek_glu_backward_args *args, bool any_rows, struct ek_plan *plan)
{
	const ek_glu_backward_args *a = args;
	const int64_t bytes = (int64_t)ek_bytes_of_dtype(a->dtype);
	const bool limited = ek_glu_is_limited(a->limit, a->alpha, a->value_offset);
	const struct ek_glu_numbers numbers =
		ek_glu_numbers_of(a->dtype, a->value || a->interleaved, a->limit, a->alpha, a->value_offset);
	const bool sums = a->dgate_bias || a->dvalue_bias;
	struct glu_arguments arguments = {.gate = a->gate,
					  .value = a->value,
					  .gate_bias = a->gate_bias,
					  .value_bias = a->value_bias,
					  .dy = a->dy,
					  .dgate = a->dgate,
					  .dvalue = a->dvalue,
					  .gate_stride = a->gate_stride * bytes,
					  .value_stride = a->value_stride * bytes,
					  .dy_stride = a->dy_stride * bytes,
					  .dgate_stride = a->dgate_stride * bytes,
					  .dvalue_stride = a->dvalue_stride * bytes,
					  .cols = a->cols,
					  .rows = a->rows};
	const struct glu_key key =
		key_of(&ek_glu_backward_op, args, sums ? KIND_GLU_SUMS : KIND_GLU_BACKWARD, a->cols, limited);
	set_numbers(&arguments, &numbers);
	start_plan(plan);
	plan->workspace_bytes = ek_glu_plan_workspace(args);
	if (sums)
		add_sums(plan, key, &arguments, args, any_rows);
	else
		(is_dense(&ek_glu_backward_op, args) ? add_dense : add_rows)(plan, &key, arguments);
}

/* ---- by the tables ---- */

void ek_glu_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	(void)limits;
	ek_glu_plan_forward(args, plan);
}

void ek_glu_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	(void)limits;
	ek_glu_plan_backward(args, true, plan);
}
