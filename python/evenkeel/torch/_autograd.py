"""How gradients flow: the norms as functions of autograd, differentiable any number of times.

What forward saves is x (h, where there is a residual), weight and the statistics of the rows, nothing else.
SPDX-License-Identifier: MIT
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _has_storage
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function

from evenkeel._core import eager_add_backward, eager_add_keep, eager_backward, eager_keep, is_plain
from evenkeel.torch import _kernels, _only_memory
from evenkeel.torch._call import DTYPES, Call, Gradients, Options, Outputs, options_of
from evenkeel.torch._composed import by_formula, columns_dtype, pytorch

# ---- forward ----


class Refused(Exception):
    """The kernels do not have the dtypes, the layout or the device of a call; the text says which."""


def _is_readable(tensor: Tensor) -> bool:
    """Whether the kernels have its dtype, its layout and its device."""
    has_elements_at_strides = tensor.layout is torch.strided and not tensor.is_nested and _has_storage(tensor)
    return has_elements_at_strides and tensor.dtype in DTYPES and tensor.device.type in ("cpu", "cuda")


def _is_unsupported(failure: Exception, call: Call) -> bool:
    """Whether a call failed because the kernels do not have its dtypes, its layout or its device."""
    tensors = [tensor for tensor in call.inputs if tensor is not None]
    if not all(map(_is_readable, tensors)):
        return True
    if isinstance(failure, NotImplementedError):
        return call.inputs.x.is_cuda  # an old GPU
    return isinstance(failure, TypeError) and len({call.out_dtype, *(t.dtype for t in tensors)}) > 1


def attempt(call: Call, statistics: bool) -> Outputs:
    """_kernels.forward, or Refused. An error is PyTorch's where PyTorch refuses the call too, else evenkeel's own."""
    try:
        return _kernels.forward(call, statistics)
    except (ValueError, TypeError, RuntimeError) as error:
        failure = error
    if _is_unsupported(failure, call):
        raise Refused(str(failure).partition("\n")[0]) from failure
    if not isinstance(failure, RuntimeError):
        pytorch(call)
    raise failure


Made = tuple[Any, ...]


def forward(call: Call, estimate: bool) -> Made:
    """What is kept beside the inputs: the results, computed or only estimated, the statistics, the options."""
    with torch.no_grad():
        outputs = (_only_memory.forward if estimate else attempt)(call, True)
    results = (outputs.y,) if outputs.h is None else (outputs.y, outputs.h)
    return *results, outputs.stats, options_of(call, estimate)


def keep(ctx: Any, x: Tensor, weight: Tensor | None, stats: Tensor | None, options: Options) -> None:
    """What backward needs, and nothing else."""
    ctx.save_for_backward(x, weight, stats)
    ctx.options = options


# ---- nodes of the graph: in C, where PyTorch is not too old ----


# The inputs at the end that are None may be left out.


def _forward(ctx: Any, x: Tensor, *others: Any) -> Tensor:
    y: Tensor
    y, stats, options = others[-1]
    keep(ctx, x, others[0] if len(others) > 1 else None, stats, options)
    return y


def _backward(ctx: Any, *grad_outputs: Tensor) -> Any:
    return backward(ctx, grad_outputs, ctx.saved_tensors)


class Norm(Function):
    """y of (x, weight, bias, what forward has made): its place in the graph."""

    forward = staticmethod(eager_keep if _kernels.HAS_EXCHANGE else _forward)
    backward = staticmethod(eager_backward if _kernels.HAS_EXCHANGE else _backward)


def backward(ctx: Any, gradients: tuple[Any, ...], saved: tuple[Any, ...]) -> Any:
    """The gradients of what Norm was applied to, given what it saved: what eager_backward cannot serve."""
    *needs, _ = ctx.needs_input_grad
    (dy,), (x, weight, stats) = gradients, saved
    found = _in_python(dy, None, x, weight, stats, Options(*ctx.options), Gradients(*needs))
    return *found[: len(needs)], None


def _add_forward(ctx: Any, *operands: Any) -> tuple[Tensor, Tensor]:
    *inputs, (y, h, stats, options) = operands
    keep(ctx, h, inputs[2] if len(inputs) > 2 else None, stats, options)
    ctx.set_materialize_grads(False)
    return y, h


def _add_backward(ctx: Any, *grad_outputs: Any) -> Any:
    return add_backward(ctx, grad_outputs, ctx.saved_tensors)


class AddNorm(Function):
    """(y, h) of (x, residual, weight, bias, x_bias, what forward has made)."""

    forward = staticmethod(eager_add_keep if _kernels.HAS_EXCHANGE else _add_forward)
    backward = staticmethod(eager_add_backward if _kernels.HAS_EXCHANGE else _add_backward)


def add_backward(ctx: Any, gradients: tuple[Any, ...], saved: tuple[Any, ...]) -> Any:
    """The same of AddNorm. A gradient is None where the result was not used."""
    *needs, _ = ctx.needs_input_grad
    if all(gradient is None for gradient in gradients):
        return *(None for _ in needs), None
    in_order = dict(zip(("dx", "dresidual", "dweight", "dbias", "dx_bias"), needs, strict=False))
    (dy, dh), (h, weight, stats) = gradients, saved
    found = _in_python(dy, dh, h, weight, stats, Options(*ctx.options), Gradients(**in_order))
    return *(getattr(found, name) for name in in_order), None


# Without the step in Python that looks for torch.func's transforms: who calls this has looked.
norm_apply: Callable[..., Tensor] = super(Function, Norm).apply
add_norm_apply: Callable[..., tuple[Tensor, Tensor]] = super(Function, AddNorm).apply


def operands_of(call: Call, made: Made) -> tuple[Any, ...]:
    """What the node of a call is applied to."""
    x, weight, bias, residual, x_bias = call.inputs
    return (x, weight, bias, made) if residual is None else (x, residual, weight, bias, x_bias, made)


# ---- backward ----


def _in_python(
    dy: Any, dh: Any, x: Tensor, weight: Tensor | None, stats: Tensor, options: Options, needs: Gradients
) -> Gradients:
    """dresidual is dx, where both have one dtype."""
    is_dx = bool(needs.dresidual) and DTYPES[options.dtype - 1] is x.dtype
    if is_dx:
        needs = needs._replace(dx=True, dresidual=False)
    found = None
    if options.estimate or is_plain(dy, dh, x, weight):  # a gradient and what hooks unpack may be of any kind
        found = _by_kernels(dy, dh, x, weight, stats, options, needs)
    if found is None:
        everything = zip(by_formula(dy, dh, x, weight, options), needs, strict=True)
        found = Gradients(*(gradient if need else None for gradient, need in everything))
    return found._replace(dresidual=found.dx) if is_dx else found


def _has_no_memory(gradient: Any) -> bool:
    """That of is_grads_batched, or lazy zeros."""
    return gradient is not None and (is_legacy_batchedtensor(gradient) or gradient._is_zerotensor())


def _by_kernels(dy: Any, dh: Any, *others: Any) -> Gradients | None:
    """None where a gradient has no memory of its own."""
    try:
        if torch.is_grad_enabled():
            return Gradients(*NormBackward.apply(dy, dh, *others))  # type: ignore[no-untyped-call]
        return _first_order(dy, dh, *others)
    except (TypeError, ValueError):
        if _has_no_memory(dy) or _has_no_memory(dh):
            return None
        raise


def _first_order(
    dy: Any, dh: Any, x: Tensor, weight: Tensor | None, stats: Tensor, options: Options, needs: Gradients
) -> Gradients:
    dtype = DTYPES[options.dtype - 1]
    gradients = _kernels.empty_gradients(
        x, options.shape, columns_dtype(x, weight, options), *map(bool, needs), dtype=dtype
    )
    compute = _only_memory.backward if options.estimate else _kernels.backward
    flavour = {"weight_offset": options.weight_offset, "rounding": options.rounding}
    return compute(
        options.norm,
        dy,
        x,
        options.shape,
        weight,
        stats,
        gradients,
        dh=dh,
        dtype=dtype,
        **flavour,  # type: ignore[arg-type]
    )


class NormBackward(Function):
    """The gradients of (dy, dh, x, weight), where they are differentiated in turn."""

    @staticmethod
    def forward(ctx: Any, dy: Any, dh: Any, x: Tensor, weight: Any, stats: Tensor, options: Options, needs: Any) -> Any:
        ctx.save_for_backward(dy, dh, x, weight)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return _first_order(dy, dh, x, weight, stats, options, needs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            variables = [_variable(t, again) for t in ctx.saved_tensors]
            dy, dh, x, weight = variables
            first = by_formula(dy, dh, x, weight, ctx.options)
            # Without dy, dbias depends on nothing.
            pairs = [(f, g) for f, g in zip(first, grad_outputs, strict=True) if g is not None and f.requires_grad]
            wanted = [t for t, need in zip(variables, ctx.needs_input_grad, strict=False) if need]
            found = iter(_gradients(pairs, wanted, again))
        return *(next(found) if need else None for need in ctx.needs_input_grad[:4]), None, None, None


def _variable(tensor: Any, connected: bool) -> Any:
    """The tensor as a variable of its own: dy may depend on x, and a derivative by x must not go that way.

    Connected, what is computed from it still depends on what the tensor depends on.
    """
    if tensor is None:
        return None
    return tensor.view_as(tensor) if connected and tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor], again: bool) -> tuple[Tensor | None, ...]:
    if not pairs or not inputs:
        return (None,) * len(inputs)
    outputs, grad_outputs = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, inputs, grad_outputs, create_graph=again, allow_unused=True)
