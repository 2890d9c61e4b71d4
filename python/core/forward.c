/* _core.forward: reads the arguments, calls ek_norm_forward. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "eager.h"
#include "failure.h"
#include "output.h"

enum argument { NORM, X, SHAPE, WEIGHT, BIAS, EPS, STATS, OUT, THREADS, STREAM, ARGUMENTS };

const char forward_doc[] =
	"forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream)\n--\n\n"
	"Returns y, or (y, stats) where stats were asked for; None where a tensor must be made contiguous first.\n"
	"_core.pyi has the arguments.";

static void place_statistics(const struct frame *frame, const struct output *stats,
			     ek_norm_forward_args *args)
{
	if (!stats->object)
		return;
	size_t row = (size_t)frame->rows * ek_dtype_size(frame->stats_dtype);
	char *data = stats->data;
	if (frame->norm == EK_RMS_NORM) {
		args->rstd = data;
		return;
	}
	args->mean = data;
	args->rstd = data + row;
	args->mean_lo = data + 2 * row;
}

static int run(const struct frame *frame, const ek_norm_forward_args *args)
{
	ek_status status;
	if (frame_is_short(frame)) {
		status = ek_norm_forward(frame->context, args);
	} else {
		PyThreadState *state = PyEval_SaveThread();
		status = ek_norm_forward(frame->context, args);
		PyEval_RestoreThread(state);
	}
	return status == EK_OK ? 0 : raise_status(status);
}

/* PyTorch makes the statistics that autograd saves. */
static int open_statistics(struct frame *frame, PyObject *const *given, struct output *stats)
{
	int64_t count = frame->norm == EK_RMS_NORM ? 1 : 3;
	if (!frame->fresh || given[STATS] != Py_True)
		return output_statistics(frame, given[STATS], count, stats);
	PyObject *made = make_statistics(frame, given[X], count);
	int status = made ? output_statistics(frame, made, count, stats) : -1;
	Py_XDECREF(made);
	return status;
}

/* y and stats are filled; 1 where a tensor is scattered and nothing was done. */
static int compute(struct frame *frame, PyObject *const *given, struct output *y, struct output *stats)
{
	const struct scalars scalars = {given[NORM], given[SHAPE], given[THREADS], given[STREAM]};
	ek_norm_forward_args args = {.size = sizeof args};
	if (frame_open(frame, given[X], &scalars, &args.x, &args.x_stride) ||
	    frame_eps(frame, given[EPS], &args.eps) ||
	    frame_columns(frame, given[WEIGHT], "weight", &args.weight) ||
	    frame_columns(frame, given[BIAS], "bias", &args.bias))
		return -1;
	if (frame->scattered)
		return 1;
	PyObject *out = given[OUT] == Py_None ? Py_True : given[OUT];
	if (output_rows(frame, out, "out", y) || open_statistics(frame, given, stats))
		return -1;
	place_statistics(frame, stats, &args);
	args.norm = frame->norm;
	args.dtype = frame->dtype;
	args.weight_dtype = frame->weight_dtype;
	args.rows = frame->rows;
	args.cols = frame->cols;
	args.y = y->data;
	args.y_stride = y->stride;
	args.stream = frame->stream;
	return run(frame, &args);
}

static PyObject *result_of(int status, struct output *y, struct output *stats)
{
	if (status > 0)
		Py_RETURN_NONE;
	if (status < 0)
		return NULL;
	if (!stats->object)
		return output_release(y);
	return PyTuple_Pack(2, y->object, stats->object);
}

PyObject *forward_with(PyObject *const *given, bool fresh)
{
	struct frame frame;
	struct output y = {0}, stats = {0};
	frame.opened = 0;
	frame.fresh = fresh;
	int status = compute(&frame, given, &y, &stats);
	PyObject *result = result_of(status, &y, &stats);
	output_close(&y);
	output_close(&stats);
	frame_close(&frame);
	return result;
}

PyObject *forward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	return count == ARGUMENTS ? forward_with(given, false) : refuse_count("forward", ARGUMENTS, count);
}
