/* A case with its tensors: making, computing, comparing. SPDX-License-Identifier: MIT */
#include "problem.h"

#include "cli.h"
#include "device.h"
#include "memory.h"
#include "mirror.h"
#include "options.h"
#include "status.h"

static ek_dtype statistics_dtype(ek_dtype dtype)
{
	return dtype == EK_F64 ? EK_F64 : EK_F32;
}

const char *output_name(enum pass pass, enum output output)
{
	static const char *const names[OUTPUT_COUNT] = {"dx", "mean", "rstd", "mean_lo", "dweight", "dbias"};
	return pass == FORWARD && output == OUT_RESULT ? "y" : names[output];
}

/* Allocates like the case's tensors: rows x cols, a vector of a value for each row or each column. */
static bool make_matrix(const struct test_case *test_case, struct tensor *tensor)
{
	const struct form *form = &test_case->form;
	return tensor_make(tensor, test_case->dtype, test_case->rows, test_case->cols,
			   test_case->cols + form->pad, form->offset);
}

static bool make_per_row(const struct test_case *test_case, struct tensor *tensor)
{
	return tensor_make(tensor, statistics_dtype(test_case->dtype), 1, test_case->rows, test_case->rows,
			   test_case->form.offset);
}

static bool make_per_col(const struct test_case *test_case, struct tensor *tensor)
{
	return tensor_make(tensor, test_case->weight_dtype, 1, test_case->cols, test_case->cols,
			   test_case->form.offset);
}

static bool make_outputs(const struct test_case *test_case, struct outputs *outputs)
{
	const struct form *form = &test_case->form;
	bool forward = test_case->pass == FORWARD;
	bool layer_norm = test_case->op->norm == EK_LAYER_NORM;
	struct tensor *tensors = outputs->tensors;
	bool fine = (!forward && !form->dx) || make_matrix(test_case, &tensors[OUT_RESULT]);
	if (forward && form->returns) {
		fine = fine && make_per_row(test_case, &tensors[OUT_RSTD]);
		if (layer_norm)
			fine = fine && make_per_row(test_case, &tensors[OUT_MEAN]) &&
			       make_per_row(test_case, &tensors[OUT_MEAN_LO]);
	}
	if (!forward && form->dweight)
		fine = fine && make_per_col(test_case, &tensors[OUT_DWEIGHT]);
	if (!forward && form->dbias)
		fine = fine && make_per_col(test_case, &tensors[OUT_DBIAS]);
	return fine;
}

static bool make_inputs(struct problem *problem)
{
	const struct test_case *test_case = &problem->test_case;
	const struct form *form = &test_case->form;
	bool fine = make_matrix(test_case, &problem->x) && make_per_col(test_case, &problem->weight) &&
		    make_per_col(test_case, &problem->bias);
	if (test_case->pass == BACKWARD)
		fine = fine && make_matrix(test_case, &problem->dy) &&
		       make_per_row(test_case, &problem->mean) && make_per_row(test_case, &problem->rstd) &&
		       make_per_row(test_case, &problem->mean_lo);
	if (!fine)
		return false;
	tensor_fill(&problem->x, problem->init, problem->seed, ACTIVATION);
	tensor_add_special(&problem->x, form->values, 0);
	tensor_fill(&problem->weight, problem->init, problem->seed, WEIGHT);
	tensor_fill(&problem->bias, problem->init, problem->seed, BIAS);
	if (test_case->pass == BACKWARD) {
		tensor_fill(&problem->dy, problem->init, ~problem->seed, ACTIVATION);
		tensor_add_special(&problem->dy, form->values, 2);
		tensor_fill(&problem->mean, problem->init, problem->seed + 2, ACTIVATION);
		tensor_fill(&problem->rstd, problem->init, problem->seed + 2, ROLE_RSTD);
		tensor_fill(&problem->mean_lo, problem->init, problem->seed + 3, ACTIVATION);
	}
	return true;
}

static ek_norm_forward_args forward_args(const struct problem *problem)
{
	const struct test_case *test_case = &problem->test_case;
	ek_norm_forward_args args = forward_args_of(test_case, problem->eps);
	args.x = problem->x.data;
	args.weight = test_case->form.weight ? problem->weight.data : NULL;
	args.bias = test_case->form.bias ? problem->bias.data : NULL;
	return args;
}

/* Of a case and of what it is checked against. */
static double problem_bytes(const struct test_case *test_case)
{
	return case_bytes(test_case) * 1.5;
}

static int refuse_size(const struct test_case *test_case)
{
	return complain(STATUS_USAGE, "--rows %lld --cols %lld: needs %.1f GB, more than this machine has",
			(long long)test_case->rows, (long long)test_case->cols,
			problem_bytes(test_case) * 1e-9);
}

/* The statistics that forward would have kept; y goes to a tensor that is overwritten later. */
static int keep_statistics(struct problem *problem, ek_context *ctx)
{
	bool layer_norm = problem->test_case.op->norm == EK_LAYER_NORM;
	struct tensor y = {0};
	ek_norm_forward_args args = forward_args(problem);
	if (!make_matrix(&problem->test_case, &y))
		return refuse_size(&problem->test_case);
	args.y = y.data;
	args.rstd = problem->rstd.data;
	args.mean = layer_norm ? problem->mean.data : NULL;
	args.mean_lo = layer_norm ? problem->mean_lo.data : NULL;
	ek_status status = mirror_forward(ctx, &args, TENSOR_MARGIN);
	tensor_free(&y);
	if (status == EK_OK)
		return STATUS_FINE;
	return complain(device_exit_status(status), "%s", ek_error(ctx));
}

int problem_make(struct problem *problem, ek_context *ctx, const struct options *options,
		 const struct test_case *test_case)
{
	*problem = (struct problem){
		.test_case = *test_case, .eps = options->eps, .seed = options->seed, .init = options->init};
	if (!memory_suffices(NULL, problem_bytes(test_case)) || !make_inputs(problem) ||
	    !make_outputs(test_case, &problem->expected) || !make_outputs(test_case, &problem->actual)) {
		problem_free(problem);
		return refuse_size(test_case);
	}
	enum statistics statistics = test_case->form.statistics;
	if (test_case->pass == BACKWARD && (statistics == KEPT || statistics == KEPT_WITHOUT_LOW))
		return keep_statistics(problem, ctx);
	return STATUS_FINE;
}

void problem_free(struct problem *problem)
{
	struct tensor *const inputs[] = {&problem->x,    &problem->dy,   &problem->weight, &problem->bias,
					 &problem->mean, &problem->rstd, &problem->mean_lo};
	for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
		tensor_free(inputs[i]);
	for (int i = 0; i < OUTPUT_COUNT; i++) {
		tensor_free(&problem->expected.tensors[i]);
		tensor_free(&problem->actual.tensors[i]);
	}
	tensor_free(&problem->workspace);
}

static void prepare_outputs(const struct problem *problem, struct outputs *outputs)
{
	const struct form *form = &problem->test_case.form;
	for (int i = 0; i < OUTPUT_COUNT; i++) {
		struct tensor *tensor = &outputs->tensors[i];
		if (!tensor->memory)
			continue;
		if (form->accumulate && (i == OUT_DWEIGHT || i == OUT_DBIAS))
			tensor_fill(tensor, problem->init, problem->seed + 4, BIAS);
		else
			tensor_stain(tensor);
	}
	bool over_x = form->place == OVER_SECOND || problem->test_case.pass == FORWARD;
	if (form->place != APART)
		tensor_copy(&outputs->tensors[OUT_RESULT], over_x ? &problem->x : &problem->dy);
}

static ek_status call_forward(const struct problem *problem, ek_context *ctx, const struct outputs *outputs)
{
	const struct tensor *tensors = outputs->tensors;
	ek_norm_forward_args args = forward_args(problem);
	args.y = tensors[OUT_RESULT].data;
	if (problem->test_case.form.place != APART)
		args.x = args.y;
	args.mean = tensors[OUT_MEAN].data;
	args.rstd = tensors[OUT_RSTD].data;
	args.mean_lo = tensors[OUT_MEAN_LO].data;
	return mirror_forward(ctx, &args, TENSOR_MARGIN);
}

static ek_norm_backward_args backward_args(const struct problem *problem, const struct outputs *outputs)
{
	const struct test_case *test_case = &problem->test_case;
	const struct form *form = &test_case->form;
	bool layer_norm = test_case->op->norm == EK_LAYER_NORM;
	ek_norm_backward_args args = backward_args_of(test_case, problem->eps);
	args.dy = problem->dy.data;
	args.x = problem->x.data;
	args.weight = form->weight ? problem->weight.data : NULL;
	args.dx = outputs->tensors[OUT_RESULT].data;
	args.dweight = outputs->tensors[OUT_DWEIGHT].data;
	args.dbias = outputs->tensors[OUT_DBIAS].data;
	if (form->statistics != ANEW) {
		args.rstd = problem->rstd.data;
		args.mean = layer_norm ? problem->mean.data : NULL;
		args.mean_lo =
			layer_norm && form->statistics != KEPT_WITHOUT_LOW ? problem->mean_lo.data : NULL;
	}
	if (form->place == OVER_FIRST)
		args.dy = args.dx;
	if (form->place == OVER_SECOND)
		args.x = args.dx;
	return args;
}

static ek_status call_backward(struct problem *problem, ek_context *ctx, const struct outputs *outputs)
{
	ek_norm_backward_args args = backward_args(problem, outputs);
	size_t bytes = 0;
	ek_status status = ek_norm_backward_workspace(ctx, &args, &bytes);
	if (status != EK_OK)
		return status;
	if (!problem->workspace.memory || bytes > tensor_bytes(&problem->workspace)) {
		int64_t elements = (int64_t)(bytes / 4 + 1);
		tensor_free(&problem->workspace);
		if (!tensor_make(&problem->workspace, EK_F32, 1, elements, elements, 0))
			return ek_fail(EK_ERROR_MEMORY, "out of memory for a workspace of %zu bytes", bytes);
	}
	args.workspace = problem->workspace.data;
	args.workspace_size = bytes;
	return mirror_backward(ctx, &args, TENSOR_MARGIN);
}

int problem_compute(struct problem *problem, ek_context *ctx, struct outputs *outputs)
{
	prepare_outputs(problem, outputs);
	ek_status status = problem->test_case.pass == FORWARD ? call_forward(problem, ctx, outputs)
							      : call_backward(problem, ctx, outputs);
	if (status == EK_OK)
		return STATUS_FINE;
	return complain(device_exit_status(status), "%s %s (%s): %s: %s", problem->test_case.op->name,
			pass_names[problem->test_case.pass], problem->test_case.form.name,
			ek_status_name(status), ek_error(ctx));
}

bool problem_same(const struct problem *problem, struct difference *difference)
{
	for (int i = 0; i < OUTPUT_COUNT; i++) {
		const struct tensor *expected = &problem->expected.tensors[i];
		if (!expected->memory)
			continue;
		int64_t index;
		if (tensor_same(expected, &problem->actual.tensors[i], &index))
			continue;
		bool per_row = i == OUT_MEAN || i == OUT_RSTD || i == OUT_MEAN_LO;
		*difference = (struct difference){.output = (enum output)i, .index = index};
		difference->row = per_row ? index : index / expected->stride;
		difference->col = per_row ? 0 : index % expected->stride;
		return false;
	}
	return true;
}

double outputs_values(const struct outputs *outputs)
{
	double values = 0;
	for (int i = 0; i < OUTPUT_COUNT; i++)
		if (outputs->tensors[i].memory)
			values += (double)outputs->tensors[i].rows * (double)outputs->tensors[i].cols;
	return values;
}
