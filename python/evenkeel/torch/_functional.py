"""layer_norm and rms_norm as PyTorch has them: who serves a call, and with what autograd.

A call on plain tensors goes straight to the kernels. PyTorch's own function computes where PyTorch must see the
operation (subclasses, modes, transforms, tracing) and where evenkeel has no kernel for a dtype, a layout or a device.
Wrong arguments raise PyTorch's errors; what PyTorch accepts and evenkeel does not raises evenkeel's.
SPDX-License-Identifier: MIT
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import handle_torch_function, has_torch_function_variadic

from evenkeel._core import eager_compute, eager_forward, eager_setup, is_plain
from evenkeel.torch import _kernels
from evenkeel.torch._autograd import Norm, Refused, attempt, backward, forward, norm_apply, pytorch_norm
from evenkeel.torch._fallback import fall_back
from evenkeel.torch._kernels import LAYER_NORM, RMS_NORM, Shape
from evenkeel.torch._ledger import is_estimated

_OPS = {LAYER_NORM: "layer_norm", RMS_NORM: "rms_norm"}

# A plain call is served in C. (Older PyTorch cannot be.)
eager_setup(
    Tensor,
    Parameter,
    torch.empty_like,
    Tensor.new_empty,
    {"dtype": torch.float32},
    Tensor.contiguous,
    Tensor.is_neg,
    torch.get_num_threads,
    torch.is_grad_enabled,
    norm_apply if _kernels.HAS_EXCHANGE else None,
    backward,
    vars(forward_ad),
    (_len_torch_dispatch_stack, _are_functorch_transforms_active, _is_tracing),
    (_len_torch_function_stack, _is_any_autocast_enabled),
)


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _savable(tensor: Any) -> Any:
    """A copy of an inference tensor, which autograd does not save. PyTorch's rms_norm on the CPU accepts one."""
    return tensor.clone() if tensor is not None and tensor.is_inference() else tensor


# ---- autocast ----


@cache
def _casts(op: str, device_type: str) -> bool:
    """Whether autocast computes the op in float32 there: PyTorch's own lists say so."""
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}.get(device_type)
    return key is not None and torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", key)


def _cast(tensor: Tensor | None, device_type: str) -> Tensor | None:
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.float32) if tensor.device.type == device_type else tensor


# ---- calls ----


def _aside(norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None) -> Tensor:
    """A call that is not plain: PyTorch must see it, or its memory is only estimated."""
    if is_estimated() and tuple(x.shape[-len(shape) :]) == shape and not _are_functorch_transforms_active():
        made = forward(norm, x, shape, weight, bias, eps, True)
        y: Tensor = Norm.apply(x, weight, bias, made)  # type: ignore[no-untyped-call]
        return y
    return pytorch_norm(norm, x, shape, weight, bias, eps)


def _compute(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None
) -> Tensor:
    """Plain tensors. PyTorch computes what the kernels do not have."""
    if x is None or x.is_meta or 0 in shape:  # a mistake, or nothing to compute
        return pytorch_norm(norm, x, shape, weight, bias, eps)
    recorded = _needs_gradient(x, weight, bias)
    if recorded and norm == RMS_NORM:
        x, weight = _savable(x), _savable(weight)
    served: Tensor | None = eager_compute(norm, x, shape, weight, bias, eps)
    if served is not None:
        return served
    try:
        if not recorded:
            return attempt(norm, x, shape, weight, bias, eps, False)[0]
        made = forward(norm, x, shape, weight, bias, eps, False)
    except Refused as refusal:
        reason = str(refusal)
    else:
        return norm_apply(x, weight, bias, made)
    y = pytorch_norm(norm, x, shape, weight, bias, eps)
    fall_back(_OPS[norm], reason)
    return y


def _norm(
    norm: int, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float | None
) -> Tensor:
    if type(shape) is not tuple or eps is None:
        if not isinstance(shape, (tuple, list)) or (eps is None and norm == LAYER_NORM):
            return pytorch_norm(norm, x, shape, weight, bias, eps)  # which says what is wrong
        shape = tuple(shape)
    if _is_any_autocast_enabled() and isinstance(x, Tensor):
        device_type = x.device.type
        if torch.is_autocast_enabled(device_type) and _casts(_OPS[norm], device_type):
            x, weight, bias = (_cast(t, device_type) for t in (x, weight, bias))  # type: ignore[assignment]
    serve = _compute if is_plain(x, weight, bias) else _aside
    return serve(norm, x, shape, weight, bias, eps)


# torch.compile breaks its graph here, and calls the function as it is. (torch.compiler.disable would do the same, and
# take a second of everybody's import.)
_norm_outside_graphs: Callable[..., Tensor] = _disable_dynamo(_norm)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch.nn.functional.layer_norm: over the last dimensions of input, which normalized_shape names."""
    if is_dynamo_compiling():
        return _norm_outside_graphs(LAYER_NORM, input, normalized_shape, weight, bias, eps)
    y: Tensor | None = eager_forward(LAYER_NORM, input, normalized_shape, weight, bias, eps)
    if y is not None:
        return y
    if has_torch_function_variadic(input, weight, bias):
        return _handled(layer_norm, (input, weight, bias), input, normalized_shape, weight=weight, bias=bias, eps=eps)
    return _norm(LAYER_NORM, input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """torch.nn.functional.rms_norm. Without eps it is the epsilon of float32 (of float64, where input is that)."""
    if is_dynamo_compiling():
        return _norm_outside_graphs(RMS_NORM, input, normalized_shape, weight, None, eps)
    y: Tensor | None = eager_forward(RMS_NORM, input, normalized_shape, weight, None, eps)
    if y is not None:
        return y
    if has_torch_function_variadic(input, weight):
        return _handled(rms_norm, (input, weight), input, normalized_shape, weight=weight, eps=eps)
    return _norm(RMS_NORM, input, normalized_shape, weight, None, eps)


def _handled(function: Callable[..., Tensor], relevant: tuple[Any, ...], *args: Any, **options: Any) -> Tensor:
    result: Tensor = handle_torch_function(function, relevant, *args, **options)
    return result
