/* Makes or checks what a call writes. What the caller gives must be laid out in rows: a copy of it would not reach
 * the caller. SPDX-License-Identifier: MIT */
#include "output.h"

#include "allocate.h"
#include "pages.h"

static bool is_wanted(PyObject *given)
{
	return given != Py_None && given != Py_False;
}

static size_t bytes_of(const struct view *view)
{
	size_t bytes = ek_dtype_size(view->dtype);
	for (int i = 0; i < view->ndim; i++)
		bytes *= (size_t)view->shape[i];
	return bytes;
}

/* Opens what the caller gave, and checks all but its layout; dtype 0 is any. */
static struct view *open_given(struct frame *frame, PyObject *given, const char *name, ek_dtype dtype,
			       int ndim, const int64_t *shape, struct output *output)
{
	struct view *view = frame_view(frame, given, name);
	if (!view || (dtype && require_dtype(view, dtype, "")) || require_shape(view, ndim, shape) ||
	    require_writable(view))
		return NULL;
	if (frame->fresh && frame->device == EK_CPU)
		prefer_large_pages(view->data, bytes_of(view));
	output->dtype = view->dtype;
	output->data = view->data;
	output->object = given;
	Py_INCREF(given);
	return view;
}

static int make(const struct frame *frame, const char *name, ek_dtype dtype, int ndim, const int64_t *shape,
		struct output *output)
{
	output->dtype = dtype;
	output->object = allocate_object(frame, name, dtype, ndim, shape, &output->data);
	return output->object ? 0 : -1;
}

static int contiguous_output(struct frame *frame, PyObject *given, const char *name, ek_dtype dtype, int ndim,
			     const int64_t *shape, struct output *output)
{
	if (!is_wanted(given))
		return 0;
	if (given == Py_True)
		return make(frame, name, dtype, ndim, shape, output);
	const struct view *view = open_given(frame, given, name, dtype, ndim, shape, output);
	if (!view)
		return -1;
	return is_contiguous(view) ? 0 : refuse_layout(view, "contiguous");
}

int output_rows(struct frame *frame, PyObject *given, const char *name, struct output *output)
{
	if (!is_wanted(given))
		return 0;
	output->stride = frame->cols;
	if (given == Py_True)
		return make(frame, name, frame->dtype, frame->ndim, frame->shape, output);
	const struct view *view =
		open_given(frame, given, name, frame->dtype, frame->ndim, frame->shape, output);
	if (!view)
		return -1;
	if (frame->fresh && !is_in_order(view)) /* made like x: PyTorch's own results are not */
		return refuse_layout(view, "in order");
	output->stride = row_stride(frame, view);
	return output->stride >= 0 ? 0 : refuse_layout(view, "contiguous, or rows at one distance");
}

/* Where no weight has said so, the first tensor of columns that is given or made decides on their dtype. */
int output_columns(struct frame *frame, PyObject *given, const char *name, struct output *output)
{
	ek_dtype dtype = frame->weight_dtype;
	if (!dtype && given == Py_True)
		dtype = frame->dtype;
	if (contiguous_output(frame, given, name, dtype, frame->normalized_ndim, frame->normalized, output))
		return -1;
	if (output->object)
		frame->weight_dtype = output->dtype;
	return 0;
}

int output_statistics(struct frame *frame, PyObject *given, int64_t count, struct output *output)
{
	const int64_t shape[] = {count, frame->rows};
	return contiguous_output(frame, given, "stats", frame->stats_dtype, 2, shape, output);
}

void output_close(struct output *output)
{
	Py_CLEAR(output->object);
}

PyObject *output_release(struct output *output)
{
	PyObject *object = output->object;
	output->object = NULL;
	if (!object) {
		Py_INCREF(Py_None);
		object = Py_None;
	}
	return object;
}
