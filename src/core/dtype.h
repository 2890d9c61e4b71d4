/* The dtypes, one row each: everything that depends on a dtype is made from this list.
 * X(enum, name, bytes) SPDX-License-Identifier: MIT */
#ifndef EK_DTYPE_H
#define EK_DTYPE_H

#include <stdbool.h>

#include "evenkeel.h"

#define EK_DTYPES(X)        \
	X(EK_F32, f32, 4)   \
	X(EK_F16, f16, 2)   \
	X(EK_BF16, bf16, 2) \
	X(EK_F64, f64, 8)

static inline bool ek_is_dtype(ek_dtype dtype)
{
	return (unsigned)dtype - EK_F32 <= (unsigned)EK_F64 - EK_F32;
}

/* Of a dtype that was validated. */
static inline size_t ek_bytes_of_dtype(ek_dtype dtype)
{
	return dtype == EK_F64 ? 8 : dtype == EK_F32 ? 4 : 2;
}

/* The dtype of the arithmetic, and of statistics. */
static inline ek_dtype ek_real_of(ek_dtype dtype)
{
	return dtype == EK_F64 ? EK_F64 : EK_F32;
}

/* Fails unless dtype is one of the list; name is the argument's. A dtype of 0 becomes `otherwise`, unless that is 0. */
ek_status ek_check_dtype(const char *name, ek_dtype *dtype, ek_dtype otherwise);

#endif
