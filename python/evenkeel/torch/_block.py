"""Transformer blocks whose norms, residuals, RoPE and activations are fused: everything between products and attention.

ReorderedNormBlock    h = x + norm1(attention(x)),  out = h + norm2(ffn(h))
PreNormBlock          h = x + attention(norm1(x)),  out = h + ffn(norm2(h))

The products are torch's, and attention is F.scaled_dot_product_attention. A block is written once, over the functions
of _block_fused.py or, with fused=False, those of _block_plain.py. SPDX-License-Identifier: MIT
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module

from evenkeel.torch import _block_fused, _block_plain
from evenkeel.torch._block_options import (
    FEEDFORWARDS,
    QK_NORMS,
    biases_of,
    heads_of,
    require_known,
    require_positive,
    rotation_of,
)
from evenkeel.torch._block_tables import tables
from evenkeel.torch._modules import LayerNorm, RMSNorm

_NORMS: dict[str, type[Module]] = {"layer": LayerNorm, "rms": RMSNorm}
_HAS_GQA = "enable_gqa" in (F.scaled_dot_product_attention.__doc__ or "")  # from PyTorch 2.5 on
_Tables = tuple[Tensor, Tensor]


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    """[batch, seq, heads * head_dim]."""
    options: Any = {"attn_mask": mask, "is_causal": causal and mask is None, "scale": scale}
    if q.shape[1] != k.shape[1]:
        if _HAS_GQA:
            options["enable_gqa"] = True
        else:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2)


class _Block(Module):
    """The parameters of both blocks, and what they do between norms."""

    qkv: Linear
    out: Linear
    up: Linear
    down: Linear
    input_norms = False

    def __init__(
        self,
        d_model: int,
        heads: int,
        ffn: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        norm: str = "layer",
        eps: float = 1e-5,
        weight_offset: float = 0.0,
        bias: bool | Collection[str] = True,
        activation: str = "swiglu",
        causal: bool = True,
        scale: float | None = None,
        qk_norm: str | None = None,
        rope: bool = True,
        rope_theta: float | None = None,
        rope_scaling: Mapping[str, Any] | None = None,
        max_position_embeddings: int | None = None,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        fused: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_positive(ffn=ffn)
        require_known("norm", norm, _NORMS)
        require_known("activation", activation, FEEDFORWARDS)
        require_known("qk_norm", qk_norm, (None, *QK_NORMS))
        self.d_model, self.ffn, self.causal, self.scale, self.fused = d_model, ffn, causal, scale, fused
        self.activation = activation
        self._cut = cut = heads_of(d_model, heads, kv_heads, head_dim)
        angles = rope_theta, rope_scaling, max_position_embeddings
        self._rotation = rotation_of(cut.head_dim, rotary_dim, interleaved, *angles) if rope else None
        made: Any = {"device": device, "dtype": dtype}
        flavour = {"eps": eps, "weight_offset": weight_offset, **made}
        self._add_products(biases_of(bias), made)
        self._add_qk_norms(qk_norm, flavour)
        for name in ("norm1", "norm2", *(("input_norm1", "input_norm2") if self.input_norms else ())):
            self.add_module(name, _NORMS[norm](d_model, **flavour))

    def _add_products(self, biases: Collection[str], made: Any) -> None:
        columns, is_gated = self._cut.columns, FEEDFORWARDS[self.activation].is_gated
        sizes = {
            "qkv": (self.d_model, sum(columns)),
            "out": (columns[0], self.d_model),
            "up": (self.d_model, (1 + is_gated) * self.ffn),
            "down": (self.ffn, self.d_model),
        }
        for name, size in sizes.items():
            self.add_module(name, Linear(*size, bias=name in biases, **made))

    def _add_qk_norms(self, qk_norm: str | None, flavour: Any) -> None:
        kind, _, full = (qk_norm or "").partition("_")
        for name, columns in zip(("q_norm", "k_norm"), self._cut.columns, strict=False):
            size = columns if full else self._cut.head_dim
            options = {"bias": False} if kind == "layer" else {}
            self.add_module(name, _NORMS[kind](size, **options, **flavour) if kind else None)

    def _parts_for(self, x: Tensor) -> Any:
        """The functions that compute the block of x."""
        if x.dim() != 3 or x.shape[-1] != self.d_model:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, seq, {self.d_model})")
        return _block_fused if self.fused else _block_plain

    def _attend(
        self, parts: Any, x: Tensor, rope: _Tables | None, mask: Tensor | None, forks: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The attention of x before its bias, that bias, where it is still to be added, and x, which forks there."""
        if rope is None and self._rotation is not None:
            rope = tables(self._rotation, x.shape[1], x.device, x.dtype)
        norms = self.q_norm, self.k_norm
        q, k, v, past = parts.heads(x, self.qkv, self._cut, norms, self._rotation, rope, forks)
        y, bias, _ = parts.product(_attention(q, k, v, mask, self.causal, self.scale), self.out)
        return y, bias, past

    def _activated(self, parts: Any, x: Tensor, forks: bool = False) -> tuple[Tensor, Tensor]:
        """What the last product of the feed-forward layer is of, and x."""
        y, bias, past = parts.product(x, self.up, forks)
        return parts.activate(y, bias, FEEDFORWARDS[self.activation]), past

    def extra_repr(self) -> str:
        heads = f"heads={self._cut.heads}, kv_heads={self._cut.kv_heads}, head_dim={self._cut.head_dim}"
        return f"{self.d_model}, {heads}, ffn={self.ffn}, activation={self.activation!r}, fused={self.fused}"


class PreNormBlock(_Block):
    """h = x + attention(norm1(x)), out = h + ffn(norm2(h)): the block of GPT, Llama and Qwen.

    d_model, heads, ffn: the width of the stream, the heads of q, and the width of the feed-forward layer
    kv_heads, head_dim:  of k and v, by default heads; by default d_model / heads
    norm, eps:           "layer" or "rms"; weight_offset 1.0: 1 + weight is used for weight
    bias:                whether the products have biases; or the names of those that do, of qkv, out, up and down
    activation:          of the feed-forward layer: swiglu, geglu, geglu_tanh, or gelu, gelu_tanh, silu without a gate
    causal, scale:       of attention, as is_causal and scale of F.scaled_dot_product_attention
    qk_norm:             None; "rms" or "layer", of each head of q and k before RoPE; "rms_full" or "layer_full", of all
                         heads of a token. Their eps and weight_offset are those of the block
    rope:                False: nothing turns. rope_theta, rope_scaling and max_position_embeddings are theta, scaling
                         and max_position_embeddings of evenkeel.rope_tables; rotary_dim: so many leading elements of a
                         head turn, by default all; interleaved: pairs are neighbours, not halves
    fused:               False: the same in PyTorch's operations. The parameters and state_dict are the same, and the
                         attribute may be set at any time
    """

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        *,
        rope: _Tables | None = None,
        mask: Tensor | None = None,
        carry: bool = False,
    ) -> Any:
        """The block of x, [batch, seq, d_model]; with a residual that of x + residual.

        rope:  (cos, sin) of [seq, rotary_dim / 2] or [batch, seq, rotary_dim / 2] for other positions than 0, 1, …
        mask:  attn_mask of F.scaled_dot_product_attention, in place of causal
        carry: returns (f, h) with out = f + h, for the next block to add: add and norm are one kernel then
        """
        parts = self._parts_for(x)
        if residual is None:
            y, h = parts.norm_and_residual(x, self.norm1)
        else:
            y, h = parts.add_norm(x, None, residual, self.norm1)
        f, bias, _ = self._attend(parts, y, rope, mask)
        y, h = parts.add_norm(f, bias, h, self.norm2)
        f = parts.product_and_bias(self._activated(parts, y)[0], self.down)
        return (f, h) if carry else f + h


class ReorderedNormBlock(_Block):
    """h = x + norm1(attention(x)), out = h + norm2(ffn(h)): the block of OLMo 2 and 3.

    input_norms=True, as in Gemma 2 and 3: h = x + norm1(attention(input_norm1(x))), and so with ffn, norm2 and
    input_norm2. The other arguments are those of PreNormBlock.
    """

    def __init__(self, d_model: int, heads: int, ffn: int, *, input_norms: bool = False, **options: Any) -> None:
        self.input_norms = bool(input_norms)
        super().__init__(d_model, heads, ffn, **options)

    def _of_input(self, parts: Any, x: Tensor, norm: str) -> tuple[Tensor, Tensor | None]:
        """What goes into a sublayer, and what its result is added to; None: that itself."""
        return parts.norm_and_residual(x, getattr(self, norm)) if self.input_norms else (x, None)

    def forward(self, x: Tensor, *, rope: _Tables | None = None, mask: Tensor | None = None) -> Tensor:
        """The block of x, [batch, seq, d_model]; rope and mask as for PreNormBlock."""
        parts, forks = self._parts_for(x), not self.input_norms
        y, residual = self._of_input(parts, x, "input_norm1")
        f, bias, past = self._attend(parts, y, rope, mask, forks)
        h = parts.norm_add(f, bias, past if residual is None else residual, self.norm1)
        y, residual = self._of_input(parts, h, "input_norm2")
        activated, past = self._activated(parts, y, forks)
        f, bias, _ = parts.product(activated, self.down)
        return parts.norm_add(f, bias, past if residual is None else residual, self.norm2)  # type: ignore[no-any-return]
