/* _core.backward_workspace: how much scratch memory backward needs, for callers that must bring it.
 * SPDX-License-Identifier: MIT */
#include "functions.h"

#include "failure.h"
#include "frame.h"

enum argument { NORM, X, SHAPE, WEIGHT, DWEIGHT, DBIAS, THREADS, ARGUMENTS };

const char backward_workspace_doc[] =
	"backward_workspace(norm, x, shape, weight, dweight, dbias, threads)\n--\n\n"
	"The bytes of workspace that backward needs, for frameworks without DLPack's C exchange API.";

static PyObject *bytes_needed(struct frame *frame, PyObject *const *given)
{
	const struct scalars scalars = {given[NORM], given[SHAPE], given[THREADS], Py_None};
	const void *x, *weight;
	int64_t stride;
	if (frame_open(frame, given[X], &scalars, &x, &stride) ||
	    frame_columns(frame, given[WEIGHT], "weight", &weight))
		return NULL;
	char wanted = 0; /* the library asks for no more than an address */
	const ek_norm_backward_args args = {
		.size = sizeof args,
		.norm = frame->norm,
		.dtype = frame->dtype,
		.weight_dtype = frame->weight_dtype,
		.rows = frame->rows,
		.cols = frame->cols,
		.dweight = PyObject_IsTrue(given[DWEIGHT]) ? &wanted : NULL,
		.dbias = PyObject_IsTrue(given[DBIAS]) ? &wanted : NULL,
	};
	size_t size;
	ek_status status = ek_norm_backward_workspace(frame->context, &args, &size);
	if (status == EK_OK)
		return PyLong_FromSize_t(size);
	(void)raise_status(status);
	return NULL;
}

PyObject *backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != ARGUMENTS)
		return refuse_count("backward_workspace", ARGUMENTS, count);
	struct frame frame;
	frame.opened = 0;
	PyObject *result = bytes_needed(&frame, given);
	frame_close(&frame);
	return result;
}
