"""The norms in PyTorch's operations: for calls that PyTorch must see, for what the kernels lack, and for derivatives of
backward. The order of operations is that of docs/numerics.md; the bits are PyTorch's. SPDX-License-Identifier: MIT"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evenkeel.torch._call import (
    DTYPES,
    LAYER_NORM,
    PLAIN,
    Call,
    Gradients,
    Known,
    Options,
    Outputs,
    Shape,
    groups_of,
)

# ---- activations ----


def _sigmoid_slope(t: Tensor) -> Tensor:
    s = t.sigmoid()
    return s * (1 - s)


def _silu_slope(t: Tensor) -> Tensor:
    s = t.sigmoid()
    return s * (1 + t * (1 - s))


def _gelu_slope(t: Tensor) -> Tensor:
    density = (t.square() * -0.5).exp() * math.sqrt(0.5 / math.pi)
    return (t * -math.sqrt(0.5)).erfc() * 0.5 + t * density


def _gelu_tanh_slope(t: Tensor) -> Tensor:
    square, scale, cubic = t.square(), math.sqrt(2 / math.pi), 0.044715
    s = (t * (1 + cubic * square) * (2 * scale)).sigmoid()  # (1 + tanh(half of it)) / 2
    return s * (1 + t * (1 - s) * (1 + 3 * cubic * square) * (2 * scale))


class _Activation(NamedTuple):
    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]  # its derivative, which has derivatives of every order


ACTIVATIONS = {
    "sigmoid": _Activation(torch.sigmoid, _sigmoid_slope),
    "silu": _Activation(F.silu, _silu_slope),
    "gelu": _Activation(F.gelu, _gelu_slope),
    "gelu_tanh": _Activation(partial(F.gelu, approximate="tanh"), _gelu_tanh_slope),
}


# ---- forward ----


def _pytorch_norm(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None
) -> Tensor:
    if norm == LAYER_NORM:
        return F.layer_norm(x, shape, weight, bias, eps)  # type: ignore[arg-type]
    y = F.rms_norm(x, shape, weight, eps)
    return y if bias is None else y + bias


def _group_norm(
    norm: int,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float | None,
    group_cols: int | None,
) -> Tensor:
    """The norm of each group of a row, times weight, plus bias; without groups PyTorch's own."""
    if group_cols is None:
        return _pytorch_norm(norm, x, shape, weight, bias, eps)
    if tuple(x.shape[x.dim() - len(shape) :]) != tuple(shape):
        return _pytorch_norm(norm, x, shape, weight, bias, eps)  # which says what is wrong
    y = _pytorch_norm(norm, _in_groups(x, shape, group_cols), (group_cols,), None, None, eps).reshape(x.shape)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _in_groups(x: Tensor, shape: Shape, group_cols: int) -> Tensor:
    return x.reshape(*x.shape[: x.dim() - len(shape)], groups_of(shape, group_cols), group_cols)


def _require_operands(call: Call) -> None:
    """What PyTorch's norm, which sees no residual, does not look at."""
    operands = {name.removesuffix("_after"): t for name, t in call.inputs._asdict().items() if t is not None}
    for name, tensor in {"x": call.inputs.x, **operands}.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is of type {type(tensor).__name__}; expected a tensor")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} is {tensor.dtype}; expected float32, float16, bfloat16 or float64")
    rows = call.inputs.x.shape
    shapes = {"residual": rows, "gate": rows} | dict.fromkeys(("x_bias", "weight", "bias"), call.shape)
    for name, shape in shapes.items():
        tensor = operands.get(name)
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have {tuple(shape)}")


def _wide(tensor: Any, dtype: torch.dtype) -> Any:
    return None if tensor is None else tensor.to(dtype)


def pytorch(call: Call) -> Outputs:
    """The same by PyTorch: by its own function, where it has one, or where that says what is wrong with the shape."""
    if call.is_plain or not isinstance(call.shape, (tuple, list)):
        y = _pytorch_norm(call.norm, call.inputs.x, call.shape, call.inputs.weight, call.inputs.bias, call.eps)
        return Outputs(y, None, None)
    _require_operands(call)
    x, _, _, residual, *_ = call.inputs
    inner = x.dtype if residual is None else residual.dtype
    dtype = torch.float64 if torch.float64 in (x.dtype, inner, call.out_dtype) else torch.float32
    wide, weight, bias, added, x_bias, after, gate = (_wide(tensor, dtype) for tensor in call.inputs)
    activation = None if call.flavour.activation is None else ACTIVATIONS[call.flavour.activation].value
    if activation is not None and gate is not None:
        gate, activation = activation(gate), None
    if gate is not None and call.flavour.gate_first:
        wide, gate = wide * gate, None
    if x_bias is not None:
        wide = wide + x_bias
    h = None
    if residual is not None:
        h = (wide + added).to(inner)
        wide = h.to(dtype)
    if weight is not None and call.flavour.weight_offset:
        weight = weight + call.flavour.weight_offset
    group_cols = call.flavour.group_cols
    if call.flavour.rounding == PLAIN.rounding:
        y = _group_norm(call.norm, wide, call.shape, weight, bias, call.eps, group_cols)
    else:
        y = _group_norm(call.norm, wide, call.shape, None, None, call.eps, group_cols).to(inner).to(dtype)
        y = y if weight is None else y * weight
        y = y if bias is None else y + bias
        y = y.to(call.out_dtype).to(dtype)
    y = y if activation is None else activation(y)
    y = y if gate is None else y * gate
    y = y if after is None else y + after
    return Outputs(y.to(call.out_dtype), h, None)


# ---- backward ----


def columns_dtype(known: Known, options: Options) -> torch.dtype:
    """Of dweight, dbias and dx_bias."""
    columns = (t.dtype for t in (known.weight, known.bias, known.x_bias) if t is not None)
    return options.columns_dtype or next(columns, known.x.dtype)


def _mean(x: Tensor, options: Options) -> Tensor:
    """Over a row, or over each group of it, in a shape that broadcasts to that of x."""
    if options.group_cols is None:
        return x.mean(tuple(range(-len(options.shape), 0)), keepdim=True)
    groups = _in_groups(x, options.shape, options.group_cols)
    return groups.mean(-1, keepdim=True).expand(groups.shape).reshape(x.shape)


def _normalized(x: Tensor, options: Options) -> tuple[Tensor, Tensor]:
    """xhat and rstd."""
    if options.norm == LAYER_NORM:
        x = x - _mean(x, options)
    eps = torch.finfo(x.dtype).eps if options.eps is None else options.eps
    rstd = (_mean(x.square(), options) + eps).rsqrt()
    return x * rstd, rstd


def by_formula(known: Known, options: Options) -> Gradients:
    """All gradients, in PyTorch's operations, which have derivatives of every order."""
    dy, dh, x, weight, bias, x_bias, gate = known
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    rows = tuple(range(x.dim() - len(options.shape)))
    h = x.to(dtype) if x_bias is None else x.to(dtype) + x_bias.to(dtype)
    activation = None if options.activation is None else ACTIVATIONS[options.activation]
    dgate = None
    gate = None if gate is None else gate.to(dtype)
    factor, slope = (None, None) if activation is None or gate is None else (f(gate) for f in activation)
    xhat, rstd = _normalized(h * factor if factor is not None and options.gate_first else h, options)
    dy = torch.zeros_like(xhat) if dy is None else dy.to(dtype)
    weight = None if weight is None else weight.to(dtype) + options.weight_offset
    if activation is not None and not options.gate_first:
        affine = xhat if weight is None else xhat * weight
        affine = affine if bias is None else affine + bias.to(dtype)
        dgate = None if slope is None else dy * affine * slope
        dy = dy * (activation.slope(affine) if factor is None else factor)
    g = dy if weight is None else dy * weight
    inner = g - xhat * _mean(g * xhat, options)
    if options.norm == LAYER_NORM:
        inner = inner - _mean(g, options)
    dx = inner * rstd if dh is None else inner * rstd + dh.to(dtype)
    if factor is not None and slope is not None and options.gate_first:
        dx, dgate = dx * factor, dx * h * slope
    rounded = xhat if options.rounding == PLAIN.rounding else xhat.to(x.dtype).to(dtype)
    sums = (c.sum(rows) if rows else c for c in (dy * rounded, dy, dx))  # an empty list would mean all dimensions
    dweight, dbias, dx_bias = (s.to(columns_dtype(known, options)) for s in sums)
    inner_dtype, dtype = x.dtype, DTYPES[options.dtype - 1]
    return Gradients(dx.to(dtype), dweight, dbias, dx.to(inner_dtype), dx_bias, _wide(dgate, dtype))
