/* Python's stable ABI from 3.10 on, for all files of the extension.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_STABLE_ABI_H
#define EK_PYTHON_STABLE_ABI_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#endif
