"""A call of a norm and its results, as the parts of this package pass them on. SPDX-License-Identifier: MIT"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from evenkeel import _core

LAYER_NORM = _core.LAYER_NORM
RMS_NORM = _core.RMS_NORM

# Those that the kernels have, by their numbers in the extension, which start with 1.
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

Shape = tuple[int, ...]


def number_of(dtype: torch.dtype) -> int:
    """0 for a dtype that the kernels do not have."""
    return DTYPES.index(dtype) + 1 if dtype in DTYPES else 0


class Inputs(NamedTuple):
    """The operands of forward. A residual is added before the norm: h = (x + x_bias) + residual."""

    x: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    x_bias: Tensor | None = None


class Flavour(NamedTuple):
    """What may differ from PyTorch's norms; the defaults are theirs."""

    weight_offset: float = 0.0
    rounding: str = "once"
    out_dtype: torch.dtype | None = None


PLAIN = Flavour()


class Call(NamedTuple):
    norm: int
    inputs: Inputs
    shape: Shape
    eps: float | None
    flavour: Flavour = PLAIN

    @property
    def name(self) -> str:
        """Of the function that was called."""
        norm = "layer_norm" if self.norm == LAYER_NORM else "rms_norm"
        return norm if self.inputs.residual is None else f"add_{norm}"

    @property
    def is_plain(self) -> bool:
        """Whether PyTorch has a function for it."""
        return self.inputs.residual is None and self.inputs.x_bias is None and self.flavour == PLAIN

    @property
    def out_dtype(self) -> torch.dtype:
        """Of y."""
        return self.flavour.out_dtype or self.inputs.x.dtype


class Outputs(NamedTuple):
    y: Tensor
    h: Tensor | None  # None without a residual
    stats: Tensor | None  # [3, rows]: mean, rstd, mean_lo; RMSNorm [1, rows]: rstd; None where they are not wanted

    @property
    def results(self) -> Any:
        """What the public functions return."""
        return self.y if self.h is None else (self.y, self.h)


class Options(NamedTuple):
    """What a node of autograd remembers beside tensors. The extension makes it too (enum option in eager.h)."""

    norm: int
    shape: Shape
    eps: float | None
    estimate: bool  # whether only memory is estimated
    columns_dtype: torch.dtype | None  # of bias and x_bias that come without a weight
    dtype: int  # of x
    weight_offset: float
    rounding: str


def options_of(call: Call, estimate: bool = False) -> Options:
    x, weight, bias, _, x_bias = call.inputs
    columns = next((t.dtype for t in (weight, bias, x_bias) if t is not None), None)
    return Options(
        call.norm,
        call.shape,
        call.eps,
        estimate,
        columns if weight is None else None,
        number_of(x.dtype),
        call.flavour.weight_offset,
        call.flavour.rounding,
    )


class Gradients(NamedTuple):
    """The results of backward; None for what is not needed."""

    dx: Any = None
    dweight: Any = None
    dbias: Any = None
    dresidual: Any = None  # dx itself, where both have one dtype
    dx_bias: Any = None
