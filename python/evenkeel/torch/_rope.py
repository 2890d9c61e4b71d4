"""Rotary position embedding, and norms of heads with it, as functions with gradients. SPDX-License-Identifier: MIT"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_variadic

from evenkeel import _core
from evenkeel._rope import INPUTS, Norm, Turn, norm_of, refuse_without_k, turn_of
from evenkeel.torch._recompute import (
    Tensors,
    compute,
    require_floating,
    require_shape,
    require_tensors,
    serve,
    wide_dtype,
    with_columns,
    workspace,
)

Made = tuple[Tensor | None, ...]


# Of q and of k, with their biases and weights.
_SIDES = tuple([at for at, name in enumerate(INPUTS) if name.startswith(side)] for side in "qk")


class _Like(NamedTuple):
    """A tensor that is not kept."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, device: torch.device) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def zeros(self, device: torch.device) -> Tensor:
        """On one element of memory, with a gradient."""
        return torch.zeros((), dtype=self.dtype, device=device).expand(self.shape).requires_grad_()


class _Rope(NamedTuple):
    """A call, of INPUTS."""

    name: str
    norm: Norm
    turn: Turn
    layout: str
    likes: tuple[_Like | None, ...]  # the inputs that have gradients

    def _tokens_first(self, heads: Any) -> Any:
        """As the library has them: [batch, seq, heads, head_dim]. And back."""
        return heads if heads is None or self.layout == "bshd" else heads.transpose(1, 2)

    # ---- by the kernels ----

    def kept(self, inputs: Tensors) -> Tensors:
        """Without a norm the gradient depends on no q and k."""
        return inputs if self.norm.norm else [None, None, *inputs[2:5], *(None,) * 4]

    def stand_ins(self, kept: Tensors) -> Tensors:
        if self.norm.norm:
            return kept
        cos = kept[2]
        assert cos is not None
        return [like.zeros(cos.device) if like else t for t, like in zip(kept, self.likes, strict=True)]

    def forward(self, inputs: Tensors) -> Made:
        q, k, *_ = inputs
        assert q is not None
        batch, seq, _, head_dim = q.shape
        made: list[Tensor | None] = [None, None]
        for number, tensor in enumerate((q, k)):
            if tensor is not None:
                heads = tensor.shape[2]
                order = (heads, seq) if self.layout == "bhsd" else (seq, heads)
                made[number] = tensor.new_empty(batch, *order, head_dim)
        compute(_core.rope_forward, inputs, *self.norm, *self.turn, *map(self._tokens_first, made), any_order=True)
        return tuple(made)

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> Made:
        device = kept[2].device  # type: ignore[union-attr]
        dq, dk = map(self._tokens_first, gradients)
        needs = [need and (dq if at in _SIDES[0] else dk) is not None for at, need in enumerate(needs)]
        dq = self.likes[0].empty(device) if dq is None and self.likes[0] else dq  # it gives the sizes, and is not read
        given = dq, dk, *kept
        made = [like.empty(device) if like and need else None for like, need in zip(self.likes, needs, strict=True)]
        outputs, sums = [*made[:2], *made[5:]], [gradient is not None for gradient in made[5:]]
        scratch = workspace(_core.rope_backward_workspace, given, *self.norm, *self.turn, *sums, None)
        compute(_core.rope_backward, given, *self.norm, *self.turn, *outputs, None, scratch, any_order=True)
        return tuple(made)

    def fixed(self, results: Tensors, needs: Sequence[bool]) -> Sequence[Any]:
        """The result of q where only k needs gradients, and the other way round."""
        is_fixed = [not any(needs[at] for at in side) for side in _SIDES]
        return [result for result, fixed in zip(results, is_fixed, strict=True) if fixed and result is not None]

    # ---- in PyTorch's operations ----

    def composed(self, *inputs: Any) -> Made:
        named = dict(zip(INPUTS, inputs, strict=True))
        self._require(named)
        dtype = wide_dtype(inputs[0])
        cos, sin = (self._rows(named[name].detach().to(dtype), named) for name in ("cos", "sin"))
        made: list[Tensor | None] = []
        for side in ("q", "k"):
            x, bias, weight = (named[name] for name in (side, f"{side}_bias", f"{side}_weight"))
            if x is None:
                made.append(None)
                continue
            y = x.to(dtype) if bias is None else x.to(dtype) + bias.to(dtype).reshape(x.shape[2:])
            y = self._turned(y if self.norm.norm_last else self._normalized(y, weight), cos, sin)
            y = self._normalized(y, None) if self.norm.norm_last else y
            made.append(self._tokens_first(y.to(x.dtype)).contiguous())
        return tuple(made)

    def _require(self, named: dict[str, Any]) -> None:
        require_tensors(named)
        require_floating({name: tensor for name, tensor in named.items() if name != "positions"})
        for side in ("q", "k"):
            if named[side] is not None:
                *_, heads, head_dim = named[side].shape
                require_shape(f"{side}_bias", named[f"{side}_bias"], (heads * head_dim,), (heads, head_dim))
                require_shape(f"{side}_weight", named[f"{side}_weight"], (head_dim,))

    def _rows(self, table: Tensor, named: dict[str, Any]) -> Tensor:
        """The angles of the tokens: [batch or 1, seq, 1, pairs]."""
        q, positions, turn = named["q"], named["positions"], self.turn
        assert turn.rotary_dim is not None
        table = table if table.dim() == 3 else table[None]
        table = table[..., : turn.rotary_dim // 2]
        if positions is None:
            return table[:, turn.offset : turn.offset + q.shape[1], None]
        try:
            return table[0][positions][:, :, None]
        except IndexError as error:
            raise IndexError(f"positions: {error}") from None

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rotary_dim = self.turn.rotary_dim
        assert rotary_dim is not None
        rest = x.shape[-1] - rotary_dim
        first = rest if self.turn.trailing else 0
        before, after = x[..., :first], x[..., first + rotary_dim :]
        x = x[..., first : first + rotary_dim]
        a, b = (x[..., ::2], x[..., 1::2]) if self.turn.interleaved else x.chunk(2, -1)
        pair = a * cos - b * sin, b * cos + a * sin
        turned = torch.stack(pair, -1).flatten(-2) if self.turn.interleaved else torch.cat(pair, -1)
        return torch.cat((before, turned, after), -1) if rest else turned

    def _normalized(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Each head, where there is a norm."""
        if self.norm.norm is None:
            return x
        if self.norm.norm == "layer":
            x = F.layer_norm(x, x.shape[-1:], eps=self.norm.eps)
        else:
            x = x * (x.square().mean(-1, keepdim=True) + self.norm.eps).rsqrt()
        return x if weight is None else x * (weight.to(x.dtype) + self.norm.weight_offset)


# ---- the functions ----

_SHAPED = "q", "k", "cos", "sin", "positions"
_VALUES = {int, bool, str, type(None)}


def _turn_of_shapes(q: Any, k: Any, cos: Any, sin: Any, positions: Any, *options: Any) -> Turn:
    named = zip(_SHAPED, (q, k, cos, sin, positions), strict=True)
    return turn_of({name: shape for name, shape in named if shape is not None}, *options)


_cached_turn = lru_cache(256)(_turn_of_shapes)  # a model has few


def _turn_of(named: dict[str, Any], *options: Any) -> Turn:
    """What says which elements turn may be a tensor, whose value changes."""
    shapes = [named[name] if named[name] is None else tuple(named[name].shape) for name in _SHAPED]
    if all(type(option) in _VALUES for option in options):
        try:
            return _cached_turn(*shapes, *options)
        except TypeError:  # a size may be a symbol, which has no hash
            pass
    return _turn_of_shapes(*shapes, *options)


def _positions(given: Tensor, q: Tensor) -> Tensor:
    """Of all tokens: those of one sequence are those of all."""
    if given.is_floating_point() or given.is_complex() or given.dtype is torch.bool:
        raise TypeError(f"positions is {given.dtype}; expected int64")
    given = given.long()
    if tuple(given.shape) in ((q.shape[1],), (1, q.shape[1])) and given.shape != q.shape[:2]:
        given = given.expand(q.shape[:2]).contiguous()
    return given


def _table(table: Tensor) -> Tensor:
    """Without a gradient, and with all rows at one distance."""
    table = table.detach() if table.requires_grad else table
    has_gaps = table.dim() == 3 and table.shape[0] > 1 and table.stride(0) != table.shape[1] * table.stride(1)
    return table.contiguous() if has_gaps else table


def _matched(named: dict[str, Any]) -> list[Any]:
    """In dtypes that go together: q and k in one, tables in that or in float32, and so biases and weights."""
    q, k, cos, sin, positions, *columns = named.values()
    if k is not None and k.dtype is not q.dtype and k.is_floating_point() and q.is_floating_point():
        dtype = torch.promote_types(q.dtype, k.dtype)
        q, k = q.to(dtype), k.to(dtype)
    return [q, k, *with_columns(q, _table(cos), _table(sin)), positions, *with_columns(q, *columns)]


def _like(tensor: Tensor | None) -> _Like | None:
    return None if tensor is None else _Like(tuple(tensor.shape), tensor.dtype)


def _serve(
    function: Callable[..., Any],
    named: dict[str, Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    norm: tuple[Any, ...] | None,
) -> Any:
    """A call, which modes and subclasses see with its args and options; the last of args is interleaved."""
    if has_torch_function_variadic(*named.values()):
        relevant = tuple(named.values())
        return handle_torch_function(function, relevant, *args, positions=named["positions"], **options)
    for name in ("q", "cos", "sin"):
        if named[name] is None:
            raise TypeError(f"{name} is None; expected a tensor")
    require_tensors(named)
    refuse_without_k(**named)
    if named["positions"] is not None and named["q"].dim() == 4:
        named["positions"] = _positions(named["positions"], named["q"])
    turn = _turn_of(named, args[-1], *options.values())
    has_weights = named["q_weight"] is not None or named["k_weight"] is not None
    chosen = Norm() if norm is None else norm_of(has_weights, *norm)
    inputs = _matched(named)
    likes = *map(_like, inputs[:2]), None, None, None, *map(_like, inputs[5:])
    call = _Rope(function.__name__, chosen, turn, options["layout"], likes)
    return serve(call, *inputs)


_serve_outside = _disable_dynamo(lambda *given: _serve(*given))  # torch.compile breaks its graph here

Pair = tuple[Tensor, Tensor]


def rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    q_bias: Tensor | None = None,
    k_bias: Tensor | None = None,
    interleaved: bool = False,
    *,
    positions: Tensor | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
) -> Pair:
    """q + q_bias and k + k_bias, turned by the angles of their positions, in one pass over memory and rounded once.

    q and k are [batch, seq, heads, head_dim] and are read where they lie: slices of one tensor, transposed views. k may
    have fewer heads, or be None, and so is its result then. The results are [batch, heads, seq, head_dim], or with
    layout "bshd" as q is. Biases have heads * head_dim elements, in the dtype of q or in float32.

    cos and sin are tables [rows, columns], [1, rows, columns] or one for each sequence: of rope_tables, or of a model's
    rotary embedding. Of their columns the first rotary_dim / 2 are read, of which there are that many or twice as many.
    They get no gradient. Token s takes row offset + s, or that of positions, [batch, seq] or [seq]. The first
    rotary_dim elements of a head turn (by default all), or with trailing the last: its halves with each other,
    interleaved neighbours with each other. Kept for backward are the tables and positions alone.
    """
    named = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "q_bias": q_bias, "k_bias": k_bias}
    named |= {"q_weight": None, "k_weight": None}
    options = {"trailing": trailing, "rotary_dim": rotary_dim, "offset": offset, "layout": layout}
    run: Callable[..., Pair] = _serve_outside if is_dynamo_compiling() else _serve
    return run(rope, named, (q, k, cos, sin, q_bias, k_bias, interleaved), options, None)


def qk_norm_rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 1e-6,
    norm: str = "rms",
    weight_offset: float = 0.0,
    norm_first: bool = True,
    q_bias: Tensor | None = None,
    k_bias: Tensor | None = None,
    interleaved: bool = False,
    *,
    positions: Tensor | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
) -> Pair:
    """rope of q and k whose heads are normalized first, in one pass over memory and rounded once.

    norm is "rms" or "layer"; what it normalizes is multiplied by weight_offset + weight, of head_dim elements. Without
    norm_first an unweighted norm comes after the turn (Llama 4). The other arguments are those of rope. Kept for
    backward are all arguments, and no statistics: backward computes them again.
    """
    named = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "q_bias": q_bias, "k_bias": k_bias}
    named |= {"q_weight": q_weight, "k_weight": k_weight}
    options = {"trailing": trailing, "rotary_dim": rotary_dim, "offset": offset, "layout": layout}
    chosen = norm, weight_offset, eps, norm_first
    run: Callable[..., Pair] = _serve_outside if is_dynamo_compiling() else _serve
    args = q, k, cos, sin, q_weight, k_weight, eps, norm, weight_offset, norm_first, q_bias, k_bias, interleaved
    return run(qk_norm_rope, named, args, options, chosen)
