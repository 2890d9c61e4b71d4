/* _core.eager_forward and eager_compute: PyTorch's common calls, with and without a gradient.
 * SPDX-License-Identifier: MIT */
#include "eager.h"

#include "evenkeel.h"
#include "functions.h"

const char eager_forward_doc[] = "eager_forward(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
				 "Returns y, or None where evenkeel.torch must look at the call.";

const char eager_compute_doc[] =
	"eager_compute(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
	"Of tensors that were looked at: returns y, or None where evenkeel.torch must make copies.";

enum argument { NORM, INPUT, SHAPE, WEIGHT, BIAS, EPS, ARGUMENTS };

/* LayerNorm must be told its eps. */
static bool is_regular(PyObject *const *given)
{
	return torch.tensor && has_neighbours(given[SHAPE]) &&
	       (given[EPS] != Py_None || PyLong_AsLong(given[NORM]) == EK_RMS_NORM);
}

static PyObject *serve(PyObject *const *given, PyObject *stats)
{
	PyObject *y = make_like(given[INPUT]),
		 *threads = y ? PyObject_CallNoArgs(torch.get_num_threads) : NULL;
	PyObject *result = NULL;
	if (threads) {
		PyObject *const call[] = {given[NORM], given[INPUT], given[SHAPE], given[WEIGHT],
					  given[BIAS], given[EPS],   stats,        y,
					  threads,     Py_None};
		result = forward_with(call, true);
	}
	Py_XDECREF(threads);
	Py_XDECREF(y);
	return result;
}

/* Whatever went wrong, evenkeel.torch meets it again, and knows what to do. */
static PyObject *result_or_none(PyObject *result)
{
	if (result)
		return result;
	PyErr_Clear();
	Py_RETURN_NONE;
}

/* y with its node in the graph. What is made goes into a tuple, where autograd takes it for no operand. */
static PyObject *join_graph(PyObject *const *given, PyObject *y, PyObject *stats)
{
	PyObject *options = PyTuple_Pack(5, given[NORM], given[SHAPE], given[EPS], Py_False, Py_None);
	PyObject *made = options ? PyTuple_Pack(3, y, stats, options) : NULL, *result = NULL;
	if (made)
		result = PyObject_CallFunctionObjArgs(torch.apply, given[INPUT], given[WEIGHT], given[BIAS],
						      made, NULL);
	Py_XDECREF(options);
	Py_XDECREF(made);
	return result;
}

/* Did an RMSNorm fail because autograd saves no inference tensor? PyTorch's rms_norm takes one, and evenkeel.torch copies
 * it. Keeps the exception that is set. */
static bool has_inference_tensor(PyObject *const *given)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	bool found = false;
	for (int i = 0; i < 2 && PyLong_AsLong(given[NORM]) == EK_RMS_NORM; i++) {
		PyObject *tensor = given[i == 0 ? INPUT : WEIGHT];
		if (tensor != Py_None)
			found |= is_true(PyObject_CallMethod(tensor, "is_inference", NULL)) == 1;
	}
	PyErr_Restore(type, value, traceback);
	return found;
}

/* Other exceptions, once y is computed, come from the caller's hooks and are raised. */
static PyObject *serve_with_gradient(PyObject *const *given)
{
	PyObject *both = result_or_none(serve(given, Py_True));
	if (both == Py_None)
		return both;
	PyObject *result = join_graph(given, PyTuple_GetItem(both, 0), PyTuple_GetItem(both, 1));
	Py_DECREF(both);
	return !result && has_inference_tensor(given) ? result_or_none(NULL) : result;
}

/* A bias without a weight has a dtype of its own, which Python keeps. */
static PyObject *compute(PyObject *const *given, int needs)
{
	if (needs == 0)
		return result_or_none(serve(given, Py_None));
	if (needs == 1 && (given[WEIGHT] != Py_None || given[BIAS] == Py_None))
		return serve_with_gradient(given);
	return result_or_none(NULL);
}

/* Modes are asked about first, and then types: they would see the looks at a tensor. */
PyObject *eager_forward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != ARGUMENTS)
		return refuse_count("eager_forward", ARGUMENTS, count);
	PyObject *const tensors[] = {given[INPUT], given[WEIGHT], given[BIAS]};
	if (!is_regular(given) || is_watched() != 0 || !are_ordinary(tensors, 3))
		return result_or_none(NULL);
	int needs = needs_gradient(tensors, 3);
	bool plain = needs >= 0 && is_negated(tensors, 3, needs == 1) == 0;
	return compute(given, plain ? needs : -1);
}

PyObject *eager_compute(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != ARGUMENTS)
		return refuse_count("eager_compute", ARGUMENTS, count);
	PyObject *const tensors[] = {given[INPUT], given[WEIGHT], given[BIAS]};
	return compute(given, is_regular(given) ? needs_gradient(tensors, 3) : -1);
}
