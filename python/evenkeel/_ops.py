"""The ops on arrays of any kind, over the extension _core. SPDX-License-Identifier: MIT"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evenkeel import _core
from evenkeel._arrays import (
    NUMBERS,
    Kind,
    computed,
    dtype_named,
    kind_of,
    name_of,
    number_named,
    refuse_masked,
    shape_of,
)
from evenkeel._glu import gelu_named

Array = Any
Dtype = object  # a dtype of NumPy, CuPy, PyTorch or ml_dtypes, or its name; None: the default
Shape = int | Sequence[int] | None


def _normalized(x: Array, weight: Array | None, shape: Shape) -> tuple[int, ...]:
    """The shape that is normalized: as given, else that of the weight, else x's last dimension."""
    if shape is None:
        return shape_of(x, "x")[-1:] if weight is None else shape_of(weight, "weight")
    return (operator.index(shape),) if hasattr(shape, "__index__") else tuple(shape)


class _Fused(NamedTuple):
    """What a call has beside a plain norm: inputs, h and choices, by their names in the extension."""

    inputs: dict[str, Array]
    options: dict[str, Any]
    y_dtype: str | None

    def runner(self, norm: int, shape: tuple[int, ...], outputs: tuple[Any, ...]) -> Callable[..., Any]:
        """The call as a function of all inputs."""

        def run(x: Any, weight: Any, bias: Any, *others: Any) -> Any:
            named = dict(zip(self.inputs, others, strict=True))
            return _core.forward(norm, x, shape, weight, bias, *outputs, **named, **self.options)

        return run


def _is_narrow(array: Array) -> bool:
    return name_of(getattr(array, "dtype", None)) in ("float16", "bfloat16")


def _fused(
    x: Array,
    residual: Array | None = None,
    x_bias: Array | None = None,
    residual_after: Array | None = None,
    gate: Array | None = None,
    out_dtype: Dtype = None,
    residual_dtype: Dtype = None,
    **flavour: Any,
) -> _Fused:
    y_dtype, h_dtype = dtype_named(out_dtype, "out_dtype"), dtype_named(residual_dtype, "residual_dtype")
    if h_dtype is not None and residual is None:
        raise ValueError(f"residual_dtype ({h_dtype}) is the dtype of h, and residual is None; expected None")
    others = {"x_bias": x_bias, "residual": residual, "residual_after": residual_after, "gate": gate}
    refuse_masked(x_bias=x_bias, residual=residual if residual_after is None else residual_after, gate=gate)
    inputs, options = {n: a for n, a in others.items() if a is not None}, {**flavour, "y_dtype": number_named(y_dtype)}
    if residual is not None:
        options["h"] = kind_of(x).empty(shape_of(x, "x"), residual, h_dtype)
        inputs["residual"] = residual if h_dtype is None else kind_of(residual).cast(residual, h_dtype, "residual")
    elif residual_after is not None and y_dtype is None and _is_narrow(x) and not _is_narrow(residual_after):
        y_dtype = "float32"
    return _Fused(inputs, options, y_dtype)


def _groups(shape: tuple[int, ...], options: dict[str, Any]) -> tuple[int, ...]:
    """The dimension that groups add to statistics; one group of all is none. The extension says what is wrong."""
    given, cols = options.get("group_cols", 0), math.prod(shape)
    group_cols = operator.index(given) if hasattr(given, "__index__") else 0
    return (cols // group_cols,) if 0 < group_cols < cols and cols % group_cols == 0 else ()


def _is_plain(weight_offset: float = 0.0, rounding: str = "once", **others: Any) -> bool:
    return not weight_offset and rounding == "once" and all(value is None for value in others.values())


def _present(array: Array, name: str) -> Array:
    """One that must be there."""
    shape_of(array, name)
    return array


def forward(
    norm: int,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float | None,
    normalized_shape: Shape,
    threads: int,
    stream: int | None,
    statistics: int = 0,
    out: Array | None = None,
    **others: Any,
) -> Any:
    """y, or a tuple of y, h where there is a residual, and the statistics, of which a row has that number.

    The others are arguments of _fused.
    """
    shape, whole = _normalized(x, weight, normalized_shape), shape_of(x, "x")
    leading = whole[: len(whole) - len(shape)] + _groups(shape, others)
    refuse_masked(x=x, weight=weight, bias=bias, out=out)
    fused = _fused(x, **others) if others and not _is_plain(**others) else None
    kind = kind_of(x)
    stream = kind.stream(x) if stream is None else stream
    if out is None:
        out = kind.empty(whole, x, fused and fused.y_dtype)
    stats = kind.statistics((statistics, math.prod(leading)), x) if statistics else None
    outputs = eps, stats, out, threads, stream
    inputs = {"x": x, "weight": weight, "bias": bias}
    if fused is None:
        result = computed(inputs, lambda x, weight, bias: _core.forward(norm, x, shape, weight, bias, *outputs))
    else:
        result = computed(inputs | fused.inputs, fused.runner(norm, shape, outputs))
    return (*result[:-1], *kind.rows(result[-1], leading)) if statistics else result


def _empty_gradients(
    kind: Kind,
    shape: tuple[int, ...],
    inputs: dict[str, Array | None],
    needs: dict[str, bool],
    dtypes: dict[str, Any],
) -> dict[str, Any]:
    """Those that are needed, not computed. dresidual is left out where it is dx."""
    x = inputs["x"]
    like = next(inputs[name] for name in ("weight", "bias", "x_bias", "x") if inputs.get(name) is not None)
    whole = shape_of(x, "x")
    is_dx = needs["dx"] and dtypes["dtype"] is None
    made: dict[str, Any] = dict.fromkeys(needs)
    for name in ("dweight", "dbias", "dx_bias"):
        made[name] = kind.empty(shape, like, dtypes["gradient_dtype"]) if needs[name] else None
    made["dx"] = kind.empty(whole, x, dtypes["dtype"]) if needs["dx"] else None
    made["dgate"] = kind.empty(whole, x, dtypes["dtype"]) if needs["dgate"] else None
    made["dresidual"] = kind.empty(whole, x) if needs["dresidual"] and not is_dx else None
    return made


def backward(
    norm: int,
    inputs: dict[str, Array | None],
    needs: dict[str, bool],
    normalized_shape: Shape,
    threads: int,
    stream: int | None,
    *,
    x_dtype: Dtype = None,
    gradient_dtype: Dtype = None,
    **flavour: Any,
) -> tuple[Any, ...]:
    """dx, dweight and dbias, each None where it is not needed; then dresidual, dx_bias and dgate, where they are."""
    x, weight = inputs["x"], inputs["weight"]
    shape, kind = _normalized(x, weight, normalized_shape), kind_of(x)
    refuse_masked(**inputs)
    names = {"dtype": dtype_named(x_dtype, "x_dtype"), "gradient_dtype": dtype_named(gradient_dtype, "gradient_dtype")}
    made = _empty_gradients(kind, shape, inputs, needs, names)
    options: dict[str, Any] = flavour | {name: number_named(dtype) for name, dtype in names.items()}
    columns = needs["dweight"], needs["dbias"], threads
    others = {name: needs[name] for name in ("dx", "dresidual", "dx_bias", "dgate")}
    others |= options | {name: inputs[name] for name in ("dy", "dh", "bias", "x_bias", "gate")}
    workspace = kind.workspace(x, lambda: _core.backward_workspace(norm, x, shape, weight, *columns, **others))
    stream = kind.stream(x) if stream is None else stream
    outputs = made["dx"], made["dweight"], made["dbias"], workspace, threads, stream
    options |= {name: made[name] for name in ("dresidual", "dx_bias", "dgate")}

    def run(dy: Any, x: Any, weight: Any, dh: Any, bias: Any, x_bias: Any, gate: Any, *stats: Any) -> Any:
        others = {"dh": dh, "bias": bias, "x_bias": x_bias, "gate": gate}
        return _core.backward(norm, dy, x, shape, weight, stats, 0.0, *outputs, **others, **options)  # eps is not used

    dx, dweight, dbias, *more = computed(inputs, run)
    if needs["dresidual"] and made["dresidual"] is None:
        more.insert(0, dx)
    return dx, dweight, dbias, *more


def _activation(name: str) -> str:
    """One that must be there."""
    _core.check_activation(name, None)
    return name


def _with_gate(arrays: dict[str, Array | None], rounding: str, out_dtype: Dtype) -> tuple[Any, ...]:
    """x, gate, weight, bias and the dtype of y, with the gate in the dtype of x, as the extension reads it.

    Beside a 16-bit x that would round the gate: then all are f32, and y has the dtype of x. Not with rounding "each",
    where xhat rounds to the dtype of x. The extension checks weight and bias.
    """
    x, gate = arrays["x"], arrays["gate"]
    names = [name_of(getattr(array, "dtype", None)) for array in (x, gate)]
    is_narrow = _is_narrow(x)
    if names[0] == names[1] or not NUMBERS.keys() >= {*names} or (is_narrow and rounding == "each"):
        return *arrays.values(), out_dtype
    refuse_masked(**arrays)
    if not is_narrow:
        return x, kind_of(gate).cast(gate, names[0], "gate"), arrays["weight"], arrays["bias"], out_dtype
    wide = (kind_of(a).cast(a, "float32", name) if name == "gate" or _is_narrow(a) else a for name, a in arrays.items())
    return *wide, names[0] if out_dtype is None else out_dtype


def layer_norm(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last dimensions of x.

    normalized_shape says which: an int or several, by default the shape of weight, else x's last dimension. The result
    goes into `out` if given (x itself is allowed); otherwise it is a new array of x's kind, of NumPy's always a plain
    ndarray. weight_offset 1.0: 1 + weight is used for weight. rounding "each": the normalized values round to x's dtype
    before they are multiplied by weight. out_dtype: of the result, by default x's. group_cols: so many neighbouring
    elements share statistics, as if they were a row of their own; it divides the number of those that are normalized,
    by default all. threads: of the CPU, 0 is as many as there are. stream: of CUDA, by default the one on which x's
    framework works.
    """
    call = _core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, 0, out
    if weight_offset or rounding != "once" or out_dtype is not None or group_cols is not None:
        flavour: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
        return forward(*call, group_cols=group_cols, **flavour)
    return forward(*call)


def rms_norm(
    x: Array,
    weight: Array | None = None,
    eps: float | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """x / sqrt(mean(x**2) + eps) * weight, over the last dimensions of x, as layer_norm.

    Without eps it is the epsilon of f32 (of f64, where x is f64).
    """
    call = _core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, 0, out
    if weight_offset or rounding != "once" or out_dtype is not None or group_cols is not None:
        flavour: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
        return forward(*call, group_cols=group_cols, **flavour)
    return forward(*call)


def add_layer_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    x_bias: Array | None = None,
    *,
    normalized_shape: Shape = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    residual_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """(y, h) with h = (x + x_bias) + residual and y = layer_norm(h).

    h is computed in f32 (f64, where x is f64) and rounded to residual_dtype, by default that of residual: x's or f32. A
    residual of another dtype is converted to it first. The other keywords are those of layer_norm.
    """
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual": _present(residual, "residual"), "x_bias": x_bias, "residual_dtype": residual_dtype}
    options["group_cols"] = group_cols
    y, h = forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)
    return y, h


def add_rms_norm(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    eps: float | None = None,
    x_bias: Array | None = None,
    *,
    normalized_shape: Shape = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    residual_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """(y, h) with h = (x + x_bias) + residual and y = rms_norm(h), as add_layer_norm."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual": _present(residual, "residual"), "x_bias": x_bias, "residual_dtype": residual_dtype}
    options["group_cols"] = group_cols
    y, h = forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, **options)
    return y, h


def layer_norm_residual(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    x_bias: Array | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """residual + layer_norm(x + x_bias), computed in f32 (f64, where x is f64) and rounded once.

    residual has the dtype of x or is f32, and so has the result, unless out_dtype says otherwise. The result goes into
    `out` if given: x and residual themselves are allowed. The other keywords are those of layer_norm.
    """
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual_after": _present(residual, "residual"), "x_bias": x_bias, "out": out}
    options["group_cols"] = group_cols
    return forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)


def rms_norm_residual(
    x: Array,
    residual: Array,
    weight: Array | None = None,
    eps: float | None = None,
    x_bias: Array | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """residual + rms_norm(x + x_bias), as layer_norm_residual."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"residual_after": _present(residual, "residual"), "x_bias": x_bias, "out": out}
    options["group_cols"] = group_cols
    return forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, **options)


def layer_norm_act(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    activation: str = "gelu",
    *,
    x_bias: Array | None = None,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """activation(layer_norm(x + x_bias)), computed in f32 (f64, where x is f64) and rounded once.

    The activation is "gelu", "gelu_tanh", "silu" or "sigmoid". With rounding "each" the norm's result rounds before the
    activation is applied. The other keywords are those of layer_norm.
    """
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"activation": _activation(activation), "x_bias": x_bias, "out": out}
    options["group_cols"] = group_cols
    return forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)


def rms_norm_act(
    x: Array,
    weight: Array | None = None,
    eps: float | None = None,
    activation: str = "gelu",
    *,
    x_bias: Array | None = None,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """activation(rms_norm(x + x_bias)), as layer_norm_act."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"activation": _activation(activation), "x_bias": x_bias, "out": out}
    options["group_cols"] = group_cols
    return forward(_core.RMS_NORM, x, weight, None, eps, normalized_shape, threads, stream, **options)


def layer_norm_gelu(
    x: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    approximate: str = "none",
    *,
    x_bias: Array | None = None,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    group_cols: int | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """layer_norm_act with GELU, or with its form with tanh where approximate is "tanh"."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out_dtype": out_dtype}
    options |= {"activation": gelu_named(approximate), "x_bias": x_bias, "out": out}
    options["group_cols"] = group_cols
    return forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)


def layer_norm_gated(
    x: Array,
    gate: Array,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    activation: str = "silu",
    gate_first: bool = False,
    group_cols: int | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """layer_norm(x) * activation(gate), or with gate_first layer_norm(x * activation(gate)).

    gate has the shape of x. Where x is 16-bit and gate has another dtype, both are read as f32, which does not go with
    rounding "each"; else gate is converted to the dtype of x. All is computed in f32 (f64, where x is f64) and rounded
    once, to the dtype of x or out_dtype. The activation is "silu", "sigmoid", "gelu" or "gelu_tanh". With rounding
    "each" the norm's result rounds before it is multiplied. The result goes into `out` if given: x and gate themselves
    are allowed. The other keywords are those of layer_norm.
    """
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out": out}
    options |= {"activation": _activation(activation), "gate_first": gate_first, "group_cols": group_cols}
    arrays = {"x": x, "gate": _present(gate, "gate"), "weight": weight, "bias": bias}
    x, options["gate"], weight, bias, options["out_dtype"] = _with_gate(arrays, rounding, out_dtype)
    return forward(_core.LAYER_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)


def rms_norm_gated(
    x: Array,
    gate: Array,
    weight: Array | None = None,
    eps: float | None = None,
    activation: str = "silu",
    gate_first: bool = False,
    group_cols: int | None = None,
    *,
    normalized_shape: Shape = None,
    out: Array | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """rms_norm(x) * activation(gate), or with gate_first rms_norm(x * activation(gate)), as layer_norm_gated."""
    options: dict[str, Any] = {"weight_offset": weight_offset, "rounding": rounding, "out": out}
    options |= {"activation": _activation(activation), "gate_first": gate_first, "group_cols": group_cols}
    arrays = {"x": x, "gate": _present(gate, "gate"), "weight": weight, "bias": None}
    x, options["gate"], weight, bias, options["out_dtype"] = _with_gate(arrays, rounding, out_dtype)
    return forward(_core.RMS_NORM, x, weight, bias, eps, normalized_shape, threads, stream, **options)
