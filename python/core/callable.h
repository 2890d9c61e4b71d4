/* Callables that every call of a norm needs. Built-in functions are called directly, by their C functions: a call through
 * Python takes 100 to 300 instructions more, and a common call of a norm has about ten. The objects live as long as the
 * process. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_CALLABLE_H
#define EK_PYTHON_CALLABLE_H

#include <stdbool.h>

#include "stable_abi.h"

struct callable {
	PyObject *object, *self;
	PyCFunction plain; /* of a built-in function that takes no arguments, else NULL */
	PyCFunctionWithKeywords
		tuple;          /* of one that takes a tuple, as PyTorch and pybind11 make them, else NULL */
	PyObject *no_arguments; /* an empty tuple */
};

/* The calling convention of a built-in function, METH_…; -1 for other objects. */
static inline int convention_of(PyObject *object)
{
	return PyCFunction_Check(object) ? PyCFunction_GetFlags(object) & ~METH_STATIC : -1;
}

static inline struct callable callable_of(PyObject *object)
{
	struct callable callable = {.object = Py_NewRef(object), .no_arguments = PyTuple_New(0)};
	int convention = convention_of(object);
	if (convention != METH_NOARGS && convention != (METH_VARARGS | METH_KEYWORDS))
		return callable;
	PyCFunction function = PyCFunction_GetFunction(object);
	callable.self = PyCFunction_GetSelf(object);
	if (convention == METH_NOARGS)
		callable.plain = function;
	else
		callable.tuple = (PyCFunctionWithKeywords)(void (*)(void))function;
	return callable;
}

/* New references, or NULL with an exception. */

static inline PyObject *call_without(const struct callable *callable)
{
	if (callable->plain)
		return callable->plain(callable->self, NULL);
	if (callable->tuple)
		return callable->tuple(callable->self, callable->no_arguments, NULL);
	return PyObject_CallNoArgs(callable->object);
}

static inline PyObject *call_with(const struct callable *callable, PyObject *argument)
{
	if (!callable->tuple)
		return PyObject_CallFunctionObjArgs(callable->object, argument, NULL);
	PyObject *arguments = PyTuple_Pack(1, argument);
	PyObject *result = arguments ? callable->tuple(callable->self, arguments, NULL) : NULL;
	Py_XDECREF(arguments);
	return result;
}

/* The C function of a method without arguments, for objects of the same class; NULL where it is no built-in one. */
static inline PyCFunction method_of(PyObject *object, const char *name)
{
	PyObject *bound = PyObject_GetAttrString(object, name);
	PyCFunction function =
		bound && convention_of(bound) == METH_NOARGS ? PyCFunction_GetFunction(bound) : NULL;
	Py_XDECREF(bound);
	PyErr_Clear();
	return function;
}

#endif
