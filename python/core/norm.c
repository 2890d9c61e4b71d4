/* The functions of _core on the norms, as rows over call.h and eager.h: what their arguments are. forward, backward and
 * backward_workspace take every operand and choice of the tables; an eager function takes another one once its signature
 * names it. SPDX-License-Identifier: MIT */
#include "eager.h"
#include "functions.h"
#include "ops/norm/op.h"
#include "ops/registry.h"

_Static_assert((int)EK_FORWARD_OPERANDS <= EK_MOST_OPERANDS && (int)EK_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "struct call has a view for each operand");
_Static_assert(sizeof(ek_norm_forward_args) <= MAX_ARGS_SIZE &&
		       sizeof(ek_norm_backward_args) <= MAX_ARGS_SIZE,
	       "struct call has room for the arguments");

/* A call has one of the two residuals. */
#define OF_FORWARD                                                                        \
	.activations = EK_NORM_ACTIVATIONS, .op = &ek_norm_forward_op, .x = EK_FORWARD_X, \
	.default_eps_kinds = 1u << EK_RMS_NORM, .wider = EK_FORWARD_RESIDUAL_AFTER,       \
	.renamed = EK_FORWARD_RESIDUAL_AFTER, .name_of_renamed = "residual"
/* dresidual is dx where they have one dtype; without a weight its gradients say what dtype it would have. */
#define OF_BACKWARD                                                                                       \
	.activations = EK_NORM_ACTIVATIONS, .op = &ek_norm_backward_op, .x = EK_BACKWARD_X,               \
	.default_eps_kinds = 1u << EK_RMS_NORM, .twin = EK_BACKWARD_DRESIDUAL, .twin_of = EK_BACKWARD_DX, \
	.like_x = EK_BACKWARD_GATE, .undecided = offsetof(ek_norm_backward_args, weight_dtype),           \
	.decided_by = offsetof(ek_norm_backward_args, gradient_dtype)

/* ---- arrays of any framework ---- */

/* A call without keywords has a signature without them: 75 ns less. */
#define KEYWORD_FUNCTION(name, row)                                                                    \
	PyObject *name(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *keywords) \
	{                                                                                              \
		(void)module;                                                                          \
		return call_function(keywords ? &row##_with_all : &(row), given, count, keywords);     \
	}

const char forward_doc[] =
	"forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream, **others)\n--\n\n"
	"Returns y, then the other outputs and the statistics that were asked for; None where a tensor must be made\n"
	"contiguous first. _core.pyi has the arguments.";

/* clang-format off */
static struct signature norm_forward_with_all, norm_forward = {
	.function = "forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS},
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y, .name = "out"}, {.role = THREADS},
		  {.role = STREAM}),
};
/* clang-format on */

KEYWORD_FUNCTION(forward, norm_forward)

const char backward_doc[] =
	"backward(norm, dy, x, shape, weight, stats, eps, dx, dweight, dbias, workspace, threads, stream, **others)\n"
	"--\n\n"
	"Returns (dx, dweight, dbias), each None where it was not asked for, and the others that were; None where a\n"
	"tensor must be made contiguous first. _core.pyi has the arguments.";

/* clang-format off */
static struct signature norm_backward_with_all, norm_backward = {
	.function = "backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X},
		  {.role = SHAPE}, {.operand = EK_BACKWARD_WEIGHT}, {.role = STATISTICS},
		  {.role = EPS}, {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = WORKSPACE}, {.role = THREADS},
		  {.role = STREAM}),
};
/* clang-format on */

KEYWORD_FUNCTION(backward, norm_backward)

const char backward_workspace_doc[] =
	"backward_workspace(norm, x, shape, weight, dweight, dbias, threads, **others)\n--\n\n"
	"The bytes of workspace that backward needs, for frameworks without DLPack's C exchange API.";

/* clang-format off */
static struct signature norm_backward_workspace_with_all, norm_backward_workspace = {
	.function = "backward_workspace", OF_BACKWARD,
	.asks_workspace = true,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_X}, {.role = SHAPE},
		  {.operand = EK_BACKWARD_WEIGHT}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = THREADS}),
};
/* clang-format on */

KEYWORD_FUNCTION(backward_workspace, norm_backward_workspace)

/* ---- PyTorch's common calls ---- */

#define ACTIVATION                                                                  \
	{                                                                           \
		.role = CHOICE, .choice = EK_CHOICE_ACTIVATION, .is_required = true \
	}
#define GATE_FIRST                                             \
	{                                                      \
		.role = CHOICE, .choice = EK_CHOICE_GATE_FIRST \
	}
/* Of forward and of backward. */
#define FLAVOURS                                             \
	{.role = CHOICE, .choice = EK_CHOICE_WEIGHT_OFFSET}, \
	{                                                    \
		.role = CHOICE, .choice = EK_CHOICE_ROUNDING \
	}
#define OUT_DTYPE                                                                \
	{                                                                        \
		.role = CHOICE, .choice = EK_CHOICE_Y_DTYPE, .name = "out_dtype" \
	}
#define RESIDUAL_DTYPE                                                                \
	{                                                                             \
		.role = CHOICE, .choice = EK_CHOICE_H_DTYPE, .name = "residual_dtype" \
	}

#define GROUPS              \
	{                   \
		.role = CUT \
	}

/* PyTorch's rms_norm takes inference tensors. */
#define COPIED .copied_kinds = 1u << EK_RMS_NORM

/* clang-format off */
static struct signature plain_forward = {
	.function = "eager_forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS},
		  FLAVOURS, OUT_DTYPE, GROUPS,
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature plain_backward = {
	.function = "eager_backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X}, {.role = SHAPE},
		  {.operand = EK_BACKWARD_WEIGHT}, {.role = STATISTICS}, {.role = EPS}, GROUPS, FLAVOURS,
		  {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct eager_op plain = {
	.forward = &plain_forward, .backward = &plain_backward, .number = 0, .saved_x = EK_FORWARD_X, COPIED,
};

/* A residual before the norm. */
static struct signature add_forward = {
	.function = "eager_add_forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.operand = EK_FORWARD_RESIDUAL}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS},
		  {.operand = EK_FORWARD_X_BIAS}, FLAVOURS, OUT_DTYPE, RESIDUAL_DTYPE, GROUPS,
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y}, {.operand = EK_FORWARD_H},
		  {.role = THREADS}, {.role = STREAM}),
};
static struct signature add_backward = {
	.function = "eager_add_backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_DH},
		  {.operand = EK_BACKWARD_X}, {.role = SHAPE}, {.operand = EK_BACKWARD_WEIGHT},
		  {.role = STATISTICS}, {.role = EPS}, GROUPS, FLAVOURS, {.role = DTYPE},
		  {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DRESIDUAL},
		  {.operand = EK_BACKWARD_DWEIGHT}, {.operand = EK_BACKWARD_DBIAS},
		  {.operand = EK_BACKWARD_DX_BIAS}, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct eager_op add = {
	.forward = &add_forward, .backward = &add_backward, .number = 1, .saved_x = EK_FORWARD_H, COPIED,
};

/* A residual after the norm. */
static struct signature after_forward = {
	.function = "eager_after_forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.operand = EK_FORWARD_RESIDUAL_AFTER}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS},
		  {.operand = EK_FORWARD_X_BIAS}, FLAVOURS, OUT_DTYPE, GROUPS,
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature after_backward = {
	.function = "eager_after_backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X}, {.role = SHAPE},
		  {.operand = EK_BACKWARD_WEIGHT}, {.role = STATISTICS}, {.role = EPS}, GROUPS,
		  {.operand = EK_BACKWARD_X_BIAS}, FLAVOURS,
		  {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DWEIGHT}, {.operand = EK_BACKWARD_DBIAS},
		  {.operand = EK_BACKWARD_DX_BIAS}, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct eager_op after = {
	.forward = &after_forward, .backward = &after_backward, .number = 2, .saved_x = EK_FORWARD_X,
	.added = EK_FORWARD_RESIDUAL_AFTER, .required = EK_FORWARD_RESIDUAL_AFTER, COPIED,
};

/* An activation of the result. */
static struct signature act_forward = {
	.function = "eager_act_forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS}, ACTIVATION,
		  {.operand = EK_FORWARD_X_BIAS}, FLAVOURS, OUT_DTYPE, GROUPS,
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature act_backward = {
	.function = "eager_act_backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X}, {.role = SHAPE},
		  {.operand = EK_BACKWARD_WEIGHT}, {.operand = EK_BACKWARD_BIAS}, {.role = STATISTICS}, {.role = EPS}, GROUPS,
		  {.operand = EK_BACKWARD_X_BIAS}, FLAVOURS, ACTIVATION,
		  {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DWEIGHT}, {.operand = EK_BACKWARD_DBIAS},
		  {.operand = EK_BACKWARD_DX_BIAS}, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct eager_op act = {
	.forward = &act_forward, .backward = &act_backward, .number = 3, .saved_x = EK_FORWARD_X, COPIED,
};

/* A gate of x or of the result. */
static struct signature gated_forward = {
	.function = "eager_gated_forward", OF_FORWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.operand = EK_FORWARD_GATE}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS}, ACTIVATION, GATE_FIRST,
		  GROUPS, FLAVOURS, OUT_DTYPE,
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y}, {.role = THREADS}, {.role = STREAM}),
};
static struct signature gated_backward = {
	.function = "eager_gated_backward", OF_BACKWARD,
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X}, {.operand = EK_BACKWARD_GATE},
		  {.role = SHAPE}, {.operand = EK_BACKWARD_WEIGHT}, {.operand = EK_BACKWARD_BIAS},
		  {.role = STATISTICS}, {.role = EPS}, GROUPS, FLAVOURS, ACTIVATION, GATE_FIRST,
		  {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DGATE}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = WORKSPACE}, {.role = THREADS}, {.role = STREAM}),
};
static struct eager_op gated = {
	.forward = &gated_forward, .backward = &gated_backward, .number = 4, .saved_x = EK_FORWARD_X,
	.required = EK_FORWARD_GATE, COPIED,
};

/* The choices of check_flavour and of check_activation. */
static struct signature flavour_alone = {
	.function = "check_flavour", OF_FORWARD, ARGUMENTS(FLAVOURS, OUT_DTYPE, RESIDUAL_DTYPE),
};
static struct signature activation_alone = {
	.function = "check_activation", OF_FORWARD, ARGUMENTS(ACTIVATION, GATE_FIRST),
};
/* clang-format on */

#define FUNCTION(name, run, op)                                                    \
	PyObject *name(PyObject *module, PyObject *const *given, Py_ssize_t count) \
	{                                                                          \
		(void)module;                                                      \
		return run(&(op), given, count);                                   \
	}
FUNCTION(eager_forward, eager_forward_of, plain)
FUNCTION(eager_compute, eager_compute_of, plain)
FUNCTION(eager_keep, eager_keep_of, plain)
FUNCTION(eager_backward, eager_backward_of, plain)
FUNCTION(eager_add_forward, eager_forward_of, add)
FUNCTION(eager_add_compute, eager_compute_of, add)
FUNCTION(eager_add_keep, eager_keep_of, add)
FUNCTION(eager_add_backward, eager_backward_of, add)
FUNCTION(eager_after_forward, eager_forward_of, after)
FUNCTION(eager_after_compute, eager_compute_of, after)
FUNCTION(eager_after_keep, eager_keep_of, after)
FUNCTION(eager_after_backward, eager_backward_of, after)
FUNCTION(eager_act_forward, eager_forward_of, act)
FUNCTION(eager_act_compute, eager_compute_of, act)
FUNCTION(eager_act_keep, eager_keep_of, act)
FUNCTION(eager_act_backward, eager_backward_of, act)
FUNCTION(eager_gated_forward, eager_forward_of, gated)
FUNCTION(eager_gated_compute, eager_compute_of, gated)
FUNCTION(eager_gated_keep, eager_keep_of, gated)
FUNCTION(eager_gated_backward, eager_backward_of, gated)

/* A row, and the same with all operands and choices. */
static int resolve_both(struct signature *row, struct signature *with_all)
{
	*with_all = *row;
	with_all->takes_all = true;
	return signature_resolve(row) || signature_resolve(with_all) ? -1 : 0;
}

#define RESOLVE(name, op) || eager_resolve(&(op))
int norm_resolve(void)
{
	bool failed = resolve_both(&norm_forward, &norm_forward_with_all) ||
		      resolve_both(&norm_backward, &norm_backward_with_all) ||
		      resolve_both(&norm_backward_workspace, &norm_backward_workspace_with_all)
			      EAGER_OPS(RESOLVE) ||
		      signature_resolve(&flavour_alone) || signature_resolve(&activation_alone);
	return failed ? -1 : 0;
}

const char check_flavour_doc[] = "check_flavour(weight_offset, rounding, out_dtype, residual_dtype)\n--\n\n"
				 "Raises what a call with such choices would.";

CHECK_FUNCTION(check_flavour, flavour_alone)

const char check_activation_doc[] =
	"check_activation(activation, gate_first)\n--\n\n"
	"Raises what a call with such choices would; None is not an activation, and the default of gate_first.";

CHECK_FUNCTION(check_activation, activation_alone)
