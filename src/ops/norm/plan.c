/* From arguments to plans: which kernels, how each is launched, with what. Forward, and what backward (plan_backward.c)
 * shares with it. Called by cuda.c, the cost model and warmup.
 * SPDX-License-Identifier: MIT */
#include "core/sizes.h"
#include "ops/registry.h"
#include "plan_steps.h"

/* ---- what forward and backward share ---- */

struct ek_alignment ek_norm_alignment(const struct ek_op *op, const void *args)
{
	struct ek_alignment found = {
		.half_quads = ek_norm_may_have_half_quads(ek_norm_group_cols(
			ek_size_of(op, EK_NORM_COLS, args), ek_size_of(op, EK_NORM_GROUP_COLS, args)))};
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		size_t element = ek_bytes_of_dtype(ek_operand_dtype(op, operand, args));
		uintptr_t bits = (uintptr_t)ek_operand_pointer(operand, args);
		if (!bits && operand->flags & EK_OPTIONAL)
			continue;
		if (operand->dims[0].stride)
			bits |= (uintptr_t) * (const int64_t *)ek_field(args, operand->dims[0].stride) *
				element;
		if (operand->dims[operand->rank - 1].size == EK_NORM_COLS) /* groups start there, too */
			bits |= (uintptr_t)ek_size_of(op, EK_NORM_GROUP_COLS, args) * element;
		found.bytes |= bits % element != 0;
		if (operand->rank > 1) {
			found.matrices |= bits;
			found.half_quads &= bits % (4 * element) == 0;
		} else if (!(operand->flags & EK_OUTPUT) && operand->dims[0].size == EK_NORM_COLS)
			found.weights |= bits;
	}
	return found;
}

static uint32_t constants_of(const struct ek_op *op, const void *args)
{
	uint32_t present = 0;
	for (int i = 0; i < op->operand_count; i++)
		if (op->operands[i].flags & EK_CONSTANT && ek_operand_pointer(&op->operands[i], args))
			present |= 1u << i;
	return present;
}

int ek_norm_access(const struct ek_alignment *found)
{
	if (found->bytes)
		return ACCESS_ELEMENTS;
	return found->matrices % 16 == 0 ? ACCESS_QUADS
	       : found->half_quads       ? ACCESS_HALF_QUADS
					 : ACCESS_SHIFTED;
}

struct ek_norm_key ek_norm_key_of(const struct ek_op *op, const void *args, const struct ek_norm_form *form,
				  const struct ek_alignment *found)
{
	return (struct ek_norm_key){.owner = EK_KEY_NORM,
				    .norm = (uint8_t) * (const ek_norm *)ek_field(args, op->kind),
				    .dtype = (uint8_t)form->dtype,
				    .weight_dtype = (uint8_t)form->weight_dtype,
				    .access = (uint8_t)form->access,
				    .weight_elements = found->weights % 16 != 0,
				    .bytes = found->bytes,
				    .cols = (uint32_t)form->cols,
				    .groups = (uint32_t)form->groups,
				    .operands = constants_of(op, args),
				    .x_dtype = (uint8_t)form->dtype,
				    .y_dtype = (uint8_t)form->dtype,
				    .dx_dtype = (uint8_t)form->dtype};
}

struct ek_step *ek_norm_add_step(struct ek_norm_plan *plan, const struct ek_norm_key *key,
				 struct ek_launch launch, const void *arguments, size_t size)
{
	struct ek_kernel_key packed = ek_norm_pack_key(key);
	return ek_plan_add(&plan->plan, ek_norm_write_recipe, &packed, launch, arguments, size);
}

void ek_norm_start_plan(struct ek_norm_plan *plan, bool staged)
{
	plan->plan.count = 0;
	plan->plan.workspace_bytes = 0;
	plan->staged = staged;
	plan->slots = plan->chunk_bytes = 0;
	memset(plan->partials, 0, sizeof plan->partials);
}

/* ---- forward ---- */

static void advance_forward(void *arguments, int64_t rows, int64_t statistic_bytes)
{
	struct forward_arguments *f = arguments;
	f->x += rows * f->x_stride;
	f->y += rows * f->y_stride;
	f->mean = ek_offset(f->mean, rows * statistic_bytes);
	f->rstd = ek_offset(f->rstd, rows * statistic_bytes);
	f->mean_lo = ek_offset(f->mean_lo, rows * statistic_bytes);
	f->residual = ek_offset(f->residual, rows * f->residual_stride);
	f->h = ek_offset(f->h, rows * f->h_stride);
	f->rows -= rows;
}

/* Of forward, or of backward's rows. */
static void advance_staged(void *arguments, int64_t rows, int64_t statistic_bytes)
{
	struct staged_arguments *s = arguments;
	s->x += rows * s->x_stride;
	s->dy = ek_offset(s->dy, rows * s->dy_stride);
	s->y = ek_offset(s->y, rows * s->y_stride);
	s->mean = ek_offset(s->mean, rows * statistic_bytes);
	s->rstd = ek_offset(s->rstd, rows * statistic_bytes);
	s->mean_lo = ek_offset(s->mean_lo, rows * statistic_bytes);
	s->numbers = ek_offset(s->numbers, rows * ROW_NUMBERS * statistic_bytes);
	s->residual = ek_offset(s->residual, rows * s->residual_stride);
	s->h = ek_offset(s->h, rows * s->h_stride);
	s->rows -= rows;
}

/* A step over all rows: several launches, where they need more blocks than one has. Each group of a row is blocks of its own,
 * and a row has the statistics of all. */
static void add_rows(struct ek_norm_plan *plan, const struct ek_norm_key *key, int64_t rows, int shared_bytes,
		     const void *arguments, size_t size,
		     void (*advance)(void *arguments, int64_t rows, int64_t statistic_bytes))
{
	const struct ek_norm_policy *policy = &key->policy;
	const int cluster = ek_policy_cluster(policy), cluster_rows = ek_policy_rows(policy);
	struct ek_launch launch = {.blocks = quotient_up(rows, cluster_rows) * cluster * key->groups,
				   .threads = ek_policy_threads(policy),
				   .cluster = cluster,
				   .shared_bytes = shared_bytes};
	struct ek_step *step = ek_norm_add_step(plan, key, launch, arguments, size);
	step->advance = advance;
	const int64_t set_blocks = cluster * (int64_t)key->groups, sets = EK_MOST_BLOCKS / set_blocks;
	step->launch_blocks = sets * set_blocks;
	step->launch_rows = sets * cluster_rows;
	step->statistic_bytes = ek_real_bytes((ek_dtype)key->dtype) * key->groups;
}

void ek_norm_add_staged_rows(struct ek_norm_plan *plan, struct ek_norm_key *key,
			     const struct ek_norm_form *form, const struct staged_arguments *s)
{
	bool forward = key->kind == KIND_FORWARD;
	key->kind = forward ? KIND_STAGED_FORWARD : KIND_STAGED_ROWS;
	if (key->access == ACCESS_SHIFTED) /* staged.cu reads rows that are not aligned element by element */
		key->access = ACCESS_ELEMENTS;
	int shared_bytes = ek_staged_shared(&key->policy, form, forward ? form->tensors : 2 + form->gate);
	add_rows(plan, key, s->rows, shared_bytes, s, sizeof *s, advance_staged);
}

static void add_forward_staged(struct ek_norm_plan *plan, struct ek_norm_key *key,
			       const struct ek_norm_form *form, const struct forward_arguments *f)
{
	const struct staged_arguments s = {.x = f->x,
					   .dy = f->x,
					   .y = f->y,
					   .weight = f->weight,
					   .bias = f->bias,
					   .mean = f->mean,
					   .rstd = f->rstd,
					   .mean_lo = f->mean_lo,
					   .x_stride = f->x_stride,
					   .dy_stride = f->x_stride,
					   .y_stride = f->y_stride,
					   .rows = f->rows,
					   .eps = f->eps,
					   .x_bias = f->x_bias,
					   .residual = f->residual,
					   .h = f->h,
					   .residual_stride = f->residual_stride,
					   .h_stride = f->h_stride};
	ek_norm_add_staged_rows(plan, key, form, &s);
}

static struct forward_arguments forward_arguments_of(const ek_norm_forward_args *a)
{
	int64_t h_bytes = (int64_t)ek_bytes_of_dtype(a->h_dtype);
	return (struct forward_arguments){
		.x = a->x,
		.y = a->y,
		.weight = a->weight,
		.bias = a->bias,
		.mean = a->mean,
		.rstd = a->rstd,
		.mean_lo = a->mean_lo,
		.x_stride = a->x_stride * (int64_t)ek_bytes_of_dtype(a->dtype),
		.y_stride = a->y_stride * (int64_t)ek_bytes_of_dtype(a->y_dtype),
		.rows = a->rows,
		.eps = ek_rounded_eps(a->dtype, a->eps),
		.x_bias = a->x_bias,
		.residual = a->residual ? a->residual
			    : a->gate   ? a->gate
					: a->residual_after,
		.h = a->h,
		.residual_stride = a->gate       ? a->gate_stride * (int64_t)ek_bytes_of_dtype(a->dtype)
				   : a->residual ? a->residual_stride * h_bytes
						 : a->residual_after_stride * h_bytes,
		.h_stride = a->h_stride * h_bytes};
}

/* The dtype in which a kernel has a row: that of h where there is a residual; of a residual after it, so that a strip of
 * either fits a quad. */
static ek_dtype row_dtype(const ek_norm_forward_args *a)
{
	return a->residual || a->residual_after ? a->h_dtype : a->dtype;
}

int ek_norm_kernel_access(int access, bool one_dtype)
{
	if (access == ACCESS_SHIFTED && !one_dtype)
		return ACCESS_ELEMENTS;
	return access == ACCESS_HALF_QUADS ? ACCESS_QUADS : access;
}

/* Trays of shifted rows have rows of one dtype. */
static bool has_other_dtypes(const ek_norm_forward_args *a)
{
	return a->residual || a->residual_after || a->x_bias || a->gate || a->y_dtype != a->dtype;
}

struct ek_norm_form ek_norm_forward_form(const ek_norm_forward_args *a, int access)
{
	return (struct ek_norm_form){.norm = a->norm,
				     .dtype = access == ACCESS_HALF_QUADS ? ek_real_of(a->dtype)
									  : row_dtype(a),
				     .weight_dtype = a->weight_dtype,
				     .cols = ek_norm_group_cols(a->cols, a->group_cols),
				     .groups = ek_norm_groups(a->cols, a->group_cols),
				     .access = ek_norm_kernel_access(access, !has_other_dtypes(a)),
				     .half_quads = access == ACCESS_HALF_QUADS,
				     .flavoured = a->weight_offset || a->rounding == EK_ROUND_EACH ||
						  a->y_dtype != a->dtype || a->residual_after,
				     .after = a->residual_after || (a->gate && !a->gate_first),
				     .gate = a->gate != NULL,
				     .activation = a->activation,
				     .kept = 1 + (a->x_bias || a->gate_first),
				     .tensors = a->residual || a->gate_first ? 2 : 1};
}

/* Few rows have a kernel of their own at some widths. A call makes both: another number of rows then compiles nothing. */
static void choose_by_rows(struct ek_norm_plan *plan, struct ek_norm_key *key,
			   const struct ek_norm_form *form, int64_t rows, const struct ek_gpu_limits *limits)
{
	struct ek_norm_key few = *key;
	if (!ek_forward_few_policy(form, &few.policy))
		return;
	few.few = 1;
	bool are_few = rows <= (int64_t)few.policy.blocks * limits->multiprocessors / form->groups;
	(void)ek_norm_add_step(plan, are_few ? key : &few, (struct ek_launch){.blocks = 0}, NULL, 0);
	if (are_few)
		*key = few;
}

void ek_norm_plan_forward(const ek_norm_forward_args *args, const struct ek_gpu_limits *limits,
			  struct ek_norm_plan *plan)
{
	const struct ek_op *op = &ek_norm_forward_op;
	const struct ek_alignment found = ek_norm_alignment(op, args);
	const struct ek_norm_form form = ek_norm_forward_form(args, ek_norm_access(&found));
	struct ek_norm_key key = ek_norm_key_of(op, args, &form, &found);
	key.x_dtype = (uint8_t)args->dtype;
	key.y_dtype = (uint8_t)args->y_dtype;
	key.dx_dtype = (uint8_t)(args->gate ? args->dtype : args->h_dtype);
	key.flavour =
		ek_norm_flavour(args->weight_offset, args->rounding, args->activation, args->gate_first);
	const struct forward_arguments f = forward_arguments_of(args);
	key.kind = KIND_FORWARD;
	key.policy = ek_forward_policy(&form, limits);
	ek_norm_start_plan(plan, ek_policy_is_staged(&key.policy));
	if (plan->staged) {
		add_forward_staged(plan, &key, &form, &f);
		return;
	}
	choose_by_rows(plan, &key, &form, args->rows, limits);
	add_rows(plan, &key, args->rows, ek_forward_shared(&key.policy, &form), &f, sizeof f,
		 advance_forward);
}

/* ---- by the tables ---- */

void ek_norm_list_forward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	struct ek_norm_plan made;
	ek_norm_plan_forward(args, limits, &made);
	*plan = made.plan;
}

void ek_norm_list_backward(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan)
{
	struct ek_norm_plan made;
	ek_norm_plan_backward(args, limits, true, &made);
	*plan = made.plan;
}
