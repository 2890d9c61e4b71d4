/* Backward's plan: the policies of a call, its workspace, and the steps from rows to folded column sums. Called by cuda.c, the
 * cost model and warmup. SPDX-License-Identifier: MIT */
#include "core/sizes.h"
#include "core/slots.h"
#include "plan_steps.h"

/* ---- backward: the workspace ---- */

/* Of a call, or of the largest call up to a number of rows. */
struct workspace {
	size_t numbers_bytes; /* of the rows, in staged.cu */
	int64_t partials;     /* partial column sums */
	size_t sums_bytes;    /* of all of them, and of those folded once more */
	size_t chunks_bytes;  /* sums of chunks that shared memory has no room for */
};

/* Column sums are those of whole rows. */
static int64_t row_cols(const struct ek_norm_form *form)
{
	return form->cols * form->groups;
}

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

static struct ek_columns columns_of(const struct ek_norm_form *form, ek_dtype gradient_dtype)
{
	return (struct ek_columns){.dtype = ek_real_of(form->dtype),
				   .gradient_dtype = gradient_dtype,
				   .cols = form->cols,
				   .groups = form->groups,
				   .sums = form->sums};
}

static size_t workspace_bytes(const struct workspace *w)
{
	return w->numbers_bytes + w->sums_bytes + w->chunks_bytes;
}

/* Strips of columns in staged.cu: a quad a thread of a warp. */
static int64_t strips_of(const struct ek_norm_form *form)
{
	return form->groups * quotient_up(form->cols, 32 * 16 / (int64_t)ek_bytes_of_dtype(form->dtype));
}

/* The fewest slots of which a warp of staged.cu walks `walk` (2 or 4) in its strip: with fewer slots there are too few
 * warps for every multiprocessor. */
static int64_t slots_for_walk(const struct ek_norm_form *form, const struct ek_gpu_limits *limits, int walk)
{
	enum { ENOUGH_WARPS = 16 };
	int64_t warps = (int64_t)limits->multiprocessors * ENOUGH_WARPS * walk;
	int64_t slots = quotient_up(warps, strips_of(form));
	return slots > walk / 2 ? slots : walk / 2 + 1;
}

/* Slots that a warp of staged.cu walks, whose sums it folds. */
static int slots_to_walk(const struct ek_norm_form *form, const struct ek_gpu_limits *limits, int64_t slots)
{
	int walk = 1;
	while (walk < MOST_WALK_SLOTS && slots >= slots_for_walk(form, limits, 2 * walk))
		walk *= 2;
	return walk;
}

/* Parts of a warp that share a slot: as many as it has chunks, where rows are so narrow that a warp has room for several
 * slots. 262144x64 bf16: .82, one each .51 (with four rows at once .68). */
static int walkers_of(const struct ek_norm_policy *policy, int64_t slot_rows)
{
	int walkers = 1, most = ek_policy_is_staged(policy) ? 1 : 32 / policy->row_threads;
	while (walkers < most && walkers < quotient_up(slot_rows, CHUNK_ROWS))
		walkers *= 2;
	return walkers;
}

/* Partial column sums of so many slots: those of a cluster are folded before they are written. */
static int64_t partials_of(const struct ek_norm_policy *policy, int64_t slots, int walkers)
{
	return quotient_up(slots, ek_policy_slots(policy) / walkers);
}

static int64_t blocks_of(const struct ek_norm_policy *policy, const struct ek_norm_form *form, int64_t slots,
			 int walkers)
{
	return partials_of(policy, slots, walkers) * ek_policy_cluster(policy) * form->groups;
}

/* Whether the sums of chunks have room in shared memory. */
static bool chunks_fit(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
		       const struct ek_gpu_limits *limits)
{
	return ek_backward_shared(policy, form) + ek_backward_chunk_bytes(policy, form) <=
	       limits->shared_bytes;
}

/* Of so many partial sums, with so many slots of over CHUNK_ROWS rows. */
static struct workspace workspace_with(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
				       const struct ek_gpu_limits *limits, int64_t rows, int64_t partials,
				       int64_t chunked_slots, int walkers)
{
	bool staged = ek_policy_is_staged(policy);
	size_t real = (size_t)ek_real_bytes(form->dtype);
	struct workspace w = {.partials = partials};
	const struct ek_columns columns = columns_of(form, ek_real_of(form->dtype)); /* of any gradients */
	w.sums_bytes = ek_partials_bytes(&columns, partials);
	w.numbers_bytes = staged ? aligned((size_t)(rows * form->groups) * ROW_NUMBERS * real) : 0;
	if (!staged && chunked_slots > 0 && !chunks_fit(policy, form, limits))
		w.chunks_bytes = (size_t)blocks_of(policy, form, chunked_slots, walkers) *
				 (size_t)ek_backward_chunk_bytes(policy, form);
	return w;
}

static struct workspace workspace_of(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
				     const struct ek_gpu_limits *limits, int64_t rows)
{
	if (form->sums == 0)
		return (struct workspace){0};
	int64_t slots = ek_slot_count(rows, row_cols(form)), slot_rows = ek_slot_rows(rows, row_cols(form));
	int walkers = walkers_of(policy, slot_rows);
	int64_t partials = ek_policy_is_staged(policy)
				   ? quotient_up(slots, slots_to_walk(form, limits, slots))
				   : partials_of(policy, slots, walkers);
	return workspace_with(policy, form, limits, rows, partials, slot_rows > CHUNK_ROWS ? slots : 0,
			      walkers);
}

/* The most partial sums of any number of slots up to `slots`: in staged.cu, just before a warp walks more of them. */
static int64_t most_partials(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
			     const struct ek_gpu_limits *limits, int64_t slots, int walkers)
{
	if (!ek_policy_is_staged(policy))
		return partials_of(policy, slots, walkers);
	int64_t most = quotient_up(slots, MOST_WALK_SLOTS);
	for (int walk = 1; walk < MOST_WALK_SLOTS; walk *= 2) {
		int64_t last = slots_for_walk(form, limits, 2 * walk) - 1;
		most = larger(most, quotient_up(smaller(last, slots), walk));
	}
	return most;
}

/* Enough for any number of rows up to `rows`: the most of each part. */
static size_t most_workspace(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
			     const struct ek_gpu_limits *limits, int64_t rows)
{
	if (form->sums == 0)
		return 0;
	int64_t slots = ek_most_slots(rows, row_cols(form)), chunked = 0;
	int walkers = walkers_of(policy, ek_slot_rows(rows, row_cols(form))); /* of fewer rows no more */
	if (rows > CHUNK_ROWS * ek_slot_target(row_cols(form)))               /* rows of a slot are even */
		chunked = smaller(quotient_up(rows, CHUNK_ROWS + 2), slots);
	struct workspace w =
		workspace_with(policy, form, limits, rows,
			       most_partials(policy, form, limits, slots, walkers), chunked, walkers);
	return workspace_bytes(&w);
}

/* The policies of a call for every alignment of its tensors: each is derived once. */
enum { ACCESSES = ACCESS_HALF_QUADS + 1 };
struct policies {
	struct ek_norm_form form[ACCESSES];
	struct ek_norm_policy policy[ACCESSES];
	size_t workspace_bytes; /* enough for all */
};

/* The dtype in which a kernel has x and dy: one that both fit, and x with a bias where statistics are recomputed. */
static ek_dtype row_dtype(const ek_norm_backward_args *a)
{
	return ((a->x_bias || a->gate_first) && !a->rstd) || a->h_dtype != a->y_dtype ? ek_real_of(a->dtype)
										      : a->h_dtype;
}

/* Trays of shifted rows have x and dy of one dtype, and dx. */
static bool has_other_dtypes(const ek_norm_backward_args *a)
{
	return a->x_bias || a->dh || a->dresidual || a->gate || !a->dy || a->h_dtype != a->dtype ||
	       a->y_dtype != a->dtype;
}

struct ek_norm_form ek_norm_backward_form(const ek_norm_backward_args *a, int access)
{
	return (struct ek_norm_form){.norm = a->norm,
				     .dtype = access == ACCESS_HALF_QUADS ? ek_real_of(a->dtype)
									  : row_dtype(a),
				     .weight_dtype = a->weight_dtype,
				     .cols = ek_norm_group_cols(a->cols, a->group_cols),
				     .groups = ek_norm_groups(a->cols, a->group_cols),
				     .access = ek_norm_kernel_access(access, !has_other_dtypes(a)),
				     .half_quads = access == ACCESS_HALF_QUADS,
				     .given = a->rstd != NULL,
				     .sums = (a->dweight != NULL) + (a->dbias != NULL) + (a->dx_bias != NULL),
				     .kept = 1 + (a->x_bias != NULL) + (a->bias != NULL),
				     .tensors = ek_norm_backward_has_neighbours(a) ? 3 : 2,
				     .gate = a->gate != NULL,
				     .activation = a->activation};
}

static struct policies policies_of(const ek_norm_backward_args *a, const struct ek_gpu_limits *limits)
{
	struct policies all = {.workspace_bytes = 0};
	for (int access = 0; access < ACCESSES; access++) {
		if (access == ACCESS_HALF_QUADS &&
		    !ek_norm_may_have_half_quads(ek_norm_group_cols(a->cols, a->group_cols)))
			continue;
		all.form[access] = ek_norm_backward_form(a, access);
		all.policy[access] = ek_backward_policy(&all.form[access], limits);
		size_t bytes = most_workspace(&all.policy[access], &all.form[access], limits, a->rows);
		all.workspace_bytes = bytes > all.workspace_bytes ? bytes : all.workspace_bytes;
	}
	return all;
}

size_t ek_norm_plan_workspace(const ek_norm_backward_args *args, const struct ek_gpu_limits *limits)
{
	return policies_of(args, limits).workspace_bytes;
}

/* ---- backward: the steps ---- */

/* What the steps have in common. */
struct backward {
	const ek_norm_backward_args *args;
	const struct ek_gpu_limits *limits;
	const struct ek_norm_form *form;
	struct ek_norm_key key;
	struct workspace workspace;
	char *partials; /* in the workspace */
};

/* Rows that a row of warps walks where no column sums are wanted: as many as keep the GPU busy. */
static int64_t rows_to_walk(const struct ek_norm_policy *policy, const struct ek_norm_form *form,
			    const struct ek_gpu_limits *limits, int64_t rows)
{
	int64_t walkers = (int64_t)limits->multiprocessors * policy->blocks * ek_policy_slots(policy) /
			  (ek_policy_cluster(policy) * form->groups);
	int64_t walk = quotient_up(rows, walkers > 0 ? walkers : 1);
	/* Many more rows than that go in several waves, which even out. */
	return walk < 64 ? walk : 64;
}

static void add_registers_step(struct ek_norm_plan *plan, const struct backward *b)
{
	const ek_norm_backward_args *a = b->args;
	const struct ek_norm_policy *policy = &b->key.policy;
	int64_t h_bytes = (int64_t)ek_bytes_of_dtype(a->h_dtype),
		bytes = (int64_t)ek_bytes_of_dtype(a->dtype);
	int64_t slot_rows = larger(1, b->form->sums ? ek_slot_rows(a->rows, a->cols)
						    : rows_to_walk(policy, b->form, b->limits, a->rows));
	const int walkers = b->form->sums ? walkers_of(policy, slot_rows) : 1;
	bool chunks = b->form->sums && slot_rows > CHUNK_ROWS && chunks_fit(policy, b->form, b->limits);
	const struct backward_arguments arguments = {
		.x = a->x,
		.dy = a->dy,
		.dx = a->dx,
		.weight = a->weight,
		.mean = a->mean,
		.rstd = a->rstd,
		.mean_lo = a->mean_lo,
		.partials = b->partials,
		.x_stride = a->x_stride * h_bytes,
		.dy_stride = a->dy_stride * (int64_t)ek_bytes_of_dtype(a->y_dtype),
		.dx_stride = a->dx_stride * (int64_t)ek_bytes_of_dtype(a->dtype),
		.rows = a->rows,
		.slot_rows = slot_rows,
		.eps = ek_rounded_eps(a->dtype, a->eps),
		.slot_sums = b->workspace.chunks_bytes ? b->partials + b->workspace.sums_bytes : NULL,
		.walkers = walkers,
		.x_bias = a->x_bias,
		.dh = a->gate ? a->gate : a->dh,
		.dresidual = a->gate ? a->dgate : a->dresidual,
		.dh_stride = a->gate ? a->gate_stride * bytes : a->dh_stride * h_bytes,
		.dresidual_stride = a->gate ? a->dgate_stride * bytes : a->dresidual_stride * h_bytes,
		.bias = a->bias};
	struct ek_launch launch = {
		.blocks = blocks_of(policy, b->form, quotient_up(a->rows, slot_rows), walkers),
		.threads = ek_policy_threads(policy),
		.cluster = ek_policy_cluster(policy),
		.shared_bytes = ek_backward_shared(policy, b->form) +
				(chunks ? ek_backward_chunk_bytes(policy, b->form) : 0)};
	(void)ek_norm_add_step(plan, &b->key, launch, &arguments, sizeof arguments);
}

static struct staged_arguments staged_arguments_of(const struct backward *b)
{
	const ek_norm_backward_args *a = b->args;
	int64_t h_bytes = (int64_t)ek_bytes_of_dtype(a->h_dtype),
		bytes = (int64_t)ek_bytes_of_dtype(a->dtype);
	return (struct staged_arguments){
		.x = a->x,
		.dy = a->dy,
		.y = a->dx,
		.weight = a->weight,
		.bias = a->bias,
		.mean = (void *)(uintptr_t)a->mean,
		.rstd = (void *)(uintptr_t)a->rstd,
		.mean_lo = (void *)(uintptr_t)a->mean_lo,
		.numbers = a->workspace,
		.partials = b->partials,
		.x_stride = a->x_stride * h_bytes,
		.dy_stride = a->dy_stride * (int64_t)ek_bytes_of_dtype(a->y_dtype),
		.y_stride = a->dx_stride * (int64_t)ek_bytes_of_dtype(a->dtype),
		.x_bias = a->x_bias,
		.residual = a->gate ? a->gate : a->dh,
		.h = a->gate ? a->dgate : a->dresidual,
		.residual_stride = a->gate ? a->gate_stride * bytes : a->dh_stride * h_bytes,
		.h_stride = a->gate ? a->dgate_stride * bytes : a->dresidual_stride * h_bytes,
		.rows = a->rows,
		.slot_rows = a->rows ? ek_slot_rows(a->rows, a->cols) : 1,
		.eps = ek_rounded_eps(a->dtype, a->eps)};
}

static void add_staged_steps(struct ek_norm_plan *plan, struct backward *b)
{
	struct staged_arguments s = staged_arguments_of(b);
	ek_norm_add_staged_rows(plan, &b->key, b->form, &s);
	if (b->form->sums == 0)
		return;
	/* At most 2048 slots, or 2048 rows in each: never too many blocks. */
	s.walk_slots = slots_to_walk(b->form, b->limits, plan->slots);
	int64_t walks = quotient_up(plan->slots, s.walk_slots);
	struct ek_launch launch = {
		.blocks = quotient_up(strips_of(b->form) * walks, WALK_WARPS),
		.threads = 32 * WALK_WARPS,
		.cluster = 1,
		.shared_bytes = ek_walk_shared(b->form->dtype, b->args->dh || b->args->gate ? 3 : 2)};
	b->key.kind = KIND_STAGED_COLUMNS;
	(void)ek_norm_add_step(plan, &b->key, launch, &s, sizeof s);
}

static void add_folds(struct ek_norm_plan *plan, const struct backward *b, bool any_rows)
{
	const ek_norm_backward_args *a = b->args;
	const struct ek_columns columns = columns_of(b->form, a->gradient_dtype);
	void *gradients[MOST_SUMS] = {NULL}, *const all[] = {a->dweight, a->dbias, a->dx_bias};
	for (int i = 0, sum = 0; i < 3; i++)
		if (all[i])
			gradients[sum++] = all[i];
	ek_plan_add_folds(&plan->plan, &columns, b->partials, b->workspace.partials, gradients, a->accumulate,
			  b->key.bytes, any_rows, plan->partials);
}

void ek_norm_plan_backward(const ek_norm_backward_args *args, const struct ek_gpu_limits *limits,
			   bool any_rows, struct ek_norm_plan *plan)
{
	const struct ek_op *op = &ek_norm_backward_op;
	const struct ek_alignment found = ek_norm_alignment(op, args);
	const struct policies all = policies_of(args, limits);
	const int access = ek_norm_access(&found);
	struct backward b = {.args = args, .limits = limits, .form = &all.form[access]};
	b.key = ek_norm_key_of(op, args, b.form, &found);
	b.key.kind = KIND_BACKWARD;
	b.key.x_dtype = (uint8_t)args->h_dtype;
	b.key.y_dtype = (uint8_t)args->y_dtype;
	b.key.dx_dtype = (uint8_t)args->dtype;
	b.key.flavour =
		ek_norm_flavour(args->weight_offset, args->rounding, args->activation, args->gate_first);
	b.key.policy = all.policy[access];
	b.workspace = workspace_of(&b.key.policy, b.form, limits, args->rows);
	b.partials = b.form->sums ? ek_offset(args->workspace, (int64_t)b.workspace.numbers_bytes) : NULL;
	ek_norm_start_plan(plan, ek_policy_is_staged(&b.key.policy));
	plan->plan.workspace_bytes = all.workspace_bytes;
	plan->chunk_bytes = (int64_t)b.workspace.chunks_bytes;
	plan->slots = b.form->sums ? ek_slot_count(args->rows, args->cols) : 0;
	if (plan->staged)
		add_staged_steps(plan, &b);
	else
		add_registers_step(plan, &b);
	if (b.form->sums)
		add_folds(plan, &b, any_rows);
}
