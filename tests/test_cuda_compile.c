/* What NVRTC makes of the kernels: those of every row of the tables in src/ops/norm/policy.c, with the operands, dtypes
 * and alignments that calls may have, compiled for several GPUs, none of which is needed. On compute capability
 * 9.0, for which the tables were measured, no register may be spilled; of the others it is told what is.
 * There are about 40,000 such kernels: what calls usually have is compiled, and every so many-th of the rest;
 * `test_cuda_compile long` compiles all, an hour for two cores. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/norm/cuda.h"
#include "gpu/cuda/nvrtc.h"
#include "ops/norm/policy.h"
#include "support.h"
#include "support_recipe.h"

enum { MOST_THREADS = 8, MOST_OF_A_CALL = 8, MOST_ALIKE = 4, MEASURED_ARCH = 90 };
enum { NEWER_THAN_ANY = 999 }; /* a compute capability that gets PTX: text that can be read */

/* How memory lies: the rows, then weight and bias. */
enum lie { ALIGNED, AT_AN_ELEMENT, AT_A_BYTE };

struct kernel {
	struct ek_recipe recipe;
	/* found: */
	ek_status status;
	int registers, spilled, stack;
	char trouble[400];
};

static struct kernel *kernels;
static int kernel_count, kernel_room;
static int arch;
static int64_t considered; /* calls, compiled or not */

/* ---- kernels: each once ---- */

/* Kernels that are alike for all widths: those of this name and dtype that are listed. */
static bool are_enough(const struct ek_recipe *recipe)
{
	static const char *const parts[] = {"_fold_", "_final_", "_columns_"};
	int alike = 0;
	for (int p = 0; p < COUNT_OF(parts); p++) {
		const char *part = strstr(recipe->name, parts[p]);
		size_t length = part ? strlen(recipe->name) - strlen(strrchr(recipe->name, '_')) : 0;
		for (int i = 0; part && i < kernel_count; i++)
			alike += strncmp(kernels[i].recipe.name, recipe->name, length) == 0;
	}
	return alike >= MOST_ALIKE;
}

static void add_kernel(const struct ek_recipe *recipe)
{
	for (int i = kernel_count - 1; i >= 0; i--)
		if (same_recipe(&kernels[i].recipe, recipe))
			return;
	if (are_enough(recipe))
		return;
	if (kernel_count == kernel_room) {
		kernel_room = kernel_room ? 2 * kernel_room : 256;
		kernels = realloc(kernels, (size_t)kernel_room * sizeof *kernels);
		if (!kernels)
			abort();
	}
	kernels[kernel_count++] = (struct kernel){.recipe = *recipe};
}

/* ---- calls that need them ---- */

struct call {
	bool backward;
	ek_norm norm;
	struct dtype_pair dtypes;
	int64_t cols;
	enum lie rows, weights;
	bool weight, bias, given, dx, sums;
};

static int offset_of(enum lie lie, ek_dtype dtype)
{
	return lie == ALIGNED ? 0 : lie == AT_AN_ELEMENT ? (int)ek_dtype_size(dtype) : 1;
}

/* Of backward so many rows that partial sums are folded in two steps. */
static int recipes_of(const struct call *f, int64_t stride, struct ek_recipe *recipes)
{
	struct test_case c = case_of(f->backward, f->norm, f->dtypes, f->backward ? 1 << 20 : 1, f->cols);
	union op_args args;
	char words[64];
	(void)snprintf(words, sizeof words, "%s %s %s %s %s %s", f->weight ? "weight" : "",
		       f->bias ? "bias" : "", f->backward && f->given ? "rstd" : "", f->dx ? "dx" : "",
		       f->sums ? "dweight" : "", f->sums && f->bias ? "dbias" : "");
	case_set(&c, words);
	for (int i = 0; i < case_op(&c)->operand_count; i++) {
		bool matrix = case_op(&c)->operands[i].rank > 1, input = i >= case_op(&c)->output_count;
		c.pad[i] = stride - f->cols;
		c.offset[i] = matrix ? offset_of(f->rows, f->dtypes.dtype)
			      : input && !(case_statistics(&c) >> i & 1)
				      ? offset_of(f->weights, f->dtypes.weight_dtype)
				      : 0;
	}
	case_args_nowhere(&c, &args);
	return list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
}

static void add_call(const struct call *f)
{
	struct ek_recipe recipes[MOST_OF_A_CALL];
	int64_t in_16_bytes = 16 / (int64_t)ek_dtype_size(f->dtypes.dtype);
	int64_t stride = (f->cols + in_16_bytes - 1) / in_16_bytes * in_16_bytes;
	int count = recipes_of(f, stride, recipes);
	for (int i = 0; i < count; i++)
		add_kernel(&recipes[i]);
}

/* Every so many-th call, more of the usual ones: a prime, so that in turn each value of each field meets those of the
 * others. Not by the seed: the same text compiles to the same code. */
static void consider(const struct call *f, bool usual)
{
	static const int64_t measured_steps[] = {5003, 307, 1}, other_steps[] = {20011, 3989, 31};
	static const int64_t usual_steps[] = {INT64_MAX, 3, 1};
	static int64_t usual_calls;
	bool measured = arch == MEASURED_ARCH;
	int64_t step = (measured ? measured_steps : other_steps)[test_mode];
	bool wanted =
		usual && (measured || test_mode == TEST_LONG) && ++usual_calls % usual_steps[test_mode] == 0;
	if (wanted || considered % step == 0)
		add_call(f);
	considered++;
}

/* ---- all calls ---- */

static bool usual_dtypes(struct dtype_pair dtypes)
{
	return dtypes.dtype == dtypes.weight_dtype && dtypes.dtype != EK_F16;
}

static void consider_lies(struct call f, bool usual)
{
	bool weights = f.weight || f.bias;
	for (f.rows = ALIGNED; f.rows <= AT_A_BYTE; f.rows++)
		for (f.weights = ALIGNED; f.weights <= (weights ? AT_AN_ELEMENT : ALIGNED); f.weights++)
			consider(&f, usual && f.rows != AT_A_BYTE && f.weights == ALIGNED);
}

static void consider_forward(struct call f, bool usual)
{
	f.weight = true;
	f.bias = f.norm == EK_LAYER_NORM;
	consider_lies(f, usual && f.norm == EK_LAYER_NORM);
	f.weight = f.bias = false;
	consider_lies(f, false);
}

static void consider_backward(struct call f, bool usual)
{
	f.bias = f.norm == EK_LAYER_NORM;
	for (int given = 1; given >= 0; given--)
		for (int k = 0; k < 4; k++) {
			f.given = given;
			f.weight = k < 3;
			f.dx = k != 2;
			f.sums = k != 1;
			consider_lies(f, usual && given && k == 0 && f.norm == EK_LAYER_NORM);
		}
}

static void consider_width(struct call f, bool usual)
{
	for (int norm = 0; norm < 2; norm++) {
		f.norm = norm ? EK_RMS_NORM : EK_LAYER_NORM;
		(f.backward ? consider_backward : consider_forward)(f, usual);
	}
}

/* The widest of a row of the policies, which takes most registers, one with a tail, and the narrowest. */
static void consider_row(struct call f, int64_t first, int64_t last)
{
	int64_t widths[] = {last, last - 1, first};
	for (int i = 0; i < 3; i++) {
		f.cols = widths[i];
		if (f.cols >= first && (i < 2 || first < last - 1))
			consider_width(f, i == 0 && usual_dtypes(f.dtypes));
	}
}

/* The policies of all accesses at a width. */
struct policies {
	struct ek_norm_policy by_access[3];
};

static struct policies policies_at(const struct call *f, int64_t cols)
{
	struct ek_gpu_limits limits = ek_limits_of(arch, 1);
	struct policies policies;
	for (int access = ACCESS_QUADS; access <= ACCESS_ELEMENTS; access++)
		policies.by_access[access] = policy_for(f->backward, f->dtypes.dtype, cols, access, &limits);
	return policies;
}

/* Finds the rows by asking for every width at which one may end. */
static void consider_policy(struct call f)
{
	int64_t first = 1, last = 1;
	struct policies row = policies_at(&f, 1);
	for (int64_t cols = 2; cols <= EK_MAX_COLS; cols = next_end(cols)) {
		struct policies next = policies_at(&f, cols);
		if (memcmp(&row, &next, sizeof row) != 0) {
			consider_row(f, first, last);
			first = last + 1;
			row = next;
		}
		last = cols;
	}
	consider_row(f, first, last);
}

static void list_kernels(void)
{
	kernel_count = 0;
	considered = 0;
	for (int backward = 0; backward < 2; backward++)
		for (int pair = 0; pair < DTYPE_PAIRS; pair++)
			consider_policy((struct call){.backward = backward, .dtypes = dtype_pairs[pair]});
}

/* ---- compiling ---- */

/* The number before the text; -1 where the text is not there. */
static int number_before(const char *log, const char *text)
{
	const char *at = log ? strstr(log, text) : NULL;
	if (!at)
		return -1;
	while (at > log && at[-1] == ' ')
		at--;
	while (at > log && at[-1] >= '0' && at[-1] <= '9')
		at--;
	return atoi(at);
}

/* A text for many kernels has functions and loops that one of them does not need; other warnings count. */
static const char *warning_in(const char *log)
{
	static const char *const expected[] = {"#177-D", "#128-D"};
	for (const char *at = log; at && (at = strstr(at, "warning ")); at++)
		if (strncmp(at + 8, expected[0], 6) != 0 && strncmp(at + 8, expected[1], 6) != 0)
			return at;
	return NULL;
}

static void compile(struct kernel *kernel)
{
	struct ek_image image = {0};
	struct ek_recipe *recipe = &kernel->recipe;
	char *log = NULL;
	(void)snprintf(recipe->options[recipe->option_count++], sizeof recipe->options[0],
		       "--ptxas-options=-v");
	kernel->status = ek_kernel_build(recipe, arch, NULL, &image, NULL, &log);
	recipe->option_count--;
	kernel->registers = number_before(log, " registers");
	kernel->stack = number_before(log, " bytes stack frame");
	kernel->spilled = number_before(log, " bytes spill stores");
	const char *warning = warning_in(log);
	if (kernel->status != EK_OK)
		(void)snprintf(kernel->trouble, sizeof kernel->trouble, "%s", ek_error(NULL));
	else if (warning)
		(void)snprintf(kernel->trouble, sizeof kernel->trouble, "%.*s", (int)strcspn(warning, "\n"),
			       warning);
	free(image.data);
	free(log);
}

static atomic_int next_kernel;

static void *compile_some(void *nothing)
{
	for (int i; (i = atomic_fetch_add(&next_kernel, 1)) < kernel_count;)
		compile(&kernels[i]);
	return nothing;
}

static void compile_all(void)
{
	pthread_t threads[MOST_THREADS];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int wanted = cores < MOST_THREADS ? (int)cores : MOST_THREADS, started = 0;
	atomic_store(&next_kernel, 0);
	while (started < wanted - 1 && pthread_create(&threads[started], NULL, compile_some, NULL) == 0)
		started++;
	(void)compile_some(NULL);
	for (int i = 0; i < started; i++)
		(void)pthread_join(threads[i], NULL);
}

/* ---- what was found ---- */

/* What tells it from others of its name. */
static const char *describe(const struct ek_recipe *recipe)
{
	static char text[500];
	static const char *const names[] = {"WEIGHT_ELEMENT", "ACCESS",      "WEIGHT_ACCESS",
					    "BYTES",          "HAS_WEIGHT",  "HAS_BIAS",
					    "HAS_RESIDUAL",   "HAS_H",       "HAS_RESIDUAL_AFTER",
					    "HAS_X_BIAS",     "HAS_DH",      "HAS_DX_BIAS",
					    "X_ELEMENT",      "Y_ELEMENT",   "DX_ELEMENT",
					    "HAS_RSTD",       "HAS_DX",      "HAS_DWEIGHT",
					    "HAS_GATE",       "GATE_FIRST",  "ACTIVATION",
					    "NORM",           "CENTRED",     "ROTARY_DIM",
					    "UNIT",           "ROW_THREADS", "HEADS",
					    "HAS_POSITIONS"};
	int length = 0;
	for (int i = 0; i < COUNT_OF(names); i++)
		if (recipe_constant(recipe, names[i]) >= 0)
			length += snprintf(text + length, sizeof text - (size_t)length, " %s=%d", names[i],
					   recipe_constant(recipe, names[i]));
	return text;
}

/* True: it spills or has a stack, where all should be in registers. */
static bool expect_status(const struct kernel *kernel)
{
	const struct ek_recipe *recipe = &kernel->recipe;
	if (kernel->status != EK_OK || kernel->trouble[0]) {
		test_fail("sm_%d %s%s: %s", arch, recipe->name, describe(recipe), kernel->trouble);
		return false;
	}
	if (kernel->spilled <= 0 && kernel->stack <= 0)
		return false;
	printf("  sm_%d %s%s: %d registers, %d bytes spilled, %d of stack\n", arch, recipe->name,
	       describe(recipe), kernel->registers, kernel->spilled, kernel->stack);
	return true;
}

/* ---- the tests ---- */

static bool has_nvrtc(void)
{
	struct ek_nvrtc_info info;
	ek_nvrtc_describe(&info);
	if (info.version == 0)
		test_skip("%s", info.missing);
	return info.version != 0;
}

/* Compiles the listed kernels; no registers in a log: it was not ptxas -v that wrote it. */
static void check_listed(void)
{
	int spilling = 0, most = 0;
	compile_all();
	for (int i = 0; i < kernel_count; i++) {
		spilling += expect_status(&kernels[i]);
		most = kernels[i].registers > most ? kernels[i].registers : most;
		EXPECT(kernels[i].status != EK_OK || kernels[i].registers > 0,
		       "sm_%d %s: the log names no registers", arch, kernels[i].recipe.name);
	}
	printf("  sm_%d: %d kernels of up to %d registers, %d spill\n", arch, kernel_count, most, spilling);
	EXPECT(arch != MEASURED_ARCH || spilling == 0, "%d of %d kernels spill", spilling, kernel_count);
}

static void check_arch(int capability)
{
	if (!has_nvrtc())
		return;
	arch = capability;
	list_kernels();
	check_listed();
}

TEST(kernels_for_sm_90_spill_nothing)
{
	check_arch(90);
}

/* Of norms with their neighbours: every step-th of the usual calls from the first on and, in long mode, all choices of each.
 * 16-bit rows of some widths start at multiples of 8 bytes. */
static void list_fused(int first, int step)
{
	static const char *const operands[] = {
		"residual h dh", "residual x_bias h dh dx_bias", "residual_after x_bias dx_bias", "", "",
		"gate dgate"};
	enum { FIRST_WITH_ACTIVATION = 4 };
	static const int64_t widths[] = {20,   64,   100,  700,   1000,  1024,  1280,  1500,  3072,
					 4096, 4100, 8192, 11008, 16384, 33796, 65536, 131072};
	enum { CALLS = OPEN_OPS * PASS_COUNT * COUNT_OF(operands) * DTYPE_PAIRS };
	kernel_count = 0;
	for (int i = first; i < CALLS * COUNT_OF(widths); i += step) {
		const int call = i / COUNT_OF(widths), k = call / (OPEN_OPS * PASS_COUNT),
			  form = k / DTYPE_PAIRS;
		struct test_case plain = case_make(
			&open_ops[call % OPEN_OPS], call / OPEN_OPS % PASS_COUNT ? BACKWARD : FORWARD,
			dtype_pairs[k % DTYPE_PAIRS], 1 << 20, widths[i % COUNT_OF(widths)]);
		const int choices = test_mode == TEST_LONG ? case_choice_count(&plain) : 1;
		for (int choice = 0; choice < choices; choice++) {
			struct test_case c = plain;
			union op_args args;
			struct ek_recipe recipes[MOST_OF_A_CALL];
			c.activation =
				form >= FIRST_WITH_ACTIVATION ? 1 + i % EK_GELU_TANH : EK_NO_ACTIVATION;
			case_set(&c, operands[form]);
			case_add(&c, "weight bias dy dx dweight dbias");
			if (i / step % 3) /* of every third call they are recomputed */
				case_add(&c, STATISTICS);
			if (choice > 0)
				case_choose(&c, choice);
			else if (case_has(&c, "gate") && i % 2)
				c.gate_first = 1;
			case_normalise(&c);
			case_args_nowhere(&c, &args);
			int count = list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
			for (int r = 0; r < count; r++)
				add_kernel(&recipes[r]);
		}
	}
}

/* The same calls of rows of eight groups, which have pointers of their own. */
static void list_groups(int first, int step)
{
	static const int64_t widths[] = {40, 64, 128, 256, 512, 1000, 1024, 4096, 8192, 3333, 131072};
	static const char *const forms[] = {"gate dgate", "gate dgate", "", "residual x_bias h dh dx_bias",
					    "residual_after x_bias"};
	static const struct dtype_pair dtypes[] = {{EK_BF16, EK_BF16}, {EK_BF16, EK_F32}, {EK_F32, EK_F32}};
	enum { CALLS = OPEN_OPS * PASS_COUNT * COUNT_OF(forms) * COUNT_OF(dtypes) };
	kernel_count = 0;
	for (int i = first; i < CALLS * COUNT_OF(widths); i += step) {
		const int call = i / COUNT_OF(widths), k = call / (OPEN_OPS * PASS_COUNT),
			  form = k / COUNT_OF(dtypes);
		const int64_t cols = widths[i % COUNT_OF(widths)];
		struct test_case c = case_make(&open_ops[call % OPEN_OPS],
					       call / OPEN_OPS % PASS_COUNT ? BACKWARD : FORWARD,
					       dtypes[k % COUNT_OF(dtypes)], 1 << 20, 8 * cols);
		union op_args args;
		struct ek_recipe recipes[MOST_OF_A_CALL];
		c.group_cols = cols;
		c.activation = form < 2 ? EK_SILU : EK_NO_ACTIVATION;
		case_set(&c, forms[form]);
		case_add(&c, "weight bias dy dx dweight dbias " STATISTICS);
		c.gate_first = form == 1;
		case_normalise(&c);
		case_args_nowhere(&c, &args);
		int count = list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
		for (int r = 0; r < count; r++)
			add_kernel(&recipes[r]);
	}
}

/* Gated activations: every activation, with and without a value, in turn, limits, biases and their gradients. */
static void list_gated(int first, int step)
{
	static const struct {
		const char *words; /* operands that are there */
		bool interleaved, limited;
	} forms[] = {{"value dgate dvalue", false, false},
		     {"value gate_bias value_bias dgate dvalue dgate_bias dvalue_bias", false, false},
		     {"value gate_bias value_bias dgate dvalue dgate_bias dvalue_bias", false, true},
		     {"dgate", true, true},
		     {"gate_bias dgate dgate_bias", true, true},
		     {"gate_bias dgate dgate_bias", false, false},
		     {"dgate", false, false},
		     {"value gate_bias dgate dgate_bias", false, true},
		     {"value value_bias dvalue dvalue_bias", false, false}};
	enum { FORMS = COUNT_OF(forms), LIES = AT_A_BYTE + 1 };
	enum { CALLS = PASS_COUNT * DTYPE_PAIRS * EK_IDENTITY * FORMS * LIES };
	kernel_count = 0;
	for (int i = first; i < CALLS; i += step) {
		const int form = i / PASS_COUNT % FORMS, k = i / PASS_COUNT / FORMS;
		struct test_case c = case_make(&open_glu, i % PASS_COUNT ? BACKWARD : FORWARD,
					       dtype_pairs[k % DTYPE_PAIRS], 1 << 20, 4096);
		const enum lie lie = (enum lie)(k / DTYPE_PAIRS / EK_IDENTITY);
		union op_args args;
		struct ek_recipe recipes[MOST_OF_A_CALL];
		c.activation = 1 + k / DTYPE_PAIRS % EK_IDENTITY;
		c.interleaved = forms[form].interleaved;
		c.limit = forms[form].limited ? 7 : 0;
		case_set(&c, forms[form].words);
		for (int o = 0; o < case_op(&c)->operand_count; o++)
			c.offset[o] = offset_of(lie, operand_dtype(&c, o));
		case_args_nowhere(&c, &args);
		int count = list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
		for (int r = 0; r < count; r++)
			add_kernel(&recipes[r]);
	}
}

/* RoPE and QK-norm: heads of every way to lie in threads, with all sums and with one kind of them; alignments and choices in turn. */
static void list_rope(int first, int step)
{
	static const char *const operands[] = {"k k_out q_bias q_weight positions dq dk",
					       "k k_out dq dk q_weight dq_weight",
					       "k k_out k_bias dk_bias dq", "k k_out dq dk q_bias"};
	static const int heads[][2] = {{64, 64},   {128, 128},  {96, 96},     {256, 64},
				       {128, 64},  {80, 32},    {256, 256},   {40, 20},
				       {512, 512}, {192, 192},  {32, 32},     {7, 6},
				       {16, 16},   {1024, 256}, {1024, 1024}, {1023, 1022}};
	/* of heads over 512 elements some spill a few registers: they are compiled for the other GPUs alone */
	enum { LONG_HEADS = 3 };
	const int head_count = COUNT_OF(heads) - (arch == MEASURED_ARCH ? LONG_HEADS : 0);
	static const int offsets[] = {0, 0, 8, 4, 1};
	enum { ROPE_OPS = 2, CALLS = ROPE_OPS * PASS_COUNT * COUNT_OF(operands) * DTYPE_PAIRS };
	kernel_count = 0;
	for (int i = first; i < CALLS * head_count; i += step) {
		const int *head = heads[i % head_count], call = i / head_count,
			  k = call / (ROPE_OPS * PASS_COUNT);
		struct test_case c = case_make_heads(&ek_ops[EK_ROW_NAMES + call % ROPE_OPS],
						     call / ROPE_OPS % PASS_COUNT ? BACKWARD : FORWARD,
						     dtype_pairs[k % DTYPE_PAIRS],
						     (struct head_sizes){4, 2048, 32, 8, head[0], head[1]});
		union op_args args;
		struct ek_recipe recipes[MOST_OF_A_CALL];
		if (i / step % 2)
			case_choose(&c, i * 7 % case_choice_count(&c));
		case_set(&c, operands[k / DTYPE_PAIRS]);
		case_normalise(&c);
		for (int o = 0; o < case_op(&c)->operand_count; o++)
			c.offset[o] = offsets[i / step % COUNT_OF(offsets)];
		case_args_nowhere(&c, &args);
		int count = list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
		for (int r = 0; r < count; r++)
			add_kernel(&recipes[r]);
	}
}

static void check_some(void (*list)(int first, int step), int capability, int first, int step)
{
	if (!has_nvrtc())
		return;
	arch = capability;
	list(first, step);
	check_listed();
}

TEST(kernels_of_groups_for_sm_90_spill_nothing)
{
	static const int steps[] = {37, 5, 1};
	check_some(list_groups, MEASURED_ARCH, 0, steps[test_mode]);
}

TEST(fused_kernels_for_sm_90_spill_nothing)
{
	static const int steps[] = {157, 13, 1};
	check_some(list_fused, MEASURED_ARCH, 0, steps[test_mode]);
}

TEST(kernels_of_gated_activations_for_sm_90_spill_nothing)
{
	static const int steps[] = {61, 11, 1};
	check_some(list_gated, MEASURED_ARCH, 0, steps[test_mode]);
}

TEST(kernels_of_rope_for_sm_90_spill_nothing)
{
	static const int steps[] = {97, 37, 3};
	check_some(list_rope, MEASURED_ARCH, 0, steps[test_mode]);
}

/* A part of them, another one for each. */
TEST(fused_kernels_compile_for_other_gpus)
{
	static const int archs[] = {80, 86, 89, 100, 120}, steps[] = {1201, 211, 11};
	for (int i = 0; i < COUNT_OF(archs); i++) {
		check_some(list_fused, archs[i], 40 * i, steps[test_mode]);
		check_some(list_groups, archs[i], 11 * i, steps[test_mode]);
		check_some(list_gated, archs[i], 7 * i, steps[test_mode] / 2);
		check_some(list_rope, archs[i], 11 * i, steps[test_mode]);
	}
}

TEST(kernels_compile_for_sm_80)
{
	check_arch(80);
}

TEST(kernels_compile_for_sm_100)
{
	check_arch(100);
}

TEST(kernels_compile_for_sm_120)
{
	check_arch(120);
}

/* Those that staged.cu serves although aligned rows of their width fit into registers. */
TEST(kernels_of_shifted_rows_compile_for_sm_86_and_89)
{
	static const int archs[] = {86, 89};
	const struct call f = {.backward = true,
			       .norm = EK_LAYER_NORM,
			       .dtypes = {EK_BF16, EK_BF16},
			       .cols = 10001,
			       .rows = AT_AN_ELEMENT,
			       .weight = true,
			       .bias = true,
			       .given = true,
			       .dx = true,
			       .sums = true};
	for (int i = 0; has_nvrtc() && i < COUNT_OF(archs); i++) {
		arch = archs[i];
		kernel_count = 0;
		add_call(&f);
		check_listed();
	}
}

/* Products and sums stay apart, roots and quotients are exact, small numbers stay. */
TEST(options_are_those_of_the_contract)
{
	static const char text[] = "extern \"C\" __global__ void probe(float *a)\n"
				   "{ a[0] = a[1] * a[2] + a[3]; a[4] = a[5] / a[6]; a[7] = sqrtf(a[8]); }\n";
	static const char *const wanted[] = {"mul.rn.f32", "add.rn.f32", "div.rn.f32", "sqrt.rn.f32"};
	static const char *const unwanted[] = {"fma.", ".ftz", ".approx"};
	struct ek_image image;
	struct ek_recipe recipe = {.texts = {text}, .text_count = 1, .name = "probe"};
	if (!has_nvrtc())
		return;
	ek_status status = ek_kernel_build(&recipe, NEWER_THAN_ANY, NULL, &image, NULL, NULL);
	if (status != EK_OK) {
		test_fail("%s", ek_error(NULL));
		return;
	}
	const char *ptx = image.data;
	for (int i = 0; i < COUNT_OF(wanted); i++)
		EXPECT(strstr(ptx, wanted[i]), "no %s in\n%s", wanted[i], ptx);
	for (int i = 0; i < COUNT_OF(unwanted); i++)
		EXPECT(!strstr(ptx, unwanted[i]), "%s in\n%s", unwanted[i], ptx);
	free(image.data);
}

/* The first global access, or any through a generic address, in PTX. */
static const char *first_access(const char *ptx)
{
	static const char *const accesses[] = {"ld.global", "st.global", "cp.async.c", "\tld.v",
					       "\tld.u",    "\tld.b",    "\tld.f",     "\tst.v",
					       "\tst.u",    "\tst.b",    "\tst.f"};
	const char *first = NULL;
	for (int i = 0; i < COUNT_OF(accesses); i++) {
		const char *at = strstr(ptx, accesses[i]);
		first = at && (!first || at < first) ? at : first;
	}
	return first;
}

static void check_overlap(const struct ek_recipe *recipe)
{
	struct ek_image image;
	if (ek_kernel_build(recipe, NEWER_THAN_ANY, NULL, &image, NULL, NULL) != EK_OK) {
		test_fail("%s: %s", recipe->name, ek_error(NULL));
		return;
	}
	const char *ptx = image.data, *wait = strstr(ptx, "griddepcontrol.wait"), *nc = strstr(ptx, ".nc.");
	const char *access = first_access(ptx);
	EXPECT(!nc, "%s: %.60s", recipe->name, nc);
	EXPECT(wait, "%s: no griddepcontrol.wait", recipe->name);
	EXPECT(!access || wait < access, "%s: an access before griddepcontrol.wait: %.60s", recipe->name,
	       access);
	free(image.data);
}

/* The kernel before may still run and write all that a kernel reads, weights too. ld.global.nc needs memory that is
 * read-only during the kernel's lifetime. */
TEST(kernels_that_overlap_read_what_the_one_before_wrote)
{
	static const struct call calls[] = {
		{.norm = EK_LAYER_NORM, .dtypes = {EK_BF16, EK_F32}, .cols = 768},
		{.norm = EK_RMS_NORM, .dtypes = {EK_F64, EK_F64}, .cols = 400000},
		{.backward = true, .norm = EK_LAYER_NORM, .dtypes = {EK_F32, EK_F32}, .cols = 768},
		{.backward = true, .norm = EK_LAYER_NORM, .dtypes = {EK_F16, EK_F16}, .cols = 1 << 20}};
	arch = MEASURED_ARCH;
	for (int i = 0; has_nvrtc() && i < COUNT_OF(calls); i++) {
		struct ek_recipe recipes[MOST_OF_A_CALL];
		struct call f = calls[i];
		f.weight = f.bias = f.given = f.dx = f.sums = true;
		int count = recipes_of(&f, f.cols, recipes);
		for (int k = 0; k < count; k++)
			check_overlap(&recipes[k]);
	}
}

TEST(kernels_of_rope_read_what_the_one_before_wrote)
{
	static const char *const operands[] = {"k k_out q_bias q_weight positions dq dk q_weight dq_weight",
					       "k k_out dq dk dq_bias"};
	arch = MEASURED_ARCH;
	for (int i = 0; has_nvrtc() && i < COUNT_OF(operands) * PASS_COUNT; i++) {
		struct test_case c =
			case_make_heads(&ek_ops[EK_ROW_NAMES + 1 - i / 2], i % 2 ? BACKWARD : FORWARD,
					dtype_pairs[i], (struct head_sizes){2, 100, 4, 2, 96, 96});
		struct ek_recipe recipes[MOST_OF_A_CALL];
		union op_args args;
		case_set(&c, operands[i / 2]);
		case_args_nowhere(&c, &args);
		int count = list_recipes(case_op(&c), &args, arch, recipes, MOST_OF_A_CALL);
		for (int k = 0; k < count; k++)
			check_overlap(&recipes[k]);
	}
}

static bool named(const struct ek_recipe *recipes, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(recipes[i].name, name) == 0)
			return true;
	return false;
}

/* What a profiler shows. */
TEST(names_tell_op_pass_dtype_and_columns)
{
	static const struct {
		struct call call;
		const char *names[2];
	} expected[] = {
		{{.norm = EK_LAYER_NORM, .dtypes = {EK_BF16, EK_F32}, .cols = 768},
		 {"ek_layer_norm_forward_bf16_768"}},
		{{.norm = EK_RMS_NORM, .dtypes = {EK_F64, EK_F64}, .cols = 4000000},
		 {"ek_rms_norm_forward_staged_f64_4000000"}},
		{{.backward = true, .norm = EK_RMS_NORM, .dtypes = {EK_F32, EK_F32}, .cols = 5, .sums = true},
		 {"ek_rms_norm_backward_f32_5", "ek_columns_final_f32_5"}},
		{{.backward = true,
		  .norm = EK_LAYER_NORM,
		  .dtypes = {EK_F16, EK_F16},
		  .cols = 1 << 20,
		  .sums = true},
		 {"ek_layer_norm_backward_staged_rows_f16_1048576",
		  "ek_layer_norm_backward_staged_columns_f16_1048576"}},
	};
	arch = MEASURED_ARCH;
	for (int i = 0; i < COUNT_OF(expected); i++) {
		struct ek_recipe recipes[MOST_OF_A_CALL];
		const struct call *f = &expected[i].call;
		int count = recipes_of(f, f->cols, recipes);
		for (int k = 0; k < 2 && expected[i].names[k]; k++)
			EXPECT(named(recipes, count, expected[i].names[k]),
			       "no kernel is called %s; the first is %s", expected[i].names[k],
			       count ? recipes[0].name : "missing");
	}
}

TEARDOWN()
{
	free(kernels);
}
