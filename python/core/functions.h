/* The functions of the module _core; module.c lists them.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_FUNCTIONS_H
#define EK_PYTHON_FUNCTIONS_H

#include "stable_abi.h"

extern const char forward_doc[], backward_doc[], backward_workspace_doc[], info_doc[];
extern const char cost_doc[];
extern const char eager_setup_doc[], is_plain_doc[], check_flavour_doc[], check_activation_doc[];
extern const char glu_forward_doc[], glu_backward_doc[], glu_backward_workspace_doc[], check_glu_doc[];
extern const char rope_forward_doc[], rope_backward_doc[], rope_backward_workspace_doc[], check_rope_doc[];
extern const char bias_act_forward_doc[], bias_act_backward_doc[], bias_act_backward_workspace_doc[];

PyObject *forward(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *keywords);
PyObject *backward(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *keywords);
PyObject *backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *keywords);
PyObject *eager_setup(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *check_flavour(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *check_activation(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *is_plain(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *info(PyObject *module, PyObject *nothing);
PyObject *cost(PyObject *module, PyObject *const *given, Py_ssize_t count);

PyObject *glu_forward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *glu_backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *glu_backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bias_act_forward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bias_act_backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *bias_act_backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *rope_forward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *rope_backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *rope_backward_workspace(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *check_rope(PyObject *module, PyObject *const *given, Py_ssize_t count);
PyObject *check_glu(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* ---- PyTorch's common calls: four functions for each op ---- */

/* X(name, the op's row in norm.c) */
#define EAGER_OPS(X)          \
	X(eager, plain)       \
	X(eager_add, add)     \
	X(eager_after, after) \
	X(eager_act, act)     \
	X(eager_gated, gated)

/* (arguments): the results; evenkeel.torch serves what C cannot. */
#define EAGER_FORWARD_DOC "(*arguments)\n--\n\nReturns the results; eager_setup's leave serves what C cannot."
/* The same of tensors that is_plain is true of. */
#define EAGER_COMPUTE_DOC \
	"(*arguments)\n--\n\nThe same of plain tensors; None where evenkeel.torch must make copies first."
#define EAGER_KEEP_DOC \
	"(ctx, *inputs, made)\n--\n\nforward of a function of autograd: the results, which are computed."
#define EAGER_BACKWARD_DOC \
	"(ctx, *gradients)\n--\n\nbackward of the same: the gradients of the inputs and made."

#define DECLARE_EAGER(name, row)                                                              \
	PyObject *name##_forward(PyObject *module, PyObject *const *given, Py_ssize_t count); \
	PyObject *name##_compute(PyObject *module, PyObject *const *given, Py_ssize_t count); \
	PyObject *name##_keep(PyObject *module, PyObject *const *given, Py_ssize_t count);    \
	PyObject *name##_backward(PyObject *module, PyObject *const *given, Py_ssize_t count);
EAGER_OPS(DECLARE_EAGER)
#undef DECLARE_EAGER

/* Resolve what the functions of an op need of the tables; once, when the module is loaded. -1 with an exception. */
int norm_resolve(void);
int glu_resolve(void);
int rope_resolve(void);

/* Sets the exception of a call with a wrong number of arguments, and returns NULL. */
PyObject *refuse_count(const char *function, int takes, Py_ssize_t given);

#endif
