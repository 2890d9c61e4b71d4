"""How the modules here say no. SPDX-License-Identifier: MIT"""

from torch import Tensor


def _shown(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def lacks(call: str, argument: str, value: object, instead: str) -> NotImplementedError:
    """To raise where an argument asks for what evenkeel does not have."""
    return NotImplementedError(f"{call}: {argument} is {_shown(value)}, which evenkeel does not have: {instead}")
