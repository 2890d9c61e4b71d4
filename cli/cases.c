/* The case list. verify crosses shapes, dtypes and operand forms; bench takes the shapes marked for it in
 * their plain form. SPDX-License-Identifier: MIT */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

#include "forms.h"
#include "gpu_quick.h"
#include "heads.h"
#include "options.h"

/* Which lists a shape is in. verify's lists contain each other: quick, then default, then full. */
enum uses { QUICK = 1, DEFAULT = 2, FULL = 4, BENCH = 8, BENCH_QUICK = 16, HANDFUL = 32 };

struct listed_shape {
	struct shape shape;
	unsigned uses;
};

static const struct listed_shape shapes[] = {
	/* edges: one element, one column, widths around powers of two and around segments of 1024 */
	{{1, 1}, QUICK},
	{{1, 17}, QUICK},
	{{1000, 1}, QUICK},
	{{13, 13}, QUICK},
	{{25, 16}, QUICK},
	{{343, 7}, QUICK},
	{{4, 256}, QUICK},
	{{8, 511}, QUICK},
	{{9, 1032}, QUICK},
	{{17, 1023}, QUICK},
	{{4, 2048}, QUICK},
	{{39, 777}, QUICK},
	{{100, 200}, QUICK},
	{{1, 4095}, QUICK},
	{{1, 4097}, QUICK},
	{{1, 8192}, QUICK},
	{{1, 32767}, QUICK},
	{{1, 32768}, QUICK},
	{{1, 65536}, QUICK},
	{{1, 100000}, QUICK},
	{{3, 17134}, QUICK},
	{{99, 13}, QUICK},
	/* the widths of models */
	{{333, 1000}, QUICK | BENCH | BENCH_QUICK},
	{{512, 768}, QUICK | BENCH | BENCH_QUICK},
	{{1024, 512}, QUICK},
	{{1024, 1024}, DEFAULT},
	{{65536, 8}, DEFAULT},
	{{200, 10000}, QUICK},
	{{2048, 1024}, QUICK | BENCH},
	{{2048, 1600}, DEFAULT},
	{{7, 131072}, DEFAULT | BENCH},
	{{4096, 1280}, DEFAULT},
	{{1502, 4096}, DEFAULT},
	{{16384, 768}, FULL | BENCH},
	{{2048, 4096}, FULL | BENCH | HANDFUL | BENCH_QUICK},
	{{2048, 2048}, FULL},
	{{4000, 2000}, FULL},
	{{8192, 1024}, FULL},
	{{512, 12288}, FULL},
	{{1024, 8192}, FULL},
	{{2048, 5120}, FULL},
	{{2048, 6144}, FULL},
	{{16384, 1024}, FULL},
	{{12288, 2048}, FULL},
	{{4096, 8192}, FULL | BENCH},
	{{3, 1048576}, FULL},
	{{1, 16777216}, FULL},
};

enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

/* bench on a GPU, bf16 LayerNorm; those with HANDFUL also in the other dtypes, and as RMSNorm. */
static const struct listed_shape gpu_shapes[] = {
	/* large: the memory is the limit */
	{{32768, 4096}, BENCH | HANDFUL},
	{{4096, 32768}, BENCH},
	{{1024, 131072}, BENCH},
	{{4096, 8192}, BENCH | HANDFUL | BENCH_QUICK},
	{{4096, 16384}, BENCH},
	{{65536, 512}, BENCH},
	/* the widths of models */
	{{2048, 4096}, BENCH | HANDFUL | BENCH_QUICK},
	{{1024, 8192}, BENCH},
	{{8192, 1024}, BENCH},
	{{16384, 768}, BENCH | HANDFUL | BENCH_QUICK},
	{{32768, 256}, BENCH},
	{{2048, 2048}, BENCH},
	{{2048, 5120}, BENCH},
	/* rows that do not start at multiples of 16 bytes, and that do */
	{{1000, 3333}, BENCH | BENCH_QUICK},
	{{1000, 3336}, BENCH},
	/* few rows: starting a kernel is the limit */
	{{1, 4096}, BENCH},
	{{8, 8192}, BENCH | BENCH_QUICK},
	{{128, 4096}, BENCH},
};

enum { GPU_SHAPE_COUNT = sizeof gpu_shapes / sizeof gpu_shapes[0] };

enum {
	/* Beyond this many elements a listed shape is computed in its plain form only: the other forms choose
	 * the same loops on small shapes. A shape that was asked for may be larger. */
	FORMS_LISTED = 20000,
	FORMS_ASKED_FOR = 2000000,
	/* verify --quick on a GPU: rows for each form, and elements for one of them; narrow rows are then so many that
	 * their column sums come in all the steps that there are, and wider ones more than what counts as few. */
	FEW_ROWS = 3,
	MANY_ELEMENTS = 4500000
};

struct list {
	struct listed_case *cases; /* NULL while counting */
	int count;
};

bool op_has(const struct ek_op_entry *op, const char *operand)
{
	int forward = ek_operand_named(op->forward, operand),
	    backward = ek_operand_named(op->backward, operand);
	return (forward >= 0 && op->in_forward.has >> forward & 1) ||
	       (backward >= 0 && op->in_backward.has >> backward & 1);
}

bool choices_fit(const struct options *options, struct dtype_pair dtypes)
{
	const struct ek_choice *choices = ek_norm_backward_op.choices;
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < EK_CHOICES; i++)
		if (!ek_choice_allows(&choices[i], choices[i].follows ? dtypes.weight_dtype : dtypes.dtype,
				      options->choices[i]))
			return false;
	return true;
}

static bool dtype_wanted(const struct options *options, bool bench, const struct dtype_pair *pair)
{
	ek_dtype weight_dtype = options->weight_dtype;
	if (!choices_fit(options, *pair))
		return false;
	if (weight_dtype ? weight_dtype != pair->weight_dtype : bench && pair->weight_dtype != pair->dtype)
		return false;
	if (options->dtype_count == 0)
		return !bench || (pair->dtype != EK_F64 && !(options->quick && pair->dtype == EK_F16));
	for (int i = 0; i < options->dtype_count; i++)
		if (options->dtypes[i] == pair->dtype)
			return true;
	return false;
}

static void append(struct list *list, const struct listed_case *added)
{
	if (list->cases)
		list->cases[list->count] = *added;
	list->count++;
}

/* A gated activation and RoPE usually have no biases: they are there where they are asked for, and where all is verified. */
static bool wants_bias(const struct options *options, const struct ek_op_entry *op)
{
	return options->bias && (options->bias_given || options->command == COMMAND_VERIFY ||
				 !(op_has(op, "value") || is_on_heads(op)));
}

/* What the options leave out. */
static void drop_operands(struct test_case *c, const struct options *options)
{
	const struct {
		const char *of, *operands; /* dropped where the op has the first */
		bool wanted;
	} groups[] = {
		{"weight", "weight dweight", options->weight},
		{"bias", "bias dbias", options->bias},
		{"x_bias", "x_bias dx_bias", options->x_bias},
		{"gate_bias", "gate_bias value_bias dgate_bias dvalue_bias", wants_bias(options, c->op)},
		{"q_weight", "q_weight k_weight dq_weight dk_weight", options->weight},
		{"q_bias", "q_bias k_bias dq_bias dk_bias", wants_bias(options, c->op)},
		{"positions", "positions", options->positions || options->command == COMMAND_VERIFY}};
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
		if (!groups[i].wanted && op_has(c->op, groups[i].of))
			case_drop(c, groups[i].operands);
}

/* The halves of rows of one tensor lie as far apart as if they were in it. */
static void pack(struct test_case *c)
{
	static const char *const halves[] = {"gate", "value", "dgate", "dvalue"};
	for (int i = 0; i < 4; i++) {
		int number = ek_operand_named(case_op(c), halves[i]);
		if (number >= 0)
			c->pad[number] = c->cols;
	}
	c->packed = true;
}

/* Of an op on heads the results lie as the options say, and their gradients. */
static struct test_case case_of_shape(const struct options *options, const struct ek_op_entry *op,
				      enum pass pass, struct dtype_pair dtypes, struct shape shape)
{
	static const char *const results[] = {"q_out", "k_out", "dq_out", "dk_out"};
	struct head_sizes sizes;
	if (!is_on_heads(op) || !heads_of(options, shape, &sizes))
		return case_make(op, pass, dtypes, shape.rows, shape.cols);
	struct test_case c = case_make_heads(op, pass, dtypes, sizes);
	for (int i = 0; i < 4 && options->heads_first; i++) {
		int number = ek_operand_named(case_op(&c), results[i]);
		c.heads_first |= number >= 0 ? UINT32_C(1) << number : 0;
	}
	return c;
}

struct test_case case_with(const struct options *options, const struct ek_op_entry *op, enum pass pass,
			   struct dtype_pair dtypes, struct shape shape)
{
	struct test_case c = case_of_shape(options, op, pass, dtypes, shape);
	c.eps = options->eps;
	c.limit = options->limit;
	c.alpha = options->alpha;
	c.value_offset = options->value_offset;
	c.seed = options->seed;
	c.filling = options->filling;
	if (case_has_groups(&c))
		c.group_cols = options->group_cols;
	drop_operands(&c, options);
	if (options->packed && op_has(op, "value"))
		pack(&c);
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < case_op(&c)->choice_count; i++)
		c.choices[i] = case_op(&c)->choice[i] ? options->choices[i] : 0;
	if (c.pass == BACKWARD && !op_has(op, "residual")) /* x is not a sum with a residual */
		c.h_dtype = (ek_dtype)0;
	case_normalise(&c);
	/* dx is both, as autograd has it; verify asks for everything. */
	if (options->command != COMMAND_VERIFY && op_has(op, "dresidual") && !c.h_dtype)
		case_drop(&c, "dresidual");
	return c;
}

/* The dtypes, op and pass of cases whose shapes follow. */
struct model {
	const struct ek_op_entry *op;
	enum pass pass;
	struct dtype_pair dtypes;
};

static void append_shape(struct list *list, const struct options *options, bool bench,
			 const struct model *model, struct shape shape)
{
	struct listed_case forms[MOST_FORMS];
	struct head_sizes sizes;
	if (is_on_heads(model->op) && !heads_of(options, shape, &sizes))
		return;
	struct test_case plain = case_with(options, model->op, model->pass, model->dtypes, shape);
	int form_count = list_forms(&plain, forms);
	if (bench || shape.rows * shape.cols > (options->shape_count ? FORMS_ASKED_FOR : FORMS_LISTED))
		form_count = 1;
	for (int i = 0; i < form_count; i++)
		append(list, &forms[i]);
}

/* Whether such rows of the op can be cut into the groups that were asked for. */
static bool has_groups(const struct options *options, const struct ek_op_entry *op, int64_t cols)
{
	return options->group_cols == 0 ||
	       (op->forward == &ek_norm_forward_op && cols % options->group_cols == 0);
}

/* An op of the speed list that was not asked for, and is not the first. */
static bool is_in_passing(const struct options *options, const struct ek_op_entry *op)
{
	return options->op_count == 0 && op != &ek_ops[0];
}

/* The speed list of a GPU: all its shapes in bf16 or in what was asked for, a handful beside. */
static void append_gpu_shapes(struct list *list, const struct options *options, const struct model *model)
{
	bool bf16 = model->dtypes.dtype == EK_BF16;
	bool chief = !is_in_passing(options, model->op);
	bool whole = options->dtype_count || (bf16 && chief);
	unsigned wanted = options->quick ? BENCH_QUICK : whole ? BENCH : HANDFUL;
	if (!whole && !bf16 && (options->quick || !chief))
		return;
	for (int i = 0; i < GPU_SHAPE_COUNT; i++)
		if (gpu_shapes[i].uses & wanted && has_groups(options, model->op, gpu_shapes[i].shape.cols))
			append_shape(list, options, true, model, gpu_shapes[i].shape);
}

static void append_shapes(struct list *list, const struct options *options, bool bench,
			  const struct model *model)
{
	unsigned wanted = options->quick ? QUICK : options->full ? QUICK | DEFAULT | FULL : QUICK | DEFAULT;
	if (bench)
		wanted = options->quick ? BENCH_QUICK : BENCH;
	if (bench && options->quick && is_in_passing(options, model->op))
		wanted = HANDFUL;
	for (int i = 0; i < options->shape_count; i++)
		append_shape(list, options, bench, model, options->shapes[i]);
	if (options->shape_count)
		return;
	if (bench && options->device == EK_CUDA) {
		append_gpu_shapes(list, options, model);
		return;
	}
	for (int i = 0; i < SHAPE_COUNT; i++)
		if (shapes[i].uses & wanted && has_groups(options, model->op, shapes[i].shape.cols))
			append_shape(list, options, bench, model, shapes[i].shape);
}

/* ---- verify --quick: what ops choose in their turn ---- */

/* Where the options leave it open: every activation with either order of the gate, flavours every fifth time, limits and
 * their like every third. */
static struct options choices_in_turn(const struct options *options, const struct ek_op_entry *op, int turn)
{
	enum { GATE_ORDERS = 2, FLAVOURS = 5, LIMITS = 3, TENSORS = 4 };
	bool all = op && op->activations >> EK_IDENTITY & 1, limited = turn % LIMITS == 1;
	const int in_turn[EK_CHOICES] = {
		[EK_CHOICE_GATE_FIRST] = turn % GATE_ORDERS,
		[EK_CHOICE_ACTIVATION] = 1 + turn / GATE_ORDERS % (all ? EK_IDENTITY : EK_GELU_TANH),
		[EK_CHOICE_WEIGHT_OFFSET] = turn % FLAVOURS == 1,
		[EK_CHOICE_ROUNDING] = turn % FLAVOURS == 1 ? EK_ROUND_EACH : EK_ROUND_ONCE,
		[EK_CHOICE_INTERLEAVED] = turn % TENSORS == 3,
		[EK_CHOICE_TRAILING] = turn % FLAVOURS == 2,
		[EK_CHOICE_NORM] = turn % LIMITS == 2 ? EK_LAYER_NORM : 0,
		[EK_CHOICE_NORM_LAST] = turn % TENSORS == 1,
	};
	struct options chosen = *options;
	for (int i = 0; i < EK_CHOICES; i++)
		chosen.choices[i] = options->choices[i] ? options->choices[i] : in_turn[i];
	if (limited && !options->packed) {
		chosen.limit = options->limit != 0 ? options->limit : 1.5;
		chosen.alpha = options->alpha != 0 ? options->alpha : 1.702;
		chosen.value_offset = options->value_offset != 0 ? options->value_offset : 1;
	}
	chosen.choices[EK_CHOICE_INTERLEAVED] &= !options->packed;
	return chosen;
}

/* ---- verify --quick on a GPU ---- */

/* All forms that the kernel serves, with few rows; its own with many. */
static void append_kernel(struct list *list, const struct options *options, const struct gpu_kernel *kernel,
			  const struct model *model)
{
	struct listed_case forms[MOST_FORMS];
	struct head_sizes sizes;
	const struct shape few = {FEW_ROWS, kernel->cols};
	if (is_on_heads(model->op) && !heads_of(options, few, &sizes))
		return;
	struct test_case plain = case_with(options, model->op, kernel->pass, model->dtypes, few);
	int count = list_forms(&plain, forms), chosen = 0;
	while (chosen < count && strcmp(forms[chosen].form, kernel->form) != 0)
		chosen++;
	if (chosen == count)
		return; /* the options have left no such form, or the op has none */
	for (int i = 0; i < count; i++)
		if (same_kernel(&forms[i].c, &forms[chosen].c))
			append(list, &forms[i]);
	forms[chosen].c.rows = MANY_ELEMENTS / kernel->cols + 1;
	append(list, &forms[chosen]);
}

/* The dtypes of a size that are wanted. */
static int pairs_of(const struct options *options, int element_size, struct dtype_pair pairs[DTYPE_PAIRS])
{
	int count = 0;
	for (int i = 0; i < DTYPE_PAIRS; i++)
		if ((int)ek_dtype_size(dtype_pairs[i].dtype) == element_size &&
		    dtype_wanted(options, false, &dtype_pairs[i]))
			pairs[count++] = dtype_pairs[i];
	return count;
}

/* The ops that have the kernel and were asked for, in turn; NULL: none of those has it. */
static const struct ek_op_entry *asked_for(const struct options *options, const struct gpu_kernel *kernel,
					   int turn)
{
	const struct ek_op_entry *ops[EK_OP_NAMES];
	int count = 0;
	for (int i = 0; i < options->op_count; i++)
		if (options->ops[i]->forward == kernel->op)
			ops[count++] = options->ops[i];
	return count ? ops[turn % count] : NULL;
}

/* The two norms in turn, plain every other time: only plain rows are shifted. */
static const struct ek_op_entry *norm_in_turn(int i)
{
	enum { NORMS = 2 };
	return i / NORMS % 2 == 0 ? &ek_ops[i % NORMS]
				  : &ek_ops[NORMS + (i / 4 * NORMS + i % NORMS) % (EK_NORM_OPS - NORMS)];
}

static const struct ek_op_entry *op_in_turn(const struct gpu_kernel *kernel, int i)
{
	enum { ON_HEADS = EK_OP_NAMES - EK_ROW_NAMES, TURNS = 8 };
	if (kernel->op == &ek_rope_forward_op)
		return &ek_ops[EK_ROW_NAMES + kernel->turn / TURNS % ON_HEADS];
	return kernel->op == &ek_norm_forward_op ? norm_in_turn(i) : &ek_ops[EK_NORM_OPS];
}

/* Ops, their choices and dtypes take turns with the kernels. */
static void append_gpu_quick(struct list *list, const struct options *options)
{
	struct dtype_pair pairs[DTYPE_PAIRS];
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	for (int i = 0; i < gpu_quick_count; i++) {
		const struct gpu_kernel *kernel = &gpu_quick[i];
		const struct ek_op_entry *op =
			options->op_count ? asked_for(options, kernel, i) : op_in_turn(kernel, i);
		const struct options chosen = kernel->op == &ek_norm_forward_op
						      ? *options
						      : choices_in_turn(options, op, kernel->turn);
		int pair_count = pairs_of(options, kernel->element_size, pairs);
		if (!op || pair_count == 0 || (!both && !options->pass[kernel->pass]) ||
		    !has_groups(options, op, kernel->cols))
			continue;
		append_kernel(list, &chosen, kernel,
			      &(struct model){.op = op, .dtypes = pairs[(i / 2 + i / 8) % pair_count]});
	}
}

/* ---- verify --quick on a CPU, all ops ---- */

/* All forms of a small shape; of a large one the form whose turn it is. Choices have turns of their own. */
static void append_fused(struct list *list, const struct options *options, const struct model *model,
			 struct shape shape, int turn, int choice)
{
	struct listed_case forms[MOST_FORMS];
	struct head_sizes sizes;
	struct options chosen = choices_in_turn(options, model->op, choice);
	if (is_on_heads(model->op) && !heads_of(&chosen, shape, &sizes))
		return;
	struct test_case plain = case_with(&chosen, model->op, model->pass, model->dtypes, shape);
	int count = list_forms(&plain, forms), small = shape.rows * shape.cols <= FORMS_LISTED;
	for (int i = small ? 0 : turn % count; i < count; i += small ? 1 : count)
		append(list, &forms[i]);
}

/* A plain norm and a fused one for every shape, pair of dtypes and pass, and for every third a gated activation and an op on heads. They take turns, so
 * that each op meets each shape, and each pair and pass in all its forms. */
static void append_cpu_quick(struct list *list, const struct options *options)
{
	enum { NORMS = 2, FUSED = EK_NORM_OPS - NORMS, OTHERS = EK_OP_COUNT - EK_NORM_OPS, OTHERS_TURN = 3 };
	enum { ON_HEADS = EK_OP_NAMES - EK_ROW_NAMES };
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	for (int i = 0; i < PASS_COUNT * DTYPE_PAIRS; i++) {
		struct model model = {.pass = (enum pass)(i / DTYPE_PAIRS),
				      .dtypes = dtype_pairs[i % DTYPE_PAIRS]};
		if ((!both && !options->pass[model.pass]) || !dtype_wanted(options, false, &model.dtypes))
			continue;
		for (int k = 0, turn = i; k < SHAPE_COUNT; k++) {
			model.op = &ek_ops[turn % NORMS];
			if (!(shapes[k].uses & QUICK) || !has_groups(options, model.op, shapes[k].shape.cols))
				continue;
			append_shape(list, options, false, &model, shapes[k].shape);
			model.op = &ek_ops[NORMS + turn % FUSED];
			append_fused(list, options, &model, shapes[k].shape, turn / FUSED + i,
				     turn / FUSED + i);
			model.op = turn % OTHERS_TURN ? &ek_ops[EK_ROW_NAMES + turn % ON_HEADS]
						      : &ek_ops[EK_NORM_OPS + turn % OTHERS];
			if (turn % OTHERS_TURN < 2 && has_groups(options, model.op, shapes[k].shape.cols))
				append_fused(list, options, &model, shapes[k].shape, turn / OTHERS_TURN,
					     turn / OTHERS_TURN + (int)model.pass);
			turn++;
		}
	}
}

/* Those that were asked for, or all. bench has swiglu for the gated activations, and --quick LayerNorm for the norms, of which
 * RMSNorm moves the same bytes with less arithmetic. */
static int list_ops(const struct options *options, bool bench, const struct ek_op_entry *ops[EK_OP_NAMES])
{
	int norms = options->quick ? 1 : EK_NORM_OPS, count = 0;
	for (int i = 0; i < options->op_count; i++)
		ops[count++] = options->ops[i];
	for (int i = 0; options->op_count == 0 && i < EK_OP_NAMES; i++) {
		bool listed = i < norms || strcmp(ek_ops[i].name, "swiglu") == 0 || is_on_heads(&ek_ops[i]);
		if (bench ? listed : i < EK_OP_COUNT || i >= EK_ROW_NAMES)
			ops[count++] = &ek_ops[i];
	}
	return count;
}

static void append_all(struct list *list, const struct options *options, bool bench)
{
	const bool on_heads =
		options->op_count && is_on_heads(options->ops[0]); /* the GPU's quick list has few */
	if (!bench && options->quick && options->shape_count == 0 && !on_heads &&
	    (options->device == EK_CUDA || options->op_count == 0)) {
		(options->device == EK_CUDA ? append_gpu_quick : append_cpu_quick)(list, options);
		return;
	}
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	const struct ek_op_entry *ops[EK_OP_NAMES];
	int op_count = list_ops(options, bench, ops);
	for (int i = 0; i < op_count * PASS_COUNT * DTYPE_PAIRS; i++) {
		struct model model = {.op = ops[i / (PASS_COUNT * DTYPE_PAIRS)],
				      .pass = (enum pass)(i / DTYPE_PAIRS % PASS_COUNT),
				      .dtypes = dtype_pairs[i % DTYPE_PAIRS]};
		if ((both || options->pass[model.pass]) && dtype_wanted(options, bench, &model.dtypes))
			append_shapes(list, options, bench, &model);
	}
}

struct listed_case *cases_list(const struct options *options, bool bench, int *count)
{
	struct list list = {0};
	append_all(&list, options, bench);
	list.cases = malloc((size_t)(list.count + 1) * sizeof *list.cases);
	*count = list.count;
	list.count = 0;
	if (list.cases)
		append_all(&list, options, bench);
	return list.cases;
}

/* Of as many rows, or sequences, as the call; tables and biases are small beside those. */
static bool is_tensor(const struct ek_operand *operand)
{
	return operand->rank > 1 && operand->dims[0].size == 0 && !(operand->flags & EK_INDEX);
}

double case_bytes(const struct test_case *test_case)
{
	double bytes = 0;
	for (int i = 0; i < case_op(test_case)->operand_count; i++)
		if (test_case->present >> i & 1 && is_tensor(&case_op(test_case)->operands[i]))
			bytes += (double)operand_bytes(test_case, i);
	return bytes;
}
