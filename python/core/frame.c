/* Reads the tensors of a call and holds them against x, with messages that name both sides.
 * SPDX-License-Identifier: MIT */
#include "frame.h"

#include <float.h>
#include <limits.h>

#include "check.h"
#include "contexts.h"

enum { TEXT = 256 };

/* ---- what is required of a tensor ---- */

int require_shape(const struct view *view, int ndim, const int64_t *shape)
{
	bool same = view->ndim == ndim;
	for (int i = 0; same && i < ndim; i++)
		same = view->shape[i] == shape[i];
	if (same)
		return 0;
	char has[TEXT], must[TEXT];
	PyErr_Format(PyExc_ValueError, "%s has shape %s: it must have %s", view->name,
		     shape_text(has, sizeof has, view->ndim, view->shape),
		     shape_text(must, sizeof must, ndim, shape));
	return -1;
}

int require_dtype(const struct view *view, ek_dtype dtype, const char *like)
{
	if (view->dtype == dtype)
		return 0;
	PyErr_Format(PyExc_TypeError, "%s is %s: it must be %s%s", view->name, ek_dtype_name(view->dtype),
		     ek_dtype_name(dtype), like);
	return -1;
}

int require_writable(const struct view *view)
{
	if (!view->readonly)
		return 0;
	PyErr_Format(PyExc_ValueError, "%s is read-only: give a writable one", view->name);
	return -1;
}

int refuse_layout(const struct view *view, const char *layout)
{
	char strides[TEXT];
	PyErr_Format(PyExc_ValueError, "%s has strides %s: it must be %s", view->name,
		     view->scattered ? "of no whole elements"
				     : shape_text(strides, sizeof strides, view->ndim, view->strides),
		     layout);
	return -1;
}

static int require_device(const struct frame *frame, const struct view *view)
{
	if (view->device == frame->device && view->ordinal == frame->ordinal)
		return 0;
	static const char *const names[] = {[EK_CPU] = "cpu", [EK_CUDA] = "cuda"};
	PyErr_Format(PyExc_ValueError, "%s is on %s:%d, x on %s:%d: they must be on one device", view->name,
		     names[view->device], view->ordinal, names[frame->device], frame->ordinal);
	return -1;
}

/* ---- tensors beside x ---- */

static struct view *next_view(struct frame *frame, PyObject *object, const char *name)
{
	struct view *view = &frame->views[frame->opened++];
	return view_open(view, object, name, frame->stream) ? NULL : view;
}

struct view *frame_view(struct frame *frame, PyObject *object, const char *name)
{
	struct view *view = next_view(frame, object, name);
	return view && require_device(frame, view) == 0 ? view : NULL;
}

int frame_rows(struct frame *frame, PyObject *object, const char *name, const void **data, int64_t *stride)
{
	const struct view *view = frame_view(frame, object, name);
	if (!view || require_dtype(view, frame->dtype, ", as x") ||
	    require_shape(view, frame->ndim, frame->shape))
		return -1;
	*data = view->data;
	*stride = row_stride(frame, view);
	frame->scattered |= *stride < 0;
	return 0;
}

int frame_columns(struct frame *frame, PyObject *object, const char *name, const void **data)
{
	if (object == Py_None)
		return 0;
	const struct view *view = frame_view(frame, object, name);
	if (!view || require_shape(view, frame->normalized_ndim, frame->normalized))
		return -1;
	if (frame->weight_dtype && require_dtype(view, frame->weight_dtype, ", as weight"))
		return -1;
	frame->weight_dtype = view->dtype;
	frame->scattered |= !is_contiguous(view);
	*data = view->data;
	return 0;
}

int frame_statistic(struct frame *frame, PyObject *object, const char *name, const void **data)
{
	const struct view *view = frame_view(frame, object, name);
	if (!view || require_dtype(view, frame->stats_dtype, ""))
		return -1;
	int64_t count = 1;
	for (int i = 0; i < view->ndim; i++)
		count *= view->shape[i];
	if (count != frame->rows) {
		PyErr_Format(PyExc_ValueError,
			     "%s has %lld elements: it must have %lld, one for each row of x", name,
			     (long long)count, (long long)frame->rows);
		return -1;
	}
	frame->scattered |= !is_contiguous(view);
	*data = view->data;
	return 0;
}

int frame_statistics(struct frame *frame, PyObject *object, const void **data, int64_t *count)
{
	const struct view *view = frame_view(frame, object, "stats");
	if (!view || require_dtype(view, frame->stats_dtype, ""))
		return -1;
	*count = view->ndim > 0 ? view->shape[0] : 0;
	const int64_t shape[] = {frame->norm == EK_RMS_NORM ? 1 : *count == 2 ? 2 : 3, frame->rows};
	if (require_shape(view, 2, shape))
		return -1;
	frame->scattered |= !is_contiguous(view);
	*data = view->data;
	return 0;
}

/* -1: an argument that did not convert, in an exception that names it. */
static int refuse_number(const char *name, PyObject *value, const char *expected)
{
	bool is_large = PyErr_ExceptionMatches(PyExc_OverflowError);
	if (!is_large && !PyErr_ExceptionMatches(PyExc_TypeError))
		return -1; /* from the value's own methods */
	PyErr_Clear();
	PyErr_Format(is_large ? PyExc_ValueError : PyExc_TypeError, "%s is %R; expected %s", name, value,
		     expected);
	return -1;
}

int frame_eps(const struct frame *frame, PyObject *number, double *eps)
{
	if (number == Py_None && frame->norm == EK_RMS_NORM)
		*eps = frame->stats_dtype == EK_F64 ? DBL_EPSILON : FLT_EPSILON;
	else
		*eps = PyFloat_AsDouble(number);
	return *eps == -1 && PyErr_Occurred() ? refuse_number("eps", number, "a number, such as 1e-5") : 0;
}

/* ---- x ---- */

/* Is a dimension of x the one asked for? -1 with an exception. */
static int is_size(PyObject *number, int64_t size)
{
	long long asked = PyLong_AsLongLong(number);
	if (asked == -1 && PyErr_Occurred())
		return refuse_number("normalized_shape", number, "an integer");
	return asked == size;
}

/* Counts the dimensions that are normalized: `shape` is an int or a tuple, which x's shape must end in. */
static int read_normalized(struct frame *frame, PyObject *shape)
{
	bool many = PyTuple_Check(shape);
	Py_ssize_t count = many ? PyTuple_Size(shape) : 1;
	int same = count >= 1 && count <= frame->ndim;
	frame->normalized_ndim = (int)count;
	frame->normalized = frame->shape + (same ? frame->ndim - count : 0);
	for (Py_ssize_t i = 0; same == 1 && i < count; i++)
		same = is_size(many ? PyTuple_GetItem(shape, i) : shape, frame->normalized[i]);
	if (same == 0) {
		char has[TEXT];
		PyErr_Format(
			PyExc_ValueError,
			"x has shape %s: it must end in the normalized shape %R, of one dimension or more",
			shape_text(has, sizeof has, frame->ndim, frame->shape), shape);
	}
	return same == 1 ? 0 : -1;
}

static int64_t product(int count, const int64_t *sizes)
{
	int64_t result = 1;
	for (int i = 0; i < count; i++)
		result *= sizes[i];
	return result;
}

static int read_norm(struct frame *frame, PyObject *norm)
{
	long value = PyLong_AsLong(norm);
	if (value == -1 && PyErr_Occurred())
		return -1;
	frame->norm = (ek_norm)value;
	return 0;
}

static int find_context(struct frame *frame, PyObject *number)
{
	int overflow;
	long threads = PyLong_AsLongAndOverflow(number, &overflow);
	if (threads == -1 && PyErr_Occurred())
		return refuse_number("threads", number, "an integer");
	if (overflow || threads < INT_MIN || threads > INT_MAX) { /* the library has an int */
		PyErr_Format(PyExc_ValueError, "threads (%S) is not in 0 to %d", number, EK_MAX_THREADS);
		return -1;
	}
	frame->context = context_of(frame->device, frame->ordinal, (int)threads);
	return frame->context ? 0 : -1;
}

/* The stream that the caller asked for, else the default one. */
static int read_stream(struct frame *frame, PyObject *number)
{
	frame->stream = number == Py_None ? NULL : PyLong_AsVoidPtr(number);
	return !frame->stream && PyErr_Occurred() ? refuse_number("stream", number, "an integer") : 0;
}

/* Where x's framework says on which stream it works it must be that one: on another, the framework would not wait for it
 * before it gives memory away. */
static int check_stream(struct frame *frame, PyObject *number)
{
	void *asked = frame->stream;
	if (frame->device == EK_CPU) {
		frame->stream = NULL;
		return 0;
	}
	if (!frame->api || !frame->api->current_work_stream)
		return 0;
	if (frame->api->current_work_stream(kDLCUDA, frame->ordinal, &frame->stream))
		return -1;
	if (number == Py_None || asked == frame->stream)
		return 0;
	PyErr_Format(PyExc_ValueError,
		     "stream is %llu, and x's framework works on %llu: make it the current stream there",
		     (unsigned long long)(uintptr_t)asked, (unsigned long long)(uintptr_t)frame->stream);
	return -1;
}

static int read_x(struct frame *frame, PyObject *x, const void **data)
{
	const struct view *view = next_view(frame, x, "x");
	if (!view)
		return -1;
	frame->api = view->api;
	frame->device = view->device;
	frame->ordinal = view->ordinal;
	frame->dtype = view->dtype;
	frame->stats_dtype = view->dtype == EK_F64 ? EK_F64 : EK_F32;
	frame->ndim = view->ndim;
	frame->shape = view->shape;
	*data = view->data;
	return 0;
}

int frame_open(struct frame *frame, PyObject *x, const struct scalars *scalars, const void **data,
	       int64_t *stride)
{
	frame->opened = 0;
	frame->weight_dtype = 0;
	if (read_norm(frame, scalars->norm) || read_stream(frame, scalars->stream) ||
	    read_x(frame, x, data) || read_normalized(frame, scalars->shape) ||
	    check_stream(frame, scalars->stream) || find_context(frame, scalars->threads))
		return -1;
	int leading = frame->ndim - frame->normalized_ndim;
	frame->rows = product(leading, frame->shape);
	frame->cols = product(frame->normalized_ndim, frame->normalized);
	*stride = row_stride(frame, &frame->views[0]);
	frame->scattered = *stride < 0;
	return 0;
}

void frame_close(struct frame *frame)
{
	for (int i = 0; i < frame->opened; i++)
		view_close(&frame->views[i]);
}

bool frame_is_short(const struct frame *frame)
{
	return frame->device == EK_CPU && frame->rows * frame->cols < 32768; /* some microseconds */
}
