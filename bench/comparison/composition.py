"""What each op computes, in PyTorch's operations: the eager and compiled backends, and in float64 what every backend is
held against. SPDX-License-Identifier: MIT"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from comparison.ops import OPERANDS, Op

Norm = Callable[[str, Tensor, Tensor, Tensor | None, float], Tensor]
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


def pytorch_norm(name: str, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    shape = weight.shape
    return F.layer_norm(x, shape, weight, bias, eps) if name == "layer_norm" else F.rms_norm(x, shape, weight, eps)


def to_heads(x: Tensor, head_dim: int) -> Tensor:
    """[rows, cols] as one sequence, [1, heads, rows, head_dim]."""
    return x.view(1, x.shape[0], -1, head_dim).transpose(1, 2)


def from_heads(x: Tensor) -> Tensor:
    """[rows, heads, head_dim]"""
    return x.squeeze(0).transpose(0, 1)  # not x[0], whose gradient is filled with zeros first


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As Hugging Face's models write it."""
    first, second = x.chunk(2, -1)
    return from_heads(x * cos + torch.cat((-second, first), -1) * sin)


def compose(
    op: Op, eps: float, head_dim: int, *operands: Tensor | None, norm: Norm = pytorch_norm
) -> tuple[Tensor, ...]:
    """The op's outputs; those of rope are [rows, heads, head_dim]."""
    given = dict(zip(OPERANDS, operands, strict=True))
    x, weight, bias, residual, gate, x_bias = (given[name] for name in OPERANDS[:6])
    if op.form == "rope":
        sides = []
        for tensor, own in ((x, weight), (given["k"], given["k_weight"])):
            heads = to_heads(tensor, head_dim)
            heads = norm(op.norm, heads, own, None, eps) if op.norm else heads
            sides.append(_turned(heads, given["cos"], given["sin"]))
        return tuple(sides)
    h = x if x_bias is None else x + x_bias
    if op.form == "glu":
        value, value_bias = given["value"], given["value_bias"]
        return (ACTIVATIONS[op.activation](h) * (value if value_bias is None else value + value_bias),)
    if op.form == "add":
        h = h + residual
        return norm(op.norm, h, weight, bias, eps), h
    y = norm(op.norm, h, weight, bias, eps)
    if op.form == "residual":
        return (residual + y,)
    if op.form == "gated":
        return (y * ACTIVATIONS[op.activation](gate),)
    return (ACTIVATIONS[op.activation](y) if op.activation else y,)
