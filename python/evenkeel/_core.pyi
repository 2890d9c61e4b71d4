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
) -> Any: ...  # y; (y, stats) where stats are wanted; None: make x, weight and bias contiguous and call again
def backward(
    norm: int,
    dy: Tensor,
    x: Tensor,
    shape: int | tuple[int, ...],
    weight: Tensor | None,
    # As forward returns them (or [2, rows] without mean_lo); (mean, rstd), (mean, rstd, mean_lo), RMSNorm (rstd,), each
    # of one element a row in any shape; None: recomputed from x and eps.
    stats: Tensor | tuple[Tensor, ...] | None,
    eps: float | None,
    dx: Tensor | bool | None,
    dweight: Tensor | bool | None,  # of weight's dtype, as dbias
    dbias: Tensor | bool | None,
    workspace: Tensor | None,  # None: made as needed
    threads: int,
    stream: int | None,
    /,
) -> tuple[Any, Any, Any] | None: ...  # (dx, dweight, dbias); None: make the inputs contiguous and call again
def backward_workspace(
    norm: int,
    x: Tensor,
    shape: int | tuple[int, ...],
    weight: Tensor | None,
    dweight: bool,
    dbias: bool,
    threads: int,
    /,
) -> int: ...  # bytes
def eager_setup(
    tensor: type,
    parameter: type,
    empty_like: Callable[[Any], Any],
    new_empty: Callable[..., Any],
    in_float32: dict[str, Any],  # keyword arguments of new_empty
    contiguous: Callable[[Any], Any],
    is_neg: Callable[[Any], bool],
    get_num_threads: Callable[[], int],
    is_grad_enabled: Callable[[], bool],
    apply: Callable[..., Any] | None,  # of autograd: forward is eager_keep, backward eager_backward; None: too old
    backward: Callable[[Any, Any, tuple[Any, ...]], Any],  # (ctx, dy, saved tensors): what eager_backward cannot serve
    forward_ad: dict[str, Any],  # of the module torch.autograd.forward_ad
    # Each returns something false where it watches nothing: those that see operations, and those that see the call of
    # layer_norm itself, which Python handles before it asks is_plain.
    operation_watchers: tuple[Callable[[], Any], ...],
    call_watchers: tuple[Callable[[], Any], ...],
    /,
) -> None: ...
def is_plain(*tensors: Any) -> bool: ...  # would nothing but a kernel see operations on these tensors?

# y, with its gradient where one is needed; None: evenkeel.torch must look at the call
def eager_forward(
    norm: int, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float | None, /
) -> Any: ...

# The same of tensors that is_plain is true of; None: some must be copied first
def eager_compute(
    norm: int, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float | None, /
) -> Any: ...
def eager_keep(ctx: Any, x: Any, weight: Any, bias: Any, made: tuple[Any, Any, tuple[Any, ...]], /) -> Any: ...  # y
def eager_backward(ctx: Any, dy: Any, /) -> Any: ...  # (dx, dweight, dbias, None)
def info() -> Info: ...
