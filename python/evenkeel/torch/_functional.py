"""The norms as functions: chooses evenkeel or PyTorch for a call, and its autograd.

A call on plain tensors goes straight to the kernels. PyTorch's operations compute where PyTorch must see the call
(subclasses, modes, transforms, tracing) and where evenkeel has no kernel for a dtype, a layout or a device.
Wrong arguments raise PyTorch's errors; what PyTorch accepts and evenkeel does not raises evenkeel's.
SPDX-License-Identifier: MIT
"""

import inspect
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    _are_functorch_transforms_active,
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import handle_torch_function, has_torch_function_variadic

from evenkeel._core import (
    check_activation,
    check_flavour,
    eager_act_compute,
    eager_act_forward,
    eager_add_compute,
    eager_add_forward,
    eager_after_compute,
    eager_after_forward,
    eager_compute,
    eager_forward,
    eager_gated_compute,
    eager_gated_forward,
    eager_setup,
    is_plain,
)
from evenkeel._glu import gelu_named
from evenkeel.torch import _kernels
from evenkeel.torch._autograd import APPLY, NODES, Refused, attempt, backward, forward, needs_gradient, operands_of
from evenkeel.torch._call import (
    ADD_NORM,
    DTYPES,
    LAYER_NORM,
    NARROW,
    NORM,
    NORM_ACT,
    NORM_GATED,
    NORM_RESIDUAL,
    OPS,
    PLAIN,
    RMS_NORM,
    Call,
    Flavour,
    Inputs,
    Op,
    check_groups,
    function_name,
)
from evenkeel.torch._composed import pytorch
from evenkeel.torch._fallback import fall_back
from evenkeel.torch._ledger import is_estimated


def _savable(tensor: Any) -> Any:
    """A copy of an inference tensor, which autograd does not save. PyTorch's rms_norm on the CPU accepts one."""
    return tensor.clone() if tensor is not None and tensor.is_inference() else tensor


def _with_savable(call: Call) -> Call:
    saved = {name: _savable(getattr(call.inputs, name)) for name in call.op.saved if name in call.op.inputs}
    return call._replace(inputs=call.inputs._replace(**saved))


# ---- autocast ----


@cache
def _casts(op: str, device_type: str) -> bool:
    """Whether autocast computes the op in float32 there: PyTorch's own lists say so."""
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}.get(device_type)
    return key is not None and torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{op}", key)


def _cast(tensor: Any, device_type: str) -> Any:
    if tensor is None or not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(torch.float32) if tensor.device.type == device_type else tensor


def _autocast(call: Call) -> Call:
    """The call under autocast. Of a fused norm x, residuals and the gate keep their dtypes, and y is float32."""
    device_type = call.inputs.x.device.type
    op = "layer_norm" if call.norm == LAYER_NORM else "rms_norm"
    if not torch.is_autocast_enabled(device_type) or not _casts(op, device_type):
        return call
    cast = Inputs(*(_cast(tensor, device_type) for tensor in call.inputs))
    if call.op is NORM:
        return call._replace(inputs=cast)
    x, _, _, residual, _, residual_after, gate = call.inputs
    flavour = call.flavour._replace(out_dtype=call.flavour.out_dtype or _kernels.statistics_dtype(x))
    kept = cast._replace(x=x, residual=residual, residual_after=residual_after, gate=gate)
    return call._replace(inputs=kept, flavour=flavour)


# ---- calls ----


def _aside(call: Call) -> Any:
    """A call that is not plain: PyTorch must see it, or its memory is only estimated."""
    inputs, shape = call.inputs, call.shape
    if is_estimated() and tuple(inputs.x.shape[-len(shape) :]) == shape and not _are_functorch_transforms_active():
        return NODES[call.op].apply(*operands_of(call, forward(call, True)))
    return pytorch(call).results


_COMPUTE: dict[Op, Callable[..., Any]] = {
    NORM: eager_compute,
    ADD_NORM: eager_add_compute,
    NORM_RESIDUAL: eager_after_compute,
    NORM_ACT: eager_act_compute,
    NORM_GATED: eager_gated_compute,
}


def _eager(call: Call) -> Any:
    """By C; None: some tensors must be copied first."""
    norm, inputs, shape, eps, flavour, op = call
    return _COMPUTE[op](norm, *op.arguments_of((*inputs, shape, eps, *flavour, None)))


def _compute(call: Call) -> Any:
    """Plain tensors. PyTorch computes what the kernels do not have."""
    x = call.inputs.x
    if x is None or x.is_meta or 0 in call.shape:  # a mistake, or nothing to compute
        return pytorch(call).results
    recorded = needs_gradient(*call.inputs)
    if recorded and call.norm == RMS_NORM:
        call = _with_savable(call)
    served = _eager(call)
    if served is not None:
        return served
    try:
        if not recorded:
            return attempt(call, False).results
        made = forward(call, False)
    except Refused as refusal:
        reason = str(refusal)
    else:
        return APPLY[call.op](*operands_of(call, made))
    results = pytorch(call).results
    fall_back(call.name, reason)
    return results


def _require_tensors(x: Any, name: str, other: Any) -> None:
    if not isinstance(x, Tensor) or not isinstance(other, Tensor):
        raise TypeError(f"x is of type {type(x).__name__} and {name} of type {type(other).__name__}; expected tensors")


def with_residual(call: Call, name: str, dtype: torch.dtype | None) -> Call:
    """The call with that residual in a dtype that the kernels add: the one given, else that of x + residual."""
    x, residual = call.inputs.x, getattr(call.inputs, name)
    _require_tensors(x, "residual", residual)
    dtype = dtype or torch.promote_types(x.dtype, residual.dtype)
    return call._replace(inputs=call.inputs._replace(**{name: residual.to(dtype)}))


def _widened(column: Any) -> Any:
    """A 16-bit column in float32; any other is as it was given, for the checks of every call."""
    return column.float() if isinstance(column, Tensor) and column.dtype in NARROW else column


def _with_gate(call: Call) -> Call:
    """The call with its gate in the dtype of x, as the kernels read it.

    Beside a 16-bit x that would round the gate: then all are float32, and y has the dtype of x. With rounding "each"
    xhat rounds to the dtype of x, which PyTorch does.
    """
    x, weight, bias, _, _, _, gate = call.inputs
    assert gate is not None
    if gate.dtype is x.dtype or not (gate.is_floating_point() and x.is_floating_point()):
        return call
    if x.dtype not in NARROW:
        return call._replace(inputs=call.inputs._replace(gate=gate.to(x.dtype)))
    if call.flavour.rounding != PLAIN.rounding:
        return call
    inputs = Inputs(x.float(), _widened(weight), _widened(bias), gate=gate.float())
    return call._replace(inputs=inputs, flavour=call.flavour._replace(out_dtype=call.out_dtype))


def _serve(call: Call) -> Any:
    if type(call.shape) is not tuple or call.eps is None:
        if not isinstance(call.shape, (tuple, list)) or (call.eps is None and call.norm == LAYER_NORM):
            return pytorch(call).results  # which says what is wrong
        call = call._replace(shape=tuple(call.shape))
    if _is_any_autocast_enabled() and isinstance(call.inputs.x, Tensor):
        call = _autocast(call)
    if call.op is NORM_GATED:
        call = _with_gate(call)
    return (_compute if is_plain(*call.inputs) else _aside)(call)


def serve(op: Op, norm: int, *given: Any) -> Any:
    """A call that C has not served; given are the arguments of the op."""
    fields = op.fields_of((*given, None))
    *inputs, shape, eps, weight_offset, rounding, out_dtype, activation, gate_first, group_cols, residual_dtype = fields
    check_flavour(weight_offset, rounding, out_dtype, residual_dtype)
    if op in (NORM_ACT, NORM_GATED):
        check_activation(activation, gate_first)
    if group_cols is not None and isinstance(shape, (tuple, list)):
        group_cols = check_groups(tuple(shape), group_cols)
    flavour = Flavour(weight_offset, rounding, out_dtype, activation, bool(gate_first), group_cols)
    call = Call(norm, Inputs(*inputs), shape, eps, flavour, op)
    if op is ADD_NORM:
        call = with_residual(call, "residual", residual_dtype)
    elif op.added:
        call = with_residual(call, op.added, None)
    elif op is NORM_GATED:
        _require_tensors(call.inputs.x, "gate", call.inputs.gate)
    return _serve(call)


def _show(op: Op, norm: int, given: tuple[Any, ...]) -> Any:
    """Subclasses and modes see the call of the function, with the flavours that are not the defaults."""
    function, of_layer_norm = (globals()[function_name(op, n)] for n in (norm, LAYER_NORM))
    named = dict(zip(inspect.signature(of_layer_norm).parameters, given, strict=True))
    args, options = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty:
            args.append(named[name])
        elif parameter.kind is not parameter.KEYWORD_ONLY or named[name] != parameter.default:
            options[name] = named[name]
    return handle_torch_function(function, given, *args, **options)


def _leave(op: Op, norm: int, *given: Any) -> Any:
    if has_torch_function_variadic(*given):
        return _show(op, norm, given)
    return serve(op, norm, *given)


# What C serves, and what it asks PyTorch for. (Older PyTorch cannot be served.)
eager_setup(
    Tensor,
    Parameter,
    torch.empty_like,
    Tensor.new_empty,
    DTYPES,
    Tensor.contiguous,
    Tensor.is_neg,
    torch.get_num_threads,
    torch.is_grad_enabled,
    tuple(APPLY[op] for op in OPS) if _kernels.HAS_EXCHANGE else None,
    tuple(partial(_leave, op) for op in OPS),
    tuple(partial(backward, op) for op in OPS),
    vars(forward_ad),
    (_len_torch_dispatch_stack, _are_functorch_transforms_active, _is_tracing),
    (_len_torch_function_stack, _is_any_autocast_enabled),
)


# ---- the functions: an op's arguments in its order, and a bias of None for RMSNorm ----


Pair = tuple[Tensor, Tensor]

# torch.compile breaks its graph here, and calls C as it is. (torch.compiler.disable would do the same, and take a
# second of everybody's import.)
_forward_outside = _disable_dynamo(lambda *given: eager_forward(*given))
_add_forward_outside = _disable_dynamo(lambda *given: eager_add_forward(*given))
_after_forward_outside = _disable_dynamo(lambda *given: eager_after_forward(*given))
_act_forward_outside = _disable_dynamo(lambda *given: eager_act_forward(*given))
_gated_forward_outside = _disable_dynamo(lambda *given: eager_gated_forward(*given))


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """torch.nn.functional.layer_norm: over the last dimensions of input, which normalized_shape names.

    weight_offset 1.0: 1 + weight is used for weight. rounding "each": the normalized values round to the dtype of input
    before they are multiplied by weight. out_dtype: of the result, by default that of input. group_cols: so many
    neighbouring elements share statistics, as if they were a row of their own (a group norm); it divides the number of
    those that are normalized, by default all. weight and bias have normalized_shape all the same.
    """
    run: Callable[..., Tensor] = _forward_outside if is_dynamo_compiling() else eager_forward
    return run(LAYER_NORM, input, normalized_shape, weight, bias, eps, weight_offset, rounding, out_dtype, group_cols)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """torch.nn.functional.rms_norm. Without eps it is the epsilon of float32 (of float64, where input is that).

    The keywords are those of layer_norm.
    """
    run: Callable[..., Tensor] = _forward_outside if is_dynamo_compiling() else eager_forward
    return run(RMS_NORM, input, normalized_shape, weight, None, eps, weight_offset, rounding, out_dtype, group_cols)


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(y, h) with h = (x + x_bias) + residual and y = layer_norm(h), in one pass over memory.

    The sum is computed in float32 and rounded once, to residual_dtype: by default the dtype of x + residual. A residual
    of another dtype is converted to it first. The other keywords are those of layer_norm; y has the dtype of x.
    """
    run: Callable[..., Pair] = _add_forward_outside if is_dynamo_compiling() else eager_add_forward
    shape = normalized_shape
    return run(
        LAYER_NORM,
        x,
        residual,
        shape,
        weight,
        bias,
        eps,
        x_bias,
        weight_offset,
        rounding,
        out_dtype,
        residual_dtype,
        group_cols,
    )


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    residual_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(y, h) with h = (x + x_bias) + residual and y = rms_norm(h), as add_layer_norm."""
    run: Callable[..., Pair] = _add_forward_outside if is_dynamo_compiling() else eager_add_forward
    shape = normalized_shape
    return run(
        RMS_NORM,
        x,
        residual,
        shape,
        weight,
        None,
        eps,
        x_bias,
        weight_offset,
        rounding,
        out_dtype,
        residual_dtype,
        group_cols,
    )


def layer_norm_residual(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """residual + layer_norm(x + x_bias), in one pass over memory and rounded once.

    x + x_bias is not rounded. The result has the dtype of x + residual, or out_dtype; a residual of another dtype than
    that of x + residual is converted first. The other keywords are those of layer_norm.
    """
    run: Callable[..., Tensor] = _after_forward_outside if is_dynamo_compiling() else eager_after_forward
    return run(
        LAYER_NORM,
        x,
        residual,
        normalized_shape,
        weight,
        bias,
        eps,
        x_bias,
        weight_offset,
        rounding,
        out_dtype,
        group_cols,
    )


def rms_norm_residual(
    x: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    x_bias: Tensor | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """residual + rms_norm(x + x_bias), as layer_norm_residual."""
    run: Callable[..., Tensor] = _after_forward_outside if is_dynamo_compiling() else eager_after_forward
    return run(
        RMS_NORM,
        x,
        residual,
        normalized_shape,
        weight,
        None,
        eps,
        x_bias,
        weight_offset,
        rounding,
        out_dtype,
        group_cols,
    )


def layer_norm_act(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "gelu",
    *,
    x_bias: Tensor | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """activation(layer_norm(input + x_bias)), in one pass over memory and rounded once.

    The activation is "gelu", "gelu_tanh", "silu" or "sigmoid". input + x_bias is not rounded. The other keywords are
    those of layer_norm; with rounding "each" its result rounds before the activation is applied.
    """
    run: Callable[..., Tensor] = _act_forward_outside if is_dynamo_compiling() else eager_act_forward
    shape = normalized_shape
    return run(
        LAYER_NORM, input, shape, weight, bias, eps, activation, x_bias, weight_offset, rounding, out_dtype, group_cols
    )


def rms_norm_act(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    activation: str = "gelu",
    *,
    x_bias: Tensor | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """activation(rms_norm(input + x_bias)), as layer_norm_act."""
    run: Callable[..., Tensor] = _act_forward_outside if is_dynamo_compiling() else eager_act_forward
    shape = normalized_shape
    return run(
        RMS_NORM, input, shape, weight, None, eps, activation, x_bias, weight_offset, rounding, out_dtype, group_cols
    )


def layer_norm_gelu(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    approximate: str = "none",
    *,
    x_bias: Tensor | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
    group_cols: int | None = None,
) -> Tensor:
    """layer_norm_act with torch.nn.functional.gelu and its approximate: "none" or "tanh"."""
    run: Callable[..., Tensor] = _act_forward_outside if is_dynamo_compiling() else eager_act_forward
    shape, activation = normalized_shape, gelu_named(approximate)
    return run(
        LAYER_NORM, input, shape, weight, bias, eps, activation, x_bias, weight_offset, rounding, out_dtype, group_cols
    )


def layer_norm_gated(
    x: Tensor,
    gate: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    activation: str = "silu",
    gate_first: bool = False,
    group_cols: int | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """layer_norm(x) * activation(gate), or with gate_first layer_norm(x * activation(gate)), in one pass over memory.

    gate has the shape of x. Where x is 16-bit and gate has another dtype, both are read as float32, and y has the dtype
    of x; else gate is converted to the dtype of x. The activation is "silu", "sigmoid",
    "gelu" or "gelu_tanh". The product is computed in float32 and not rounded before the norm. The other keywords are
    those of layer_norm; with rounding "each" its result rounds before it is multiplied by activation(gate).
    """
    run: Callable[..., Tensor] = _gated_forward_outside if is_dynamo_compiling() else eager_gated_forward
    choices = activation, gate_first, group_cols, weight_offset, rounding, out_dtype
    return run(LAYER_NORM, x, gate, normalized_shape, weight, bias, eps, *choices)


def rms_norm_gated(
    x: Tensor,
    gate: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    activation: str = "silu",
    gate_first: bool = False,
    group_cols: int | None = None,
    *,
    weight_offset: float = 0.0,
    rounding: str = "once",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """rms_norm(x) * activation(gate), or with gate_first rms_norm(x * activation(gate)), as layer_norm_gated."""
    run: Callable[..., Tensor] = _gated_forward_outside if is_dynamo_compiling() else eager_gated_forward
    choices = activation, gate_first, group_cols, weight_offset, rounding, out_dtype
    return run(RMS_NORM, x, gate, normalized_shape, weight, None, eps, *choices)
