/* The bytes that calls move, counted launch by launch and tensor by tensor on the stand-in GPU (standin/traffic.c): as
 * many different ones as the operands have and the cost model says (ek_norm_cost), and what is read but once is asked for
 * but once. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "../cli/memory.h"
#include "cuda/gpu.h"
#include "cuda/policy.h"
#include "ref/slots.h"
#include "support_models.h"
#include "support_standin.h"

/* ---- what a call has in device memory: an allocation for each operand ---- */

static const char *const names[OPERANDS] = {
	"x",      "dy",     "weight",    "bias", "mean",    "rstd",  "mean_lo",   "y",
	"y_mean", "y_rstd", "y_mean_lo", "dx",   "dweight", "dbias", "workspace",
};

struct call {
	const struct norm_case *c;
	struct model model;
	struct ek_gpu *gpu;
	void *start[OPERANDS]; /* of its allocation */
	void *at[OPERANDS];    /* the operand; NULL: there is none */
	size_t workspace;
};

static bool is_matrix(enum operand_id id)
{
	return id == X || id == DY || id == Y || id == DX;
}

static bool is_present(const struct norm_case *c, enum operand_id id)
{
	static const unsigned needs[OPERANDS] = {
		[WEIGHT] = FORM_WEIGHT,   [BIAS] = FORM_BIAS,         [MEAN] = FORM_MEAN,
		[RSTD] = FORM_RSTD,       [MEAN_LO] = FORM_MEAN_LO,   [Y_MEAN] = FORM_MEAN,
		[Y_RSTD] = FORM_RSTD,     [Y_MEAN_LO] = FORM_MEAN_LO, [DX] = FORM_DX,
		[DWEIGHT] = FORM_DWEIGHT, [DBIAS] = FORM_DBIAS};
	static const bool is_of[2][OPERANDS] = {
		{[X] = 1, [WEIGHT] = 1, [BIAS] = 1, [Y] = 1, [Y_MEAN] = 1, [Y_RSTD] = 1, [Y_MEAN_LO] = 1},
		{[X] = 1,
		 [DY] = 1,
		 [WEIGHT] = 1,
		 [MEAN] = 1,
		 [RSTD] = 1,
		 [MEAN_LO] = 1,
		 [DX] = 1,
		 [DWEIGHT] = 1,
		 [DBIAS] = 1}};
	return is_of[c->backward][id] && (needs[id] == 0 || c->form & needs[id]);
}

static int64_t real_bytes(const struct norm_case *c)
{
	return c->dtype == EK_F64 ? 8 : 4;
}

static int64_t element_bytes(const struct norm_case *c)
{
	return (int64_t)ek_dtype_size(c->dtype);
}

static int64_t stride_of(const struct norm_case *c, enum operand_id id)
{
	return (c->cols + c->pad[id]) * element_bytes(c);
}

/* Its numbers, without gaps between rows. */
static int64_t operand_bytes(const struct norm_case *c, enum operand_id id)
{
	if (is_matrix(id))
		return c->rows * c->cols * element_bytes(c);
	if (id == WEIGHT || id == BIAS || id == DWEIGHT || id == DBIAS)
		return c->cols * (int64_t)ek_dtype_size(c->weight_dtype);
	return c->rows * real_bytes(c);
}

static void make_operand(struct call *call, enum operand_id id, size_t bytes)
{
	size_t offset = (size_t)call->c->offset[id];
	call->start[id] = memory_make(call->gpu, offset + bytes);
	call->at[id] = (char *)call->start[id] + offset;
	EXPECT(call->start[id], "no memory for %s", names[id]);
}

static ek_norm_forward_args forward_args(const struct call *call)
{
	const struct norm_case *c = call->c;
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = c->norm,
				      .dtype = c->dtype,
				      .weight_dtype = c->weight_dtype,
				      .rows = c->rows,
				      .cols = c->cols,
				      .x_stride = c->cols + c->pad[X],
				      .y_stride = c->cols + c->pad[Y],
				      .eps = 1e-5,
				      .x = call->at[X],
				      .weight = call->at[WEIGHT],
				      .bias = call->at[BIAS],
				      .y = call->at[Y],
				      .mean = call->at[Y_MEAN],
				      .rstd = call->at[Y_RSTD],
				      .mean_lo = call->at[Y_MEAN_LO]};
}

static ek_norm_backward_args backward_args(const struct call *call)
{
	const struct norm_case *c = call->c;
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = c->norm,
				       .dtype = c->dtype,
				       .weight_dtype = c->weight_dtype,
				       .rows = c->rows,
				       .cols = c->cols,
				       .x_stride = c->cols + c->pad[X],
				       .dy_stride = c->cols + c->pad[DY],
				       .dx_stride = c->cols + c->pad[DX],
				       .eps = 1e-5,
				       .accumulate = (c->form & FORM_ACCUMULATE) != 0,
				       .dy = call->at[DY],
				       .x = call->at[X],
				       .weight = call->at[WEIGHT],
				       .mean = call->at[MEAN],
				       .rstd = call->at[RSTD],
				       .mean_lo = call->at[MEAN_LO],
				       .dx = call->at[DX],
				       .dweight = call->at[DWEIGHT],
				       .dbias = call->at[DBIAS],
				       .workspace = call->at[WORKSPACE],
				       .workspace_size = call->workspace};
}

/* Makes the operands and counts what the call moves. */
static bool run(struct call *call, ek_context *ctx)
{
	const struct norm_case *c = call->c;
	for (enum operand_id id = 0; id < WORKSPACE; id++) {
		int64_t gaps = is_matrix(id) ? (c->rows - 1) * c->pad[id] * element_bytes(c) : 0;
		if (is_present(c, id))
			make_operand(call, id, (size_t)(operand_bytes(c, id) + gaps));
	}
	ek_norm_backward_args args = backward_args(call);
	if (c->backward && ek_norm_backward_workspace(ctx, &args, &call->workspace) == EK_OK &&
	    call->workspace)
		make_operand(call, WORKSPACE, call->workspace);
	args = backward_args(call);
	ek_norm_forward_args forward = forward_args(call);
	standin.traffic_count(true);
	ek_status status = c->backward ? ek_norm_backward(ctx, &args) : ek_norm_forward(ctx, &forward);
	EXPECT(status == EK_OK, "%s, %s: %s", case_text(c), name_of(call->model), ek_error(ctx));
	return status == EK_OK;
}

/* ---- what its launches should move ---- */

struct moved {
	int64_t read, written;
	int64_t read_in_all_at_most; /* 0: it may be read often, which the L2 serves */
};

enum { MOST_LAUNCHES = 6 };
struct launch {
	const char *part; /* of the kernel's name */
	struct moved of[OPERANDS];
};
struct plan {
	struct launch launches[MOST_LAUNCHES];
	int count;
};

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
			bits |= c->offset[id] | stride_of(c, id);
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
		int64_t before = (c->offset[id] + row * stride_of(c, id)) % 16,
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

static struct plan plan_of(const struct call *call)
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

/* ---- the comparison ---- */

static void compare_operand(const struct call *call, const struct launch *launch, enum operand_id id,
			    const struct standin_traffic *is)
{
	const struct moved *want = &launch->of[id];
	EXPECT(is->read == want->read && is->written == want->written,
	       "%s, %s: %s moves of %s %lld bytes in and %lld out, not %lld and %lld", case_text(call->c),
	       name_of(call->model), is->kernel, names[id], (long long)is->read, (long long)is->written,
	       (long long)want->read, (long long)want->written);
	EXPECT(is->written_in_all == is->written || id == WORKSPACE,
	       "%s, %s: %s writes parts of %s twice: %lld bytes in all", case_text(call->c),
	       name_of(call->model), is->kernel, names[id], (long long)is->written_in_all);
	EXPECT(want->read_in_all_at_most == 0 || is->read_in_all <= want->read_in_all_at_most,
	       "%s, %s: %s asks for %lld bytes of %s, where %lld would do", case_text(call->c),
	       name_of(call->model), is->kernel, (long long)is->read_in_all, names[id],
	       (long long)want->read_in_all_at_most);
}

/* Of the launch with this number; zeros where it does not touch the operand. */
static struct standin_traffic traffic_of(const struct call *call, int number, enum operand_id id)
{
	struct standin_traffic record;
	for (int i = 0; standin.traffic_get(i, &record); i++)
		if (record.launch == number && record.buffer == call->start[id])
			return record;
	return (struct standin_traffic){.kernel = "the kernel", .launch = number};
}

static void compare(const struct call *call, const struct plan *plan)
{
	struct standin_traffic record;
	int launches = 0;
	for (int i = 0; standin.traffic_get(i, &record); i++) {
		launches = record.launch + 1;
		EXPECT(record.launch < plan->count &&
			       strstr(record.kernel, plan->launches[record.launch].part),
		       "%s, %s: launch %d is %s", case_text(call->c), name_of(call->model), record.launch,
		       record.kernel);
	}
	EXPECT(launches == plan->count, "%s, %s: %d launches, not %d", case_text(call->c),
	       name_of(call->model), launches, plan->count);
	for (int n = 0; n < plan->count; n++)
		for (enum operand_id id = 0; id < OPERANDS; id++) {
			if (!call->start[id])
				continue;
			struct standin_traffic is = traffic_of(call, n, id);
			compare_operand(call, &plan->launches[n], id, &is);
		}
}

/* ---- the cost model ---- */

static unsigned form_without(bool backward, int absent)
{
	unsigned form = FORM_STATS;
	form |= absent & EK_NO_WEIGHT ? 0 : FORM_WEIGHT | (backward ? FORM_DWEIGHT : 0);
	form |= absent & EK_NO_BIAS ? 0 : backward ? FORM_DBIAS : FORM_BIAS;
	form &= ~(unsigned)(absent & EK_NO_STATISTICS ? FORM_STATS
			    : absent & EK_NO_MEAN_LO  ? FORM_MEAN_LO
						      : 0);
	return form | (backward ? FORM_DX : 0);
}

static ek_cost cost_of(const struct call *call, int absent)
{
	const struct norm_case *c = call->c;
	ek_cost cost = {.size = sizeof cost};
	ek_cost_args args = {.size = sizeof args,
			     .norm = c->norm,
			     .pass = c->backward ? EK_BACKWARD : EK_FORWARD,
			     .variant = EK_EVENKEEL,
			     .device = EK_CUDA,
			     .dtype = c->dtype,
			     .weight_dtype = c->weight_dtype,
			     .batch_size = 1,
			     .seq_len = c->rows,
			     .hidden_size = c->cols,
			     .absent = absent,
			     .arch = call->model.arch,
			     .multiprocessors = call->model.multiprocessors};
	EXPECT(ek_norm_cost(&args, &cost) == EK_OK, "%s: %s", case_text(c), ek_error(NULL));
	return cost;
}

/* Launch by launch, of all tensors together. */
static void compare_with_model(const struct call *call, int absent)
{
	const ek_cost cost = cost_of(call, absent);
	struct standin_traffic all[EK_COST_KERNELS] = {0}, record;
	int launches = 0;
	for (int i = 0; standin.traffic_get(i, &record) && record.launch < EK_COST_KERNELS; i++) {
		struct standin_traffic *sum = &all[record.launch];
		memcpy(sum->kernel, record.kernel, sizeof sum->kernel);
		sum->read += record.read;
		sum->written += record.written;
		launches = record.launch + 1;
	}
	EXPECT(launches == cost.kernel_count, "%s: %d launches, %d in the model", case_text(call->c),
	       launches, cost.kernel_count);
	for (int i = 0; i < launches && i < cost.kernel_count; i++) {
		const ek_cost_kernel *model = &cost.kernels[i];
		EXPECT(strstr(all[i].kernel, model->name) && all[i].read == model->read_bytes &&
			       all[i].written == model->write_bytes,
		       "%s, %s: %s reads %lld and writes %lld bytes; %s of the model %lld and %lld",
		       case_text(call->c), name_of(call->model), all[i].kernel, (long long)all[i].read,
		       (long long)all[i].written, model->name, (long long)model->read_bytes,
		       (long long)model->write_bytes);
	}
}

/* absent: of ek_cost_args; below 0: no form that the model has. */
static void check_absent(struct model model, const struct norm_case *c, int absent)
{
	ek_context *ctx = context_on(model);
	struct call call = {.c = c, .model = model, .gpu = gpu_of(ctx)};
	if (run(&call, ctx)) {
		struct plan plan = plan_of(&call);
		compare(&call, &plan);
		if (absent >= 0)
			compare_with_model(&call, absent);
	}
	standin.traffic_count(false);
	for (enum operand_id id = 0; id < OPERANDS; id++)
		memory_free(call.gpu, call.start[id]);
}

static void check_on(struct model model, const struct norm_case *c)
{
	check_absent(model, c, -1);
}

/* ---- cases ---- */

static const struct model h200 = {90, 132};

/* Which operands there are, by turns. */
static unsigned form_at(bool backward, int turn)
{
	enum { BOTH = FORM_DWEIGHT | FORM_DBIAS };
	static const unsigned forward[] = {FORM_FORWARD, FORM_WEIGHT, 0, FORM_BIAS | FORM_RSTD,
					   FORM_WEIGHT | FORM_BIAS | FORM_MEAN};
	static const unsigned backwards[] = {FORM_BACKWARD,
					     FORM_WEIGHT | FORM_DX | BOTH,
					     FORM_STATS | FORM_DX | FORM_WEIGHT,
					     FORM_STATS | FORM_WEIGHT | FORM_DWEIGHT,
					     FORM_MEAN | FORM_RSTD | FORM_DX | BOTH | FORM_ACCUMULATE,
					     FORM_WEIGHT | FORM_DX,
					     BOTH};
	return backward ? backwards[turn % COUNT_OF(backwards)] : forward[turn % COUNT_OF(forward)];
}

/* Dense rows, or with gaps, or such as start anywhere. */
enum layout { DENSE, GAPS, SHIFTED_GAPS, ODD_BYTES, LAYOUTS };

static void lay_out(struct norm_case *c, enum layout layout, int turn)
{
	static const enum ek_access accesses[] = {[GAPS] = EK_ACCESS_QUADS,
						  [SHIFTED_GAPS] = EK_ACCESS_SHIFTED,
						  [ODD_BYTES] = EK_ACCESS_ELEMENTS};
	if (layout != DENSE)
		case_lay_out(c, accesses[layout], turn % 4);
}

static void check_shape(struct model model, int64_t rows, int64_t cols, enum layout layout)
{
	static int turn;
	int each = test_mode == TEST_LONG ? 12 : test_mode == TEST_DEFAULT ? 4 : 2;
	for (int k = 0; k < each; k++, turn++) {
		struct norm_case c = case_for(k & 1, (k >> 1 ^ turn / 4) & 1,
					      dtype_pairs[(turn / 2) % DTYPE_PAIRS], rows, cols);
		c.form = form_at(c.backward, turn / 2);
		case_normalise(&c);
		lay_out(&c, layout, turn / 2);
		check_on(model, &c);
	}
}

static void narrow_rows(void)
{
	check_shape(h200, 70, 8, DENSE);
	check_shape(h200, 33, 100, DENSE);
	check_shape(h200, 19, 256, GAPS);
	check_shape(h200, 9, 61, SHIFTED_GAPS);
}

static void middle_rows(void)
{
	check_shape(h200, 5, 768, DENSE);
	check_shape(h200, 9, 1000, GAPS);
	check_shape(h200, 3, 4096, DENSE);
	check_shape(h200, 7, 5001, DENSE);
	check_shape(h200, 4, 3333, SHIFTED_GAPS);
	check_shape(h200, 4, 2050, ODD_BYTES);
}

static void wide_rows(void)
{
	check_shape(h200, 3, 8192, GAPS);
	check_shape(h200, 3, 16384, DENSE);
	check_shape(h200, 2, 20001, SHIFTED_GAPS);
	check_shape(h200, 2, 70001, ODD_BYTES);
	check_shape(h200, 2, 131072, DENSE);
}

/* Shared memory holds a row in part; passes over it go to and fro. */
static void rows_that_are_read_again(void)
{
	static const struct model small = {80, 108};
	check_shape(small, 2, 100001, GAPS);
	check_shape(small, 1, 50003, DENSE);
}

/* Slots of several rows and of several chunks, walks of several slots, one step over their partial sums and two. */
static void many_rows(void)
{
	static const struct model small = {86, 20}, one = {86, 1};
	check_shape(h200, 2049, 8, DENSE);
	check_shape(h200, rows_of_slots(8, EK_CHUNK_ROWS + 1), 8, DENSE);
	check_shape(small, 1100, 700, DENSE);
	check_shape(one, 70, 300, GAPS);
}

/* Where sums of chunks are in the workspace. */
static void chunks_without_room_in_shared_memory(void)
{
	struct norm_case c =
		case_for(true, 1, dtype_pairs[2], rows_of_slots(16385, EK_CHUNK_ROWS + 1), 16385);
	if (test_mode != TEST_SHORT)
		check_absent((struct model){120, 20}, &c, 0);
}

/* Dense rows, which the model is about, in every form that it knows. */
static void the_cost_model_has_what_is_counted(void)
{
	static const struct model other = {80, 108}, small = {86, 20}, one = {86, 1};
	static const int statistics[] = {0, EK_NO_MEAN_LO, EK_NO_STATISTICS};
	static const struct {
		const struct model *model;
		int64_t rows, cols;
	} shapes[] = {{&h200, 70, 8},      {&h200, 33, 100},    {&h200, 300, 768}, {&h200, 5, 1000},
		      {&h200, 9, 4096},    {&h200, 3, 5001},    {&h200, 3, 8192},  {&h200, 2, 20000},
		      {&h200, 2, 70001},   {&h200, 1, 131072},  {&h200, 65537, 8}, {&small, 1100, 700},
		      {&other, 2, 100000}, {&other, 37, 20001}, {&one, 70, 300},   {&h200, 1, 1}};
	enum { FORMS = 12 }; /* each of the statistics, with and without weight and bias */
	int turn = 0, step = test_mode == TEST_LONG ? 1 : test_mode == TEST_DEFAULT ? 5 : 11;
	for (int i = 0; i < COUNT_OF(shapes) * FORMS; i += step)
		for (int k = 0; k < 2; k++, turn++) {
			int shape = i / FORMS, form = i % FORMS;
			int absent = statistics[form % 3] | (form / 3 & (EK_NO_WEIGHT | EK_NO_BIAS));
			struct norm_case c = case_for(k, turn / 2 & 1, dtype_pairs[turn / 4 % DTYPE_PAIRS],
						      shapes[shape].rows, shapes[shape].cols);
			c.form = form_without(c.backward, absent);
			case_normalise(&c);
			check_absent(*shapes[shape].model, &c, absent);
		}
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	standin_open();
	TEST(narrow_rows);
	TEST(middle_rows);
	TEST(wide_rows);
	TEST(rows_that_are_read_again);
	TEST(many_rows);
	TEST(chunks_without_room_in_shared_memory);
	TEST(the_cost_model_has_what_is_counted);
	return test_end();
}
