/* _core.eager_setup, and the questions that the eager calls ask PyTorch. SPDX-License-Identifier: MIT */
#include "eager.h"

#include "functions.h"

struct pytorch torch;
struct names names;

const char eager_setup_doc[] =
	"eager_setup(tensor, parameter, empty_like, new_empty, in_float32, contiguous, is_neg, get_num_threads,\n"
	"            is_grad_enabled, apply, backward, forward_ad, watchers)\n"
	"--\n\nWhat the eager calls need of PyTorch; _core.pyi has the arguments.";

enum setup {
	TENSOR,
	PARAMETER,
	EMPTY_LIKE,
	NEW_EMPTY,
	IN_FLOAT32,
	CONTIGUOUS,
	IS_NEG,
	GET_NUM_THREADS,
	IS_GRAD_ENABLED,
	APPLY,
	BACKWARD,
	FORWARD_AD,
	WATCHERS,
	SETUPS
};

PyObject *eager_setup(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != SETUPS)
		return refuse_count("eager_setup", SETUPS, count);
	Py_ssize_t watchers = PyTuple_Size(given[WATCHERS]);
	if (watchers < 0 || watchers > MAX_WATCHERS) {
		PyErr_Format(PyExc_ValueError, "watchers must be a tuple of at most %d", MAX_WATCHERS);
		return NULL;
	}
	torch.tensor = (PyTypeObject *)Py_NewRef(given[TENSOR]);
	torch.parameter = (PyTypeObject *)Py_NewRef(given[PARAMETER]);
	torch.empty_like = Py_NewRef(given[EMPTY_LIKE]);
	torch.new_empty = Py_NewRef(given[NEW_EMPTY]);
	torch.in_float32 = Py_NewRef(given[IN_FLOAT32]);
	torch.contiguous = Py_NewRef(given[CONTIGUOUS]);
	torch.is_neg = Py_NewRef(given[IS_NEG]);
	torch.get_num_threads = Py_NewRef(given[GET_NUM_THREADS]);
	torch.is_grad_enabled = Py_NewRef(given[IS_GRAD_ENABLED]);
	torch.apply = Py_NewRef(given[APPLY]);
	torch.backward = Py_NewRef(given[BACKWARD]);
	torch.forward_ad = Py_NewRef(given[FORWARD_AD]);
	for (Py_ssize_t i = 0; i < watchers; i++)
		torch.watchers[i] = Py_NewRef(PyTuple_GetItem(given[WATCHERS], i));
	torch.watcher_count = (int)watchers;
	names.current_level = PyUnicode_InternFromString("_current_level");
	names.requires_grad = PyUnicode_InternFromString("requires_grad");
	names.to_save = PyUnicode_InternFromString("to_save");
	names.saved_tensors = PyUnicode_InternFromString("saved_tensors");
	names.needs_input_grad = PyUnicode_InternFromString("needs_input_grad");
	names.options = PyUnicode_InternFromString("options");
	Py_RETURN_NONE;
}

/* ---- questions ---- */

int is_true(PyObject *answer)
{
	int truth = answer ? PyObject_IsTrue(answer) : -1;
	Py_XDECREF(answer);
	return truth;
}

/* A subclass may have a dispatch of its own. _plain.py has this and the next in Python. */
bool are_ordinary(PyObject *const *tensors, int count)
{
	bool ordinary = tensors[0] != Py_None;
	for (int i = 0; i < count && ordinary; i++)
		ordinary = tensors[i] == Py_None || Py_TYPE(tensors[i]) == torch.tensor ||
			   Py_TYPE(tensors[i]) == torch.parameter;
	return ordinary;
}

int is_negated(PyObject *const *tensors, int count, bool parameters)
{
	int negated = 0;
	for (int i = 0; i < count && negated == 0; i++)
		if (tensors[i] != Py_None && (parameters || Py_TYPE(tensors[i]) != torch.parameter))
			negated = is_true(PyObject_CallFunctionObjArgs(torch.is_neg, tensors[i], NULL));
	return negated;
}

bool has_neighbours(PyObject *shape)
{
	Py_ssize_t ndim = PyTuple_Check(shape) ? PyTuple_Size(shape) : 0;
	return ndim > 0 && PyLong_AsLong(PyTuple_GetItem(shape, ndim - 1)) > 1;
}

int is_watched(void)
{
	int watched = 0;
	for (int i = 0; i < torch.watcher_count && watched == 0; i++)
		watched = is_true(PyObject_CallNoArgs(torch.watchers[i]));
	if (watched != 0)
		return watched;
	PyObject *level = PyDict_GetItemWithError(torch.forward_ad, names.current_level);
	return level ? PyLong_AsLong(level) >= 0 : 1;
}

int needs_gradient(PyObject *const *tensors, int count)
{
	int needs = is_true(PyObject_CallNoArgs(torch.is_grad_enabled));
	if (needs != 1)
		return needs;
	needs = 0;
	for (int i = 0; i < count && needs == 0; i++)
		if (tensors[i] != Py_None)
			needs = is_true(PyObject_GetAttr(tensors[i], names.requires_grad));
	return needs;
}

PyObject *make_like(PyObject *tensor)
{
	return PyObject_CallFunctionObjArgs(torch.empty_like, tensor, NULL);
}

/* The sizes are arguments of their own: in a tuple PyTorch takes 0.5 us longer to read them. */
static PyObject *new_empty(PyObject *like, int64_t count, int64_t rows, PyObject *keywords)
{
	PyObject *first = PyLong_FromLongLong(count), *second = PyLong_FromLongLong(rows);
	PyObject *arguments = first && second ? PyTuple_Pack(3, like, first, second) : NULL;
	PyObject *made = arguments ? PyObject_Call(torch.new_empty, arguments, keywords) : NULL;
	Py_XDECREF(first);
	Py_XDECREF(second);
	Py_XDECREF(arguments);
	return made;
}

/* PyTorch takes 0.3 us to read a dtype, so 16-bit calls make their statistics like an empty tensor in float32, of which
 * each device has one. */
PyObject *make_statistics(const struct frame *frame, PyObject *x, int64_t count)
{
	static PyObject *float32[1 + MAX_GPUS];
	if (frame->dtype == frame->stats_dtype)
		return new_empty(x, count, frame->rows, NULL);
	int index = frame->device == EK_CPU ? 0 : 1 + frame->ordinal;
	if (index > MAX_GPUS)
		return new_empty(x, count, frame->rows, torch.in_float32);
	if (!float32[index])
		float32[index] = new_empty(x, 0, 0, torch.in_float32);
	return float32[index] ? new_empty(float32[index], count, frame->rows, NULL) : NULL;
}
