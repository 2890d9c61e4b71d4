"""What a transformer block is made of: its sizes and choices, validated once. _block.py builds modules from them.

SPDX-License-Identifier: MIT
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from evenkeel._rope import rotary_dim_of
from evenkeel._rope_tables import rope_tables


class Feedforward(NamedTuple):
    """The activation of a feed-forward layer, and whether it multiplies a second product."""

    activation: str
    is_gated: bool


FEEDFORWARDS = {
    "swiglu": Feedforward("silu", True),
    "geglu": Feedforward("gelu", True),
    "geglu_tanh": Feedforward("gelu_tanh", True),
    "gelu": Feedforward("gelu", False),
    "gelu_tanh": Feedforward("gelu_tanh", False),
    "silu": Feedforward("silu", False),
}
PRODUCTS = "qkv", "out", "up", "down"
QK_NORMS = "rms", "layer", "rms_full", "layer_full"


class Heads(NamedTuple):
    """How the product of q, k and v is cut: first the heads of q, then those of k, then those of v."""

    heads: int
    kv_heads: int
    head_dim: int

    def of(self, x: Any) -> Any:
        """A part, [batch, seq, columns], as [batch, seq, heads, head_dim]."""
        return x.view(*x.shape[:-1], x.shape[-1] // self.head_dim, self.head_dim)

    @property
    def columns(self) -> list[int]:
        """Of q, k and v."""
        return [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]


class Rotation(NamedTuple):
    """Which elements of a head RoPE turns, and by which angles; hashable, as tables are shared by it."""

    rotary_dim: int
    interleaved: bool
    theta: float | None
    scaling: tuple[tuple[str, Any], ...] | None
    max_position_embeddings: int | None


def require_positive(**sizes: Any) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}; expected an integer")
        if value <= 0:
            raise ValueError(f"{name} is {value}; expected a positive number")


def require_known(name: str, value: Any, known: Collection[Any]) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}; expected {' or '.join(map(repr, known))}")


def heads_of(d_model: int, heads: int, kv_heads: int | None, head_dim: int | None) -> Heads:
    require_positive(d_model=d_model, heads=heads)
    kv_heads = heads if kv_heads is None else kv_heads
    require_positive(kv_heads=kv_heads)
    if heads % kv_heads:
        raise ValueError(f"kv_heads ({kv_heads}) does not divide heads ({heads})")
    if head_dim is None:
        if d_model % heads:
            raise ValueError(f"heads ({heads}) does not divide d_model ({d_model}); give head_dim")
        head_dim = d_model // heads
    require_positive(head_dim=head_dim)
    return Heads(heads, kv_heads, head_dim)


def rotation_of(
    head_dim: int,
    rotary_dim: int | None,
    interleaved: bool,
    theta: float | None,
    scaling: Mapping[str, Any] | None,
    max_position_embeddings: int | None,
) -> Rotation:
    dim = rotary_dim_of(rotary_dim, head_dim)
    rope_tables(0, dim, theta=theta, scaling=scaling, max_position_embeddings=max_position_embeddings)  # refuses
    items = None if scaling is None else tuple(sorted(scaling.items()))
    return Rotation(dim, bool(interleaved), theta, items, max_position_embeddings)


def biases_of(bias: bool | Collection[str]) -> frozenset[str]:
    """The products that have a bias."""
    if isinstance(bias, bool):
        return frozenset(PRODUCTS if bias else ())
    if isinstance(bias, str) or not isinstance(bias, Collection):
        raise TypeError(f"bias is {bias!r}; expected True, False or a list of {', '.join(PRODUCTS)}")
    for name in bias:
        require_known("bias", name, PRODUCTS)
    return frozenset(bias)
