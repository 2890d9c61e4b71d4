"""The C extension: evenkeel's library on tensors of any framework with DLPack or the buffer protocol.

Tensors are read in the cheapest way their type has: DLPack's C exchange API, the buffer protocol, __dlpack__.
Outputs are None or False (not wanted), True (made by x's framework through the exchange API), or an object to write to.
A call returns None, having done nothing, where a tensor does not lie in memory as the library reads it: x, dy as rows
of elements that follow each other, the rows at one distance; the others without gaps. The caller then copies those.

Exceptions: ValueError (shapes, values, devices that differ, read-only outputs), TypeError (dtypes, objects that are no
tensors), NotImplementedError (a device that is neither the CPU nor an NVIDIA GPU), MemoryError, RuntimeError (the GPU,
or a bad environment variable).
"""

from collections.abc import Callable
from typing import Any, TypedDict

Tensor = Any

LAYER_NORM: int
RMS_NORM: int
F32: int
F16: int
BF16: int
F64: int
version: str

class _Gpu(TypedDict):
    ordinal: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory: int

class Info(TypedDict):
    version: str
    numerics: int
    cpu: str
    level: str
    threads: int
    levels: dict[str, bool]
    gpus: list[_Gpu]
    cuda_driver: tuple[int, int] | None
    nvrtc: tuple[int, int] | None
    missing: str | None

# forward, backward and backward_workspace take the other operands and choices of the library's tables as keywords, by
# their names there (include/evenkeel.h). A result comes for each output that is wanted. Choices are None for their
# defaults, a dtype is its number (F32, ...) or PyTorch's, rounding is "once" or "each", activation "sigmoid", "silu",
# "gelu" or "gelu_tanh" (None: none).

def forward(
    norm: int,  # LAYER_NORM or RMS_NORM
    x: Tensor,
    shape: int | tuple[int, ...],  # normalized: what x's shape ends in
    weight: Tensor | None,  # of that shape, as bias
    bias: Tensor | None,
    eps: float | None,  # None, RMSNorm alone: the epsilon of f32, with an f64 x that of f64
    stats: Tensor | bool | None,  # [3, rows] mean, rstd, mean_lo; RMSNorm [1, rows] rstd; f32, f64 with an f64 x
    out: Tensor | bool | None,  # None is True here
    threads: int,  # of the CPU; 0: the library's choice
    stream: int | None,  # CUDA; None: x's framework's current one, else the default one
    /,
    *,
    residual: Tensor | None = None,
    x_bias: Tensor | None = None,
    residual_after: Tensor | None = None,
    gate: Tensor | None = None,
    h: Tensor | bool | None = None,
    h_dtype: Any = None,
    y_dtype: Any = None,  # None: f32 where residual_after is, else x's; out then must have it
    weight_dtype: Any = None,
    weight_offset: float | None = None,
    rounding: str | None = None,
    activation: str | None = None,
    gate_first: bool | None = None,
    group_cols: int | None = None,
) -> Any: ...  # y, or (y[, h][, stats]); None: make the inputs contiguous and call again
def backward(
    norm: int,
    dy: Tensor | None,
    x: Tensor,  # forward's h, where it had a residual
    shape: int | tuple[int, ...],
    weight: Tensor | None,
    # As forward returns them (or [2, rows] without mean_lo); (mean, rstd), (mean, rstd, mean_lo), RMSNorm (rstd,), each
    # of one element a row in any shape; None: recomputed from x and eps.
    stats: Tensor | tuple[Tensor, ...] | None,
    eps: float | None,
    dx: Tensor | bool | None,
    dweight: Tensor | bool | None,  # of weight's dtype, as dbias, unless they are given in another
    dbias: Tensor | bool | None,
    workspace: Tensor | None,  # None: made as needed
    threads: int,
    stream: int | None,
    /,
    *,
    dh: Tensor | None = None,
    bias: Tensor | None = None,  # with an activation alone, without gate_first
    x_bias: Tensor | None = None,
    gate: Tensor | None = None,
    dresidual: Tensor | bool | None = None,  # True: dx itself, where both are wanted and have one dtype
    dx_bias: Tensor | bool | None = None,
    dgate: Tensor | bool | None = None,
    dtype: Any = None,  # of dx; None: x's, unless dx is given
    h_dtype: Any = None,
    y_dtype: Any = None,
    weight_dtype: Any = None,
    gradient_dtype: Any = None,
    weight_offset: float | None = None,
    rounding: str | None = None,
    activation: str | None = None,
    gate_first: bool | None = None,
    group_cols: int | None = None,
) -> Any: ...  # (dx, dweight, dbias[, dresidual][, dx_bias][, dgate]); None: make the inputs contiguous, call again
def backward_workspace(
    norm: int,
    x: Tensor,
    shape: int | tuple[int, ...],
    weight: Tensor | None,
    dweight: bool,
    dbias: bool,
    threads: int,
    /,
    **others: Any,  # those of backward; outputs are True or False
) -> int: ...  # bytes

# Raises what a call with such choices would; None stands for a default.
def check_flavour(weight_offset: Any, rounding: Any, out_dtype: Any, residual_dtype: Any, /) -> None: ...
def check_activation(activation: Any, gate_first: Any, /) -> None: ...  # the same; None is not an activation

# Gated activations (evenkeel.glu). Packed: gate is one tensor of gate and value, and gate_bias of both biases.

def glu_forward(
    gate: Tensor,
    value: Tensor | None,
    gate_bias: Tensor | None,
    value_bias: Tensor | None,
    activation: str,
    limit: float | None,
    alpha: float | None,
    value_offset: float | None,
    interleaved: bool | None,
    packed: bool | None,
    out: Tensor | bool | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...  # y; None: make the inputs contiguous and call again
def glu_backward(
    dy: Tensor,
    gate: Tensor,
    value: Tensor | None,
    gate_bias: Tensor | None,
    value_bias: Tensor | None,
    activation: str,
    limit: float | None,
    alpha: float | None,
    value_offset: float | None,
    interleaved: bool | None,
    packed: bool | None,
    dgate: Tensor | bool | None,
    dvalue: Tensor | bool | None,
    dgate_bias: Tensor | bool | None,
    dvalue_bias: Tensor | bool | None,
    gradient_dtype: Any,
    workspace: Tensor | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...  # (dgate, dvalue, dgate_bias, dvalue_bias); None: make the inputs contiguous and call again
def glu_backward_workspace(
    gate: Tensor,
    value: Tensor | None,
    gate_bias: Tensor | None,
    value_bias: Tensor | None,
    activation: str,
    limit: float | None,
    alpha: float | None,
    value_offset: float | None,
    interleaved: bool | None,
    packed: bool | None,
    dgate_bias: bool,
    dvalue_bias: bool,
    gradient_dtype: Any,
    threads: int,
    /,
) -> int: ...
def bias_act_forward(
    x: Tensor,
    bias: Tensor | None,
    activation: str,
    out: Tensor | bool | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...
def bias_act_backward(
    dy: Tensor,
    x: Tensor,
    bias: Tensor | None,
    activation: str,
    dx: Tensor | bool | None,
    dbias: Tensor | bool | None,
    gradient_dtype: Any,
    workspace: Tensor | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...
def bias_act_backward_workspace(
    x: Tensor, bias: Tensor | None, activation: str, dbias: bool, gradient_dtype: Any, threads: int, /
) -> int: ...
def check_glu(activation: str, interleaved: bool | None, /) -> None: ...  # raises what a call would

# Rotary position embedding (evenkeel.rope). Queries, keys and their gradients are [batch, seq, heads, head_dim] at any
# strides, the last of which is 1. Tables may be [rows, columns] or have dimensions before: then those count as rows.

def rope_forward(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    q_bias: Tensor | None,
    k_bias: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    norm: str | None,  # "layer" or "rms"
    norm_last: bool,
    weight_offset: float | None,
    eps: float,
    interleaved: bool | None,
    trailing: bool | None,
    rotary_dim: int | None,
    table_step: int | None,
    offset: int | None,
    q_out: Tensor | bool | None,
    k_out: Tensor | bool | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...  # (q_out, k_out); None: make the inputs contiguous and call again
def rope_backward(
    dq_out: Tensor,
    dk_out: Tensor | None,
    q: Tensor | None,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    q_bias: Tensor | None,
    k_bias: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    norm: str | None,  # "layer" or "rms"
    norm_last: bool,
    weight_offset: float | None,
    eps: float,
    interleaved: bool | None,
    trailing: bool | None,
    rotary_dim: int | None,
    table_step: int | None,
    offset: int | None,
    dq: Tensor | bool | None,
    dk: Tensor | bool | None,
    dq_bias: Tensor | bool | None,
    dk_bias: Tensor | bool | None,
    dq_weight: Tensor | bool | None,
    dk_weight: Tensor | bool | None,
    gradient_dtype: Any,
    workspace: Tensor | None,
    threads: int,
    stream: int | None,
    /,
) -> Any: ...  # (dq, dk, dq_bias, dk_bias, dq_weight, dk_weight); None: make the inputs contiguous and call again
def rope_backward_workspace(
    dq_out: Tensor,
    dk_out: Tensor | None,
    q: Tensor | None,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    q_bias: Tensor | None,
    k_bias: Tensor | None,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    norm: str | None,  # "layer" or "rms"
    norm_last: bool,
    weight_offset: float | None,
    eps: float,
    interleaved: bool | None,
    trailing: bool | None,
    rotary_dim: int | None,
    table_step: int | None,
    offset: int | None,
    dq_bias: Tensor | bool | None,
    dk_bias: Tensor | bool | None,
    dq_weight: Tensor | bool | None,
    dk_weight: Tensor | bool | None,
    gradient_dtype: Any,
    threads: int,
    /,
) -> int: ...
def check_rope(norm: Any, weight_offset: Any, interleaved: Any, trailing: Any, /) -> None: ...
def eager_setup(
    tensor: type,
    parameter: type,
    empty_like: Callable[..., Any],
    new_empty: Callable[..., Any],
    dtypes: tuple[Any, ...],  # those of F32, F16, BF16 and F64
    contiguous: Callable[[Any], Any],
    is_neg: Callable[[Any], bool],
    get_num_threads: Callable[[], int],
    is_grad_enabled: Callable[[], bool],
    # For each op: apply of autograd, whose forward is eager_keep and backward eager_backward; None: PyTorch is too old.
    apply: tuple[Callable[..., Any], ...] | None,
    leave: tuple[Callable[..., Any], ...],  # the same for a call that eager_forward cannot serve: its arguments
    # The same for what eager_backward cannot serve: (ctx, gradients, saved tensors).
    backward: tuple[Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any], ...],
    forward_ad: dict[str, Any],  # of the module torch.autograd.forward_ad
    # Each returns something false where it watches nothing: those that see operations, and those that see the call of
    # layer_norm itself, which Python handles before it asks is_plain.
    operation_watchers: tuple[Callable[[], Any], ...],
    call_watchers: tuple[Callable[[], Any], ...],
    /,
) -> None: ...
def is_plain(*tensors: Any) -> bool: ...  # would nothing but a kernel see operations on these tensors?

# The eager calls: of each op forward, the same of tensors that is_plain is true of (compute), and the two functions of
# its node of autograd. forward returns the results with their gradients where some are needed, or what eager_setup's
# leave makes of the call; compute returns None where evenkeel.torch must make copies first.

def eager_forward(
    norm: int,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_compute(
    norm: int,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_keep(ctx: Any, *inputs_and_made: Any) -> Any: ...  # (x, weight, bias), (y, stats, options): y
def eager_backward(ctx: Any, *gradients: Any) -> Any: ...  # dy: (dx, dweight, dbias, None), less what had no input
def eager_add_forward(
    norm: int,
    x: Any,
    residual: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    residual_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_add_compute(
    norm: int,
    x: Any,
    residual: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    residual_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_add_keep(ctx: Any, *inputs_and_made: Any) -> Any: ...  # (x, residual, weight, bias, x_bias): (y, h)
def eager_add_backward(ctx: Any, *gradients: Any) -> Any: ...  # dy, dh: (dx, dresidual, dweight, dbias, dx_bias, None)
def eager_after_forward(
    norm: int,
    x: Any,
    residual: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_after_compute(
    norm: int,
    x: Any,
    residual: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_after_keep(ctx: Any, *inputs_and_made: Any) -> Any: ...  # (x, residual, weight, bias, x_bias): y
def eager_after_backward(ctx: Any, *gradients: Any) -> Any: ...  # dy: (dx, dy, dweight, dbias, dx_bias, None)
def eager_act_forward(
    norm: int,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    activation: str,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_act_compute(
    norm: int,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    activation: str,
    x_bias: Any,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    group_cols: int | None,
    /,
) -> Any: ...
def eager_act_keep(ctx: Any, *inputs_and_made: Any) -> Any: ...  # (x, weight, bias, x_bias): y
def eager_act_backward(ctx: Any, *gradients: Any) -> Any: ...  # dy: (dx, dweight, dbias, dx_bias, None)
def eager_gated_forward(
    norm: int,
    x: Any,
    gate: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    activation: str,
    gate_first: bool,
    group_cols: int | None,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    /,
) -> Any: ...
def eager_gated_compute(
    norm: int,
    x: Any,
    gate: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: float | None,
    activation: str,
    gate_first: bool,
    group_cols: int | None,
    weight_offset: float,
    rounding: str,
    out_dtype: Any,
    /,
) -> Any: ...
def eager_gated_keep(ctx: Any, *inputs_and_made: Any) -> Any: ...  # (x, gate, weight, bias): y
def eager_gated_backward(ctx: Any, *gradients: Any) -> Any: ...  # dy: (dx, dgate, dweight, dbias, None)
def info() -> Info: ...
def cost(op: str, args: dict[str, int], /) -> list[tuple[str, str, int, int, int]]: ...
