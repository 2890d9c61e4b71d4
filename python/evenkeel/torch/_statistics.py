"""The norms with autograd and their explicit statistics; evenkeel.compat calls it. SPDX-License-Identifier: MIT"""

from typing import Any

from torch import Tensor

from evenkeel.torch import _kernels
from evenkeel.torch._autograd import Norm, keep
from evenkeel.torch._call import Call, Flavour, Inputs, Shape, options_of


class NormAndStatistics(Norm):
    """(y, statistics) of (x, weight, bias), as _kernels.forward returns them. The statistics have no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        options: tuple[int, Shape, float, int | None],
    ) -> tuple[Tensor, Tensor]:
        norm, shape, eps, group_cols = options
        call = Call(norm, Inputs(x, weight, bias), shape, eps, Flavour(group_cols=group_cols))
        y, _, stats = _kernels.forward(call, True)
        assert stats is not None
        keep(ctx, options_of(call), x, weight, stats)
        ctx.mark_non_differentiable(stats)
        ctx.set_materialize_grads(False)
        return y, stats

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        dy = grad_outputs[0]
        return (None,) * 4 if dy is None else Norm.backward(ctx, dy)
