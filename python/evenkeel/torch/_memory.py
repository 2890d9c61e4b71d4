"""How much memory a model needs for one forward and backward, found without any.

A copy of the model runs on fake tensors, which have a shape, a dtype and a device but no memory, while a ledger follows
each storage from its creation to its end. evenkeel's norms allocate there what they allocate otherwise.
SPDX-License-Identifier: MIT
"""

import copy
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map_only

from evenkeel.torch._ledger import Ledger

if TYPE_CHECKING:
    from typing_extensions import Self

InputShape = Sequence[int] | Tensor | Sequence[Any]


class MemoryEstimate(int):
    """The bytes that live at the peak, and of what they are made: all attributes are bytes too."""

    parameters: int
    buffers: int
    gradients: int  # those of the parameters
    saved: int  # what forward leaves alive: that which backward needs, and the output

    def __new__(cls, peak: int, parameters: int = 0, buffers: int = 0, gradients: int = 0, saved: int = 0) -> "Self":
        self = super().__new__(cls, peak)
        self.parameters, self.buffers, self.gradients, self.saved = parameters, buffers, gradients, saved
        return self

    @property
    def peak(self) -> int:
        return int(self)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"MemoryEstimate({int(self)}, {parts})"

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_readable(value)}" for name, value in vars(self).items())
        return f"{_readable(int(self))} at the peak ({parts})"


def _readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


def _size(tensors: Iterable[Tensor]) -> int:
    """Of their storages, each counted once."""
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())


# ---- the copy of the model ----

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def _that_compute_parameters(hooks: dict[int, Any]) -> dict[int, Any]:
    """The hooks of weight_norm, spectral_norm and pruning. All others are the user's, and are not run."""
    return OrderedDict(
        (key, hook) for key, hook in hooks.items() if getattr(hook, "__module__", "").startswith("torch.nn.utils.")
    )


def _call(module: Module, *args: Any, **kwargs: Any) -> Any:
    """Module.__call__ without the hooks that are registered for all modules."""
    for hook in module._forward_pre_hooks.values():
        hook(module, args)
    return module.forward(*args, **kwargs)


def _copied(model: Module) -> Module:
    """In training, without the user's hooks: neither run nor copied."""
    hooks = (getattr(module, name) for module in model.modules() for name in _HOOKS)
    twin: Module = copy.deepcopy(model, {id(each): _that_compute_parameters(each) for each in hooks})
    for module in twin.modules():
        vars(module)["_call_impl"] = partial(_call, module)
    return twin.train()


# ---- its inputs ----


def _inputs(model: Module, given: InputShape, dtype: torch.dtype | None) -> list[Any]:
    """Tensors without memory where the model is, of the shape or like those given; what is not a tensor as it is."""
    tensors = list(chain(model.parameters(), model.buffers()))
    device = tensors[0].device if tensors else None
    arguments = [given] if isinstance(given, Tensor) else list(given)
    if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(arguments)):
        if dtype is None:
            dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())
        return [torch.empty(tuple(given), dtype=dtype, device=device)]
    if dtype is not None:
        raise ValueError(f"dtype ({dtype}) is for an input_shape of numbers: a tensor has its own")

    def like(example: Tensor) -> Tensor:
        return torch.empty(example.shape, dtype=example.dtype, device=device, requires_grad=example.requires_grad)

    result: list[Any] = tree_map_only(Tensor, like, arguments)
    return result


# ---- the estimate ----


def _gpus_in_use() -> range:
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)  # type: ignore[no-untyped-call]


def _step(model: Module, inputs: list[Any], ledger: Ledger) -> MemoryEstimate:
    """y = model(x); y.backward(gradient), with everything in sight alive to the end."""
    parameters = ledger.enter(model.parameters())
    buffers = ledger.enter(model.buffers())
    ledger.enter(tree_leaves(inputs))
    start = ledger.live
    with ledger:
        result = model(*inputs)
        saved = ledger.live - start
        outputs = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        gradients = [torch.empty_like(t) for t in outputs]
        torch.autograd.backward(outputs, gradients)
    found = _size(p.grad for p in model.parameters() if p.grad is not None)
    return MemoryEstimate(ledger.peak, parameters, buffers, found, saved)


def memory_estimate(model: Module, input_shape: InputShape, dtype: torch.dtype | None = None) -> MemoryEstimate:
    """The peak in bytes of y = model(x), y.backward(gradient) in training, from a model without gradients.

    Counted is all that lives: parameters, buffers, x, what forward saves, y and its gradient, gradients, temporaries.
    x has the shape, and the dtype or else that of the model's first parameter; or it is like the tensor given. Of a
    tuple or list that contains a tensor, every element is an argument of the model: tensors give their shape and dtype,
    other values are passed as they are. Nothing is computed or allocated, on any device. The model stays as it is, and
    hooks do not run, neither the model's nor those for all modules.
    """
    # Here and not above: this import takes a good part of a second.
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeCopyMode,
        FakeTensorMode,
    )

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.inference_mode(False), FakeCopyMode(fake):
        twin = _copied(model)
    try:
        with (
            torch.random.fork_rng(_gpus_in_use()),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(False),
            fake,
        ):
            return _step(twin, _inputs(twin, input_shape, dtype), Ledger())
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotImplementedError(
            f"the model looks at the values of tensors, of which there are none: {error}"
        ) from error
