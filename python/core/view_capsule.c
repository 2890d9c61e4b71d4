/* A view through __dlpack__: frameworks on GPUs, and those whose types have no C exchange API. Called by view.c.
 * The capsule is never taken over: the view holds it, and dropping it frees what is behind it.
 * SPDX-License-Identifier: MIT */
#include "view.h"

#include "failure.h"

/* __dlpack_device__()[0], or -1 with an exception. */
static int device_type_of(PyObject *object)
{
	PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
	PyObject *type = device ? PySequence_GetItem(device, 0) : NULL;
	long value = type ? PyLong_AsLong(type) : -1; /* an enumeration's member is an int */
	Py_XDECREF(type);
	Py_XDECREF(device);
	return (int)value;
}

/* The keywords of __dlpack__. A stream is a number, where 1 is the default one, on GPUs alone. */
static PyObject *keywords(int device_type, void *stream, bool versioned)
{
	PyObject *words = PyDict_New();
	PyObject *number = PyLong_FromVoidPtr(stream ? stream : (void *)1);
	PyObject *version = Py_BuildValue("(ii)", 1, 0);
	bool gpu = device_type != kDLCPU && device_type != kDLCUDAHost;
	if (!words || !number || !version || (gpu && PyDict_SetItemString(words, "stream", number)) ||
	    (versioned && PyDict_SetItemString(words, "max_version", version)))
		Py_CLEAR(words);
	Py_XDECREF(number);
	Py_XDECREF(version);
	return words;
}

static PyObject *export(PyObject *method, int device_type, void *stream, bool versioned)
{
	PyObject *words = keywords(device_type, stream, versioned);
	PyObject *nothing = PyTuple_New(0);
	PyObject *capsule = words && nothing ? PyObject_Call(method, nothing, words) : NULL;
	Py_XDECREF(nothing);
	Py_XDECREF(words);
	return capsule;
}

static int read_capsule(struct view *view)
{
	if (PyCapsule_IsValid(view->capsule, "dltensor_versioned")) {
		DLManagedTensorVersioned *tensor = PyCapsule_GetPointer(view->capsule, "dltensor_versioned");
		view->readonly = (tensor->flags & DLPACK_FLAG_READ_ONLY) != 0;
		return view_from_dltensor(view, &tensor->dl_tensor);
	}
	DLManagedTensor *tensor = PyCapsule_GetPointer(view->capsule, "dltensor");
	return tensor ? view_from_dltensor(view, &tensor->dl_tensor) : -1;
}

int view_open_capsule(struct view *view, PyObject *object, void *stream)
{
	PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
	if (!method) {
		PyErr_Clear();
		return 1;
	}
	int device_type = device_type_of(object);
	if (device_type >= 0)
		view->capsule = export(method, device_type, stream, true);
	if (device_type >= 0 && !view->capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear(); /* it is older than max_version */
		view->capsule = export(method, device_type, stream, false);
	}
	Py_DECREF(method);
	return view->capsule ? read_capsule(view) : raise_unreadable(view->name);
}
