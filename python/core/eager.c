/* _core.eager_setup and is_plain, and the questions that the eager calls ask PyTorch. SPDX-License-Identifier: MIT */
#include "eager.h"

#include "callable.h"
#include "functions.h"

enum { MAX_GPUS = 16, MAX_WATCHERS = 8, DTYPE_COUNT = EK_F64 };

PyObject *torch[PYTORCH];
struct names names;

static PyObject *in_dtype[DTYPE_COUNT]; /* keyword arguments, by the number of the dtype less 1 */

/* ---- callables ---- */

static struct callable number_of_threads, grad_mode, empty_like;

static struct watchers {
	int count;
	struct callable at[MAX_WATCHERS];
} operation_watchers, call_watchers;

PyObject *ask_number_of_threads(void)
{
	return call_without(&number_of_threads);
}

int is_grad_enabled(void)
{
	return is_true(call_without(&grad_mode));
}

static int watchers_open(struct watchers *watchers, PyObject *callables)
{
	Py_ssize_t count = PyTuple_Size(callables);
	if (count > MAX_WATCHERS)
		(void)refuse_count("eager_setup", MAX_WATCHERS, count);
	if (count < 0 || count > MAX_WATCHERS)
		return -1;
	for (Py_ssize_t i = 0; i < count; i++)
		watchers->at[i] = callable_of(PyTuple_GetItem(callables, i));
	watchers->count = (int)count;
	return 0;
}

/* Does one of them return something true? */
static int is_any(const struct watchers *watchers)
{
	int found = 0;
	for (int i = 0; i < watchers->count && found == 0; i++)
		found = is_true(call_without(&watchers->at[i]));
	return found;
}

const char eager_setup_doc[] =
	"eager_setup(tensor, parameter, empty_like, new_empty, dtypes, contiguous, is_neg, get_num_threads,\n"
	"            is_grad_enabled, apply, leave, backward, forward_ad, operation_watchers, call_watchers)\n"
	"--\n\nWhat the eager calls need of PyTorch; _core.pyi has the arguments.";

PyObject *eager_setup(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != PYTORCH)
		return refuse_count("eager_setup", PYTORCH, count);
	if (!PyTuple_Check(given[DTYPES]) || PyTuple_Size(given[DTYPES]) != DTYPE_COUNT)
		return refuse_count("eager_setup's dtypes", DTYPE_COUNT, PyTuple_Size(given[DTYPES]));
	if (watchers_open(&operation_watchers, given[OPERATION_WATCHERS]) ||
	    watchers_open(&call_watchers, given[CALL_WATCHERS]))
		return NULL;
	for (int i = 0; i < PYTORCH; i++)
		torch[i] = given[i] == Py_None ? NULL : Py_NewRef(given[i]);
	for (int i = 0; i < DTYPE_COUNT; i++)
		in_dtype[i] = Py_BuildValue("{s:O}", "dtype", PyTuple_GetItem(torch[DTYPES], i));
	number_of_threads = callable_of(given[GET_NUM_THREADS]);
	grad_mode = callable_of(given[IS_GRAD_ENABLED]);
	empty_like = callable_of(given[EMPTY_LIKE]);
	names.current_level = PyUnicode_InternFromString("_current_level");
	names.requires_grad = PyUnicode_InternFromString("requires_grad");
	names.to_save = PyUnicode_InternFromString("to_save");
	names.saved_tensors = PyUnicode_InternFromString("saved_tensors");
	names.needs_input_grad = PyUnicode_InternFromString("needs_input_grad");
	names.options = PyUnicode_InternFromString("options");
	names.materialize_grads = PyUnicode_InternFromString("materialize_grads");
	Py_RETURN_NONE;
}

/* ---- questions ---- */

int is_true(PyObject *answer)
{
	int truth = answer ? PyObject_IsTrue(answer) : -1;
	Py_XDECREF(answer);
	return truth;
}

static int are_operations_watched(void)
{
	int watched = is_any(&operation_watchers);
	if (watched != 0)
		return watched;
	PyObject *level = PyDict_GetItemWithError(torch[FORWARD_AD], names.current_level);
	return level ? PyLong_AsLong(level) >= 0 : 1;
}

int is_call_watched(void)
{
	return is_any(&call_watchers);
}

/* A subclass may have a dispatch of its own. */
int are_plain(PyObject *const *tensors, Py_ssize_t count)
{
	bool ordinary = torch[TENSOR] != NULL;
	for (Py_ssize_t i = 0; i < count && ordinary; i++) {
		PyObject *type = (PyObject *)Py_TYPE(tensors[i]);
		ordinary = tensors[i] == Py_None || type == torch[TENSOR] || type == torch[PARAMETER];
	}
	int watched = ordinary ? are_operations_watched() : 1;
	return watched < 0 ? -1 : !watched;
}

const char is_plain_doc[] =
	"is_plain(*tensors)\n--\n\n"
	"Would nothing but a kernel see operations on these tensors, as eager_setup's watchers say?";

PyObject *is_plain(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	int plain = are_plain(given, count);
	return plain < 0 ? NULL : PyBool_FromLong(plain);
}

/* Parameters have the method of tensors. */
static int is_tensor_negated(PyObject *tensor)
{
	static PyCFunction method;
	if (!method)
		method = method_of(tensor, "is_neg");
	return is_true(method ? method(tensor, NULL)
			      : PyObject_CallFunctionObjArgs(torch[IS_NEG], tensor, NULL));
}

int is_negated(PyObject *const *tensors, int count, bool parameters)
{
	int negated = 0;
	for (int i = 0; i < count && negated == 0; i++)
		if (tensors[i] != Py_None &&
		    (parameters || (PyObject *)Py_TYPE(tensors[i]) != torch[PARAMETER]))
			negated = is_tensor_negated(tensors[i]);
	return negated;
}

bool has_neighbours(PyObject *shape)
{
	Py_ssize_t ndim = PyTuple_Check(shape) ? PyTuple_Size(shape) : 0;
	return ndim > 0 && PyLong_AsLong(PyTuple_GetItem(shape, ndim - 1)) > 1;
}

int needs_gradient(PyObject *const *tensors, int count)
{
	int needs = is_grad_enabled();
	if (needs != 1)
		return needs;
	needs = 0;
	for (int i = 0; i < count && needs == 0; i++)
		if (tensors[i] != Py_None)
			needs = is_true(PyObject_GetAttr(tensors[i], names.requires_grad));
	return needs;
}

/* ---- new tensors ---- */

int pytorch_dtype(PyObject *dtype)
{
	for (int i = 0; i < DTYPE_COUNT && torch[DTYPES]; i++)
		if (PyTuple_GetItem(torch[DTYPES], i) == dtype)
			return i + 1;
	return 0;
}

PyObject *make_like(const struct view *model, ek_dtype dtype)
{
	if (model->dtype == dtype)
		return call_with(&empty_like, model->object);
	PyObject *arguments = PyTuple_Pack(1, model->object);
	PyObject *made = arguments ? PyObject_Call(torch[EMPTY_LIKE], arguments, in_dtype[dtype - 1]) : NULL;
	Py_XDECREF(arguments);
	return made;
}

/* The sizes are arguments of their own: in a tuple PyTorch takes 0.5 us longer to read them. */
static PyObject *new_empty(PyObject *like, int64_t count, int64_t rows, PyObject *keywords)
{
	PyObject *first = PyLong_FromLongLong(count), *second = PyLong_FromLongLong(rows);
	PyObject *arguments = first && second ? PyTuple_Pack(3, like, first, second) : NULL;
	PyObject *made = arguments ? PyObject_Call(torch[NEW_EMPTY], arguments, keywords) : NULL;
	Py_XDECREF(first);
	Py_XDECREF(second);
	Py_XDECREF(arguments);
	return made;
}

/* PyTorch takes 0.3 us to read a dtype, so 16-bit calls make their statistics like an empty tensor in float32, of which
 * each device has one. */
PyObject *make_statistics(const struct call *call, ek_dtype dtype, const int64_t shape[2])
{
	static PyObject *float32[1 + MAX_GPUS];
	const struct view *x = &call->views[call->signature->x];
	if (x->dtype == dtype)
		return new_empty(x->object, shape[0], shape[1], NULL);
	int index = call->device == EK_CPU ? 0 : 1 + call->ordinal;
	if (index > MAX_GPUS)
		return new_empty(x->object, shape[0], shape[1], in_dtype[EK_F32 - 1]);
	if (!float32[index])
		float32[index] = new_empty(x->object, 0, 0, in_dtype[EK_F32 - 1]);
	return float32[index] ? new_empty(float32[index], shape[0], shape[1], NULL) : NULL;
}
