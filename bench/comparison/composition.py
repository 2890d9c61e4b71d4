"""What each op computes, in PyTorch's operations: the eager and compiled backends, and in float64 what every backend is
held against. SPDX-License-Identifier: MIT"""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from comparison.ops import Op

Norm = Callable[[str, Tensor, Tensor, Tensor | None, float], Tensor]
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": partial(F.gelu, approximate="tanh")}


def pytorch_norm(name: str, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    shape = weight.shape
    return F.layer_norm(x, shape, weight, bias, eps) if name == "layer_norm" else F.rms_norm(x, shape, weight, eps)


def compose(
    op: Op,
    eps: float,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gate: Tensor | None = None,
    x_bias: Tensor | None = None,
    norm: Norm = pytorch_norm,
) -> tuple[Tensor, ...]:
    """The op's outputs."""
    h = x if x_bias is None else x + x_bias
    if op.form == "add":
        h = h + residual
        return norm(op.norm, h, weight, bias, eps), h
    y = norm(op.norm, h, weight, bias, eps)
    if op.form == "residual":
        return (residual + y,)
    if op.form == "gated":
        return (y * ACTIVATIONS[op.activation](gate),)
    return (ACTIVATIONS[op.activation](y) if op.activation else y,)
