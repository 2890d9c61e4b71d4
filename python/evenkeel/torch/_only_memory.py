"""_kernels without the computation: allocates what a call does, on tensors without memory, for memory_estimate.

SPDX-License-Identifier: MIT
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from evenkeel.torch import _kernels
from evenkeel.torch._call import Call, Gradients, Outputs, Shape
from evenkeel.torch._ledger import note_call


def _is_rows(x: Tensor, shape: Shape) -> bool:
    """Whether the extension reads x as it lies: each row without gaps, the rows at one distance and apart."""
    cols = math.prod(shape)
    if x.numel() == 0 or x.is_contiguous():
        return True
    try:
        rows = x.view(-1, cols)
    except (RuntimeError, ValueError):  # no distance is that of all rows
        return False
    return (cols == 1 or rows.stride(1) == 1) and rows.stride(0) >= cols


def copies(shape: Shape | None, *tensors: Tensor | None) -> list[Tensor]:
    """What is copied where one of them cannot be read as it lies; without a shape, rows are the last dimension."""
    present = [tensor for tensor in tensors if tensor is not None]
    fits = all(_is_rows(t, shape or tuple(t.shape[-1:])) for t in present)
    return [] if fits else [t.contiguous() for t in present]


def stand_in(tensor: Tensor | None) -> Tensor | None:
    """A tensor of the same shape on one element of memory."""
    return None if tensor is None else torch.empty((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)


def _workspace(
    norm: int,
    x: Tensor,
    shape: Shape,
    weight: Tensor | None,
    gradients: Gradients,
    dtype: torch.dtype | None,
    inputs: dict[str, Tensor | None],
    **flavour: Any,
) -> Tensor | None:
    """backward's scratch memory on a GPU, where PyTorch allocates it; on the CPU the extension makes its own."""
    if not x.is_cuda:
        return None
    wanted = gradients.dweight is not None, gradients.dbias is not None
    others = _kernels.workspace_options(x, gradients, dtype) | flavour
    with _disable_current_modes():
        real = stand_in(x)
        assert real is not None
        others |= {name: stand_in(tensor) for name, tensor in inputs.items()}
        size = _kernels.workspace_bytes(norm, real, shape, stand_in(weight), *wanted, **others)
    return torch.empty(size, dtype=torch.uint8, device=x.device)


def forward(call: Call, statistics: bool) -> Outputs:
    outputs = _kernels.empty_outputs(call, statistics)
    copies(call.shape, call.inputs.x, call.inputs.residual, call.inputs.residual_after, call.inputs.gate)
    note_call("norm_forward", call.inputs, call, statistics)
    return outputs._replace(y=_kernels.like_pytorch(call.norm, call.inputs.x, outputs.y))


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
    **flavour: Any,
) -> Gradients:
    copied = copies(shape, dy, dh, x, gate)
    note_call("norm_backward", (dy, x), norm, shape, weight, stats, gradients, dh, bias, x_bias, gate, dtype, flavour)
    inputs = {"dy": dy, "dh": dh, "bias": bias, "x_bias": x_bias, "gate": gate}
    workspace = _workspace(norm, x, shape, weight, gradients, dtype, inputs, **flavour)
    del copied, workspace  # they have lived at the same time
    return _kernels.with_rows_like_pytorch(norm, x, gradients)
