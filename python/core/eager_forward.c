/* _core.eager_forward and eager_compute: PyTorch's common calls, with and without a gradient.
 * SPDX-License-Identifier: MIT */
#include "eager.h"

#include "functions.h"

struct eager_call {
	const struct eager_op *op;
	PyObject *const *given; /* forward's arguments up to the statistics */
	PyObject *inputs[EK_MOST_OPERANDS];
};

static PyObject *scalar_of_call(const struct eager_call *call, enum role role)
{
	return call->given[call->op->forward->at[role]];
}

/* Not of a kind: an exception may be set. */
static bool is_kind(const struct eager_call *call, uint32_t kinds)
{
	return kinds & kind_bit(PyLong_AsLong(scalar_of_call(call, KIND)));
}

/* False, possibly with an exception, for calls that are left to evenkeel.torch: among them a LayerNorm without eps. */
static bool open_call(struct eager_call *call, const struct eager_op *op, PyObject *const *given)
{
	call->op = op;
	call->given = given;
	for (int i = 0; i < op->input_count; i++)
		call->inputs[i] = given[op->inputs[i]];
	bool is_missing = op->required && call->inputs[op->required_at] == Py_None;
	return torch[APPLY] && !is_missing && has_neighbours(scalar_of_call(call, SHAPE)) &&
	       (scalar_of_call(call, EPS) != Py_None || is_kind(call, op->forward->default_eps_kinds));
}

/* The outputs, and the statistics where they are True; as call_op. */
static int serve(const struct eager_call *call, PyObject *statistics, struct results *results)
{
	const struct signature *forward = call->op->forward;
	PyObject *threads = ask_number_of_threads();
	if (!threads)
		return -1;
	PyObject *arguments[NOWHERE + 1];
	for (int i = 0; i < call->op->given_count; i++)
		arguments[i] = call->given[i];
	for (int i = 0; i < forward->output_count; i++)
		arguments[forward->outputs[i].at] = Py_True;
	arguments[forward->at[STATISTICS]] = statistics;
	arguments[forward->at[WORKSPACE]] = Py_None;
	arguments[forward->at[THREADS]] = threads;
	arguments[forward->at[STREAM]] = Py_None;
	int status = call_op(forward, arguments, true, results);
	Py_DECREF(threads);
	return status;
}

/* Whatever went wrong, evenkeel.torch meets it again, and knows what to do. */
static PyObject *result_or_none(PyObject *result)
{
	if (result)
		return result;
	PyErr_Clear();
	Py_RETURN_NONE;
}

/* What backward has to know beside tensors. */
static PyObject *options_of_node(const struct eager_call *call, ek_dtype dtype)
{
	const struct signature *backward = call->op->backward;
	PyObject *number = PyLong_FromLong((long)dtype);
	PyObject *options = number ? PyTuple_New(OPTIONS + backward->choice_count) : NULL;
	if (!options) {
		Py_XDECREF(number);
		return NULL;
	}
	PyTuple_SetItem(options, OPTION_KIND, Py_NewRef(scalar_of_call(call, KIND)));
	PyTuple_SetItem(options, OPTION_SHAPE, Py_NewRef(scalar_of_call(call, SHAPE)));
	PyTuple_SetItem(options, OPTION_EPS, Py_NewRef(scalar_of_call(call, EPS)));
	PyTuple_SetItem(options, OPTION_ESTIMATE, Py_NewRef(Py_False));
	PyTuple_SetItem(options, OPTION_COLUMNS, Py_NewRef(Py_None));
	PyTuple_SetItem(options, OPTION_DTYPE, number);
	PyTuple_SetItem(options, OPTION_CUT, Py_NewRef(scalar_of_call(call, CUT)));
	for (int i = 0; i < backward->choice_count; i++)
		PyTuple_SetItem(options, OPTIONS + i, Py_NewRef(call->given[call->op->choices[i]]));
	return options;
}

/* The inputs without those at the end that are None: autograd takes 0.1 us for each. */
static int count_to_last(const struct eager_call *call)
{
	int count = call->op->input_count;
	while (call->inputs[count - 1] == Py_None)
		count--;
	return count;
}

/* What autograd is applied to: the inputs, and a tuple with what is made, which it does not take for an operand. */
static PyObject *operands_of_node(const struct eager_call *call, struct results *results)
{
	PyObject *options = options_of_node(call, results->dtype);
	if (!options)
		return NULL;
	results->at[results->count++] = options;
	PyObject *made = tuple_of(results);
	results->count = 0;
	int count = count_to_last(call);
	PyObject *operands = made ? PyTuple_New(count + 1) : NULL;
	if (!operands) {
		Py_XDECREF(made);
		return NULL;
	}
	for (int i = 0; i < count; i++)
		PyTuple_SetItem(operands, i, Py_NewRef(call->inputs[i]));
	PyTuple_SetItem(operands, count, made);
	return operands;
}

/* The outputs with their node in the graph. */
static PyObject *join_graph(const struct eager_call *call, struct results *made)
{
	PyObject *operands = operands_of_node(call, made);
	PyObject *apply = PyTuple_GetItem(torch[APPLY], call->op->number);
	PyObject *result = operands && apply ? PyObject_Call(apply, operands, NULL) : NULL;
	Py_XDECREF(operands);
	return result;
}

/* NULL: an output is saved. None: nothing is. */
static PyObject *saved_input(const struct eager_call *call, int place)
{
	int number = call->op->saved[place], choice = call->op->saved_without[place] - 1;
	if (choice >= 0 && PyObject_IsTrue(call->given[call->op->choices[choice]]) == 1)
		return Py_None;
	return number < call->op->input_count ? call->inputs[number] : NULL;
}

/* Did a kind of which evenkeel.torch copies inference tensors fail because autograd saves none? Keeps the exception that
 * is set. */
static bool has_inference_tensor(const struct eager_call *call)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	bool found = false, is_copied = is_kind(call, call->op->copied_kinds);
	for (int i = 0; i < call->op->saved_count && is_copied; i++) {
		PyObject *tensor = saved_input(call, i);
		if (tensor && tensor != Py_None)
			found |= is_true(PyObject_CallMethod(tensor, "is_inference", NULL)) == 1;
	}
	PyErr_Restore(type, value, traceback);
	return found;
}

/* Exceptions once y is computed come from the caller's hooks and are raised, but for that of an inference tensor. */
static PyObject *serve_with_gradient(const struct eager_call *call)
{
	struct results made;
	if (serve(call, Py_True, &made) != 0)
		return result_or_none(NULL);
	PyObject *result = join_graph(call, &made);
	results_close(&made);
	return !result && has_inference_tensor(call) ? result_or_none(NULL) : result;
}

static PyObject *serve_without(const struct eager_call *call)
{
	struct results made;
	if (serve(call, Py_None, &made) != 0)
		return result_or_none(NULL);
	return result_or_none(made.count == 1 ? made.at[0] : tuple_of(&made));
}

/* Gradients are made like a saved tensor. A bias without a weight has a dtype of its own, which Python keeps. */
static bool has_model(const struct eager_call *call, int input)
{
	bool has = call->inputs[input] == Py_None;
	for (uint32_t left = call->op->models[input]; left; left &= left - 1)
		has |= saved_input(call, __builtin_ctz(left)) != Py_None;
	return has;
}

/* Of tensors that are_plain is true of. */
static PyObject *compute(const struct eager_call *call)
{
	int count = call->op->input_count, needs = needs_gradient(call->inputs, count);
	if (needs < 0 || is_negated(call->inputs, count, needs == 1) != 0)
		return result_or_none(NULL);
	if (needs == 0)
		return serve_without(call);
	for (int i = 0; i < count; i++)
		if (!has_model(call, i))
			return result_or_none(NULL);
	return serve_with_gradient(call);
}

/* evenkeel.torch serves what is left, of the same arguments. */
static PyObject *leave(const struct eager_op *op, PyObject *const *given)
{
	if (!torch[LEAVE])
		Py_RETURN_NONE;
	PyObject *function = PyTuple_GetItem(torch[LEAVE], op->number);
	PyObject *arguments = function ? PyTuple_New(op->given_count) : NULL;
	for (int i = 0; i < op->given_count && arguments; i++)
		PyTuple_SetItem(arguments, i, Py_NewRef(given[i]));
	PyObject *result = arguments ? PyObject_Call(function, arguments, NULL) : NULL;
	Py_XDECREF(arguments);
	return result;
}

/* Modes are asked about before tensors, whose attributes they would see being read. */
PyObject *eager_forward_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	struct eager_call call;
	if (count != op->given_count)
		return refuse_count("eager_forward", op->given_count, count);
	PyObject *result = NULL;
	if (open_call(&call, op, given) && is_call_watched() == 0 &&
	    are_plain(call.inputs, op->input_count) == 1)
		result = compute(&call);
	else
		PyErr_Clear();
	if (result == Py_None)
		Py_CLEAR(result);
	return result || PyErr_Occurred() ? result : leave(op, given);
}

PyObject *eager_compute_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count)
{
	struct eager_call call;
	if (count != op->given_count)
		return refuse_count("eager_compute", op->given_count, count);
	return open_call(&call, op, given) ? compute(&call) : result_or_none(NULL);
}
