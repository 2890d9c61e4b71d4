"""The tables of cosines and sines that blocks share: those with the same angles, on one device, have the same tensors.

_block.py calls it. SPDX-License-Identifier: MIT
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack
from torch._compile import _disable_dynamo

from evenkeel._rope_tables import rope_tables
from evenkeel.torch._block_options import Rotation

_LEAST = 256  # rows of a table


def _made(rotation: Rotation, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    scaling = None if rotation.scaling is None else dict(rotation.scaling)
    name = str(dtype).removeprefix("torch.")
    arrays = rope_tables(
        length,
        rotation.rotary_dim,
        theta=rotation.theta,
        scaling=scaling,
        dtype=name,
        max_position_embeddings=rotation.max_position_embeddings,
    )
    with torch.inference_mode(False):  # tables that are kept serve training, too
        cos, sin = (torch.from_numpy(array).to(device) for array in arrays)
    return cos, sin


_kept = lru_cache(maxsize=16)(_made)


def _rows(rotation: Rotation, length: int) -> int:
    """Of the table that serves this length: powers of two, but exactly that many where the angles depend on it."""
    types = dict(rotation.scaling or ())
    if types.get("rope_type", types.get("type")) == "dynamic":
        return length
    return max(_LEAST, 1 << (length - 1).bit_length())


@_disable_dynamo
def tables(
    rotation: Rotation, length: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """cos and sin, [length, rotary_dim / 2] in float32, or in float64 for that dtype."""
    dtype = torch.float64 if dtype is torch.float64 else torch.float32
    length = int(length)  # while torch.jit.trace runs, sizes are tensors
    make = _made if _len_torch_dispatch_stack() else _kept  # a mode may make tensors without memory: not for keeping
    cos, sin = make(rotation, _rows(rotation, length), dtype, device)
    return cos[:length], sin[:length]
