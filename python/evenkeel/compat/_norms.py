"""The norms for dtypes that other libraries take and evenkeel's kernels do not: operands widen, results round.

A float32 result that is cast afterwards has the same bits as one that the kernel rounds. Called by apex.py, liger.py
and quack.py. SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.compiler import is_compiling

import evenkeel.torch
from evenkeel.torch import _functional, _kernels
from evenkeel.torch._autocast import without_autocast
from evenkeel.torch._call import ADD_NORM, LAYER_NORM, NORM, RMS_NORM

_NARROW = torch.float16, torch.bfloat16


def columns_for(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, weight_offset: float = 0.0
) -> tuple[Tensor | None, Tensor | None, float]:
    """weight, bias and weight_offset as the kernels take them: all in the dtype of x, else float32; an offset of 0 or 1
    (others are added here)."""
    given = [tensor for tensor in (weight, bias) if tensor is not None]
    added = 0.0 if weight_offset in (0.0, 1.0) else weight_offset
    if added or any(tensor.dtype is not x.dtype for tensor in given):
        weight, bias = (_widened(tensor, x) for tensor in (weight, bias))
    if weight is None:
        return None, bias, 0.0
    return (weight + added, bias, 0.0) if added else (weight, bias, weight_offset)


def _widened(tensor: Tensor | None, x: Tensor) -> Tensor | None:
    """In the dtype of x's statistics at least."""
    return None if tensor is None else tensor.to(torch.promote_types(tensor.dtype, _kernels.statistics_dtype(x)))


def kernel_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype | None:
    """The dtype that the kernels have for a result of this dtype, or for its gradient; None: that of x."""
    if dtype is None or dtype is x.dtype:
        return None
    wide = _kernels.statistics_dtype(x)
    direct = dtype is wide or (x.dtype is torch.float32 and dtype in _NARROW)
    return dtype if direct else wide


def residual_for(x: Tensor, residual: Tensor, dtype: torch.dtype) -> Tensor:
    """The residual in the dtype that the kernels sum in, where the sum is wanted in `dtype`."""
    is_plain = residual.dtype is dtype is x.dtype
    return residual.to(x.dtype if is_plain else _kernels.statistics_dtype(x))


_serve_outside_graphs = _disable_dynamo(_functional.serve)


def norm_of_any_dtype(
    norm: int,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """The norm with any dtypes, of which autocast changes nothing. RMSNorm may have a bias."""
    out_dtype = out_dtype or x.dtype
    if torch.float64 in (t.dtype for t in (weight, bias) if t is not None):
        x = x.double()
    weight, bias, offset = columns_for(x, weight, bias, weight_offset)
    options: Any = {"weight_offset": offset, "rounding": rounding, "out_dtype": kernel_dtype(x, out_dtype)}
    options["group_cols"] = group_cols
    with without_autocast(x):
        if norm == LAYER_NORM:
            y = evenkeel.torch.layer_norm(x, shape, weight, bias, eps, **options)
        elif bias is None:
            y = evenkeel.torch.rms_norm(x, shape, weight, eps, **options)
        else:
            serve = _serve_outside_graphs if is_compiling() else _functional.serve
            y = serve(NORM, RMS_NORM, x, shape, weight, bias, eps, *options.values())
    return y.to(out_dtype)


def add_rms_norm_of_any_dtype(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    residual_dtype: torch.dtype,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    shape: Sequence[int] | None = None,
    group_cols: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(y, h) with h = x + residual in residual_dtype, as norm_of_any_dtype, by default over the last dimension."""
    shape = x.shape[-1:] if shape is None else shape
    weight, bias, offset = columns_for(x, weight, bias, weight_offset)
    options: Any = {"weight_offset": offset, "rounding": rounding, "out_dtype": kernel_dtype(x, out_dtype)}
    residual = residual_for(x, residual, residual_dtype)
    with without_autocast(x):
        if bias is None:
            y, h = evenkeel.torch.add_rms_norm(x, residual, shape, weight, eps, group_cols=group_cols, **options)
        else:
            serve = _serve_outside_graphs if is_compiling() else _functional.serve
            rows = shape, weight, bias, eps
            y, h = serve(ADD_NORM, RMS_NORM, x, residual, *rows, None, *options.values(), None, group_cols)
    return y.to(out_dtype or x.dtype), h.to(residual_dtype)
