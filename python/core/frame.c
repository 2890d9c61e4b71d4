/* What the tensors of one call share: x gives the device, the framework, the dtype and the sizes, and every other tensor
 * is read against it. Called by call.c. SPDX-License-Identifier: MIT */
#include "call.h"

#include <float.h>
#include <limits.h>

#include "core/check.h"
#include "contexts.h"

struct view *open_view(struct call *call, int number, PyObject *object, const char *name)
{
	struct view *view = &call->views[number];
	call->opened |= 1u << number;
	bool is_index = number < WORKSPACE_VIEW && operand_of(call, number)->flags & EK_INDEX;
	if (view_open(view, object, name, is_index, call->stream))
		return NULL;
	bool same = view->device == call->device && view->ordinal == call->ordinal;
	return same || refuse_device(call, view) == 0 ? view : NULL;
}

/* ---- scalars ---- */

static int read_kind(struct call *call, PyObject *number)
{
	call->kind_bit = 0;
	if (call->signature->at[KIND] == NOWHERE)
		return 0;
	int kind = (int)PyLong_AsLong(number);
	if (kind == -1 && PyErr_Occurred())
		return -1;
	call->kind_bit = kind_bit(kind);
	*(int *)ek_field(&call->args, call->op->kind) = kind;
	return 0;
}

static double arithmetic_epsilon(const struct call *call)
{
	return *(const ek_dtype *)ek_field(&call->args, call->op->dtype) == EK_F64 ? DBL_EPSILON
										   : FLT_EPSILON;
}

/* A None eps is the epsilon of the arithmetic, where the kind has that as its default; another None is the library's. */
static int read_number(struct call *call, enum ek_scalar scalar)
{
	static const char *const expected[EK_SCALARS] = {[EK_EPS] = "a number, such as 1e-5"};
	if (call->signature->at[EPS + scalar] == NOWHERE)
		return 0;
	PyObject *number = scalar_of(call, (enum role)(EPS + scalar));
	double *value = ek_field(&call->args, call->op->scalar[scalar]);
	bool is_default = scalar != EK_EPS || (call->signature->default_eps_kinds & call->kind_bit);
	if (number == Py_None && is_default)
		*value = scalar == EK_EPS ? arithmetic_epsilon(call) : 0;
	else
		*value = PyFloat_AsDouble(number);
	if (*value != -1 || !PyErr_Occurred())
		return 0;
	return refuse_number(ek_scalar_names[scalar], number,
			     expected[scalar] ? expected[scalar] : "a number");
}

static int read_numbers(struct call *call)
{
	for (int i = 0; i < EK_SCALARS; i++)
		if (read_number(call, (enum ek_scalar)i))
			return -1;
	return 0;
}

static int find_context(struct call *call, PyObject *number)
{
	int overflow;
	long threads = PyLong_AsLongAndOverflow(number, &overflow);
	if (threads == -1 && PyErr_Occurred())
		return refuse_number("threads", number, "an integer");
	if (overflow || threads < INT_MIN || threads > INT_MAX) { /* the library has an int */
		PyErr_Format(PyExc_ValueError, "threads (%S) is not in 0 to %d", number, EK_MAX_THREADS);
		return -1;
	}
	call->context = context_of(call->device, call->ordinal, (int)threads);
	return call->context ? 0 : -1;
}

/* The stream that the caller asked for, else the default one. */
static int read_stream(struct call *call, PyObject *number)
{
	call->stream = number == Py_None ? NULL : PyLong_AsVoidPtr(number);
	return !call->stream && PyErr_Occurred() ? refuse_number("stream", number, "an integer") : 0;
}

/* Where x's framework has a current stream it must be that one: on another, the framework would not wait for the call
 * before it reuses memory. */
static int settle_stream(struct call *call, PyObject *number)
{
	void *asked = call->stream;
	if (call->device == EK_CPU)
		call->stream = NULL;
	else if (call->api && call->api->current_work_stream &&
		 call->api->current_work_stream(kDLCUDA, call->ordinal, &call->stream))
		return -1;
	if (call->device != EK_CPU && number != Py_None && asked != call->stream) {
		PyErr_Format(
			PyExc_ValueError,
			"stream is %llu, and x's framework works on %llu: make it the current stream there",
			(unsigned long long)(uintptr_t)asked, (unsigned long long)(uintptr_t)call->stream);
		return -1;
	}
	*(void **)ek_field(&call->args, call->op->stream) = call->stream;
	return 0;
}

/* ---- x ---- */

/* Is a dimension of x the one asked for? -1 with an exception. */
static int is_size(PyObject *number, int64_t size)
{
	long long asked = PyLong_AsLongLong(number);
	if (asked == -1 && PyErr_Occurred())
		return refuse_number("normalized_shape", number, "an integer");
	return asked == size;
}

/* How many dimensions are normalized: `shape` is an int or a tuple, which x's shape must end in. -1 with an exception. */
static int count_normalized(const struct view *x, int least_before, PyObject *shape)
{
	bool many = PyTuple_Check(shape);
	Py_ssize_t count = many ? PyTuple_Size(shape) : 1;
	int same = count >= 1 && count <= x->ndim - least_before;
	for (Py_ssize_t i = 0; same == 1 && i < count; i++)
		same = is_size(many ? PyTuple_GetItem(shape, i) : shape, x->shape[x->ndim - count + i]);
	return same == 1 ? (int)count : same == 0 ? refuse_end(x, shape) : -1;
}

/* How many dimensions are x's last size: those that are normalized, else one. -1 with an exception. */
static int count_last(const struct call *call, const struct view *x, int least_before)
{
	if (call->signature->at[SHAPE] != NOWHERE)
		return count_normalized(x, least_before, scalar_of(call, SHAPE));
	return x->ndim > least_before ? 1 : refuse_ndim(x, least_before + 1);
}

void set_size(struct call *call, int size, struct extent extent)
{
	int64_t product = 1;
	for (int i = 0; i < extent.ndim; i++)
		product *= extent.shape[i];
	call->extents[size] = extent;
	*(int64_t *)ek_field(&call->args, call->op->sizes[size].offset) = product;
}

/* Where a row of x has two elements for each column. */
static int halve_last(struct call *call, const struct view *x)
{
	const struct ek_operand *operand = operand_of(call, call->signature->x);
	const struct ek_dim *dim = &operand->dims[operand->rank - 1];
	if (each_of(call, dim) == 1)
		return 0;
	if (x->shape[x->ndim - 1] % 2 != 0)
		return refuse_odd(x);
	call->cols = x->shape[x->ndim - 1] / 2;
	set_size(call, dim->size, (struct extent){1, &call->cols});
	return 0;
}

/* Those that are arguments; None is 0. */
static int read_given_sizes(struct call *call)
{
	for (int i = 0; i < call->op->size_count; i++)
		call->extents[i].ndim = -1;
	for (int i = 0; i < call->signature->size_count; i++) {
		const struct ek_size *size = &call->op->sizes[call->signature->sizes[i].size];
		PyObject *number = call->given[call->signature->sizes[i].at];
		int64_t *value = ek_field(&call->args, size->offset);
		*value = number == Py_None ? 0 : PyLong_AsLongLong(number);
		if (*value == -1 && PyErr_Occurred())
			return refuse_number(size->name, number, "an integer");
		call->extents[call->signature->sizes[i].size] = (struct extent){1, value};
	}
	return 0;
}

/* The last dimensions of x are its last size, the leading ones its first; those between are a size each. */
static int read_sizes(struct call *call, const struct view *x)
{
	if (read_given_sizes(call))
		return -1;
	const struct ek_operand *operand = operand_of(call, call->signature->x);
	int between = operand->rank - 2, last = count_last(call, x, between), at = 0;
	if (last < 0)
		return -1;
	for (int dim = 0; dim < operand->rank; dim++) {
		int ndim = dim == operand->rank - 1 ? last : dim > 0 ? 1 : x->ndim - between - last;
		set_size(call, operand->dims[dim].size, (struct extent){ndim, x->shape + at});
		at += ndim;
	}
	return halve_last(call, x);
}

static int read_packed(struct call *call)
{
	int packed = PyObject_IsTrue(scalar_of(call, PACKED));
	call->packed = packed == 1;
	return packed < 0 ? -1 : 0;
}

/* The op's size that cuts another; its value is an integer, or None for the whole. */
static int read_cut(struct call *call, PyObject *number)
{
	int cut = 0;
	if (number == Py_None)
		return 0;
	while (cut < call->op->size_count - 1 && !call->op->sizes[cut].cuts)
		cut++;
	const struct ek_size *size = &call->op->sizes[cut];
	const int64_t whole = size_of(call, size->cuts - 1);
	int overflow;
	long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
	if (value == -1 && PyErr_Occurred())
		return refuse_number(size->name, number, "an integer, or None");
	if (overflow || value <= 0 || whole % value != 0) {
		PyErr_Format(PyExc_ValueError,
			     "%s (%S) does not divide %lld, the elements that are normalized", size->name,
			     number, (long long)whole);
		return -1;
	}
	*(int64_t *)ek_field(&call->args, size->offset) = whole == 0 || value == whole ? 0 : value;
	return 0;
}

static int read_x(struct call *call, PyObject *object)
{
	int number = call->signature->x;
	struct view *x = &call->views[number];
	call->opened |= 1u << number;
	if (view_open(x, object, call->signature->name_of_x, false, call->stream))
		return -1;
	call->api = x->api;
	call->device = x->device;
	call->ordinal = x->ordinal;
	*(ek_dtype *)ek_field(&call->args, operand_of(call, number)->dtype) = x->dtype;
	if (x->dtype == EK_F64) /* which all operands then have */
		*(ek_dtype *)ek_field(&call->args, call->op->dtype) = EK_F64;
	return 0;
}

int call_open(struct call *call)
{
	int number = call->signature->x;
	const struct view *x = &call->views[number];
	PyObject *stream = scalar_of(call, STREAM);
	if (read_kind(call, scalar_of(call, KIND)) || read_choices(call) || read_packed(call) ||
	    read_stream(call, stream) || read_x(call, scalar_of(call, OPERAND)) || read_sizes(call, x) ||
	    read_cut(call, scalar_of(call, CUT)) || settle_stream(call, stream) ||
	    find_context(call, scalar_of(call, THREADS)) || read_numbers(call))
		return -1;
	call->scattered = lay_out(call, operand_of(call, number), x) == SCATTERED;
	place_operand(call, number, address_of(x));
	return 0;
}
