/* Where the scratch memory of backward comes from. Called by backward.c. SPDX-License-Identifier: MIT */
#include "workspace.h"

#include <stdlib.h>

#include "allocate.h"

enum { ALIGNMENT = 64 };

static int use_given(struct frame *frame, PyObject *given, struct workspace *workspace)
{
	const struct view *view = frame_view(frame, given, "workspace");
	if (!view)
		return -1;
	if (require_writable(view))
		return -1;
	if (!is_contiguous(view))
		return refuse_layout(view, "contiguous");
	workspace->data = view->data;
	workspace->size = ek_dtype_size(view->dtype);
	for (int i = 0; i < view->ndim; i++)
		workspace->size *= (size_t)view->shape[i];
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

static int take_from_framework(const struct frame *frame, size_t size, struct workspace *workspace)
{
	static const DLDataType byte = {.code = kDLUInt, .bits = 8, .lanes = 1};
	const int64_t bytes = (int64_t)size;
	workspace->managed = allocate(frame, "workspace", byte, 1, &bytes);
	if (!workspace->managed)
		return -1;
	const DLTensor *tensor = &workspace->managed->dl_tensor;
	workspace->data = (char *)tensor->data + tensor->byte_offset;
	workspace->size = size;
	return 0;
}

int workspace_open(struct frame *frame, PyObject *given, size_t size, struct workspace *workspace)
{
	if (given != Py_None)
		return use_given(frame, given, workspace);
	if (size == 0)
		return 0;
	return frame->device == EK_CPU ? take_from_heap(size, workspace)
				       : take_from_framework(frame, size, workspace);
}

void workspace_close(struct workspace *workspace)
{
	free(workspace->heap);
	if (workspace->managed)
		workspace->managed->deleter(workspace->managed);
}
