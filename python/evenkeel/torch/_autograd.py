"""How gradients flow: the norms as functions of autograd, differentiable any number of times.

What forward saves is x, weight and the statistics of the rows, nothing else. SPDX-License-Identifier: MIT
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C import _has_storage
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function

from evenkeel._core import eager_backward, eager_keep, is_plain
from evenkeel.torch import _kernels, _only_memory
from evenkeel.torch._kernels import LAYER_NORM, Gradients, Shape

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

# norm, shape, eps, whether only memory is estimated, the dtype of a bias that comes without a weight
Options = tuple[int, Shape, float | None, bool, torch.dtype | None]

# Whether dx, dweight and dbias are needed.
Needs = tuple[bool, bool, bool]


def pytorch_norm(
    norm: int, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float | None
) -> Tensor:
    """The same by PyTorch."""
    if norm == LAYER_NORM:
        return F.layer_norm(x, shape, weight, bias, eps)  # type: ignore[arg-type]
    return F.rms_norm(x, shape, weight, eps)


def _columns_dtype(x: Tensor, weight: Tensor | None, options: Options) -> torch.dtype:
    """Of dweight and dbias."""
    return options[4] or (x if weight is None else weight).dtype


def _by_formula(dy: Tensor, x: Tensor, weight: Tensor | None, options: Options) -> tuple[Tensor, Tensor, Tensor]:
    """(dx, dweight, dbias) in PyTorch's operations, which have derivatives of every order."""
    norm, shape, eps, *_ = options
    columns_dtype = _columns_dtype(x, weight, options)
    dtype = _kernels.statistics_dtype(x)
    dims, rows = tuple(range(-len(shape), 0)), tuple(range(x.dim() - len(shape)))
    wide, dy = x.to(dtype), dy.to(dtype)
    if norm == LAYER_NORM:
        wide = wide - wide.mean(dims, keepdim=True)
    rstd = (wide.square().mean(dims, keepdim=True) + (torch.finfo(dtype).eps if eps is None else eps)).rsqrt()
    xhat = wide * rstd
    g = dy if weight is None else dy * weight.to(dtype)
    inner = g - xhat * (g * xhat).mean(dims, keepdim=True)
    if norm == LAYER_NORM:
        inner = inner - g.mean(dims, keepdim=True)
    columns = (dy * xhat, dy)
    dweight, dbias = (c.sum(rows) if rows else c for c in columns)  # an empty list would mean all dimensions
    return (inner * rstd).to(x.dtype), dweight.to(columns_dtype), dbias.to(columns_dtype)


class Refused(Exception):
    """The kernels do not have the dtypes, the layout or the device of a call; the text says which."""


def _is_readable(tensor: Tensor) -> bool:
    """Whether the kernels have its dtype, its layout and its device."""
    has_elements_at_strides = tensor.layout is torch.strided and not tensor.is_nested and _has_storage(tensor)
    return has_elements_at_strides and tensor.dtype in _DTYPES and tensor.device.type in ("cpu", "cuda")


def _is_unsupported(failure: Exception, x: Tensor, *others: Tensor | None) -> bool:
    """Whether a call failed because the kernels do not have its dtypes, its layout or its device."""
    tensors = [x, *(t for t in others if t is not None)]
    if not all(map(_is_readable, tensors)):
        return True
    if isinstance(failure, NotImplementedError):
        return x.is_cuda  # an old GPU
    return isinstance(failure, TypeError) and len({t.dtype for t in tensors}) > 1


def attempt(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None, statistics: bool
) -> tuple[Tensor, Tensor | None]:
    """_kernels.forward, or Refused. An error is PyTorch's where PyTorch refuses the call too, else evenkeel's own."""
    try:
        return _kernels.forward(norm, x, shape, weight, bias, eps, statistics)
    except (ValueError, TypeError, RuntimeError) as error:
        failure = error
    if _is_unsupported(failure, x, weight, bias):
        raise Refused(str(failure).partition("\n")[0]) from failure
    if not isinstance(failure, RuntimeError):
        pytorch_norm(norm, x, shape, weight, bias, eps)
    raise failure


def forward(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None, estimate: bool
) -> tuple[Tensor, Tensor | None, Options]:
    """What Norm is applied to beside its operands: y, computed or only estimated, the statistics, the options."""
    with torch.no_grad():
        compute = _only_memory.forward if estimate else attempt
        y, stats = compute(norm, x, shape, weight, bias, eps, True)
    alone = bias.dtype if weight is None and bias is not None else None
    return y, stats, (norm, shape, eps, estimate, alone)


def keep(ctx: Any, x: Tensor, weight: Tensor | None, stats: Tensor | None, options: Options) -> None:
    """What backward needs, and nothing else."""
    ctx.save_for_backward(x, weight, stats)
    ctx.options = options


def _forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, made: tuple[Any, ...]) -> Tensor:
    y: Tensor
    y, stats, options = made
    keep(ctx, x, weight, stats, options)
    return y


def _backward(ctx: Any, *grad_outputs: Tensor) -> Any:
    (dy,) = grad_outputs
    return backward(ctx, dy, ctx.saved_tensors)


class Norm(Function):
    """y of (x, weight, bias, what forward has made): its place in the graph. In C, where PyTorch is not too old."""

    forward = staticmethod(eager_keep if _kernels.HAS_EXCHANGE else _forward)
    backward = staticmethod(eager_backward if _kernels.HAS_EXCHANGE else _backward)


def backward(ctx: Any, dy: Tensor, saved: tuple[Tensor, Tensor | None, Tensor]) -> Any:
    """The gradients of what Norm was applied to, given what it saved: what eager_backward cannot serve."""
    return *_in_python(dy, *saved, ctx.options, ctx.needs_input_grad[:3]), None


def _in_python(
    dy: Tensor, x: Tensor, weight: Tensor | None, stats: Tensor, options: Options, needs: Needs
) -> Gradients:
    estimate = options[3]
    if estimate or is_plain(dy, x, weight):  # a gradient and what hooks unpack may be of any kind
        found = _by_kernels(dy, x, weight, stats, options, needs)
        if found is not None:
            return found
    everything = zip(_by_formula(dy, x, weight, options), needs, strict=True)
    return Gradients(*(gradient if need else None for gradient, need in everything))


def _by_kernels(dy: Tensor, *others: Any) -> Gradients | None:
    """None where dy has no memory of its own: that of is_grads_batched, or lazy zeros."""
    try:
        if torch.is_grad_enabled():
            return Gradients(*NormBackward.apply(dy, *others))  # type: ignore[no-untyped-call]
        return _first_order(dy, *others)
    except (TypeError, ValueError):
        if is_legacy_batchedtensor(dy) or dy._is_zerotensor():
            return None
        raise


def _first_order(
    dy: Tensor, x: Tensor, weight: Tensor | None, stats: Tensor, options: Options, needs: Needs
) -> Gradients:
    norm, shape, _, estimate, _ = options
    gradients = _kernels.empty_gradients(x, shape, _columns_dtype(x, weight, options), *needs)
    compute = _only_memory.backward if estimate else _kernels.backward
    return compute(norm, dy, x, shape, weight, stats, gradients)


# Without the step in Python that looks for torch.func's transforms: who calls this has looked.
norm_apply: Callable[..., Tensor] = super(Function, Norm).apply


class NormBackward(Function):
    """(dx, dweight, dbias) of (dy, x, weight), where they are differentiated in turn."""

    @staticmethod
    def forward(
        ctx: Any, dy: Tensor, x: Tensor, weight: Tensor | None, stats: Tensor, options: Options, needs: Needs
    ) -> Any:
        ctx.save_for_backward(dy, x, weight)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return _first_order(dy, x, weight, stats, options, needs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            dy, x, weight = (_variable(t, again) for t in ctx.saved_tensors)
            first = _by_formula(dy, x, weight, ctx.options)
            pairs = [(f, g) for f, g in zip(first, grad_outputs, strict=True) if g is not None]
            wanted = [t for t, need in zip((dy, x, weight), ctx.needs_input_grad, strict=False) if need]
            found = iter(_gradients(pairs, wanted, again))
        return *(next(found) if need else None for need in ctx.needs_input_grad[:3]), None, None, None


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
