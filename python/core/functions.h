/* The functions of the module _core; module.c lists them.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_FUNCTIONS_H
#define EK_PYTHON_FUNCTIONS_H

#include "stable_abi.h"

extern const char forward_doc[], backward_doc[], backward_workspace_doc[], info_doc[];
extern const char eager_setup_doc[], eager_forward_doc[], eager_compute_doc[], eager_keep_doc[],
	eager_backward_doc[], is_plain_doc[];

PyObject *forward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *eager_setup(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *eager_forward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *eager_compute(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *eager_keep(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *eager_backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *is_plain(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *info(PyObject *module, PyObject *nothing);

/* Resolves what the norms' functions need of the tables; once, when the module is loaded. */
void norm_resolve(void);

/* Sets the exception of a call with a wrong number of arguments, and returns NULL. */
PyObject *refuse_count(const char *function, int takes, Py_ssize_t given);

#endif
