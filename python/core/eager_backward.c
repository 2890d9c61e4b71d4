/* _core.eager_keep and eager_backward: the node of autograd of a y that eager_forward.c has computed.
 * SPDX-License-Identifier: MIT */
#include "eager.h"

#include "functions.h"

/* ---- which tensors a node has ---- */

/* Adds an input of forward. */
static void resolve_input(struct eager_op *op, const struct ek_operand *operand, uint8_t at)
{
	const struct signature *backward = op->backward;
	int8_t place = (int8_t)op->saved_count;
	int number = ek_operand_named(backward->op, operand->name);
	if (number >= 0)
		op->saved[op->saved_count++] = op->input_count;
	for (int i = 0; i < backward->count && number >= 0; i++)
		if (backward->arguments[i].role == OPERAND && backward->arguments[i].operand == number)
			op->sources[i] = place;
	op->inputs[op->input_count++] = at;
}

static uint32_t models_of(const struct eager_op *op, int input)
{
	const struct signature *forward = op->forward;
	const struct ek_operand *operands = forward->op->operands;
	const struct ek_operand *operand = &operands[forward->arguments[op->inputs[input]].operand];
	uint32_t models = 0;
	for (int i = 0; i < op->saved_count; i++) {
		int at = op->inputs[op->saved[i]];
		if (are_alike(operand, &operands[forward->arguments[at].operand]))
			models |= 1u << op->saved[i];
	}
	return models;
}

void eager_resolve(struct eager_op *op)
{
	const struct signature *forward = op->forward;
	op->input_count = op->saved_count = 0;
	op->given_count = forward->at[EPS] + 1;
	memset(op->sources, -1, sizeof op->sources);
	resolve_input(op, &forward->op->operands[forward->x], forward->at[OPERAND]);
	for (int i = 0; i < forward->input_count; i++)
		resolve_input(op, forward->inputs[i].operand, forward->inputs[i].at);
	for (int i = 0; i < op->input_count; i++)
		op->models[i] = models_of(op, i);
}

/* ---- in forward: what backward needs is kept ---- */

/* (ctx, inputs, made): the saved inputs and the statistics go to ctx.to_save, the options to ctx.options. */
PyObject *eager_keep_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	if (count != op->input_count + 2)
		return refuse_count("eager_keep", op->input_count + 2, count);
	PyObject *ctx = given[0], *made = given[count - 1];
	PyObject *y = PyTuple_GetItem(made, 0), *stats = PyTuple_GetItem(made, 1),
		 *options = PyTuple_GetItem(made, 2);
	PyObject *saved = options ? PyTuple_New(op->saved_count + 1) : NULL;
	if (!saved)
		return NULL;
	for (int i = 0; i < op->saved_count; i++)
		PyTuple_SetItem(saved, i, Py_NewRef(given[1 + op->saved[i]]));
	PyTuple_SetItem(saved, op->saved_count, Py_NewRef(stats));
	int status = PyObject_SetAttr(ctx, names.to_save, saved);
	Py_DECREF(saved);
	return status == 0 && PyObject_SetAttr(ctx, names.options, options) == 0 ? Py_NewRef(y) : NULL;
}

/* ---- backward ---- */

/* What a node knows when its gradient comes, each a reference of its own. */
struct node {
	const struct eager_op *op;
	PyObject *saved, *options, *needs;
	PyObject *kind, *shape, *tensors[EK_MOST_OPERANDS + 1]; /* within them: the saved tensors */
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
	for (int i = 0; i <= node->op->saved_count; i++)
		node->tensors[i] = PyTuple_GetItem(node->saved, i);
	node->kind = PyTuple_GetItem(node->options, 0);
	node->shape = PyTuple_GetItem(node->options, 1);
	return PyErr_Occurred() ? -1 : 0;
}

/* Gradients, and what hooks have unpacked, may be of any kind; and a backward may be differentiated in turn. */
static bool is_common(const struct node *node, PyObject *dy)
{
	int count = node->op->saved_count;
	PyObject *tensors[1 + EK_MOST_OPERANDS] = {dy};
	for (int i = 0; i < count; i++)
		tensors[1 + i] = node->tensors[i];
	return has_neighbours(node->shape) && is_call_watched() == 0 && are_plain(tensors, 1 + count) == 1 &&
	       is_grad_enabled() == 0 && is_negated(tensors, 1 + count, false) == 0;
}

/* As call_op. */
static int compute(const struct node *node, PyObject *dy, struct results *gradients)
{
	const struct signature *backward = node->op->backward;
	PyObject *threads = ask_number_of_threads(), *eps = PyLong_FromLong(0);
	PyObject *arguments[NOWHERE + 1];
	for (int i = 0; i < backward->count; i++)
		arguments[i] = node->op->sources[i] < 0 ? dy : node->tensors[node->op->sources[i]];
	for (int i = 0; i < backward->output_count; i++)
		arguments[backward->outputs[i].at] = PyTuple_GetItem(node->needs, i); /* True or False */
	arguments[backward->at[KIND]] = node->kind;
	arguments[backward->at[SHAPE]] = node->shape;
	arguments[backward->at[EPS]] = eps;
	arguments[backward->at[STATISTICS]] = node->tensors[node->op->saved_count];
	arguments[backward->at[WORKSPACE]] = arguments[backward->at[STREAM]] = Py_None;
	arguments[backward->at[THREADS]] = threads;
	int status = threads && eps && !PyErr_Occurred() ? call_op(backward, arguments, true, gradients) : -1;
	Py_XDECREF(eps);
	Py_XDECREF(threads);
	return status;
}

/* A gradient is often expanded, that of a sum for instance: then it is copied. */
static int compute_from_copy(const struct node *node, PyObject *dy, struct results *gradients)
{
	PyObject *copy = PyObject_CallFunctionObjArgs(torch[CONTIGUOUS], dy, NULL);
	int status = copy ? compute(node, copy, gradients) : -1;
	Py_XDECREF(copy);
	return status;
}

/* (dx, dweight, dbias, None), as many as eager_keep has operands. */
static PyObject *serve(const struct node *node, PyObject *dy)
{
	struct results gradients;
	int status = compute(node, dy, &gradients);
	if (status == 1)
		status = compute_from_copy(node, dy, &gradients);
	if (status != 0)
		return NULL;
	gradients.at[gradients.count++] = Py_NewRef(Py_None);
	return tuple_of(&gradients);
}

static PyObject *serve_or_leave(const struct node *node, PyObject *ctx, PyObject *dy)
{
	PyObject *result = is_common(node, dy) ? serve(node, dy) : NULL;
	if (result)
		return result;
	PyErr_Clear();
	return PyObject_CallFunctionObjArgs(torch[BACKWARD], ctx, dy, node->saved, NULL);
}

PyObject *eager_backward_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	if (count != 2)
		return refuse_count("eager_backward", 2, count);
	struct node node = {.op = op};
	PyObject *result = node_open(&node, given[0]) == 0 ? serve_or_leave(&node, given[0], given[1]) : NULL;
	node_close(&node);
	return result;
}
