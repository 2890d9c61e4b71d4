"""oneDNN's layer normalization through its C API, with ctypes; cli/onednn.h has the numbers and functions. Scale, shift
and statistics are f32 there. SPDX-License-Identifier: MIT"""

import ctypes
import os
import re
import sys
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from comparison.backends.base import Backend, Done, Operands
from comparison.case import Case

ROOT = Path(__file__).parents[3]
HEADER = (ROOT / "cli" / "onednn.h").read_text()
DNNL = {name: int(value) for name, value in re.findall(r"\bDNNL_(\w+) = (\d+)", HEADER)}
FUNCTIONS = re.findall(r"^\tX\(int, (\w+),[\s\\]*\(([^)]*)\)\)", HEADER, re.M)
SCALARS = {"int": c_int, "unsigned": c_uint, "size_t": c_size_t, "float": c_float}  # all else is a pointer
# What an argument is: by element, by row, or else by column.
BY_ELEMENT, BY_ROW = ("SRC", "DST", "DIFF_SRC", "DIFF_DST"), ("MEAN", "VARIANCE")
TYPES = {torch.float16: DNNL["F16"], torch.bfloat16: DNNL["BF16"], torch.float32: DNNL["F32"]}

Dims = c_int64 * DNNL["MAX_NDIMS"]


class Argument(Structure):
    """struct dnnl_arg."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


def _open() -> ctypes.CDLL:
    """The library where $EVENKEEL_DNNL says, where the linker finds it, else where pip puts it."""
    told = os.environ.get("EVENKEEL_DNNL")
    if told:
        return ctypes.CDLL(told)
    roots = dict.fromkeys((Path(sys.prefix), ROOT / ".venv"))
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
        for name, parameters in FUNCTIONS:
            types = [SCALARS.get(parameter.split()[0], c_void_p) for parameter in re.split(r",[\s\\]*", parameters)]
            getattr(self.library, f"dnnl_{name}").argtypes = types
        self.library.dnnl_version.restype = POINTER(c_int)

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
        return ".".join(map(str, self.library.dnnl_version()[:3]))


class Primitives:
    """Forward and backward for one case, and the descriptors of what they read and write."""

    def __init__(self, library: Library, engine: c_void_p, case: Case, dtype: torch.dtype) -> None:
        shift, rms = DNNL["USE_SHIFT"] * bool(case.bias), DNNL["RMS_NORM"] * (case.op == "rms_norm")
        flags = DNNL["USE_SCALE"] | shift | rms
        self.library = library
        x = self._descriptor((case.rows, case.cols), (case.cols, 1), TYPES[dtype])
        stats = self._descriptor((case.rows,), (1,), TYPES[torch.float32])
        self.columns = self._descriptor((case.cols,), (1,), TYPES[torch.float32])
        self.forms = dict.fromkeys(BY_ELEMENT, x) | dict.fromkeys(BY_ROW, stats)
        forward = library.make(
            "layer_normalization_forward_primitive_desc_create",
            *(engine, DNNL["FORWARD_TRAINING"], x, x, stats, case.eps, flags, None),
        )
        backward = library.make(
            "layer_normalization_backward_primitive_desc_create",
            *(engine, DNNL["BACKWARD"], x, x, x, stats, case.eps, flags, forward, None),
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
        self.engine = self.library.make("engine_create", DNNL["CPU"], 0)
        self.stream = self.library.make("stream_create", self.engine, DNNL["STREAM_DEFAULT"])
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

    def _execute(self, made: Primitives, primitive: c_void_p, **operands: Tensor | None) -> None:
        given = [
            (DNNL[f"ARG_{name}"], self._memory(made.forms.get(name, made.columns), tensor))
            for name, tensor in operands.items()
            if tensor is not None
        ]
        arguments = (Argument * len(given))(*given)
        self.library.call("primitive_execute", primitive, self.stream, len(given), arguments)
        self.library.call("stream_wait", self.stream)

    def forward(self, case: Case, given: Operands) -> Done:
        x, weight, bias, *_ = given
        made = self._primitives(case, x)
        y, mean, variance = self._result(
            "forward", x, lambda: (torch.empty_like(x), torch.zeros(case.rows), torch.empty(case.rows))
        )
        kept = {"SCALE": weight, "SHIFT": bias, "MEAN": mean if case.op == "layer_norm" else None, "VARIANCE": variance}
        self._execute(made, made.forward, SRC=x, DST=y, **kept)
        return Done((y,), (x, kept))

    def backward(self, case: Case, gradients: tuple[Any, ...], done: Done) -> Operands:
        x, kept = done.kept
        made = self._primitives(case, x)
        dx, dweight, dbias = self._result(
            "backward", x, lambda: (torch.empty_like(x), torch.empty(case.cols), torch.empty(case.cols))
        )
        results = {"DIFF_SRC": dx, "DIFF_SCALE": dweight, "DIFF_SHIFT": dbias if case.bias else None}
        self._execute(made, made.backward, SRC=x, DIFF_DST=gradients[0], **kept, **results)
        return Operands(*results.values())

    def statistics(self, case: Case, done: Done) -> tuple[Any, Any]:
        kept = done.kept[1]
        return kept["MEAN"], torch.rsqrt(kept["VARIANCE"] + case.eps)
