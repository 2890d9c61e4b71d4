"""Gated activations on arrays of any kind, forward and backward. SPDX-License-Identifier: MIT"""

from collections.abc import Callable
from typing import Any, NamedTuple

from evenkeel import _core
from evenkeel._arrays import computed, dtype_named, kind_of, number_named, real, refuse_masked, shape_of

Array = Any
Dtype = object


class Options(NamedTuple):
    """What the extension is told in addition to tensors."""

    activation: str
    limit: float | None = None
    alpha: float = 1.0
    value_offset: float = 0.0
    interleaved: bool = False
    packed: bool = False  # gate is one tensor of both, gate first

    @property
    def each(self) -> int:
        """Elements of gate for each element of y."""
        return 2 if self.packed or self.interleaved else 1


def options_of(
    value: Array | None,
    value_bias: Array | None,
    activation: str,
    limit: float | None,
    alpha: float,
    value_offset: float,
    interleaved: bool,
) -> Options:
    """Those of a call of glu."""
    _core.check_glu(activation, interleaved)
    if interleaved and value is not None:
        raise ValueError("interleaved is True, and value is given; expected one tensor with gate and value in turn")
    if value is None and value_bias is not None:
        raise ValueError("value_bias is given, and value is None; expected gate_bias to have both, as gate has")
    if limit is not None and not real(limit, "limit") > 0:
        raise ValueError(f"limit is {limit!r}; expected a positive number, or None")
    real(value_offset, "value_offset")
    if not real(alpha, "alpha") > 0:  # 0 is the library's way to say 1
        raise ValueError(f"alpha is {alpha!r}; expected a positive number")
    if alpha != 1 and activation != "silu":
        raise ValueError(f"alpha ({alpha!r}) goes with activation 'silu', and it is {activation!r}; expected 1.0")
    return Options(activation, limit, alpha, value_offset, bool(interleaved), value is None and not interleaved)


class Functions(NamedTuple):
    """Of the extension, for an op."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    workspace: Callable[..., Any]


GLU = Functions(_core.glu_forward, _core.glu_backward, _core.glu_backward_workspace)
BIAS_ACT = Functions(_core.bias_act_forward, _core.bias_act_backward, _core.bias_act_backward_workspace)


def _forward(
    functions: Functions,
    inputs: dict[str, Array | None],
    options: Options,
    out: Array | None,
    threads: int,
    stream: int | None,
) -> Any:
    (name, x), *_ = inputs.items()
    refuse_masked(**inputs, out=out)
    kind, (*leading, last) = kind_of(x), shape_of(x, name) or (0,)
    if out is None:
        out = kind.empty((*leading, last // options.each), x)
    stream = kind.stream(x) if stream is None else stream
    given = options if functions is GLU else options[:1]
    return computed(inputs, lambda *arrays: functions.forward(*arrays, *given, out, threads, stream))


def _backward(
    functions: Functions,
    dy: Array,
    inputs: dict[str, Array | None],
    options: Options,
    needs: list[bool],
    gradient_dtype: Dtype,
    threads: int,
    stream: int | None,
) -> tuple[Any, ...]:
    """The gradient of each input, None where it is not needed. The second half of the inputs are biases."""
    (name, x), *_ = inputs.items()
    refuse_masked(dy=dy, **inputs)
    kind, dtype, count = kind_of(x), dtype_named(gradient_dtype, "gradient_dtype"), len(needs) // 2
    given, arrays, cols = options if functions is GLU else options[:1], [*inputs.values()], shape_of(x, name)[-1:]
    biases = [kind.empty(cols, x if bias is None else bias, dtype) for bias in arrays[count:]]
    made = [*(kind.empty(shape_of(t, name), t) if t is not None else None for t in arrays[:count]), *biases]
    made = [gradient if need else None for gradient, need in zip(made, needs, strict=True)]
    number = number_named(dtype)
    workspace = kind.workspace(x, lambda: functions.workspace(*arrays, *given, *needs[count:], number, threads))
    stream = kind.stream(x) if stream is None else stream

    def run(*arrays: Any) -> Any:
        return functions.backward(*arrays, *given, *made, number, workspace, threads, stream)

    found: tuple[Any, ...] = computed({"dy": dy, **inputs}, run)
    return found


def _needed(need: bool | None, array: Array | None) -> bool:
    return array is not None if need is None else need


def glu(
    gate: Array,
    value: Array | None = None,
    gate_bias: Array | None = None,
    value_bias: Array | None = None,
    activation: str = "silu",
    limit: float | None = None,
    alpha: float = 1.0,
    value_offset: float = 0.0,
    interleaved: bool = False,
    *,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """activation(gate + gate_bias) * (value + value_bias), computed in f32 (f64, where gate is f64) and rounded once.

    Without value, gate is one array of both: its last dimension has all of gate, then all of value, or interleaved the
    two in turn. gate_bias then has both biases in the same order.

    The activation is "silu", "gelu", "gelu_tanh", "relu", "relu_squared", "sigmoid" or "none". With a limit the gate is
    clamped from above and the value on both sides, after their biases. alpha is for silu: t * sigmoid(alpha * t).
    value_offset is added to the clamped value. gate and value have one dtype; biases have that too, or are f32 with
    16-bit arrays. The result goes into `out` if given; gate and value themselves are allowed, unless they are one
    array. threads: of the CPU, 0 is as many as there are. stream: of CUDA, by default the one on which gate's framework
    works.
    """
    options = options_of(value, value_bias, activation, limit, alpha, value_offset, interleaved)
    inputs = {"gate": gate, "value": value, "gate_bias": gate_bias, "value_bias": value_bias}
    return _forward(GLU, inputs, options, out, threads, stream)


def glu_backward(
    dy: Array,
    gate: Array,
    value: Array | None = None,
    gate_bias: Array | None = None,
    value_bias: Array | None = None,
    activation: str = "silu",
    limit: float | None = None,
    alpha: float = 1.0,
    value_offset: float = 0.0,
    interleaved: bool = False,
    *,
    need_dgate: bool = True,
    need_dvalue: bool | None = None,
    need_dgate_bias: bool | None = None,
    need_dvalue_bias: bool | None = None,
    gradient_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any, Any, Any]:
    """(dgate, dvalue, dgate_bias, dvalue_bias), each None where it is not needed: by default where there is no such
    array.

    Where gate is one array of both, so are dgate and dgate_bias. The arguments are those of glu, and gradients are zero
    where the clamp was at work. gradient_dtype: of the gradients of biases, by default that of the biases.
    """
    options = options_of(value, value_bias, activation, limit, alpha, value_offset, interleaved)
    inputs = {"gate": gate, "value": value, "gate_bias": gate_bias, "value_bias": value_bias}
    needs = [need_dgate, _needed(need_dvalue, value), _needed(need_dgate_bias, gate_bias)]
    needs.append(_needed(need_dvalue_bias, value_bias))
    dgate, dvalue, dgate_bias, dvalue_bias = _backward(GLU, dy, inputs, options, needs, gradient_dtype, threads, stream)
    return dgate, dvalue, dgate_bias, dvalue_bias


def swiglu(
    gate: Array,
    value: Array | None = None,
    gate_bias: Array | None = None,
    value_bias: Array | None = None,
    *,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """glu with SiLU: silu(gate + gate_bias) * (value + value_bias)."""
    return glu(gate, value, gate_bias, value_bias, out=out, threads=threads, stream=stream)


def geglu(
    gate: Array,
    value: Array | None = None,
    gate_bias: Array | None = None,
    value_bias: Array | None = None,
    approximate: str = "none",
    *,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """glu with GELU, or with its form with tanh where approximate is "tanh"."""
    activation = gelu_named(approximate)
    return glu(gate, value, gate_bias, value_bias, activation, out=out, threads=threads, stream=stream)


def gelu_named(approximate: str) -> str:
    """The activation that PyTorch's gelu is, given its argument."""
    if approximate == "none":
        return "gelu"
    if approximate == "tanh":
        return "gelu_tanh"
    raise ValueError(f"approximate is {approximate!r}; expected 'none' or 'tanh'")


def bias_act(
    x: Array,
    bias: Array | None = None,
    activation: str = "gelu",
    *,
    out: Array | None = None,
    threads: int = 0,
    stream: int | None = None,
) -> Any:
    """activation(x + bias), as glu without a value: the feed-forward of GPT-2 ("gelu_tanh") or Nemotron
    ("relu_squared"); x + bias with "none"."""
    _core.check_glu(activation, None)
    return _forward(BIAS_ACT, {"x": x, "bias": bias}, Options(activation), out, threads, stream)


def bias_act_backward(
    dy: Array,
    x: Array,
    bias: Array | None = None,
    activation: str = "gelu",
    *,
    need_dx: bool = True,
    need_dbias: bool | None = None,
    gradient_dtype: Dtype = None,
    threads: int = 0,
    stream: int | None = None,
) -> tuple[Any, Any]:
    """(dx, dbias), as glu_backward."""
    _core.check_glu(activation, None)
    needs = [need_dx, _needed(need_dbias, bias)]
    inputs = {"x": x, "bias": bias}
    dx, dbias = _backward(BIAS_ACT, dy, inputs, Options(activation), needs, gradient_dtype, threads, stream)
    return dx, dbias
