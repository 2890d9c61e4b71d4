"""Autocast, for libraries whose rules differ from PyTorch's. Called by apex.py and quack.py.
SPDX-License-Identifier: MIT"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled
from torch.amp.autocast_mode import is_autocast_available


def _is_on(device_type: str) -> bool:
    if not _is_any_autocast_enabled() or not is_autocast_available(device_type):
        return False
    return torch.is_autocast_enabled(device_type)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which operations on the device of x are not cast."""
    return torch.autocast(x.device.type, enabled=False) if _is_on(x.device.type) else nullcontext()


def in_autocast_dtype(x: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """x and the others, under autocast in its dtype; float64 stays."""
    if not _is_on(x.device.type):
        return x, *others
    dtype = torch.get_autocast_dtype(x.device.type)
    return tuple(t if t is None or t.dtype is torch.float64 else t.to(dtype) for t in (x, *others))
