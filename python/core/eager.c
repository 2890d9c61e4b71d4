/* _core.eager_…: PyTorch's common calls without a step in Python, where nobody but PyTorch's kernels would have seen
 * them. What they cannot do they leave to evenkeel.torch, by None. What they must ask PyTorch for they are given once.
 * SPDX-License-Identifier: MIT */
#include "functions.h"

#include "frame.h"

enum { MAX_WATCHERS = 8 };

/* Callables and types of PyTorch, which live as long as the process. */
static struct {
	PyTypeObject *tensor, *parameter;
	PyObject *empty_like, *is_neg, *get_num_threads, *is_grad_enabled;
	PyObject *forward_ad, *current_level; /* a module's dictionary, and the name in it */
	PyObject *requires_grad;
	PyObject *watchers[MAX_WATCHERS]; /* each returns something false where it watches nothing */
	int watcher_count;
} torch;

const char eager_setup_doc[] =
	"eager_setup(tensor, parameter, empty_like, is_neg, get_num_threads, is_grad_enabled, forward_ad, watchers)\n"
	"--\n\nWhat eager_forward needs of PyTorch; _core.pyi has the arguments.";

const char eager_forward_doc[] = "eager_forward(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
				 "Returns y, or None where evenkeel.torch must look at the call.";

const char eager_forward_saved_doc[] =
	"eager_forward_saved(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
	"Of tensors that were looked at: returns (y, stats), or None where some must be copied.";

const char eager_backward_doc[] =
	"eager_backward(norm, dy, x, normalized_shape, weight, stats, needs)\n--\n\n"
	"Returns (dx, dweight, dbias), or None where evenkeel.torch must look at the call.";

enum setup {
	TENSOR,
	PARAMETER,
	EMPTY_LIKE,
	IS_NEG,
	GET_NUM_THREADS,
	IS_GRAD_ENABLED,
	FORWARD_AD,
	WATCHERS,
	SETUPS
};

static PyObject *held(PyObject *object)
{
	Py_INCREF(object);
	return object;
}

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
	torch.tensor = (PyTypeObject *)held(given[TENSOR]);
	torch.parameter = (PyTypeObject *)held(given[PARAMETER]);
	torch.empty_like = held(given[EMPTY_LIKE]);
	torch.is_neg = held(given[IS_NEG]);
	torch.get_num_threads = held(given[GET_NUM_THREADS]);
	torch.is_grad_enabled = held(given[IS_GRAD_ENABLED]);
	torch.forward_ad = held(given[FORWARD_AD]);
	torch.current_level = PyUnicode_InternFromString("_current_level");
	torch.requires_grad = PyUnicode_InternFromString("requires_grad");
	for (Py_ssize_t i = 0; i < watchers; i++)
		torch.watchers[i] = held(PyTuple_GetItem(given[WATCHERS], i));
	torch.watcher_count = (int)watchers;
	Py_RETURN_NONE;
}

/* ---- questions: 1 yes, 0 no, -1 an exception ---- */

static int is_true(PyObject *answer)
{
	int truth = answer ? PyObject_IsTrue(answer) : -1;
	Py_XDECREF(answer);
	return truth;
}

/* Of no type with a dispatch of its own, and what lies in its memory, not lazily minus that, as the imaginary part of a
 * conjugate is. A parameter is not asked: no public call makes one of that kind. _plain.py has the same in Python. */
static int is_plain(PyObject *object)
{
	if (object == Py_None || Py_TYPE(object) == torch.parameter)
		return 1;
	if (Py_TYPE(object) != torch.tensor)
		return 0;
	int negated = is_true(PyObject_CallFunctionObjArgs(torch.is_neg, object, NULL));
	return negated < 0 ? -1 : !negated;
}

static int are_plain(PyObject *const *tensors, int count)
{
	int plain = tensors[0] != Py_None;
	for (int i = 0; i < count && plain == 1; i++)
		plain = is_plain(tensors[i]);
	return plain;
}

/* Rows of one element may be at any distance, and results like them, too. */
static bool has_neighbours(PyObject *shape)
{
	Py_ssize_t ndim = PyTuple_Check(shape) ? PyTuple_Size(shape) : 0;
	return ndim > 0 && PyLong_AsLong(PyTuple_GetItem(shape, ndim - 1)) > 1;
}

/* Modes, transforms, tracing, autocast, forward-mode differentiation. */
static int is_watched(void)
{
	int watched = 0;
	for (int i = 0; i < torch.watcher_count && watched == 0; i++)
		watched = is_true(PyObject_CallNoArgs(torch.watchers[i]));
	if (watched != 0)
		return watched;
	PyObject *level = PyDict_GetItemWithError(torch.forward_ad, torch.current_level);
	return level ? PyLong_AsLong(level) >= 0 : 1;
}

static int needs_gradient(PyObject *const *tensors, int count)
{
	int needs = is_true(PyObject_CallNoArgs(torch.is_grad_enabled));
	if (needs != 1)
		return needs;
	needs = 0;
	for (int i = 0; i < count && needs == 0; i++)
		if (tensors[i] != Py_None)
			needs = is_true(PyObject_GetAttr(tensors[i], torch.requires_grad));
	return needs;
}

/* ---- the call ---- */

enum argument { NORM, INPUT, SHAPE, WEIGHT, BIAS, EPS, ARGUMENTS };

/* LayerNorm must be told its eps. */
static bool has_eps(PyObject *const *given)
{
	return given[EPS] != Py_None || PyLong_AsLong(given[NORM]) == EK_RMS_NORM;
}

/* Modes are asked about first: they would see the looks at a tensor. */
static int is_common(PyObject *const *given)
{
	PyObject *const tensors[] = {given[INPUT], given[WEIGHT], given[BIAS]};
	if (!has_neighbours(given[SHAPE]) || !has_eps(given))
		return 0;
	int watched = is_watched();
	if (watched != 0)
		return watched < 0 ? -1 : 0;
	int plain = are_plain(tensors, 3);
	if (plain != 1)
		return plain;
	int needs = needs_gradient(tensors, 3);
	return needs < 0 ? -1 : !needs;
}

/* Memory as PyTorch makes it for its own results. (What its exchange API makes cannot be resized or recorded on a
 * stream: that is for statistics, which nobody else sees.) */
static PyObject *make_like(PyObject *tensor)
{
	return PyObject_CallFunctionObjArgs(torch.empty_like, tensor, NULL);
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

PyObject *eager_forward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != ARGUMENTS)
		return refuse_count("eager_forward", ARGUMENTS, count);
	int common = torch.tensor ? is_common(given) : 0;
	return result_or_none(common == 1 ? serve(given, Py_None) : NULL);
}

PyObject *eager_forward_saved(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != ARGUMENTS)
		return refuse_count("eager_forward_saved", ARGUMENTS, count);
	bool common = torch.tensor && has_neighbours(given[SHAPE]);
	return result_or_none(common ? serve(given, Py_True) : NULL);
}

/* ---- backward ---- */

enum backward_argument { B_NORM, DY, X, B_SHAPE, B_WEIGHT, STATS, NEEDS, B_ARGUMENTS };

/* The gradients that are needed, of dx, dweight and dbias, as memory to write to. */
static int make_gradients(PyObject *const *given, PyObject **gradients)
{
	for (int i = 0; i < 3; i++) {
		PyObject *like = i == 0 ? given[X] : given[B_WEIGHT];
		int need = PyObject_IsTrue(PyTuple_GetItem(given[NEEDS], i));
		gradients[i] = need == 1 ? make_like(like) : held(Py_None);
		if (need < 0 || !gradients[i])
			return -1;
	}
	return 0;
}

/* Gradients, and what hooks have unpacked, may be of any kind; and a backward may be differentiated in turn. */
static int is_common_backward(PyObject *const *given)
{
	PyObject *const tensors[] = {given[DY], given[X], given[B_WEIGHT]};
	if (!torch.tensor || !has_neighbours(given[B_SHAPE]) || !PyTuple_Check(given[NEEDS]) ||
	    PyTuple_Size(given[NEEDS]) != 3)
		return 0;
	int watched = is_watched();
	if (watched != 0)
		return watched < 0 ? -1 : 0;
	int again = is_true(PyObject_CallNoArgs(torch.is_grad_enabled));
	if (again != 0)
		return again < 0 ? -1 : 0;
	return are_plain(tensors, 3);
}

static PyObject *serve_backward(PyObject *const *given)
{
	PyObject *gradients[3] = {NULL}, *threads = NULL, *eps = NULL, *result = NULL;
	if (make_gradients(given, gradients) == 0 && (threads = PyObject_CallNoArgs(torch.get_num_threads)) &&
	    (eps = PyFloat_FromDouble(0))) {
		PyObject *const call[] = {given[B_NORM],   given[DY],    given[X], given[B_SHAPE],
					  given[B_WEIGHT], given[STATS], eps,      gradients[0],
					  gradients[1],    gradients[2], Py_None,  threads,
					  Py_None};
		result = backward_with(call, true);
	}
	Py_XDECREF(eps);
	Py_XDECREF(threads);
	for (int i = 0; i < 3; i++)
		Py_XDECREF(gradients[i]);
	return result;
}

PyObject *eager_backward(PyObject *module, PyObject *const *given, Py_ssize_t count)
{
	(void)module;
	if (count != B_ARGUMENTS)
		return refuse_count("eager_backward", B_ARGUMENTS, count);
	return result_or_none(is_common_backward(given) == 1 ? serve_backward(given) : NULL);
}
