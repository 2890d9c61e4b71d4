/* New tensors of x's framework, through its C exchange API.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_ALLOCATE_H
#define EK_PYTHON_ALLOCATE_H

#include "call.h"

/* A tensor on x's device as DLPack's struct; NULL with an exception. */
DLManagedTensorVersioned *allocate(const struct call *call, const char *name, DLDataType dtype, int ndim,
				   const int64_t *shape);
/* The same as an object of the framework. */
PyObject *allocate_object(const struct call *call, const char *name, ek_dtype dtype, int ndim,
			  const int64_t *shape);

#endif
