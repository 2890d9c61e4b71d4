"""Forward and backward with explicit statistics, and no autograd. SPDX-License-Identifier: MIT"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evenkeel._core import check_activation, check_flavour
from evenkeel.torch import _kernels
from evenkeel.torch._call import LAYER_NORM, RMS_NORM, Call, Flavour, Inputs, Shape, check_groups, groups_of
from evenkeel.torch._functional import with_residual


class Gradients(NamedTuple):
    dx: Tensor | None
    dweight: Tensor | None
    dbias: Tensor | None


def _normalized(x: Tensor, *columns: Tensor | None) -> Shape:
    """The shape of weight, bias or x_bias, else x's last dimension."""
    return tuple(next((t.shape for t in columns if t is not None), x.shape[-1:]))


def _leading(x: Tensor, shape: Shape, group_cols: int | None) -> Shape:
    """Of statistics: the leading dimensions of x and, where there are groups, their number."""
    groups = () if group_cols is None else (groups_of(shape, group_cols),)
    return *x.shape[: x.dim() - len(shape)], *groups


def _forward(
    norm: int,
    inputs: Inputs,
    eps: float | None,
    count: int,
    weight_offset: float,
    rounding: str,
    out_dtype: torch.dtype | None,
    residual_dtype: torch.dtype | None,
    activation: str | None,
    gate_first: bool,
    group_cols: int | None,
) -> tuple[Tensor, ...]:
    """y, the first `count` statistics, which have the leading dimensions of x, and h where there is a residual."""
    check_flavour(weight_offset, rounding, out_dtype, residual_dtype)
    if residual_dtype is not None and inputs.residual is None:
        raise ValueError(f"residual_dtype ({residual_dtype}) is the dtype of h, and residual is None; expected None")
    if activation is not None:
        check_activation(activation, gate_first)
    shape = _normalized(inputs.x, inputs.weight, inputs.bias, inputs.x_bias)
    group_cols = check_groups(shape, group_cols)
    flavour = Flavour(weight_offset, rounding, out_dtype, activation, gate_first, group_cols)
    call = Call(norm, inputs, shape, eps, flavour)
    for name, dtype in (("residual", residual_dtype), ("residual_after", None)):
        if getattr(inputs, name) is not None:
            call = with_residual(call, name, dtype)
    y, h, stats = _kernels.forward(call, True)
    assert stats is not None
    rows = [row.view(_leading(inputs.x, shape, group_cols)) for row in stats.unbind()]
    return y, *rows[:count], *(() if h is None else (h,))


def _backward(
    norm: int,
    dy: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    stats: tuple[Tensor, ...],
    needs: tuple[bool, ...],
    dh: Tensor | None,
    bias: Tensor | None,
    x_bias: Tensor | None,
    gate: Tensor | None,
    x_dtype: torch.dtype | None,
    gradient_dtype: torch.dtype | None,
    weight_offset: float,
    rounding: str,
    activation: str | None,
    gate_first: bool,
    group_cols: int | None,
) -> tuple[Any, ...]:
    """dx, dweight, dbias, dresidual, dx_bias and dgate."""
    check_flavour(weight_offset, rounding, None, None)
    if activation is not None:
        check_activation(activation, gate_first)
    shape = _normalized(x, weight, bias, x_bias)
    columns_dtype = gradient_dtype or next(t for t in (weight, bias, x_bias, x) if t is not None).dtype
    gradients = _kernels.empty_gradients(x, shape, columns_dtype, *needs, dtype=x_dtype)
    if not any(needs):
        return gradients
    more: dict[str, Any] = {"dh": dh, "bias": bias, "x_bias": x_bias, "gate": gate, "gate_first": gate_first}
    more |= {"weight_offset": weight_offset, "rounding": rounding, "activation": activation}
    more["group_cols"] = check_groups(shape, group_cols)
    return _kernels.backward(norm, dy, x, shape, weight, stats, gradients, dtype=x_dtype, **more)


def layer_norm_forward(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    return_mean_lo: bool = False,
    *,
    residual: Tensor | None = None,
    x_bias: Tensor | None = None,
    residual_after: Tensor | None = None,
    gate: Tensor | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
) -> tuple[Tensor, ...]:
    """(y, mean, rstd), and mean_lo if asked for: what rounding took from the mean. With a residual, h comes last.

    Normalized is the shape of weight (or bias), else the last dimension. The statistics are in float32, of a float64 x
    in float64, and have the leading dimensions of x, with group_cols also the number of groups. residual_after is the
    residual of layer_norm_residual, activation that of layer_norm_act, or with a gate that of layer_norm_gated; the
    gate has the dtype of x. The other keywords are those of add_layer_norm.
    """
    inputs = Inputs(x, weight, bias, residual, x_bias, residual_after, gate)
    count = 3 if return_mean_lo else 2
    flavour = weight_offset, rounding, out_dtype
    return _forward(LAYER_NORM, inputs, eps, count, *flavour, residual_dtype, activation, gate_first, group_cols)


def rms_norm_forward(
    x: Tensor,
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    residual: Tensor | None = None,
    x_bias: Tensor | None = None,
    residual_after: Tensor | None = None,
    gate: Tensor | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
) -> tuple[Tensor, ...]:
    """(y, rstd), and h with a residual, as layer_norm_forward."""
    inputs = Inputs(x, weight, None, residual, x_bias, residual_after, gate)
    flavour = weight_offset, rounding, out_dtype
    return _forward(RMS_NORM, inputs, eps, 1, *flavour, residual_dtype, activation, gate_first, group_cols)


def layer_norm_backward(
    dy: Tensor | None,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    mean_lo: Tensor | None = None,
    need_dx: bool = True,
    need_dweight: bool = True,
    need_dbias: bool = True,
    dh: Tensor | None = None,
    bias: Tensor | None = None,
    x_bias: Tensor | None = None,
    gate: Tensor | None = None,
    need_dresidual: bool = False,
    need_dx_bias: bool = False,
    need_dgate: bool = False,
    x_dtype: torch.dtype | None = None,
    gradient_dtype: torch.dtype | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
) -> Any:
    """(dx, dweight, dbias), each None where it is not needed. Any mean and rstd will do, one element a row of x, or
    a group of it.

    Where forward had a residual, x is its h, and dh the gradient of h beside the norm; dy may then be None. Where it
    had an x_bias and no residual, backward needs it too; where it had an activation and a bias, the bias, but not with
    gate_first; where it had a gate, the gate. dresidual, dx_bias and dgate follow if they are needed. dx and dgate have
    x_dtype, by default the dtype of x; dresidual is dx where they have one dtype. dweight, dbias and dx_bias have
    gradient_dtype: that of weight (bias, x_bias), by default, or float32.
    """
    stats = (mean, rstd) if mean_lo is None else (mean, rstd, mean_lo)
    needs = need_dx, need_dweight, need_dbias, need_dresidual, need_dx_bias, need_dgate
    more = dh, bias, x_bias, gate, x_dtype, gradient_dtype
    choices = weight_offset, rounding, activation, gate_first, group_cols
    found = _backward(LAYER_NORM, dy, x, weight, stats, needs, *more, *choices)
    return _asked(Gradients(*found[:3]), found, needs)


def _asked(gradients: tuple[Any, ...], found: tuple[Any, ...], needs: tuple[bool, ...]) -> Any:
    """The gradients, then dresidual, dx_bias and dgate where they are needed."""
    more = [g for g, need in zip(found[3:], needs[3:], strict=True) if need]
    return (*gradients, *more) if more else gradients


def rms_norm_backward(
    dy: Tensor | None,
    x: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    need_dx: bool = True,
    need_dweight: bool = True,
    dh: Tensor | None = None,
    x_bias: Tensor | None = None,
    gate: Tensor | None = None,
    need_dresidual: bool = False,
    need_dx_bias: bool = False,
    need_dgate: bool = False,
    x_dtype: torch.dtype | None = None,
    gradient_dtype: torch.dtype | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
) -> Any:
    """(dx, dweight), then dresidual, dx_bias and dgate if they are needed, as layer_norm_backward."""
    needs = need_dx, need_dweight, False, need_dresidual, need_dx_bias, need_dgate
    more = dh, None, x_bias, gate, x_dtype, gradient_dtype
    choices = weight_offset, rounding, activation, gate_first, group_cols
    found = _backward(RMS_NORM, dy, x, weight, (rstd,), needs, *more, *choices)
    return _asked(found[:2], found, needs)
