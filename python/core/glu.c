/* The functions of _core on gated activations, as rows over call.h: what their arguments are.
 * SPDX-License-Identifier: MIT */
#include "call.h"
#include "functions.h"
#include "ops/choices.h"
#include "ops/glu/op.h"

_Static_assert((int)EK_GLU_FORWARD_OPERANDS <= EK_MOST_OPERANDS &&
		       (int)EK_GLU_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "struct call has a view for each operand");
_Static_assert(sizeof(ek_glu_forward_args) <= MAX_ARGS_SIZE && sizeof(ek_glu_backward_args) <= MAX_ARGS_SIZE,
	       "struct call has room for the arguments");

#define ACTIVATION                                                                  \
	{                                                                           \
		.role = CHOICE, .choice = EK_CHOICE_ACTIVATION, .is_required = true \
	}
#define OPTIONS                                                               \
	ACTIVATION, {.role = LIMIT}, {.role = ALPHA}, {.role = VALUE_OFFSET}, \
		{.role = CHOICE, .choice = EK_CHOICE_INTERLEAVED},            \
	{                                                                     \
		.role = PACKED                                                \
	}
#define GRADIENT_DTYPE                                             \
	{                                                          \
		.role = CHOICE, .choice = EK_CHOICE_GRADIENT_DTYPE \
	}

/* clang-format off */
static struct signature forward_row = {
	.function = "glu_forward", .op = &ek_glu_forward_op, .x = EK_GLU_FORWARD_GATE,
	.pack_count = 2,
	.packs = {{EK_GLU_FORWARD_GATE, EK_GLU_FORWARD_VALUE}, {EK_GLU_FORWARD_GATE_BIAS, EK_GLU_FORWARD_VALUE_BIAS}},
	ARGUMENTS({.operand = EK_GLU_FORWARD_GATE}, {.operand = EK_GLU_FORWARD_VALUE},
		  {.operand = EK_GLU_FORWARD_GATE_BIAS}, {.operand = EK_GLU_FORWARD_VALUE_BIAS}, OPTIONS,
		  {.operand = EK_GLU_FORWARD_Y, .name = "out"}, {.role = THREADS}, {.role = STREAM}),
};

#define OF_BACKWARD                                                                  \
	.op = &ek_glu_backward_op, .x = EK_GLU_BACKWARD_GATE, .pack_count = 4,       \
	.packs = {{EK_GLU_BACKWARD_DGATE, EK_GLU_BACKWARD_DVALUE},                   \
		  {EK_GLU_BACKWARD_DGATE_BIAS, EK_GLU_BACKWARD_DVALUE_BIAS},         \
		  {EK_GLU_BACKWARD_GATE, EK_GLU_BACKWARD_VALUE},                     \
		  {EK_GLU_BACKWARD_GATE_BIAS, EK_GLU_BACKWARD_VALUE_BIAS}},          \
	/* Without biases their gradients say what dtype they would have. */         \
	.undecided = offsetof(ek_glu_backward_args, weight_dtype),                   \
	.decided_by = offsetof(ek_glu_backward_args, gradient_dtype)
static struct signature backward_row = {
	.function = "glu_backward", OF_BACKWARD,
	ARGUMENTS({.operand = EK_GLU_BACKWARD_DY},
		  {.operand = EK_GLU_BACKWARD_GATE}, {.operand = EK_GLU_BACKWARD_VALUE},
		  {.operand = EK_GLU_BACKWARD_GATE_BIAS}, {.operand = EK_GLU_BACKWARD_VALUE_BIAS}, OPTIONS,
		  {.operand = EK_GLU_BACKWARD_DGATE}, {.operand = EK_GLU_BACKWARD_DVALUE},
		  {.operand = EK_GLU_BACKWARD_DGATE_BIAS}, {.operand = EK_GLU_BACKWARD_DVALUE_BIAS},
		  GRADIENT_DTYPE, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature workspace_row = {
	.function = "glu_backward_workspace", OF_BACKWARD, .asks_workspace = true,
	ARGUMENTS({.operand = EK_GLU_BACKWARD_GATE}, {.operand = EK_GLU_BACKWARD_VALUE},
		  {.operand = EK_GLU_BACKWARD_GATE_BIAS}, {.operand = EK_GLU_BACKWARD_VALUE_BIAS}, OPTIONS,
		  {.operand = EK_GLU_BACKWARD_DGATE_BIAS}, {.operand = EK_GLU_BACKWARD_DVALUE_BIAS},
		  GRADIENT_DTYPE, {.role = THREADS}),
};

/* The same without a value, in the names of bias_act. */
#define X_AND_BIAS(direction)                                        \
	{.operand = EK_GLU_##direction##_GATE, .name = "x"},         \
		{.operand = EK_GLU_##direction##_GATE_BIAS, .name = "bias"}, ACTIVATION
static struct signature act_forward_row = {
	.function = "bias_act_forward", .op = &ek_glu_forward_op, .x = EK_GLU_FORWARD_GATE,
	ARGUMENTS(X_AND_BIAS(FORWARD), {.operand = EK_GLU_FORWARD_Y, .name = "out"}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature act_backward_row = {
	.function = "bias_act_backward", OF_BACKWARD,
	ARGUMENTS({.operand = EK_GLU_BACKWARD_DY}, X_AND_BIAS(BACKWARD), {.operand = EK_GLU_BACKWARD_DGATE, .name = "dx"},
		  {.operand = EK_GLU_BACKWARD_DGATE_BIAS, .name = "dbias"}, GRADIENT_DTYPE, {.role = WORKSPACE},
		  {.role = THREADS}, {.role = STREAM}),
};
static struct signature act_workspace_row = {
	.function = "bias_act_backward_workspace", OF_BACKWARD, .asks_workspace = true,
	ARGUMENTS(X_AND_BIAS(BACKWARD), {.operand = EK_GLU_BACKWARD_DGATE_BIAS, .name = "dbias"}, GRADIENT_DTYPE,
		  {.role = THREADS}),
};

static struct signature choices_row = {
	.function = "check_glu", .op = &ek_glu_forward_op, .x = EK_GLU_FORWARD_GATE, ARGUMENTS(OPTIONS),
};
/* clang-format on */

const char glu_forward_doc[] =
	"glu_forward(gate, value, gate_bias, value_bias, activation, limit, alpha, value_offset, interleaved, packed,\n"
	"            out, threads, stream)\n--\n\n"
	"Returns y; None where a tensor must be made contiguous first. _core.pyi has the arguments.";
const char glu_backward_doc[] =
	"glu_backward(dy, gate, value, gate_bias, value_bias, activation, limit, alpha, value_offset, interleaved,\n"
	"             packed, dgate, dvalue, dgate_bias, dvalue_bias, gradient_dtype, workspace, threads, stream)\n--\n\n"
	"Returns (dgate, dvalue, dgate_bias, dvalue_bias), each None where it was not asked for; None where a tensor\n"
	"must be made contiguous first. _core.pyi has the arguments.";
const char glu_backward_workspace_doc[] =
	"glu_backward_workspace(gate, value, gate_bias, value_bias, activation, limit, alpha, value_offset,\n"
	"                       interleaved, packed, dgate_bias, dvalue_bias, gradient_dtype, threads)\n--\n\n"
	"The bytes of workspace that glu_backward needs, for frameworks without DLPack's C exchange API.";
const char bias_act_forward_doc[] = "bias_act_forward(x, bias, activation, out, threads, stream)\n--\n\n"
				    "glu_forward without a value.";
const char bias_act_backward_doc[] =
	"bias_act_backward(dy, x, bias, activation, dx, dbias, gradient_dtype, workspace, threads, stream)\n--\n\n"
	"glu_backward without a value: (dx, dbias).";
const char bias_act_backward_workspace_doc[] =
	"bias_act_backward_workspace(x, bias, activation, dbias, gradient_dtype, threads)\n--\n\n"
	"glu_backward_workspace without a value.";
const char check_glu_doc[] = "check_glu(activation, interleaved)\n--\n\n"
			     "Raises what a call with such choices would.";

POSITIONAL_FUNCTION(glu_forward, forward_row)
POSITIONAL_FUNCTION(glu_backward, backward_row)
POSITIONAL_FUNCTION(glu_backward_workspace, workspace_row)
POSITIONAL_FUNCTION(bias_act_forward, act_forward_row)
POSITIONAL_FUNCTION(bias_act_backward, act_backward_row)
POSITIONAL_FUNCTION(bias_act_backward_workspace, act_workspace_row)
CHECK_FUNCTION(check_glu, choices_row)

int glu_resolve(void)
{
	struct signature *const rows[] = {
		&forward_row,     &backward_row,     &workspace_row,     &choices_row,
		&act_forward_row, &act_backward_row, &act_workspace_row, NULL};
	return signatures_resolve(rows);
}
