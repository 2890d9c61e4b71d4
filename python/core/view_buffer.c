/* A view through the buffer protocol: NumPy's arrays, array.array, memoryview, ctypes. Called by view.c.
 * SPDX-License-Identifier: MIT */
#include "view.h"

#include <string.h>

/* One native element: "f", "<f", "=d". The CPUs of the library are little-endian. */
static ek_dtype dtype_of(const char *format, Py_ssize_t itemsize)
{
	if (!format)
		return 0;
	if (*format && strchr("@=<", *format))
		format++;
	ek_dtype dtype = strcmp(format, "f") == 0   ? EK_F32
			 : strcmp(format, "e") == 0 ? EK_F16
			 : strcmp(format, "d") == 0 ? EK_F64
						    : 0;
	return (size_t)itemsize == ek_dtype_size(dtype) ? dtype : 0;
}

/* ">f", "!d": what dtype_of would accept in the other byte order. */
static bool is_big_endian(const char *format)
{
	return format && (*format == '>' || *format == '!') && format[1] && strchr("efd", format[1]) &&
	       !format[2];
}

static int refuse_format(const struct view *view)
{
	const Py_buffer *buffer = &view->buffer;
	if (is_big_endian(buffer->format))
		PyErr_Format(
			PyExc_TypeError,
			"%s is big-endian (format '%s'); expected native byte order: numpy.asarray(%s, '=f%zd')",
			view->name, buffer->format, view->name, buffer->itemsize);
	else
		PyErr_Format(PyExc_TypeError, "%s has elements of the format '%s': it must be %s", view->name,
			     buffer->format ? buffer->format : "B", expected_of(view));
	return -1;
}

/* Exporters may leave out the shape of one dimension, which the length gives. */
static int read_shape(struct view *view)
{
	const Py_buffer *buffer = &view->buffer;
	_Static_assert(sizeof *view->shape == sizeof *buffer->shape, "both are 64-bit");
	view->ndim = buffer->ndim;
	view->shape = (const int64_t *)buffer->shape;
	if (buffer->shape || buffer->ndim == 0)
		return require_ndim(view, buffer->ndim);
	if (buffer->ndim > 1) {
		PyErr_Format(PyExc_TypeError,
			     "%s has a buffer of %d dimensions without a shape; expected one with a shape",
			     view->name, buffer->ndim);
		return -1;
	}
	view->length = buffer->len / buffer->itemsize;
	view->shape = &view->length;
	return 0;
}

/* ctypes leaves out the strides of its arrays, which are contiguous, also where they are asked for. */
static void read_strides(struct view *view)
{
	const Py_buffer *buffer = &view->buffer;
	view->strides = buffer->strides ? view->element_strides : NULL;
	if (!buffer->strides)
		return;
	for (int i = 0; i < buffer->ndim; i++) {
		view->element_strides[i] = buffer->strides[i] / buffer->itemsize;
		view->scattered |= buffer->strides[i] % buffer->itemsize != 0;
	}
}

/* "l", "<q" */
static bool is_int64(const char *format, Py_ssize_t itemsize)
{
	if (format && *format && strchr("@=<", *format))
		format++;
	return format && *format && strchr("lq", *format) && !format[1] && itemsize == 8;
}

static int read_buffer(struct view *view, ek_dtype dtype)
{
	const Py_buffer *buffer = &view->buffer;
	view->dtype = dtype ? dtype : dtype_of(buffer->format, buffer->itemsize);
	if (view->is_index ? !is_int64(buffer->format, buffer->itemsize) : !view->dtype)
		return refuse_format(view);
	if (read_shape(view))
		return -1;
	view->data = buffer->buf;
	view->device = EK_CPU;
	view->ordinal = 0;
	view->readonly = buffer->readonly != 0;
	read_strides(view);
	return 0;
}

/* NumPy exports no buffer of an array of bfloat16 (a type that ml_dtypes adds), but one of its bits as
 * integers: that view of it is returned, or NULL if object is no such array. */
static PyObject *bits_of_bfloat16(PyObject *object)
{
	PyObject *dtype = PyObject_GetAttrString(object, "dtype");
	PyObject *name = dtype ? PyObject_GetAttrString(dtype, "name") : NULL;
	PyObject *bits = NULL;
	if (name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0)
		bits = PyObject_CallMethod(object, "view", "s", "uint16");
	Py_XDECREF(name);
	Py_XDECREF(dtype);
	PyErr_Clear();
	return bits;
}

static bool get_buffer(struct view *view, PyObject *object)
{
	view->has_buffer = PyObject_GetBuffer(object, &view->buffer, PyBUF_STRIDES | PyBUF_FORMAT) == 0;
	PyErr_Clear();
	return view->has_buffer;
}

int view_open_buffer(struct view *view, PyObject *object)
{
	if (!PyObject_CheckBuffer(object))
		return 1;
	if (get_buffer(view, object))
		return read_buffer(view, 0);
	PyObject *bits = bits_of_bfloat16(object);
	bool got = bits && get_buffer(view, bits); /* which holds bits */
	Py_XDECREF(bits);
	return got ? read_buffer(view, EK_BF16) : 1;
}
