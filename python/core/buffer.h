/* The buffer protocol. It joined the stable ABI with Python 3.11, as it had been since 3.0: 3.10 has the
 * same struct and functions, and its headers do not show them. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_BUFFER_H
#define EK_PYTHON_BUFFER_H

#include "stable_abi.h"

typedef struct Py_buffer {
	void *buf;
	PyObject *obj;
	Py_ssize_t len;
	Py_ssize_t itemsize;
	int readonly;
	int ndim;
	char *format;
	Py_ssize_t *shape;
	Py_ssize_t *strides;
	Py_ssize_t *suboffsets;
	void *internal;
} Py_buffer;

enum { PyBUF_FORMAT = 0x4, PyBUF_STRIDES = 0x18 };

int PyObject_CheckBuffer(PyObject *object);
int PyObject_GetBuffer(PyObject *object, Py_buffer *buffer, int flags);
void PyBuffer_Release(Py_buffer *buffer);

#endif
