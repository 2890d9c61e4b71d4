/* The dtypes, one row each: everything that depends on a dtype is made from this list.
 * X(enum, name, bytes) SPDX-License-Identifier: MIT */
#ifndef EK_DTYPE_H
#define EK_DTYPE_H

#include "evenkeel.h"

#define EK_DTYPES(X)        \
	X(EK_F32, f32, 4)   \
	X(EK_F16, f16, 2)   \
	X(EK_BF16, bf16, 2) \
	X(EK_F64, f64, 8)

/* What a norm can be made of: X(activation dtype, weight dtype). */
#define EK_NORM_DTYPES(X) \
	X(f32, f32)       \
	X(f16, f16)       \
	X(f16, f32)       \
	X(bf16, bf16)     \
	X(bf16, f32)      \
	X(f64, f64)

#endif
