"""Forward and backward with statistics in the open, and no autograd. SPDX-License-Identifier: MIT"""

from torch import Tensor

from evenkeel.torch import _kernels
from evenkeel.torch._kernels import LAYER_NORM, RMS_NORM, Gradients, Shape


def _normalized(x: Tensor, weight: Tensor | None) -> Shape:
    """The shape of the weight, else x's last dimension."""
    return tuple(x.shape[-1:] if weight is None else weight.shape)


def _leading(x: Tensor, shape: Shape) -> Shape:
    return tuple(x.shape[: x.dim() - len(shape)])


def _forward(norm: int, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float | None) -> tuple[Tensor, ...]:
    """y and all statistics, which have the leading dimensions of x."""
    shape = _normalized(x, bias if weight is None else weight)
    y, stats = _kernels.forward(norm, x, shape, weight, bias, eps, True)
    assert stats is not None
    return y, *(row.view(_leading(x, shape)) for row in stats.unbind())


def _backward(
    norm: int,
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: tuple[Tensor, ...],
    needs: tuple[bool, bool, bool],
) -> Gradients:
    shape = _normalized(x, weight)
    gradients = _kernels.empty_gradients(x, shape, x.dtype if weight is None else weight.dtype, *needs)
    return _kernels.backward(norm, dy, x, shape, weight, stats, gradients) if any(needs) else gradients


def layer_norm_forward(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    return_mean_lo: bool = False,
) -> tuple[Tensor, ...]:
    """(y, mean, rstd), and mean_lo if asked for: what rounding took from the mean.

    Normalized is the shape of weight (or bias), else the last dimension. The statistics are in float32, of a float64 x
    in float64, and have the leading dimensions of x.
    """
    return _forward(LAYER_NORM, x, weight, bias, eps)[: 4 if return_mean_lo else 3]


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    mean_lo: Tensor | None = None,
    need_dx: bool = True,
    need_dweight: bool = True,
    need_dbias: bool = True,
) -> Gradients:
    """(dx, dweight, dbias), each None where it is not needed. Any mean and rstd will do, one element a row of x."""
    stats = (mean, rstd) if mean_lo is None else (mean, rstd, mean_lo)
    return _backward(LAYER_NORM, dy, x, weight, stats, (need_dx, need_dweight, need_dbias))


def rms_norm_forward(x: Tensor, weight: Tensor | None = None, eps: float | None = None) -> tuple[Tensor, Tensor]:
    """(y, rstd), as layer_norm_forward."""
    y, rstd = _forward(RMS_NORM, x, weight, None, eps)
    return y, rstd


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    rstd: Tensor,
    weight: Tensor | None = None,
    *,
    need_dx: bool = True,
    need_dweight: bool = True,
) -> tuple[Tensor | None, Tensor | None]:
    """(dx, dweight), as layer_norm_backward."""
    gradients = _backward(RMS_NORM, dy, x, weight, (rstd,), (need_dx, need_dweight, False))
    return gradients.dx, gradients.dweight
