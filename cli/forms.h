/* The operand forms in which verify calls an op, from the op's table. Called by cases.c. SPDX-License-Identifier: MIT */
#ifndef CLI_FORMS_H
#define CLI_FORMS_H

#include "cases.h"

/* Plain, without each optional operand and without all optional inputs, each output alone, in place, accumulating, with
 * statistics of something else, strided, misaligned, with special values; each of them once. Returns how many. */
enum { MOST_FORMS = 64 };
int list_forms(const struct test_case *plain, struct listed_case forms[MOST_FORMS]);

/* Whether forms of an op differ in nothing that a GPU's kernel is compiled for. */
bool same_kernel(const struct test_case *a, const struct test_case *b);

#endif
