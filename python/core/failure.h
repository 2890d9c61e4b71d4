/* Failures of the library and of frameworks as Python exceptions.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_FAILURE_H
#define EK_PYTHON_FAILURE_H

#include "evenkeel.h"

/* Sets the exception with ek_error's text, arguments named as they are in Python, and returns -1. */
int raise_status(ek_status status);

/* A framework could not say where a tensor lies (it has no memory, or a dtype that DLPack lacks): its exception, which
 * is set, becomes the cause of a TypeError, so that callers know this from other failures. Returns -1. */
int raise_unreadable(const char *name);

#endif
