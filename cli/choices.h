/* The dtypes and options that a call of an op may choose (ek_choice), as options of the program. Called by options.c,
 * cases.c, problem.c and explain.c. SPDX-License-Identifier: MIT */
#ifndef CLI_CHOICES_H
#define CLI_CHOICES_H

#include "verify/case.h"

struct options;

/* Whether the options' choices and operands go with each other and with the ops that are named. Returns an exit status, and
 * has complained unless that is STATUS_FINE. */
int choices_check(const struct options *options);
/* " --rounding each": the options that make the case's choices; valid until the next call. */
const char *choices_text(const struct test_case *c);

#endif
