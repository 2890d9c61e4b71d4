/* What each launch of a norm call should move of each operand, from the sizes and the policy alone; support_traffic.h has
 * the structs. SPDX-License-Identifier: MIT */
#include "ref/slots.h"
#include "support_traffic.h"

static struct launch *add_launch(struct plan *plan, const char *part)
{
	struct launch *launch = &plan->launches[plan->count++];
	*launch = (struct launch){.part = part};
	return launch;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

static enum ek_access access_of(const struct norm_case *c)
{
	int64_t bits = 0;
	for (enum operand_id id = 0; id < WORKSPACE; id++)
		if (is_matrix(id) && is_present(c, id))
			bits |= c->offset[id] | stride_bytes(c, id);
	return bits % 16 == 0                 ? EK_ACCESS_QUADS
	       : bits % element_bytes(c) == 0 ? EK_ACCESS_SHIFTED
					      : EK_ACCESS_ELEMENTS;
}

static struct ek_policy policy_of(const struct call *call)
{
	const struct norm_case *c = call->c;
	struct ek_gpu_limits limits = {call->gpu->arch, call->gpu->shared_limit};
	return c->backward ? ek_backward_policy(c->dtype, c->cols, access_of(c), limits)
			   : ek_forward_policy(c->dtype, c->cols, access_of(c), limits);
}

static int64_t sums_of(const struct norm_case *c)
{
	return ((c->form & FORM_DWEIGHT) != 0) + ((c->form & FORM_DBIAS) != 0);
}

/* Of all partial sums of one slot or of several. */
static int64_t sums_bytes(const struct norm_case *c)
{
	return sums_of(c) * quotient_up(c->cols * real_bytes(c), 16) * 16;
}

static void read_operand(struct launch *launch, const struct norm_case *c, enum operand_id id)
{
	if (is_present(c, id))
		launch->of[id].read = operand_bytes(c, id);
}

/* Rows that start anywhere are fetched in quads of memory: what lies before a row in its first quad comes along, up to 14
 * bytes of the gap between two rows, unless that is before the tensor; nothing behind a row does. Two warps that
 * share a row both fetch the quad at their border. */
static void read_rows(struct launch *launch, const struct norm_case *c, enum operand_id id, bool shifted)
{
	struct moved *moved = &launch->of[id];
	moved->read = moved->read_in_all_at_most = operand_bytes(c, id);
	for (int64_t row = 1; shifted && row < c->rows; row++) {
		int64_t before = (c->offset[id] + row * stride_bytes(c, id)) % 16,
			gap = c->pad[id] * element_bytes(c);
		moved->read += before < gap ? before : gap;
	}
	if (shifted)
		moved->read_in_all_at_most += c->rows * quotient_up(c->cols, 1024) * 32;
}

static void write_operand(struct launch *launch, const struct norm_case *c, enum operand_id id)
{
	if (is_present(c, id))
		launch->of[id].written = operand_bytes(c, id);
}

/* norm_wide.cu looks at a row several times, and fetches again what shared memory has no room for. */
static void read_again(struct launch *launch, const struct call *call, const struct ek_policy *policy,
		       int tensors, int looks)
{
	struct ek_wide_form form = {
		.dtype = call->c->dtype, .cols = call->c->cols, .tensors = tensors, .again = true};
	bool fits = ek_wide_slots(policy, &form, call->gpu->shared_limit) ==
		    ek_wide_slots(policy, &form, 1 << 30);
	for (int id = X; id <= DY; id++)
		launch->of[id].read_in_all_at_most *= fits ? 1 : looks;
}

static int statistics_looks(const struct norm_case *c)
{
	return c->norm == EK_LAYER_NORM ? 2 : 1;
}

static void plan_forward(struct plan *plan, const struct call *call, const struct ek_policy *policy)
{
	const struct norm_case *c = call->c;
	bool wide = policy->unit_segments > 0;
	struct launch *launch = add_launch(plan, wide ? "_forward_wide_" : "_forward_");
	read_rows(launch, c, X, !wide && access_of(c) == EK_ACCESS_SHIFTED);
	read_operand(launch, c, WEIGHT);
	read_operand(launch, c, BIAS);
	for (int id = Y; id <= Y_MEAN_LO; id++)
		write_operand(launch, c, (enum operand_id)id);
	if (wide)
		read_again(launch, call, policy, 1, statistics_looks(c) + 1);
}

static void read_statistics(struct launch *launch, const struct norm_case *c)
{
	for (int id = MEAN; id <= MEAN_LO; id++)
		read_operand(launch, c, (enum operand_id)id);
}

/* The tree over the partial sums, 128 at a time. */
static void plan_folds(struct plan *plan, const struct norm_case *c, int64_t partials)
{
	for (; partials > 128; partials = quotient_up(partials, 128)) {
		struct launch *fold = add_launch(plan, "_backward_fold_");
		fold->of[WORKSPACE] = (struct moved){.read = partials * sums_bytes(c),
						     .written = quotient_up(partials, 128) * sums_bytes(c),
						     .read_in_all_at_most = partials * sums_bytes(c)};
	}
	struct launch *final = add_launch(plan, "_backward_final_");
	final->of[WORKSPACE].read = final->of[WORKSPACE].read_in_all_at_most = partials * sums_bytes(c);
	for (int id = DWEIGHT; id <= DBIAS; id++) {
		write_operand(final, c, (enum operand_id)id);
		if (c->form & FORM_ACCUMULATE)
			read_operand(final, c, (enum operand_id)id);
	}
}

/* Sums of chunks that shared memory has no room for. */
static int64_t chunks_of(const struct call *call, const struct ek_policy *policy)
{
	const struct norm_case *c = call->c;
	struct ek_backward_form form = {.dtype = c->dtype,
					.weight_dtype = c->weight_dtype,
					.cols = c->cols,
					.shifted = access_of(c) == EK_ACCESS_SHIFTED,
					.sums = (int)sums_of(c)};
	int bytes = ek_backward_chunk_bytes(policy, &form);
	if (sums_of(c) == 0 || ek_slot_rows(c->rows, c->cols) <= EK_CHUNK_ROWS ||
	    ek_backward_shared(policy, &form) + bytes <= call->gpu->shared_limit)
		return 0;
	return bytes * quotient_up(ek_slot_count(c->rows, c->cols), ek_policy_slots(policy)) *
	       ek_policy_cluster(policy);
}

static void plan_in_registers(struct plan *plan, const struct call *call, const struct ek_policy *policy)
{
	const struct norm_case *c = call->c;
	const bool shifted = access_of(c) == EK_ACCESS_SHIFTED;
	const int64_t partials = quotient_up(ek_slot_count(c->rows, c->cols), ek_policy_slots(policy));
	const int64_t chunks = chunks_of(call, policy);
	struct launch *launch = add_launch(plan, "_backward_");
	read_rows(launch, c, X, shifted);
	read_rows(launch, c, DY, shifted);
	read_statistics(launch, c);
	if (c->form & FORM_DX)
		read_operand(launch, c, WEIGHT);
	write_operand(launch, c, DX);
	launch->of[WORKSPACE] = (struct moved){.read = chunks, .written = partials * sums_bytes(c) + chunks};
	if (sums_of(c))
		plan_folds(plan, c, partials);
}

/* As norm.c has it: several slots a warp where all multiprocessors have enough to do. */
static int64_t walked_slots(const struct call *call)
{
	const struct norm_case *c = call->c;
	int64_t slots = ek_slot_count(c->rows, c->cols),
		strips = quotient_up(c->cols * element_bytes(c), 512), walk = 1;
	while (walk < EK_MOST_WALK_SLOTS && walk < slots &&
	       slots * strips / (2 * walk) >= (int64_t)call->gpu->multiprocessors * 16)
		walk *= 2;
	return walk;
}

/* Rows that no registers hold are read by two kernels: their sums must be there before dx, and the columns walk them in
 * another direction. */
static void plan_wide(struct plan *plan, const struct call *call, const struct ek_policy *policy)
{
	const struct norm_case *c = call->c;
	const bool given = c->form & FORM_RSTD, dx = c->form & FORM_DX, sums = sums_of(c) > 0;
	struct launch *rows = add_launch(plan, "_backward_wide_rows_");
	read_statistics(rows, c);
	if (dx || !given)
		read_rows(rows, c, X, false);
	if (dx) {
		read_rows(rows, c, DY, false);
		read_operand(rows, c, WEIGHT);
	}
	read_again(rows, call, policy, 2, (given ? 0 : statistics_looks(c)) + 1 + !sums);
	if (!sums) {
		write_operand(rows, c, DX);
		return;
	}
	enum { USED_NUMBERS = 5 }; /* of the EK_ROW_NUMBERS that make whole quads */
	rows->of[WORKSPACE].written = c->rows * USED_NUMBERS * real_bytes(c);
	const int64_t partials = quotient_up(ek_slot_count(c->rows, c->cols), walked_slots(call));
	struct launch *columns = add_launch(plan, "_backward_wide_columns_");
	read_rows(columns, c, X, false);
	read_rows(columns, c, DY, false);
	if (dx)
		read_operand(columns, c, WEIGHT);
	write_operand(columns, c, DX);
	columns->of[WORKSPACE] = (struct moved){.read = c->rows * EK_ROW_NUMBERS * real_bytes(c),
						.written = partials * sums_bytes(c)};
	plan_folds(plan, c, partials);
}

struct plan plan_of(const struct call *call)
{
	struct plan plan = {.count = 0};
	struct ek_policy policy = policy_of(call);
	if (!call->c->backward)
		plan_forward(&plan, call, &policy);
	else if (policy.unit_segments > 0)
		plan_wide(&plan, call, &policy);
	else
		plan_in_registers(&plan, call, &policy);
	return plan;
}
