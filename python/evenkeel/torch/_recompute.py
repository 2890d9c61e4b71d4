"""Ops that keep what they were given, and nothing that they computed: how a call is served, and gradients of any order.

A call is an object with the options of its op; _glu.py has such ops. As of the norms, a call on plain tensors goes to
the kernels, PyTorch's operations compute where PyTorch must see the call or evenkeel has no kernel, and the gradient of
a gradient is a formula in PyTorch's operations: autograd's of the composition.
SPDX-License-Identifier: MIT
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.autograd import Function
from torch.utils._python_dispatch import _disable_current_modes

from evenkeel._core import is_plain
from evenkeel.torch import _kernels, _only_memory
from evenkeel.torch._autograd import (
    Refused,
    gradients_of,
    has_no_memory,
    is_readable,
    needs_gradient,
    variable,
)
from evenkeel.torch._call import DTYPES
from evenkeel.torch._fallback import fall_back
from evenkeel.torch._ledger import is_estimated, note_call

Tensors = Sequence[Tensor | None]


class Call(Protocol):
    """Inputs, results and gradients are tuples with None for what is absent.

    A call may also have fixed(results, needs), which returns the results that depend on no input that needs a gradient.
    Then the gradient of a result that is not used is None; else it is zeros.
    """

    @property
    def name(self) -> str:
        """Of the function that was called."""

    def kept(self, inputs: Tensors) -> Tensors:
        """What backward reads."""

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        """The results, by the kernels."""

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs that need one, by the kernels."""

    def composed(self, *inputs: Any) -> tuple[Tensor | None, ...]:
        """The results in PyTorch's operations, and what is wrong with the inputs."""

    def stand_ins(self, kept: Tensors) -> Tensors:
        """Inputs that have the gradients of those that backward read."""


# ---- what is said of operands ----


def require_tensors(operands: dict[str, Any]) -> None:
    """Those that are not None."""
    for name, operand in operands.items():
        if operand is not None and not isinstance(operand, Tensor):
            raise TypeError(f"{name} is of type {type(operand).__name__}; expected a tensor")


def require_floating(operands: dict[str, Any]) -> None:
    for name, operand in operands.items():
        if operand is not None and not operand.is_floating_point():
            raise TypeError(f"{name} is {operand.dtype}; expected float32, float16, bfloat16 or float64")


def require_shape(name: str, operand: Tensor | None, *shapes: Sequence[int]) -> None:
    """One of these."""
    if operand is not None and tuple(operand.shape) not in shapes:
        raise ValueError(f"{name} has shape {tuple(operand.shape)}: it must have {' or '.join(map(str, shapes))}")


def wide_dtype(x: Tensor) -> torch.dtype:
    """Of the arithmetic."""
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def with_columns(x: Tensor, *columns: Tensor | None) -> Tensors:
    """Biases and weights in one dtype that goes with x: that of x or of the arithmetic. As given if one is wider."""
    dtype = x.dtype
    for column in columns:
        if column is not None and column.dtype is not dtype:
            return _widened(x, columns)
    return columns


def _widened(x: Tensor, columns: Tensors) -> Tensors:
    dtypes = {column.dtype for column in columns if column is not None}
    wide = wide_dtype(x)
    if dtypes == {wide} or x.dtype not in DTYPES:
        return columns
    if not all(dtype.is_floating_point and torch.promote_types(dtype, wide) is wide for dtype in dtypes):
        return columns
    return [None if column is None else column.to(wide) for column in columns]


# ---- the computation ----


def compute(function: Callable[..., Any], tensors: Tensors, *others: Any, any_order: bool = False) -> None:
    """_kernels.run; where memory is estimated, its copies alone. any_order: there are none of outer dimensions."""
    if not is_estimated():
        _kernels.run(function, tensors, *others)
        return
    if not any_order:
        _only_memory.copies(None, *tensors)
    note_call(function.__name__, tensors, *others)


def workspace(function: Callable[..., Any], tensors: Tensors, *others: Any) -> Tensor | None:
    """backward's scratch memory, of so many bytes as function(*tensors, *others, threads) says; None where the
    extension makes it."""
    x = tensors[0]
    assert x is not None
    estimated = is_estimated()
    if not x.is_cuda or (_kernels.HAS_EXCHANGE and not estimated):
        return None
    with _disable_current_modes() if estimated else nullcontext():
        given = map(_only_memory.stand_in, tensors) if estimated else _kernels.readable(*tensors)
        size = function(*given, *others, torch.get_num_threads())
    return x.new_empty(size, dtype=torch.uint8)


# ---- calls ----


def _is_unsupported(failure: Exception, inputs: Tensors) -> bool:
    """Whether a call failed because the kernels do not have its dtypes, its layouts or its device."""
    tensors = [tensor for tensor in inputs if tensor is not None and tensor.is_floating_point()]
    if not all(map(is_readable, tensors)):
        return True
    if isinstance(failure, NotImplementedError):
        return any(tensor.is_cuda for tensor in tensors)  # an old GPU
    return isinstance(failure, TypeError) and len({tensor.dtype for tensor in tensors}) > 1


def _attempt(call: Call, inputs: Tensors) -> tuple[Tensor | None, ...]:
    """By the kernels, or Refused. An error is PyTorch's where PyTorch refuses the call too, else evenkeel's own."""
    try:
        return call.forward(inputs)
    except (ValueError, TypeError, RuntimeError) as error:
        failure = error
    if _is_unsupported(failure, inputs):
        raise Refused(str(failure).partition("\n")[0]) from failure
    if not isinstance(failure, RuntimeError):
        call.composed(*inputs)
    raise failure


def is_ours(*tensors: Any) -> bool:
    """Whether a call on these tensors is the kernels', or only estimated."""
    return is_plain(*tensors) or (is_estimated() and not _are_functorch_transforms_active())


def serve(call: Call, *inputs: Any) -> tuple[Any, ...]:
    """The results of a call."""
    x = inputs[0]
    if not is_ours(*inputs) or x.is_meta or x.numel() == 0:
        return call.composed(*inputs)
    try:
        if needs_gradient(*inputs):
            made: tuple[Any, ...] = _apply(call, *inputs)
            return made
        return _attempt(call, inputs)
    except Refused as refusal:
        reason = str(refusal)
    results = call.composed(*inputs)
    fall_back(call.name, reason, stacklevel=5)
    return results


class Recomputed(Function):
    """The results of a call: their place in the graph."""

    @staticmethod
    def forward(ctx: Any, call: Call, *inputs: Any) -> Any:
        results = _attempt(call, inputs)
        ctx.call = call
        ctx.save_for_backward(*call.kept(inputs))
        fixed = getattr(call, "fixed", None)
        if fixed is not None:
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*fixed(results, ctx.needs_input_grad[1:]))
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _, *needs = ctx.needs_input_grad
        if all(gradient is None for gradient in gradients):
            return None, *(None for _ in needs)
        return None, *_backward(ctx.call, gradients, ctx.saved_tensors, needs)


# Without the step in Python that looks for torch.func's transforms: who calls this has looked.
_apply: Callable[..., Any] = super(Function, Recomputed).apply


# ---- backward ----


def _backward(call: Call, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> Sequence[Any]:
    if is_ours(*gradients, *kept):  # a gradient and what hooks unpack may be of any kind
        try:
            if torch.is_grad_enabled():
                return RecomputedBackward.apply(call, needs, len(gradients), *gradients, *kept)  # type: ignore[no-any-return, no-untyped-call]
            return call.backward(gradients, kept, needs)
        except (TypeError, ValueError):
            if not any(map(has_no_memory, gradients)):
                raise
    return _by_formula(call, gradients, kept, needs, torch.is_grad_enabled())


def _by_formula(call: Call, gradients: Tensors, kept: Tensors, needs: Sequence[bool], again: bool) -> Sequence[Any]:
    """The gradients of what needs one, in PyTorch's operations, which have derivatives of every order."""
    with torch.enable_grad():
        inputs = call.stand_ins([_variable(tensor, again) for tensor in kept])
        results = call.composed(*inputs)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if r is not None and g is not None]
        wanted: list[Any] = [tensor for tensor, need in zip(inputs, needs, strict=True) if need]
        found = iter(gradients_of(pairs, wanted, again))
    return [next(found) if need else None for need in needs]


def _variable(tensor: Any, connected: bool) -> Any:
    """Positions have no gradient."""
    return variable(tensor, connected) if tensor is not None and tensor.is_floating_point() else tensor


class RecomputedBackward(Function):
    """The gradients of a call's inputs, where they are differentiated in turn."""

    @staticmethod
    def forward(ctx: Any, call: Call, needs: Sequence[bool], count: int, *tensors: Any) -> Any:
        ctx.call, ctx.needs, ctx.count = call, needs, count
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return call.backward(tensors[:count], tensors[count:], needs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        _, _, _, *wanted = ctx.needs_input_grad
        with torch.enable_grad():
            known = [_variable(tensor, again) for tensor in ctx.saved_tensors]
            first = _by_formula(ctx.call, known[: ctx.count], known[ctx.count :], ctx.needs, True)
            pairs = [
                (f, g)
                for f, g in zip(first, grad_outputs, strict=True)
                if f is not None and g is not None and f.requires_grad
            ]
            inputs = [tensor for tensor, need in zip(known, wanted, strict=True) if need]
            found = iter(gradients_of(pairs, inputs, again))
        return None, None, None, *(next(found) if need else None for need in wanted)
