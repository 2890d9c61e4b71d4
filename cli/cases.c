/* The case list. verify crosses shapes, dtypes and operand forms; bench takes the shapes marked for it in
 * their plain form. SPDX-License-Identifier: MIT */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

#include "gpu_quick.h"
#include "options.h"

const struct op ops[OP_COUNT] = {
	{"layer_norm", EK_LAYER_NORM},
	{"rms_norm", EK_RMS_NORM},
};

const char *const pass_names[PASS_COUNT] = {"forward", "backward"};

/* Which lists a shape is in. verify's lists contain each other: quick, then default, then full. */
enum uses { QUICK = 1, DEFAULT = 2, FULL = 4, BENCH = 8, BENCH_QUICK = 16, HANDFUL = 32 };

struct listed_shape {
	int64_t rows, cols;
	unsigned uses;
};

static const struct listed_shape shapes[] = {
	/* edges: one element, one column, widths around powers of two and around segments of 1024 */
	{1, 1, QUICK},
	{1, 17, QUICK},
	{1000, 1, QUICK},
	{13, 13, QUICK},
	{25, 16, QUICK},
	{343, 7, QUICK},
	{4, 256, QUICK},
	{8, 511, QUICK},
	{9, 1032, QUICK},
	{17, 1023, QUICK},
	{4, 2048, QUICK},
	{39, 777, QUICK},
	{100, 200, QUICK},
	{1, 4095, QUICK},
	{1, 4097, QUICK},
	{1, 8192, QUICK},
	{1, 32767, QUICK},
	{1, 32768, QUICK},
	{1, 65536, QUICK},
	{1, 100000, QUICK},
	{3, 17134, QUICK},
	{99, 13, QUICK},
	/* the widths of models */
	{333, 1000, QUICK | BENCH | BENCH_QUICK},
	{512, 768, QUICK | BENCH | BENCH_QUICK},
	{1024, 512, QUICK},
	{1024, 1024, DEFAULT},
	{65536, 8, DEFAULT},
	{200, 10000, QUICK},
	{2048, 1024, QUICK | BENCH},
	{2048, 1600, DEFAULT},
	{7, 131072, DEFAULT | BENCH},
	{4096, 1280, DEFAULT},
	{1502, 4096, DEFAULT},
	{16384, 768, FULL | BENCH},
	{2048, 4096, FULL | BENCH | BENCH_QUICK},
	{2048, 2048, FULL},
	{4000, 2000, FULL},
	{8192, 1024, FULL},
	{512, 12288, FULL},
	{1024, 8192, FULL},
	{2048, 5120, FULL},
	{2048, 6144, FULL},
	{16384, 1024, FULL},
	{12288, 2048, FULL},
	{4096, 8192, FULL | BENCH},
	{3, 1048576, FULL},
	{1, 16777216, FULL},
};

enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

/* bench on a GPU, bf16 LayerNorm; those with HANDFUL also in the other dtypes, and as RMSNorm. */
static const struct listed_shape gpu_shapes[] = {
	/* large: the memory is the limit */
	{32768, 4096, BENCH | HANDFUL},
	{4096, 32768, BENCH},
	{1024, 131072, BENCH},
	{4096, 8192, BENCH | HANDFUL | BENCH_QUICK},
	{4096, 16384, BENCH},
	{65536, 512, BENCH},
	/* the widths of models */
	{2048, 4096, BENCH | HANDFUL | BENCH_QUICK},
	{1024, 8192, BENCH},
	{8192, 1024, BENCH},
	{16384, 768, BENCH | HANDFUL | BENCH_QUICK},
	{32768, 256, BENCH},
	{2048, 2048, BENCH},
	{2048, 5120, BENCH},
	/* rows that do not start at multiples of 16 bytes, and that do */
	{1000, 3333, BENCH | BENCH_QUICK},
	{1000, 3336, BENCH},
	/* few rows: starting a kernel is the limit */
	{1, 4096, BENCH},
	{8, 8192, BENCH | BENCH_QUICK},
	{128, 4096, BENCH},
};

enum { GPU_SHAPE_COUNT = sizeof gpu_shapes / sizeof gpu_shapes[0] };

#define ALL_GRADIENTS .dx = true, .dweight = true, .dbias = true

static const struct form forward_forms[] = {
	{"plain", .weight = true, .bias = true, .returns = true},
	{"result alone", .weight = true, .bias = true},
	{"no bias", .weight = true, .returns = true},
	{"no weight", .bias = true, .returns = true},
	{"no weight, no bias", .returns = true},
	{"in place", .weight = true, .bias = true, .returns = true, .place = OVER_FIRST},
	{"strided rows", .weight = true, .bias = true, .returns = true, .pad = 5},
	{"misaligned", .weight = true, .bias = true, .returns = true, .offset = 1},
	{"extreme values", .weight = true, .bias = true, .returns = true, .values = EXTREME},
	{"NaN and infinity", .weight = true, .bias = true, .returns = true, .values = NOT_FINITE},
};

static const struct form backward_forms[] = {
	{"plain", .weight = true, ALL_GRADIENTS},
	{"statistics computed anew", .weight = true, ALL_GRADIENTS, .statistics = ANEW},
	{"statistics without mean_lo", .weight = true, ALL_GRADIENTS, .statistics = KEPT_WITHOUT_LOW},
	{"statistics of something else", .weight = true, ALL_GRADIENTS, .statistics = FOREIGN},
	{"no weight", ALL_GRADIENTS},
	{"dx alone", .weight = true, .dx = true},
	{"dweight alone", .weight = true, .dweight = true},
	{"dbias alone", .weight = true, .dbias = true},
	{"dweight and dbias", .weight = true, .dweight = true, .dbias = true},
	{"accumulated", .weight = true, ALL_GRADIENTS, .accumulate = true},
	{"dx over dy", .weight = true, ALL_GRADIENTS, .place = OVER_FIRST},
	{"dx over x", .weight = true, ALL_GRADIENTS, .place = OVER_SECOND},
	{"strided rows", .weight = true, ALL_GRADIENTS, .pad = 5},
	{"misaligned", .weight = true, ALL_GRADIENTS, .offset = 1},
	{"extreme values", .weight = true, ALL_GRADIENTS, .values = EXTREME},
	{"NaN and infinity", .weight = true, ALL_GRADIENTS, .values = NOT_FINITE, .statistics = ANEW},
};

enum {
	FORWARD_FORMS = sizeof forward_forms / sizeof forward_forms[0],
	BACKWARD_FORMS = sizeof backward_forms / sizeof backward_forms[0],
	/* Beyond this many elements a listed shape is computed in its plain form only: the other forms choose
	 * the same loops on small shapes. A shape that was asked for may be larger. */
	FORMS_LISTED = 20000,
	FORMS_ASKED_FOR = 2000000,
	/* verify --quick on a GPU: rows for each form, and elements for one of them; narrow rows are then so many that
	 * their column sums come in all the steps that there are, and wider ones more than what counts as few. */
	FEW_ROWS = 3,
	MANY_ELEMENTS = 4500000
};

struct dtype_pair {
	ek_dtype dtype, weight_dtype;
};

static const struct dtype_pair verify_dtypes[] = {
	{EK_F32, EK_F32}, {EK_F16, EK_F16}, {EK_BF16, EK_BF16},
	{EK_F64, EK_F64}, {EK_F16, EK_F32}, {EK_BF16, EK_F32},
};

enum { VERIFY_DTYPES = sizeof verify_dtypes / sizeof verify_dtypes[0] };

struct list {
	struct test_case *cases; /* NULL while counting */
	int count;
};

static bool dtype_wanted(const struct options *options, bool bench, const struct dtype_pair *pair)
{
	ek_dtype weight_dtype = options->weight_dtype;
	if (weight_dtype ? weight_dtype != pair->weight_dtype : bench && pair->weight_dtype != pair->dtype)
		return false;
	if (options->dtype_count == 0)
		return !bench || (pair->dtype != EK_F64 && !(options->quick && pair->dtype == EK_F16));
	for (int i = 0; i < options->dtype_count; i++)
		if (options->dtypes[i] == pair->dtype)
			return true;
	return false;
}

static void append(struct list *list, const struct options *options, const struct test_case *model,
		   const struct form *form)
{
	struct test_case added = *model;
	added.form = *form;
	added.form.weight &= options->weight;
	added.form.dweight &= options->weight;
	added.form.bias &= options->bias;
	added.form.dbias &= options->bias;
	if (model->pass == BACKWARD && !added.form.dx && !added.form.dweight && !added.form.dbias)
		return; /* --weight 0 or --bias 0 has left nothing to compute */
	if (list->cases)
		list->cases[list->count] = added;
	list->count++;
}

static void append_shape(struct list *list, const struct options *options, bool bench,
			 struct test_case *model)
{
	const struct form *forms = model->pass == FORWARD ? forward_forms : backward_forms;
	int form_count = model->pass == FORWARD ? FORWARD_FORMS : BACKWARD_FORMS;
	int64_t elements = model->rows * model->cols;
	if (bench || elements > (options->shape_count ? FORMS_ASKED_FOR : FORMS_LISTED))
		form_count = 1;
	for (int i = 0; i < form_count; i++)
		append(list, options, model, &forms[i]);
}

/* The speed list of a GPU: all its shapes in bf16 or in what was asked for, a handful beside. */
static void append_gpu_shapes(struct list *list, const struct options *options, struct test_case *model)
{
	bool bf16 = model->dtype == EK_BF16;
	bool chief = model->op->norm == EK_LAYER_NORM || options->op_count;
	bool whole = options->dtype_count || (bf16 && chief);
	unsigned wanted = options->quick ? BENCH_QUICK : whole ? BENCH : HANDFUL;
	if (!whole && !bf16 && (options->quick || !chief))
		return;
	for (int i = 0; i < GPU_SHAPE_COUNT; i++) {
		model->rows = gpu_shapes[i].rows;
		model->cols = gpu_shapes[i].cols;
		if (gpu_shapes[i].uses & wanted)
			append_shape(list, options, true, model);
	}
}

static void append_shapes(struct list *list, const struct options *options, bool bench,
			  struct test_case *model)
{
	unsigned wanted = options->quick ? QUICK : options->full ? QUICK | DEFAULT | FULL : QUICK | DEFAULT;
	if (bench)
		wanted = options->quick ? BENCH_QUICK : BENCH;
	for (int i = 0; i < options->shape_count; i++) {
		model->rows = options->shapes[i].rows;
		model->cols = options->shapes[i].cols;
		append_shape(list, options, bench, model);
	}
	if (options->shape_count)
		return;
	if (bench && options->device == EK_CUDA) {
		append_gpu_shapes(list, options, model);
		return;
	}
	for (int i = 0; i < SHAPE_COUNT; i++) {
		model->rows = shapes[i].rows;
		model->cols = shapes[i].cols;
		if (shapes[i].uses & wanted)
			append_shape(list, options, bench, model);
	}
}

/* Whether the forms differ in nothing that a GPU's kernel is compiled for. */
static bool same_kernel(const struct form *a, const struct form *b)
{
	return a->weight == b->weight && a->bias == b->bias && a->dx == b->dx && a->dweight == b->dweight &&
	       a->dbias == b->dbias && (a->statistics == ANEW) == (b->statistics == ANEW) &&
	       a->pad == b->pad && a->offset == b->offset;
}

/* All forms that the kernel serves. */
static void append_kernel(struct list *list, const struct options *options, const struct gpu_kernel *kernel,
			  struct test_case *model)
{
	const struct form *forms = kernel->pass == FORWARD ? forward_forms : backward_forms;
	const struct form *end = forms + (kernel->pass == FORWARD ? FORWARD_FORMS : BACKWARD_FORMS);
	const struct form *chosen = forms;
	while (strcmp(chosen->name, kernel->form) != 0)
		chosen++;
	model->pass = kernel->pass;
	model->cols = kernel->cols;
	model->rows = FEW_ROWS;
	for (const struct form *form = forms; form < end; form++)
		if (same_kernel(form, chosen))
			append(list, options, model, form);
	model->rows = MANY_ELEMENTS / kernel->cols + 1;
	append(list, options, model, chosen);
}

/* The dtypes of a size that are wanted. */
static int pairs_of(const struct options *options, int element_size, const struct dtype_pair **pairs)
{
	int count = 0;
	for (int i = 0; i < VERIFY_DTYPES; i++)
		if ((int)ek_dtype_size(verify_dtypes[i].dtype) == element_size &&
		    dtype_wanted(options, false, &verify_dtypes[i]))
			pairs[count++] = &verify_dtypes[i];
	return count;
}

/* verify --quick on a GPU: ops and dtypes take turns with its kernels. */
static void append_gpu_quick(struct list *list, const struct options *options)
{
	const struct dtype_pair *pairs[VERIFY_DTYPES];
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	int op_count = options->op_count ? options->op_count : OP_COUNT;
	for (int i = 0; i < gpu_quick_count; i++) {
		const struct gpu_kernel *kernel = &gpu_quick[i];
		int pair_count = pairs_of(options, kernel->element_size, pairs);
		if (pair_count == 0 || (!both && !options->pass[kernel->pass]))
			continue;
		const struct dtype_pair *pair = pairs[i / op_count % pair_count];
		struct test_case model = {.op = options->op_count ? options->ops[i % op_count]
								  : &ops[i % op_count],
					  .dtype = pair->dtype,
					  .weight_dtype = pair->weight_dtype};
		append_kernel(list, options, kernel, &model);
	}
}

static void append_all(struct list *list, const struct options *options, bool bench)
{
	if (!bench && options->quick && options->device == EK_CUDA && options->shape_count == 0) {
		append_gpu_quick(list, options);
		return;
	}
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	/* bench --quick: RMSNorm moves the same bytes with less arithmetic, so LayerNorm stands for both. */
	int op_count = options->op_count ? options->op_count : bench && options->quick ? 1 : OP_COUNT;
	struct test_case model = {0};
	for (int i = 0; i < op_count; i++) {
		model.op = options->op_count ? options->ops[i] : &ops[i];
		for (int pass = 0; pass < PASS_COUNT; pass++) {
			if (!both && !options->pass[pass])
				continue;
			model.pass = (enum pass)pass;
			for (int k = 0; k < VERIFY_DTYPES; k++) {
				if (!dtype_wanted(options, bench, &verify_dtypes[k]))
					continue;
				model.dtype = verify_dtypes[k].dtype;
				model.weight_dtype = verify_dtypes[k].weight_dtype;
				append_shapes(list, options, bench, &model);
			}
		}
	}
}

struct test_case *cases_list(const struct options *options, bool bench, int *count)
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

double case_bytes(const struct test_case *test_case)
{
	double bytes =
		(double)test_case->rows * (double)test_case->cols * (double)ek_dtype_size(test_case->dtype);
	return bytes * (test_case->pass == FORWARD ? 2 : 3);
}

ek_norm_forward_args forward_args_of(const struct test_case *test_case, double eps)
{
	int64_t stride = test_case->cols + test_case->form.pad;
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = test_case->op->norm,
				      .dtype = test_case->dtype,
				      .weight_dtype = test_case->weight_dtype,
				      .rows = test_case->rows,
				      .cols = test_case->cols,
				      .x_stride = stride,
				      .y_stride = stride,
				      .eps = eps};
}

ek_norm_backward_args backward_args_of(const struct test_case *test_case, double eps)
{
	int64_t stride = test_case->cols + test_case->form.pad;
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = test_case->op->norm,
				       .dtype = test_case->dtype,
				       .weight_dtype = test_case->weight_dtype,
				       .rows = test_case->rows,
				       .cols = test_case->cols,
				       .dy_stride = stride,
				       .x_stride = stride,
				       .dx_stride = stride,
				       .eps = eps,
				       .accumulate = test_case->form.accumulate};
}
