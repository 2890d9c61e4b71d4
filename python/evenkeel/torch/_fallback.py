"""What happens where evenkeel cannot serve a call: PyTorch does, and says so once. SPDX-License-Identifier: MIT"""

import os
import warnings
from typing import Literal, get_args

Fallback = Literal["warn", "error", "silent"]

_told: set[str] = set()


def _checked(choice: str, where: str) -> Fallback:
    known: tuple[Fallback, ...] = get_args(Fallback)
    if choice not in known:
        raise ValueError(f"{where} is {choice!r}: it must be one of {', '.join(map(repr, known))}")
    return known[known.index(choice)]


_choice: Fallback = _checked(os.environ.get("EVENKEEL_FALLBACK", "warn"), "EVENKEEL_FALLBACK")


def set_fallback(choice: Fallback) -> Fallback:
    """What is to happen where evenkeel cannot serve a call that PyTorch can, such as a norm on another kind of device.

    "warn": PyTorch computes it, with one warning for each reason (the default, or what $EVENKEEL_FALLBACK says);
    "silent": the same without a warning; "error": NotImplementedError. Returns what was set before.
    """
    global _choice
    before, _choice = _choice, _checked(choice, "choice")
    return before


def fall_back(op: str, reason: str, stacklevel: int = 7) -> None:
    """PyTorch has served the call: warns, or raises where that was asked for. stacklevel is that of its caller."""
    text = f"evenkeel.torch.{op} left this call to PyTorch: {reason}"
    if _choice == "error":
        raise NotImplementedError(text)
    if _choice == "warn" and text not in _told:
        _told.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)  # 7: the caller of layer_norm and its like
