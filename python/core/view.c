/* Opens and closes views, and judges what a view can be of: the dtypes and devices of the library. Called for
 * every tensor of every call. SPDX-License-Identifier: MIT */
#include "view.h"

#include <stdio.h>

#include "exchange.h"
#include "failure.h"

const char *shape_text(char *text, size_t size, int ndim, const int64_t *shape)
{
	size_t used = (size_t)snprintf(text, size, "(");
	for (int i = 0; i < ndim && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, i ? ", %lld" : "%lld",
					 (long long)shape[i]);
	if (used < size)
		(void)snprintf(text + used, size - used, ndim == 1 ? ",)" : ")");
	return text;
}

const char *expected_of(const struct view *view)
{
	return view->is_index ? "int64" : "f32, f16, bf16 or f64";
}

/* int32, complex64: as frameworks call them. */
static int refuse_dtype(const struct view *view, DLDataType dtype)
{
	static const char *const kinds[] = {
		[kDLInt] = "int",       [kDLUInt] = "uint",       [kDLFloat] = "float",
		[kDLBfloat] = "bfloat", [kDLComplex] = "complex", [kDLBool] = "bool"};
	size_t count = sizeof kinds / sizeof *kinds;
	if (dtype.lanes == 1 && dtype.code < count && kinds[dtype.code])
		PyErr_Format(PyExc_TypeError, "%s is %s%d: it must be %s", view->name, kinds[dtype.code],
			     dtype.bits, expected_of(view));
	else
		PyErr_Format(PyExc_TypeError,
			     "%s is of DLPack's type code %d with %d bits and %d lanes: it must be %s",
			     view->name, dtype.code, dtype.bits, dtype.lanes, expected_of(view));
	return -1;
}

static int read_dtype(struct view *view, DLDataType dtype)
{
	view->dtype = 0;
	if (view->is_index)
		return dtype.lanes == 1 && dtype.code == kDLInt && dtype.bits == 64
			       ? 0
			       : refuse_dtype(view, dtype);
	if (dtype.lanes == 1 && dtype.code == kDLFloat &&
	    (dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64))
		view->dtype = dtype.bits == 32 ? EK_F32 : dtype.bits == 16 ? EK_F16 : EK_F64;
	else if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16)
		view->dtype = EK_BF16;
	else
		return refuse_dtype(view, dtype);
	return 0;
}

static int read_device(struct view *view, DLDevice device)
{
	switch (device.device_type) {
	case kDLCPU:
	case kDLCUDAHost:
		view->device = EK_CPU;
		view->ordinal = 0;
		return 0;
	case kDLCUDA:
	case kDLCUDAManaged:
		view->device = EK_CUDA;
		view->ordinal = device.device_id;
		return 0;
	}
	PyErr_Format(
		PyExc_NotImplementedError,
		"%s is on a device of DLPack's type %d: it must be on the CPU (%d) or an NVIDIA GPU (%d)",
		view->name, device.device_type, kDLCPU, kDLCUDA);
	return -1;
}

int require_ndim(const struct view *view, int ndim)
{
	if (ndim <= MAX_NDIM)
		return 0;
	PyErr_Format(PyExc_ValueError, "%s has %d dimensions: it must have at most %d, reshape it",
		     view->name, ndim, MAX_NDIM);
	return -1;
}

static bool has_elements(const DLTensor *tensor)
{
	for (int i = 0; i < tensor->ndim; i++)
		if (tensor->shape[i] == 0)
			return false;
	return true;
}

int view_from_dltensor(struct view *view, const DLTensor *tensor)
{
	if (read_dtype(view, tensor->dtype) || read_device(view, tensor->device) ||
	    require_ndim(view, tensor->ndim))
		return -1;
	if (!tensor->data && has_elements(tensor)) {
		PyErr_Format(PyExc_TypeError,
			     "%s has no memory of its own: is it a fake tensor, or a wrapper?", view->name);
		return -1;
	}
	view->data = (char *)tensor->data + tensor->byte_offset;
	view->ndim = tensor->ndim;
	view->shape = tensor->shape;
	view->strides = tensor->strides;
	return 0;
}

/* Not the whole struct: its arrays need no clearing, and calls are short. */
void view_clear(struct view *view)
{
	view->capsule = NULL;
	view->has_buffer = false;
}

static int refuse_type(const struct view *view, PyObject *object)
{
	PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
	if (type) /* _arrays.py has the same text */
		PyErr_Format(
			PyExc_TypeError,
			"%s is of type %S; expected an array with DLPack or the buffer protocol, such as numpy.asarray(%s, 'float32')",
			view->name, type, view->name);
	Py_XDECREF(type);
	return -1;
}

/* The buffer protocol goes first: it is quicker than a capsule, and knows what is read-only in every version. */
static int open_otherwise(struct view *view, PyObject *object, void *stream)
{
	int status = view_open_buffer(view, object);
	if (status == 1)
		status = view_open_capsule(view, object, stream);
	return status == 1 ? refuse_type(view, object) : status;
}

int view_open(struct view *view, PyObject *object, const char *name, bool is_index, void *stream)
{
	view_clear(view);
	view->name = name;
	view->is_index = is_index;
	view->object = object;
	view->readonly = view->scattered = false;
	view->api = exchange_of(object);
	if (!view->api)
		return open_otherwise(view, object, stream);
	DLTensor tensor;
	if (view->api->dltensor_from_py_object_no_sync(object, &tensor))
		return raise_unreadable(name);
	return view_from_dltensor(view, &tensor);
}

void view_close(struct view *view)
{
	if (view->has_buffer)
		PyBuffer_Release(&view->buffer);
	Py_XDECREF(view->capsule);
	view_clear(view);
}
