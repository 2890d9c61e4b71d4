"""Which tensors the kernels may read, and when PyTorch must be shown an operation instead.
SPDX-License-Identifier: MIT"""

from torch import Tensor
from torch._C import _are_functorch_transforms_active, _is_tracing, _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.nn import Parameter


def is_plain(tensor: Tensor | None) -> bool:
    """Whether a tensor is what lies in its memory: no subclass with a dispatch of its own, no lazy negation."""
    return tensor is None or (type(tensor) in (Tensor, Parameter) and not tensor.is_neg())


def sees_operations() -> bool:
    """Whether somebody watches or transforms PyTorch's operations, and so must be shown one."""
    return (
        _len_torch_dispatch_stack() > 0
        or _are_functorch_transforms_active()
        or _is_tracing()
        or forward_ad._current_level >= 0
    )
