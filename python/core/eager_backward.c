/* _core.eager_keep and eager_backward: the node of autograd of a y that eager_forward.c has computed.
 * SPDX-License-Identifier: MIT */
#include "eager.h"

#include "functions.h"

/* ---- which tensors a node has ---- */

/* The place of the operand that backward reads, among forward's inputs, then its outputs; -1: none has that name. */
static int find_source(const struct eager_op *op, const char *name)
{
	const struct signature *forward = op->forward;
	for (int i = 0; i < op->input_count; i++)
		if (strcmp(forward->op->operands[forward->arguments[op->inputs[i]].operand].name, name) == 0)
			return i;
	for (int i = 0; i < forward->output_count; i++)
		if (strcmp(forward->outputs[i].operand->name, name) == 0)
			return op->input_count + i;
	return -1;
}

/* An input of backward is the gradient of an output, or saved. */
static void resolve_source(struct eager_op *op, int number, int at)
{
	const struct ek_operand *operand = &op->backward->op->operands[number];
	const char *name =
		number == op->backward->x ? op->forward->op->operands[op->saved_x].name : operand->name;
	int source = find_source(op, name);
	if (source < 0) {
		op->sources[at] = (int16_t)(op->input_count - 1 - find_source(op, name + strlen("d")));
		return;
	}
	op->sources[at] = (int16_t)op->saved_count;
	for (int i = 0; i < op->input_count; i++) {
		int input = op->forward->arguments[op->inputs[i]].operand;
		if (are_alike(operand, &op->forward->op->operands[input]))
			op->models[i] |= 1u << op->saved_count;
	}
	op->saved_without[op->saved_count] = 0;
	for (uint8_t i = 0; i < op->backward->choice_count; i++)
		if (operand->without_choice == op->backward->choices[i].number + 1)
			op->saved_without[op->saved_count] = i + 1;
	op->saved[op->saved_count++] = (uint8_t)source;
}

/* The number of an operand of forward among the inputs; none: their count. */
static uint8_t find_input(const struct eager_op *op, uint8_t operand)
{
	uint8_t at = op->input_count;
	for (uint8_t i = 0; i < op->input_count && operand; i++)
		if (op->forward->arguments[op->inputs[i]].operand == operand)
			at = i;
	return at;
}

/* Backward's choices are among those of forward. */
static void resolve_choices(struct eager_op *op)
{
	const struct signature *forward = op->forward, *backward = op->backward;
	for (int i = 0; i < backward->choice_count; i++)
		for (int j = 0; j < forward->choice_count; j++)
			if (forward->choices[j].number == backward->choices[i].number)
				op->choices[i] = forward->choices[j].at;
}

int eager_resolve(struct eager_op *op)
{
	struct signature *forward = op->forward, *backward = op->backward;
	if (signature_resolve(forward) || signature_resolve(backward))
		return -1;
	op->input_count = op->saved_count = 0;
	op->given_count = forward->at[STATISTICS];
	memset(op->models, 0, sizeof op->models);
	op->inputs[op->input_count++] = forward->at[OPERAND];
	for (int i = 0; i < forward->input_count; i++)
		op->inputs[op->input_count++] = forward->inputs[i].at;
	op->added_at = find_input(op, op->added);
	op->required_at = find_input(op, op->required);
	resolve_choices(op);
	resolve_source(op, backward->x, backward->at[OPERAND]);
	for (int i = 0; i < backward->input_count; i++)
		resolve_source(op, backward->inputs[i].number, backward->inputs[i].at);
	return 0;
}

/* ---- in forward: what backward needs is kept ---- */

/* Does backward take it, with the choices of the call? */
static bool is_read(const struct eager_op *op, int place, PyObject *options)
{
	int choice = op->saved_without[place] - 1;
	return choice < 0 || PyObject_IsTrue(PyTuple_GetItem(options, OPTIONS + choice)) == 0;
}

/* What is saved of the inputs, of which those that are not given are None, and of what was made; the statistics last. */
static PyObject *tensors_to_save(const struct eager_op *op, PyObject *const *inputs, Py_ssize_t count,
				 PyObject *made, PyObject *options)
{
	PyObject *saved = PyTuple_New(op->saved_count + 1);
	for (int i = 0; i < op->saved_count && saved; i++) {
		int output = op->saved[i] - op->input_count;
		bool is_saved = op->saved[i] < count && is_read(op, i, options);
		PyObject *tensor = output >= 0 ? PyTuple_GetItem(made, output)
				   : is_saved  ? inputs[op->saved[i]]
					       : Py_None;
		PyTuple_SetItem(saved, i, Py_XNewRef(tensor));
	}
	if (saved)
		PyTuple_SetItem(saved, op->saved_count,
				Py_XNewRef(PyTuple_GetItem(made, op->forward->output_count)));
	return saved;
}

/* Without this, autograd would make zeros for the gradient of an output that is not used. */
static int expect_missing_gradients(const struct eager_op *op, PyObject *ctx)
{
	return op->forward->output_count == 1 ? 0 : PyObject_SetAttr(ctx, names.materialize_grads, Py_False);
}

/* (ctx, inputs, made): what backward needs goes to ctx.to_save and ctx.options. Made are the outputs, the statistics and the
 * options. */
PyObject *eager_keep_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	int outputs = op->forward->output_count;
	if (count < 3 || count > op->input_count + 2)
		return refuse_count("eager_keep", op->input_count + 2, count);
	PyObject *ctx = given[0], *made = given[count - 1], *options = PyTuple_GetItem(made, outputs + 1);
	PyObject *saved = options ? tensors_to_save(op, given + 1, count - 2, made, options) : NULL;
	if (!saved)
		return NULL;
	int status = PyObject_SetAttr(ctx, names.to_save, saved);
	Py_DECREF(saved);
	if (status || PyObject_SetAttr(ctx, names.options, options) || expect_missing_gradients(op, ctx))
		return NULL;
	return outputs == 1 ? Py_NewRef(PyTuple_GetItem(made, 0)) : PyTuple_GetSlice(made, 0, outputs);
}

/* ---- backward ---- */

/* What a node knows when its gradients come: references of its own, and what is within them. */
struct node {
	const struct eager_op *op;
	PyObject *const *gradients; /* of forward's outputs; None: none has come */
	PyObject *saved, *options, *needs;
	Py_ssize_t input_count;                          /* that eager_keep was given */
	PyObject *shape, *tensors[EK_MOST_OPERANDS + 1]; /* within them: the saved tensors */
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
	node->shape = PyTuple_GetItem(node->options, OPTION_SHAPE);
	node->input_count = PyTuple_Size(node->needs) - 1;
	return PyErr_Occurred() ? -1 : 0;
}

/* Gradients, and what hooks have unpacked, may be of any kind; and a backward may be differentiated in turn. */
static bool is_common(const struct node *node)
{
	PyObject *tensors[2 * EK_MOST_OPERANDS];
	int count = 0;
	for (int i = 0; i < node->op->forward->output_count; i++)
		tensors[count++] = node->gradients[i];
	for (int i = 0; i < node->op->saved_count; i++)
		tensors[count++] = node->tensors[i];
	return has_neighbours(node->shape) && is_call_watched() == 0 && are_plain(tensors, count) == 1 &&
	       is_grad_enabled() == 0 && is_negated(tensors, count, false) == 0;
}

/* Is the gradient of an input needed? Of those at the end that eager_keep was not given, none is. */
static PyObject *is_needed(const struct node *node, int input)
{
	return input < node->input_count ? PyTuple_GetItem(node->needs, input) : Py_False;
}

/* The input whose gradient an output of backward is. */
static int input_of(const struct node *node, int output)
{
	return output < node->op->added_at ? output : output + 1;
}

/* Places all but the gradients that have come, the number of threads and eps among the arguments of backward. */
static void place_what_is_known(const struct node *node, PyObject **arguments)
{
	const struct signature *backward = node->op->backward;
	for (int i = 0; i < backward->output_count; i++)
		arguments[backward->outputs[i].at] = is_needed(node, input_of(node, i));
	for (int i = 0; i < backward->choice_count; i++)
		arguments[backward->choices[i].at] = PyTuple_GetItem(node->options, OPTIONS + i);
	arguments[backward->at[KIND]] = PyTuple_GetItem(node->options, OPTION_KIND);
	arguments[backward->at[SHAPE]] = node->shape;
	arguments[backward->at[DTYPE]] = PyTuple_GetItem(node->options, OPTION_DTYPE);
	arguments[backward->at[CUT]] = PyTuple_GetItem(node->options, OPTION_CUT);
	arguments[backward->at[STATISTICS]] = node->tensors[node->op->saved_count];
	arguments[backward->at[WORKSPACE]] = arguments[backward->at[STREAM]] = Py_None;
}

/* As call_op. */
static int compute(const struct node *node, PyObject *const *gradients, struct results *results)
{
	const struct signature *backward = node->op->backward;
	PyObject *threads = ask_number_of_threads(), *eps = PyLong_FromLong(0);
	PyObject *arguments[NOWHERE + 1];
	arguments[backward->at[OPERAND]] = node->tensors[0];
	for (int i = 0; i < backward->input_count; i++) {
		int at = backward->inputs[i].at, source = node->op->sources[at];
		arguments[at] = source < 0 ? gradients[-1 - source] : node->tensors[source];
	}
	place_what_is_known(node, arguments);
	arguments[backward->at[EPS]] = eps;
	arguments[backward->at[THREADS]] = threads;
	int status = threads && eps && !PyErr_Occurred() ? call_op(backward, arguments, true, results) : -1;
	Py_XDECREF(eps);
	Py_XDECREF(threads);
	return status;
}

/* A gradient is often expanded, that of a sum for instance: then it is copied. */
static int compute_from_copies(const struct node *node, struct results *results)
{
	PyObject *copies[EK_MOST_OPERANDS];
	int count = node->op->forward->output_count, status = 0;
	for (int i = 0; i < count; i++) {
		PyObject *gradient = node->gradients[i];
		copies[i] = gradient == Py_None
				    ? Py_NewRef(gradient)
				    : PyObject_CallFunctionObjArgs(torch[CONTIGUOUS], gradient, NULL);
		status = copies[i] ? status : -1;
	}
	status = status == 0 ? compute(node, copies, results) : -1;
	for (int i = 0; i < count; i++)
		Py_XDECREF(copies[i]);
	return status;
}

/* Is a gradient needed that the op computes? */
static bool is_any_needed(const struct node *node)
{
	bool needed = false;
	for (int i = 0; i < node->op->backward->output_count; i++)
		needed |= is_needed(node, input_of(node, i)) == Py_True;
	return needed;
}

/* All that the op computes; as call_op. */
static int compute_needed(const struct node *node, struct results *gradients)
{
	gradients->count = 0;
	if (!is_any_needed(node)) {
		while (gradients->count < node->op->backward->output_count)
			gradients->at[gradients->count++] = Py_NewRef(Py_None);
		return 0;
	}
	int status = compute(node, node->gradients, gradients);
	return status == 1 ? compute_from_copies(node, gradients) : status;
}

/* The gradient of .added is that of the output itself: autograd converts it to the dtype of the input. */
static void insert_added(const struct node *node, struct results *gradients)
{
	int at = node->op->added_at;
	if (at == node->op->input_count)
		return;
	for (int i = gradients->count++; i > at; i--)
		gradients->at[i] = gradients->at[i - 1];
	gradients->at[at] = Py_NewRef(node->gradients[0]);
}

/* The gradients of eager_keep's operands. */
static PyObject *serve(const struct node *node)
{
	struct results gradients;
	if (compute_needed(node, &gradients) != 0)
		return NULL;
	insert_added(node, &gradients);
	while (gradients.count > 0 && gradients.count > node->input_count) /* None */
		Py_DECREF(gradients.at[--gradients.count]);
	gradients.at[gradients.count++] = Py_NewRef(Py_None);
	return tuple_of(&gradients);
}

/* evenkeel.torch serves what is left: (ctx, gradients, saved tensors). */
static PyObject *leave(const struct node *node, PyObject *ctx)
{
	int count = node->op->forward->output_count;
	PyObject *gradients = PyTuple_New(count);
	for (int i = 0; i < count && gradients; i++)
		PyTuple_SetItem(gradients, i, Py_NewRef(node->gradients[i]));
	PyObject *backward = PyTuple_GetItem(torch[BACKWARD], node->op->number);
	PyObject *result = gradients && backward
				   ? PyObject_CallFunctionObjArgs(backward, ctx, gradients, node->saved, NULL)
				   : NULL;
	Py_XDECREF(gradients);
	return result;
}

static PyObject *serve_or_leave(const struct node *node, PyObject *ctx)
{
	PyObject *result = is_common(node) ? serve(node) : NULL;
	if (result)
		return result;
	PyErr_Clear();
	return leave(node, ctx);
}

PyObject *eager_backward_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	int takes = 1 + op->forward->output_count;
	if (count != takes)
		return refuse_count("eager_backward", takes, count);
	struct node node = {.op = op, .gradients = given + 1};
	PyObject *result = node_open(&node, given[0]) == 0 ? serve_or_leave(&node, given[0]) : NULL;
	node_close(&node);
	return result;
}
