/* The contexts of the library that the extension works with.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_CONTEXTS_H
#define EK_PYTHON_CONTEXTS_H

#include "evenkeel.h"

/* The context for a device and a number of threads (0: the library's choice), or NULL with an exception. */
ek_context *context_of(ek_device device, int ordinal, int threads);

#endif
