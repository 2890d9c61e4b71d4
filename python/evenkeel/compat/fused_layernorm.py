"""FusedLayerNorm and fused_layer_norm, with the arguments of the CUDA extensions named after Apex's. Apex's own are in
apex.py.

They follow PyTorch's rules, on CPU and GPU, for inputs of any dimensions. SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evenkeel.compat._refusal import lacks
from evenkeel.torch import LayerNorm, layer_norm

__all__ = ["FusedLayerNorm", "fused_layer_norm"]


class FusedLayerNorm(LayerNorm):
    """evenkeel.torch.LayerNorm; the size may also be called hidden_size. memory_efficient changes nothing."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int] | None = None,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
        *,
        hidden_size: int | None = None,
        bias: bool = True,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if (normalized_shape is None) == (hidden_size is None):
            given = f"normalized_shape is {normalized_shape}, hidden_size is {hidden_size}"
            raise TypeError(f"FusedLayerNorm: {given}: give one of them")
        if not isinstance(memory_efficient, bool):  # a device or a dtype, in the place that they have in PyTorch
            raise lacks("FusedLayerNorm", "memory_efficient", memory_efficient, "write the arguments' names")
        shape: Any = hidden_size if normalized_shape is None else normalized_shape
        super().__init__(shape, eps, elementwise_affine, bias, device, dtype)


def fused_layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """evenkeel.torch.layer_norm; the size may be one number."""
    if isinstance(weight, float):  # Apex's form without weights: eps comes third
        raise TypeError(f"fused_layer_norm: weight is {weight}, no tensor: write eps={weight}")
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    return layer_norm(input, shape, weight, bias, eps)
