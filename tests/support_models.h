/* Norm cases on models of GPU that are not there (standin/): a context for each model, cases and how their operands
 * lie, results compared with the reference's. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_MODELS_H
#define EK_TESTS_SUPPORT_MODELS_H

#include "ops/norm/policy.h"
#include "support.h"

/* ---- GPUs ---- */

struct model {
	int arch, multiprocessors;
};
enum { MODELS = 5 };
extern const struct model models[MODELS];
static const struct model h200 = {90, 132};

/* A context that stays open until the program ends; where there is none, says so and exits. From now on the stand-in
 * is that model. */
ek_context *context_on(struct model model);
const char *name_of(struct model model);

/* ---- cases ---- */

/* case_of with a seed of its own; norm is 0 or 1, which is RMSNorm. */
struct test_case case_for(bool backward, int norm, struct dtype_pair dtypes, int64_t rows, int64_t cols);
/* Rows such that slots hold `most` of them (an odd number over 1: one more), the last one fewer. */
int64_t rows_of_slots(int64_t cols, int64_t most);
/* Strides and bases such that rows are read in this way; choice is from 0 to 3. */
void case_lay_out(struct test_case *c, int access, int choice);

/* Few rows where rows are wide, but enough that the last block of narrow ones is not full. */
int64_t rows_for(int64_t cols);

/* A case usually needs kernels of its own, which a C compiler makes: a third of them is run, as the seed chooses; of the list of
 * short mode every other, the odd or the even ones. */
void check_on(struct model model, const struct test_case *c);
/* After case_expect: runs the case and compares; false and a message on a difference. */
bool same_on(struct model model, const struct test_case *c);
/* The same without margins: the memory of each operand ends behind its last element, and the stand-in ends the test where a kernel
 * reads past that. */
bool same_without_margins(struct model model, const struct test_case *c);

#endif
