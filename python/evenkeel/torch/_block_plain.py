"""The parts of a transformer block in PyTorch's operations: what a block with fused=False computes.

_block.py writes the blocks over these functions; _block_fused.py has the same ones by evenkeel's kernels.
SPDX-License-Identifier: MIT
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module

from evenkeel.torch._block_options import Feedforward, Heads
from evenkeel.torch._composed import ACTIVATIONS


def product(x: Tensor, linear: Linear) -> tuple[Tensor, Tensor | None]:
    """x times the weight, and the bias that is still to be added."""
    return F.linear(x, linear.weight, linear.bias), None


def norm(x: Tensor, norm: Any) -> Tensor:
    """A LayerNorm or RMSNorm of evenkeel.torch by PyTorch's function."""
    weight = norm.weight
    if weight is not None and norm.weight_offset:
        weight = weight + norm.weight_offset
    if isinstance(norm, torch.nn.LayerNorm):
        return F.layer_norm(x, norm.normalized_shape, weight, norm.bias, norm.eps)
    return F.rms_norm(x, norm.normalized_shape, weight, norm.eps)


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


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """RoPE of the leading elements of each head of [batch, seq, heads, head_dim], in float32 and rounded once."""
    rotary_dim = 2 * cos.shape[-1]
    cos, sin, turning = cos.unsqueeze(-2), sin.unsqueeze(-2), x[..., :rotary_dim]
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else turning.chunk(2, -1)
    pair = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat((turned.to(x.dtype), x[..., rotary_dim:]), -1)


def heads(
    x: Tensor,
    linear: Linear,
    cos: Tensor | None,
    sin: Tensor | None,
    cut: Heads,
    interleaved: bool,
    q_norm: Any,
    k_norm: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as [batch, heads, seq, head_dim], from one product: the norm of q and k, then RoPE.

    The norms are of a head or of all heads of a token; without cos and sin nothing turns.
    """
    qkv, made = F.linear(x, linear.weight, linear.bias), []
    for x, module in zip(torch.split(qkv, cut.columns, -1), (q_norm, k_norm, None), strict=True):
        is_full = module is not None and module.normalized_shape != (cut.head_dim,)
        x = (norm(x, module) if is_full else x).view(*x.shape[:-1], -1, cut.head_dim)
        made.append(x if module is None or is_full else norm(x, module))
    if cos is not None and sin is not None:
        made[:2] = [_turned(x, cos, sin, interleaved) for x in made[:2]]
    q, k, v = (x.transpose(1, 2) for x in made)
    return q, k, v
