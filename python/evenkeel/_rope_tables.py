"""Tables of the cosines and sines of rotary position embeddings (RoPE), in NumPy; evenkeel.rope_tables is here.

Frequencies have the names, formulas and order of operations of transformers' modeling_rope_utils.py. They are computed
in float64, with like="transformers" in float32. The package does not need NumPy: functions here import it.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from evenkeel._arrays import dtype_named

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Frequencies = tuple[NDArray[Any], float]  # and the factor of cosines and sines

_ORIGINAL = "original_max_position_embeddings"


def _integer(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name} is {number}; expected an integer of at least {least}")
    return number


def _number(value: Any, name: str, above: int = 0) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{name} is {value!r}; expected a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not above < number < math.inf:
        raise ValueError(f"{name} is {value}; expected a finite number above {above}")
    return number


class _Rope(NamedTuple):
    """The arguments that frequencies depend on."""

    rope_type: str
    scaling: Mapping[str, Any]
    dim: int
    theta: float
    length: int  # one more than the last position
    max_length: int | None  # max_position_embeddings
    pairs: NDArray[Any]  # 0 to dim/2 - 1, in the dtype of the computation

    def number(self, key: str, default: float | None = None) -> float:
        value = self.scaling.get(key, default)
        if value is None:
            raise ValueError(f"scaling has no {key}; {self.rope_type} needs it")
        return _number(value, f'scaling["{key}"]')

    def original_length(self) -> int:
        """Of the longest sequence before scaling. Without the key it is max_position_embeddings, as in transformers."""
        value = self.scaling.get(_ORIGINAL, self.max_length)
        if value is None:
            raise ValueError(f"scaling has no {_ORIGINAL}; {self.rope_type} needs it, or max_position_embeddings")
        return _integer(value, f'scaling["{_ORIGINAL}"]', 1)

    def powers(self, theta: Any) -> NDArray[Any]:
        """theta^(2i/dim). Powers of float32 operands are computed in float64: float32's differ between libraries."""
        real = self.pairs.dtype.type
        exponents = 2 * self.pairs / self.dim
        powers: NDArray[Any] = float(real(theta)) ** exponents.astype(float)
        return powers.astype(real)


# ---- frequencies of each type ----


def _default(rope: _Rope) -> Frequencies:
    return 1 / rope.powers(rope.theta), 1.0


def _linear(rope: _Rope) -> Frequencies:
    return 1 / rope.powers(rope.theta) / rope.number("factor"), 1.0


def _stretch(rope: _Rope) -> float:
    """The exponent of the factor by which NTK multiplies theta."""
    if rope.dim == 2:
        raise ValueError(f"dim is 2; expected 4 or more for {rope.rope_type}")
    return rope.dim / (rope.dim - 2)


def _ntk(rope: _Rope) -> Frequencies:
    return 1 / rope.powers(rope.theta * rope.number("factor") ** _stretch(rope)), 1.0


def _dynamic(rope: _Rope) -> Frequencies:
    """NTK's with a factor that grows with the length. Where both lengths are given, transformers uses max_length."""
    real, factor, stretch = rope.pairs.dtype.type, rope.number("factor"), _stretch(rope)
    original = rope.max_length or rope.original_length()
    if rope.length <= original:
        return _default(rope)
    ratio = real(factor) * real(rope.length) / real(original) - real(factor - 1)
    return 1 / rope.powers(real(rope.theta) * real(float(ratio) ** stretch)), 1.0


def _correction_range(rope: _Rope) -> tuple[float, float]:
    """The pairs between which YaRN goes from unscaled to scaled frequencies."""
    fast, slow, original = rope.number("beta_fast", 32), rope.number("beta_slow", 1), rope.original_length()
    if fast < slow:
        raise ValueError(f'scaling["beta_fast"] is {fast:g}; expected at least beta_slow ({slow:g})')

    def pair(rotations: float) -> float:
        return rope.dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair(fast), pair(slow)
    if rope.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    return low, high + 0.001 if high == low else high


def _attention_factor(rope: _Rope, factor: float) -> float:
    if "attention_factor" in rope.scaling:
        return rope.number("attention_factor")

    def temperature(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.scaling.get("mscale") and rope.scaling.get("mscale_all_dim"):  # 0: not set
        return temperature(rope.number("mscale")) / temperature(rope.number("mscale_all_dim"))
    return temperature(1.0)


def _yarn(rope: _Rope) -> Frequencies:
    factor, (low, high), powers = rope.number("factor"), _correction_range(rope), rope.powers(rope.theta)
    unscaled = 1 - ((rope.pairs - low) / (high - low)).clip(0, 1)
    return 1 / (factor * powers) * (1 - unscaled) + 1 / powers * unscaled, _attention_factor(rope, factor)


def _llama3(rope: _Rope) -> Frequencies:
    factor, original = rope.number("factor"), rope.original_length()
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        raise ValueError(f'scaling["high_freq_factor"] is {high:g}; expected more than low_freq_factor ({low:g})')
    inv_freq = 1 / rope.powers(rope.theta)
    rotations = 1 / (1 / inv_freq * (2 * math.pi)) * original  # PyTorch computes a / tensor as 1 / tensor * a
    smooth = ((rotations - low) / (high - low)).clip(0, 1)
    return (1 - smooth) * inv_freq / factor + smooth * inv_freq, 1.0


_COMMON = "rope_type", "type", "rope_theta"
_YARN = "factor", _ORIGINAL, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"
_TYPES: dict[str, tuple[Callable[[_Rope], Frequencies], tuple[str, ...]]] = {  # and the keys, besides _COMMON
    "default": (_default, ()),
    "linear": (_linear, ("factor",)),
    "ntk": (_ntk, ("factor",)),
    "dynamic": (_dynamic, ("factor", _ORIGINAL)),
    "yarn": (_yarn, _YARN),
    "llama3": (_llama3, ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL)),
}


def inverse_frequencies(
    dim: Any, theta: Any, scaling: Any, length: int, max_position_embeddings: Any, real: Any
) -> Frequencies:
    """The dim/2 angles from one position to the next, in the dtype `real`: validates the arguments of rope_tables."""
    import numpy as np

    dim = _integer(dim, "dim", 2)
    if dim % 2:
        raise ValueError(f"dim is {dim}; expected an even number")
    if not isinstance(scaling, Mapping | None):
        raise TypeError(f"scaling is of type {type(scaling).__name__}; expected a dict such as config.rope_parameters")
    given = {key: value for key, value in (scaling or {}).items() if value is not None}
    rope_type = given.get("rope_type", given.get("type", "default"))
    if rope_type not in tuple(_TYPES):
        raise ValueError(f"rope_type is {rope_type!r}; expected {', '.join(_TYPES)}")
    frequencies, keys = _TYPES[rope_type]
    unknown = [key for key in given if key not in _COMMON + keys]
    if unknown:
        raise ValueError(f"scaling has {', '.join(map(repr, unknown))}; {rope_type} takes {', '.join(_COMMON + keys)}")
    if theta is not None:
        theta = _number(theta, "theta", 1)
    else:
        theta = _number(given.get("rope_theta", 10000), 'scaling["rope_theta"]', 1)
    longest = max_position_embeddings
    if longest is not None:
        longest = _integer(longest, "max_position_embeddings", 1)
    return frequencies(_Rope(rope_type, given, dim, theta, length, longest, np.arange(dim // 2, dtype=real)))


# ---- tables ----


def _given_frequencies(inv_freq: Any, dim: int, real: Any) -> NDArray[Any]:
    import numpy as np

    try:
        array = np.asarray(inv_freq, dtype=real)
    except (TypeError, ValueError) as error:
        raise TypeError(f"inv_freq is of type {type(inv_freq).__name__}; expected an array: {error}") from None
    if array.shape != (dim // 2,):
        raise ValueError(f"inv_freq has shape {array.shape}; expected {(dim // 2,)}, half of dim")
    if not np.isfinite(array).all():
        raise ValueError(f"inv_freq is {array}; expected finite numbers")
    return array


def _rounded(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """In that dtype, rounded once."""
    import numpy as np

    if dtype != "bfloat16":
        return values.astype(dtype)
    import ml_dtypes

    fraction, exponent = np.frexp(values)  # ml_dtypes would round float64 to float32 first
    rounded: NDArray[Any] = np.ldexp(np.rint(fraction * 256), exponent - 8)
    return rounded.astype(ml_dtypes.bfloat16)


def rope_tables(
    length: int,
    dim: int,
    *,
    theta: float | None = None,
    scaling: Mapping[str, Any] | None = None,
    offset: int = 0,
    dtype: object = "float32",
    full: bool = False,
    like: Literal["transformers"] | None = None,
    max_position_embeddings: int | None = None,
    inv_freq: ArrayLike | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(cos, sin) of the positions offset to offset + length - 1, as NumPy arrays [length, dim/2], or with full=True
    [length, dim], both halves the same. Element [p, i] is that of the angle (offset + p) * inv_freq[i].

    dim:      the rotary dimension, an even number
    theta:    the base; None: the rope_theta of scaling, or 10000
    scaling:  None, or a dict such as config.rope_parameters (before transformers 5: config.rope_scaling), with the
              rope_type default, linear, ntk, dynamic, yarn or llama3
    dtype:    float32, float64, float16 or bfloat16 (of ml_dtypes). Values are computed in float64 and rounded once
    like:     "transformers": frequencies, angles and values are rounded to float32 where transformers rounds them
    max_position_embeddings:  that of the config, for dynamic; for yarn and llama3 in place of a missing
              original_max_position_embeddings
    inv_freq: dim/2 angles in place of those of theta and scaling, whose attention factor stays
    """
    import numpy as np

    element = dtype_named(dtype, "dtype") or "float32"
    first, count = _integer(offset, "offset", 0), _integer(length, "length", 0)
    if first + count > 1 << 53:
        raise ValueError(f"offset + length is {first + count}; expected at most 2**53, to which float64 is exact")
    if like not in (None, "transformers"):
        raise ValueError(f"like is {like!r}; expected 'transformers' or None")
    real: Any = np.float64 if like is None else np.float32
    frequencies, factor = inverse_frequencies(dim, theta, scaling, first + count, max_position_embeddings, real)
    if inv_freq is not None:
        frequencies = _given_frequencies(inv_freq, dim, real)
    positions = np.arange(first, first + count, dtype=np.int64).astype(real)
    angles = (positions[:, None] * frequencies).astype(np.float64)

    def table(function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        values = _rounded(function(angles).astype(real) * real(factor), element)
        return np.concatenate((values, values), axis=1) if full else values

    return table(np.cos), table(np.sin)
