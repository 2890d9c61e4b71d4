"""How a class computes its norm: the names of its attributes and its flavours, and forward by evenkeel from them.

_huggingface.py and _register.py have the specifications; _replace.py puts forward in front of the classes.
SPDX-License-Identifier: MIT
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled

from evenkeel.torch import _composed
from evenkeel.torch._autocast import without_autocast
from evenkeel.torch._call import NARROW
from evenkeel.torch._functional import layer_norm, layer_norm_gated, rms_norm, rms_norm_gated

Kind = Literal["layer_norm", "rms_norm"]
ResultDtype = Literal["x", "promoted"]
ACTIVATIONS = tuple(_composed.ACTIVATIONS)  # no dict, as an attribute may have no hash


class NormSpec(NamedTuple):
    """Where a class keeps the operands of its norm: an attribute's name, or a value where that is a number."""

    kind: Kind
    weight: str | None = "weight"
    bias: str | None = None
    eps: str | float = "eps"
    normalized_shape: str | None = None  # None: the last dimension
    weight_offset: str | float = 0.0
    rounding: str = "once"
    # With a float32 weight and a 16-bit x: that of x, or float32. None: the class computes such calls itself.
    result_dtype: ResultDtype | None = None
    # The name of a second argument of forward: activation(gate) multiplies the result, or x where gate_first is true.
    gate: str | None = None
    activation: str = "silu"  # its name, or that of an attribute
    gate_first: bool = False
    group_cols: str | int | None = None  # only with a gate


def read(module: torch.nn.Module, attribute: str | float | None) -> Any:
    """The value of an attribute, None where the module lacks it; a number is itself."""
    return getattr(module, attribute, None) if isinstance(attribute, str) else attribute


def shape_of(module: torch.nn.Module, spec: NormSpec) -> tuple[int, ...] | None:
    """The dimensions that are normalized; None: the last one."""
    shape = read(module, spec.normalized_shape)
    return None if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)


def _mixed_dtype(spec: NormSpec, x: torch.dtype, weight: torch.dtype) -> torch.dtype | None:
    """Of the result, where weight has another dtype than x."""
    if weight is not torch.float32 or x not in NARROW or spec.result_dtype is None:
        return None
    return x if spec.result_dtype == "x" else weight


def _out_dtype(spec: NormSpec, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None) -> torch.dtype | None:
    """Of the result. None: the class computes the call itself, as the columns are broadcast or of other dtypes."""
    column = bias if weight is None else weight
    if column is None:
        return x.dtype
    if column.shape != shape:
        return None
    if weight is not None and bias is not None and (bias.shape != shape or bias.dtype is not weight.dtype):
        return None
    return x.dtype if column.dtype is x.dtype else _mixed_dtype(spec, x.dtype, column.dtype)


def _column(module: torch.nn.Module, name: str | None) -> Any:
    """weight or bias. A parameter is read without the module's __getattr__, which takes a microsecond."""
    found = None if name is None else module._parameters.get(name)
    return read(module, name) if found is None else found


class BySpec(torch.nn.Module):
    """In front of a class that has a specification. Autocast does not change its norm."""

    _spec: ClassVar[NormSpec]


class ByAttributes(BySpec):
    """forward of x."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) != 1:
            return super().forward(*args, **kwargs)
        (x,) = args or kwargs.values()
        spec = self._spec
        weight, bias = _column(self, spec.weight), _column(self, spec.bias)
        shape = x.shape[-1:] if spec.normalized_shape is None else shape_of(self, spec)
        if bias is None and weight is not None and weight.dtype is x.dtype and weight.shape == shape:
            out_dtype = x.dtype
        else:
            out_dtype = _out_dtype(spec, x, shape, weight, bias)
        if out_dtype is None or read(self, spec.weight_offset) not in (0, 1):
            return super().forward(x)
        if not _is_any_autocast_enabled():
            return _norm(self, spec, x, shape, weight, bias, out_dtype)
        with without_autocast(x):
            return _norm(self, spec, x, shape, weight, bias, out_dtype)


class GatedByAttributes(BySpec):
    """forward of x and a gate."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        spec = self._spec
        given = (*args, *kwargs.values()) if list(kwargs) in ([], [spec.gate]) else ()
        if len(given) != 2 or not _is_gate_of(*given):
            return super().forward(*args, **kwargs)
        x, gate = given
        weight, bias = _column(self, spec.weight), _column(self, spec.bias)
        shape = x.shape[-1:] if spec.normalized_shape is None else shape_of(self, spec)
        out_dtype = _out_dtype(spec, x, shape, weight, bias)
        is_known = _activation(self, spec) in ACTIVATIONS and read(self, spec.weight_offset) in (0, 1)
        if out_dtype is None or not is_known:
            return super().forward(*args, **kwargs)
        with without_autocast(x):
            return _gated_norm(self, spec, x, gate, shape, weight, bias, out_dtype)


def _is_gate_of(x: Any, gate: Any) -> bool:
    are_tensors = isinstance(x, Tensor) and isinstance(gate, Tensor)
    return are_tensors and gate.dtype is x.dtype and gate.shape == x.shape


def _activation(module: torch.nn.Module, spec: NormSpec) -> Any:
    return spec.activation if spec.activation in ACTIVATIONS else read(module, spec.activation)


def _norm(module: Any, spec: NormSpec, x: Tensor, shape: Any, weight: Any, bias: Any, dtype: torch.dtype) -> Tensor:
    eps, offset = read(module, spec.eps), read(module, spec.weight_offset)
    rounding = _rounding(spec, x)
    out_dtype = None if dtype is x.dtype else dtype
    if spec.kind == "rms_norm":
        return rms_norm(x, shape, weight, eps, weight_offset=offset, rounding=rounding, out_dtype=out_dtype)
    return layer_norm(x, shape, weight, bias, eps, weight_offset=offset, rounding=rounding, out_dtype=out_dtype)


def _rounding(spec: NormSpec, x: Tensor) -> str:
    """Wide values do not round in between: the bits are those of "once", whose CPU kernels are faster."""
    return spec.rounding if x.dtype in NARROW else "once"


def _gated_norm(
    module: Any, spec: NormSpec, x: Tensor, gate: Tensor, shape: Any, weight: Any, bias: Any, dtype: torch.dtype
) -> Tensor:
    eps, choices = read(module, spec.eps), (_activation(module, spec), spec.gate_first, read(module, spec.group_cols))
    flavour: Any = {"weight_offset": read(module, spec.weight_offset), "rounding": _rounding(spec, x)}
    flavour["out_dtype"] = dtype
    if spec.kind == "rms_norm":
        return rms_norm_gated(x, gate, shape, weight, eps, *choices, **flavour)
    return layer_norm_gated(x, gate, shape, weight, bias, eps, *choices, **flavour)
