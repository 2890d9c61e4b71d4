"""Makes and copies arrays of whatever kind an array is; _ops.py calls it. SPDX-License-Identifier: MIT"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

from evenkeel import _core

Shape = tuple[int, ...]


class Kind(ABC):
    """How one kind of array is made and copied."""

    @abstractmethod
    def empty(self, shape: Shape, like: Any, dtype: str | None = None) -> Any:
        """A new array of that shape and of the dtype, or that of `like`; True where the extension can make it."""

    def cast(self, array: Any, dtype: str, name: str) -> Any:
        """The array in another dtype, or as it is where it has that one."""
        raise TypeError(f"{name} cannot be converted to {dtype} here; expected an array of NumPy, CuPy or PyTorch")

    @abstractmethod
    def statistics(self, shape: Shape, x: Any) -> Any:
        """The same for the statistics of x: f32, or f64 where x is."""

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """The array, copied if there are gaps between its elements and it can be copied."""

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

    def empty(self, shape: Shape, like: Any, dtype: str | None = None) -> Any:
        return True

    def cast(self, array: Any, dtype: str, name: str) -> Any:
        if name_of(array.dtype) == dtype:
            return array
        if not hasattr(array, "to"):
            return super().cast(array, dtype, name)
        return array.to(getattr(sys.modules["torch"], dtype))

    def statistics(self, shape: Shape, x: Any) -> Any:
        return True

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()

    def plain(self, array: Any) -> Any:
        return array.resolve_neg() if hasattr(array, "resolve_neg") else array  # PyTorch's lazy negations


class _Module(Kind):
    """Arrays of a module with NumPy's functions, and of subclasses, for which plain arrays are made."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def _empty(self, shape: Shape, dtype: Any, like: Any) -> Any:
        """On the device of `like`: that of CuPy is where a `with` says so."""
        with like.device if self._is_cuda(like) else nullcontext():
            return self.module.empty(shape, dtype=dtype)

    def _is_cuda(self, array: Any) -> bool:
        return hasattr(array, "__cuda_array_interface__") and hasattr(self.module, "cuda")

    def empty(self, shape: Shape, like: Any, dtype: str | None = None) -> Any:
        if dtype is not None:
            return self._empty(shape, self.module.dtype(dtype), like)
        is_ours = isinstance(like, self.module.ndarray)
        return self._empty(shape, like.dtype if is_ours else self.module.asarray(like).dtype, like)

    def cast(self, array: Any, dtype: str, name: str) -> Any:
        return self.module.asarray(array, dtype=self.module.dtype(dtype))

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


_NO_BUFFER = (TypeError, ValueError, BufferError)  # what memoryview and its cast raise


def _view(array: Any) -> Any:  # mypy's memoryview casts to literal formats alone
    return memoryview(array)


def _native(view: Any) -> Any:
    """The format of its elements without the mark of native byte order, which cast does not take."""
    return view.format.lstrip("@=<")


def _format(array: Any) -> Any:
    """That of its buffer, or an empty one."""
    try:
        return _native(_view(array))
    except _NO_BUFFER:
        return ""


class _Buffer(Kind):
    """Anything else. Where the array has the buffer protocol, what is made and copied is a memoryview."""

    def _empty(self, shape: Shape, format: str) -> Any:
        """True where no memoryview can be made: then the extension says whether it is x that is wrong."""
        if format not in ("f", "d") or 0 in shape:
            return True
        return _view(bytearray(math.prod(shape) * (4 if format == "f" else 8))).cast(format, shape)

    def empty(self, shape: Shape, like: Any, dtype: str | None = None) -> Any:
        return self._empty(shape, {"float32": "f", "float64": "d"}.get(dtype, "") if dtype else _format(like))

    def cast(self, array: Any, dtype: str, name: str) -> Any:
        same = {"f": "float32", "d": "float64"}.get(_format(array)) == dtype
        return array if same else super().cast(array, dtype, name)

    def statistics(self, shape: Shape, x: Any) -> Any:
        return self._empty(shape, "d" if _format(x) == "d" else "f")

    def rows(self, stats: Any, shape: Shape) -> list[Any]:
        size = stats.nbytes // len(stats)
        flat = stats.cast("B")
        return [flat[i * size : (i + 1) * size].cast(stats.format, shape) for i in range(len(stats))]

    def contiguous(self, array: Any) -> Any:
        try:
            view = _view(array)
            return array if view.c_contiguous else _view(view.tobytes()).cast(_native(view), view.shape)
        except _NO_BUFFER:
            return array


def kind_of(array: Any) -> Kind:
    """How arrays such as this one are made and copied."""
    return _kind_of(type(array))  # type: ignore[arg-type]  # mypy takes types for not hashable


@lru_cache(64)
def _kind_of(array_type: type) -> Kind:
    if hasattr(array_type, "__dlpack_c_exchange_api__"):
        return _Exchange()
    for cls in array_type.__mro__:
        module = sys.modules.get(cls.__module__.partition(".")[0])
        if hasattr(module, "ascontiguousarray"):
            return _Module(module)
        if module is not None and module.__name__ == "torch":
            raise TypeError(
                f"tensors of PyTorch {module.__version__} are for evenkeel.torch: from 2.10 on they can be used here"
            )
    return _Buffer()


NUMBERS = {"float32": _core.F32, "float16": _core.F16, "bfloat16": _core.BF16, "float64": _core.F64}


def name_of(dtype: Any) -> str:
    """Of a dtype of NumPy, PyTorch or ml_dtypes, a type or a name: "float32"."""
    name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None) or str(dtype)
    return str(name).rpartition(".")[2]


def dtype_named(dtype: Any, argument: str) -> str | None:
    """The name of a dtype that the library has; None for None."""
    if dtype is None:
        return None
    name = name_of(dtype)
    if name not in NUMBERS:
        raise TypeError(f"{argument} is {dtype}; expected float32, float16, bfloat16 or float64")
    return name


def number_named(dtype: str | None) -> int | None:
    """The number that the extension has for it."""
    return None if dtype is None else NUMBERS[dtype]


def real(value: Any, argument: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{argument} is {value!r}; expected a number") from None


def shape_of(array: Any, name: str) -> Shape:
    """Its shape; array.array has none of its own. The name is the argument's."""
    if hasattr(array, "shape"):
        return tuple(array.shape)
    try:
        return tuple(_view(array).shape)
    except _NO_BUFFER:
        raise TypeError(
            f"{name} is of type {type(array).__name__}; expected an array with DLPack or the buffer protocol, "
            f"such as numpy.asarray({name}, 'float32')"
        ) from None


def refuse_masked(**arrays: Any) -> None:
    """The kernels read every element: a mask would be lost."""
    numpy_ma = sys.modules.get("numpy.ma")
    if numpy_ma is None:
        return
    for name, array in arrays.items():
        if isinstance(array, numpy_ma.MaskedArray):
            raise TypeError(f"{name} is a masked array; expected one without a mask: {name}.filled(0) or {name}.data")


def _plain(array: Any) -> Any:
    return None if array is None else kind_of(array).plain(array)


def _contiguous(array: Any) -> Any:
    return None if array is None else kind_of(array).contiguous(array)


def computed(inputs: dict[str, Any], run: Callable[..., Any]) -> Any:
    """run(*inputs), and where it returns None the same of contiguous copies."""
    arrays = [*map(_plain, inputs.values())]
    result = run(*arrays)
    if result is None:
        result = run(*map(_contiguous, arrays))
    if result is None:
        given = [name for name, array in inputs.items() if array is not None]
        raise TypeError(
            f"{' or '.join(given)} is neither contiguous nor can it be copied here; "
            "expected contiguous arrays, or arrays of NumPy, CuPy or PyTorch"
        )
    return result
