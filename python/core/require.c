/* What a call requires of its numbers and tensors, with messages that name the argument, its value and what is expected.
 * SPDX-License-Identifier: MIT */
#include "call.h"

enum { TEXT = 256 };

int refuse_number(const char *name, PyObject *value, const char *expected)
{
	bool is_large = PyErr_ExceptionMatches(PyExc_OverflowError);
	if (!is_large && !PyErr_ExceptionMatches(PyExc_TypeError))
		return -1; /* from the value's own methods */
	PyErr_Clear();
	PyErr_Format(is_large ? PyExc_ValueError : PyExc_TypeError, "%s is %R; expected %s", name, value,
		     expected);
	return -1;
}

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
	PyErr_Format(PyExc_TypeError, "%s is %s: it must be %s%s%s", view->name, ek_dtype_name(view->dtype),
		     ek_dtype_name(dtype), like ? ", as " : "", like ? like : "");
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

int require_contiguous(const struct view *view)
{
	return is_contiguous(view) ? 0 : refuse_layout(view, "contiguous");
}

int refuse_end(const struct view *x, PyObject *shape)
{
	char has[TEXT];
	PyErr_Format(PyExc_ValueError,
		     "x has shape %s: it must end in the normalized shape %R, of one dimension or more",
		     shape_text(has, sizeof has, x->ndim, x->shape), shape);
	return -1;
}

int refuse_ndim(const struct view *view, int least)
{
	char has[TEXT];
	PyErr_Format(PyExc_ValueError, "%s has shape %s: it must have %d dimension%s or more", view->name,
		     shape_text(has, sizeof has, view->ndim, view->shape), least, least == 1 ? "" : "s");
	return -1;
}

int refuse_odd(const struct view *view)
{
	char has[TEXT];
	PyErr_Format(
		PyExc_ValueError,
		"%s has shape %s: its last dimension must be even, as it has two elements for each of the result",
		view->name, shape_text(has, sizeof has, view->ndim, view->shape));
	return -1;
}

int refuse_device(const struct call *call, const struct view *view)
{
	static const char *const names[] = {[EK_CPU] = "cpu", [EK_CUDA] = "cuda"};
	PyErr_Format(PyExc_ValueError, "%s is on %s:%d, %s on %s:%d: they must be on one device", view->name,
		     names[view->device], view->ordinal, call->signature->name_of_x, names[call->device],
		     call->ordinal);
	return -1;
}
