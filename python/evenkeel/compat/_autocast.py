"""Apex's rule for autocast, which differs from PyTorch's. Called by apex.py. SPDX-License-Identifier: MIT"""

from typing import Any

import torch
from torch import Tensor

from evenkeel.torch._autocast import is_on


def in_autocast_dtype(x: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """x and the others, under autocast in its dtype; float64 stays."""
    if not is_on(x.device.type):
        return x, *others
    dtype = torch.get_autocast_dtype(x.device.type)
    return tuple(t if t is None or t.dtype is torch.float64 else t.to(dtype) for t in (x, *others))
