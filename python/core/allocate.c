/* Asks x's framework for memory. Called by operands.c, statistics.c and workspace.c. SPDX-License-Identifier: MIT */
#include "allocate.h"

#include <string.h>

static const DLDataType dl_dtypes[] = {
	[EK_F32] = {.code = kDLFloat, .bits = 32, .lanes = 1},
	[EK_F16] = {.code = kDLFloat, .bits = 16, .lanes = 1},
	[EK_BF16] = {.code = kDLBfloat, .bits = 16, .lanes = 1},
	[EK_F64] = {.code = kDLFloat, .bits = 64, .lanes = 1},
};

static void set_error(void *context, const char *kind, const char *message)
{
	(void)context;
	PyErr_SetString(strcmp(kind, "MemoryError") == 0 ? PyExc_MemoryError : PyExc_RuntimeError, message);
}

DLManagedTensorVersioned *allocate(const struct call *call, const char *name, DLDataType dtype, int ndim,
				   const int64_t *shape)
{
	if (!call->api || !call->api->managed_tensor_allocator) {
		PyErr_Format(PyExc_TypeError,
			     "%s must be given, or x must be an array of NumPy, CuPy or PyTorch: "
			     "an array like x cannot be made here",
			     name);
		return NULL;
	}
	DLTensor prototype = {
		.device = {.device_type = call->device == EK_CUDA ? kDLCUDA : kDLCPU,
			   .device_id = call->ordinal},
		.ndim = ndim,
		.dtype = dtype,
		.shape = (int64_t *)shape, /* which is read alone */
	};
	DLManagedTensorVersioned *tensor = NULL;
	if (call->api->managed_tensor_allocator(&prototype, &tensor, NULL, set_error)) {
		size_t bytes = dtype.bits / 8;
		for (int i = 0; i < ndim; i++)
			bytes *= (size_t)shape[i];
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_MemoryError,
				     "x's framework has no memory for %s (%zu bytes): free some, or give it",
				     name, bytes);
		return NULL;
	}
	return tensor;
}

PyObject *allocate_object(const struct call *call, const char *name, ek_dtype dtype, int ndim,
			  const int64_t *shape)
{
	DLManagedTensorVersioned *tensor = allocate(call, name, dl_dtypes[dtype], ndim, shape);
	void *object = NULL;
	return !tensor || call->api->managed_tensor_to_py_object_no_sync(tensor, &object) ? NULL : object;
}
