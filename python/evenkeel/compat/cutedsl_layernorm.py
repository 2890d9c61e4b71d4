"""LayerNorm as kernels made from quack's offer it: with a backend's name, on tensors of PyTorch or of another library.

quack's other functions are here too, in quack's order of arguments. SPDX-License-Identifier: MIT
"""

from typing import Any

from torch import Tensor

import evenkeel
from evenkeel.compat import quack
from evenkeel.compat._refusal import lacks
from evenkeel.compat.quack import layernorm_bwd, layernorm_fwd, rmsnorm, rmsnorm_bwd, rmsnorm_fwd
from evenkeel.torch import LayerNorm

__all__ = [
    "CuTeDSLLayerNorm",
    "cutedsl_layernorm",
    "is_cutedsl_available",
    "layernorm",
    "layernorm_bwd",
    "layernorm_fwd",
    "rmsnorm",
    "rmsnorm_bwd",
    "rmsnorm_fwd",
]


def layernorm(
    x: Any,
    weight: Any,
    *,
    bias: Any = None,
    eps: float = 1e-6,
    return_rstd: bool = False,
    return_mean: bool = False,
    backend: str = "auto",
) -> Any:
    """out, or (out[, rstd][, mean]): with autograd of PyTorch's tensors; of other arrays without, and without a copy.

    backend is "auto" or "cutedsl": evenkeel computes either.
    """
    if backend not in ("auto", "cutedsl"):
        raise lacks("layernorm", "backend", backend, "leave it out, or call torch.nn.functional.layer_norm")
    if isinstance(x, Tensor):
        return quack.layernorm(x, weight, bias=bias, eps=eps, return_rstd=return_rstd, return_mean=return_mean)
    if not (return_rstd or return_mean):
        return evenkeel.layer_norm(x, weight, bias, eps)
    out, mean, rstd = evenkeel.layer_norm_forward(x, weight, bias, eps)
    return quack.chosen(out, rstd, mean, return_rstd, return_mean)


cutedsl_layernorm = layernorm


def is_cutedsl_available() -> bool:
    """True: evenkeel serves these calls wherever it can be imported."""
    return True


class CuTeDSLLayerNorm(LayerNorm):
    """evenkeel.torch.LayerNorm with three arguments."""

    def __init__(self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)
