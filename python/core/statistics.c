/* The statistics of all rows (of all groups of them) as Python has them: one tensor [count, rows], which autograd saves, or a tuple of a tensor
 * each. They are the operands of an op with one element for each row in the type of the arithmetic, in the table's
 * order: mean, rstd, mean_lo of LayerNorm, rstd of RMSNorm. Called by call.c. SPDX-License-Identifier: MIT */
#include "call.h"

#include <stdio.h>

#include "allocate.h"
#include "eager.h"

struct statistics {
	int count; /* 1 and more: a signature with statistics has some for every kind */
	const struct parameter *at[EK_MOST_OPERANDS];
};

/* Those that the kind has. They are all inputs or all outputs. */
static void find_statistics(const struct call *call, struct statistics *s)
{
	s->count = 0;
	s->at[0] = &call->signature->statistics[0];
	for (int i = 0; i < call->signature->statistic_count; i++)
		if (has_kind(call, call->signature->statistics[i].operand->kinds))
			s->at[s->count++] = &call->signature->statistics[i];
}

static bool are_outputs(const struct call *call)
{
	return call->signature->statistics[0].operand->flags & EK_OUTPUT;
}

static ek_dtype dtype_of(const struct call *call, const struct statistics *s)
{
	return ek_operand_dtype(call->op, s->at[0]->operand, &call->args);
}

static int64_t rows_of(const struct call *call, const struct statistics *s)
{
	return count_of(call, s->at[0]->operand);
}

/* The least number of them, from the first on, that have all that they need. */
static int least_count(const struct call *call, const struct statistics *s)
{
	int least = 1;
	for (int i = 0; i < least; i++) {
		const struct ek_operand *operand = s->at[i]->operand;
		int needed = has_kind(call, operand->needs.kinds) ? operand->needs.number - 1 : -1;
		for (int k = least; k < s->count; k++)
			if (s->at[k]->number == needed)
				least = k + 1;
	}
	return least;
}

/* A view of one tensor with at least the first `least` of them. */
static const struct view *open_tensor(struct call *call, const struct statistics *s, PyObject *object,
				      int least)
{
	const struct view *view = open_view(call, s->at[0]->number, object, "stats");
	if (!view || require_dtype(view, dtype_of(call, s), NULL))
		return NULL;
	bool some = view->ndim > 0 && view->shape[0] >= least && view->shape[0] <= s->count;
	const int64_t shape[] = {some ? view->shape[0] : s->count, rows_of(call, s)};
	return require_shape(view, 2, shape) ? NULL : view;
}

/* Places its rows in the arguments. */
static void place(struct call *call, const struct statistics *s, const struct view *view)
{
	size_t bytes = (size_t)rows_of(call, s) * ek_dtype_size(view->dtype);
	for (int i = 0; i < view->shape[0] && i < s->count; i++)
		ek_operand_set(s->at[i]->operand, &call->args, view->data + (size_t)i * bytes);
}

/* ---- inputs ---- */

static int refuse_tuple(const struct call *call, const struct statistics *s, Py_ssize_t count)
{
	char expected[128]; /* "2 or 3, mean, rstd and mean_lo" */
	int least = least_count(call, s);
	size_t used = (size_t)snprintf(expected, sizeof expected, least < s->count ? "%d or %d" : "%d", least,
				       s->count);
	for (int i = 0; i < s->count && used < sizeof expected; i++)
		used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s",
					 i == 0 || i < s->count - 1 ? ", " : " and ", s->at[i]->name);
	PyErr_Format(PyExc_ValueError, "stats has %zd tensors: it must have %s", count, expected);
	return -1;
}

static int read_tuple(struct call *call, const struct statistics *s, PyObject *tuple)
{
	Py_ssize_t count = PyTuple_Size(tuple);
	if (count < least_count(call, s) || count > s->count)
		return refuse_tuple(call, s, count);
	for (int i = 0; i < count; i++)
		if (read_input(call, s->at[i], PyTuple_GetItem(tuple, i)))
			return -1;
	return 0;
}

int read_statistics(struct call *call)
{
	PyObject *given = scalar_of(call, STATISTICS);
	if (given == Py_None || are_outputs(call))
		return 0;
	struct statistics s;
	find_statistics(call, &s);
	if (PyTuple_Check(given))
		return read_tuple(call, &s, given);
	const struct view *view = open_tensor(call, &s, given, least_count(call, &s));
	if (!view)
		return -1;
	call->scattered |= !is_contiguous(view);
	place(call, &s, view);
	return 0;
}

/* ---- outputs ---- */

static PyObject *make(const struct call *call, const struct statistics *s)
{
	const int64_t shape[] = {s->count, rows_of(call, s)};
	ek_dtype dtype = dtype_of(call, s);
	return call->eager ? make_statistics(call, dtype, shape)
			   : allocate_object(call, "stats", dtype, 2, shape);
}

int open_statistics(struct call *call)
{
	PyObject *given = scalar_of(call, STATISTICS);
	if (!is_wanted(given) || !are_outputs(call))
		return 0;
	struct statistics s;
	find_statistics(call, &s);
	PyObject *object = given == Py_True ? make(call, &s) : Py_NewRef(given);
	if (add_result(call, object))
		return -1;
	const struct view *view = open_tensor(call, &s, object, s.count);
	if (!view || check_output(call, view) || require_contiguous(view))
		return -1;
	place(call, &s, view);
	return 0;
}
