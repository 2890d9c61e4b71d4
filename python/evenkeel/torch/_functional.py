"""The norms as functions: chooses evenkeel or PyTorch for a call, and its autograd.

A call on plain tensors goes straight to the kernels. PyTorch's operations compute where PyTorch must see the call
(subclasses, modes, transforms, tracing) and where evenkeel has no kernel for a dtype, a layout or a device.
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

from evenkeel._core import (
    check_flavour,
    eager_add_compute,
    eager_add_forward,
    eager_compute,
    eager_forward,
    eager_setup,
    is_plain,
)
from evenkeel.torch import _kernels
from evenkeel.torch._autograd import (
    AddNorm,
    Norm,
    Refused,
    add_backward,
    add_norm_apply,
    attempt,
    backward,
    forward,
    norm_apply,
    operands_of,
)
from evenkeel.torch._call import DTYPES, LAYER_NORM, PLAIN, RMS_NORM, Call, Flavour, Inputs
from evenkeel.torch._composed import pytorch
from evenkeel.torch._fallback import fall_back
from evenkeel.torch._ledger import is_estimated

# A plain call is served in C. (Older PyTorch cannot be.)
eager_setup(
    Tensor,
    Parameter,
    torch.empty_like,
    Tensor.new_empty,
    DTYPES,
    Tensor.contiguous,
    Tensor.is_neg,
    torch.get_num_threads,
    torch.is_grad_enabled,
    (norm_apply, add_norm_apply) if _kernels.HAS_EXCHANGE else None,
    (backward, add_backward),
    vars(forward_ad),
    (_len_torch_dispatch_stack, _are_functorch_transforms_active, _is_tracing),
    (_len_torch_function_stack, _is_any_autocast_enabled),
)


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _savable(tensor: Any) -> Any:
    """A copy of an inference tensor, which autograd does not save. PyTorch's rms_norm on the CPU accepts one."""
    return tensor.clone() if tensor is not None and tensor.is_inference() else tensor


def _with_savable(inputs: Inputs) -> Inputs:
    inputs = inputs._replace(weight=_savable(inputs.weight))
    return inputs if inputs.residual is not None else inputs._replace(x=_savable(inputs.x))


# ---- autocast ----


@cache
def _casts(op: str, device_type: str) -> bool:
    """Whether autocast computes the op in float32 there: PyTorch's own lists say so."""
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}.get(device_type)
    return key is not None and torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", key)


def _cast(tensor: Any, device_type: str) -> Any:
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.float32) if tensor.device.type == device_type else tensor


def _autocast(call: Call) -> Call:
    """The call under autocast. Where it has a residual, x and the sum keep their dtypes, and y is float32."""
    device_type = call.inputs.x.device.type
    op = "layer_norm" if call.norm == LAYER_NORM else "rms_norm"
    if not torch.is_autocast_enabled(device_type) or not _casts(op, device_type):
        return call
    if call.inputs.residual is None:
        return call._replace(inputs=Inputs(*(_cast(tensor, device_type) for tensor in call.inputs)))
    x, weight, bias, residual, x_bias = call.inputs
    columns = (_cast(tensor, device_type) for tensor in (weight, bias, x_bias))
    weight, bias, x_bias = columns
    flavour = call.flavour._replace(out_dtype=call.flavour.out_dtype or _kernels.statistics_dtype(x))
    return call._replace(inputs=Inputs(x, weight, bias, residual, x_bias), flavour=flavour)


# ---- calls ----


def _aside(call: Call) -> Any:
    """A call that is not plain: PyTorch must see it, or its memory is only estimated."""
    inputs, shape = call.inputs, call.shape
    if is_estimated() and tuple(inputs.x.shape[-len(shape) :]) == shape and not _are_functorch_transforms_active():
        node = Norm if inputs.residual is None else AddNorm
        return node.apply(*operands_of(call, forward(call, True)))  # type: ignore[no-untyped-call]
    return pytorch(call).results


def _eager(call: Call) -> Any:
    """By C; None: some tensors must be copied first."""
    x, weight, bias, residual, x_bias = call.inputs
    norm, _, shape, eps, flavour = call
    if residual is None:
        return eager_compute(norm, x, shape, weight, bias, eps, *flavour)
    return eager_add_compute(norm, x, residual, shape, weight, bias, eps, x_bias, *flavour, None)


def _compute(call: Call) -> Any:
    """Plain tensors. PyTorch computes what the kernels do not have."""
    x = call.inputs.x
    if x is None or x.is_meta or 0 in call.shape:  # a mistake, or nothing to compute
        return pytorch(call).results
    recorded = _needs_gradient(*call.inputs)
    if recorded and call.norm == RMS_NORM:
        call = call._replace(inputs=_with_savable(call.inputs))
    served = _eager(call)
    if served is not None:
        return served
    try:
        if not recorded:
            return attempt(call, False).results
        made = forward(call, False)
    except Refused as refusal:
        reason = str(refusal)
    else:
        apply = norm_apply if call.inputs.residual is None else add_norm_apply
        return apply(*operands_of(call, made))
    results = pytorch(call).results
    fall_back(call.name, reason)
    return results


def with_residual(call: Call, dtype: torch.dtype | None) -> Call:
    """The call with its residual in the dtype of h: the one given, else what PyTorch would add x and residual in."""
    x, residual = call.inputs.x, call.inputs.residual
    if not isinstance(x, Tensor) or not isinstance(residual, Tensor):
        raise TypeError(
            f"x is of type {type(x).__name__} and residual of type {type(residual).__name__}; expected tensors"
        )
    dtype = dtype or torch.promote_types(x.dtype, residual.dtype)
    return call._replace(inputs=call.inputs._replace(residual=residual.to(dtype)))


def _serve(call: Call) -> Any:
    if type(call.shape) is not tuple or call.eps is None:
        if not isinstance(call.shape, (tuple, list)) or (call.eps is None and call.norm == LAYER_NORM):
            return pytorch(call).results  # which says what is wrong
        call = call._replace(shape=tuple(call.shape))
    if _is_any_autocast_enabled() and isinstance(call.inputs.x, Tensor):
        call = _autocast(call)
    return (_compute if is_plain(*call.inputs) else _aside)(call)


def _checked(flavour: Flavour, residual_dtype: torch.dtype | None) -> Flavour:
    check_flavour(flavour.weight_offset, flavour.rounding, flavour.out_dtype, residual_dtype)
    return flavour


def _norm(
    norm: int,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = None,
    **flavour: Any,
) -> Any:
    checked = _checked(Flavour(**flavour), None)
    return _serve(Call(norm, Inputs(input, weight, bias), normalized_shape, eps, checked))


def _add_norm(
    norm: int,
    x: Tensor,
    residual: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float | None = None,
    x_bias: Tensor | None = None,
    residual_dtype: torch.dtype | None = None,
    **flavour: Any,
) -> Any:
    checked = _checked(Flavour(**flavour), residual_dtype)
    call = Call(norm, Inputs(x, weight, bias, residual, x_bias), normalized_shape, eps, checked)
    return _serve(with_residual(call, residual_dtype))


_DEFAULTS = {**PLAIN._asdict(), "residual_dtype": None}


def _leave(function: Callable[..., Any], serve: Callable[..., Any], norm: int, *args: Any, **options: Any) -> Any:
    """A call that C has not served. Subclasses and modes see the flavours that are not the defaults."""
    relevant = *args, *options.values()
    if has_torch_function_variadic(*relevant):
        shown = {name: v for name, v in options.items() if name not in _DEFAULTS or v != _DEFAULTS[name]}
        return handle_torch_function(function, relevant, *args, **shown)
    return serve(norm, *args, **options)


# torch.compile breaks its graph here, and calls the function as it is. (torch.compiler.disable would do the same, and
# take a second of everybody's import.)
_leave_graph: Callable[..., Any] = _disable_dynamo(_leave)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.nn.functional.layer_norm: over the last dimensions of input, which normalized_shape names.

    weight_offset 1.0: 1 + weight is used for weight. rounding "each": the normalized values round to the dtype of input
    before they are multiplied by weight. out_dtype: of the result, by default that of input.
    """
    leave: Callable[..., Tensor] = _leave_graph
    if not is_dynamo_compiling():
        y: Tensor | None = eager_forward(
            LAYER_NORM, input, normalized_shape, weight, bias, eps, weight_offset, rounding, out_dtype
        )
        if y is not None:
            return y
        leave = _leave
    flavour = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options = {"weight": weight, "bias": bias, "eps": eps, **flavour}
    return leave(layer_norm, _norm, LAYER_NORM, input, normalized_shape, **options)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.nn.functional.rms_norm. Without eps it is the epsilon of float32 (of float64, where input is that).

    The keywords are those of layer_norm.
    """
    leave: Callable[..., Tensor] = _leave_graph
    if not is_dynamo_compiling():
        y: Tensor | None = eager_forward(
            RMS_NORM, input, normalized_shape, weight, None, eps, weight_offset, rounding, out_dtype
        )
        if y is not None:
            return y
        leave = _leave
    flavour = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    return leave(rms_norm, _norm, RMS_NORM, input, normalized_shape, weight=weight, eps=eps, **flavour)


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(y, h) with h = (x + x_bias) + residual and y = layer_norm(h), in one pass over memory.

    The sum is computed in float32 and rounded once, to residual_dtype: by default the dtype of x + residual. A residual
    of another dtype is converted to it first. The other keywords are those of layer_norm; y has the dtype of x.
    """
    leave: Callable[..., tuple[Tensor, Tensor]] = _leave_graph
    if not is_dynamo_compiling():
        made: tuple[Tensor, Tensor] | None = eager_add_forward(
            LAYER_NORM,
            x,
            residual,
            normalized_shape,
            weight,
            bias,
            eps,
            x_bias,
            weight_offset,
            rounding,
            out_dtype,
            residual_dtype,
        )
        if made is not None:
            return made
        leave = _leave
    flavour = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options = {"weight": weight, "bias": bias, "eps": eps, "x_bias": x_bias, "residual_dtype": residual_dtype}
    return leave(add_layer_norm, _add_norm, LAYER_NORM, x, residual, normalized_shape, **options, **flavour)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """(y, h) with h = (x + x_bias) + residual and y = rms_norm(h), as add_layer_norm."""
    leave: Callable[..., tuple[Tensor, Tensor]] = _leave_graph
    if not is_dynamo_compiling():
        made: tuple[Tensor, Tensor] | None = eager_add_forward(
            RMS_NORM,
            x,
            residual,
            normalized_shape,
            weight,
            None,
            eps,
            x_bias,
            weight_offset,
            rounding,
            out_dtype,
            residual_dtype,
        )
        if made is not None:
            return made
        leave = _leave
    flavour = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options = {"weight": weight, "eps": eps, "x_bias": x_bias, "residual_dtype": residual_dtype}
    return leave(add_rms_norm, _add_norm, RMS_NORM, x, residual, normalized_shape, **options, **flavour)
