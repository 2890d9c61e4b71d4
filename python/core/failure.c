/* Which exception a status is. SPDX-License-Identifier: MIT */
#include "failure.h"

#include "stable_abi.h"

static PyObject *exception_of(ek_status status)
{
	switch (status) {
	case EK_ERROR_ARGUMENT:
	case EK_ERROR_OVERLAP:
	case EK_ERROR_WORKSPACE:
		return PyExc_ValueError;
	case EK_ERROR_DTYPE:
		return PyExc_TypeError;
	case EK_ERROR_UNSUPPORTED:
		return PyExc_NotImplementedError;
	case EK_ERROR_MEMORY:
		return PyExc_MemoryError;
	default:
		return PyExc_RuntimeError;
	}
}

int raise_status(ek_status status)
{
	PyErr_SetString(exception_of(status), ek_error(NULL));
	return -1;
}
