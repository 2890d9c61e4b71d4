/* Reads the inputs of a call into the op's arguments, and makes or checks its outputs, each by its row of the op's table.
 * An output that the caller gives must lie as the op writes it: a copy of it would not reach the caller. Called by call.c.
 * SPDX-License-Identifier: MIT */
#include "call.h"

#include "allocate.h"
#include "eager.h"
#include "pages.h"

bool are_alike(const struct ek_operand *one, const struct ek_operand *other)
{
	bool alike = one->rank == other->rank;
	for (int dim = 0; alike && dim < one->rank; dim++)
		alike = one->dims[dim].size == other->dims[dim].size;
	return alike;
}

/* The shape of an operand, the dimensions of its sizes one after another; returns their number. */
static int shape_of(const struct call *call, const struct ek_operand *operand,
		    int64_t shape[EK_MOST_DIMS * MAX_NDIM])
{
	int ndim = 0;
	for (int dim = 0; dim < operand->rank; dim++) {
		const struct extent *extent = &call->extents[operand->dims[dim].size];
		int64_t each = each_of(call, &operand->dims[dim]), of = operand->dims[dim].halves ? 2 : 1;
		for (int i = 0; i < extent->ndim; i++)
			shape[ndim++] =
				i < extent->ndim - 1 ? extent->shape[i] : extent->shape[i] * each / of;
	}
	return ndim;
}

/* ---- pointers ---- */

const char *address_of(const struct view *view)
{
	static const char somewhere;
	return view->data || !is_empty(view) ? view->data : &somewhere;
}

/* A packed call reads and writes both in the memory of one tensor. */
static void place_partner(struct call *call, const struct pack *pack, const char *data)
{
	const struct ek_operand *operand = operand_of(call, pack->operand);
	const struct ek_operand *partner = operand_of(call, pack->partner);
	int last = operand->rank - 1;
	size_t bytes = ek_dtype_size(ek_operand_dtype(call->op, operand, &call->args));
	ek_operand_set(partner, &call->args, data + (size_t)size_of(call, operand->dims[last].size) * bytes);
	for (int dim = 0; dim < last; dim++)
		*(int64_t *)ek_field(&call->args, partner->dims[dim].stride) =
			*(const int64_t *)ek_field(&call->args, operand->dims[dim].stride);
}

void place_operand(struct call *call, int number, const char *data)
{
	ek_operand_set(operand_of(call, number), &call->args, data);
	for (int i = 0; i < call->signature->pack_count && call->packed; i++)
		if (call->signature->packs[i].operand == number)
			place_partner(call, &call->signature->packs[i], data);
}

/* ---- dtypes ---- */

/* The name of the first tensor that was read with the same dtype field; NULL where there is none. */
static const char *who_decided(const struct call *call, const struct ek_operand *operand)
{
	const struct signature *signature = call->signature;
	if (operand->flags & EK_OUTPUT || !operand->dtype)
		return NULL;
	if (operand->dtype == operand_of(call, signature->x)->dtype)
		return signature->name_of_x;
	for (int i = 0; i < signature->input_count; i++) {
		const struct parameter *parameter = &signature->inputs[i];
		if (call->opened >> parameter->number & 1 && parameter->operand != operand &&
		    parameter->operand->dtype == operand->dtype)
			return parameter->name;
	}
	return NULL;
}

/* The first tensor with a dtype field sets it, the others must agree. */
static int settle_dtype(struct call *call, const struct ek_operand *operand, const struct view *view)
{
	if (view->is_index)
		return 0;
	const struct signature *s = call->signature;
	ek_dtype dtype = ek_operand_dtype(call->op, operand, &call->args);
	if (s->like_x && operand == operand_of(call, s->like_x) &&
	    require_dtype(view, call->views[s->x].dtype, s->name_of_x))
		return -1;
	if (dtype == view->dtype)
		return 0;
	if (dtype)
		return require_dtype(view, dtype, who_decided(call, operand));
	*(ek_dtype *)ek_field(&call->args, operand->dtype) = view->dtype;
	return 0;
}

/* ---- inputs ---- */

/* One element for each row, in any shape. */
static int require_rows(const struct call *call, const struct ek_operand *operand, const struct view *view)
{
	int64_t count = 1, rows = count_of(call, operand);
	bool in_pieces = rows != size_of(call, operand->dims[0].size);
	for (int i = 0; i < view->ndim; i++)
		count *= view->shape[i];
	if (count == rows)
		return 0;
	PyErr_Format(PyExc_ValueError, "%s has %lld elements: it must have %lld, one for each %s of x",
		     view->name, (long long)count, (long long)rows, in_pieces ? "group of each row" : "row");
	return -1;
}

static int refuse_shape(const struct call *call, const struct ek_operand *operand, const struct view *view)
{
	int64_t shape[EK_MOST_DIMS * MAX_NDIM];
	int ndim = shape_of(call, operand, shape);
	if (!is_flat(operand, view))
		return require_shape(view, ndim, shape);
	int64_t elements = 1;
	for (int i = 0; i < ndim; i++)
		elements *= shape[i];
	return require_shape(view, 1, &elements);
}

int read_input(struct call *call, const struct parameter *parameter, PyObject *object)
{
	const struct ek_operand *operand = parameter->operand;
	const struct view *view = open_view(call, parameter->number, object, parameter->name);
	if (!view || settle_dtype(call, operand, view))
		return -1;
	enum layout layout;
	if (parameter->per_row) {
		if (require_rows(call, operand, view))
			return -1;
		layout = is_contiguous(view) ? FITS : SCATTERED;
	} else {
		layout = lay_out(call, operand, view);
	}
	call->scattered |= layout == SCATTERED;
	place_operand(call, parameter->number, address_of(view));
	return layout == OTHER_SHAPE ? refuse_shape(call, operand, view) : 0;
}

/* ---- outputs ---- */

/* The input that an output is made like: of its dimensions, and of a dtype that is decided on; x where there is a choice,
 * or no such input. */
static const struct view *model_of(const struct call *call, const struct parameter *parameter, ek_dtype dtype)
{
	const struct view *x = &call->views[call->signature->x], *model = NULL;
	for (uint32_t left = parameter->alike & call->opened; left; left &= left - 1) {
		const struct view *view = &call->views[__builtin_ctz(left)];
		bool fits = !(int)dtype || view->dtype == dtype;
		if (!model || (fits && model->dtype != dtype) || (fits && view == x))
			model = view;
	}
	return model ? model : x;
}

/* A dtype that is not decided on is that of the model. */
static PyObject *make(const struct call *call, const struct parameter *parameter)
{
	const struct ek_operand *operand = parameter->operand;
	ek_dtype dtype = ek_operand_dtype(call->op, operand, &call->args);
	const struct view *model = model_of(call, parameter, dtype);
	dtype = (int)dtype ? dtype : model->dtype;
	if (call->eager)
		return make_like(model, dtype);
	int64_t shape[EK_MOST_DIMS * MAX_NDIM];
	int ndim = shape_of(call, operand, shape);
	return allocate_object(call, parameter->name, dtype, ndim, shape);
}

int check_output(const struct call *call, const struct view *view)
{
	if (require_writable(view))
		return -1;
	if (call->eager && call->device == EK_CPU)
		prefer_large_pages(view->data, view_bytes(view));
	return 0;
}

static int use(struct call *call, const struct parameter *parameter, PyObject *object)
{
	const struct ek_operand *operand = parameter->operand;
	const struct view *view = open_view(call, parameter->number, object, parameter->name);
	if (!view || settle_dtype(call, operand, view))
		return -1;
	enum layout layout = lay_out(call, operand, view);
	if (layout == OTHER_SHAPE)
		return refuse_shape(call, operand, view);
	if (check_output(call, view))
		return -1;
	if (call->eager && !is_in_order(view)) /* made like x: PyTorch's own results are not */
		return refuse_layout(view, "in order");
	if (layout == SCATTERED)
		return refuse_layout(view, operand->rank > 1 ? "contiguous, or rows at one distance"
							     : "contiguous");
	place_operand(call, parameter->number, address_of(view));
	return 0;
}

/* For the size of the workspace the library only reads whether the address is NULL. */
static int mark(struct call *call, const struct parameter *parameter, PyObject *given)
{
	static const char marker;
	int truth = PyObject_IsTrue(given);
	if (truth == 1)
		place_operand(call, parameter->number, &marker);
	return truth < 0 ? -1 : 0;
}

/* An output that is always there decides on no dtype. */
static void follow_inputs(struct call *call, const struct ek_operand *operand)
{
	const struct view *x = &call->views[call->signature->x];
	int wider = call->signature->wider;
	bool is_wider = wider && call->opened >> wider & 1 && call->views[wider].dtype == EK_F32;
	ek_dtype *dtype = ek_field(&call->args, operand->dtype);
	if (!(int)*dtype)
		*dtype = is_wider && x->dtype != EK_F64 ? EK_F32 : x->dtype;
}

/* Is it another output, which has been opened? */
static bool is_twin(const struct call *call, const struct parameter *parameter)
{
	const struct signature *s = call->signature;
	return s->twin && parameter->number == s->twin && call->opened >> s->twin_of & 1 &&
	       call->views[s->twin_of].dtype == ek_operand_dtype(call->op, parameter->operand, &call->args);
}

int open_output(struct call *call, const struct parameter *parameter, PyObject *given)
{
	const struct ek_operand *operand = parameter->operand;
	if (call->signature->asks_workspace)
		return mark(call, parameter, given);
	if (!(operand->flags & EK_OPTIONAL)) {
		given = given == Py_None ? Py_True : given;
		follow_inputs(call, operand);
	}
	if (!is_wanted(given)) /* of an output that is a keyword there is no result */
		return parameter->at < call->signature->positional_count
			       ? add_result(call, Py_NewRef(Py_None))
			       : 0;
	if (given == Py_True && is_twin(call, parameter))
		return add_result(call, Py_NewRef(call->views[call->signature->twin_of].object));
	PyObject *object = given == Py_True ? make(call, parameter) : Py_NewRef(given);
	return add_result(call, object) ? -1 : use(call, parameter, object);
}
