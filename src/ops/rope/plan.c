/* From arguments to plans: which kernel, how it is launched, with what; and the kernels' recipes. plan.h says what. Called by
 * cuda.c and warmup. SPDX-License-Identifier: MIT */
#include "plan.h"

#include "core/dtype.h"
#include "core/order.h"
#include "core/sizes.h"
#include "core/slots.h"
#include "gpu/columns.h"
#include "gpu/text.h"
#include "kernels/layout.h"
#include "kernels/text.h"
#include "ops/registry.h"
#include "policy.h"

/* ---- a kernel ---- */

enum { NO_NORM, NORM_FIRST, NORM_LAST }; /* NORM of kernels/heads.cu */

/* Compared as bytes: no padding. */
struct rope_key {
	uint8_t owner; /* EK_KEY_ROPE */
	uint8_t kind;  /* KIND_ROPE_… of kernels/layout.h */
	uint8_t dtype, weight_dtype, table_dtype;
	uint8_t norm, centred, weight_offset, interleaved, trailing;
	uint8_t alignment; /* of heads: 16, 8 or 1 */
	uint8_t table_aligned, vector_aligned, bytes;
	uint8_t has_bias, has_weight, has_positions;
	uint8_t unused[3];
	uint16_t head_dim, rotary_dim;
};

static struct ek_rope_form form_of(const struct rope_key *key)
{
	return (struct ek_rope_form){.kind = key->kind,
				     .dtype = (ek_dtype)key->dtype,
				     .norm = key->norm != NO_NORM,
				     .centred = key->centred,
				     .bias = key->has_bias,
				     .head_dim = key->head_dim,
				     .rotary_dim = key->rotary_dim,
				     .alignment = key->alignment};
}

static const struct kind {
	const char *name;
	const char *texts[2]; /* after what all have in common */
} kinds[] = {[KIND_ROPE_FORWARD] = {"forward", {ek_text_rope_turn}},
	     [KIND_ROPE_BACKWARD] = {"backward", {ek_text_rope_turn}},
	     [KIND_ROPE_WEIGHTS] = {"backward_weights", {ek_text_rope_rows, ek_text_rope_weights}},
	     [KIND_ROPE_BIASES] = {"backward_biases", {ek_text_rope_rows, ek_text_rope_biases}}};

static void define_form(struct ek_recipe *recipe, const struct rope_key *key)
{
	ek_recipe_define(recipe, "KIND", key->kind);
	ek_recipe_define(recipe, "ELEMENT", key->dtype);
	ek_recipe_define(recipe, "WEIGHT_ELEMENT", key->weight_dtype);
	ek_recipe_define(recipe, "TABLE_ELEMENT", key->table_dtype);
	ek_recipe_define(recipe, "HEAD_DIM", key->head_dim);
	ek_recipe_define(recipe, "ROTARY_DIM", key->rotary_dim);
	ek_recipe_define(recipe, "NORM", key->norm);
	ek_recipe_define(recipe, "CENTRED", key->centred);
	ek_recipe_define(recipe, "WEIGHT_OFFSET", key->weight_offset);
	ek_recipe_define(recipe, "INTERLEAVED", key->interleaved);
	ek_recipe_define(recipe, "TRAILING", key->trailing);
	ek_recipe_define(recipe, "TABLE_ALIGNED", key->table_aligned);
	ek_recipe_define(recipe, "VECTOR_ALIGNED", key->vector_aligned);
	ek_recipe_define(recipe, "BYTES", key->bytes);
	ek_recipe_define(recipe, "HAS_BIAS", key->has_bias);
	ek_recipe_define(recipe, "HAS_WEIGHT", key->has_weight);
	ek_recipe_define(recipe, "HAS_POSITIONS", key->has_positions);
}

static void write_recipe(const struct ek_kernel_key *packed, struct ek_recipe *recipe)
{
	struct rope_key key;
	memcpy(&key, packed, sizeof key);
	const struct ek_rope_form form = form_of(&key);
	const struct ek_rope_policy policy = ek_rope_policy(&form);
	const char *const texts[] = {ek_text_words,      ek_text_division,  ek_text_order,
				     ek_text_elements,   ek_text_folds,     ek_text_rope_layout,
				     ek_text_rope_heads, ek_text_rope_norms};
	*recipe = (struct ek_recipe){.shared_bytes = ek_rope_shared(&form, &policy)};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ek_recipe_add_text(recipe, texts[i]);
	for (int i = 0; i < 2 && kinds[key.kind].texts[i]; i++)
		ek_recipe_add_text(recipe, kinds[key.kind].texts[i]);
	ek_recipe_name(recipe, "ek_%s_%s_%s_%d", key.norm ? "qk_norm_rope" : "rope", kinds[key.kind].name,
		       ek_dtype_name((ek_dtype)key.dtype), key.head_dim);
	define_form(recipe, &key);
	ek_recipe_define(recipe, "UNIT", policy.unit);
	ek_recipe_define(recipe, "ROW_THREADS", policy.row_threads);
	ek_recipe_define(recipe, "SIDE_BY_SIDE", 1);
	ek_recipe_define(recipe, "HEADS", policy.heads);
	ek_recipe_define(recipe, "THREADS", policy.threads);
	ek_recipe_define(recipe, "BLOCKS", policy.blocks);
}

static struct ek_kernel_key pack_key(const struct rope_key *key)
{
	_Static_assert(sizeof *key == 24 && sizeof *key <= sizeof(struct ek_kernel_key), "a key has padding");
	struct ek_kernel_key packed = {{0}};
	memcpy(&packed, key, sizeof *key);
	return packed;
}

/* The lowest bits of the addresses and strides of a call, by what is loaded alike. */
struct bits {
	uintptr_t heads, tables, vectors;
	bool bytes; /* some address is no multiple of its element size */
};

static void add_bits(struct bits *bits, uintptr_t *to, const void *pointer, ek_dtype dtype)
{
	*to |= (uintptr_t)pointer;
	bits->bytes |= (uintptr_t)pointer % ek_bytes_of_dtype(dtype) != 0;
}

static void add_heads(struct bits *bits, const void *pointer, const int64_t strides[3], ek_dtype dtype)
{
	if (!pointer)
		return;
	add_bits(bits, &bits->heads, pointer, dtype);
	for (int i = 0; i < 3; i++)
		bits->heads |= (uintptr_t)strides[i] * ek_bytes_of_dtype(dtype);
}

static struct bits bits_of(const struct ek_rope_call *call)
{
	struct bits bits = {0};
	for (int i = 0; i < call->side_count; i++) {
		const struct ek_rope_side *side = &call->sides[i];
		add_heads(&bits, side->x, side->x_strides, call->dtype);
		add_heads(&bits, side->dy, side->dy_strides, call->dtype);
		add_heads(&bits, side->y, side->y_strides, call->dtype);
		add_bits(&bits, &bits.vectors, side->bias, call->weight_dtype);
		add_bits(&bits, &bits.vectors, side->weight, call->weight_dtype);
	}
	add_bits(&bits, &bits.tables, call->cos, call->table_dtype);
	add_bits(&bits, &bits.tables, call->sin, call->table_dtype);
	bits.tables |=
		(uintptr_t)(call->cos_stride | call->sin_stride) * ek_bytes_of_dtype(call->table_dtype);
	bits.bytes |= (uintptr_t)call->positions % 8 != 0;
	return bits;
}

static struct rope_key key_of(const struct ek_rope_call *call, int kind)
{
	const struct bits bits = bits_of(call);
	struct rope_key key = {.owner = EK_KEY_ROPE,
			       .kind = (uint8_t)kind,
			       .dtype = (uint8_t)call->dtype,
			       .weight_dtype = (uint8_t)call->weight_dtype,
			       .table_dtype = (uint8_t)call->table_dtype,
			       .norm = !call->norm       ? NO_NORM
				       : call->norm_last ? NORM_LAST
							 : NORM_FIRST,
			       .centred = call->norm == EK_LAYER_NORM,
			       .weight_offset = call->weight_offset != 0,
			       .interleaved = call->interleaved,
			       .trailing = call->trailing,
			       .alignment = bits.heads % 16 == 0  ? 16
					    : bits.heads % 8 == 0 ? 8
								  : 1,
			       .table_aligned = bits.tables % 16 == 0,
			       .vector_aligned = bits.vectors % 16 == 0,
			       .bytes = bits.bytes,
			       .has_positions = call->positions != NULL,
			       .head_dim = (uint16_t)call->head_dim,
			       .rotary_dim = (uint16_t)call->rotary_dim};
	for (int i = 0; i < call->side_count; i++) {
		key.has_bias |= call->sides[i].bias != NULL;
		key.has_weight |= call->sides[i].weight != NULL;
	}
	return key;
}

/* ---- arguments ---- */

_Static_assert(sizeof(struct rope_arguments) <= EK_MOST_ARGUMENTS, "EK_MOST_ARGUMENTS is too small");
/* Threads of a launch: those that fill its last block have numbers below 2^31, too. */
enum { MOST_UNITS = 0x7fffff00 };

/* The division of a number below 2^31 by n, by a multiplication: 2^(31 + shift) / n, rounded up, is below 2^32. */
static void set_divisor(int64_t n, unsigned *magic, unsigned *shift)
{
	for (*shift = 0; (int64_t)1 << *shift < n;)
		++*shift;
	*magic = (unsigned)((((uint64_t)1 << (31 + *shift)) + (uint64_t)n - 1) / (uint64_t)n);
}

static void set_strides(long long to[ROPE_STRIDES], const int64_t from[3], int64_t bytes)
{
	for (int i = 0; i < ROPE_STRIDES; i++)
		to[i] = from[i] * bytes;
}

static void set_side(struct rope_side *to, const struct ek_rope_side *side, int64_t bytes)
{
	*to = (struct rope_side){.x = side->x,
				 .dy = side->dy,
				 .bias = side->bias,
				 .weight = side->weight,
				 .y = side->y,
				 .heads = (unsigned)side->heads};
	set_strides(to->x_strides, side->x_strides, bytes);
	set_strides(to->dy_strides, side->dy_strides, bytes);
	set_strides(to->y_strides, side->y_strides, bytes);
}

static struct rope_arguments arguments_of(const struct ek_rope_call *call)
{
	const int64_t table_bytes = (int64_t)ek_bytes_of_dtype(call->table_dtype);
	struct rope_arguments a = {.cos = call->cos,
				   .sin = call->sin,
				   .positions = call->positions,
				   .cos_stride = call->cos_stride * table_bytes,
				   .sin_stride = call->sin_stride * table_bytes,
				   .positions_stride = call->positions_stride * 8,
				   .table_rows = call->table_rows,
				   .table_step = call->table_step,
				   .offset = call->offset,
				   .tokens = call->batch * call->seq,
				   .seq = call->seq,
				   .eps = ek_rounded_eps(call->dtype, call->eps)};
	for (int i = 0; i < call->side_count; i++)
		set_side(&a.sides[i], &call->sides[i], (int64_t)ek_bytes_of_dtype(call->dtype));
	if (a.seq > 0 && a.seq <= INT32_MAX)
		set_divisor(a.seq, &a.seq_magic, &a.seq_shift);
	return a;
}

/* ---- turn.cu ---- */

static int64_t turn_blocks(const struct rope_arguments *a, int64_t tokens, int threads)
{
	return quotient_up(tokens * a->sides[0].units, threads) +
	       quotient_up(tokens * a->sides[1].units, threads);
}

static void advance(void *arguments, int64_t tokens, int64_t unused)
{
	(void)unused;
	((struct rope_arguments *)arguments)->first += tokens;
}

static void add_turn(struct ek_plan *plan, const struct ek_rope_call *call, int kind)
{
	const struct rope_key key = key_of(call, kind);
	const struct ek_kernel_key packed = pack_key(&key);
	const struct ek_rope_form form = form_of(&key);
	const struct ek_rope_policy policy = ek_rope_policy(&form);
	struct rope_arguments a = arguments_of(call);
	int64_t most = 1;
	for (int i = 0; i < call->side_count; i++) {
		struct rope_side *side = &a.sides[i];
		side->groups = (unsigned)quotient_up(side->heads, policy.heads);
		side->units = side->groups * (unsigned)policy.row_threads;
		set_divisor(side->units, &side->magic, &side->shift);
		most = larger(most, side->units);
	}
	a.launch_tokens = (unsigned)(MOST_UNITS / most);
	int64_t full = a.tokens / a.launch_tokens, rest = a.tokens % a.launch_tokens,
		launch_blocks = turn_blocks(&a, a.launch_tokens, policy.threads);
	struct ek_launch launch = {.blocks = full * launch_blocks + turn_blocks(&a, rest, policy.threads),
				   .threads = policy.threads,
				   .cluster = 1,
				   .shared_bytes = ek_rope_shared(&form, &policy)};
	struct ek_step *step = ek_plan_add(plan, write_recipe, &packed, launch, &a, sizeof a);
	step->advance = advance;
	step->launch_blocks = launch_blocks;
	step->launch_rows = a.launch_tokens;
	step->statistic_bytes = 0;
}

static void start_plan(struct ek_plan *plan)
{
	plan->count = 0;
	plan->workspace_bytes = 0;
}

void ek_rope_plan_forward(const ek_rope_forward_args *args, struct ek_plan *plan)
{
	struct ek_rope_call call;
	ek_rope_forward_call(args, &call);
	start_plan(plan);
	add_turn(plan, &call, KIND_ROPE_FORWARD);
}

/* ---- column sums ---- */

enum { LEAST_SLOTS = 4 }; /* of a block: the warps of the smallest one, each of which has at least one slot */

/* The rows and columns of a side's sums. */
struct sums {
	int64_t rows, cols;
};

static struct sums sums_of(const struct ek_rope_call *call, int side, int kind)
{
	const int64_t tokens = call->batch * call->seq, heads = call->sides[side].heads;
	return kind == KIND_ROPE_WEIGHTS ? (struct sums){tokens * heads, call->head_dim}
					 : (struct sums){tokens, heads * call->head_dim};
}

static void *gradient_of(const struct ek_rope_side *side, int kind)
{
	return kind == KIND_ROPE_WEIGHTS ? side->dweight : side->dbias;
}

static struct ek_columns columns_of(const struct ek_rope_call *call, int64_t cols)
{
	return (struct ek_columns){.dtype = ek_real_of(call->dtype),
				   .gradient_dtype = call->gradient_dtype,
				   .cols = cols,
				   .groups = 1,
				   .sums = 1};
}

/* Bytes for the partial sums of a side: of no more rows than there are. */
static size_t partials_of(const struct ek_rope_call *call, int side, int kind)
{
	const struct sums s = sums_of(call, side, kind);
	const struct ek_columns columns = columns_of(call, s.cols);
	if (!gradient_of(&call->sides[side], kind))
		return 0;
	return ek_partials_bytes(&columns,
				 quotient_up(larger(1, ek_most_slots(s.rows, s.cols)), LEAST_SLOTS));
}

/* Where those of a side start in the workspace; of the side past the last one: where the workspace ends. */
static size_t workspace_to(const struct ek_rope_call *call, int side, int kind)
{
	size_t bytes = 0;
	for (int k = KIND_ROPE_WEIGHTS; k <= kind; k++)
		for (int i = 0; i < (k < kind ? call->side_count : side); i++)
			bytes += partials_of(call, i, k);
	return bytes;
}

static size_t workspace_of(const struct ek_rope_call *call)
{
	return workspace_to(call, call->side_count, KIND_ROPE_BIASES);
}

size_t ek_rope_plan_workspace(const ek_rope_backward_args *args)
{
	struct ek_rope_call call;
	ek_rope_backward_call(args, &call);
	return workspace_of(&call);
}

/* How many groups of threads share a slot: the most that are busy three quarters of the time. */
static unsigned walkers_of(int64_t slot_rows, int row_threads)
{
	int64_t chunks = quotient_up(slot_rows, CHUNK_ROWS);
	for (int64_t walkers = 32 / row_threads; walkers > 1; walkers /= 2)
		if (chunks * 4 >= quotient_up(chunks, walkers) * walkers * 3)
			return (unsigned)walkers;
	return 1;
}

/* Slots of a block, and blocks of a side, for its sums or only its dx. */
static void set_sums(struct rope_side *to, const struct ek_rope_call *call, int side, int kind,
		     const struct ek_rope_policy *policy, char *workspace, struct ek_fold *fold)
{
	const struct sums s = sums_of(call, side, kind);
	const struct ek_columns columns = columns_of(call, s.cols);
	const int64_t real = (int64_t)ek_bytes_of_dtype(columns.dtype), strip = 32 / policy->row_threads;
	const bool weights = kind == KIND_ROPE_WEIGHTS;
	to->slot_rows = ek_slot_rows(s.rows, s.cols);
	to->chunk_rows = CHUNK_ROWS;
	to->pitch = (int64_t)ek_partial_bytes(&columns) / real;
	to->walkers = weights ? walkers_of(to->slot_rows, policy->row_threads) : 1;
	const int64_t groups = policy->threads / (weights ? policy->row_threads : 32),
		      strips = weights ? 1 : quotient_up(to->heads, strip);
	int64_t slots = groups / to->walkers, partials = quotient_up(ek_slot_count(s.rows, s.cols), slots);
	/* Two sides of short slots would be two waves: a warp starts once for two slots. */
	if (!weights && call->side_count == 2 && 2 * to->slot_rows <= CHUNK_ROWS && partials * strips > 192) {
		to->chunk_rows = (unsigned)to->slot_rows;
		to->slot_rows *= 2;
		slots *= 2;
		partials = quotient_up(ek_slot_count(s.rows, s.cols), slots);
	}
	to->blocks = (unsigned)(partials * strips);
	if (gradient_of(&call->sides[side], kind))
		to->partials = workspace ? workspace + workspace_to(call, side, kind) : NULL;
	*fold = (struct ek_fold){.partials = to->partials,
				 .gradient = gradient_of(&call->sides[side], kind),
				 .count = partials,
				 .cols = s.cols};
}

static void add_sums(struct ek_plan *plan, const struct ek_rope_call *call, int kind, char *workspace,
		     struct ek_fold folds[2])
{
	const struct rope_key key = key_of(call, kind);
	const struct ek_kernel_key packed = pack_key(&key);
	const struct ek_rope_form form = form_of(&key);
	const struct ek_rope_policy policy = ek_rope_policy(&form);
	struct rope_arguments a = arguments_of(call);
	for (int i = 0; i < call->side_count; i++)
		set_sums(&a.sides[i], call, i, kind, &policy, workspace, &folds[i]);
	struct ek_launch launch = {.blocks = (int64_t)a.sides[0].blocks + a.sides[1].blocks,
				   .threads = policy.threads,
				   .cluster = 1,
				   .shared_bytes = ek_rope_shared(&form, &policy)};
	(void)ek_plan_add(plan, write_recipe, &packed, launch, &a, sizeof a);
}

/* Of the sides that want them. */
static void add_folds(struct ek_plan *plan, const struct ek_rope_call *call, const struct ek_fold folds[2],
		      bool any_rows)
{
	struct ek_fold wanted[2];
	int count = 0;
	bool bytes = false;
	for (int i = 0; i < call->side_count; i++) {
		if (!folds[i].gradient)
			continue;
		wanted[count++] = folds[i];
		bytes |= (uintptr_t)folds[i].gradient % ek_bytes_of_dtype(call->gradient_dtype) != 0;
	}
	if (count > 0)
		ek_plan_add_fold_pair(plan, ek_real_of(call->dtype), call->gradient_dtype, wanted, count,
				      call->accumulate, bytes, any_rows);
}

static bool wants(const struct ek_rope_call *call, int kind)
{
	bool wanted = false;
	for (int i = 0; i < call->side_count; i++)
		wanted |= gradient_of(&call->sides[i], kind) != NULL;
	return wanted;
}

/* Both kinds of sums walk the rows in orders of their own. The second of two kernels writes dx, over what the first one reads. */
void ek_rope_plan_backward(const ek_rope_backward_args *args, bool any_rows, struct ek_plan *plan)
{
	struct ek_rope_call call, without_dx;
	struct ek_fold of_biases[2] = {{0}}, of_weights[2] = {{0}};
	ek_rope_backward_call(args, &call);
	const bool weights = wants(&call, KIND_ROPE_WEIGHTS), biases = wants(&call, KIND_ROPE_BIASES);
	without_dx = call;
	for (int i = 0; i < call.side_count; i++)
		without_dx.sides[i].y = NULL;
	start_plan(plan);
	plan->workspace_bytes = workspace_of(&call);
	if (biases)
		add_sums(plan, weights ? &without_dx : &call, KIND_ROPE_BIASES, args->workspace, of_biases);
	if (weights)
		add_sums(plan, &call, KIND_ROPE_WEIGHTS, args->workspace, of_weights);
	if (!biases && !weights)
		add_turn(plan, &call, KIND_ROPE_BACKWARD);
	add_folds(plan, &call, of_biases, any_rows);
	add_folds(plan, &call, of_weights, any_rows);
}

/* ---- for the cost model ---- */

void ek_rope_plan_partials(const ek_rope_backward_args *args, bool of_weights, int64_t partials[2])
{
	struct ek_rope_call call;
	struct ek_plan plan;
	struct ek_fold folds[2] = {{0}};
	ek_rope_backward_call(args, &call);
	start_plan(&plan);
	add_sums(&plan, &call, of_weights ? KIND_ROPE_WEIGHTS : KIND_ROPE_BIASES, NULL, folds);
	for (int i = 0; i < 2; i++)
		partials[i] = folds[i].count;
}

/* ---- by the tables ---- */

void ek_rope_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	(void)limits;
	ek_rope_plan_forward(args, plan);
}

void ek_rope_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	(void)limits;
	ek_rope_plan_backward(args, true, plan);
}
