/* Support for the C tests: the runner (support_runner.h), contexts (support_contexts.c), and the cases of verify/ run on
 * one and compared with the reference (support_cases.c). SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_H
#define EK_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evenkeel.h"
#include "support_runner.h"
#include "verify/operands.h"
#include "verify/random.h"

/* ---- contexts ---- */

/* What a context is opened with. */
enum flavour { PLAIN, STREAM_ALWAYS, STREAM_NEVER, LOOP_SERIAL, LOOP_REVERSE, LOOP_THREADS, FLAVOURS };
struct setting {
	const char *level;
	int threads;
	enum flavour flavour;
};

/* The usable levels without the reference, and a context that stays open until the program ends. With
 * $EVENKEEL_TEST_DEVICE=cuda (or cuda:N) there is one level, "cuda", and it is that GPU; the reference stays on
 * the CPU. test_accuracy, _bits, _golden, _gradients, _guard and _sample then test the GPU. */
int level_count(void);
const char *level_name(int index);
const char *level_best(void);
ek_context *context_of(struct setting setting);
ek_context *reference(void);

/* ---- cases of the norms ---- */

/* The norms with all operands and nothing that must be there: calls that no op of the registry makes, too. */
enum { OPEN_OPS = 2 };
extern const struct ek_op_entry open_ops[OPEN_OPS];

/* glu with nothing that must be there but the gate. */
extern const struct ek_op_entry open_glu;

/* A case with every operand, dense and aligned. */
struct test_case case_of(bool backward, ek_norm norm, struct dtype_pair dtypes, int64_t rows, int64_t cols);
enum { PLAIN_OPS = PASS_COUNT * 2 * DTYPE_PAIRS, OPS = 2 * PLAIN_OPS };
/* Op k with every operand; the seed differs by op and shape. The first are forward/backward x the plain norms x dtypes; the
 * others the same passes and dtypes of the registry's other ops in turn, with their choices in turn: as many however many
 * ops and choices there are. */
struct test_case op_case(int k, int64_t rows, int64_t cols);
/* Of the ops that are not plain one in three, in short mode one in six, others at each place: the reference takes longer for
 * them; in long mode all. Of those, the ones in this process's slice. */
static inline bool op_in_turn(int k, int64_t place)
{
	int64_t turns = test_mode == TEST_SHORT ? 6 : 3;
	return (k < PLAIN_OPS || test_mode == TEST_LONG || (k / 2 + place) % turns == 0) && test_in_slice();
}

/* Gated activations: every op, pass and pair of dtypes with every operand; choices and numbers are drawn by the seed. */
enum { GLU_OPS = 2, GLU_CASES = GLU_OPS * PASS_COUNT * DTYPE_PAIRS };
struct test_case glu_case(int k, int64_t rows, int64_t cols);

/* Memory that cases share; it is not freed. */
extern struct operands case_inputs, case_expected, case_actual;
#define INPUT(name) operand_named(&case_inputs, name)
#define EXPECTED(name) operand_named(&case_expected, name)
#define ACTUAL(name) operand_named(&case_actual, name)

/* Fills case_inputs, statistics included. */
void case_fill(const struct test_case *c);
/* Prepares set's outputs (canaries, or what accumulating and in-place forms start from) and calls. */
ek_status case_call(ek_context *ctx, const struct test_case *c, struct operands *set);
/* The first half of it, and the arguments of the second. */
void case_outputs(ek_context *ctx, const struct test_case *c, struct operands *set);
union op_args case_args_in(const struct test_case *c, const struct operands *set);
/* case_call, where it must go well. */
void case_run(ek_context *ctx, const struct test_case *c, struct operands *set);

/* case_fill, then the reference's answer into case_expected. */
void case_expect(const struct test_case *c);
/* Runs on the setting's context into case_actual and compares; false and a message on a difference. */
bool case_check(const struct test_case *c, struct setting setting);
bool case_compare(const struct test_case *c, const char *level, int threads, const struct operands *set);
/* case_expect, then case_check on every level, one thread. */
void case_check_levels(const struct test_case *c);

/* Address space that shows one block of memory, a copy of `block` (NULL: zeros), again and again; to be unmapped. NULL and a
 * message where there is none. The bytes are whole pages. */
unsigned char *memory_repeated(const void *block, size_t bytes, int64_t times);

#endif
