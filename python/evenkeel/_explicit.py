"""Forward and backward with explicit statistics, on arrays of any kind. SPDX-License-Identifier: MIT"""

from typing import Any

from evenkeel import _core
from evenkeel._ops import Array, Dtype, Shape, backward, forward


def layer_norm_forward(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    return_mean_lo: bool = False,
    *,
    residual: Array | None = None,
    x_bias: Array | None = None,
    residual_after: Array | None = None,
    gate: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    residual_dtype: Dtype = None,
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(y, mean, rstd), and mean_lo if asked for: what rounding took from the mean. With a residual, h comes last.

    The statistics have the leading dimensions of x, with group_cols also the number of groups, in f32 (f64, where x is
    f64). residual_after is the residual of
    layer_norm_residual, activation that of layer_norm_act, or with a gate that of layer_norm_gated. The other keywords
    are those of add_layer_norm.
    """
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual": residual, "x_bias": x_bias, "residual_dtype": residual_dtype, "statistics": 3}
    options |= {"residual_after": residual_after, "gate": gate}
    options |= {"activation": activation, "gate_first": gate_first or None, "group_cols": group_cols}
    found = forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)
    y, *h, mean, rstd, mean_lo = found
    return y, mean, rstd, *((mean_lo,) if return_mean_lo else ()), *h


def rms_norm_forward(
    x: Array,
    weight: Array | None = None,
    eps: float | None = None,
    *,
    residual: Array | None = None,
    x_bias: Array | None = None,
    residual_after: Array | None = None,
    gate: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    residual_dtype: Dtype = None,
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(y, rstd), and h with a residual, as layer_norm_forward."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual": residual, "x_bias": x_bias, "residual_dtype": residual_dtype, "statistics": 1}
    options |= {"residual_after": residual_after, "gate": gate}
    options |= {"activation": activation, "gate_first": gate_first or None, "group_cols": group_cols}
    found = forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, **options)
    y, *h, rstd = found
    return y, rstd, *h


def layer_norm_backward(
    dy: Array | None,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None = None,
    *,
    mean_lo: Array | None = None,
    need_dx: bool = True,
    need_dweight: bool = True,
    need_dbias: bool = True,
    dh: Array | None = None,
    bias: Array | None = None,
    x_bias: Array | None = None,
    gate: Array | None = None,
    need_dresidual: bool = False,
    need_dx_bias: bool = False,
    need_dgate: bool = False,
    weight_offset: float = 0.0,
    rounding: str = "once",
    activation: str | None = None,
    gate_first: bool = False,
    x_dtype: Dtype = None,
    gradient_dtype: Dtype = None,
    group_cols: int | None = None,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(dx, dweight, dbias), each None where it is not needed; then dresidual, dx_bias and dgate, where they are.

    Any mean and rstd will do, one element a row of x (or a group of it); with mean_lo the result is as exact far from
    zero as near it. Where forward had a residual, x is its h, and dh the gradient of h beside the norm; dy may then be
    None. Where it had an x_bias and no residual, backward needs it too; where it had an activation and a bias, the
    bias, but not with gate_first; where it had a gate, the gate. The flavours, the activation, gate_first and
    group_cols are those of forward.
    x_dtype: of dx and dgate, by default x's. gradient_dtype: of dweight, dbias and dx_bias, by default that of weight
    (bias, x_bias), or f32.
    """
    flavour: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "activation": activation}
    flavour |= {"gate_first": gate_first or None, "group_cols": group_cols}
    options: dict[str, Any] = {**flavour, "x_dtype": x_dtype, "gradient_dtype": gradient_dtype}
    inputs = {"dy": dy, "x": x, "weight": weight, "dh": dh, "bias": bias, "x_bias": x_bias}
    inputs |= {"gate": gate, "mean": mean, "rstd": rstd}
    if mean_lo is not None:
        inputs["mean_lo"] = mean_lo
    needs = {"dx": need_dx, "dweight": need_dweight, "dbias": need_dbias}
    needs |= {"dresidual": need_dresidual, "dx_bias": need_dx_bias, "dgate": need_dgate}
    return backward(_core.LAYER_NORM, inputs, needs, normalized_shape, threads, stream, **options)


def rms_norm_backward(
    dy: Array | None,
    x: Array,
    rstd: Array,
    weight: Array | None = None,
    *,
    need_dx: bool = True,
    need_dweight: bool = True,
    dh: Array | None = None,
    x_bias: Array | None = None,
    gate: Array | None = None,
    need_dresidual: bool = False,
    need_dx_bias: bool = False,
    need_dgate: bool = False,
    weight_offset: float = 0.0,
    rounding: str = "once",
    activation: str | None = None,
    gate_first: bool = False,
    x_dtype: Dtype = None,
    gradient_dtype: Dtype = None,
    group_cols: int | None = None,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(dx, dweight), then dresidual, dx_bias and dgate where they are needed, as layer_norm_backward."""
    flavour: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "activation": activation}
    flavour |= {"gate_first": gate_first or None, "group_cols": group_cols}
    options: dict[str, Any] = {**flavour, "x_dtype": x_dtype, "gradient_dtype": gradient_dtype}
    inputs = {"dy": dy, "x": x, "weight": weight, "dh": dh, "bias": None, "x_bias": x_bias}
    inputs |= {"gate": gate, "rstd": rstd}
    needs = {"dx": need_dx, "dweight": need_dweight, "dbias": False}
    needs |= {"dresidual": need_dresidual, "dx_bias": need_dx_bias, "dgate": need_dgate}
    dx, dweight, _, *more = backward(_core.RMS_NORM, inputs, needs, normalized_shape, threads, stream, **options)
    return dx, dweight, *more
