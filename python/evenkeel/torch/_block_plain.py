"""The parts of a transformer block in PyTorch's operations: what a block with fused=False computes.

_block.py writes the blocks over these functions; _block_fused.py has the same ones by evenkeel's kernels.
SPDX-License-Identifier: MIT
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module

from evenkeel.torch._block_options import Feedforward, Heads, Rotation
from evenkeel.torch._composed import ACTIVATIONS


def product(x: Tensor, linear: Linear, forks: bool = False) -> tuple[Tensor, Tensor | None, Tensor]:
    """x times the weight, the bias that is still to be added, and x; forks: that is used past the product."""
    return linear(x), None, x


def product_and_bias(x: Tensor, linear: Linear) -> Tensor:
    return linear(x)  # type: ignore[no-any-return]


def norm_of(is_layer: bool, x: Tensor, shape: Any, weight: Any, bias: Any, eps: float | None, offset: float) -> Tensor:
    """LayerNorm or RMSNorm by PyTorch's function."""
    if weight is not None and offset:
        weight = weight + offset
    return F.layer_norm(x, shape, weight, bias, eps or 0.0) if is_layer else F.rms_norm(x, shape, weight, eps)


def norm(x: Tensor, module: Any) -> Tensor:
    """What a LayerNorm or RMSNorm of evenkeel.torch computes."""
    is_layer, bias = isinstance(module, torch.nn.LayerNorm), getattr(module, "bias", None)
    return norm_of(is_layer, x, module.normalized_shape, module.weight, bias, module.eps, module.weight_offset)


def norm_and_residual(x: Tensor, module: Module) -> tuple[Tensor, Tensor]:
    """norm(x), and x, which is added to something later."""
    return norm(x, module), x


def add_norm(x: Tensor, bias: Tensor | None, residual: Tensor, module: Module) -> tuple[Tensor, Tensor]:
    """norm(h), and h = x + bias + residual."""
    h = (x if bias is None else x + bias) + residual
    return norm(h, module), h


def norm_add(x: Tensor, bias: Tensor | None, residual: Tensor, module: Module) -> Tensor:
    """residual + norm(x + bias)."""
    return residual + norm(x if bias is None else x + bias, module)


def activate(x: Tensor, bias: Tensor | None, kind: Feedforward) -> Tensor:
    """The activation of x + bias; gated, that of the first half of its columns times the second."""
    x = x if bias is None else x + bias
    activation = ACTIVATIONS[kind.activation].value
    if not kind.is_gated:
        return activation(x)
    gate, value = x.chunk(2, -1)
    return activation(gate) * value


def turned(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int, interleaved: bool) -> Tensor:
    """RoPE of the leading elements of each head of [batch, seq, heads, head_dim], in float32 and rounded once."""
    cos, sin = (table[..., : rotary_dim // 2].unsqueeze(-2) for table in (cos, sin))
    turning = x[..., :rotary_dim]
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else turning.chunk(2, -1)
    pair = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((turned.to(x.dtype), x[..., rotary_dim:]), -1)


def heads(
    x: Tensor,
    linear: Linear,
    cut: Heads,
    norms: tuple[Any, Any],
    rotation: Rotation | None,
    tables: tuple[Tensor, Tensor] | None,
    forks: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k and v as [batch, heads, seq, head_dim], from one product: the norms of q and k, then RoPE. And x.

    The norms are None, of a head, or of all heads of a token; without a rotation and its tables nothing turns.
    """
    qkv, made = linear(x), []
    for part, module in zip(torch.split(qkv, cut.columns, -1), (*norms, None), strict=True):
        is_full = module is not None and module.normalized_shape != (cut.head_dim,)
        part = cut.of(norm(part, module) if is_full else part)
        made.append(part if module is None or is_full else norm(part, module))
    if rotation is not None and tables is not None:
        made[:2] = [turned(part, *tables, rotation.rotary_dim, rotation.interleaved) for part in made[:2]]
    q, k, v = (part.transpose(1, 2) for part in made)
    return q, k, v, x
