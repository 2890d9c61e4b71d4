"""Norms swapped in a model that exists, and swapped back.

A module stays the object it is, with its parameters, buffers, hooks and state: its class alone changes, to one that is
made of its own class and evenkeel's forward. SPDX-License-Identifier: MIT
"""

from collections.abc import Callable, Iterable
from types import new_class
from typing import Any, ClassVar, Literal, NamedTuple, get_args
from weakref import WeakValueDictionary

import torch
from torch.nn import Module
from torch.nn.utils.parametrize import is_parametrized

from evenkeel.torch._huggingface import LlamaStyle, eps_name
from evenkeel.torch._modules import LayerNorm, RMSNorm

Kind = Literal["layer_norm", "rms_norm"]


class _Source(NamedTuple):
    """A class that has evenkeel's forward, and what that reads beside the module itself."""

    kind: Kind
    forward: type[Module]
    members: dict[str, Any]


# The classes made so far, by the class that each stands in for; one that no module has any more goes away.
_made: WeakValueDictionary[type[Module], type[Module]] = WeakValueDictionary()


class _Replaced(Module):
    """A swapped module. In a pickle stands its own class, from which the made one is made again."""

    _original: ClassVar[type[Module]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        assert isinstance(reduced, tuple)
        make, arguments, *state = reduced
        arguments = tuple(self._original if a is type(self) else a for a in arguments)
        return _read_again, (self._original, make, arguments), *state


def _read_again(original: type[Module], make: Callable[..., Module], arguments: tuple[Any, ...]) -> Module:
    module = make(*arguments)
    source = _source(original)
    if source is not None:  # else it has another forward here than where the pickle was written
        module.__class__ = _class_for(original, source)
    return module


def _source(original: type[Module]) -> _Source | None:
    """Where the forward is to come from, by the class that defines the one there is; None: it is no norm of ours."""
    owner = next(cls for cls in original.__mro__ if "forward" in vars(cls))
    if owner is torch.nn.LayerNorm:
        return _Source("layer_norm", LayerNorm, {})
    if owner is torch.nn.RMSNorm:
        return _Source("rms_norm", RMSNorm, {})
    name = eps_name(owner)
    return None if name is None else _Source("rms_norm", LlamaStyle, {"_eps_name": name})


def _class_for(original: type[Module], source: _Source) -> type[Module]:
    """The class that stands in for another, of the same name: there is code that goes by names."""
    made = _made.get(original)
    if made is None:
        members = {"__module__": __name__, "__doc__": original.__doc__, "_original": original, **source.members}
        bases = (_Replaced, source.forward, original)
        made = _made[original] = new_class(original.__name__, bases, exec_body=lambda space: space.update(members))
    return made


def _can_change(module: Module) -> bool:
    """Not where the forward is the object's own, or the class is one that PyTorch made for it and will take away."""
    return "forward" not in vars(module) and not is_parametrized(module)


def _checked(kinds: Iterable[str]) -> frozenset[str]:
    chosen = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    known = get_args(Kind)
    for kind in sorted(chosen.difference(known)):
        raise ValueError(f"kinds has {kind!r}: it may have {' and '.join(map(repr, known))}")
    return chosen


def replace(model: Module, kinds: Iterable[Kind] = ("layer_norm", "rms_norm")) -> int:
    """Has evenkeel compute the norms of a model, from now on; returns how many modules that changed.

    These are nn.LayerNorm, nn.RMSNorm, Hugging Face's Llama-style RMSNorms, and subclasses that inherit their forward.
    Modules stay the objects they are, and restore(model) undoes it.
    """
    chosen, count = _checked(kinds), 0
    for module in model.modules():
        source = _source(type(module))
        if source is not None and source.kind in chosen and _can_change(module):
            module.__class__ = _class_for(type(module), source)
            count += 1
    return count


def restore(model: Module) -> int:
    """Gives every module that replace changed its own class again; returns how many those were."""
    count = 0
    for module in model.modules():
        original = vars(type(module)).get("_original")
        if original is not None and issubclass(type(module), _Replaced):
            module.__class__ = original
            count += 1
    return count
