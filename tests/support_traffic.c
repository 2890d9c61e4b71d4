/* Calls whose operands are an allocation each, and what each launch of a norm call should move of each operand, from the
 * sizes and the policy alone; support_traffic.h says what. SPDX-License-Identifier: MIT */
#include "support_traffic.h"

#include <string.h>

#include "core/sizes.h"
#include "core/slots.h"
#include "ops/norm/plan.h"
#include "verify/memory.h"

/* ---- a call ---- */

static void *make(struct call *call, const char *name, size_t offset, size_t bytes, void **start)
{
	*start = memory_make(call->gpu, offset + bytes);
	EXPECT(*start, "no memory for %s", name);
	return (char *)*start + offset;
}

bool call_run(struct call *call)
{
	const struct test_case *c = call->c;
	const struct ek_op *op = case_op(c);
	ek_context *ctx = context_on(call->model);
	void *at[EK_MOST_OPERANDS] = {NULL};
	union op_args args;
	size_t bytes = 0;
	call->gpu = gpu_of(ctx);
	case_args(c, NULL, &args);
	for (int i = 0; i < op->operand_count; i++)
		if (c->present >> i & 1)
			at[i] = make(call, op->operands[i].name, (size_t)c->offset[i],
				     ek_operand_bytes(op, &op->operands[i], &args), &call->start[i]);
	case_args(c, at, &args);
	if (args_workspace(op, ctx, &args, &bytes) == EK_OK && bytes)
		args_set_workspace(op, &args, make(call, "workspace", 0, bytes, &call->start[WORKSPACE]),
				   bytes);
	standin.traffic_count(true);
	ek_status status = op->call(ctx, &args);
	EXPECT(status == EK_OK, "%s, %s: %s", case_text(c), name_of(call->model), ek_error(ctx));
	return status == EK_OK;
}

void call_free(struct call *call)
{
	standin.traffic_count(false);
	for (int i = 0; i <= WORKSPACE; i++)
		memory_free(call->gpu, call->start[i]);
}

/* ---- what its launches should move ---- */

static struct launch *add_launch(struct plan *plan, const char *part)
{
	EXPECT(plan->count < MOST_LAUNCHES, "over %d launches", MOST_LAUNCHES);
	plan->count -= plan->count == MOST_LAUNCHES;
	struct launch *launch = &plan->launches[plan->count++];
	*launch = (struct launch){.part = part};
	return launch;
}

static int64_t element_bytes(const struct test_case *c)
{
	return (int64_t)ek_dtype_size(c->dtype);
}

static int64_t real_bytes(const struct test_case *c)
{
	return c->dtype == EK_F64 ? 8 : 4;
}

static int alignment_of(const struct test_case *c)
{
	int64_t bits = 0;
	bool strips = (c->group_cols ? c->group_cols : c->cols) % 8 == 4;
	for (int i = 0; i < case_op(c)->operand_count; i++)
		if (case_op(c)->operands[i].rank > 1 && c->present >> i & 1) {
			int64_t at = c->offset[i] | stride_bytes(c, i);
			strips = strips && at % (4 * (int64_t)ek_dtype_size(operand_dtype(c, i))) == 0;
			bits |= at;
		}
	return bits % 16 == 0                 ? ACCESS_QUADS
	       : strips                       ? ACCESS_HALF_QUADS
	       : bits % element_bytes(c) == 0 ? ACCESS_SHIFTED
					      : ACCESS_ELEMENTS;
}

/* Whether the operand is one of the sums over the rows. */
static bool is_sum(const struct test_case *c, int number)
{
	return case_op(c)->operands[number].flags & EK_ACCUMULATES;
}

static int64_t sums_of(const struct test_case *c)
{
	int64_t sums = 0;
	for (int i = 0; i < case_op(c)->output_count; i++)
		sums += c->present >> i & 1 && is_sum(c, i);
	return sums;
}

static struct ek_norm_form form_of(const struct test_case *c)
{
	union op_args args;
	case_args_nowhere(c, &args);
	return c->pass == BACKWARD ? ek_norm_backward_form(&args.backward, alignment_of(c))
				   : ek_norm_forward_form(&args.forward, alignment_of(c));
}

static struct ek_norm_policy policy_of(const struct call *call)
{
	const struct test_case *c = call->c;
	const struct ek_norm_form form = form_of(c);
	return (c->pass == BACKWARD ? ek_backward_policy : ek_forward_policy)(&form, &call->gpu->limits);
}

static int64_t groups_of(const struct test_case *c)
{
	return ek_norm_groups(c->cols, c->group_cols);
}

/* Of all partial sums of one slot or of several. */
static int64_t sums_bytes(const struct test_case *c)
{
	return sums_of(c) * groups_of(c) * quotient_up(c->cols / groups_of(c) * real_bytes(c), 16) * 16;
}

static void read_operand(struct launch *launch, const struct test_case *c, const char *name)
{
	int i = operand_number(case_op(c), name);
	if (c->present >> i & 1)
		launch->of[i].read = operand_bytes(c, i);
}

/* Rows that start anywhere are fetched in quads of memory: what lies before a row in its first quad comes along, up to 14
 * bytes of the gap between two rows, unless that is before the tensor; nothing behind a row does. Two warps that
 * share a row both fetch the quad at their border. */
static void read_rows(struct launch *launch, const struct test_case *c, const char *name, bool shifted)
{
	int id = operand_number(case_op(c), name);
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

/* Of all tensors that are there but one. */
static void read_all_rows(struct launch *launch, const struct test_case *c, bool shifted, const char *but)
{
	const struct ek_op *op = case_op(c);
	for (int i = op->output_count; i < op->operand_count; i++)
		if (c->present >> i & 1 && op->operands[i].rank > 1 && strcmp(op->operands[i].name, but) != 0)
			read_rows(launch, c, op->operands[i].name, shifted);
}

static void write_operand(struct launch *launch, const struct test_case *c, const char *name)
{
	int i = operand_number(case_op(c), name);
	if (c->present >> i & 1)
		launch->of[i].written = operand_bytes(c, i);
}

/* All outputs but the sums over the rows. */
static void write_rows(struct launch *launch, const struct test_case *c)
{
	for (int i = 0; i < case_op(c)->output_count; i++)
		if (!is_sum(c, i))
			write_operand(launch, c, case_op(c)->operands[i].name);
}

/* staged.cu makes several passes over a row, and fetches again what shared memory has no room for. */
static void read_again(struct launch *launch, const struct call *call, const struct ek_norm_policy *policy,
		       int passes)
{
	int64_t warps = policy->row_warps * policy->row_blocks;
	int64_t turns = quotient_up(ek_policy_units(policy, call->c->cols / groups_of(call->c)), warps) *
			policy->unit_segments;
	for (int i = 0; i < case_op(call->c)->operand_count; i++)
		launch->of[i].read_in_all_at_most *= policy->tiles >= turns ? 1 : passes;
}

static int statistics_passes(const struct test_case *c)
{
	return c->op->kind == EK_LAYER_NORM ? 2 : 1;
}

static void plan_forward(struct plan *plan, const struct call *call, const struct ek_norm_policy *policy)
{
	const struct test_case *c = call->c;
	bool staged = policy->unit_segments > 0;
	struct launch *launch = add_launch(plan, staged ? "_forward_staged_" : "_forward_");
	read_all_rows(launch, c, !staged && form_of(c).access == ACCESS_SHIFTED, "");
	for (int i = case_op(c)->output_count; i < case_op(c)->operand_count; i++)
		if (case_op(c)->operands[i].rank == 1)
			read_operand(launch, c, case_op(c)->operands[i].name);
	write_rows(launch, c);
	if (staged)
		read_again(launch, call, policy, statistics_passes(c) + 1);
}

static void read_statistics(struct launch *launch, const struct test_case *c)
{
	for (int i = 0; i < case_op(c)->operand_count; i++)
		if (case_statistics(c) >> i & 1)
			read_operand(launch, c, case_op(c)->operands[i].name);
}

/* The tree over the partial sums, 256 at a time. */
static void plan_folds(struct plan *plan, const struct test_case *c, int64_t partials)
{
	for (; partials > 256; partials = quotient_up(partials, 256)) {
		struct launch *fold = add_launch(plan, "_columns_fold_");
		fold->of[WORKSPACE] = (struct moved){.read = partials * sums_bytes(c),
						     .written = quotient_up(partials, 256) * sums_bytes(c),
						     .read_in_all_at_most = partials * sums_bytes(c)};
	}
	struct launch *final = add_launch(plan, "_columns_final_");
	final->of[WORKSPACE].read = final->of[WORKSPACE].read_in_all_at_most = partials * sums_bytes(c);
	for (int i = 0; i < case_op(c)->output_count; i++)
		if (is_sum(c, i)) {
			write_operand(final, c, case_op(c)->operands[i].name);
			if (c->accumulate)
				read_operand(final, c, case_op(c)->operands[i].name);
		}
}

/* What the main kernel folds the slots into. Narrow rows leave room in a warp for several slots, or for the chunks of fewer. */
static int64_t partials_of(const struct test_case *c, const struct ek_norm_policy *policy)
{
	const int64_t chunks = quotient_up(ek_slot_rows(c->rows, c->cols), CHUNK_ROWS);
	int walkers = 1;
	while (walkers < chunks && walkers * policy->row_threads < 32)
		walkers *= 2;
	return quotient_up(ek_slot_count(c->rows, c->cols) * walkers, ek_policy_slots(policy));
}

/* Sums of chunks that shared memory has no room for. */
static int64_t chunks_of(const struct call *call, const struct ek_norm_policy *policy)
{
	const struct test_case *c = call->c;
	const struct ek_norm_form form = form_of(c);
	int bytes = ek_backward_chunk_bytes(policy, &form);
	if (sums_of(c) == 0 || ek_slot_rows(c->rows, c->cols) <= CHUNK_ROWS ||
	    ek_backward_shared(policy, &form) + bytes <= call->gpu->limits.shared_bytes)
		return 0;
	return bytes * partials_of(c, policy) * ek_policy_cluster(policy) * groups_of(c);
}

static bool needs_dx(const struct test_case *c)
{
	return case_has(c, "dx") || case_has(c, "dresidual") || case_has(c, "dx_bias") ||
	       case_has(c, "dgate");
}

static void plan_in_registers(struct plan *plan, const struct call *call, const struct ek_norm_policy *policy)
{
	const struct test_case *c = call->c;
	const bool shifted = form_of(c).access == ACCESS_SHIFTED;
	const int64_t partials = partials_of(c, policy);
	const int64_t chunks = chunks_of(call, policy);
	struct launch *launch = add_launch(plan, "_backward_");
	read_all_rows(launch, c, shifted, "");
	read_statistics(launch, c);
	read_operand(launch, c, "x_bias");
	read_operand(launch, c, "bias");
	if (needs_dx(c) || c->activation)
		read_operand(launch, c, "weight");
	write_rows(launch, c);
	launch->of[WORKSPACE] = (struct moved){.read = chunks, .written = partials * sums_bytes(c) + chunks};
	if (sums_of(c))
		plan_folds(plan, c, partials);
}

/* As plan.c has it: several slots a warp where all multiprocessors have enough to do. */
static int64_t walked_slots(const struct call *call)
{
	const struct test_case *c = call->c;
	int64_t slots = ek_slot_count(c->rows, c->cols),
		strips = groups_of(c) *
			 quotient_up(c->cols / groups_of(c) * (int64_t)ek_dtype_size(form_of(c).dtype), 512),
		walk = 1;
	while (walk < MOST_WALK_SLOTS && walk < slots &&
	       slots * strips / (2 * walk) >= (int64_t)call->gpu->limits.multiprocessors * 16)
		walk *= 2;
	return walk;
}

/* Rows that no registers hold are read by two kernels: their sums must be there before dx, and the columns walk them in
 * another direction. */
static void plan_staged(struct plan *plan, const struct call *call, const struct ek_norm_policy *policy)
{
	const struct test_case *c = call->c;
	const bool given = case_has(c, "rstd"), dx = needs_dx(c), sums = sums_of(c) > 0;
	struct launch *rows = add_launch(plan, "_backward_staged_rows_");
	read_statistics(rows, c);
	if (dx || !given) {
		read_rows(rows, c, "x", false);
		read_operand(rows, c, "x_bias");
	}
	if (dx) {
		read_all_rows(rows, c, false, sums ? "dh" : "");
		read_operand(rows, c, "weight");
		read_operand(rows, c, "bias");
	}
	read_again(rows, call, policy, (given ? 0 : statistics_passes(c)) + 1 + !sums);
	if (!sums) {
		write_rows(rows, c);
		return;
	}
	enum { USED_NUMBERS = 5 }; /* of the ROW_NUMBERS that make whole quads */
	rows->of[WORKSPACE].written = c->rows * groups_of(c) * USED_NUMBERS * real_bytes(c);
	const int64_t partials = quotient_up(ek_slot_count(c->rows, c->cols), walked_slots(call));
	struct launch *columns = add_launch(plan, "_backward_staged_columns_");
	read_all_rows(columns, c, false, "");
	read_operand(columns, c, "x_bias");
	read_operand(columns, c, "bias");
	if (dx || c->activation)
		read_operand(columns, c, "weight");
	write_rows(columns, c);
	columns->of[WORKSPACE] = (struct moved){.read = c->rows * groups_of(c) * ROW_NUMBERS * real_bytes(c),
						.written = partials * sums_bytes(c)};
	plan_folds(plan, c, partials);
}

struct plan plan_of(const struct call *call)
{
	struct plan plan = {.count = 0};
	struct ek_norm_policy policy = policy_of(call);
	if (call->c->pass == FORWARD)
		plan_forward(&plan, call, &policy);
	else if (policy.unit_segments > 0)
		plan_staged(&plan, call, &policy);
	else
		plan_in_registers(&plan, call, &policy);
	return plan;
}
