"""How gradients flow: the norms as functions of autograd, differentiable any number of times.

What forward saves is x (h, where there is a residual before the norm), weight, the statistics of the rows, and bias,
x_bias and the gate where backward needs them, nothing else. The ops of _call.py say which.
SPDX-License-Identifier: MIT
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C import _has_storage
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function

from evenkeel._core import (
    eager_act_backward,
    eager_act_keep,
    eager_add_backward,
    eager_add_keep,
    eager_after_backward,
    eager_after_keep,
    eager_backward,
    eager_gated_backward,
    eager_gated_keep,
    eager_keep,
    is_plain,
)
from evenkeel.torch import _kernels, _only_memory
from evenkeel.torch._call import (
    ADD_NORM,
    DTYPES,
    NORM,
    NORM_ACT,
    NORM_GATED,
    NORM_RESIDUAL,
    Call,
    Gradients,
    Known,
    Op,
    Options,
    Outputs,
    options_of,
)
from evenkeel.torch._composed import by_formula, columns_dtype, pytorch

# ---- forward ----


class Refused(Exception):
    """The kernels do not have the dtypes, the layout or the device of a call; the text says which."""


def needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_readable(tensor: Tensor) -> bool:
    """Whether the kernels have its dtype, its layout and its device."""
    has_elements_at_strides = tensor.layout is torch.strided and not tensor.is_nested and _has_storage(tensor)
    return has_elements_at_strides and tensor.dtype in DTYPES and tensor.device.type in ("cpu", "cuda")


def _is_unsupported(failure: Exception, call: Call) -> bool:
    """Whether a call failed because the kernels do not have its dtypes, its layout or its device."""
    tensors = [tensor for tensor in call.inputs if tensor is not None]
    if not all(map(is_readable, tensors)):
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
    return *(getattr(outputs, name) for name in call.op.outputs), outputs.stats, options_of(call, estimate)


def keep(ctx: Any, options: Options, *saved: Tensor | None) -> None:
    """What backward needs, and nothing else."""
    ctx.save_for_backward(*saved)
    ctx.options = options


# ---- nodes of the graph: in C, where PyTorch is not too old ----


# The inputs at the end that are None may be left out.


def keep_in_python(op: Op, ctx: Any, *operands: Any) -> Any:
    """forward of a node: its results, which are computed."""
    *inputs, (*results, stats, options) = operands
    named = dict(zip((*op.outputs, *op.inputs), (*results, *inputs), strict=False))
    if options.gate_first:
        named.pop("bias", None)
    keep(ctx, options, *(named.get(name) for name in op.saved), stats)
    if len(results) == 1:
        return results[0]
    ctx.set_materialize_grads(False)
    return tuple(results)


def backward_in_python(op: Op, ctx: Any, *gradients: Any) -> Any:
    """backward of a node."""
    return backward(op, ctx, gradients, ctx.saved_tensors)


class Norm(Function):
    """y of (x, weight, bias, what forward has made): its place in the graph."""

    forward = staticmethod(eager_keep if _kernels.HAS_EXCHANGE else partial(keep_in_python, NORM))
    backward = staticmethod(eager_backward if _kernels.HAS_EXCHANGE else partial(backward_in_python, NORM))


class AddNorm(Function):
    """(y, h) of (x, residual, weight, bias, x_bias, what forward has made)."""

    forward = staticmethod(eager_add_keep if _kernels.HAS_EXCHANGE else partial(keep_in_python, ADD_NORM))
    backward = staticmethod(eager_add_backward if _kernels.HAS_EXCHANGE else partial(backward_in_python, ADD_NORM))


class NormResidual(Function):
    """y of (x, residual, weight, bias, x_bias, what forward has made)."""

    forward = staticmethod(eager_after_keep if _kernels.HAS_EXCHANGE else partial(keep_in_python, NORM_RESIDUAL))
    backward = staticmethod(
        eager_after_backward if _kernels.HAS_EXCHANGE else partial(backward_in_python, NORM_RESIDUAL)
    )


class NormAct(Function):
    """y of (x, weight, bias, x_bias, what forward has made)."""

    forward = staticmethod(eager_act_keep if _kernels.HAS_EXCHANGE else partial(keep_in_python, NORM_ACT))
    backward = staticmethod(eager_act_backward if _kernels.HAS_EXCHANGE else partial(backward_in_python, NORM_ACT))


class NormGated(Function):
    """y of (x, gate, weight, bias, what forward has made)."""

    forward = staticmethod(eager_gated_keep if _kernels.HAS_EXCHANGE else partial(keep_in_python, NORM_GATED))
    backward = staticmethod(eager_gated_backward if _kernels.HAS_EXCHANGE else partial(backward_in_python, NORM_GATED))


NODES: dict[Op, Any] = {
    NORM: Norm,
    ADD_NORM: AddNorm,
    NORM_RESIDUAL: NormResidual,
    NORM_ACT: NormAct,
    NORM_GATED: NormGated,
}

# Without the step in Python that looks for torch.func's transforms: who calls this has looked.
APPLY: dict[Op, Callable[..., Any]] = {op: super(Function, node).apply for op, node in NODES.items()}


def operands_of(call: Call, made: Made) -> tuple[Any, ...]:
    """What the node of a call is applied to."""
    return *(getattr(call.inputs, name) for name in call.op.inputs), made


# ---- backward ----


def backward(op: Op, ctx: Any, gradients: tuple[Any, ...], saved: tuple[Any, ...]) -> Any:
    """The gradients of what a node was applied to, given what it saved: what eager_backward cannot serve.

    A gradient is None where the result was not used.
    """
    *needs, _ = ctx.needs_input_grad
    if all(gradient is None for gradient in gradients):
        return *(None for _ in needs), None
    *tensors, stats = saved
    kept, outer = dict(zip(op.saved, tensors, strict=True)), dict(zip(op.outputs, gradients, strict=True))
    others = (kept.get(name) for name in ("bias", "x_bias", "gate"))
    known = Known(outer["y"], outer.get("h"), tensors[0], kept["weight"], *others)
    needed = dict(zip(op.inputs, needs, strict=False))
    computed = {f"d{name}": need for name, need in needed.items() if name != op.added}
    found = _in_python(known, stats, Options(*ctx.options), Gradients(**computed))
    # Autograd converts the gradient of what was added to the dtype of that.
    everything = {f"d{op.added}": known.dy, **found._asdict()}
    return *(everything[f"d{name}"] if need else None for name, need in needed.items()), None


def _in_python(known: Known, stats: Tensor, options: Options, needs: Gradients) -> Gradients:
    """dresidual is dx, where both have one dtype."""
    if not any(needs):
        return Gradients()
    is_dx = bool(needs.dresidual) and DTYPES[options.dtype - 1] is known.x.dtype
    if is_dx:
        needs = needs._replace(dx=True, dresidual=False)
    found = None
    if options.estimate or is_plain(*known):  # a gradient and what hooks unpack may be of any kind
        found = _by_kernels(known, stats, options, needs)
    if found is None:
        everything = zip(by_formula(known, options), needs, strict=True)
        found = Gradients(*(gradient if need else None for gradient, need in everything))
    return found._replace(dresidual=found.dx) if is_dx else found


def has_no_memory(gradient: Any) -> bool:
    """That of is_grads_batched, or lazy zeros."""
    return gradient is not None and (is_legacy_batchedtensor(gradient) or gradient._is_zerotensor())


def _by_kernels(known: Known, stats: Tensor, options: Options, needs: Gradients) -> Gradients | None:
    """None where a gradient has no memory of its own."""
    try:
        if torch.is_grad_enabled():
            return Gradients(*NormBackward.apply(*known, stats, options, needs))  # type: ignore[no-untyped-call]
        return _first_order(known, stats, options, needs)
    except (TypeError, ValueError):
        if has_no_memory(known.dy) or has_no_memory(known.dh):
            return None
        raise


def _first_order(known: Known, stats: Tensor, options: Options, needs: Gradients) -> Gradients:
    dy, dh, x, weight, bias, x_bias, gate = known
    dtype = DTYPES[options.dtype - 1]
    gradients = _kernels.empty_gradients(
        x, options.shape, columns_dtype(known, options), *map(bool, needs), dtype=dtype
    )
    compute = _only_memory.backward if options.estimate else _kernels.backward
    names = "weight_offset", "rounding", "activation", "gate_first", "group_cols"
    flavour: Any = {name: getattr(options, name) for name in names}
    more: Any = {"dh": dh, "bias": bias, "x_bias": x_bias, "gate": gate, "dtype": dtype, **flavour}
    return compute(options.norm, dy, x, options.shape, weight, stats, gradients, **more)


class NormBackward(Function):
    """The gradients of what is known, where they are differentiated in turn."""

    @staticmethod
    def forward(ctx: Any, *operands: Any) -> Any:
        *known, stats, options, needs = operands
        ctx.save_for_backward(*known)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return _first_order(Known(*known), stats, options, needs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        *needs, _, _, _ = ctx.needs_input_grad
        with torch.enable_grad():
            known = Known(*(variable(t, again) for t in ctx.saved_tensors))
            first = by_formula(known, ctx.options)
            # Without dy, dbias depends on nothing.
            pairs = [(f, g) for f, g in zip(first, grad_outputs, strict=True) if g is not None and f.requires_grad]
            wanted = [t for t, need in zip(known, needs, strict=True) if need]
            found = iter(gradients_of(pairs, wanted, again))
        return *(next(found) if need else None for need in needs), None, None, None


def variable(tensor: Any, connected: bool) -> Any:
    """The tensor as a variable of its own: dy may depend on x, and a derivative by x must not go that way.

    Connected, what is computed from it still depends on what the tensor depends on.
    """
    if tensor is None:
        return None
    return tensor.view_as(tensor) if connected and tensor.requires_grad else tensor.detach().requires_grad_()


def gradients_of(pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor], again: bool) -> tuple[Tensor | None, ...]:
    if not pairs or not inputs:
        return (None,) * len(inputs)
    outputs, grad_outputs = zip(*pairs, strict=True)
    return torch.autograd.grad(outputs, inputs, grad_outputs, create_graph=again, allow_unused=True)
