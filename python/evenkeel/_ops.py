"""The ops on arrays of any kind, over the extension _core. SPDX-License-Identifier: MIT"""

import math
import operator
from collections.abc import Callable, Sequence
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


def _plain(array: Any) -> Any:
    return None if array is None else kind_of(array).plain(array)


def _contiguous(array: Any) -> Any:
    return None if array is None else kind_of(array).contiguous(array)


def _computed(inputs: dict[str, Array | None], run: Callable[..., Any]) -> Any:
    """run(*inputs), and where it returns None the same of contiguous copies."""
    arrays = [*map(_plain, inputs.values())]
    result = run(*arrays)
    if result is None:
        result = run(*map(_contiguous, arrays))
    if result is None:
        raise TypeError(
            f"one of {', '.join(inputs)} is neither contiguous nor can it be copied here; "
            "expected contiguous arrays, or arrays of NumPy, CuPy or PyTorch"
        )
    return result


def _forward(
    norm: int,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float | None,
    normalized_shape: Shape,
    threads: int,
    stream: int | None,
    *,
    statistics: int = 0,
    out: Array | None = None,
) -> Any:
    """y; (y, *statistics) where statistics, the number of them that a row has, is not 0."""
    shape, whole = _normalized(x, weight, normalized_shape), shape_of(x, "x")
    leading = whole[: len(whole) - len(shape)]
    refuse_masked(x=x, weight=weight, bias=bias, out=out)
    kind = kind_of(x)
    stream = kind.stream(x) if stream is None else stream
    out = kind.empty(whole, x) if out is None else out
    stats = kind.statistics((statistics, math.prod(leading)), x) if statistics else None
    result = _computed(
        {"x": x, "weight": weight, "bias": bias},
        lambda x, weight, bias: _core.forward(norm, x, shape, weight, bias, eps, stats, out, threads, stream),
    )
    return (result[0], *kind.rows(result[1], leading)) if statistics else result


def _backward(
    norm: int,
    dy: Array,
    x: Array,
    weight: Array | None,
    statistics: dict[str, Array],
    needs: tuple[bool, bool, bool],
    normalized_shape: Shape,
    threads: int,
    stream: int | None,
) -> tuple[Any, Any, Any]:
    shape = _normalized(x, weight, normalized_shape)
    inputs = {"dy": dy, "x": x, "weight": weight, **statistics}
    refuse_masked(**inputs)
    kind = kind_of(x)
    like = x if weight is None else weight
    dx = kind.empty(shape_of(x, "x"), x) if needs[0] else None
    dweight, dbias = (kind.empty(shape, like) if need else None for need in needs[1:])
    workspace = kind.workspace(x, lambda: _core.backward_workspace(norm, x, shape, weight, *needs[1:], threads))
    stream = kind.stream(x) if stream is None else stream
    outputs = (0.0, dx, dweight, dbias, workspace, threads, stream)  # eps is not used with statistics
    result: tuple[Any, Any, Any] = _computed(
        inputs, lambda dy, x, weight, *stats: _core.backward(norm, dy, x, shape, weight, stats, *outputs)
    )
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
    return _forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, out=out)


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
    return _forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, out=out)


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
    y, *stats = _forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, statistics=3)
    return y, *stats[: 3 if return_mean_lo else 2]


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
    y, rstd = _forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, statistics=1)
    return y, rstd


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
    statistics = {"mean": mean, "rstd": rstd, **({} if mean_lo is None else {"mean_lo": mean_lo})}
    needs = need_dx, need_dweight, need_dbias
    return _backward(_core.LAYER_NORM, dy, x, weight, statistics, needs, normalized_shape, threads, stream)


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
    needs = need_dx, need_dweight, False
    return _backward(_core.RMS_NORM, dy, x, weight, {"rstd": rstd}, needs, normalized_shape, threads, stream)[:2]
