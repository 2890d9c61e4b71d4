/* DLPack's C exchange API of an object's type, found once per type.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_EXCHANGE_H
#define EK_PYTHON_EXCHANGE_H

#include "stable_abi.h"

#include "dlpack.h"

/* NULL where the type has none that can be used here; sets no exception. */
const DLPackExchangeAPI *exchange_of(PyObject *object);

#endif
