"""replace and restore: evenkeel computes the norms, RoPE and gated activations of a model, and no longer does.

A module stays the object it is, with its parameters, buffers, hooks and state. Only its class changes, to a subclass
that adds evenkeel's forward. PyTorch's wrappers (fully_shard, parametrize) do the same on top of that class; restore
makes their classes again on top of the module's own. SPDX-License-Identifier: MIT
"""

import warnings
from collections.abc import Callable, Iterable
from types import new_class
from typing import Any, ClassVar, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary, WeakValueDictionary

from torch.nn import Module
from torch.nn.utils.parametrize import is_parametrized

from evenkeel.torch._register import Source, source_of

Kind = Literal["layer_norm", "rms_norm", "rope", "glu"]


class _Verdict(NamedTuple):
    """What the comparison of a class with its specification found."""

    spec: Any
    difference: str | None


# The classes made so far, by the class that each stands in for; one that no module has any more goes away.
_made: WeakValueDictionary[type[Module], type[Module]] = WeakValueDictionary()
_verdicts: WeakKeyDictionary[type[Module], _Verdict] = WeakKeyDictionary()


class _Replaced(Module):
    """A swapped module. In a pickle stands its own class, from which the made one is made again."""

    _original: ClassVar[type[Module]]
    _spec: ClassVar[Any]

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
    source = source_of(original)
    if source is not None:  # else it has another forward here than where the pickle was written
        module.__class__ = _class_for(original, source)
    return module


def _class_for(original: type[Module], source: Source) -> type[Module]:
    """The class that stands in for another, of the same name: there is code that goes by names."""
    made: Any = _made.get(original)
    if made is None or made._spec is not source.spec:  # registered again
        members: dict[str, Any] = {"__module__": __name__, "__doc__": original.__doc__, "__init__": original.__init__}
        members |= {"_original": original, "_spec": source.spec}
        bases = (_Replaced, source.base_of(original), original)
        made = _made[original] = new_class(original.__name__, bases, exec_body=lambda space: space.update(members))
    return made  # type: ignore[no-any-return]


def _difference(module: Module, source: Source) -> str | None:
    """How evenkeel's forward differs from the class's own; None: it does not, or cannot be compared here."""
    original = type(module)
    verdict = _verdicts.get(original)
    if verdict is None or verdict.spec is not source.spec:
        if not source.can_be_compared(module):
            return None
        found = source.difference(module, _class_for(original, source))
        verdict = _verdicts[original] = _Verdict(source.spec, found)
    return verdict.difference


def _can_change(module: Module, source: Source) -> bool:
    """Not where the forward is the object's own, or the class is one that PyTorch made for it and will take away."""
    return "forward" not in vars(module) and not is_parametrized(module) and source.can_change(module)


def _checked(kinds: Iterable[str]) -> frozenset[str]:
    chosen = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    known = get_args(Kind)
    for kind in sorted(chosen.difference(known)):
        raise ValueError(f"kinds has {kind!r}; expected {', '.join(map(repr, known))}")
    return chosen


def replace(model: Module, kinds: Iterable[Kind] = ("layer_norm", "rms_norm")) -> int:
    """Has evenkeel compute parts of a model, from now on; returns how many modules that changed.

    Norms are nn.LayerNorm, nn.RMSNorm, those of Hugging Face's models that a table names, classes given to register,
    and subclasses that inherit their forward. With "rope" the attention of Hugging Face's models turns q and k by
    evenkeel.torch.rope, with "glu" their gated feed-forward layers multiply by evenkeel.torch.glu; both by tables.

    Modules stay the objects they are, and restore(model) undoes it. The first time that it meets a class, it compares
    evenkeel's results with those of the class's own forward on a copy of the module. A warning names the classes for
    which they differ, which stay as they are.
    """
    chosen, count, different = _checked(kinds), 0, dict[type, str]()
    for module in model.modules():
        original = type(module)
        source = source_of(original)
        if source is None or source.spec.kind not in chosen or not _can_change(module, source):
            continue
        found = _difference(module, source)
        if found is None:
            module.__class__ = _class_for(original, source)
            count += 1
        else:
            different[original] = found
    for cls, found in different.items():
        text = f"replace left {cls.__module__}.{cls.__qualname__} as it is: {found}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
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
