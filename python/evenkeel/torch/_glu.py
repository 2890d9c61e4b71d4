"""Gated activations as functions with gradients. SPDX-License-Identifier: MIT"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function_variadic

from evenkeel import _core
from evenkeel._glu import Options, gelu_named, options_of
from evenkeel.torch._composed import ACTIVATIONS
from evenkeel.torch._recompute import (
    Tensors,
    compute,
    require_floating,
    require_shape,
    require_tensors,
    serve,
    wide_dtype,
    with_columns,
    workspace,
)

_VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: activation.value for name, activation in ACTIVATIONS.items()},
    "relu": F.relu,
    "relu_squared": lambda t: F.relu(t).square(),
    "none": lambda t: t,
}


def _empty(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


class _Glu(NamedTuple):
    """A call, of (gate, value, gate_bias, value_bias); bias_act is one without a value."""

    name: str
    options: Options
    names: tuple[str, ...] = ("gate", "value", "gate_bias", "value_bias")  # in messages

    # ---- by the kernels ----

    def kept(self, inputs: Tensors) -> Tensors:
        return inputs

    def stand_ins(self, kept: Tensors) -> Tensors:
        return kept

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        gate, each = inputs[0], self.options.each
        assert gate is not None
        whole = each == 1 or gate.dim() == 0  # a mistake
        y = _empty(gate) if whole else gate.new_empty((*gate.shape[:-1], gate.shape[-1] // each))
        compute(_core.glu_forward, inputs, *self.options, y)
        return (y,)

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
        made = tuple(_empty(t) if t is not None and need else None for t, need in zip(kept, needs, strict=True))
        columns = [gradient is not None for gradient in made[2:]]
        scratch = workspace(_core.glu_backward_workspace, kept, *self.options, *columns, None)
        compute(_core.glu_backward, (*gradients, *kept), *self.options, *made, None, scratch)
        return made

    # ---- in PyTorch's operations ----

    def composed(self, *inputs: Any) -> tuple[Tensor | None, ...]:
        self._require(dict(zip(self.names, inputs, strict=True)))
        gate, options, dtype = inputs[0], self.options, wide_dtype(inputs[0])
        wide: list[Any] = [tensor if tensor is None else tensor.to(dtype) for tensor in inputs]
        t, v, bias, value_bias = wide
        if options.each == 2:
            t, v = self._parts(t)
            bias, value_bias = (None, None) if bias is None else self._parts(bias)
        y = self._activated(t if bias is None else t + bias)
        if v is not None:
            v = v if value_bias is None else v + value_bias
            v = v if options.limit is None else v.clamp(-options.limit, options.limit)
            y = y * (v + options.value_offset if options.value_offset else v)
        return (y.to(gate.dtype).contiguous(),)

    def _parts(self, pair: Tensor) -> Sequence[Any]:
        """Gate and value of what has both in its last dimension."""
        if self.options.interleaved:
            return pair[..., ::2], pair[..., 1::2]
        return pair.chunk(2, -1)

    def _activated(self, t: Tensor) -> Tensor:
        t = t if self.options.limit is None else t.clamp(max=self.options.limit)
        if self.options.alpha != 1:
            return t * (t * self.options.alpha).sigmoid()
        return _VALUES[self.options.activation](t)

    def _require(self, named: dict[str, Any]) -> None:
        require_tensors(named)
        require_floating(named)
        (name, gate), (value_name, value), *biases = named.items()
        if gate.dim() == 0 or gate.shape[-1] % self.options.each:
            expected = "an even last dimension" if gate.dim() else "1 dimension or more"
            raise ValueError(f"{name} has shape {tuple(gate.shape)}: it must have {expected}")
        require_shape(value_name, value, tuple(gate.shape))
        for name, bias in biases:
            require_shape(name, bias, tuple(gate.shape[-1:]))


# ---- the functions ----


def _matched(names: tuple[str, ...], gate: Any, value: Any, gate_bias: Any, value_bias: Any) -> list[Any]:
    """In dtypes that go together: gate and value in one, biases in that or in float32."""
    if gate is None:
        raise TypeError(f"{names[0]} is None; expected a tensor")
    require_tensors(dict(zip(names, (gate, value, gate_bias, value_bias), strict=True)))
    if value is not None and value.dtype is not gate.dtype and value.is_floating_point() and gate.is_floating_point():
        dtype = torch.promote_types(gate.dtype, value.dtype)
        gate, value = gate.to(dtype), value.to(dtype)
    return [gate, value, *with_columns(gate, gate_bias, value_bias)]


def _glu(
    function: Callable[..., Any], tensors: tuple[Any, ...], given: tuple[Any, ...], options: tuple[Any, ...]
) -> Any:
    """A call of a function, which modes and subclasses see with what it was given."""
    if has_torch_function_variadic(*tensors):
        return handle_torch_function(function, tensors, *tensors, *given)
    call = _Glu(function.__name__, options_of(tensors[1], tensors[3], *options))
    return serve(call, *_matched(call.names, *tensors))[0]


def _bias_act(x: Any, bias: Any, activation: str) -> Any:
    if has_torch_function_variadic(x, bias):
        return handle_torch_function(bias_act, (x, bias), x, bias, activation)
    _core.check_glu(activation, None)
    call = _Glu("bias_act", Options(activation), ("x", "value", "bias", "value_bias"))
    return serve(call, *_matched(call.names, x, None, bias, None))[0]


# torch.compile breaks its graph here.
_glu_outside = _disable_dynamo(lambda *given: _glu(*given))
_bias_act_outside = _disable_dynamo(lambda *given: _bias_act(*given))


def glu(
    gate: Tensor,
    value: Tensor | None = None,
    gate_bias: Tensor | None = None,
    value_bias: Tensor | None = None,
    activation: str = "silu",
    limit: float | None = None,
    alpha: float = 1.0,
    value_offset: float = 0.0,
    interleaved: bool = False,
) -> Tensor:
    """activation(gate + gate_bias) * (value + value_bias), in one pass over memory and rounded once.

    Without value, gate is one tensor of both, as of one linear layer: its last dimension has all of gate, then all of
    value, or interleaved the two in turn. gate_bias then has both biases in the same order, and each gets one gradient.

    The activation is "silu", "gelu", "gelu_tanh", "relu", "relu_squared", "sigmoid" or "none". With a limit the gate is
    clamped from above and the value on both sides, after their biases; as of torch.clamp, the gradient is zero beyond.
    alpha is for silu: t * sigmoid(alpha * t). value_offset is added to the clamped value. The result has the dtype of
    gate * value; biases may be float32 with 16-bit tensors. Kept for backward are the arguments alone.
    """
    tensors, options = (gate, value, gate_bias, value_bias), (activation, limit, alpha, value_offset, interleaved)
    run: Callable[..., Tensor] = _glu_outside if is_dynamo_compiling() else _glu
    return run(glu, tensors, options, options)


def swiglu(
    gate: Tensor, value: Tensor | None = None, gate_bias: Tensor | None = None, value_bias: Tensor | None = None
) -> Tensor:
    """glu with SiLU: silu(gate + gate_bias) * (value + value_bias)."""
    run: Callable[..., Tensor] = _glu_outside if is_dynamo_compiling() else _glu
    return run(swiglu, (gate, value, gate_bias, value_bias), (), ("silu", None, 1.0, 0.0, False))


def geglu(
    gate: Tensor,
    value: Tensor | None = None,
    gate_bias: Tensor | None = None,
    value_bias: Tensor | None = None,
    approximate: str = "none",
) -> Tensor:
    """glu with torch.nn.functional.gelu and its approximate: "none" or "tanh"."""
    run: Callable[..., Tensor] = _glu_outside if is_dynamo_compiling() else _glu
    options = gelu_named(approximate), None, 1.0, 0.0, False
    return run(geglu, (gate, value, gate_bias, value_bias), (approximate,), options)


def bias_act(x: Tensor, bias: Tensor | None = None, activation: str = "gelu") -> Tensor:
    """activation(x + bias), in one pass over memory and rounded once; the activations are those of glu.

    As in the feed-forward of GPT-2 ("gelu_tanh") or Nemotron ("relu_squared"); x + bias with "none". Kept for backward
    are x and bias.
    """
    run: Callable[..., Tensor] = _bias_act_outside if is_dynamo_compiling() else _bias_act
    return run(x, bias, activation)
