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

/* Scratch memory of a call: given by the caller, else from x's framework on GPUs and from the heap on the CPU. */
struct workspace {
	void *data;
	size_t size;
	void *heap;
	DLManagedTensorVersioned *managed;
};

int workspace_open(struct frame *frame, PyObject *given, size_t size, struct workspace *workspace);
/* A framework's memory is freed in the order of its stream: the kernels that were launched still have it. */
void workspace_close(struct workspace *workspace);

#endif
