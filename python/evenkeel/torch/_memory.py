"""How much memory a model needs for one forward and backward, found without any.

The model runs on fake tensors, which have a shape, a dtype and a device but no memory, while a ledger follows each
storage from its making to its end. evenkeel's norms allocate there what they really do. SPDX-License-Identifier: MIT
"""

import copy
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evenkeel.torch import _functional

if TYPE_CHECKING:
    from typing_extensions import Self

InputShape = Sequence[int] | Tensor | Sequence[Tensor]

_CUDA_BLOCK = 512  # what PyTorch's allocator rounds sizes up to there


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


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The bytes that live, and the most there were: sees every operation's results, and every storage's end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def enter(self, tensors: Iterable[Any]) -> int:
        """Follows the storages from now on; returns the bytes of those that are new."""
        before = self.live
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self._enter(tensor)
        self.peak = max(self.peak, self.live)
        return self.live - before

    def _enter(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            if tensor.is_cuda:
                size = -(-size // _CUDA_BLOCK) * _CUDA_BLOCK
            self._known.add(key)
            self.live += size
            weakref.finalize(storage, self._leave, key, size)

    def _leave(self, key: int, size: int) -> None:
        self._known.remove(key)
        self.live -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.enter(tree_leaves(result))
        return result


def _size(tensors: Iterable[Tensor]) -> int:
    """Of their storages, each counted once."""
    return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}.values())


def _inputs(model: Module, input_shape: InputShape, dtype: torch.dtype | None) -> list[Tensor]:
    """Without memory, where the model is: of the shape, or like the tensors."""
    tensors = list(chain(model.parameters(), model.buffers()))
    device = tensors[0].device if tensors else None
    examples = [input_shape] if isinstance(input_shape, Tensor) else [e for e in input_shape if isinstance(e, Tensor)]
    if not examples:
        if dtype is None:
            dtype = next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())
        return [torch.empty(tuple(input_shape), dtype=dtype, device=device)]
    if dtype is not None:
        raise ValueError(f"dtype ({dtype}) is for an input_shape of numbers: a tensor has its own")
    return [torch.empty(e.shape, dtype=e.dtype, device=device, requires_grad=e.requires_grad) for e in examples]


@contextmanager
def _estimating() -> Iterator[None]:
    _functional.estimating = True
    try:
        yield
    finally:
        _functional.estimating = False


def _step(model: Module, inputs: list[Tensor], ledger: _Ledger) -> MemoryEstimate:
    """y = model(x); y.backward(gradient), with everything in sight alive to the end."""
    parameters = ledger.enter(model.parameters())
    buffers = ledger.enter(model.buffers())
    ledger.enter(inputs)
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
    x has the shape, and the dtype or else that of the model's first parameter; or it is like the tensor given, or the
    several tensors. Nothing is computed or allocated, on any device, and the model stays as it is.
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
        twin = copy.deepcopy(model).train()
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autograd.set_multithreading_enabled(False),
            _estimating(),
            fake,
        ):
            return _step(twin, _inputs(twin, input_shape, dtype), _Ledger())
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotImplementedError(
            f"the model looks at the values of tensors, of which there are none: {error}"
        ) from error
