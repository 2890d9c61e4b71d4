/* Which exception a status is, and what a framework's own becomes. SPDX-License-Identifier: MIT */
#include "failure.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "stable_abi.h"

static PyObject *exception_of(ek_status status)
{
	switch (status) {
	case EK_ERROR_ARGUMENT:
	case EK_ERROR_OVERLAP:
	case EK_ERROR_WORKSPACE:
		return PyExc_ValueError;
	case EK_ERROR_DTYPE:
		return PyExc_TypeError;
	case EK_ERROR_UNSUPPORTED:
		return PyExc_NotImplementedError;
	case EK_ERROR_MEMORY:
		return PyExc_MemoryError;
	default:
		return PyExc_RuntimeError;
	}
}

/* A message starts with an argument's name in C; these have another in Python. */
static const struct {
	const char *in_c, *in_python;
} names[] = {{"y ", "out "},
	     {"weight_dtype ", "weight or bias of "},
	     {"h_dtype ", "residual of "},
	     {"y_dtype ", "y or dy of "},
	     {"gradient_dtype ", "gradients of "}};

/* Anywhere in a message. Gradients are asked for by need_…; where the call has an `out`, the residual is called so. */
static const struct {
	const char *in_c, *in_python;
} words[] = {{"NULL", "None"},
	     {"dresidual", "need_dresidual"},
	     {"dx_bias", "need_dx_bias"},
	     {"dgate", "need_dgate"},
	     {"overlaps residual_after", "overlaps residual"}};

static bool continues_word(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Of " (0x…)" or " [0x…, 0x…)", which say nothing of a Python object; 0: the text starts with another. */
static int address_length(const char *text)
{
	int length = 0;
	(void)sscanf(text, " (0x%*[0-9a-f])%n", &length);
	(void)sscanf(text, " [0x%*[0-9a-f], 0x%*[0-9a-f])%n", &length);
	return *text == ' ' ? length : 0;
}

/* Writes what stands in Python for the start of the text, and returns the length of that start; 0: there is nothing. */
static int word_in_python(const char *text, char *into, size_t size)
{
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t length = strlen(words[i].in_c);
		if (strncmp(text, words[i].in_c, length) == 0 && !continues_word(text[length])) {
			(void)snprintf(into, size, "%s", words[i].in_python);
			return (int)length;
		}
	}
	return choice_in_python(text, into, size);
}

/* A message of the library in Python's terms: names of arguments and values, and no addresses. */
static void translate(const char *message, char *into, size_t size)
{
	size_t length = 0;
	bool in_word = false;
	while (*message && length + 1 < size) {
		into[length] = '\0';
		int read = address_length(message);
		if (!read && !in_word)
			read = word_in_python(message, into + length, size - length);
		if (!read) {
			(void)snprintf(into + length, size - length, "%c", *message);
			read = 1;
		}
		message += read;
		length += strlen(into + length);
		in_word = length && continues_word(into[length - 1]);
	}
	into[length] = '\0';
}

int raise_status(ek_status status)
{
	char translated[2048];
	translate(ek_error(NULL), translated, sizeof translated);
	const char *message = translated, *name = "";
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t length = strlen(names[i].in_c);
		if (strncmp(message, names[i].in_c, length) == 0) {
			name = names[i].in_python;
			message += length;
			break;
		}
	}
	/* A bad environment variable, which a message names first, is no bad argument of this call. */
	PyErr_Format(*message == '$' ? PyExc_RuntimeError : exception_of(status), "%s%s", name, message);
	return -1;
}

/* The first line of what an exception says. */
static PyObject *first_line(PyObject *exception)
{
	PyObject *text = PyObject_Str(exception);
	PyObject *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
	Py_XDECREF(text);
	PyObject *line = lines && PyList_Size(lines) ? PyList_GetItem(lines, 0) : NULL;
	Py_XINCREF(line);
	Py_XDECREF(lines);
	return line ? line : PyUnicode_FromString("");
}

int raise_unreadable(const char *name)
{
	if (PyErr_Occurred() &&
	    (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)))
		return -1; /* says nothing about the tensor */
	PyObject *type, *cause, *traceback, *error;
	PyErr_Fetch(&type, &cause, &traceback);
	PyErr_NormalizeException(&type, &cause, &traceback);
	PyObject *line = cause ? first_line(cause) : PyUnicode_FromString("its framework does not say why");
	if (line)
		PyErr_Format(PyExc_TypeError, "%s cannot be read: %U", name, line);
	Py_XDECREF(line);
	if (traceback)
		(void)PyException_SetTraceback(cause, traceback);
	Py_XDECREF(type);
	Py_XDECREF(traceback);
	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	if (cause)
		PyException_SetCause(error, cause); /* which takes the reference */
	PyErr_Restore(type, error, traceback);
	return -1;
}
