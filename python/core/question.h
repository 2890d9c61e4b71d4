/* A callable without arguments that is called often. A built-in function is called directly, which takes some 100
 * instructions less than a call through Python; a common call of a norm asks seven. The objects live as long as the
 * process. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_QUESTION_H
#define EK_PYTHON_QUESTION_H

#include <stdbool.h>

#include "stable_abi.h"

struct question {
	PyObject *callable;
	PyObject *self;
	PyCFunction plain;             /* of a built-in function that takes no arguments, else NULL */
	PyCFunctionWithKeywords tuple; /* of one that takes a tuple, as pybind11 makes them, else NULL */
	PyObject *no_arguments;        /* an empty tuple */
};

static inline struct question question_of(PyObject *callable)
{
	struct question question = {.callable = Py_NewRef(callable), .no_arguments = PyTuple_New(0)};
	int convention = PyCFunction_Check(callable) ? PyCFunction_GetFlags(callable) : -1;
	if (convention != METH_NOARGS && convention != (METH_VARARGS | METH_KEYWORDS))
		return question;
	PyCFunction function = PyCFunction_GetFunction(callable);
	question.self = PyCFunction_GetSelf(callable);
	if (convention == METH_NOARGS)
		question.plain = function;
	else
		question.tuple = (PyCFunctionWithKeywords)(void (*)(void))function;
	return question;
}

/* A new reference, or NULL with an exception. */
static inline PyObject *ask(const struct question *question)
{
	if (question->plain)
		return question->plain(question->self, NULL);
	if (question->tuple)
		return question->tuple(question->self, question->no_arguments, NULL);
	return PyObject_CallNoArgs(question->callable);
}

#endif
