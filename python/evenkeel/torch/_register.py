"""Which classes replace takes over, and how each computes: PyTorch's, Hugging Face's, and those that a user registers.
SPDX-License-Identifier: MIT"""

from typing import Any, NamedTuple, Protocol, get_args
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module

from evenkeel._core import check_flavour
from evenkeel.torch import _huggingface, _huggingface_glu, _huggingface_rope
from evenkeel.torch._modules import LayerNorm, RMSNorm
from evenkeel.torch._norm_spec import ByAttributes, GatedByAttributes, Kind, NormSpec, ResultDtype, read
from evenkeel.torch._replace_check import can_be_compared, difference


class Source(Protocol):
    """What replace knows of a class: how it computes, and evenkeel's methods in its place."""

    @property
    def spec(self) -> Any:
        """Its `kind` is one of replace's."""

    def base_of(self, original: type[Module]) -> type[Module]:
        """What stands in front of the class."""

    def can_change(self, module: Module) -> bool:
        """Whether evenkeel computes what the module does."""

    def can_be_compared(self, module: Module) -> bool: ...

    def difference(self, module: Module, made: type[Module]) -> str | None:
        """How the forward of `made` differs from that of the module's class; None: it does not."""


class _Norm(NamedTuple):
    """A norm: its specification, and a class that has evenkeel's forward."""

    spec: NormSpec
    forward: type[Module]

    def base_of(self, original: type[Module]) -> type[Module]:
        return self.forward

    def can_change(self, module: Module) -> bool:
        """Not where the weight is broadcast, as one for each head."""
        weight = read(module, self.spec.weight)
        return self.spec.normalized_shape is not None or weight is None or weight.dim() == 1

    def can_be_compared(self, module: Module) -> bool:
        return can_be_compared(module)

    def difference(self, module: Module, made: type[Module]) -> str | None:
        return difference(module, made, self.spec)


_SHAPE = "normalized_shape"
_PYTORCH = {
    torch.nn.LayerNorm: _Norm(NormSpec("layer_norm", bias="bias", normalized_shape=_SHAPE), LayerNorm),
    torch.nn.RMSNorm: _Norm(NormSpec("rms_norm", normalized_shape=_SHAPE), RMSNorm),
}
_registered: WeakKeyDictionary[type, NormSpec] = WeakKeyDictionary()


def _by_spec(spec: NormSpec) -> Source:
    return _Norm(spec, ByAttributes if spec.gate is None else GatedByAttributes)


def source_of(original: type[Module]) -> Source | None:
    """By the first class that is registered or defines forward; None: evenkeel does not know that forward."""
    for cls in original.__mro__:
        spec = _registered.get(cls)
        if spec is not None:
            return _by_spec(spec)
        if "forward" in vars(cls):
            norm = _huggingface.spec_of(cls)
            if norm is not None:
                return _by_spec(norm)
            return _PYTORCH.get(cls) or _huggingface_glu.spec_of(cls) or _huggingface_rope.spec_of(cls)
    return None


def _require(argument: str, value: object, known: tuple[object, ...]) -> None:
    if value not in known:
        raise ValueError(f"register: {argument} is {value!r}; expected {' or '.join(map(repr, known))}")


def _require_types(cls: object, **given: tuple[object, Any, str]) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise TypeError(f"register: cls is {cls!r}; expected a subclass of torch.nn.Module")
    for argument, (value, types, expected) in given.items():
        if not isinstance(value, types) or isinstance(value, bool):
            raise TypeError(f"register: {argument} is {value!r}; expected {expected}")


_NAME = str | None, "the name of an attribute, or None"
_NUMBER = str | float | int, "the name of an attribute, or a number"


def register(
    cls: type[Module],
    kind: Kind,
    *,
    weight: str | None = "weight",
    bias: str | None = None,
    eps: str | float = "eps",
    normalized_shape: str | None = None,
    weight_offset: str | float = 0.0,
    rounding: str = "once",
    result_dtype: ResultDtype | None = None,
    gate: str | None = None,
    activation: str = "silu",
    gate_first: bool = False,
    group_cols: str | int | None = None,
) -> None:
    """Has replace take over a norm of your own: `cls`, and its subclasses that inherit forward.

    class ScaledNorm(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.zeros(size))

        def forward(self, x):
            wide = x.float()
            y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
            return (y * (1 + self.gain.float())).to(x.dtype)

    evenkeel.torch.register(ScaledNorm, "rms_norm", weight="gain", eps=1e-6, weight_offset=1.0, result_dtype="x")

    kind is "layer_norm" or "rms_norm". The names of attributes: weight and bias are parameters or other tensors, None
    where the norm has none; eps and weight_offset may be numbers instead; normalized_shape, by default the last
    dimension of x. weight_offset and rounding are those of evenkeel.torch.rms_norm.

    result_dtype is for a float32 weight with a 16-bit x: "x" where the result has the dtype of x, "promoted" where it
    is float32. By default the class computes such calls itself. It also computes calls with other dtypes, with more
    than one argument, and with weights that are broadcast.

    gate is for a norm of rms_norm_gated or layer_norm_gated: the name of forward's second argument, of the shape and
    dtype of x. Without it the class computes the call itself. activation is a name of these functions, or of an
    attribute that is one; gate_first is theirs; group_cols too, or the name of an attribute.
    """
    _require_types(
        cls,
        weight=(weight, *_NAME),
        bias=(bias, *_NAME),
        normalized_shape=(normalized_shape, *_NAME),
        eps=(eps, *_NUMBER),
        weight_offset=(weight_offset, *_NUMBER),
        gate=(gate, str | None, "the name of an argument of forward, or None"),
        activation=(activation, str, "the name of an activation or of an attribute"),
        group_cols=(group_cols, str | int | None, "the name of an attribute, a number, or None"),
    )
    _require("kind", kind, get_args(Kind))
    _require("result_dtype", result_dtype, (None, *get_args(ResultDtype)))
    if kind == "rms_norm":
        _require("bias", bias, (None,))
    _require("gate_first", gate_first, (False, True))
    if isinstance(group_cols, int) and group_cols <= 0:
        raise ValueError(f"register: group_cols is {group_cols}; expected a positive number")
    if gate is None:
        defaults = NormSpec._field_defaults
        given_without = {"activation": activation, "gate_first": gate_first, "group_cols": group_cols}
        for argument, value in given_without.items():
            if value != defaults[argument]:
                raise ValueError(f"register: {argument} is {value!r} and gate is None; expected a gate")
    check_flavour(0.0 if isinstance(weight_offset, str) else weight_offset, rounding, None, None)
    given = kind, weight, bias, eps, normalized_shape, weight_offset, rounding, result_dtype
    _registered[cls] = NormSpec(*given, gate, activation, gate_first, group_cols)
