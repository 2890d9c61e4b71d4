/* The order of a call: x and the scalars, the other inputs, the outputs, the workspace, the library. norm.c and the eager
 * calls come here. SPDX-License-Identifier: MIT */
#include "call.h"

#include "failure.h"
#include "functions.h"

/* ---- arguments ---- */

/* One element for each row, as the statistics have. */
static bool is_per_row(const struct signature *s, const struct ek_operand *operand)
{
	return operand->rank == 1 && operand->dims[0].size == s->op->operands[s->x].dims[0].size;
}

static bool is_statistic(const struct signature *s, const struct ek_operand *operand)
{
	return is_per_row(s, operand) && !operand->dtype;
}

static struct parameter parameter_of(const struct signature *s, int number, const char *name, int position)
{
	const struct ek_operand *operand = &s->op->operands[number];
	const char *called = s->renamed && number == s->renamed ? s->name_of_renamed : operand->name;
	uint32_t alike = 0;
	for (int i = s->op->output_count; i < s->op->operand_count; i++)
		alike |= (uint32_t)are_alike(operand, &s->op->operands[i]) << i;
	return (struct parameter){operand, name ? name : called,  (uint8_t)number, (uint8_t)position,
				  alike,   is_per_row(s, operand)};
}

static int resolve_choice(struct signature *s, const struct argument *argument, int position)
{
	const struct ek_choice *choice = &s->op->choices[argument->choice];
	struct choice *resolved = &s->choices[s->choice_count++];
	*resolved = (struct choice){.choice = choice,
				    .name = argument->name ? argument->name : choice->name,
				    .number = argument->choice,
				    .at = (uint8_t)position,
				    .is_required = argument->is_required,
				    .offset = s->op->choice[argument->choice]};
	return name_values(s, resolved);
}

static int resolve_argument(struct signature *s, int position)
{
	const struct argument *argument = &s->arguments[position];
	if (argument->role == CHOICE)
		return resolve_choice(s, argument, position);
	if (argument->role == SIZE) {
		s->sizes[s->size_count].size = argument->size;
		s->sizes[s->size_count++].at = (uint8_t)position;
		return 0;
	}
	struct parameter parameter = parameter_of(s, argument->operand, argument->name, position);
	if (argument->role == OPERAND && argument->operand == s->x)
		s->name_of_x = parameter.name;
	if (argument->role != OPERAND || argument->operand == s->x)
		s->at[argument->role] = parameter.at;
	else if (parameter.operand->flags & EK_OUTPUT)
		s->outputs[s->output_count++] = parameter;
	else
		s->inputs[s->input_count++] = parameter;
	return 0;
}

static bool has_argument(const struct signature *s, struct argument argument)
{
	bool has = false;
	for (int i = 0; i < s->count; i++)
		has |= s->arguments[i].role == argument.role && s->arguments[i].operand == argument.operand &&
		       s->arguments[i].choice == argument.choice;
	return has;
}

static void append(struct signature *s, struct argument argument)
{
	if (!has_argument(s, argument))
		s->arguments[s->count++] = argument;
}

/* The rest of the tables. */
static void append_all(struct signature *s)
{
	for (uint8_t i = 0; i < s->op->operand_count; i++)
		if (!is_statistic(s, &s->op->operands[i]))
			append(s, (struct argument){.role = OPERAND, .operand = i});
	for (uint8_t i = 0; i < s->op->choice_count; i++)
		if (s->op->choice[i])
			append(s, (struct argument){.role = CHOICE, .choice = i});
	for (int i = 0; i < s->op->size_count; i++)
		if (s->op->sizes[i].cuts)
			append(s, (struct argument){.role = CUT, .name = s->op->sizes[i].name});
	if (s->op->operands[s->x].dtype != s->op->dtype)
		append(s, (struct argument){.role = DTYPE, .name = "dtype"});
}

int signature_resolve(struct signature *s)
{
	memset(s->at, NOWHERE, sizeof s->at);
	s->positional_count = s->count;
	s->input_count = s->output_count = s->statistic_count = s->choice_count = s->size_count = 0;
	if (s->takes_all)
		append_all(s);
	for (int i = 0; i < s->count; i++)
		if (resolve_argument(s, i))
			return -1;
	for (int i = 0; i < s->op->operand_count; i++)
		if (is_statistic(s, &s->op->operands[i]))
			s->statistics[s->statistic_count++] = parameter_of(s, i, NULL, NOWHERE);
	return 0;
}

int signatures_resolve(struct signature *const *signatures)
{
	for (; *signatures; signatures++)
		if (signature_resolve(*signatures))
			return -1;
	return 0;
}

static int read_inputs(struct call *call)
{
	if (read_dtype(call))
		return -1;
	for (int i = 0; i < call->signature->input_count; i++) {
		const struct parameter *parameter = &call->signature->inputs[i];
		PyObject *object = call->given[parameter->at];
		bool is_absent = object == Py_None && parameter->operand->flags & EK_OPTIONAL;
		if (!is_absent && read_input(call, parameter, object))
			return -1;
	}
	return read_statistics(call);
}

static int open_outputs(struct call *call)
{
	for (int i = 0; i < call->signature->output_count; i++) {
		const struct parameter *parameter = &call->signature->outputs[i];
		if (open_output(call, parameter, call->given[parameter->at]))
			return -1;
	}
	return open_statistics(call);
}

/* ---- the library ---- */

/* Is there nothing to compute? The library refuses rows without elements. */
static bool has_only_empty_outputs(const struct call *call)
{
	if (!is_empty(&call->views[call->signature->x]))
		return false;
	bool wanted = false;
	for (int i = 0; i < call->op->output_count; i++) {
		bool opened = call->opened >> i & 1;
		if (!(operand_of(call, i)->flags & EK_OPTIONAL) || (opened && !is_empty(&call->views[i])))
			return false;
		wanted |= opened;
	}
	return wanted;
}

/* Is the call over so soon that letting other threads into Python meanwhile would cost more than it gives? */
static bool is_short(const struct call *call)
{
	const struct ek_operand *x = operand_of(call, call->signature->x);
	return call->device == EK_CPU &&
	       ek_operand_elements(call->op, x, &call->args) < 32768; /* some microseconds */
}

static int run(struct call *call)
{
	ek_status status;
	if (is_short(call)) {
		status = call->op->call(call->context, &call->args);
	} else {
		PyThreadState *state = PyEval_SaveThread();
		status = call->op->call(call->context, &call->args);
		PyEval_RestoreThread(state);
	}
	return status == EK_OK ? 0 : raise_status(status);
}

/* ---- results ---- */

void results_close(struct results *results)
{
	while (results->count > 0)
		Py_DECREF(results->at[--results->count]);
}

PyObject *tuple_of(struct results *results)
{
	PyObject *tuple = PyTuple_New(results->count);
	if (!tuple) {
		results_close(results);
		return NULL;
	}
	for (int i = 0; i < results->count; i++)
		PyTuple_SetItem(tuple, i, results->at[i]);
	return tuple;
}

int add_result(struct call *call, PyObject *object)
{
	if (!object)
		return -1;
	call->results->at[call->results->count++] = object;
	return 0;
}

/* ---- calls ---- */

/* Of statistics that will be given; nothing reads them here. */
static void mark_statistics(struct call *call)
{
	static const char there;
	const struct ek_op *op = call->op;
	int kind = ek_kind_of(op, &call->args);
	for (int i = op->output_count; i < op->operand_count; i++)
		if (is_statistic(call->signature, &op->operands[i]) &&
		    ek_operand_has_kind(&op->operands[i], kind))
			ek_operand_set(&op->operands[i], &call->args, (void *)(uintptr_t)&there);
}

/* Enough for a call with statistics and for one without. */
static int ask_workspace(struct call *call)
{
	size_t without, with;
	ek_status status = call->op->workspace_bytes(call->context, &call->args, &without);
	mark_statistics(call);
	if (status == EK_OK)
		status = call->op->workspace_bytes(call->context, &call->args, &with);
	return status == EK_OK ? add_result(call, PyLong_FromSize_t(with > without ? with : without))
			       : raise_status(status);
}

static int compute(struct call *call)
{
	if (call_open(call) || read_inputs(call))
		return -1;
	if (call->scattered && !call->signature->asks_workspace)
		return 1;
	if (open_outputs(call))
		return -1;
	decide_dtypes(call);
	if (call->signature->asks_workspace)
		return ask_workspace(call);
	if (has_only_empty_outputs(call))
		return 0;
	if (call->op->workspace_bytes && workspace_open(call, scalar_of(call, WORKSPACE)))
		return -1;
	return run(call);
}

int call_op(const struct signature *signature, PyObject *const *given, bool eager, struct results *results)
{
	struct call call; /* not cleared as a whole: views are large, and calls are short */
	call.signature = signature;
	call.op = signature->op;
	call.given = given;
	call.eager = eager;
	call.opened = 0;
	call.results = results;
	call.workspace = (struct workspace){0};
	memset(&call.args, 0, call.op->args_size);
	call.args.size = call.op->args_size;
	results->count = 0;
	int status = compute(&call);
	results->dtype = *(const ek_dtype *)ek_field(&call.args, call.op->dtype);
	if (status != 0)
		results_close(results);
	workspace_close(&call.workspace);
	for (uint32_t left = call.opened; left; left &= left - 1) {
		struct view *view = &call.views[__builtin_ctz(left)];
		if (!view->api) /* the exchange API lends what it shows */
			view_close(view);
	}
	return status;
}

/* Of an argument that is a keyword. */
static const char *name_of(const struct signature *s, int at)
{
	const struct argument *argument = &s->arguments[at];
	return argument->name             ? argument->name
	       : argument->role == CHOICE ? s->op->choices[argument->choice].name
					  : s->op->operands[argument->operand].name;
}

/* Places the arguments of keywords among the others. */
static int place_keywords(const struct signature *s, PyObject *const *given, PyObject *keywords,
			  PyObject **arguments)
{
	for (Py_ssize_t i = 0; i < PyTuple_Size(keywords); i++) {
		PyObject *keyword = PyTuple_GetItem(keywords, i);
		int at = s->positional_count;
		while (at < s->count && PyUnicode_CompareWithASCIIString(keyword, name_of(s, at)) != 0)
			at++;
		if (at == s->count) {
			PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
				     s->function, keyword);
			return -1;
		}
		arguments[at] = given[i];
	}
	return 0;
}

static PyObject *call_with(const struct signature *s, PyObject *const *arguments)
{
	struct results results;
	int status = call_op(s, arguments, false, &results);
	if (status == 1)
		Py_RETURN_NONE;
	if (status < 0)
		return NULL;
	return results.count == 1 ? results.at[0] : tuple_of(&results);
}

PyObject *call_function(const struct signature *s, PyObject *const *given, Py_ssize_t count,
			PyObject *keywords)
{
	if (count != s->positional_count)
		return refuse_count(s->function, s->positional_count, count);
	if (!keywords && count == s->count)
		return call_with(s, given);
	PyObject *arguments[MAX_ARGUMENTS];
	for (int i = 0; i < s->count; i++)
		arguments[i] = i < count ? given[i] : Py_None;
	if (keywords && place_keywords(s, given + count, keywords, arguments))
		return NULL;
	return call_with(s, arguments);
}

PyObject *check_function(const struct signature *s, PyObject *const *given, Py_ssize_t count)
{
	if (count != s->choice_count)
		return refuse_count(s->function, s->choice_count, count);
	return check_choices(s, given) ? NULL : Py_NewRef(Py_None);
}
