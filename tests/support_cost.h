/* A cost of ek_norm_cost, and expectations on it. Called by test_cost_*.c.
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_COST_H
#define EK_TESTS_SUPPORT_COST_H

#include "support.h"

/* Of 8 x 2048 rows of 4096 columns, bf16, on a GPU. */
ek_cost_args args_of(ek_norm norm, ek_pass pass, ek_variant variant);
/* Valid until the next call. */
const ek_cost *cost_of(const ek_cost_args *args);

void expect_numbers(const ek_cost_kernel *kernel, int64_t flops, int64_t read, int64_t written);
void expect_formulas(const ek_cost_kernel *kernel, const char *flops, const char *read, const char *written);
/* Names with spaces between; whether these are the kernels. */
bool expect_kernels(const ek_cost *cost, const char *names);

#endif
