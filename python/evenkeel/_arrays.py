"""Makes and copies arrays of whatever kind an array is; _ops.py calls it. SPDX-License-Identifier: MIT"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

Shape = tuple[int, ...]


class Kind(ABC):
    """How one kind of array is made and copied."""

    @abstractmethod
    def empty(self, shape: Shape, like: Any) -> Any:
        """A new array of that shape and of the dtype of `like`; True where the extension can make it."""

    @abstractmethod
    def statistics(self, shape: Shape, x: Any) -> Any:
        """The same for the statistics of x: f32, or f64 where x is."""

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """The array, copied if there are gaps between its elements."""

    def rows(self, stats: Any, shape: Shape) -> list[Any]:
        """The rows of an array of statistics, each in that shape."""
        return [row.reshape(shape) for row in stats]

    def workspace(self, x: Any, size: Callable[[], int]) -> Any:
        """Memory of that many bytes on x's GPU; None where the extension can make it."""
        return None

    def plain(self, array: Any) -> Any:
        """The array as it lies in memory."""
        return array

    def stream(self, x: Any) -> int | None:
        """On which x's framework works; None where the extension asks it, or there is none."""
        return None


class _Exchange(Kind):
    """Tensors whose type has DLPack's C exchange API, as PyTorch's."""

    def empty(self, shape: Shape, like: Any) -> Any:
        return True

    def statistics(self, shape: Shape, x: Any) -> Any:
        return True

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()

    def plain(self, array: Any) -> Any:
        return array.resolve_neg() if hasattr(array, "resolve_neg") else array  # PyTorch's lazy negations


class _Module(Kind):
    """Arrays of a module with NumPy's functions."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def _empty(self, shape: Shape, dtype: Any, like: Any) -> Any:
        """On the device of `like`: that of CuPy is where a `with` says so."""
        with like.device if self._is_cuda(like) else nullcontext():
            return self.module.empty(shape, dtype=dtype)

    def _is_cuda(self, array: Any) -> bool:
        return hasattr(array, "__cuda_array_interface__") and hasattr(self.module, "cuda")

    def empty(self, shape: Shape, like: Any) -> Any:
        return self._empty(shape, like.dtype, like)

    def statistics(self, shape: Shape, x: Any) -> Any:
        wide = x.dtype == self.module.float64
        return self._empty(shape, self.module.float64 if wide else self.module.float32, x)

    def stream(self, x: Any) -> int | None:
        return int(self.module.cuda.get_current_stream().ptr) if self._is_cuda(x) else None

    def contiguous(self, array: Any) -> Any:
        return self.module.ascontiguousarray(array)

    def workspace(self, x: Any, size: Callable[[], int]) -> Any:
        if not hasattr(x, "__cuda_array_interface__"):
            return None
        return self._empty((size() // 4 + 1,), self.module.float32, x)


def _view(array: Any) -> Any:
    try:
        return memoryview(array)
    except TypeError:
        raise TypeError(f"{type(array)} is no array of a kind that can be made or copied here: give `out`") from None


class _Buffer(Kind):
    """Anything else with the buffer protocol: what is made is a memoryview."""

    def _empty(self, shape: Shape, format: str) -> Any:
        if format not in ("f", "d") or 0 in shape:
            raise TypeError(f"no memoryview of format '{format}' and shape {shape} can be made: use an array library")
        return _view(bytearray(math.prod(shape) * (4 if format == "f" else 8))).cast(format, shape)

    def empty(self, shape: Shape, like: Any) -> Any:
        return self._empty(shape, _view(like).format)

    def statistics(self, shape: Shape, x: Any) -> Any:
        return self._empty(shape, "d" if _view(x).format == "d" else "f")

    def rows(self, stats: Any, shape: Shape) -> list[Any]:
        size = stats.nbytes // len(stats)
        flat = stats.cast("B")
        return [flat[i * size : (i + 1) * size].cast(stats.format, shape) for i in range(len(stats))]

    def contiguous(self, array: Any) -> Any:
        view = _view(array)
        return _view(view.tobytes()).cast(view.format, view.shape)


def kind_of(array: Any) -> Kind:
    """How arrays such as this one are made and copied."""
    if hasattr(type(array), "__dlpack_c_exchange_api__"):
        return _Exchange()
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if hasattr(module, "ascontiguousarray"):
        return _Module(module)
    if module is not None and module.__name__ == "torch":
        raise TypeError(
            f"tensors of PyTorch {module.__version__} are for evenkeel.torch: from 2.10 on they can be used here"
        )
    return _Buffer()


def shape_of(array: Any) -> Shape:
    """Its shape; array.array has none of its own."""
    return tuple(array.shape if hasattr(array, "shape") else _view(array).shape)
