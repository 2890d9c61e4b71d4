/* Choices of a call: options and dtypes that no tensor decides on. Called by call.c. SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "call.h"
#include "eager.h"
#include "ops/choices.h"

/* Options whose values have names in Python, from a first one on; those before it are None alone. */
static const struct {
	const char *choice;
	uint8_t first;
	const char *values[MAX_VALUES];
} named[] = {
	{"rounding", EK_ROUND_ONCE, {"once", "each"}},
	{"norm", EK_LAYER_NORM, {"layer", "rms"}},
	{"activation", EK_SIGMOID, {"sigmoid", "silu", "gelu", "gelu_tanh", "relu", "relu_squared", "none"}},
};

/* Whether a text starts with a value in one of these forms: its digits are from *begin to *end. */
static bool is_value(const char *text, int *value, int *begin, int *end)
{
	static const char *const forms[] = {" (%n%d%n)", " is %n%d%n", " %n%d%n"};
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		if (sscanf(text, forms[i], begin, value, end) == 1)
			return true;
	return false;
}

/* "activation (2" becomes "activation ('silu'", and "activation is 0" becomes "activation is None". */
int choice_in_python(const char *text, char *into, size_t size)
{
	for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
		size_t length = strlen(named[i].choice);
		int value, begin, end;
		if (strncmp(text, named[i].choice, length) != 0 ||
		    !is_value(text + length, &value, &begin, &end))
			continue;
		int before = (int)length + begin, at = value - named[i].first;
		if (at < 0)
			(void)snprintf(into, size, "%.*sNone", before, text);
		else if (at < MAX_VALUES && named[i].values[at])
			(void)snprintf(into, size, "%.*s'%s'", before, text, named[i].values[at]);
		else
			return 0;
		return (int)length + end;
	}
	return 0;
}

/* Is it one that the function does not have? */
static bool is_foreign(const struct signature *s, const struct choice *choice, int value)
{
	return s->activations && choice->number == EK_CHOICE_ACTIVATION && !(s->activations >> value & 1);
}

int name_values(const struct signature *signature, struct choice *choice)
{
	for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
		if (strcmp(named[i].choice, choice->choice->name) != 0)
			continue;
		choice->first = named[i].first;
		for (int value = 0; value < MAX_VALUES && named[i].values[value]; value++) {
			if (is_foreign(signature, choice, named[i].first + value))
				break;
			choice->values[value] = PyUnicode_InternFromString(named[i].values[value]);
			if (!choice->values[value])
				return -1;
		}
	}
	return 0;
}

/* ---- options ---- */

static bool is_last(const struct choice *choice, int value)
{
	return value + 1 == MAX_VALUES || !choice->values[value + 1];
}

/* "'once' or 'each'" */
static int refuse_name(const struct choice *choice, PyObject *given)
{
	PyObject *known = PyUnicode_FromFormat("%R", choice->values[0]);
	for (int i = 1; i < MAX_VALUES && choice->values[i] && known; i++) {
		PyObject *before = known;
		known = PyUnicode_FromFormat("%U%s%R", before, is_last(choice, i) ? " or " : ", ",
					     choice->values[i]);
		Py_DECREF(before);
	}
	if (known)
		PyErr_Format(PyExc_ValueError, "%s is %R; expected %U", choice->name, given, known);
	Py_XDECREF(known);
	return -1;
}

/* The number of a named value. Python's literals are interned, so the name is mostly the same object. */
static int number_of_name(const struct choice *choice, PyObject *given)
{
	for (int i = 0; i < MAX_VALUES && choice->values[i]; i++)
		if (given == choice->values[i])
			return choice->first + i;
	for (int i = 0; i < MAX_VALUES && choice->values[i] && PyUnicode_Check(given); i++)
		if (PyUnicode_Compare(given, choice->values[i]) == 0)
			return choice->first + i;
	return refuse_name(choice, given);
}

static int number_of_option(const struct choice *choice, PyObject *given)
{
	int most = choice->choice->most;
	double value = PyFloat_AsDouble(given);
	if (value >= 0 && value <= most && value == (int)value)
		return (int)value;
	char expected[32];
	(void)snprintf(expected, sizeof expected, most == 1 ? "0 or %d" : "0 to %d", most);
	if (value == -1 && PyErr_Occurred())
		return refuse_number(choice->name, given, expected);
	PyErr_Format(PyExc_ValueError, "%s is %R; expected %s", choice->name, given, expected);
	return -1;
}

/* ---- dtypes ---- */

/* A number of evenkeel's or a dtype of PyTorch's. */
static int number_of_dtype(const char *name, PyObject *given)
{
	int number = PyLong_Check(given) ? (int)PyLong_AsLong(given) : pytorch_dtype(given);
	if (number > 0 && ek_dtype_size((ek_dtype)number) > 0)
		return number;
	PyErr_Clear();
	PyErr_Format(PyExc_TypeError, "%s is %S; expected float32, float16, bfloat16 or float64", name,
		     given);
	return -1;
}

int read_dtype(struct call *call)
{
	PyObject *given = scalar_of(call, DTYPE);
	int number = given == Py_None ? 0 : number_of_dtype("dtype", given);
	if (number > 0)
		*(int *)ek_field(&call->args, call->op->dtype) = number;
	return number < 0 ? -1 : 0;
}

void decide_dtypes(struct call *call)
{
	const struct signature *s = call->signature;
	ek_dtype *dtype = ek_field(&call->args, call->op->dtype);
	if (!(int)*dtype)
		*dtype = call->views[s->x].dtype;
	if (s->undecided) {
		ek_dtype *undecided = ek_field(&call->args, s->undecided);
		if (!(int)*undecided)
			*undecided = *(const ek_dtype *)ek_field(&call->args, s->decided_by);
	}
}

/* ---- choices ---- */

/* -1 with an exception. */
static int number_of(const struct choice *choice, PyObject *given)
{
	if (choice->choice->is_dtype)
		return number_of_dtype(choice->name, given);
	return choice->values[0] ? number_of_name(choice, given) : number_of_option(choice, given);
}

int read_choices(struct call *call)
{
	for (int i = 0; i < call->signature->choice_count; i++) {
		const struct choice *choice = &call->signature->choices[i];
		PyObject *given = call->given[choice->at];
		if (given == Py_None && !choice->is_required)
			continue;
		int number = number_of(choice, given);
		if (number < 0)
			return -1;
		*(int *)ek_field(&call->args, choice->offset) = number;
	}
	return 0;
}

int check_choices(const struct signature *signature, PyObject *const *values)
{
	for (int i = 0; i < signature->choice_count; i++) {
		const struct choice *choice = &signature->choices[i];
		if ((values[i] != Py_None || choice->is_required) && number_of(choice, values[i]) < 0)
			return -1;
	}
	return 0;
}
