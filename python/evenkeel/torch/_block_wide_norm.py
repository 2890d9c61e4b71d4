"""The heads of a packed product whose q and k are normalized over all heads of a token before RoPE, as in OLMo 2.

The norms read q and k where the product wrote them. Backward writes what RoPE's kernel gives into the packed gradient,
and the norms' kernels overwrite it there. _block_heads.py calls it. SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evenkeel.torch import _block_plain, _kernels, _only_memory
from evenkeel.torch._block_bias import copy_and_sum
from evenkeel.torch._call import LAYER_NORM, Call, Flavour, Gradients, Inputs
from evenkeel.torch._ledger import is_estimated
from evenkeel.torch._recompute import Tensors


class WideNorm(NamedTuple):
    """Of q and of k."""

    kind: int  # LAYER_NORM or RMS_NORM
    eps: float
    weight_offset: float

    def forward(self, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The result, and the statistics."""
        call = Call(self.kind, Inputs(x, weight), x.shape[-1:], self.eps, Flavour(weight_offset=self.weight_offset))
        made = (_only_memory.forward if is_estimated() else _kernels.forward)(call, True)
        return made.y, made.stats

    def backward(self, dx: Tensor, x: Tensor, weight: Tensor | None, stats: Any, dweight: Tensor | None) -> None:
        """dx has the gradient of the result, which it overwrites."""
        compute = _only_memory.backward if is_estimated() else _kernels.backward
        made = Gradients(dx, dweight)
        compute(self.kind, dx, x, x.shape[-1:], weight, stats, made, weight_offset=self.weight_offset)

    def composed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        is_layer = self.kind == LAYER_NORM
        return _block_plain.norm_of(is_layer, x, x.shape[-1:], weight, None, self.eps, self.weight_offset)


class NormedHeads(NamedTuple):
    """A call, of (qkv, bias, cos, sin, q_weight, k_weight), as that of the heads, whose RoPE has no norm of its own."""

    heads: Any
    norm: WideNorm
    stats: list[Any]  # of q and of k, which forward leaves here for backward: a few numbers a token

    @property
    def name(self) -> str:
        return "layer_norm" if self.norm.kind == LAYER_NORM else "rms_norm"

    def kept(self, inputs: Tensors) -> Tensors:
        return inputs

    def stand_ins(self, kept: Tensors) -> Tensors:
        return kept

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        qkv, _, cos, sin, *weights = inputs
        assert qkv is not None
        *parts, _ = torch.split(qkv, self.heads.cut.columns, -1)
        normed = [self.norm.forward(x, weight) for x, weight in zip(parts, weights, strict=True)]
        self.stats[:] = [stats for _, stats in normed]
        *_, v = self.heads.parts(qkv)
        q, k = (self.heads.cut.of(y) for y, _ in normed)
        return self.heads.turn_parts(q, k, v, cos, sin)  # type: ignore[no-any-return]

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
        qkv, bias, cos, sin, *weights = kept
        assert qkv is not None
        packed, *_ = self.heads.backward(gradients, (qkv, None, cos, sin, None, None), (True, *(False,) * 5))
        *parts, _ = torch.split(qkv, self.heads.cut.columns, -1)
        *made, _ = torch.split(packed, self.heads.cut.columns, -1)
        dweights = []
        for dx, x, weight, stats, need in zip(made, parts, weights, self.stats, needs[4:], strict=True):
            dweights.append(torch.empty_like(weight) if weight is not None and need else None)
            self.norm.backward(dx, x, weight, stats, dweights[-1])
        dbias = torch.empty_like(bias) if bias is not None and needs[1] else None
        if dbias is not None:
            copy_and_sum(packed, None, dbias)
        return packed, dbias, None, None, *dweights

    def composed(self, *inputs: Any) -> tuple[Tensor | None, ...]:
        qkv, bias, cos, sin, *weights = inputs
        if bias is not None:
            qkv = qkv + (bias - bias.detach()).to(qkv.dtype)
        *parts, v = torch.split(qkv, self.heads.cut.columns, -1)
        normed = [self.norm.composed(x, weight) for x, weight in zip(parts, weights, strict=True)]
        made: tuple[Tensor | None, ...] = self.heads.composed(torch.cat((*normed, v), -1), None, cos, sin, None, None)
        return made
