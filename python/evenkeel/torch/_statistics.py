"""The norms with autograd and their statistics in the open; evenkeel.compat calls it. SPDX-License-Identifier: MIT"""

from typing import Any

from torch import Tensor

from evenkeel.torch import _kernels
from evenkeel.torch._autograd import Norm, keep
from evenkeel.torch._kernels import Shape


class NormAndStatistics(Norm):
    """(y, statistics) of (x, weight, bias), as _kernels.forward returns them. The statistics have no gradient."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, options: tuple[int, Shape, float]
    ) -> tuple[Tensor, Tensor]:
        norm, shape, eps = options
        y, stats = _kernels.forward(norm, x, shape, weight, bias, eps, True)
        assert stats is not None
        alone = bias.dtype if weight is None and bias is not None else None
        keep(ctx, x, weight, stats, (norm, shape, eps, False, alone))
        ctx.mark_non_differentiable(stats)
        ctx.set_materialize_grads(False)
        return y, stats

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        dy = grad_outputs[0]
        return (None,) * 4 if dy is None else Norm.backward(ctx, dy)
