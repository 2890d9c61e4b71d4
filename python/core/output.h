/* A tensor that a call writes: made by x's framework, or given by the caller.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_OUTPUT_H
#define EK_PYTHON_OUTPUT_H

#include "frame.h"

struct output {
	void *data;
	PyObject *object; /* a reference of its own; NULL: not wanted */
	int64_t stride;   /* of output_rows */
	ek_dtype dtype;
};

/* Each takes what the caller gave: None or False (not wanted), True (to be made), or an object to write to. */
int output_rows(struct frame *frame, PyObject *given, const char *name, struct output *output);
int output_columns(struct frame *frame, PyObject *given, const char *name, struct output *output);
int output_statistics(struct frame *frame, PyObject *given, int64_t count, struct output *output);
void output_close(struct output *output);

/* The object, or None; the output no longer has it. */
PyObject *output_release(struct output *output);

#endif
