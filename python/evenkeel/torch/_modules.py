"""The modules: those of PyTorch with another forward. SPDX-License-Identifier: MIT"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evenkeel._core import check_flavour
from evenkeel.torch._call import PLAIN
from evenkeel.torch._functional import layer_norm, rms_norm


class _Flavoured(torch.nn.Module):
    """The flavours of a norm. Modules that replace() takes over have those of the class."""

    weight_offset: float = PLAIN.weight_offset
    rounding: str = PLAIN.rounding
    weight: Any

    def __init__(self, *given: Any, weight_offset: float, rounding: str) -> None:
        check_flavour(weight_offset, rounding, None, None)
        super().__init__(*given)
        if rounding != self.rounding:
            self.rounding = rounding
        if weight_offset != self.weight_offset:
            self.weight_offset = weight_offset
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """With an offset of 1 the weight starts at zeros, so that the norm starts as PyTorch's does."""
        super().reset_parameters()  # type: ignore[misc]
        if self.weight_offset and self.weight is not None:
            torch.nn.init.zeros_(self.weight)

    def extra_repr(self) -> str:
        own = {"weight_offset": self.weight_offset, "rounding": self.rounding}
        shown = [f"{name}={value!r}" for name, value in own.items() if value != getattr(PLAIN, name)]
        return ", ".join([super().extra_repr(), *shown])


class LayerNorm(_Flavoured, torch.nn.LayerNorm):
    """torch.nn.LayerNorm, computed by evenkeel: the same arguments, parameters, state and representation.

    In addition it takes the keywords weight_offset and rounding of evenkeel.torch.layer_norm.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        weight_offset: float = PLAIN.weight_offset,
        rounding: str = PLAIN.rounding,
    ) -> None:
        given = normalized_shape, eps, elementwise_affine, bias, device, dtype
        super().__init__(*given, weight_offset=weight_offset, rounding=rounding)

    def forward(self, input: Tensor) -> Tensor:
        shape, eps, offset, rounding = self.normalized_shape, self.eps, self.weight_offset, self.rounding
        return layer_norm(input, shape, self.weight, self.bias, eps, weight_offset=offset, rounding=rounding)


class RMSNorm(_Flavoured, torch.nn.RMSNorm):
    """torch.nn.RMSNorm, computed by evenkeel, as LayerNorm."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        weight_offset: float = PLAIN.weight_offset,
        rounding: str = PLAIN.rounding,
    ) -> None:
        given = normalized_shape, eps, elementwise_affine, device, dtype
        super().__init__(*given, weight_offset=weight_offset, rounding=rounding)

    def forward(self, x: Tensor) -> Tensor:
        offset, rounding = self.weight_offset, self.rounding
        return rms_norm(x, self.normalized_shape, self.weight, self.eps, weight_offset=offset, rounding=rounding)
