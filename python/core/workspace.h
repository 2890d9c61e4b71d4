/* Scratch memory of one call. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_WORKSPACE_H
#define EK_PYTHON_WORKSPACE_H

#include "frame.h"

/* Given by the caller, else from x's framework on GPUs and from the heap on the CPU. */
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
