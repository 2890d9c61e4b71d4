/* verify --quick on a GPU: the kernels that it compiles. Called by cases.c. SPDX-License-Identifier: MIT */
#ifndef CLI_GPU_QUICK_H
#define CLI_GPU_QUICK_H

#include "cases.h"

/* The kernel of a form at a width; which op of the same tables and which dtype of that size have it, cases.c deals out. */
struct gpu_kernel {
	const struct ek_op *op; /* forward */
	enum pass pass;
	int element_size;
	int64_t cols;
	const char *form; /* by its name in forms.c */
	int turn; /* of gated activations and ops on heads: of their choices; the latter have a norm from 8 on */
};

extern const struct gpu_kernel gpu_quick[];
extern const int gpu_quick_count;

#endif
