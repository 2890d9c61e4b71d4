"""layernorm and rmsnorm with quack's arguments, results and dtypes.

x may have any number of dimensions and lie on the CPU as well; what is normalized is its last one. Results have x's
dtype unless another is asked for, under autocast too; a weight of another dtype is used in float32, and its gradient
comes back in its own. Where x and the residual have one dtype, their sum is normalized as it was rounded; quack
normalizes the sum before that. rmsnorm takes a weight (and a bias) for each head, (H, D): x is then (..., H, D), and
each head is normalized on its own.
SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.compiler import is_compiling

import evenkeel.torch
from evenkeel.compat._norms import (
    add_rms_norm_of_any_dtype,
    columns_for,
    kernel_dtype,
    norm_of_any_dtype,
    residual_for,
)
from evenkeel.compat._refusal import lacks
from evenkeel.torch import _kernels
from evenkeel.torch._call import LAYER_NORM, RMS_NORM, Call, Flavour, Inputs, Outputs
from evenkeel.torch._statistics import NormAndStatistics

__all__ = ["QuackRMSNorm", "layernorm", "layernorm_bwd", "layernorm_fwd", "rmsnorm", "rmsnorm_bwd", "rmsnorm_fwd"]


def _require_rows(call: str, **columns: Tensor | None) -> None:
    for name, tensor in columns.items():
        if tensor is not None and tensor.dim() != 1:
            raise lacks(call, name, tensor, "it must be one row")


def _row_of(call: str, x: Tensor, **columns: Tensor | None) -> tuple[tuple[int, ...], int | None]:
    """The shape of a row and how many elements of it are normalized at once: with a weight per head, (H, D) and D."""
    given = {name: tensor for name, tensor in columns.items() if tensor is not None}
    ndim = 2 if any(tensor.dim() == 2 for tensor in given.values()) else 1
    shape = tuple(x.shape[-ndim:])
    for name, tensor in given.items():
        if tensor.dim() != ndim or (ndim == 2 and tuple(tensor.shape) != shape):
            expected = f"{shape}, the heads of x and their elements" if ndim == 2 else "one row, or one for each head"
            raise lacks(call, name, tensor, f"it must be {expected}")
    return shape, shape[-1] if ndim == 2 else None


def _require_weight(call: str, weight: Tensor | None, weight_offset: float) -> None:
    if weight_offset and weight is None:
        raise ValueError(f"{call}: weight_offset is {weight_offset} and weight is None: there is nothing to add it to")


def _require_floating(call: str, **dtypes: torch.dtype | None) -> None:
    for name, dtype in dtypes.items():
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"{call}: {name} is {dtype}; expected a floating-point dtype")


def _require_shape(call: str, x: Tensor, **gradients: Tensor | None) -> None:
    for name, tensor in gradients.items():
        if tensor is not None and tensor.shape != x.shape:
            raise ValueError(f"{call}: {name} has shape {tuple(tensor.shape)}: it must have {tuple(x.shape)}")


# ---- forward, with statistics ----


def _norm_and_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """LayerNorm's y, with gradients, and mean, rstd and mean_lo without."""
    options = LAYER_NORM, tuple(x.shape[-1:]), eps, None
    y, stats = NormAndStatistics.apply(x, weight, bias, options)  # type: ignore[no-untyped-call]
    return y, *(row.view(x.shape[:-1]) for row in stats.unbind())


_norm_and_statistics_outside_graphs = _disable_dynamo(_norm_and_statistics)


def chosen(out: Any, rstd: Any, mean: Any, return_rstd: bool, return_mean: bool) -> Any:
    """out, or (out[, rstd][, mean])."""
    statistics = (*((rstd,) if return_rstd else ()), *((mean,) if return_mean else ()))
    return (out, *statistics) if statistics else out


# ---- LayerNorm ----


def _layernorm(
    call: str, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, return_rstd: bool, return_mean: bool
) -> Any:
    _require_rows(call, weight=weight, bias=bias)
    if not (return_rstd or return_mean):
        return norm_of_any_dtype(LAYER_NORM, x, x.shape[-1:], weight, bias, eps)
    compute = _norm_and_statistics_outside_graphs if is_compiling() else _norm_and_statistics
    out, mean, rstd, _ = compute(x, *columns_for(x, weight, bias)[:2], eps)
    return chosen(out, rstd, mean, return_rstd, return_mean)


def layernorm(
    x: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    eps: float = 1e-6,
    return_rstd: bool = False,
    return_mean: bool = False,
) -> Any:
    """out, or (out[, rstd][, mean]); out is differentiable, the statistics are not."""
    return _layernorm("layernorm", x, weight, bias, eps, return_rstd, return_mean)


@torch.no_grad()
def layernorm_fwd(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    eps: float = 1e-6,
    return_rstd: bool = False,
    return_mean: bool = False,
) -> Any:
    """layernorm without autograd."""
    return _layernorm("layernorm_fwd", x, weight, bias, eps, return_rstd, return_mean)


def layernorm_bwd(
    x: Tensor, weight: Tensor, dout: Tensor, rstd: Tensor, mean: Tensor, has_bias: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(dx, dweight, dbias) from the statistics of layernorm_fwd, or any others; dbias is None without has_bias."""
    _require_rows("layernorm_bwd", weight=weight)
    _require_shape("layernorm_bwd", x, dout=dout)
    dx, dweight, dbias, _ = _backward(LAYER_NORM, x, weight, dout, (mean, rstd), has_bias)
    return dx, dweight, dbias


# ---- RMSNorm ----


def rmsnorm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    eps: float = 1e-6,
    prenorm: bool = False,
    weight_offset: float = 0.0,
) -> Any:
    """x / sqrt(mean(x**2) + eps) * (weight + weight_offset) + bias, of h = x + residual where there is one.

    With prenorm it is (out, h). out has out_dtype, by default that of x; h has residual_dtype, by default that of
    residual. Both are differentiable. A weight (and bias) of two dimensions has a row for each head of x, (..., H, D).
    """
    shape, group_cols = _row_of("rmsnorm", x, weight=weight, bias=bias)
    _require_weight("rmsnorm", weight, weight_offset)
    _require_floating("rmsnorm", out_dtype=out_dtype, residual_dtype=residual_dtype)
    options: Any = {"out_dtype": out_dtype, "weight_offset": weight_offset, "group_cols": group_cols}
    if residual is None:
        out, h = (
            norm_of_any_dtype(RMS_NORM, x, shape, weight, bias, eps, **options),
            x.to(residual_dtype or x.dtype),
        )
    else:
        options |= {"shape": shape, "residual_dtype": residual_dtype or residual.dtype}
        out, h = add_rms_norm_of_any_dtype(x, residual, weight, bias, eps, **options)
    return (out, h) if prenorm else out


def _forward(call: Call) -> Outputs:
    return _kernels.forward(call, True)


_forward_outside_graphs = _disable_dynamo(_forward)


@torch.no_grad()
def rmsnorm_fwd(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    eps: float = 1e-6,
    store_rstd: bool = False,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """(out, h, rstd), without autograd, as rmsnorm: h is x itself without a residual and a residual_dtype; rstd is
    None without store_rstd."""
    shape, group_cols = _row_of("rmsnorm_fwd", x, weight=weight, bias=bias)
    _require_weight("rmsnorm_fwd", weight, weight_offset)
    _require_floating("rmsnorm_fwd", out_dtype=out_dtype, residual_dtype=residual_dtype)
    weight, bias, offset = columns_for(x, weight, bias, weight_offset)
    dtype = residual_dtype or (x if residual is None else residual).dtype
    if residual is not None:
        residual = residual_for(x, residual, dtype)
    flavour = Flavour(offset, out_dtype=kernel_dtype(x, out_dtype), group_cols=group_cols)
    call = Call(RMS_NORM, Inputs(x, weight, bias, residual), shape, eps, flavour)
    out, h, stats = (_forward_outside_graphs if is_compiling() else _forward)(call)
    rstd = stats[0].view(x.shape[:-1]) if store_rstd and stats is not None else None
    return out.to(out_dtype or x.dtype), (x if h is None else h).to(dtype), rstd


def rmsnorm_bwd(
    x: Tensor,
    weight: Tensor | None,
    dout: Tensor,
    rstd: Tensor,
    dresidual_out: Tensor | None = None,
    has_bias: bool = False,
    has_residual: bool = False,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """(dx, dweight, dbias, dresidual): x is the h of rmsnorm_fwd, dresidual_out the gradient that h has from elsewhere.

    dbias is None without has_bias; it has weight's shape, and without a weight that of x's last dimension, also where
    rmsnorm_fwd had a bias per head. dresidual is dx with has_residual, else None; where dresidual_out has another dtype
    than x, it is what dx is, in that dtype.
    """
    row = _row_of("rmsnorm_bwd", x, weight=weight)
    _require_weight("rmsnorm_bwd", weight, weight_offset)
    _require_shape("rmsnorm_bwd", x, dout=dout, dresidual_out=dresidual_out)
    dx, dweight, dbias, dresidual = _backward(
        RMS_NORM, x, weight, dout, (rstd,), has_bias, weight_offset, dresidual_out, row
    )
    return dx, dweight, dbias, dx if dresidual is None and has_residual else dresidual


class QuackRMSNorm(evenkeel.torch.RMSNorm):
    """evenkeel.torch.RMSNorm with quack's arguments and its eps, for weights of any 16- or 32-bit dtype. With a size
    (H, D), each head is normalized on its own."""

    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float = 1e-6,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dim, eps, elementwise_affine, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        assert self.eps is not None
        return rmsnorm(x, self.weight, eps=self.eps)  # type: ignore[no-any-return]


# ---- backward ----


@torch.no_grad()
def _backward(
    norm: int,
    x: Tensor,
    weight: Tensor | None,
    dout: Tensor,
    stats: tuple[Tensor, ...],
    has_bias: bool,
    weight_offset: float = 0.0,
    dh: Tensor | None = None,
    row: tuple[tuple[int, ...], int | None] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(dx, dweight, dbias, dresidual): the columns in the dtype of weight; dresidual where dh has another than x."""
    columns, _, offset = columns_for(x, weight, None, weight_offset)
    shape, group_cols = row or (tuple(x.shape[-1:]), None)
    columns_dtype = (x if columns is None else columns).dtype
    dy = dout.to(kernel_dtype(x, dout.dtype) or x.dtype)
    h, is_mixed = x, dh is not None and dh.dtype is not x.dtype
    if dh is not None and is_mixed:
        h = x.to(_kernels.statistics_dtype(x))
        dh, asked = dh.to(h.dtype), dh.dtype
    needs = True, weight is not None, has_bias, is_mixed
    gradients = _kernels.empty_gradients(h, shape, columns_dtype, *needs, dtype=x.dtype)
    options: Any = {"dh": dh, "dtype": x.dtype, "weight_offset": offset, "group_cols": group_cols}
    dx, *sums, dresidual, _, _ = _kernels.backward(norm, dy, h, shape, columns, stats, gradients, **options)
    dweight, dbias = (None if s is None else s.to(columns_dtype if weight is None else weight.dtype) for s in sums)
    return dx, dweight, dbias, dresidual.to(asked) if is_mixed else None
