/* Sweeps over the cases of the norms, one axis each: widths, row counts, operand forms, special values, constants.
 * A test gives the check: levels against the reference (test_bits.c), the reference against a second implementation
 * (test_rules.c), guard pages (test_guard.c). What is listed by hand always runs; products are sampled (test_sampled).
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_SWEEPS_H
#define EK_TESTS_SUPPORT_SWEEPS_H

#include "support.h"

typedef void sweep_check(const struct test_case *c);

/* Every width to 40, one in `one_in` of those to `most`. */
void sweep_widths(sweep_check *check, int64_t most, int64_t one_in);
/* 0 to 70 rows, at widths of part of a register, some registers and more than a lane each. */
void sweep_row_counts(sweep_check *check, int64_t one_in);
/* Row counts at which R of rule 6 changes, slots of several chunks among them. */
void sweep_slots_and_chunks(sweep_check *check, int64_t most_cols, int64_t one_in);
/* Every combination of operands that may be absent, in place, accumulating, given. */
void sweep_operand_forms(sweep_check *check, int64_t one_in);
/* Every combination of dtypes and options that a call may choose, in some forms each, with operands that no named op has. */
void sweep_choices(sweep_check *check, int64_t one_in);
/* NaN, infinities, zeros, subnormals, huge numbers, with eps 0 and subnormal. */
void sweep_special_values(sweep_check *check, int64_t one_in);
/* Constant rows, rows whose variance is clamped, sums whose sign only the final +0 decides. */
void sweep_constant_rows_and_signs_of_zero(sweep_check *check);
/* Groups of columns of rows, with the operands and choices of all ops. */
void sweep_groups(sweep_check *check, int64_t one_in);
/* Gaps between rows of each tensor alone and of all, also in place. */
void sweep_strides(sweep_check *check, int64_t one_in);

#endif
