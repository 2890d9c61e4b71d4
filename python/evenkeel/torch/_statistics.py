"""The norms with autograd and their statistics in the open; evenkeel.compat calls it. SPDX-License-Identifier: MIT"""

from typing import Any

from torch import Tensor

from evenkeel.torch import _kernels
from evenkeel.torch._autograd import Norm, Options, save


class NormAndStatistics(Norm):
    """(y, statistics) of (x, weight, bias), as _kernels.forward returns them. The statistics have no gradient."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, options: Options
    ) -> tuple[Tensor, Tensor]:
        norm, shape, eps, _ = options
        y, stats = _kernels.forward(norm, x, shape, weight, bias, eps, True)
        assert stats is not None
        save(ctx, x, weight, bias, stats, options)
        ctx.mark_non_differentiable(stats)
        ctx.set_materialize_grads(False)
        return y, stats

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        dy = grad_outputs[0]
        return (None,) * 4 if dy is None else Norm.backward(ctx, dy)
