/* _core.eager_keep and eager_backward: the node of autograd of a y that eager_forward.c has computed.
 * SPDX-License-Identifier: MIT */
#include "eager.h"

#include "functions.h"

const char eager_keep_doc[] = "eager_keep(ctx, x, weight, bias, made)\n--\n\n"
			      "forward of a function of autograd: y, which eager_forward has computed.";

const char eager_backward_doc[] = "eager_backward(ctx, dy)\n--\n\n"
				  "backward of the same: the gradients of x, weight, bias and made.";

/* ---- in forward: what backward needs is kept ---- */

enum kept { CTX, K_X, K_WEIGHT, K_BIAS, MADE, KEPT };

PyObject *eager_keep(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != KEPT)
		return refuse_count("eager_keep", KEPT, count);
	PyObject *y = PyTuple_GetItem(given[MADE], 0), *stats = PyTuple_GetItem(given[MADE], 1),
		 *options = PyTuple_GetItem(given[MADE], 2);
	if (!options)
		return NULL;
	PyObject *saved = PyTuple_Pack(3, given[K_X], given[K_WEIGHT], stats);
	int status = saved && PyObject_SetAttr(given[CTX], names.to_save, saved) == 0
			     ? PyObject_SetAttr(given[CTX], names.options, options)
			     : -1;
	Py_XDECREF(saved);
	return status == 0 ? Py_NewRef(y) : NULL;
}

/* ---- backward ---- */

/* What a node knows when its gradient comes, each a reference of its own. */
struct node {
	PyObject *saved, *options, *needs;
	PyObject *x, *weight, *stats, *norm, *shape; /* within them */
};

static void node_close(struct node *node)
{
	Py_XDECREF(node->saved);
	Py_XDECREF(node->options);
	Py_XDECREF(node->needs);
}

static int node_open(struct node *node, PyObject *ctx)
{
	node->saved = PyObject_GetAttr(ctx, names.saved_tensors);
	node->options = node->saved ? PyObject_GetAttr(ctx, names.options) : NULL;
	node->needs = node->options ? PyObject_GetAttr(ctx, names.needs_input_grad) : NULL;
	if (!node->needs)
		return -1;
	node->x = PyTuple_GetItem(node->saved, 0);
	node->weight = PyTuple_GetItem(node->saved, 1);
	node->stats = PyTuple_GetItem(node->saved, 2);
	node->norm = PyTuple_GetItem(node->options, 0);
	node->shape = PyTuple_GetItem(node->options, 1);
	return PyErr_Occurred() ? -1 : 0;
}

/* Gradients, and what hooks have unpacked, may be of any kind; and a backward may be differentiated in turn. */
static bool is_common(const struct node *node, PyObject *dy)
{
	PyObject *const tensors[] = {dy, node->x, node->weight};
	return has_neighbours(node->shape) && is_watched() == 0 && are_ordinary(tensors, 3) &&
	       is_true(PyObject_CallNoArgs(torch.is_grad_enabled)) == 0 && is_negated(tensors, 3, false) == 0;
}

/* The gradients that are needed, of dx, dweight and dbias, as memory to write to. */
static int make_gradients(const struct node *node, PyObject **gradients)
{
	for (int i = 0; i < 3; i++) {
		int need = PyObject_IsTrue(PyTuple_GetItem(node->needs, i));
		gradients[i] = need == 1 ? make_like(i == 0 ? node->x : node->weight) : Py_NewRef(Py_None);
		if (need < 0 || !gradients[i])
			return -1;
	}
	return 0;
}

/* Fills the gradients: 0; 1 where a tensor must be copied, -1 with an exception. */
static int fill(const struct node *node, PyObject *dy, PyObject *const *gradients)
{
	PyObject *threads = PyObject_CallNoArgs(torch.get_num_threads), *eps = PyFloat_FromDouble(0);
	PyObject *filled = NULL;
	if (threads && eps) {
		PyObject *const call[] = {node->norm,  dy,      node->x,      node->shape,  node->weight,
					  node->stats, eps,     gradients[0], gradients[1], gradients[2],
					  Py_None,     threads, Py_None};
		filled = backward_with(call, true);
	}
	Py_XDECREF(eps);
	Py_XDECREF(threads);
	int status = !filled ? -1 : filled == Py_None;
	Py_XDECREF(filled);
	return status;
}

/* A gradient is often expanded, that of a sum for instance: then it is copied. */
static int fill_from_copy(const struct node *node, PyObject *dy, PyObject *const *gradients)
{
	PyObject *copy = PyObject_CallFunctionObjArgs(torch.contiguous, dy, NULL);
	int status = copy ? fill(node, copy, gradients) : -1;
	Py_XDECREF(copy);
	return status;
}

/* (dx, dweight, dbias, None), as many as eager_keep has operands. */
static PyObject *serve_backward(const struct node *node, PyObject *dy)
{
	PyObject *gradients[3] = {NULL}, *result = NULL;
	int status = make_gradients(node, gradients);
	if (status == 0)
		status = fill(node, dy, gradients);
	if (status == 1)
		status = fill_from_copy(node, dy, gradients);
	if (status == 0)
		result = PyTuple_Pack(4, gradients[0], gradients[1], gradients[2], Py_None);
	for (int i = 0; i < 3; i++)
		Py_XDECREF(gradients[i]);
	return result;
}

static PyObject *serve_or_leave(const struct node *node, PyObject *ctx, PyObject *dy)
{
	PyObject *result = is_common(node, dy) ? serve_backward(node, dy) : NULL;
	if (result)
		return result;
	PyErr_Clear();
	return PyObject_CallFunctionObjArgs(torch.backward, ctx, dy, node->saved, NULL);
}

PyObject *eager_backward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != 2)
		return refuse_count("eager_backward", 2, count);
	struct node node = {0};
	PyObject *result = node_open(&node, given[0]) == 0 ? serve_or_leave(&node, given[0], given[1]) : NULL;
	node_close(&node);
	return result;
}
