"""The heads of q, k and v from one packed product, with one packed gradient: QK-norm and RoPE of its parts.

The kernels read q and k where the product wrote them, and write their gradients into the parts of one tensor; v is a
view. Splitting by PyTorch's operations would make backward concatenate. _block_fused.py calls it.
SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import LayerNorm

from evenkeel import _core
from evenkeel._rope import Norm, Turn, turn_of
from evenkeel.torch import _block_plain
from evenkeel.torch._block_bias import copy_and_sum
from evenkeel.torch._block_options import Heads, Rotation
from evenkeel.torch._block_wide_norm import NormedHeads, WideNorm
from evenkeel.torch._call import LAYER_NORM, RMS_NORM
from evenkeel.torch._recompute import Tensors, compute, serve, with_columns, workspace


def _like(tensor: Tensor | None, is_needed: bool) -> Tensor | None:
    """Memory for the gradient of a parameter."""
    return torch.empty_like(tensor) if tensor is not None and is_needed else None


class _Packed(NamedTuple):
    """A call, of (qkv, bias, cos, sin, q_weight, k_weight); the results are q, k and v, [batch, heads, seq, head_dim].

    qkv has the bias already. It is here for its gradient, which is summed while that of qkv is made. In memory the
    results are [batch, seq, heads, head_dim], as what the products around attention read and write: nothing is copied.
    """

    cut: Heads
    norm: Norm
    turn: Turn

    @property
    def name(self) -> str:
        """In a message, that of the function for two tensors."""
        return "rope" if self.norm.norm is None else "qk_norm_rope"

    def parts(self, packed: Tensor) -> list[Tensor]:
        """Views of q, k and v, [batch, seq, heads, head_dim]."""
        return [self.cut.of(part) for part in torch.split(packed, self.cut.columns, -1)]

    # ---- by the kernels ----

    def kept(self, inputs: Tensors) -> Tensors:
        """qkv too: attention keeps v, which is a part of it."""
        return inputs

    def stand_ins(self, kept: Tensors) -> Tensors:
        return kept

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        qkv, _, cos, sin, *weights = inputs
        assert qkv is not None
        return self.turn_parts(*self.parts(qkv), cos, sin, *weights)

    def turn_parts(self, q: Tensor, k: Tensor, v: Tensor, *operands: Tensor | None) -> tuple[Tensor | None, ...]:
        """The results of the parts; operands are cos, sin and the weights."""
        cos, sin, *weights = operands
        made = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k)]
        given = q, k, cos, sin, None, None, None, *(weights or (None, None))
        compute(_core.rope_forward, given, *self.norm, *self.turn, *made, any_order=True)
        return tuple(x.transpose(1, 2) for x in (*made, v))

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
        qkv, bias, cos, sin, *weights = kept
        assert qkv is not None
        dq_out, dk_out, dv_out = (g.transpose(1, 2) for g in gradients if g is not None)
        packed = torch.empty_like(qkv, memory_format=torch.contiguous_format)
        dq, dk, dv = self.parts(packed)
        dbias, *dweights = (_like(t, need) for t, need in zip((bias, *weights), (needs[1], *needs[4:]), strict=True))
        dq_bias, dk_bias, dv_bias = (None,) * 3 if dbias is None else torch.split(dbias, self.cut.columns)
        self._turn_back(dq_out, dk_out, kept, (dq, dk, dq_bias, dk_bias, *dweights))
        copy_and_sum(dv_out, dv, dv_bias)
        return packed, dbias, None, None, *dweights

    def _turn_back(self, dq_out: Tensor, dk_out: Tensor, kept: Tensors, made: Tensors) -> None:
        """Fills the gradients of q, k, their biases and their weights."""
        qkv, _, cos, sin, *weights = kept
        assert qkv is not None
        q, k = self.parts(qkv)[:2] if self.norm.norm else (None, None)
        given = dq_out, dk_out, q, k, cos, sin, None, None, None, *weights
        sums = [t is not None for t in made[2:]]
        scratch = workspace(_core.rope_backward_workspace, given, *self.norm, *self.turn, *sums, None)
        compute(_core.rope_backward, given, *self.norm, *self.turn, *made, None, scratch, any_order=True)

    # ---- in PyTorch's operations ----

    def composed(self, *inputs: Any) -> tuple[Tensor | None, ...]:
        qkv, bias, cos, sin, *weights = inputs
        if bias is not None:
            qkv = qkv + (bias - bias.detach()).to(qkv.dtype)
        q, k, v = self.parts(qkv)
        interleaved, _, rotary_dim, *_ = self.turn
        turned = [
            _block_plain.turned(self._normalized(x, weight), cos, sin, rotary_dim or self.cut.head_dim, interleaved)
            for x, weight in zip((q, k), weights, strict=True)
        ]
        return tuple(x.transpose(1, 2) for x in (*turned, v))

    def _normalized(self, x: Tensor, weight: Any) -> Tensor:
        name, _, offset, eps = self.norm
        shape = x.shape[-1:]
        return x if name is None else _block_plain.norm_of(name == "layer", x, shape, weight, None, eps, offset)


def _call(cut: Heads, norm: Any, turn: Turn) -> Any:
    """norm is that of q; the norms of a block have one kind, one eps and one weight_offset."""
    if norm is None:
        return _Packed(cut, Norm(), turn)
    is_layer = isinstance(norm, LayerNorm)
    if norm.normalized_shape == (cut.head_dim,):
        return _Packed(cut, Norm("layer" if is_layer else "rms", False, norm.weight_offset, norm.eps), turn)
    wide = WideNorm(LAYER_NORM if is_layer else RMS_NORM, norm.eps, norm.weight_offset)
    return NormedHeads(_Packed(cut, Norm(), turn), wide, [])


def packed_heads(
    qkv: Tensor,
    bias: Tensor | None,
    cut: Heads,
    norms: tuple[Any, Any],
    rotation: Rotation,
    tables: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of a product that has its bias already."""
    batch, seq, _ = qkv.shape
    cos, sin = with_columns(qkv, *(table.detach().contiguous() for table in tables))
    assert cos is not None and sin is not None
    shapes: Any = {"q": (batch, seq, cut.heads, cut.head_dim), "k": (batch, seq, cut.kv_heads, cut.head_dim)}
    shapes |= {"cos": tuple(cos.shape), "sin": tuple(sin.shape)}
    turn = turn_of(shapes, rotation.interleaved, False, rotation.rotary_dim, 0, "bhsd")
    weights = with_columns(qkv, *(None if norm is None else norm.weight for norm in norms))
    made: tuple[Tensor, Tensor, Tensor] = serve(_call(cut, norms[0], turn), qkv, bias, cos, sin, *weights)
    return made
