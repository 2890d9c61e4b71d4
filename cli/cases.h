/* The case list: ops, passes, shapes, dtypes and operand forms, one list for verify and bench.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include "verify/case.h"

struct options;

struct shape {
	int64_t rows, cols;
};

/* A case, and the name of its operand form. */
struct listed_case {
	struct test_case c;
	char form[64];
};

/* The cases for verify or, with bench, for bench, in an array to be freed; *count is set. NULL: no memory. */
struct listed_case *cases_list(const struct options *options, bool bench, int *count);

/* With every operand that the options leave, and their eps, seed and filling; dtypes, passes and shapes are given. */
struct test_case case_with(const struct options *options, const struct ek_op_entry *op, enum pass pass,
			   struct dtype_pair dtypes, struct shape shape);

/* Whether the op has an operand of that name in either pass. */
bool op_has(const struct ek_op_entry *op, const char *operand);
/* Whether a call with these dtypes may have what the options choose. */
bool choices_fit(const struct options *options, struct dtype_pair dtypes);

/* Bytes that a copy would move for the case: those of its matrices, x and y, or x, dy and dx. */
double case_bytes(const struct test_case *test_case);

#endif
