/* The functions of _core on the norms, as rows over call.h and eager.h: what their arguments are. A function takes another
 * operand once its signature names it. SPDX-License-Identifier: MIT */
#include "eager.h"
#include "functions.h"
#include "ops/norm/op.h"

_Static_assert((int)EK_FORWARD_OPERANDS <= EK_MOST_OPERANDS && (int)EK_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "struct call has a view for each operand");
_Static_assert(sizeof(ek_norm_forward_args) <= MAX_ARGS_SIZE &&
		       sizeof(ek_norm_backward_args) <= MAX_ARGS_SIZE,
	       "struct call has room for the arguments");

#define ARGUMENTS(...)                                                               \
	.count = sizeof((struct argument[]){__VA_ARGS__}) / sizeof(struct argument), \
	.arguments = {__VA_ARGS__}
#define FUNCTION(name, run, row)                                                   \
	PyObject *name(PyObject *module, PyObject *const *given, Py_ssize_t count) \
	{                                                                          \
		(void)module;                                                      \
		return run(&(row), given, count);                                  \
	}

/* ---- arrays of any framework ---- */

const char forward_doc[] =
	"forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream)\n--\n\n"
	"Returns y, or (y, stats) where stats were asked for; None where a tensor must be made contiguous first.\n"
	"_core.pyi has the arguments.";

static struct signature norm_forward = {
	.function = "forward",
	.op = &ek_norm_forward_op,
	.x = EK_FORWARD_X,
	.default_eps_kinds = 1u << EK_RMS_NORM,
	/* clang-format off */
	ARGUMENTS({.role = KIND}, {.operand = EK_FORWARD_X}, {.role = SHAPE},
		  {.operand = EK_FORWARD_WEIGHT}, {.operand = EK_FORWARD_BIAS}, {.role = EPS},
		  {.role = STATISTICS}, {.operand = EK_FORWARD_Y, .name = "out"}, {.role = THREADS},
		  {.role = STREAM}),
	/* clang-format on */
};

FUNCTION(forward, call_function, norm_forward)

const char backward_doc[] =
	"backward(norm, dy, x, shape, weight, stats, eps, dx, dweight, dbias, workspace, threads, stream)\n--\n\n"
	"Returns (dx, dweight, dbias), each None where it was not asked for; None where a tensor must be made\n"
	"contiguous first. _core.pyi has the arguments.";

static struct signature norm_backward = {
	.function = "backward",
	.op = &ek_norm_backward_op,
	.x = EK_BACKWARD_X,
	.default_eps_kinds = 1u << EK_RMS_NORM,
	/* clang-format off */
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_DY}, {.operand = EK_BACKWARD_X},
		  {.role = SHAPE}, {.operand = EK_BACKWARD_WEIGHT}, {.role = STATISTICS},
		  {.role = EPS}, {.operand = EK_BACKWARD_DX}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = WORKSPACE}, {.role = THREADS},
		  {.role = STREAM}),
	/* clang-format on */
};

FUNCTION(backward, call_function, norm_backward)

const char backward_workspace_doc[] =
	"backward_workspace(norm, x, shape, weight, dweight, dbias, threads)\n--\n\n"
	"The bytes of workspace that backward needs, for frameworks without DLPack's C exchange API.";

static struct signature norm_backward_workspace = {
	.function = "backward_workspace",
	.op = &ek_norm_backward_op,
	.x = EK_BACKWARD_X,
	.asks_workspace = true,
	/* clang-format off */
	ARGUMENTS({.role = KIND}, {.operand = EK_BACKWARD_X}, {.role = SHAPE},
		  {.operand = EK_BACKWARD_WEIGHT}, {.operand = EK_BACKWARD_DWEIGHT},
		  {.operand = EK_BACKWARD_DBIAS}, {.role = THREADS}),
	/* clang-format on */
};

FUNCTION(backward_workspace, call_function, norm_backward_workspace)

/* ---- PyTorch's common calls ---- */

static struct eager_op norm_eager = {
	.forward = &norm_forward,
	.backward = &norm_backward,
	.copied_kinds = 1u << EK_RMS_NORM, /* PyTorch's rms_norm takes inference tensors */
};

const char eager_forward_doc[] = "eager_forward(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
				 "Returns y, or None where evenkeel.torch must look at the call.";

FUNCTION(eager_forward, eager_forward_of, norm_eager)

const char eager_compute_doc[] =
	"eager_compute(norm, input, normalized_shape, weight, bias, eps)\n--\n\n"
	"Of tensors that is_plain is true of: returns y, or None where evenkeel.torch must make copies.";

FUNCTION(eager_compute, eager_compute_of, norm_eager)

const char eager_keep_doc[] = "eager_keep(ctx, x, weight, bias, made)\n--\n\n"
			      "forward of a function of autograd: y, which eager_forward has computed.";

FUNCTION(eager_keep, eager_keep_of, norm_eager)

const char eager_backward_doc[] = "eager_backward(ctx, dy)\n--\n\n"
				  "backward of the same: the gradients of x, weight, bias and made.";

FUNCTION(eager_backward, eager_backward_of, norm_eager)

void norm_resolve(void)
{
	signature_resolve(&norm_forward);
	signature_resolve(&norm_backward);
	signature_resolve(&norm_backward_workspace);
	eager_resolve(&norm_eager);
}
