"""The computation, on tensors that lie in memory: no autograd, no dispatch, no fallback.

Eager code, double backward and the explicit functions all end here. Results are ordinary tensors of PyTorch's
allocator; the work goes on the current stream, or on as many threads as PyTorch has. SPDX-License-Identifier: MIT
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from evenkeel import _core

LAYER_NORM = _core.LAYER_NORM
RMS_NORM = _core.RMS_NORM

# Since PyTorch 2.10 the extension reads tensors, and finds the current stream, in C. Older ones take the way of Python.
HAS_EXCHANGE = hasattr(Tensor, "__dlpack_c_exchange_api__")

Shape = tuple[int, ...]


class Gradients(NamedTuple):
    dx: Tensor | None
    dweight: Tensor | None
    dbias: Tensor | None


def statistics_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def statistics_count(norm: int) -> int:
    return 3 if norm == LAYER_NORM else 1


def _stream(x: Tensor) -> int | None:
    """None where the extension finds it."""
    if HAS_EXCHANGE or not x.is_cuda:
        return None
    return torch.cuda.current_stream(x.device).cuda_stream


def _readable(*tensors: Tensor | None) -> Iterator[Any]:
    """As the extension can read them without the exchange API: DLPack in Python refuses what needs a gradient."""
    for tensor in tensors:
        if tensor is not None and not torch._C._has_storage(tensor):  # as the dy of is_grads_batched
            raise TypeError("a tensor cannot be read: it has no memory of its own")
        yield tensor.detach() if tensor is not None and tensor.requires_grad else tensor


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _resolved(tensor: Any) -> Any:
    """With a lazy negation carried out: the kernels read what lies in memory."""
    return None if tensor is None else tensor.resolve_neg()


def like_pytorch(norm: int, x: Tensor, result: Tensor) -> Tensor:
    """The result in PyTorch's strides: its rms_norm keeps channels_last, its layer_norm does not."""
    if norm == LAYER_NORM or suggest_memory_format(x) is torch.contiguous_format:
        return result
    return torch.empty_like(x).copy_(result)


def empty_outputs(norm: int, x: Tensor, shape: Shape, statistics: bool) -> tuple[Tensor, Tensor | None]:
    """y and the statistics of forward, not computed."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not statistics:
        return y, None
    rows = math.prod(x.shape[: x.dim() - len(shape)])
    return y, torch.empty((statistics_count(norm), rows), dtype=statistics_dtype(x), device=x.device)


def forward(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float | None, statistics: bool
) -> tuple[Tensor, Tensor | None]:
    """y, and where they are wanted the statistics as [3, rows]: mean, rstd, mean_lo (RMSNorm [1, rows]: rstd)."""
    x, weight, bias = _resolved(x), _resolved(weight), _resolved(bias)
    y, stats = empty_outputs(norm, x, shape, statistics)
    outputs = eps, stats, y, torch.get_num_threads(), _stream(x)
    if not HAS_EXCHANGE:
        x, weight, bias = _readable(x, weight, bias)
    if _core.forward(norm, x, shape, weight, bias, *outputs) is None:
        _core.forward(norm, x.contiguous(), shape, _contiguous(weight), _contiguous(bias), *outputs)
    return like_pytorch(norm, x, y), stats


def empty_gradients(
    x: Tensor, shape: Shape, weight_dtype: torch.dtype, need_dx: bool, need_dweight: bool, need_dbias: bool
) -> Gradients:
    """The results of backward, not computed."""
    return Gradients(
        torch.empty_like(x, memory_format=torch.contiguous_format) if need_dx else None,
        torch.empty(shape, dtype=weight_dtype, device=x.device) if need_dweight else None,
        torch.empty(shape, dtype=weight_dtype, device=x.device) if need_dbias else None,
    )


def with_dx_like_pytorch(norm: int, x: Tensor, gradients: Gradients) -> Gradients:
    return gradients if gradients.dx is None else gradients._replace(dx=like_pytorch(norm, x, gradients.dx))


def workspace_bytes(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, need_dweight: bool, need_dbias: bool
) -> int:
    return _core.backward_workspace(norm, x, shape, weight, need_dweight, need_dbias, torch.get_num_threads())


def _workspace(norm: int, x: Tensor, shape: Shape, weight: Tensor | None, gradients: Gradients) -> Tensor | None:
    """For an extension that cannot ask PyTorch for memory; on the CPU it makes its own."""
    if not x.is_cuda:
        return None
    size = workspace_bytes(norm, x, shape, weight, gradients.dweight is not None, gradients.dbias is not None)
    return torch.empty(size // 4 + 1, dtype=torch.float32, device=x.device)


def backward(
    norm: int,
    dy: Tensor,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    stats: Tensor | tuple[Tensor, ...],
    gradients: Gradients,
) -> Gradients:
    """Fills the gradients, which empty_gradients made: the statistics as forward returns them, or one by one."""
    threads, workspace = torch.get_num_threads(), None
    dy, x, weight = _resolved(dy), _resolved(x), _resolved(weight)
    stats = tuple(map(_resolved, stats)) if isinstance(stats, tuple) else stats
    if not HAS_EXCHANGE:
        dy, x, weight = _readable(dy, x, weight)
        stats = tuple(_readable(*stats)) if isinstance(stats, tuple) else stats
        workspace = _workspace(norm, x, shape, weight, gradients)
    outputs = 0.0, *gradients, workspace, threads, _stream(x)
    if _core.backward(norm, dy, x, shape, weight, stats, *outputs) is None:
        copies = tuple(map(Tensor.contiguous, stats)) if isinstance(stats, tuple) else stats.contiguous()
        _core.backward(norm, dy.contiguous(), x.contiguous(), shape, _contiguous(weight), copies, *outputs)
    return with_dx_like_pytorch(norm, x, gradients)
