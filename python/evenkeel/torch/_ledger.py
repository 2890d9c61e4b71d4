"""The bytes of the tensors that live while memory_estimate runs a model. SPDX-License-Identifier: MIT"""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves

_CUDA_BLOCK = 512  # PyTorch's allocator rounds sizes up to it there


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that live and their peak, from the results of every operation and the end of every storage."""

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

    def called(self, function: str, tensors: Sequence[Any], others: Sequence[Any]) -> None:
        """A call of evenkeel's kernels, which is not computed; evenkeel.torch.analyze counts it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.enter(tree_leaves(result))
        return result


def is_estimated() -> bool:
    """Whether a call is part of an estimate. Modes belong to a thread: calls of other threads are not."""
    return _len_torch_dispatch_stack() > 0 and any(isinstance(m, Ledger) for m in _get_current_dispatch_mode_stack())


def note_call(function: str, tensors: Sequence[Any], *others: Any) -> None:
    """Tells the ledgers about a call of an estimate."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, Ledger):
            mode.called(function, tensors, others)
