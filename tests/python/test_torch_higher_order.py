"""Second and third derivatives, checked in float64 against finite differences and PyTorch's own.
SPDX-License-Identifier: MIT"""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import evenkeel.torch as ek
from torch_cases import both_norms, close, every_norm, require_gradients, tensor, wide

EPS = 0.1  # rows are short: without it the derivatives are steep


def operands(norm, shape=(3, 5), normalized=(5,)):
    """Those that the norm has, which require gradients."""
    tensors = tensor(shape, "f64"), *norm.affine(normalized, "f64")
    return [t for t in require_gradients(*tensors) if t is not None]


def function(norm, normalized=(5,)):
    """The norm of those operands."""

    def call(x, *affine):
        given = iter(affine)
        weight = next(given) if norm.has_weight else None
        return norm.ours(x, normalized, weight, next(given) if norm.has_bias else None, EPS)

    return call


@every_norm
def test_first_and_second_derivatives_are_those_of_finite_differences(norm):
    assert gradcheck(function(norm), operands(norm))
    assert gradgradcheck(function(norm), operands(norm))


@both_norms
def test_so_are_those_over_several_dimensions(norm):
    inputs = operands(norm, (2, 2, 3), (2, 3))
    assert gradcheck(function(norm, (2, 3)), inputs)
    assert gradgradcheck(function(norm, (2, 3)), inputs)
    alone = operands(norm, (2, 3), (2, 3))
    assert gradgradcheck(function(norm, (2, 3)), alone)


@both_norms
def test_third_derivatives(norm):
    inputs = operands(norm, (2, 3), (3,))

    def slope(x, *affine):
        y = function(norm, (3,))(x, *affine)
        return torch.autograd.grad(y.pow(3).sum(), (x, *affine), create_graph=True)

    assert gradgradcheck(slope, inputs)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_second_derivatives_where_an_operand_is_frozen(frozen):
    x, weight = tensor((3, 5), "f64"), tensor((5,), "f64", seed=1)
    if frozen == "x":
        assert gradgradcheck(lambda w: ek.layer_norm(x, (5,), w, eps=EPS), require_gradients(weight))
    else:
        assert gradgradcheck(lambda x: ek.layer_norm(x, (5,), weight, eps=EPS), require_gradients(x))


def penalty(norm, call, x, weight):
    """Derivatives of a loss of derivatives: dy depends on x and weight, as x does on what it is computed from."""
    x, weight = require_gradients(x, weight)
    y = call(norm, (x * weight).tanh(), tuple(x.shape[-1:]), weight)
    (slope,) = torch.autograd.grad((y.pow(3) * x).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), (x, weight))


@both_norms
def test_a_gradient_penalty_is_that_of_pytorch(norm):
    x, weight = tensor((4, 8), "f64"), tensor((8,), "f64", seed=1)
    found = penalty(norm, type(norm).ours, x, weight)
    expected = penalty(norm, type(norm).theirs, x, weight)
    for result, correct in zip(found, expected, strict=True):
        assert torch.allclose(result, correct, rtol=1e-10, atol=1e-10 * correct.abs().max())


@both_norms
def test_a_gradient_penalty_in_f32(norm):
    x, weight = tensor((4, 8)), tensor((8,), seed=1)
    found = penalty(norm, type(norm).ours, x, weight)
    expected = penalty(norm, type(norm).theirs, *wide(x, weight))
    for result, correct in zip(found, expected, strict=True):
        close(result / correct.abs().max(), correct / correct.abs().max(), "f32")


def test_second_derivatives_without_an_eps():
    found = []
    for library in (ek, torch.nn.functional):
        (x,) = require_gradients(tensor((4, 8), "f64", scale=1e-8))
        (slope,) = torch.autograd.grad(library.rms_norm(x, (8,)).pow(3).sum(), x, create_graph=True)
        found += torch.autograd.grad(slope.square().sum(), x)
    assert torch.allclose(*found, rtol=1e-9, atol=1e-9 * found[1].abs().max())


@both_norms
def test_first_derivatives_have_the_same_bits_with_and_without_a_graph(norm):
    x, weight = require_gradients(tensor((40, 100)), tensor((100,), seed=1))
    y = norm.ours(x, (100,), weight)
    dy = tensor((40, 100), seed=2)
    plain = torch.autograd.grad(y, (x, weight), dy, retain_graph=True)
    recorded = torch.autograd.grad(y, (x, weight), dy, create_graph=True)
    assert all(map(torch.equal, plain, recorded)) and all(g.requires_grad for g in recorded)


def test_derivatives_that_nothing_depends_on_are_none():
    x, bias = require_gradients(tensor((3, 5), "f64"), tensor((5,), "f64"))
    y = ek.layer_norm(x, (5,), None, bias)
    dbias, dx = torch.autograd.grad(y.sum(), (bias, x), create_graph=True)
    assert torch.autograd.grad(dx.sum(), bias, allow_unused=True, retain_graph=True) == (None,)
    assert not torch.autograd.grad(dbias.sum(), x, allow_unused=True, materialize_grads=True)[0].any()


def test_hessians_of_both_kinds():
    x = tensor((2, 4), "f64")

    def loss(library):
        return lambda x: library.layer_norm(x, (4,), eps=EPS).pow(3).sum()

    expected = torch.autograd.functional.hessian(loss(torch.nn.functional), x)
    for vectorize in (False, True):
        hessian = torch.autograd.functional.hessian(loss(ek), x, vectorize=vectorize)
        assert torch.allclose(hessian, expected, rtol=1e-10, atol=1e-10)
