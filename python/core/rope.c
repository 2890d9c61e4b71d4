/* The functions of _core on rotary position embedding, as rows over call.h: what their arguments are.
 * SPDX-License-Identifier: MIT */
#include "call.h"
#include "functions.h"
#include "ops/choices.h"
#include "ops/rope/op.h"

_Static_assert((int)EK_ROPE_FORWARD_OPERANDS <= EK_MOST_OPERANDS &&
		       (int)EK_ROPE_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "struct call has a view for each operand");
_Static_assert(sizeof(ek_rope_forward_args) <= MAX_ARGS_SIZE &&
		       sizeof(ek_rope_backward_args) <= MAX_ARGS_SIZE,
	       "struct call has room for the arguments");

/* clang-format off */
#define CHOICE_OF(name) {.role = CHOICE, .choice = EK_CHOICE_##name}
/* The norm of the heads, which elements turn, and which rows of the tables. */
#define OPTIONS                                                                                          \
	CHOICE_OF(NORM), CHOICE_OF(NORM_LAST), CHOICE_OF(WEIGHT_OFFSET), {.role = EPS},                  \
	CHOICE_OF(INTERLEAVED), CHOICE_OF(TRAILING), {.role = SIZE, .size = EK_ROPE_ROTARY_DIM},         \
	{.role = SIZE, .size = EK_ROPE_TABLE_STEP}, {.role = SIZE, .size = EK_ROPE_OFFSET}
#define INPUTS(direction)                                                                                \
	{.operand = EK_ROPE_##direction##_COS}, {.operand = EK_ROPE_##direction##_SIN},                  \
	{.operand = EK_ROPE_##direction##_POSITIONS}, {.operand = EK_ROPE_##direction##_Q_BIAS},         \
	{.operand = EK_ROPE_##direction##_K_BIAS}, {.operand = EK_ROPE_##direction##_Q_WEIGHT},          \
	{.operand = EK_ROPE_##direction##_K_WEIGHT}

static struct signature forward_row = {
	.function = "rope_forward", .op = &ek_rope_forward_op, .x = EK_ROPE_FORWARD_Q,
	ARGUMENTS({.operand = EK_ROPE_FORWARD_Q}, {.operand = EK_ROPE_FORWARD_K}, INPUTS(FORWARD), OPTIONS,
		  {.operand = EK_ROPE_FORWARD_Q_OUT}, {.operand = EK_ROPE_FORWARD_K_OUT},
		  {.role = THREADS}, {.role = STREAM}),
};

/* Without biases and weights their gradients say what dtype they would have. */
#define OF_BACKWARD                                                                                      \
	.op = &ek_rope_backward_op, .x = EK_ROPE_BACKWARD_DQ_OUT,                                        \
	.undecided = offsetof(ek_rope_backward_args, weight_dtype),                                      \
	.decided_by = offsetof(ek_rope_backward_args, gradient_dtype)
#define BACKWARD_INPUTS                                                                                  \
	{.operand = EK_ROPE_BACKWARD_DQ_OUT}, {.operand = EK_ROPE_BACKWARD_DK_OUT},                      \
	{.operand = EK_ROPE_BACKWARD_Q}, {.operand = EK_ROPE_BACKWARD_K}, INPUTS(BACKWARD), OPTIONS
#define SUMS                                                                                             \
	{.operand = EK_ROPE_BACKWARD_DQ_BIAS}, {.operand = EK_ROPE_BACKWARD_DK_BIAS},                    \
	{.operand = EK_ROPE_BACKWARD_DQ_WEIGHT}, {.operand = EK_ROPE_BACKWARD_DK_WEIGHT},                \
	CHOICE_OF(GRADIENT_DTYPE)
static struct signature backward_row = {
	.function = "rope_backward", OF_BACKWARD,
	ARGUMENTS(BACKWARD_INPUTS, {.operand = EK_ROPE_BACKWARD_DQ}, {.operand = EK_ROPE_BACKWARD_DK}, SUMS,
		  {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature workspace_row = {
	.function = "rope_backward_workspace", OF_BACKWARD, .asks_workspace = true,
	ARGUMENTS(BACKWARD_INPUTS, SUMS, {.role = THREADS}),
};
static struct signature choices_row = {
	.function = "check_rope", .op = &ek_rope_forward_op, .x = EK_ROPE_FORWARD_Q,
	ARGUMENTS(CHOICE_OF(NORM), CHOICE_OF(WEIGHT_OFFSET), CHOICE_OF(INTERLEAVED), CHOICE_OF(TRAILING)),
};
/* clang-format on */

const char rope_forward_doc[] =
	"rope_forward(q, k, cos, sin, positions, q_bias, k_bias, q_weight, k_weight, norm, norm_last, weight_offset,\n"
	"             eps, interleaved, trailing, rotary_dim, table_step, offset, q_out, k_out, threads, stream)\n--\n\n"
	"Returns (q_out, k_out); None where a tensor must be made contiguous first. _core.pyi has the arguments.";
const char rope_backward_doc[] =
	"rope_backward(dq_out, dk_out, q, k, cos, sin, positions, q_bias, k_bias, q_weight, k_weight, norm, norm_last,\n"
	"              weight_offset, eps, interleaved, trailing, rotary_dim, table_step, offset, dq, dk, dq_bias,\n"
	"              dk_bias, dq_weight, dk_weight, gradient_dtype, workspace, threads, stream)\n--\n\n"
	"Returns the gradients, each None where it was not asked for; None where a tensor must be made contiguous\n"
	"first. _core.pyi has the arguments.";
const char rope_backward_workspace_doc[] =
	"rope_backward_workspace(dq_out, dk_out, q, k, cos, sin, positions, q_bias, k_bias, q_weight, k_weight, norm,\n"
	"                        norm_last, weight_offset, eps, interleaved, trailing, rotary_dim, table_step, offset,\n"
	"                        dq_bias, dk_bias, dq_weight, dk_weight, gradient_dtype, threads)\n--\n\n"
	"The bytes of workspace that rope_backward needs, for frameworks without DLPack's C exchange API.";
const char check_rope_doc[] = "check_rope(norm, weight_offset, interleaved, trailing)\n--\n\n"
			      "Raises what a call with such choices would.";

POSITIONAL_FUNCTION(rope_forward, forward_row)
POSITIONAL_FUNCTION(rope_backward, backward_row)
POSITIONAL_FUNCTION(rope_backward_workspace, workspace_row)
CHECK_FUNCTION(check_rope, choices_row)

int rope_resolve(void)
{
	struct signature *const rows[] = {&forward_row, &backward_row, &workspace_row, &choices_row, NULL};
	return signatures_resolve(rows);
}
