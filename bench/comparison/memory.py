"""The memory of one forward and backward beyond its inputs: at the peak, and what forward keeps for backward.

The peak: on a GPU PyTorch's allocator counts. On a CPU the kernel does, in pages: the high water of resident memory,
with an allocator that takes large blocks from the system and gives them back; that counts whoever allocates.
What is kept: the tensors that autograd saves, without those that live anyway, the inputs and the output.
SPDX-License-Identifier: MIT"""

import ctypes
import gc
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from comparison.accuracy import Given, adopt, make
from comparison.backends.base import Backend, Done
from comparison.case import Case

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of mallopt
BLOCK, MANY = 64 << 10, 1 << 16  # from this size on, an allocation is the system's
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.M)
    assert found
    return int(found.group(1)) * 1024


class _Cpu:
    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, MANY)
        libc.mallopt(M_MMAP_THRESHOLD, BLOCK)
        libc.mallopt(M_TRIM_THRESHOLD, BLOCK)
        self.trim = libc.malloc_trim

    def begin(self) -> int:
        self.trim(0)
        CLEAR.write_text("5")  # the high water is the present again
        return _resident("VmRSS")

    def peak(self) -> int:
        return _resident("VmHWM")


class _Cuda:
    def begin(self) -> int:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated()


def _kept_bytes(backend: Backend, done: Done, saved: list[Tensor], inputs: Iterable[Any]) -> int:
    """Of the storages that forward left for backward, those that are neither its inputs' nor its output's."""
    kept = [*saved, *map(backend.restore, done.kept)]
    lives = {_storage(tensor) for tensor in map(backend.restore, (*inputs, *done.outputs)) if tensor is not None}
    sizes = {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in kept if tensor is not None}
    return sum(size for storage, size in sizes.items() if storage not in lives)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _once(backend: Backend, case: Case, given: Given, meter: _Cpu | _Cuda) -> dict[str, int]:
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.detach())
        return tensor

    gc.collect()
    start = meter.begin()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        done = backend.forward(case, given.operands)
    kept = _kept_bytes(backend, done, saved, [t for t in given.operands if t is not None])
    saved.clear()
    gradients = backend.backward(case, given.gradients, done)
    peak = meter.peak() - start
    del done, gradients
    return {"peak_bytes": peak, "saved_bytes": kept}


def meter_for(device: str) -> _Cpu | _Cuda | None:
    """None where the system does not tell."""
    if device == "cuda":
        return _Cuda()
    try:
        meter = _Cpu()
        meter.begin()
        return meter
    except OSError:
        return None


def measure(backend: Backend, case: Case, device: str, meter: _Cpu | _Cuda, emit: Callable[[dict], None]) -> None:
    """The second of two steps: the first compiles, and fills what a library keeps."""
    made = make(case, device, backend.weight_dtype(case))
    given = Given(adopt(backend, case, made.operands), tuple(backend.adopt(t, False) for t in made.gradients))
    _once(backend, case, given, meter)
    values = _once(backend, case, given, meter)
    emit({"op": case.op, "dtype": case.dtype, "rows": case.rows, "cols": case.cols, "model": case.model, **values})
