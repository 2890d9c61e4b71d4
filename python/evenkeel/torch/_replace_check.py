"""Compares evenkeel's forward with a class's own, on a copy of one instance, before replace relies on it.

The copy has random weights and is on the CPU. The comparison leaves the global random state, the grad mode, autocast
and hooks as they are. _replace.py calls it. SPDX-License-Identifier: MIT
"""

import math
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.nn import Module, Parameter

from evenkeel.torch._autocast import without_autocast
from evenkeel.torch._norm_spec import BySpec, NormSpec, read, shape_of

_COLUMNS = 64  # of norms that have neither a weight nor a shape
_ELEMENTS = 4096  # of x, at least: enough to measure the share that differs
# Of the largest result: float32 differs by the order of sums, PyTorch's own bfloat16 also by how often it rounds, which
# depends on its version.
_TOLERANCE = {torch.float32: 2.0**-15, torch.bfloat16: 2.0**-6}
# With a bfloat16 x, a class that computes the same differs in less than 0.03 % of the elements, by 2 ulp at most except
# near 0; one that rounds elsewhere differs in more than 5 %.
_SHARE, _ULP = 0.01, 4


class _Setting(NamedTuple):
    """One comparison: dtypes, device, and the scale of x."""

    dtype: torch.dtype
    weight_dtype: torch.dtype
    device: torch.device
    scale: float


# ---- the copy ----


def _tensors(module: Module) -> Iterator[Tensor]:
    places = vars(module), module._parameters, module._buffers
    return (value for place in places for value in place.values() if isinstance(value, Tensor))


def can_be_compared(module: Module) -> bool:
    """Not on tensors that are elsewhere: on the meta device, sharded, fake, or not yet made."""
    return not _len_torch_dispatch_stack() and all(
        type(t) in (Tensor, Parameter) and not t.is_meta and t.numel() and t.untyped_storage().nbytes()
        for child in module.modules()
        for t in _tensors(child)
    )


def random_tensor(shape: Any, generator: torch.Generator) -> Tensor:
    """Normal numbers in float32 on the CPU."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32, device="cpu")


def _copied(name: str, value: Any, spec: NormSpec, setting: _Setting, generator: torch.Generator) -> Any:
    """A value of a copied module: weight and bias at random, other tensors in the dtype, containers of their own."""
    if isinstance(value, Tensor):
        if name in (spec.weight, spec.bias):
            return random_tensor(value.shape, generator).to(setting.device, setting.weight_dtype)
        dtype = setting.dtype if value.is_floating_point() else value.dtype
        return value.detach().to(setting.device, dtype, copy=True)
    if isinstance(value, Module):
        return _copy(value, spec, setting, generator)
    return copy(value) if isinstance(value, (list, dict, set)) else value


def _copy(module: Module, spec: NormSpec, setting: _Setting, generator: torch.Generator) -> Module:
    """A module of the same class and state that shares no tensors; it is not deep, as attributes may lead anywhere."""
    twin = object.__new__(type(module))
    for name, value in vars(module).items():
        twin.__dict__[name] = _copied(name, value, spec, setting, generator)
    for place in ("_parameters", "_buffers", "_modules"):
        held = twin.__dict__[place]
        held.update({name: _copied(name, value, spec, setting, generator) for name, value in held.items()})
    return twin


# ---- the comparison ----


def _eps(module: Module, spec: NormSpec) -> float:
    value = read(module, spec.eps)
    return torch.finfo(torch.float32).eps if value is None else float(value)


def _inputs(module: Module, spec: NormSpec, setting: _Setting, generator: torch.Generator) -> list[Tensor]:
    """x, and a gate where the norm has one."""
    weight = read(module, spec.weight)
    shape = shape_of(module, spec) or (_COLUMNS,) if weight is None else weight.shape
    rows = 2, max(3, _ELEMENTS // (2 * math.prod(shape)))
    x = (random_tensor((*rows, *shape), generator) + 0.5) * setting.scale
    gate = () if spec.gate is None else (random_tensor(x.shape, generator),)
    return [t.to(setting.device, setting.dtype) for t in (x, *gate)]


def _both(module: Module, made: type[Module], spec: NormSpec, setting: _Setting) -> tuple[Any, Any]:
    """The results of the class's own forward and of evenkeel's."""
    generator = torch.Generator().manual_seed(0)
    twin = _copy(module, spec, setting, generator)
    if isinstance(spec.eps, str):
        twin.__dict__[spec.eps] = _eps(module, spec)  # PyTorch's default depends on its version
    inputs = _inputs(module, spec, setting, generator)
    with torch.no_grad(), without_autocast(inputs[0]):
        own = type(module).forward(twin, *(t.clone() for t in inputs))
        twin.__class__ = made
        twin.__dict__["_spec"] = spec  # which may be another than that of made
        return own, made.forward(twin, *inputs)


def ulp_apart(a: Tensor, b: Tensor) -> Tensor:
    """How many values of their 16-bit dtype lie between the elements."""
    numbers = (t.view(torch.int16).int() for t in (a, b))
    first, second = (torch.where(n < 0, -(n & 0x7FFF), n) for n in numbers)
    return (first - second).abs()


def _rounding_difference(own: Tensor, ours: Tensor) -> str | None:
    """What differs in bfloat16. Results near 0, where a LayerNorm's x is near the mean, may be many ulp apart."""
    apart = ulp_apart(own.bfloat16(), ours.bfloat16())
    share = (apart != 0).float().mean().item()
    is_tiny = (own.double() - ours.double()).abs() <= _TOLERANCE[torch.float32] * own.double().abs().max()
    ulp = int(apart.masked_fill(is_tiny, 0).max())
    if share <= _SHARE and ulp <= _ULP:
        return None
    return f"{share:.2%} of the results for a bfloat16 x differ, by up to {ulp} ulp"


def difference_of_results(own: Any, ours: Tensor, by_ulp: bool = False) -> str | None:
    """What differs; None: nothing but rounding."""
    if not isinstance(own, Tensor) or own.shape != ours.shape or own.dtype is not ours.dtype:
        shown = f"{own.dtype} of shape {tuple(own.shape)}" if isinstance(own, Tensor) else f"a {type(own).__name__}"
        return f"its own forward returns {shown}, evenkeel's {ours.dtype} of shape {tuple(ours.shape)}"
    if by_ulp:
        return _rounding_difference(own, ours)
    largest = own.double().abs().max().item()
    difference = (own.double() - ours.double()).abs().max().item()
    if difference <= _TOLERANCE[ours.dtype] * largest:
        return None
    return f"the largest difference is {difference:.3g}, of results up to {largest:.3g} in {ours.dtype}"


def _settings(module: Module, spec: NormSpec, device: torch.device) -> Iterator[_Setting]:
    dtypes = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)]
    if spec.result_dtype is not None:
        dtypes.append((torch.bfloat16, torch.float32))
    for scale in (1.0, math.sqrt(_eps(module, spec)) or 1.0):
        for dtype, weight_dtype in dtypes:
            yield _Setting(dtype, weight_dtype, device, scale)


def _compared(module: Module, made: type[Module], spec: NormSpec, device: torch.device) -> str | None:
    for setting in _settings(module, spec, device):
        by_ulp = setting.dtype is torch.bfloat16 and issubclass(made, BySpec)
        found = difference_of_results(*_both(module, made, spec, setting), by_ulp)
        if found is not None:
            return found
    return None


def _compared_both_ways(module: Module, made: type[Module], spec: NormSpec, device: torch.device) -> str | None:
    """The difference, and the other rounding where there is none with that."""
    found = _compared(module, made, spec, device)
    if found is None or not issubclass(made, BySpec):
        return found
    other = spec._replace(rounding="each" if spec.rounding == "once" else "once")
    try:
        is_same = _compared(module, made, other, device) is None
    except Exception:
        is_same = False
    return f"{found}; rounding={other.rounding!r} matches" if is_same else found


def difference(module: Module, made: type[Module], spec: NormSpec) -> str | None:
    """How the forward of `made` differs from that of the module's class; None: it does not.

    A forward that only works on another device is compared there.
    """
    there = next((t.device for t in _tensors(module)), torch.device("cpu"))
    try:
        return _compared_both_ways(module, made, spec, torch.device("cpu"))
    except Exception as error:
        if there.type == "cpu":
            return f"{type(error).__name__}: {error}"
    try:
        return _compared_both_ways(module, made, spec, there)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
