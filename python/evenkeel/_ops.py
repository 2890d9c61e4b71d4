"""The ops on arrays of any kind, over the extension _core. SPDX-License-Identifier: MIT"""

import math
import operator
from collections.abc import Sequence
from typing import Any

from evenkeel import _core
from evenkeel._arrays import kind_of, refuse_masked, shape_of

Array = Any
Shape = int | Sequence[int] | None


def _normalized(x: Array, weight: Array | None, shape: Shape) -> tuple[int, ...]:
    """The shape that is normalized: as given, else that of the weight, else x's last dimension."""
    if shape is None:
        return shape_of(x, "x")[-1:] if weight is None else shape_of(weight, "weight")
    return (operator.index(shape),) if hasattr(shape, "__index__") else tuple(shape)


def _leading(x: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of x that are not normalized."""
    whole = shape_of(x, "x")
    return whole[: len(whole) - len(shape)]


def _contiguous(*arrays: Any) -> tuple[Any, ...]:
    return tuple(array if array is None else kind_of(array).contiguous(array) for array in arrays)


def _plain(*arrays: Any) -> tuple[Any, ...]:
    return tuple(array if array is None else kind_of(array).plain(array) for array in arrays)


def _not_copied(*names: str) -> TypeError:
    return TypeError(
        f"one of {', '.join(names)} is neither contiguous nor can it be copied here; "
        "expected contiguous arrays, or arrays of NumPy, CuPy or PyTorch"
    )


def _forward(
    norm: int,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float | None,
    shape: tuple[int, ...],
    *,
    statistics: int = 0,
    out: Array | None = None,
    threads: int,
    stream: int | None,
) -> Any:
    """y; (y, stats) where statistics, the number of them that a row has, is not 0."""
    refuse_masked(x=x, weight=weight, bias=bias, out=out)
    kind = kind_of(x)
    x, weight, bias = _plain(x, weight, bias)
    stream = kind.stream(x) if stream is None else stream
    if out is None:
        out = kind.empty(shape_of(x, "x"), x)
    stats = kind.statistics((statistics, math.prod(_leading(x, shape))), x) if statistics else None
    result = _core.forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream)
    if result is None:
        x, weight, bias = _contiguous(x, weight, bias)
        result = _core.forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream)
    if result is None:
        raise _not_copied("x", "weight", "bias")
    return result


def _backward(
    norm: int,
    dy: Array,
    x: Array,
    weight: Array | None,
    statistics: dict[str, Array],
    shape: tuple[int, ...],
    *,
    need_dx: bool,
    need_dweight: bool,
    need_dbias: bool,
    threads: int,
    stream: int | None,
) -> tuple[Any, Any, Any]:
    refuse_masked(dy=dy, x=x, weight=weight, **statistics)
    kind = kind_of(x)
    dy, x, weight, *stats = _plain(dy, x, weight, *statistics.values())
    stream = kind.stream(x) if stream is None else stream
    like = x if weight is None else weight
    dx = kind.empty(shape_of(x, "x"), x) if need_dx else None
    dweight = kind.empty(shape, like) if need_dweight else None
    dbias = kind.empty(shape, like) if need_dbias else None
    workspace = kind.workspace(
        x, lambda: _core.backward_workspace(norm, x, shape, weight, need_dweight, need_dbias, threads)
    )
    outputs = (0.0, dx, dweight, dbias, workspace, threads, stream)  # eps is not used with statistics
    result = _core.backward(norm, dy, x, shape, weight, tuple(stats), *outputs)
    if result is None:
        dy, x, weight, *stats = _contiguous(dy, x, weight, *stats)
        result = _core.backward(norm, dy, x, shape, weight, tuple(stats), *outputs)
    if result is None:
        raise _not_copied("dy", "x", "weight", *statistics)
    return result


def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last dimensions of x.

    normalized_shape says which: an int or several, by default the shape of weight, else x's last dimension. The result
    goes into `out` if given (x itself is allowed); otherwise it is a new array of x's kind, of NumPy's always a plain
    ndarray. threads: of the CPU, 0 is as many as there are. stream: of CUDA, by
    default the one on which x's framework works.
    """
    shape = _normalized(x, weight, normalized_shape)
    return _forward(_core.LAYER_NORM, x, weight, bias, eps, shape, out=out, threads=threads, stream=stream)


def rms_norm(
    x: Array,
    weight: Array | None = None,
    eps: float | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """x / sqrt(mean(x**2) + eps) * weight, over the last dimensions of x, as layer_norm.

    Without eps it is the epsilon of f32 (of f64, where x is f64).
    """
    shape = _normalized(x, weight, normalized_shape)
    return _forward(_core.RMS_NORM, x, weight, None, eps, shape, out=out, threads=threads, stream=stream)


def layer_norm_forward(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    return_mean_lo: bool = False,
    *,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, ...]:
    """(y, mean, rstd), and mean_lo if asked for: what rounding took from the mean.

    The statistics have the leading dimensions of x, in f32 (f64, where x is f64).
    """
    shape = _normalized(x, weight, normalized_shape)
    y, stats = _forward(_core.LAYER_NORM, x, weight, bias, eps, shape, statistics=3, threads=threads, stream=stream)
    return y, *kind_of(x).rows(stats, _leading(x, shape))[: 3 if return_mean_lo else 2]


def rms_norm_forward(
    x: Array,
    weight: Array | None = None,
    eps: float | None = None,
    *,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """(y, rstd), as layer_norm_forward."""
    shape = _normalized(x, weight, normalized_shape)
    y, stats = _forward(_core.RMS_NORM, x, weight, None, eps, shape, statistics=1, threads=threads, stream=stream)
    return y, kind_of(x).rows(stats, _leading(x, shape))[0]


def layer_norm_backward(
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None = None,
    *,
    mean_lo: Array | None = None,
    need_dx: bool = True,
    need_dweight: bool = True,
    need_dbias: bool = True,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any, Any]:
    """(dx, dweight, dbias), each None where it is not needed.

    Any mean and rstd will do, one element a row of x; with mean_lo the result is as exact far from zero as near it.
    """
    statistics = {"mean": mean, "rstd": rstd}
    return _backward(
        _core.LAYER_NORM,
        dy,
        x,
        weight,
        statistics if mean_lo is None else {**statistics, "mean_lo": mean_lo},
        _normalized(x, weight, normalized_shape),
        need_dx=need_dx,
        need_dweight=need_dweight,
        need_dbias=need_dbias,
        threads=threads,
        stream=stream,
    )


def rms_norm_backward(
    dy: Array,
    x: Array,
    rstd: Array,
    weight: Array | None = None,
    *,
    need_dx: bool = True,
    need_dweight: bool = True,
    normalized_shape: Shape = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """(dx, dweight), as layer_norm_backward."""
    dx, dweight, _ = _backward(
        _core.RMS_NORM,
        dy,
        x,
        weight,
        {"rstd": rstd},
        _normalized(x, weight, normalized_shape),
        need_dx=need_dx,
        need_dweight=need_dweight,
        need_dbias=False,
        threads=threads,
        stream=stream,
    )
    return dx, dweight
