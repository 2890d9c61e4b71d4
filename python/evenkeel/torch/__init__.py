"""evenkeel for PyTorch: norms, gated activations and RoPE with PyTorch's names, arguments, errors and autograd.

    from evenkeel.torch import LayerNorm          # in place of torch.nn.LayerNorm
    evenkeel.torch.replace(model)                 # or in a model that exists

The same bits on CPU and GPU, at any batch size. SPDX-License-Identifier: MIT
"""

from evenkeel.torch import _version as _version  # first: an older PyTorch lacks what the others import
from evenkeel.torch._block import PreNormBlock, ReorderedNormBlock
from evenkeel.torch._explicit import layer_norm_backward, layer_norm_forward, rms_norm_backward, rms_norm_forward
from evenkeel.torch._fallback import set_fallback
from evenkeel.torch._from_hf import from_hf
from evenkeel.torch._functional import (
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
from evenkeel.torch._glu import bias_act, geglu, glu, swiglu
from evenkeel.torch._memory import MemoryEstimate, memory_estimate
from evenkeel.torch._modules import LayerNorm, RMSNorm
from evenkeel.torch._register import register
from evenkeel.torch._replace import replace, restore
from evenkeel.torch._rope import qk_norm_rope, rope

__all__ = [
    "LayerNorm",
    "MemoryEstimate",
    "PreNormBlock",
    "RMSNorm",
    "ReorderedNormBlock",
    "add_layer_norm",
    "add_rms_norm",
    "bias_act",
    "from_hf",
    "geglu",
    "glu",
    "layer_norm",
    "layer_norm_act",
    "layer_norm_backward",
    "layer_norm_forward",
    "layer_norm_gated",
    "layer_norm_gelu",
    "layer_norm_residual",
    "memory_estimate",
    "qk_norm_rope",
    "register",
    "replace",
    "restore",
    "rms_norm",
    "rms_norm_act",
    "rms_norm_backward",
    "rms_norm_forward",
    "rms_norm_gated",
    "rms_norm_residual",
    "rope",
    "set_fallback",
    "swiglu",
]
