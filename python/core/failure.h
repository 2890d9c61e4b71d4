/* A status of the library as a Python exception.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_FAILURE_H
#define EK_PYTHON_FAILURE_H

#include "evenkeel.h"

/* Sets the exception with ek_error's text, and returns -1. */
int raise_status(ek_status status);

#endif
