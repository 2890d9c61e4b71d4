/* The bytes that calls move, counted launch by launch and tensor by tensor on the stand-in GPU (standin/traffic.c): as
 * many different ones as the operands have and the cost model says (ek_norm_cost), and what is read but once is asked for
 * but once. SPDX-License-Identifier: MIT */
#include <string.h>

#include "core/slots.h"
#include "support_traffic.h"

SETUP()
{
	standin_open();
}

/* ---- the comparison ---- */

static void compare_operand(const struct call *call, const struct launch *launch, int id,
			    const struct standin_traffic *is)
{
	const struct moved *want = &launch->of[id];
	const char *name = id == WORKSPACE ? "workspace" : case_op(call->c)->operands[id].name;
	EXPECT(is->read == want->read && is->written == want->written,
	       "%s, %s: %s moves of %s %lld bytes in and %lld out, not %lld and %lld", case_text(call->c),
	       name_of(call->model), is->kernel, name, (long long)is->read, (long long)is->written,
	       (long long)want->read, (long long)want->written);
	EXPECT(is->written_in_all == is->written || id == WORKSPACE,
	       "%s, %s: %s writes parts of %s twice: %lld bytes in all", case_text(call->c),
	       name_of(call->model), is->kernel, name, (long long)is->written_in_all);
	EXPECT(want->read_in_all_at_most == 0 || is->read_in_all <= want->read_in_all_at_most,
	       "%s, %s: %s asks for %lld bytes of %s, where %lld would do", case_text(call->c),
	       name_of(call->model), is->kernel, (long long)is->read_in_all, name,
	       (long long)want->read_in_all_at_most);
}

/* Of the launch with this number; zeros where it does not touch the operand. */
static struct standin_traffic traffic_of(const struct call *call, int number, int id)
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
		for (int id = 0; id <= WORKSPACE; id++) {
			if (!call->start[id])
				continue;
			struct standin_traffic is = traffic_of(call, n, id);
			compare_operand(call, &plan->launches[n], id, &is);
		}
}

/* ---- the cost model ---- */

/* The operands that the model speaks of: those of a plain norm unless they are absent, others with a flag. */
static void set_operands(struct test_case *c, int absent, int with)
{
	bool own_dresidual = with & EK_WITH_RESIDUAL && c->h_dtype;
	case_drop(c, absent & EK_NO_WEIGHT ? "weight dweight" : "");
	case_add(c, "bias"); /* backward's, which goes with an activation */
	case_drop(c, absent & EK_NO_BIAS ? "bias dbias" : "");
	case_drop(c, absent & EK_NO_STATISTICS ? STATISTICS : absent & EK_NO_MEAN_LO ? "mean_lo" : "");
	case_drop(c,
		  with & EK_WITH_GATE ? "residual residual_after x_bias dx_bias dh dresidual" : "gate dgate");
	case_drop(c, with & EK_WITH_RESIDUAL ? "" : "residual h dh");
	case_add(c, with & EK_WITH_RESIDUAL_AFTER && c->pass == FORWARD ? "residual_after" : "");
	case_drop(c, own_dresidual ? "" : "dresidual");
	case_drop(c, with & EK_WITH_X_BIAS ? "" : "x_bias dx_bias");
	case_drop(c, c->pass == BACKWARD && with & EK_WITH_RESIDUAL ? "x_bias" : "");
}

/* absent: below 0: the model does not speak of this form. */
struct priced {
	int absent, with;
};

static ek_cost cost_of(const struct call *call, struct priced priced)
{
	const struct test_case *c = call->c;
	ek_cost cost = {.size = sizeof cost};
	ek_cost_args args = {.size = sizeof args,
			     .norm = (ek_norm)c->op->kind,
			     .pass = c->pass == BACKWARD ? EK_BACKWARD : EK_FORWARD,
			     .variant = EK_EVENKEEL,
			     .device = EK_CUDA,
			     .dtype = c->dtype,
			     .weight_dtype = c->weight_dtype,
			     .batch_size = 1,
			     .seq_len = c->rows,
			     .hidden_size = c->cols,
			     .group_cols = c->group_cols,
			     .absent = priced.absent,
			     .with = priced.with,
			     .h_dtype = c->h_dtype,
			     .y_dtype = c->y_dtype,
			     .gradient_dtype = c->gradient_dtype,
			     .weight_offset = c->weight_offset,
			     .rounding = (ek_rounding)c->rounding,
			     .activation = (ek_activation)c->activation,
			     .gate_first = c->gate_first,
			     .arch = call->model.arch,
			     .multiprocessors = call->model.multiprocessors};
	EXPECT(ek_norm_cost(&args, &cost) == EK_OK, "%s: %s", case_text(c), ek_error(NULL));
	return cost;
}

/* Launch by launch, of all tensors together. */
static void compare_with_model(const struct call *call, struct priced priced)
{
	const ek_cost cost = cost_of(call, priced);
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

static void check_priced(struct model model, const struct test_case *c, struct priced priced)
{
	struct call call = {.c = c, .model = model};
	if (call_run(&call)) {
		struct plan plan = plan_of(&call);
		compare(&call, &plan);
		if (priced.absent >= 0)
			compare_with_model(&call, priced);
	}
	call_free(&call);
}

/* ---- cases ---- */

/* Which operands there are, by turns. */
static const char *form_at(bool backward, int turn)
{
	static const char *const forward[] = {"all", "weight", "", "bias rstd", "weight bias mean"};
	static const char *const backwards[] = {"all",
						"weight dx dweight dbias",
						("dx weight " STATISTICS),
						("weight dweight " STATISTICS),
						"mean rstd dx dweight dbias accumulate",
						"weight dx",
						"dweight dbias"};
	return backward ? backwards[turn % COUNT_OF(backwards)] : forward[turn % COUNT_OF(forward)];
}

/* Dense rows, or with gaps, or such as start anywhere. */
enum layout { DENSE, GAPS, SHIFTED_GAPS, ODD_BYTES, LAYOUTS };

static void lay_out(struct test_case *c, enum layout layout, int turn)
{
	static const int accesses[] = {
		[GAPS] = ACCESS_QUADS, [SHIFTED_GAPS] = ACCESS_SHIFTED, [ODD_BYTES] = ACCESS_ELEMENTS};
	if (layout != DENSE)
		case_lay_out(c, accesses[layout], turn % 4);
}

/* One warp a row, several, clusters; rows that shared memory holds in part, so that passes go to and fro; slots of several
 * rows and of several chunks, walks of several slots, one step over their partial sums and two. */
TEST(launches_move_each_operand_once)
{
	const struct {
		struct model model;
		int64_t rows, cols;
		enum layout layout;
	} shapes[] = {{h200, 70, 8, DENSE},
		      {h200, 33, 100, DENSE},
		      {h200, 19, 256, GAPS},
		      {h200, 9, 61, SHIFTED_GAPS},
		      {h200, 5, 768, DENSE},
		      {h200, 9, 1000, GAPS},
		      {h200, 3, 4096, DENSE},
		      {h200, 7, 5001, DENSE},
		      {h200, 4, 3333, SHIFTED_GAPS},
		      {h200, 4, 2050, ODD_BYTES},
		      {h200, 3, 8192, GAPS},
		      {h200, 3, 16384, DENSE},
		      {h200, 2, 20001, SHIFTED_GAPS},
		      {h200, 2, 70001, ODD_BYTES},
		      {h200, 2, 131072, DENSE},
		      {{80, 108}, 2, 100001, GAPS},
		      {{80, 108}, 1, 50003, DENSE},
		      {h200, 2049, 8, DENSE},
		      {h200, rows_of_slots(8, CHUNK_ROWS + 1), 8, DENSE},
		      {{86, 20}, 1100, 700, DENSE},
		      {{86, 1}, 70, 300, GAPS}};
	const int each = test_mode == TEST_LONG ? 12 : test_mode == TEST_DEFAULT ? 4 : 2;
	for (int turn = 0; turn < COUNT_OF(shapes) * each; turn++) {
		int shape = turn / each, k = turn % each;
		struct test_case c =
			case_for(k & 1, (k >> 1 ^ turn / 4) & 1, dtype_pairs[(turn / 2) % DTYPE_PAIRS],
				 shapes[shape].rows, shapes[shape].cols);
		case_set(&c, form_at(c.pass == BACKWARD, turn / 2));
		lay_out(&c, shapes[shape].layout, turn / 2);
		check_priced(shapes[shape].model, &c, (struct priced){.absent = -1});
	}
}

/* Where sums of chunks are in the workspace. */
TEST(chunks_without_room_in_shared_memory)
{
	struct test_case c = case_for(true, 1, dtype_pairs[2], rows_of_slots(16385, CHUNK_ROWS + 1), 16385);
	if (test_mode != TEST_SHORT)
		check_priced((struct model){120, 20}, &c, (struct priced){0});
}

/* Dense rows, which the model is about, in every form that it knows. */
TEST(the_cost_model_has_what_is_counted)
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
			struct test_case c = case_for(k, turn / 2 & 1, dtype_pairs[turn / 4 % DTYPE_PAIRS],
						      shapes[shape].rows, shapes[shape].cols);
			set_operands(&c, absent, 0);
			check_priced(*shapes[shape].model, &c, (struct priced){.absent = absent});
		}
}

/* Rows of one kernel, of several warps, of clusters and of staged.cu, with residual, bias of x and every choice of dtypes, by
 * turns. */
TEST(fused_calls_move_each_operand_once_as_the_model_says)
{
	static const struct model other = {80, 108};
	static const int with[] = {EK_WITH_RESIDUAL,
				   EK_WITH_RESIDUAL | EK_WITH_X_BIAS,
				   EK_WITH_X_BIAS,
				   EK_WITH_RESIDUAL_AFTER,
				   0,
				   EK_WITH_GATE};
	static const int absent[] = {0, EK_NO_WEIGHT, EK_NO_BIAS | EK_NO_STATISTICS,
				     EK_NO_WEIGHT | EK_NO_BIAS};
	static const struct {
		const struct model *model;
		int64_t rows, cols;
	} shapes[] = {{&h200, 70, 8},    {&h200, 33, 100},   {&h200, 40, 768},
		      {&h200, 3, 5001},  {&h200, 2, 16384},  {&h200, 2, 70001},
		      {&h200, 2050, 24}, {&other, 2, 50000}, {&h200, 5, 4096}};
	const int each = test_mode == TEST_LONG ? 48 : test_mode == TEST_DEFAULT ? 6 : 2;
	for (int turn = 0; turn < COUNT_OF(shapes) * each; turn++) {
		const int shape = turn / each, k = turn % each;
		struct test_case c = case_make(&open_ops[turn / 3 % OPEN_OPS], turn & 1 ? BACKWARD : FORWARD,
					       dtype_pairs[(turn / 2 + shape) % DTYPE_PAIRS],
					       shapes[shape].rows, shapes[shape].cols);
		struct priced priced = {.absent = absent[(k / 2 + shape) % COUNT_OF(absent)],
					.with = with[(k / 2 + shape / 4) % COUNT_OF(with)]};
		case_choose(&c, turn % 5 == 0 ? 0 : turn * 7 % case_choice_count(&c));
		if (!(priced.with & EK_WITH_RESIDUAL))
			c.h_dtype = (ek_dtype)0; /* the model's x then has dtype */
		if (priced.with & EK_WITH_RESIDUAL_AFTER)
			c.activation = EK_NO_ACTIVATION;
		if (priced.with & EK_WITH_GATE) {
			c.activation = 1 + turn % EK_GELU_TANH;
			c.present = ~UINT32_C(0) &
				    ~(1u << (c.pass == FORWARD ? EK_FORWARD_RESIDUAL : EK_BACKWARD_DH));
			case_set(&c, "weight bias gate dgate dy dx dweight dbias " STATISTICS);
			c.gate_first = turn / 2 % 2;
		}
		set_operands(&c, priced.absent, priced.with);
		check_priced(*shapes[shape].model, &c, priced);
	}
}

/* Groups of part of a warp, of a warp, of several, and of staged.cu. */
TEST(groups_move_each_operand_once_as_the_model_says)
{
	static const struct {
		int64_t rows, cols, group_cols;
	} shapes[] = {{70, 64, 16},     {40, 768, 96},         {2050, 24, 8},
		      {5, 16384, 4096}, {3, 4 * 20000, 20000}, {33, 30, 10}};
	static const int with[] = {0, EK_WITH_GATE, EK_WITH_X_BIAS, EK_WITH_RESIDUAL};
	const int each = test_mode == TEST_LONG ? 24 : test_mode == TEST_DEFAULT ? 4 : 1;
	for (int turn = 0; turn < COUNT_OF(shapes) * each; turn++) {
		const int shape = turn / each, k = turn % each + shape;
		struct test_case c = case_make(&open_ops[k / 2 % OPEN_OPS], k & 1 ? BACKWARD : FORWARD,
					       dtype_pairs[k % 3], shapes[shape].rows, shapes[shape].cols);
		struct priced priced = {.with = with[k / 2 % COUNT_OF(with)]};
		c.group_cols = shapes[shape].group_cols;
		if (priced.with & EK_WITH_GATE) {
			c.activation = EK_SILU;
			c.present = ~UINT32_C(0) &
				    ~(1u << (c.pass == FORWARD ? EK_FORWARD_RESIDUAL : EK_BACKWARD_DH));
			case_set(&c, "weight bias gate dgate dy dx dweight dbias " STATISTICS);
		}
		set_operands(&c, priced.absent, priced.with);
		check_priced(h200, &c, priced);
	}
}
