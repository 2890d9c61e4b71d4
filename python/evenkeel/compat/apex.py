"""The norms of apex.normalization, with Apex's arguments, defaults and dtypes: eps is 1e-5 in a module and 1e-6 in a
function.

Apex's rules for CUDA tensors apply on every device. Results have the dtype of the input, those of the mixed forms the
dtype of the weight; under autocast the operands are cast to its dtype first. memory_efficient is accepted and changes
nothing: backward keeps x, as without it. SPDX-License-Identifier: MIT
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evenkeel.compat._autocast import in_autocast_dtype
from evenkeel.compat._norms import norm_of_any_dtype
from evenkeel.torch import LayerNorm, RMSNorm
from evenkeel.torch._call import LAYER_NORM, RMS_NORM

__all__ = [
    "FusedLayerNorm",
    "FusedRMSNorm",
    "MixedFusedLayerNorm",
    "MixedFusedRMSNorm",
    "fused_layer_norm",
    "fused_layer_norm_affine",
    "fused_rms_norm",
    "fused_rms_norm_affine",
    "manual_rms_norm",
    "mixed_dtype_fused_layer_norm_affine",
    "mixed_dtype_fused_rms_norm_affine",
]


# ---- LayerNorm ----


def fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    normalized_shape: Sequence[int],
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """LayerNorm with weight and bias; the result has the dtype of input."""
    input, weight, bias = in_autocast_dtype(input, weight, bias)
    return norm_of_any_dtype(LAYER_NORM, input, normalized_shape, weight, bias, eps)


def fused_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """LayerNorm without weight and bias."""
    return fused_layer_norm_affine(input, None, None, normalized_shape, eps)


def mixed_dtype_fused_layer_norm_affine(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    normalized_shape: Sequence[int],
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """LayerNorm of which the result has the dtype of weight."""
    input, weight, bias = in_autocast_dtype(input, weight, bias)
    return norm_of_any_dtype(LAYER_NORM, input, normalized_shape, weight, bias, eps, out_dtype=weight.dtype)


# ---- RMSNorm ----


def fused_rms_norm_affine(
    input: Tensor,
    weight: Tensor | None,
    normalized_shape: Sequence[int],
    eps: float = 1e-6,
    memory_efficient: bool = False,
) -> Tensor:
    """RMSNorm with a weight; the result has the dtype of input."""
    input, weight = in_autocast_dtype(input, weight)
    return norm_of_any_dtype(RMS_NORM, input, normalized_shape, weight, None, eps)


def fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMSNorm without a weight."""
    return fused_rms_norm_affine(input, None, normalized_shape, eps)


def mixed_dtype_fused_rms_norm_affine(
    input: Tensor, weight: Tensor, normalized_shape: Sequence[int], eps: float = 1e-6, memory_efficient: bool = False
) -> Tensor:
    """RMSNorm of which the result has the dtype of weight."""
    input, weight = in_autocast_dtype(input, weight)
    return norm_of_any_dtype(RMS_NORM, input, normalized_shape, weight, None, eps, out_dtype=weight.dtype)


def manual_rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float) -> Tensor:
    """RMSNorm in float32 at least; a 16-bit weight gives the result its dtype, and the normalized values round to it
    before it multiplies them."""
    row = RMS_NORM, input, normalized_shape
    if weight is None or weight.dtype not in (torch.float16, torch.bfloat16):
        dtype = torch.promote_types(input.dtype, torch.float32 if weight is None else weight.dtype)
        return norm_of_any_dtype(*row, weight, None, eps, out_dtype=dtype)
    if weight.dtype is input.dtype:
        return norm_of_any_dtype(*row, weight, None, eps, rounding="each")
    return weight * norm_of_any_dtype(*row, None, None, eps, out_dtype=weight.dtype)


# ---- modules ----


class _Fused(torch.nn.Module):
    """The arguments and attributes of a module."""

    normalized_shape: tuple[int, ...]

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
        self.normalized_shape = torch.Size(self.normalized_shape)
        self.memory_efficient = memory_efficient


class _MixedFused(torch.nn.Module):
    """Those of a mixed module: it always has weights, and ignores options that it does not know."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, *, memory_efficient: bool = False, **kwargs: Any
    ) -> None:
        call, affine = type(self).__name__, kwargs.get("elementwise_affine", True)
        if "elementwise_affine" in kwargs:
            warnings.warn(f"{call} does not support the argument elementwise_affine", stacklevel=2)
        if not affine:
            raise RuntimeError(f"{call}: elementwise_affine is {affine}; expected True")
        super().__init__(normalized_shape, eps, True, memory_efficient)


class FusedLayerNorm(_Fused, LayerNorm):
    """apex.normalization.FusedLayerNorm, which is a torch.nn.LayerNorm here."""

    def forward(self, input: Tensor) -> Tensor:
        return fused_layer_norm_affine(input, self.weight, self.bias, self.normalized_shape, self.eps)


class FusedRMSNorm(_Fused, RMSNorm):
    """apex.normalization.FusedRMSNorm, which is a torch.nn.RMSNorm here."""

    eps: float

    def forward(self, input: Tensor) -> Tensor:
        return fused_rms_norm_affine(input, self.weight, self.normalized_shape, self.eps)


class MixedFusedLayerNorm(_MixedFused, FusedLayerNorm):
    """FusedLayerNorm of which the result has the dtype of the weight."""

    def forward(self, input: Tensor) -> Tensor:
        return mixed_dtype_fused_layer_norm_affine(input, self.weight, self.bias, self.normalized_shape, self.eps)


class MixedFusedRMSNorm(_MixedFused, FusedRMSNorm):
    """FusedRMSNorm of which the result has the dtype of the weight."""

    def forward(self, input: Tensor) -> Tensor:
        return mixed_dtype_fused_rms_norm_affine(input, self.weight, self.normalized_shape, self.eps)
