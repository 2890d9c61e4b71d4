"""oneDNN's layer normalization through its C interface (version 3), with ctypes; the few types and numbers that are
needed are declared here, as in cli/peers.c. Scale, shift and statistics are f32 there. SPDX-License-Identifier: MIT"""

import ctypes
import os
import sys
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from comparison.backends.base import Backend, Done
from comparison.case import Case

CPU, STREAM_DEFAULT = 1, 1
TYPES = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3}
FORWARD_TRAINING, BACKWARD = 64, 128
USE_SCALE, USE_SHIFT, RMS_NORM = 2, 4, 32
SRC, DST, MEAN, VARIANCE, SCALE, SHIFT = 1, 17, 49, 50, 51, 52
DIFF_SRC, DIFF_DST, DIFF_SCALE, DIFF_SHIFT = 129, 145, 255, 256

Dims = c_int64 * 12


class Argument(Structure):
    _fields_ = (("arg", c_int), ("memory", c_void_p))


class Version(Structure):
    _fields_ = (("major", c_int), ("minor", c_int), ("patch", c_int))


HANDLE, OUT = c_void_p, POINTER(c_void_p)
FUNCTIONS = {
    "engine_create": (OUT, c_int, c_size_t),
    "stream_create": (OUT, HANDLE, c_uint),
    "stream_wait": (HANDLE,),
    "memory_desc_create_with_strides": (OUT, c_int, Dims, c_int, Dims),
    "memory_create": (OUT, HANDLE, HANDLE, c_void_p),
    "memory_destroy": (HANDLE,),
    "layer_normalization_forward_primitive_desc_create": (
        *(OUT, HANDLE, c_int, HANDLE, HANDLE, HANDLE, c_float, c_uint, HANDLE),
    ),
    "layer_normalization_backward_primitive_desc_create": (
        *(OUT, HANDLE, c_int, HANDLE, HANDLE, HANDLE, HANDLE, c_float, c_uint, HANDLE, HANDLE),
    ),
    "primitive_create": (OUT, HANDLE),
    "primitive_execute": (HANDLE, HANDLE, c_int, POINTER(Argument)),
}


def _open() -> ctypes.CDLL:
    """The library where $EVENKEEL_DNNL says, where the linker finds it, else where pip puts it."""
    told = os.environ.get("EVENKEEL_DNNL")
    if told:
        return ctypes.CDLL(told)
    roots = dict.fromkeys((Path(sys.prefix), Path(__file__).parents[3] / ".venv"))
    found = [str(path) for root in roots for path in sorted(root.glob("lib/libdnnl.so.3*"))]
    for name in ("libdnnl.so.3", *found):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise OSError("libdnnl.so.3 is not found")


class Library:
    """Calls by name; one that fails raises."""

    def __init__(self) -> None:
        self.library = _open()
        for name, arguments in FUNCTIONS.items():
            getattr(self.library, f"dnnl_{name}").argtypes = arguments
        self.library.dnnl_version.restype = POINTER(Version)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, f"dnnl_{name}")(*arguments)
        if status:
            raise RuntimeError(f"dnnl_{name} failed with status {status}")

    def make(self, name: str, *arguments: Any) -> c_void_p:
        """What a function makes, by its first argument."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle

    def version(self) -> str:
        version = self.library.dnnl_version().contents
        return f"{version.major}.{version.minor}.{version.patch}"


class Primitives:
    """Forward and backward for one case, and the descriptors of what they read and write."""

    def __init__(self, library: Library, engine: c_void_p, case: Case, dtype: torch.dtype) -> None:
        flags = USE_SCALE | (USE_SHIFT if case.bias else 0) | (RMS_NORM if case.op == "rms_norm" else 0)
        self.library = library
        self.activations = self._descriptor((case.rows, case.cols), (case.cols, 1), TYPES[dtype])
        self.statistics = self._descriptor((case.rows,), (1,), TYPES[torch.float32])
        self.columns = self._descriptor((case.cols,), (1,), TYPES[torch.float32])
        x, stats = self.activations, self.statistics
        forward = library.make(
            "layer_normalization_forward_primitive_desc_create",
            *(engine, FORWARD_TRAINING, x, x, stats, case.eps, flags, None),
        )
        backward = library.make(
            "layer_normalization_backward_primitive_desc_create",
            *(engine, BACKWARD, x, x, x, stats, case.eps, flags, forward, None),
        )
        self.forward, self.backward = (library.make("primitive_create", made) for made in (forward, backward))

    def _descriptor(self, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: int) -> c_void_p:
        dims = len(sizes), Dims(*sizes), dtype, Dims(*strides)
        return self.library.make("memory_desc_create_with_strides", *dims)


class OneDNN(Backend):
    dtypes = ("f32", "f16", "bf16")
    allocates = False
    note = "weights and statistics are f32; no allocation in a call"

    def load(self, device: str, threads: int) -> str:
        self.library = Library()
        self.engine = self.library.make("engine_create", CPU, 0)
        self.stream = self.library.make("stream_create", self.engine, STREAM_DEFAULT)
        self.made: tuple[Any, Any] = (None, None)
        self.memories: dict[tuple[int, int], c_void_p] = {}
        self.results: dict[tuple[str, int], tuple[Tensor, ...]] = {}
        return self.library.version()

    def weight_dtype(self, case: Case) -> str:
        return "f32"

    def _primitives(self, case: Case, x: Tensor) -> Primitives:
        key = case.op, case.rows, case.cols, case.dtype, case.bias
        if self.made[0] != key:
            for memory in self.memories.values():
                self.library.call("memory_destroy", memory)
            self.memories.clear()
            self.results.clear()
            try:
                self.made = key, Primitives(self.library, self.engine, case, x.dtype)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{self.library.version()} has no {case.op} of {case.dtype} here: {error}"
                ) from error
        return self.made[1]

    def _memory(self, descriptor: c_void_p, tensor: Tensor) -> c_void_p:
        """oneDNN's view of a tensor, made once, as its users do."""
        key = tensor.data_ptr(), descriptor.value or 0
        if key not in self.memories:
            self.memories[key] = self.library.make("memory_create", descriptor, self.engine, tensor.data_ptr())
        return self.memories[key]

    def _result(self, what: str, x: Tensor, make: Any) -> tuple[Tensor, ...]:
        """Where the results for x go: the same place each time, as its users do."""
        key = what, x.data_ptr()
        if key not in self.results:
            self.results[key] = make()
        return self.results[key]

    def _execute(self, primitive: c_void_p, operands: dict[int, tuple[c_void_p, Tensor | None]]) -> None:
        given = [(arg, *operand) for arg, operand in operands.items() if operand[1] is not None]
        arguments = (Argument * len(given))(*((arg, self._memory(form, tensor)) for arg, form, tensor in given))
        self.library.call("primitive_execute", primitive, self.stream, len(given), arguments)
        self.library.call("stream_wait", self.stream)

    def forward(self, case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Done:
        made = self._primitives(case, x)
        y, mean, variance = self._result(
            "forward", x, lambda: (torch.empty_like(x), torch.zeros(case.rows), torch.empty(case.rows))
        )
        self._execute(
            made.forward,
            {
                SRC: (made.activations, x),
                DST: (made.activations, y),
                SCALE: (made.columns, weight),
                SHIFT: (made.columns, bias),
                MEAN: (made.statistics, mean if case.op == "layer_norm" else None),
                VARIANCE: (made.statistics, variance),
            },
        )
        return Done(y, (x, weight, bias, mean, variance))

    def backward(self, case: Case, dy: Tensor, done: Done) -> tuple[Any, Any, Any]:
        x, weight, bias, mean, variance = done.kept
        made = self._primitives(case, x)
        dx, dweight, dbias = self._result(
            "backward", x, lambda: (torch.empty_like(x), torch.empty(case.cols), torch.empty(case.cols))
        )
        self._execute(
            made.backward,
            {
                SRC: (made.activations, x),
                DIFF_DST: (made.activations, dy),
                DIFF_SRC: (made.activations, dx),
                SCALE: (made.columns, weight),
                SHIFT: (made.columns, bias),
                MEAN: (made.statistics, mean if case.op == "layer_norm" else None),
                VARIANCE: (made.statistics, variance),
                DIFF_SCALE: (made.columns, dweight),
                DIFF_SHIFT: (made.columns, dbias if case.bias else None),
            },
        )
        return dx, dweight, dbias if case.bias else None

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        mean, variance = done.kept[3:]
        return mean if case.op == "layer_norm" else None, torch.rsqrt(variance + case.eps)
