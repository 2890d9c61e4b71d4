/* Where the scratch memory of a call comes from. Called by call.c. SPDX-License-Identifier: MIT */
#include "workspace.h"

#include <stdlib.h>

#include "allocate.h"
#include "failure.h"

enum { ALIGNMENT = 64 };

static int use_given(struct call *call, PyObject *given, struct workspace *workspace)
{
	const struct view *view = open_view(call, WORKSPACE_VIEW, given, "workspace");
	if (!view || require_writable(view) || require_contiguous(view))
		return -1;
	workspace->data = view->data;
	workspace->size = view_bytes(view);
	return 0;
}

static int take_from_heap(size_t size, struct workspace *workspace)
{
	workspace->size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	workspace->data = workspace->heap = aligned_alloc(ALIGNMENT, workspace->size);
	if (workspace->heap)
		return 0;
	PyErr_Format(PyExc_MemoryError, "out of memory for a workspace of %zu bytes: free some, or give one",
		     size);
	return -1;
}

static int take_from_framework(const struct call *call, size_t size, struct workspace *workspace)
{
	static const DLDataType byte = {.code = kDLUInt, .bits = 8, .lanes = 1};
	const int64_t bytes = (int64_t)size;
	workspace->managed = allocate(call, "workspace", byte, 1, &bytes);
	if (!workspace->managed)
		return -1;
	const DLTensor *tensor = &workspace->managed->dl_tensor;
	workspace->data = (char *)tensor->data + tensor->byte_offset;
	workspace->size = size;
	return 0;
}

static int take(struct call *call, PyObject *given, size_t size, struct workspace *workspace)
{
	if (given != Py_None)
		return use_given(call, given, workspace);
	if (size == 0)
		return 0;
	return call->device == EK_CPU ? take_from_heap(size, workspace)
				      : take_from_framework(call, size, workspace);
}

int workspace_open(struct call *call, PyObject *given)
{
	struct workspace *workspace = &call->workspace;
	size_t size;
	ek_status status = call->op->workspace_bytes(call->context, &call->args, &size);
	if (status != EK_OK)
		return raise_status(status);
	if (take(call, given, size, workspace))
		return -1;
	*(void **)ek_field(&call->args, call->op->workspace) = workspace->data;
	*(size_t *)ek_field(&call->args, call->op->workspace_size) = workspace->size;
	return 0;
}

void workspace_close(struct workspace *workspace)
{
	free(workspace->heap);
	if (workspace->managed)
		workspace->managed->deleter(workspace->managed);
}
