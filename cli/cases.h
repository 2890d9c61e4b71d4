/* The case list: ops, passes, shapes, dtypes and operand forms, one list for verify and bench.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include <stdbool.h>

#include "evenkeel.h"

struct options;

struct op {
	const char *name;
	ek_norm norm;
};

enum { OP_COUNT = 2 };
extern const struct op ops[OP_COUNT];

enum pass { FORWARD, BACKWARD, PASS_COUNT };
extern const char *const pass_names[PASS_COUNT];

struct shape {
	int64_t rows, cols;
};

/* Values that a form puts into x and dy beside the ordinary ones (tensor_add_special). */
enum values { ORDINARY, EXTREME, NOT_FINITE };

/* Where backward's statistics come from. */
enum statistics { KEPT, KEPT_WITHOUT_LOW, FOREIGN, ANEW };

/* Where the result lies. */
enum place { APART, OVER_FIRST, OVER_SECOND }; /* forward: over x; backward: over dy, over x */

/* Which operands a call has, and how they lie in memory. */
struct form {
	const char *name;
	bool weight, bias;          /* forward's operands */
	bool returns;               /* forward: mean, rstd, mean_lo are asked for */
	enum statistics statistics; /* backward */
	bool dx, dweight, dbias, accumulate;
	enum place place;
	int pad;    /* elements between rows */
	int offset; /* bytes from an aligned base */
	enum values values;
};

struct test_case {
	const struct op *op;
	enum pass pass;
	ek_dtype dtype, weight_dtype;
	int64_t rows, cols;
	struct form form;
};

/* The cases for verify or, with bench, for bench, in an array to be freed; *count is set. NULL: no memory. */
struct test_case *cases_list(const struct options *options, bool bench, int *count);

/* Bytes that a copy would move for the case: x and y, or x, dy and dx. */
double case_bytes(const struct test_case *test_case);

/* The argument structs of a case but for its tensors, which have one stride. */
ek_norm_forward_args forward_args_of(const struct test_case *test_case, double eps);
ek_norm_backward_args backward_args_of(const struct test_case *test_case, double eps);

#endif
