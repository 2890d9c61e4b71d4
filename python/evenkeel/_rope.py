"""Rotary position embedding and the norms of heads on arrays of any kind, forward and backward.
SPDX-License-Identifier: MIT"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from evenkeel import _core
from evenkeel._arrays import Kind, computed, dtype_named, kind_of, number_named, real, refuse_masked, shape_of

Array = Any
Dtype = object
Shape = tuple[int, ...]

LAYOUTS = "bhsd", "bshd"
# As the extension has them.
INPUTS = "q", "k", "cos", "sin", "positions", "q_bias", "k_bias", "q_weight", "k_weight"
GRADIENTS = "q", "k", "q_bias", "k_bias", "q_weight", "k_weight"


class Norm(NamedTuple):
    """Of each head, before the turn or after it; without a name there is none."""

    norm: str | None = None
    norm_last: bool = False
    weight_offset: float = 0.0
    eps: float = 0.0


class Turn(NamedTuple):
    """Which elements turn, and by which rows of the tables."""

    interleaved: bool = False
    trailing: bool = False
    rotary_dim: int | None = None
    table_step: int = 0
    offset: int = 0


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; expected an integer") from None


def rotary_dim_of(given: Any, head_dim: int) -> int:
    """How many elements of a head turn: by default all."""
    rotary_dim = head_dim if given is None else _integer(given, "rotary_dim")
    if rotary_dim <= 0 or rotary_dim % 2 or rotary_dim > head_dim:
        what = "head_dim" if given is None else "rotary_dim"
        raise ValueError(f"{what} is {rotary_dim}; expected an even number from 2 to {head_dim}")
    return rotary_dim


def _table_step(shapes: dict[str, Shape], rotary_dim: int) -> int:
    """Rows of the tables from a sequence to the next; 0: all share them."""
    batch, cos, sin = shapes["q"][0], shapes["cos"], shapes["sin"]
    is_shared = len(cos) == 2 or (len(cos) == 3 and cos[0] == 1)
    if not (is_shared or (len(cos) == 3 and cos[0] == batch)) or cos[-1] not in (rotary_dim // 2, rotary_dim):
        raise ValueError(
            f"cos has shape {cos}: it must have (rows, columns), or those of 1 or {batch} sequences, "
            f"with {rotary_dim // 2} or {rotary_dim} columns"
        )
    if sin != cos:
        raise ValueError(f"sin has shape {sin}: it must have {cos}, as cos")
    return 0 if is_shared else cos[1]


def _check_rows(shapes: dict[str, Shape], offset: int, table_step: int) -> None:
    """That each token has a row of the tables."""
    batch, seq, *_ = shapes["q"]
    positions, rows = shapes.get("positions"), shapes["cos"][-2]
    if offset < 0:
        raise ValueError(f"offset ({offset}) must not be negative")
    if positions is None and offset + seq > rows:
        raise ValueError(f"cos has {rows} rows: it must have offset ({offset}) + seq ({seq}) or more")
    if positions is not None and (offset or table_step):
        other = (
            f"offset is {offset}; expected 0" if offset else f"cos has shape {shapes['cos']}; expected (rows, columns)"
        )
        raise ValueError(f"positions say which rows, and {other}")
    if positions is not None and positions != (batch, seq):
        raise ValueError(f"positions has shape {positions}: it must have {(batch, seq)}")


def turn_of(
    shapes: dict[str, Shape], interleaved: bool, trailing: bool, rotary_dim: int | None, offset: int, layout: str
) -> Turn:
    """That of a call, of whose tensors there are these."""
    q, k = shapes["q"], shapes.get("k")
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}; expected 'bhsd' or 'bshd'")
    if len(q) != 4:
        raise ValueError(f"q has shape {q}: it must have (batch, seq, heads, head_dim)")
    if k is not None and (len(k) != 4 or (*k[:2], k[3]) != (*q[:2], q[3]) or k[2] == 0 or q[2] % k[2]):
        raise ValueError(f"k has shape {k}: it must have {q}, or fewer heads that divide {q[2]}")
    rotary_dim, offset = rotary_dim_of(rotary_dim, q[3]), _integer(offset, "offset")
    table_step = _table_step(shapes, rotary_dim)
    _check_rows(shapes, offset, table_step)
    _core.check_rope(None, None, interleaved, trailing)
    return Turn(bool(interleaved), bool(trailing), rotary_dim, table_step, offset)


def refuse_without_k(**inputs: Any) -> None:
    """What k alone needs."""
    for name in ("k_bias", "k_weight"):
        if inputs["k"] is None and inputs[name] is not None:
            raise ValueError(f"{name} is given, and k is None; expected None")


def norm_of(has_weights: bool, norm: str, weight_offset: float, eps: float, norm_first: bool) -> Norm:
    """That of a call of qk_norm_rope."""
    if norm is None:
        raise ValueError("norm is None; expected 'layer' or 'rms'")
    _core.check_rope(norm, weight_offset, None, None)
    real(eps, "eps")
    if not norm_first and (has_weights or weight_offset):
        given = "weights are given" if has_weights else f"weight_offset is {weight_offset}"
        raise ValueError(f"norm_first is {norm_first!r}, and {given}; expected no weights of a norm after the turn")
    return Norm(norm, not norm_first, weight_offset, eps)


# ---- on arrays ----


def _shapes(inputs: dict[str, Array | None]) -> dict[str, Shape]:
    return {name: shape_of(array, name) for name, array in inputs.items() if array is not None or name in ("q", "cos")}


def _tokens_first(array: Array | None, layout: str) -> Any:
    """As the library has it: [batch, seq, heads, head_dim]."""
    if array is None or layout == "bshd":
        return array
    if not hasattr(array, "swapaxes"):
        kind = type(array).__name__
        raise TypeError(f"layout is 'bhsd', and an array of type {kind} has no swapaxes; expected layout 'bshd'")
    return array.swapaxes(1, 2)


def _empty(kind: Kind, like: Array | None, layout: str) -> Any:
    """A result, in the layout."""
    if like is None:
        return None
    batch, seq, heads, head_dim = shape_of(like, "q or k")
    shape = (batch, heads, seq, head_dim) if layout == "bhsd" else (batch, seq, heads, head_dim)
    made = kind.empty(shape, like)
    # The extension makes results in its own order alone.
    return like.new_empty(shape) if made is True and layout == "bhsd" and hasattr(like, "new_empty") else made


def _forward(
    inputs: dict[str, Array | None],
    norm: Norm,
    turn: Turn,
    layout: str,
    out: Sequence[Array] | None,
    threads: int,
    stream: int | None,
) -> tuple[Any, Any]:
    """q and k after the turn, None where there is no k."""
    refuse_without_k(**inputs)
    q, k = inputs["q"], inputs["k"]
    kind = kind_of(q)
    q_out, k_out = (_empty(kind, q, layout), _empty(kind, k, layout)) if out is None else out
    refuse_masked(**inputs, q_out=q_out, k_out=k_out)
    stream = kind.stream(q) if stream is None else stream
    others = *norm, *turn, _tokens_first(q_out, layout), _tokens_first(k_out, layout), threads, stream
    found = computed(inputs, lambda *arrays: _core.rope_forward(*(*arrays, *others)))
    return found if q_out is True else (q_out, k_out)


def _backward(
    inputs: dict[str, Array | None],
    gradients: tuple[Array, Array | None],
    norm: Norm,
    turn: Turn,
    layout: str,
    needs: dict[str, bool],
    gradient_dtype: Dtype,
    threads: int,
    stream: int | None,
) -> tuple[Any, ...]:
    """The gradients of q, k, their biases and their weights, None for what is not needed."""
    dq, dk = (_tokens_first(gradient, layout) for gradient in gradients)
    refuse_masked(dq=dq, dk=dk, **inputs)
    kind, dtype = kind_of(dq), dtype_named(gradient_dtype, "gradient_dtype")

    def empty(name: str) -> Any:
        like = dq if name.startswith("q") else dk
        if not needs[name] or like is None:
            return None
        if name in ("q", "k"):
            return kind.empty(shape_of(like, f"d{name}"), like)
        *_, heads, head_dim = shape_of(like, f"d{name}")
        given = inputs[name]
        if given is not None:
            return kind.empty(shape_of(given, name), given, dtype)
        return kind.empty((head_dim,) if name.endswith("weight") else (heads * head_dim,), like, dtype)

    made, number = [empty(name) for name in GRADIENTS], number_named(dtype)
    sums = (gradient is not None for gradient in made[2:])
    asked = dq, dk, *inputs.values(), *norm, *turn, *sums, number, threads
    workspace = kind.workspace(dq, lambda: _core.rope_backward_workspace(*asked))
    stream = kind.stream(dq) if stream is None else stream

    others = *norm, *turn, *made, number, workspace, threads, stream
    inputs = {"dq": dq, "dk": dk, **inputs}
    found: tuple[Any, ...] = computed(inputs, lambda *arrays: _core.rope_backward(*(*arrays, *others)))
    return found


def rope(
    q: Array,
    k: Array | None,
    cos: Array,
    sin: Array,
    q_bias: Array | None = None,
    k_bias: Array | None = None,
    interleaved: bool = False,
    *,
    positions: Array | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
    out: Sequence[Array] | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """q + q_bias and k + k_bias, turned by the angles of their positions; computed in f32 (f64, where q is f64) and
    rounded once.

    q and k are [batch, seq, heads, head_dim], in memory in any order with heads without gaps. k may have fewer heads
    or be None. The results are [batch, heads, seq, head_dim], or with layout "bshd" as q is; `out` is a pair to write
    them to, which may be q and k themselves. Biases have heads * head_dim elements.

    cos and sin are tables [rows, columns], [1, rows, columns] or one for each sequence; of rope_tables for instance. Of
    their columns the first rotary_dim / 2 are read, of which there are that many or twice as many. Token s takes row
    offset + s, or that of positions [batch, seq], of int64. The first rotary_dim elements of a head turn (by default
    all), or with trailing the last: its halves with each other, interleaved neighbours with each other.
    """
    inputs = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "q_bias": q_bias, "k_bias": k_bias}
    turn = turn_of(_shapes(inputs), interleaved, trailing, rotary_dim, offset, layout)
    inputs |= {"q_weight": None, "k_weight": None}
    return _forward(inputs, Norm(), turn, layout, out, threads, stream)


def rope_backward(
    dq: Array,
    dk: Array | None,
    cos: Array,
    sin: Array,
    interleaved: bool = False,
    *,
    positions: Array | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
    need_dq_bias: bool = False,
    need_dk_bias: bool = False,
    gradient_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(dq, dk, dq_bias, dk_bias) from the gradients of rope's results, in their layout; dq and dk as q and k are.

    gradient_dtype: of the last two, by default that of dq.
    """
    inputs: dict[str, Array | None] = dict.fromkeys(INPUTS) | {"cos": cos, "sin": sin, "positions": positions}
    turn = _turn_of_gradients(inputs, dq, dk, interleaved, trailing, rotary_dim, offset, layout)
    needs = {"q": True, "k": True, "q_bias": need_dq_bias, "k_bias": need_dk_bias, "q_weight": False, "k_weight": False}
    found = _backward(inputs, (dq, dk), Norm(), turn, layout, needs, gradient_dtype, threads, stream)
    dq, dk, dq_bias, dk_bias, _, _ = found
    return dq, dk, dq_bias, dk_bias


def _turn_of_gradients(inputs: dict[str, Array | None], dq: Array, dk: Array | None, *options: Any) -> Turn:
    """q and k are not given, but the gradients of their results."""
    tokens_first = {"q": _tokens_first(dq, options[-1]), "k": _tokens_first(dk, options[-1])}
    return turn_of(_shapes(inputs | tokens_first), *options)


def qk_norm_rope(
    q: Array,
    k: Array | None,
    cos: Array,
    sin: Array,
    q_weight: Array | None = None,
    k_weight: Array | None = None,
    eps: float = 1e-6,
    norm: str = "rms",
    weight_offset: float = 0.0,
    norm_first: bool = True,
    q_bias: Array | None = None,
    k_bias: Array | None = None,
    interleaved: bool = False,
    *,
    positions: Array | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
    out: Sequence[Array] | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """rope of q and k whose heads are normalized first: norm "rms" or "layer", times weight_offset + weight of head_dim
    elements. Without norm_first an unweighted norm comes after the turn. The other arguments are those of rope."""
    inputs = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "q_bias": q_bias, "k_bias": k_bias}
    turn = turn_of(_shapes(inputs), interleaved, trailing, rotary_dim, offset, layout)
    inputs |= {"q_weight": q_weight, "k_weight": k_weight}
    has_weights = q_weight is not None or k_weight is not None
    chosen = norm_of(has_weights, norm, weight_offset, eps, norm_first)
    return _forward(inputs, chosen, turn, layout, out, threads, stream)


def qk_norm_rope_backward(
    dq: Array,
    dk: Array | None,
    q: Array,
    k: Array | None,
    cos: Array,
    sin: Array,
    q_weight: Array | None = None,
    k_weight: Array | None = None,
    eps: float = 1e-6,
    norm: str = "rms",
    weight_offset: float = 0.0,
    norm_first: bool = True,
    q_bias: Array | None = None,
    k_bias: Array | None = None,
    interleaved: bool = False,
    *,
    positions: Array | None = None,
    offset: int = 0,
    rotary_dim: int | None = None,
    trailing: bool = False,
    layout: str = "bhsd",
    gradient_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(dq, dk, dq_bias, dk_bias, dq_weight, dk_weight) from the gradients of qk_norm_rope's results, None for what was
    not given. The statistics of the heads are computed again from q and k."""
    inputs = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions, "q_bias": q_bias, "k_bias": k_bias}
    turn = _turn_of_gradients(inputs, dq, dk, interleaved, trailing, rotary_dim, offset, layout)
    inputs |= {"q_weight": q_weight, "k_weight": k_weight}
    has_weights = q_weight is not None or k_weight is not None
    chosen = norm_of(has_weights, norm, weight_offset, eps, norm_first)
    needs = {name: inputs[name] is not None for name in GRADIENTS}
    return _backward(inputs, (dq, dk), chosen, turn, layout, needs, gradient_dtype, threads, stream)
