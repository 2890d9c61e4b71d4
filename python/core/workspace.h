/* Scratch memory of one call. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_WORKSPACE_H
#define EK_PYTHON_WORKSPACE_H

#include "dlpack.h"
#include "stable_abi.h"

struct call;

/* Given by the caller, else from x's framework on GPUs and from the heap on the CPU. */
struct workspace {
	void *data;
	size_t size;
	void *heap;
	DLManagedTensorVersioned *managed;
};

/* As many bytes as the library asks for, into the call's arguments; 0, or -1 with an exception. */
int workspace_open(struct call *call, PyObject *given);
/* A framework's memory is freed in the order of its stream: the kernels that were launched still have it. */
void workspace_close(struct workspace *workspace);

#endif
