/* New tensors of x's framework, through its C exchange API.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_ALLOCATE_H
#define EK_PYTHON_ALLOCATE_H

#include "frame.h"

/* A tensor on x's device as DLPack's struct; NULL with an exception. */
DLManagedTensorVersioned *allocate(const struct frame *frame, const char *name, DLDataType dtype, int ndim,
				   const int64_t *shape);
/* The same as an object of the framework, with the address of its elements. */
PyObject *allocate_object(const struct frame *frame, const char *name, ek_dtype dtype, int ndim,
			  const int64_t *shape, void **data);

#endif
