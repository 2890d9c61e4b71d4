"""A product, and its input past it, to which its result is added later: h = x + norm(product(x)).

The gradient of x is the sum of both ways. The product of backward adds it up where it writes it (beta = 1), in the
memory of the other way's gradient where nothing else refers to that. _block_fused.py calls it.
SPDX-License-Identifier: MIT
"""

import sys
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Pair = tuple[Tensor, Tensor]


def _references(tensor: Tensor) -> tuple[int, ...]:
    """To the tensor in Python, to it in C++, and to its memory."""
    memory = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return sys.getrefcount(tensor), tensor._use_count(), memory  # type: ignore[attr-defined]


class _Probe(Function):
    """Counts the references to a gradient that autograd alone has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, found: list[tuple[int, ...]]) -> Tensor:
        ctx.found = found
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.found.append(_references(gradient))
        return gradient, None


@lru_cache(1)
def _references_of_autograd() -> tuple[int, ...]:
    """() where this PyTorch does not tell."""
    found: list[tuple[int, ...]] = []
    try:
        with torch.enable_grad():
            x = torch.zeros(1, requires_grad=True)
            torch.autograd.grad(_Probe.apply(x, found) * 2, x, torch.ones(1))  # type: ignore[no-untyped-call]
    except AttributeError:
        return ()
    return found[0]


class Fork(Function):
    """(x weight^T + bias, x); the bias has no gradient here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Pair:
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        return F.linear(x, weight, bias), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, past: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        if dy is None:
            return past, None, None
        rows = dy.flatten(0, -2)
        dweight = rows.t() @ x.flatten(0, -2) if needs_weight else None
        if not needs_x:
            return None, dweight, None
        if past is None:
            return dy @ weight, dweight, None
        is_own = not torch.is_grad_enabled() and past.is_contiguous() and _references(past) == _references_of_autograd()
        onto = past.view(-1, past.shape[-1]) if is_own else past.reshape(-1, past.shape[-1])
        dx = (onto.addmm_ if is_own else onto.addmm)(rows, weight)
        # As a plain tensor, not as a view, whose base would be another reference to the memory.
        return (
            (dx.view(x.shape) if torch.is_grad_enabled() else torch.ops.aten._unsafe_view(dx, x.shape)),
            dweight,
            None,
        )


def fork(x: Tensor, weight: Tensor, bias: Tensor | None) -> Pair:
    """The product of x, with a bias that has no gradient, and x."""
    made: Pair = Fork.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return made
