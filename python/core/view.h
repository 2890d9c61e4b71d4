/* An object read as a strided tensor: through its type's C exchange API, the buffer protocol or __dlpack__.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_VIEW_H
#define EK_PYTHON_VIEW_H

#include "stable_abi.h"

#include <stdbool.h>

#include "buffer.h"
#include "dlpack.h"
#include "evenkeel.h"

enum { MAX_NDIM = 64 };

struct view {
	const char *name; /* of the argument, for messages */
	bool is_index;    /* of int64; it has no dtype */
	PyObject *object; /* borrowed */
	char *data;
	ek_dtype dtype;
	ek_device device;
	int ordinal;
	int ndim;
	const int64_t *shape;
	const int64_t *strides; /* in elements; NULL: rows one after another */
	bool readonly;
	bool scattered; /* the strides are no whole numbers of elements, and strides says nothing */
	const DLPackExchangeAPI *api; /* NULL: the type has none */

	/* What is given back at the end: a capsule of DLPack's, or a buffer. */
	PyObject *capsule;
	bool has_buffer;
	Py_buffer buffer;
	int64_t element_strides[MAX_NDIM];
	int64_t length; /* the shape of a buffer that has none */
};

/* Fills view, or returns -1 with an exception. GPU memory of frameworks without the exchange API is made
 * ready for the given CUDA stream. A view that was opened, or has only been cleared, can be closed. */
int view_open(struct view *view, PyObject *object, const char *name, bool is_index, void *stream);
void view_clear(struct view *view);
void view_close(struct view *view);

/* view_open's other two ways. They return 1 where the object does not offer itself that way. */
int view_open_buffer(struct view *view, PyObject *object);
int view_open_capsule(struct view *view, PyObject *object, void *stream);

/* Fills view from DLPack's struct. */
int view_from_dltensor(struct view *view, const DLTensor *tensor);

/* A view has a place for the strides of MAX_NDIM dimensions; -1 with an exception for more. */
int require_ndim(const struct view *view, int ndim);

/* The dtypes that it may have, for messages. */
const char *expected_of(const struct view *view);

/* "(2, 3)" into text, which is returned. */
const char *shape_text(char *text, size_t size, int ndim, const int64_t *shape);

#endif
