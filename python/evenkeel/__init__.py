"""Fused LayerNorm and RMSNorm, forward and backward: the same bits on CPU and GPU.

The functions take any array with DLPack or the buffer protocol (NumPy, CuPy, array.array, ...) and return arrays of
the same kind. They know nothing of automatic differentiation: evenkeel.torch has it for PyTorch.

SPDX-License-Identifier: MIT
"""

from evenkeel._core import info
from evenkeel._core import version as __version__
from evenkeel._ops import (
    layer_norm,
    layer_norm_backward,
    layer_norm_forward,
    rms_norm,
    rms_norm_backward,
    rms_norm_forward,
)

__all__ = [
    "__version__",
    "info",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
]
