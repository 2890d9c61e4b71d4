"""replace and restore: evenkeel computes the norms of an existing model, and no longer does.

A module stays the object it is, with its parameters, buffers, hooks and state. Only its class changes, to a subclass
that adds evenkeel's forward. PyTorch's wrappers (fully_shard, parametrize) do the same on top of that class; restore
makes their classes again on top of the module's own. SPDX-License-Identifier: MIT
"""

import warnings
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
        if "_original" not in vars(type(self)):  # a wrapper's class: copied and pickled by its own rules
            return reduced
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


def _uses_its_class(member: Any) -> bool:
    """Whether a function calls super(): it then works only on objects of the class that it was written in."""
    code = getattr(getattr(member, "__func__", member), "__code__", None)
    return code is not None and "__class__" in code.co_freevars


def _made_again(cls: type[Module], bases: tuple[type, ...]) -> type[Module]:
    """A wrapper's class with other bases; TypeError or ValueError where that cannot be."""
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    for name, value in members.items():
        if _uses_its_class(value):
            raise TypeError(f"{cls.__name__}.{name} calls super()")
    metaclass: Callable[..., type[Module]] = type(cls)
    return metaclass(cls.__name__, bases, members)


def _class_without(cls: type[Module], made: dict[type, type[Module]]) -> type[Module]:
    """The class as it would be without replace; `made` has the wrappers' classes that this call of restore made."""
    if not issubclass(cls, _Replaced):
        return cls
    if "_original" in vars(cls):
        return cls._original
    if cls not in made:
        made[cls] = _made_again(cls, tuple(_class_without(base, made) for base in cls.__bases__))
    return made[cls]


def _restore(module: Module, made: dict[type, type[Module]]) -> None:
    if "forward" in vars(module):  # set after replace, and it may call evenkeel's
        raise TypeError("forward is set on the module")
    module.__class__ = _class_without(type(module), made)


def restore(model: Module) -> int:
    """Gives every module that replace changed its own class again; returns how many those were.

    Wrappers that changed the class after replace, such as fully_shard and parametrize, stay. A warning names the
    modules that could not be restored.
    """
    count, left, made = 0, [], dict[type, type[Module]]()
    for name, module in model.named_modules():
        if isinstance(module, _Replaced):
            try:
                _restore(module, made)
                count += 1
            except (TypeError, ValueError) as error:
                left.append(f"{name or 'the model'} ({type(module).__name__}): {error}")
    if left:
        text = f"restore left {len(left)} module(s) replaced; undo what wrapped them first: {'; '.join(left)}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return count
