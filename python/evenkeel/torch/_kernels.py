"""The computation, on tensors that lie in memory: no autograd, no dispatch, no fallback.

Eager code, double backward and the explicit functions all end here. Results are ordinary tensors of PyTorch's
allocator; the work goes on the current stream, or on as many threads as PyTorch has. SPDX-License-Identifier: MIT
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from evenkeel import _core
from evenkeel.torch._call import LAYER_NORM as LAYER_NORM
from evenkeel.torch._call import RMS_NORM as RMS_NORM
from evenkeel.torch._call import Call, Gradients, Inputs, Outputs, Shape, groups_of, number_of

# Since PyTorch 2.10 the extension reads tensors, and finds the current stream, in C. Older ones take the way of Python.
HAS_EXCHANGE = hasattr(Tensor, "__dlpack_c_exchange_api__")


def statistics_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def statistics_count(norm: int) -> int:
    return 3 if norm == LAYER_NORM else 1


def _stream(x: Tensor) -> int | None:
    """None where the extension finds it."""
    if HAS_EXCHANGE or not x.is_cuda:
        return None
    return torch.cuda.current_stream(x.device).cuda_stream


def readable(*tensors: Tensor | None) -> Iterator[Any]:
    """As the extension can read them without the exchange API: DLPack in Python refuses what needs a gradient."""
    for tensor in tensors:
        if tensor is not None and not torch._C._has_storage(tensor):  # as the dy of is_grads_batched
            raise TypeError("a tensor cannot be read: it has no memory of its own")
        yield tensor.detach() if tensor is not None and tensor.requires_grad else tensor


def _contiguous(tensor: Any) -> Any:
    return None if tensor is None else tensor.contiguous()


def _resolved(tensor: Any) -> Any:
    """With a lazy negation carried out: the kernels read what lies in memory."""
    return None if tensor is None else tensor.resolve_neg()


def run(function: Callable[..., Any], tensors: Sequence[Tensor | None], *others: Any) -> None:
    """A function of the extension that writes to what it is given: function(*tensors, *others, threads, stream).

    It returns None where tensors must be made contiguous first.
    """
    given = [*map(_resolved, tensors)]
    if not HAS_EXCHANGE:
        given = [*readable(*given)]
    others = *others, torch.get_num_threads(), next(_stream(t) for t in given if t is not None)
    if function(*given, *others) is None:
        function(*map(_contiguous, given), *others)


def like_pytorch(norm: int, x: Tensor, result: Tensor) -> Tensor:
    """The result in PyTorch's strides: its rms_norm keeps channels_last, its layer_norm does not."""
    if norm == LAYER_NORM or suggest_memory_format(x) is torch.contiguous_format:
        return result
    return torch.empty_like(x, dtype=result.dtype).copy_(result)


# ---- forward ----


def empty_outputs(call: Call, statistics: bool) -> Outputs:
    """The results of forward, not computed."""
    x, residual = call.inputs.x, call.inputs.residual
    y = torch.empty_like(x, dtype=call.out_dtype, memory_format=torch.contiguous_format)
    h = None
    if residual is not None:
        h = torch.empty_like(x, dtype=residual.dtype, memory_format=torch.contiguous_format)
    if not statistics:
        return Outputs(y, h, None)
    rows = math.prod(x.shape[: x.dim() - len(call.shape)]) * groups_of(call.shape, call.flavour.group_cols)
    stats = torch.empty((statistics_count(call.norm), rows), dtype=statistics_dtype(x), device=x.device)
    return Outputs(y, h, stats)


def _run_forward(call: Call, inputs: Inputs, outputs: Outputs) -> Any:
    """None where a tensor must be made contiguous first."""
    return _core.forward(
        call.norm,
        inputs.x,
        call.shape,
        inputs.weight,
        inputs.bias,
        call.eps,
        outputs.stats,
        outputs.y,
        torch.get_num_threads(),
        _stream(inputs.x),
        residual=inputs.residual,
        x_bias=inputs.x_bias,
        residual_after=inputs.residual_after,
        gate=inputs.gate,
        h=outputs.h,
        y_dtype=number_of(call.out_dtype) or None,
        weight_offset=call.flavour.weight_offset,
        rounding=call.flavour.rounding,
        activation=call.flavour.activation,
        gate_first=call.flavour.gate_first,
        group_cols=call.flavour.group_cols,
    )


def forward(call: Call, statistics: bool) -> Outputs:
    """y, h where there is a residual, and the statistics where they are wanted."""
    inputs = Inputs(*map(_resolved, call.inputs))
    outputs = empty_outputs(call, statistics)
    if not HAS_EXCHANGE:
        inputs = Inputs(*readable(*inputs))
    if _run_forward(call, inputs, outputs) is None:
        _run_forward(call, Inputs(*map(_contiguous, inputs)), outputs)
    return outputs._replace(y=like_pytorch(call.norm, inputs.x, outputs.y))


# ---- backward ----


def empty_gradients(
    x: Tensor,
    shape: Shape,
    columns_dtype: torch.dtype,
    need_dx: bool,
    need_dweight: bool,
    need_dbias: bool,
    need_dresidual: bool = False,
    need_dx_bias: bool = False,
    need_dgate: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Gradients:
    """The results of backward, not computed: dx and dgate of the dtype, by default that of x (or h), as dresidual."""

    def columns(need: bool) -> Tensor | None:
        return torch.empty(shape, dtype=columns_dtype, device=x.device) if need else None

    def rows(need: bool, dtype: torch.dtype | None) -> Tensor | None:
        return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format) if need else None

    dx = rows(need_dx, dtype)
    is_dx = need_dresidual and dx is not None and dx.dtype is x.dtype
    dresidual = dx if is_dx else rows(need_dresidual, x.dtype)
    sums = columns(need_dweight), columns(need_dbias)
    return Gradients(dx, *sums, dresidual, columns(need_dx_bias), rows(need_dgate, dtype))


def with_rows_like_pytorch(norm: int, x: Tensor, gradients: Gradients) -> Gradients:
    if gradients.dgate is not None:
        gradients = gradients._replace(dgate=like_pytorch(norm, x, gradients.dgate))
    if gradients.dx is None:
        return gradients
    dx = like_pytorch(norm, x, gradients.dx)
    is_dx = gradients.dresidual is gradients.dx
    return gradients._replace(dx=dx, dresidual=dx if is_dx else gradients.dresidual)


def workspace_bytes(
    norm: int, x: Tensor, shape: Shape, weight: Tensor | None, need_dweight: bool, need_dbias: bool, **others: Any
) -> int:
    """The others: arguments of the extension, by name."""
    threads = torch.get_num_threads()
    return _core.backward_workspace(norm, x, shape, weight, need_dweight, need_dbias, threads, **others)


def workspace_options(x: Tensor, gradients: Gradients, dtype: torch.dtype | None) -> dict[str, Any]:
    """The others of workspace_bytes: gradients and dtypes that it cannot see from x and weight."""
    sums = [g for g in (gradients.dweight, gradients.dbias, gradients.dx_bias) if g is not None]
    return {
        "dtype": number_of(dtype or x.dtype),
        "dx": gradients.dx is not None,
        "dresidual": gradients.dresidual is not None and gradients.dresidual is not gradients.dx,
        "dx_bias": gradients.dx_bias is not None,
        "dgate": gradients.dgate is not None,
        "gradient_dtype": number_of(sums[0].dtype) if sums else None,
    }


def _workspace(
    norm: int,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    gradients: Gradients,
    dtype: torch.dtype | None,
    **others: Any,
) -> Tensor | None:
    """For an extension that cannot ask PyTorch for memory; on the CPU it makes its own.

    The others: operands beside x and weight, and choices.
    """
    if not x.is_cuda:
        return None
    wanted = gradients.dweight is not None, gradients.dbias is not None
    size = workspace_bytes(norm, x, shape, weight, *wanted, **workspace_options(x, gradients, dtype) | others)
    return torch.empty(size // 4 + 1, dtype=torch.float32, device=x.device)


def backward(
    norm: int,
    dy: Tensor | None,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    stats: Tensor | tuple[Tensor, ...],
    gradients: Gradients,
    *,
    dh: Tensor | None = None,
    bias: Tensor | None = None,
    x_bias: Tensor | None = None,
    gate: Tensor | None = None,
    dtype: torch.dtype | None = None,
    weight_offset: float = 0.0,
    rounding: str = "once",
    activation: str | None = None,
    gate_first: bool = False,
    group_cols: int | None = None,
) -> Gradients:
    """Fills the gradients, which empty_gradients made: the statistics as forward returns them, or one by one.

    Where forward had a residual, x is its h; the dtype is then that of forward's x. x_bias: forward's, where it had one
    and no residual; bias: the same, where it had an activation of y or a gate of y; gate: the same.
    """
    threads, workspace, is_tuple = torch.get_num_threads(), None, isinstance(stats, tuple)
    tensors = [*map(_resolved, (dy, dh, x, weight, gate, bias, x_bias, *(stats if is_tuple else ())))]
    if not HAS_EXCHANGE:
        tensors = [*readable(*tensors)]
        others: dict[str, Any] = dict(zip(("dy", "dh", "x", "weight", "gate", "bias", "x_bias"), tensors, strict=False))
        others |= {"weight_offset": weight_offset, "rounding": rounding, "activation": activation}
        others |= {"gate_first": gate_first, "group_cols": group_cols}
        workspace = _workspace(norm, others.pop("x"), shape, others.pop("weight"), gradients, dtype, **others)
    dx, dweight, dbias, dresidual, dx_bias, dgate = gradients

    def run(dy: Any, dh: Any, x: Any, weight: Any, gate: Any, bias: Any, x_bias: Any, *statistics: Any) -> Any:
        given = statistics if is_tuple else stats
        return _core.backward(
            *(norm, dy, x, shape, weight, given, 0.0, dx, dweight, dbias, workspace, threads, _stream(x)),
            dh=dh,
            bias=bias,
            x_bias=x_bias,
            gate=gate,
            dresidual=None if dresidual is dx else dresidual,
            dx_bias=dx_bias,
            dgate=dgate,
            dtype=number_of(dtype or x.dtype) or None,
            weight_offset=weight_offset,
            rounding=rounding,
            activation=activation,
            gate_first=gate_first,
            group_cols=group_cols,
        )

    if run(*tensors) is None:
        stats = stats if is_tuple else stats.contiguous()  # type: ignore[union-attr]
        run(*map(_contiguous, tensors))
    return with_rows_like_pytorch(norm, x, gradients)
