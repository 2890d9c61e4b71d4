"""Fused norms, gated activations and RoPE, forward and backward: the same bits on CPU and GPU.

The functions take any array with DLPack or the buffer protocol (NumPy, CuPy, array.array, ...) and return arrays of
the same kind. They know nothing of automatic differentiation: evenkeel.torch has it for PyTorch.

SPDX-License-Identifier: MIT
"""

from evenkeel._core import info
from evenkeel._core import version as __version__
from evenkeel._explicit import layer_norm_backward, layer_norm_forward, rms_norm_backward, rms_norm_forward
from evenkeel._glu import bias_act, bias_act_backward, geglu, glu, glu_backward, swiglu
from evenkeel._ops import (
    add_layer_norm,
    add_rms_norm,
    layer_norm,
    layer_norm_act,
    layer_norm_gated,
    layer_norm_gelu,
    layer_norm_residual,
    rms_norm,
    rms_norm_act,
    rms_norm_gated,
    rms_norm_residual,
)
from evenkeel._rope import qk_norm_rope, qk_norm_rope_backward, rope, rope_backward
from evenkeel._rope_tables import rope_tables

__all__ = [
    "__version__",
    "add_layer_norm",
    "add_rms_norm",
    "bias_act",
    "bias_act_backward",
    "geglu",
    "glu",
    "glu_backward",
    "info",
    "layer_norm",
    "layer_norm_act",
    "layer_norm_backward",
    "layer_norm_forward",
    "layer_norm_gated",
    "layer_norm_gelu",
    "layer_norm_residual",
    "qk_norm_rope",
    "qk_norm_rope_backward",
    "rms_norm",
    "rms_norm_act",
    "rms_norm_backward",
    "rms_norm_forward",
    "rms_norm_gated",
    "rms_norm_residual",
    "rope",
    "rope_backward",
    "rope_tables",
    "swiglu",
]
