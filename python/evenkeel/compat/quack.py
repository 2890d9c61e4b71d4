"""layernorm and rmsnorm with quack's arguments, results and dtypes.

x may have any number of dimensions and lie on the CPU as well; what is normalized is its last one. Results have x's
dtype, under autocast too; a weight of another dtype is used in float32, and its gradient comes back in its own.
SPDX-License-Identifier: MIT
"""

from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.compiler import is_compiling

import evenkeel.torch
from evenkeel.compat._autocast import without_autocast
from evenkeel.compat._refusal import lacks
from evenkeel.torch import _kernels
from evenkeel.torch._kernels import LAYER_NORM, RMS_NORM
from evenkeel.torch._statistics import NormAndStatistics

__all__ = ["QuackRMSNorm", "layernorm", "layernorm_bwd", "layernorm_fwd", "rmsnorm", "rmsnorm_bwd", "rmsnorm_fwd"]

_INSTEAD = {
    "residual": "add it to x before the call",
    "residual_dtype": "cast x before the call",
    "out_dtype": "cast the result",
    "prenorm": "add the residual before the call, and keep the sum",
    "dresidual_out": "add it to dx after the call",
}


def _refuse(call: str, x: Tensor, **asked: object) -> None:
    """Nothing may be asked for that is not None, False or x's own dtype."""
    for argument, value in asked.items():
        if value is not None and value is not False and value is not x.dtype:
            raise lacks(call, argument, value, _INSTEAD[argument])


def _columns(
    call: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, weight_offset: float = 0.0
) -> tuple[Tensor | None, Tensor | None]:
    """weight + weight_offset and bias, in a dtype that goes with x: all in x's, else float32."""
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dim() != 1:
            raise lacks(call, name, tensor, "it must be one row; for a weight per head, normalize, then multiply")
    if weight_offset and weight is None:
        raise ValueError(f"{call}: weight_offset is {weight_offset} and weight is None: there is nothing to add it to")
    given = [tensor for tensor in (weight, bias) if tensor is not None]
    if weight_offset or any(tensor.dtype is not x.dtype for tensor in given):
        weight, bias = (_widened(tensor, x) for tensor in (weight, bias))
    return (weight + weight_offset if weight is not None and weight_offset else weight), bias


def _widened(tensor: Tensor | None, x: Tensor) -> Tensor | None:
    """16-bit tensors in the dtype of x's statistics; others as they are."""
    narrow = tensor is not None and tensor.dtype in (torch.float16, torch.bfloat16)
    return tensor.to(_kernels.statistics_dtype(x)) if narrow and tensor is not None else tensor


# ---- forward, with statistics ----


def _norm_and_statistics(
    norm: int, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    """y, with gradients, and the statistics without: of LayerNorm mean, rstd, mean_lo, of RMSNorm rstd."""
    options = norm, tuple(x.shape[-1:]), eps
    y, stats = NormAndStatistics.apply(x, weight, bias, options)  # type: ignore[no-untyped-call]
    return y, *(row.view(x.shape[:-1]) for row in stats.unbind())


_outside_graphs = _disable_dynamo(_norm_and_statistics)


def _compute(norm: int, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    """_norm_and_statistics; torch.compile breaks its graph here."""
    return (_outside_graphs if is_compiling() else _norm_and_statistics)(norm, x, weight, bias, eps)


def chosen(out: Any, rstd: Any, mean: Any, return_rstd: bool, return_mean: bool) -> Any:
    """out, or (out[, rstd][, mean])."""
    statistics = (*((rstd,) if return_rstd else ()), *((mean,) if return_mean else ()))
    return (out, *statistics) if statistics else out


# ---- LayerNorm ----


def _layernorm(
    call: str, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, return_rstd: bool, return_mean: bool
) -> Any:
    columns = _columns(call, x, weight, bias)
    if not (return_rstd or return_mean):
        with without_autocast(x):
            return evenkeel.torch.layer_norm(x, x.shape[-1:], *columns, eps)
    out, mean, rstd, _ = _compute(LAYER_NORM, x, *columns, eps)
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
    columns, _ = _columns("layernorm_bwd", x, weight, None)
    dx, dweight, dbias = _backward(LAYER_NORM, x, weight, columns, dout, (mean, rstd), has_bias)
    assert dweight is not None
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
) -> Tensor:
    """x / sqrt(mean(x**2) + eps) * (weight + weight_offset) + bias, differentiable."""
    _refuse("rmsnorm", x, residual=residual, out_dtype=out_dtype, residual_dtype=residual_dtype, prenorm=prenorm)
    weight, bias = _columns("rmsnorm", x, weight, bias, weight_offset)
    if bias is not None:
        return _compute(RMS_NORM, x, weight, bias, eps)[0]
    with without_autocast(x):
        return evenkeel.torch.rms_norm(x, x.shape[-1:], weight, eps)


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
    """(out, x, rstd), without autograd: x where its sum with a residual would be, rstd None without store_rstd."""
    _refuse("rmsnorm_fwd", x, residual=residual, out_dtype=out_dtype, residual_dtype=residual_dtype)
    columns = _columns("rmsnorm_fwd", x, weight, bias, weight_offset)
    out, rstd = _compute(RMS_NORM, x, *columns, eps)
    return out, x, rstd if store_rstd else None


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
    """(dx, dweight, dbias, dresidual): dbias is None without has_bias, dresidual is dx with has_residual, else None."""
    _refuse("rmsnorm_bwd", x, dresidual_out=dresidual_out)
    columns, _ = _columns("rmsnorm_bwd", x, weight, None, weight_offset)
    dx, dweight, dbias = _backward(RMS_NORM, x, weight, columns, dout, (rstd,), has_bias)
    return dx, dweight, dbias, dx if has_residual else None


class QuackRMSNorm(evenkeel.torch.RMSNorm):
    """evenkeel.torch.RMSNorm with quack's arguments and its eps, for weights of any 16- or 32-bit dtype."""

    def __init__(
        self,
        dim: int,
        eps: float = 1e-6,
        elementwise_affine: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dim, eps, elementwise_affine, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        assert self.eps is not None
        return rmsnorm(x, self.weight, eps=self.eps)


# ---- backward ----


@torch.no_grad()
def _backward(
    norm: int,
    x: Tensor,
    weight: Tensor | None,
    columns: Tensor | None,
    dout: Tensor,
    stats: tuple[Tensor, ...],
    has_bias: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(dx, dweight, dbias) of a call with the weight `columns`, the last two in the dtype of weight."""
    columns_dtype = x.dtype if columns is None else columns.dtype
    needs = True, weight is not None, has_bias
    gradients = _kernels.empty_gradients(x, tuple(x.shape[-1:]), columns_dtype, *needs)
    dx, dweight, dbias = _kernels.backward(norm, dout, x, tuple(x.shape[-1:]), columns, stats, gradients)
    assert dx is not None
    dtype = columns_dtype if weight is None else weight.dtype
    return dx, None if dweight is None else dweight.to(dtype), None if dbias is None else dbias.to(dtype)
