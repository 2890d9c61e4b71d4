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
from torch.compiler import is_compiling
from torch.utils._python_dispatch import _disable_current_modes

from evenkeel._core import is_plain
from evenkeel.torch._autograd import has_no_memory

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
        with _disable_current_modes(), torch.enable_grad():  # a mode may keep tensors, or make others
            x = torch.zeros(1, requires_grad=True, device="cpu")
            torch.autograd.grad(_Probe.apply(x, found) * 2, x, torch.ones(1, device="cpu"))  # type: ignore[no-untyped-call]
    except AttributeError:
        return ()
    return found[0]


def _is_replaceable(gradient: Tensor) -> bool:
    """Whether memory is all that it has: no history, no batch of is_grads_batched."""
    seen = torch.is_grad_enabled() or is_compiling() or not is_plain(gradient) or has_no_memory(gradient)
    return not seen and gradient.is_contiguous()


class Fork(Function):
    """(x weight^T + bias, x); the bias has no gradient here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Pair:
        needs_x, needs_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_weight else None, weight if needs_x else None)
        ctx.set_materialize_grads(False)
        return F.linear(x, weight, bias), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, past: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        if dy is None:
            return past, None, None
        rows = dy.reshape(-1, dy.shape[-1])
        dweight = rows.t().mm(x.reshape(-1, x.shape[-1])) if needs_weight else None
        if not needs_x:
            return None, dweight, None
        if past is None:
            return rows.mm(weight).view(*dy.shape[:-1], -1), dweight, None
        known = _is_replaceable(past) and _references_of_autograd()
        is_own = bool(known) and _references(past) == known
        onto = past.view(-1, past.shape[-1]) if is_own else past.reshape(-1, past.shape[-1])
        dx = (onto.addmm_ if is_own else onto.addmm)(rows, weight)
        # As a plain tensor, not as a view, whose base would be another reference to the memory.
        view = torch.ops.aten._unsafe_view if _is_replaceable(dx) else Tensor.view
        return view(dx, past.shape), dweight, None


def fork(x: Tensor, weight: Tensor, bias: Tensor | None) -> Pair:
    """The product of x, with a bias that has no gradient, and x."""
    made: Pair = Fork.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return made
