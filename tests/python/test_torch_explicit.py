"""Forward and backward with explicit statistics; test_torch_values.py has their bits.
SPDX-License-Identifier: MIT"""

import pytest
import torch

import evenkeel.torch as ek
from torch_cases import DEVICE, close, same_bits, tensor


def test_the_shape_of_weight_or_bias_says_what_is_normalized():
    x, w = tensor((2, 3, 4)), tensor((3, 4), seed=1)
    for weight, bias in ((w, None), (None, w), (w, w)):
        y, mean, rstd = ek.layer_norm_forward(x, weight, bias)
        assert same_bits(y, ek.layer_norm(x, (3, 4), weight, bias)) and mean.shape == rstd.shape == (2,)
    y, mean, _ = ek.layer_norm_forward(x)
    assert same_bits(y, ek.layer_norm(x, (4,))) and mean.shape == (2, 3)
    dx, dweight, dbias = ek.layer_norm_backward(x, x, mean, mean)
    assert dx.shape == x.shape and dweight.shape == dbias.shape == (4,)


def test_so_does_the_shape_of_x_bias():
    x, x_bias = tensor((2, 3, 4)), tensor((3, 4), seed=1)
    y, mean, rstd = ek.layer_norm_forward(x, x_bias=x_bias, residual_after=x)
    assert same_bits(y, ek.layer_norm_residual(x, x, (3, 4), x_bias=x_bias)) and mean.shape == (2,)
    found = ek.layer_norm_backward(x, x, mean, rstd, x_bias=x_bias, need_dx_bias=True)
    expected = ek.layer_norm_backward(x, x + x_bias, mean, rstd, tensor((3, 4)).fill_(1.0), need_dx_bias=True)
    assert all(map(same_bits, found, expected)) and found[3].shape == (3, 4)


@pytest.mark.parametrize("needs", range(8), ids=lambda needs: f"{needs:03b}")
def test_only_what_is_needed_is_computed(needs):
    x, names = tensor((6, 40)), ("need_dx", "need_dweight", "need_dbias")
    wanted = [bool(needs >> i & 1) for i in range(3)]
    _, mean, rstd = ek.layer_norm_forward(x)
    found = ek.layer_norm_backward(x, x, mean, rstd, **dict(zip(names, wanted, strict=True)))
    assert [g is not None for g in found] == wanted and (found.dx, found.dweight, found.dbias) == tuple(found)
    _, rstd = ek.rms_norm_forward(x)
    found = ek.rms_norm_backward(x, x, rstd, need_dx=wanted[0], need_dweight=wanted[1])
    assert [g is not None for g in found] == wanted[:2]


def test_any_statistics_in_any_layout():
    x, dy = tensor((6, 40), "f64"), tensor((6, 40), "f64", seed=1)
    mean, rstd = torch.full((6, 2), 0.5, dtype=torch.float64, device=DEVICE)[:, :1], tensor((1,), "f64").exp().expand(6)
    dx, dweight, dbias = ek.layer_norm_backward(dy, x, mean, rstd)
    xhat = (x - 0.5) * rstd[:, None]
    close(dweight, (dy * xhat).sum(0))
    close(dbias, dy.sum(0))
    close(dx, (dy - dy.mean(1, keepdim=True) - xhat * (dy * xhat).mean(1, keepdim=True)) * rstd[:, None])
    assert same_bits(ek.layer_norm_backward(dy.t().contiguous().t(), x, mean, rstd).dx, dx)


def test_lazy_negations_are_carried_out():
    def results(x, dy, weight):
        y, mean, rstd, mean_lo = ek.layer_norm_forward(x, weight, weight, return_mean_lo=True)
        statistics = torch._neg_view(-mean), rstd
        return y, *ek.layer_norm_backward(dy, x, *statistics, weight, mean_lo=mean_lo)

    operands = tensor((6, 40)), tensor((6, 40), seed=1), tensor((40,), seed=2)
    lazy = [torch._neg_view(-t) for t in operands]
    assert all(map(same_bits, results(*lazy), results(*operands)))


def test_there_is_no_autograd():
    x, weight = tensor((6, 40)).requires_grad_(), tensor((40,), seed=1).requires_grad_()
    y, mean, rstd = ek.layer_norm_forward(x, weight)
    assert not any(t.requires_grad for t in (y, mean, rstd))
    mean.requires_grad_()
    assert not any(t.requires_grad for t in ek.layer_norm_backward(x, x, mean, rstd, weight))


def test_mistakes_name_both_values():
    x = tensor((6, 40))
    with pytest.raises(ValueError, match=r"\(6, 40\).*\(41,\)"):
        ek.layer_norm_forward(x, torch.ones(41, device=DEVICE))
    with pytest.raises(ValueError, match=r"\(41,\).*\(40,\)"):
        ek.layer_norm_forward(x, torch.ones(40, device=DEVICE), torch.ones(41, device=DEVICE))
    with pytest.raises(TypeError, match="weight or bias of f64 does not go with dtype f32"):
        ek.rms_norm_forward(x, torch.ones(40, dtype=torch.float64, device=DEVICE))
    _, mean, rstd = ek.layer_norm_forward(x)
    with pytest.raises(ValueError, match="5.*6"):
        ek.layer_norm_backward(x, x, mean[:5], rstd)
    with pytest.raises(ValueError, match=r"\(5, 40\).*\(6, 40\)"):
        ek.layer_norm_backward(x[:5], x, mean, rstd)
    with pytest.raises(TypeError, match="x cannot be read: .*meta"):
        ek.layer_norm_forward(torch.ones(6, 40, device="meta"))


@pytest.mark.parametrize("name", ["layer_norm_forward", "rms_norm_forward"])
def test_residual_dtype_needs_a_residual(name):
    x = tensor((6, 40))
    for options in ({}, {"residual_after": x}):
        with pytest.raises(
            ValueError, match=r"^residual_dtype \(torch.float32\) is the dtype of h, and residual is None"
        ):
            getattr(ek, name)(x, residual_dtype=torch.float32, **options)
