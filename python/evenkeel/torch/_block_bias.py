"""The gradient of a bias that a product adds: one pass over dy sums its columns, in the order of rule 6 of
docs/numerics.md, and writes dy where it is wanted too. Backward of bias_act without an activation is that pass.

_block_heads.py and _block_wide_norm.py call it for a packed product, _block_fused.py for one that nothing follows.
SPDX-License-Identifier: MIT
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evenkeel import _core
from evenkeel._glu import Options
from evenkeel.torch._recompute import Tensors, compute, serve, workspace

_NO_ACTIVATION = Options("none")


def copy_and_sum(dy: Tensor, to: Tensor | None, sums: Tensor | None) -> None:
    """to = dy, and the sums of its columns; dy and to end in columns, or in heads of them, and one may be None.

    dy is read where it lies if its rows are at one distance, as attention's backward returns them.
    """
    cols = dy[0, 0].numel()
    rows = dy.reshape(-1, cols)
    inputs = rows, None, None, None  # the values of the gate have no influence
    given = None if to is None else to.view(-1, cols)
    scratch = workspace(_core.glu_backward_workspace, inputs, *_NO_ACTIVATION, sums is not None, False, None)
    compute(
        _core.glu_backward, (rows, *inputs), *_NO_ACTIVATION, given, None, sums, None, None, scratch, any_order=True
    )


class _AddedBias(NamedTuple):
    """A call, of (product, bias), of a product that has its bias already: it is here for the bias's gradient."""

    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        return "bias_act"

    def kept(self, inputs: Tensors) -> Tensors:
        return None, inputs[1]

    def stand_ins(self, kept: Tensors) -> Tensors:
        """The gradients depend on no product: one that lies on one element of memory."""
        bias = kept[1]
        assert bias is not None
        return bias.new_zeros(()).expand(self.shape).requires_grad_(), bias

    def forward(self, inputs: Tensors) -> tuple[Tensor | None, ...]:
        product = inputs[0]
        assert product is not None
        return (product.detach(),)  # not the input itself: autograd would refuse to let its user write into it

    def backward(self, gradients: Tensors, kept: Tensors, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
        (dy,), bias = gradients, kept[1]
        assert dy is not None and bias is not None
        dbias = torch.empty_like(bias) if needs[1] else None
        if dbias is not None:
            copy_and_sum(dy, None, dbias)
        return dy, dbias

    def composed(self, *inputs: Any) -> tuple[Tensor | None, ...]:
        x, bias = inputs
        return (x + (bias - bias.detach()).to(x.dtype),)


def added(product: Tensor, bias: Tensor) -> Tensor:
    """The product, which has the bias already, with the bias's gradient."""
    result: Tensor = serve(_AddedBias(tuple(product.shape)), product, bias)[0]
    return result
