/* _core.backward: reads the arguments, calls ek_norm_backward. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "failure.h"
#include "output.h"
#include "workspace.h"

enum argument {
	NORM,
	DY,
	X,
	SHAPE,
	WEIGHT,
	STATS,
	EPS,
	DX,
	DWEIGHT,
	DBIAS,
	WORKSPACE,
	THREADS,
	STREAM,
	ARGUMENTS
};

const char backward_doc[] =
	"backward(norm, dy, x, shape, weight, stats, eps, dx, dweight, dbias, workspace, threads, stream)\n--\n\n"
	"Returns (dx, dweight, dbias), each None where it was not asked for; None where a tensor must be made\n"
	"contiguous first. _core.pyi has the arguments.";

struct gradients {
	struct output dx, dweight, dbias;
	struct workspace workspace;
};

/* ---- statistics ---- */

/* Three rows of one tensor, as forward returns them; RMSNorm has one. */
static int read_rows_of_statistics(struct frame *frame, PyObject *stats, ek_norm_backward_args *args)
{
	const void *data = NULL;
	int64_t count;
	if (frame_statistics(frame, stats, &data, &count))
		return -1;
	size_t row = (size_t)frame->rows * ek_dtype_size(frame->stats_dtype);
	if (frame->norm == EK_RMS_NORM) {
		args->rstd = data;
		return 0;
	}
	args->mean = data;
	args->rstd = (const char *)data + row;
	args->mean_lo = count == 3 ? (const char *)data + 2 * row : NULL;
	return 0;
}

/* One tensor each: (mean, rstd), (mean, rstd, mean_lo), or (rstd,) of RMSNorm. */
static int read_tuple_of_statistics(struct frame *frame, PyObject *stats, ek_norm_backward_args *args)
{
	Py_ssize_t count = PyTuple_Size(stats);
	if (frame->norm == EK_RMS_NORM && count == 1)
		return frame_statistic(frame, PyTuple_GetItem(stats, 0), "rstd", &args->rstd);
	if (frame->norm == EK_RMS_NORM || count < 2 || count > 3) {
		PyErr_Format(PyExc_ValueError, "stats has %zd tensors: it must have %s", count,
			     frame->norm == EK_RMS_NORM ? "1, rstd" : "2 or 3, mean, rstd and mean_lo");
		return -1;
	}
	if (frame_statistic(frame, PyTuple_GetItem(stats, 0), "mean", &args->mean) ||
	    frame_statistic(frame, PyTuple_GetItem(stats, 1), "rstd", &args->rstd))
		return -1;
	return count == 2 ? 0 : frame_statistic(frame, PyTuple_GetItem(stats, 2), "mean_lo", &args->mean_lo);
}

static int read_statistics(struct frame *frame, PyObject *stats, ek_norm_backward_args *args)
{
	if (stats == Py_None)
		return 0;
	if (PyTuple_Check(stats))
		return read_tuple_of_statistics(frame, stats, args);
	return read_rows_of_statistics(frame, stats, args);
}

/* ---- backward ---- */

static int open_outputs(struct frame *frame, PyObject *const *given, struct gradients *gradients,
			ek_norm_backward_args *args)
{
	if (output_rows(frame, given[DX], "dx", &gradients->dx) ||
	    output_columns(frame, given[DWEIGHT], "dweight", &gradients->dweight) ||
	    output_columns(frame, given[DBIAS], "dbias", &gradients->dbias))
		return -1;
	args->dx = gradients->dx.data;
	args->dx_stride = gradients->dx.stride;
	args->dweight = gradients->dweight.data;
	args->dbias = gradients->dbias.data;
	return 0;
}

static int open_workspace(struct frame *frame, PyObject *given, struct workspace *workspace,
			  ek_norm_backward_args *args)
{
	size_t size;
	ek_status status = ek_norm_backward_workspace(frame->context, args, &size);
	if (status != EK_OK)
		return raise_status(status);
	if (workspace_open(frame, given, size, workspace))
		return -1;
	args->workspace = workspace->data;
	args->workspace_size = workspace->size;
	return 0;
}

static int run(const struct frame *frame, const ek_norm_backward_args *args)
{
	ek_status status;
	if (frame_is_short(frame)) {
		status = ek_norm_backward(frame->context, args);
	} else {
		PyThreadState *state = PyEval_SaveThread();
		status = ek_norm_backward(frame->context, args);
		PyEval_RestoreThread(state);
	}
	return status == EK_OK ? 0 : raise_status(status);
}

/* The gradients are filled; 1 where a tensor is scattered and nothing was done. */
static int compute(struct frame *frame, PyObject *const *given, struct gradients *gradients)
{
	const struct scalars scalars = {given[NORM], given[SHAPE], given[THREADS], given[STREAM]};
	ek_norm_backward_args args = {.size = sizeof args};
	if (frame_open(frame, given[X], &scalars, &args.x, &args.x_stride) ||
	    frame_eps(frame, given[EPS], &args.eps) ||
	    frame_rows(frame, given[DY], "dy", &args.dy, &args.dy_stride) ||
	    frame_columns(frame, given[WEIGHT], "weight", &args.weight) ||
	    read_statistics(frame, given[STATS], &args))
		return -1;
	if (frame->scattered)
		return 1;
	if (open_outputs(frame, given, gradients, &args))
		return -1;
	/* An empty dx has no memory, and without memory there is nothing to ask for. */
	if (frame->rows == 0 && gradients->dx.object && !args.dweight && !args.dbias)
		return 0;
	args.norm = frame->norm;
	args.dtype = frame->dtype;
	args.weight_dtype = frame->weight_dtype;
	args.rows = frame->rows;
	args.cols = frame->cols;
	args.stream = frame->stream;
	if (open_workspace(frame, given[WORKSPACE], &gradients->workspace, &args))
		return -1;
	return run(frame, &args);
}

static PyObject *result_of(int status, struct gradients *gradients)
{
	if (status > 0)
		Py_RETURN_NONE;
	if (status < 0)
		return NULL;
	PyObject *result = PyTuple_New(3);
	if (!result)
		return NULL;
	PyTuple_SetItem(result, 0, output_release(&gradients->dx));
	PyTuple_SetItem(result, 1, output_release(&gradients->dweight));
	PyTuple_SetItem(result, 2, output_release(&gradients->dbias));
	return result;
}

PyObject *backward_with(PyObject *const *given, bool fresh)
{
	struct frame frame;
	frame.opened = 0;
	frame.fresh = fresh;
	struct gradients gradients = {0};
	int status = compute(&frame, given, &gradients);
	PyObject *result = result_of(status, &gradients);
	workspace_close(&gradients.workspace);
	output_close(&gradients.dx);
	output_close(&gradients.dweight);
	output_close(&gradients.dbias);
	frame_close(&frame);
	return result;
}

PyObject *backward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	return count == ARGUMENTS ? backward_with(given, false) : refuse_count("backward", ARGUMENTS, count);
}
