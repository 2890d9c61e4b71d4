"""Norms that autocast does not change. Called by _norm_spec.py and evenkeel.compat. SPDX-License-Identifier: MIT"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C import _is_any_autocast_enabled
from torch.amp.autocast_mode import is_autocast_available


def is_on(device_type: str) -> bool:
    if not _is_any_autocast_enabled() or not is_autocast_available(device_type):
        return False
    return torch.is_autocast_enabled(device_type)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which operations on the device of x are not cast."""
    return torch.autocast(x.device.type, enabled=False) if is_on(x.device.type) else nullcontext()
